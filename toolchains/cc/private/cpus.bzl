"""What the trees of the compiler look like: the one table from which repository, wrappers and toolchains are made."""

visibility(["//toolchains/cc/..."])

# Debian's name for the compiler: g++-<this>, usr/include/c++/<this>.
GCC = "10"

# By target CPU, with paths in its tree. Debian's native and cross packages lay theirs out differently:
#   gcc          the directory of cc1plus, crtbegin.o and libstdc++.a
#   cxx_include  what GCC searches for C++ headers, in its order
#   c_include    the same for C headers; C++ searches them after cxx_include
CPUS = {
    "aarch64": struct(
        gcc = "usr/lib/gcc-cross/aarch64-linux-gnu/" + GCC,
        cxx_include = [
            "usr/aarch64-linux-gnu/include/c++/" + GCC,
            "usr/aarch64-linux-gnu/include/c++/%s/aarch64-linux-gnu" % GCC,
            "usr/aarch64-linux-gnu/include/c++/%s/backward" % GCC,
        ],
        c_include = [
            "usr/lib/gcc-cross/aarch64-linux-gnu/%s/include" % GCC,
            "usr/aarch64-linux-gnu/include",
        ],
    ),
    "x86_64": struct(
        gcc = "usr/lib/gcc/x86_64-linux-gnu/" + GCC,
        cxx_include = [
            "usr/include/c++/" + GCC,
            "usr/include/x86_64-linux-gnu/c++/" + GCC,
            "usr/include/c++/%s/backward" % GCC,
        ],
        c_include = [
            "usr/lib/gcc/x86_64-linux-gnu/%s/include" % GCC,
            "usr/include/x86_64-linux-gnu",
            "usr/include",
        ],
    ),
}

# Each is bin/<cpu>-linux-gnu-<tool> in the repository.
DRIVERS = ["cpp", "g++", "gcc"]
BINUTILS = ["ar", "as", "ld", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip"]
