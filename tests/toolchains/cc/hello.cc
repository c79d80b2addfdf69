// What a build for the target has to be able to do: C++17 and its library, exceptions, threads, and C beside it.
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

extern "C" int answer(void);

namespace {

template <typename T>
std::optional<std::string> text(const T &value) {
  if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return std::nullopt;
  }
}

int check() {
  const std::map<std::string_view, int> numbers = {{"forty", 40}, {"two", 2}};
  int sum = 0;
  for (const auto &[name, number] : numbers) sum += number;
  int from_thread = 0;
  std::thread([&] { from_thread = answer(); }).join();
  try {
    throw std::runtime_error(*text(sum));
  } catch (const std::exception &error) {
    return std::filesystem::path("a/b").filename() == "b" && error.what() == std::to_string(from_thread);
  }
}

}  // namespace

int main() {
  std::cout << __FILE__ << " " << __DATE__ << "\n";
  return check() ? 0 : 1;
}
