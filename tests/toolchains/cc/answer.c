/* Not C++: a compiler that took this file for C++ would fail here. */
int answer(void);
int answer(void) {
  int class = 42;
  return class;
}
