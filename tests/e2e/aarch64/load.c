/* Loads libraries as FlashInfer's runtime does, and says which one does not resolve.

   load PRELOADED... -- MODULE...    e.g. libcudart.so.13 libtvm_ffi.so -- norm.so page.so
   Exit status: 0 if every module loads with RTLD_NOW, else 1. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  int preloading = 1, failures = 0, modules = 0;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--") == 0) {
      preloading = 0;
      continue;
    }
    void* library = dlopen(argv[i], RTLD_NOW | (preloading ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) {
      fprintf(stderr, "%s: %s\n", argv[i], dlerror());
      ++failures;
    } else if (!preloading) {
      printf("%s\n", argv[i]);
      ++modules;
    }
  }
  return failures || !modules;
}
