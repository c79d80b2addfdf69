// Python's configuration for aarch64, where Debian's pyconfig.h looks for it. Of the pinned package only the one for x86_64 is
// fetched: that of aarch64 differs in these lines alone.
#include <x86_64-linux-gnu/python3.9/pyconfig.h>

#undef HAVE_GCC_ASM_FOR_X64
#undef HAVE_GCC_ASM_FOR_X87
#define HAVE_USABLE_WCHAR_T 1
