#!/bin/sh
# GCC's @TOOL@ for @CPU@, from this repository's tree and nothing of the machine's. The path it is called by is never
# made absolute: what the compiler writes into objects, dependency files and line markers begins with it.
case $0 in
  */bin/*) root=${0%/bin/*} ;;
  bin/*) root=. ;;
  *) root=${0%/*}/.. ;;
esac
tree=$root/@CPU@

# The machine's settings for its own GCC.
unset COMPILER_PATH CPATH GCC_EXEC_PREFIX LIBRARY_PATH

# The directories that -nostdinc switches off, in the same order. Debian's GCC would make them absolute; like this they
# are searched at the same point, after the command line's.
export C_INCLUDE_PATH="@C_INCLUDE@"
export CPLUS_INCLUDE_PATH="@CXX_INCLUDE@"

# Debug information names the working directory.
export PWD=/proc/self/cwd

# For the compiler's processes only: the machine's C library, and everything else they link to from here.
export LD_LIBRARY_PATH="$root/lib"

# The seed of symbols made up for a file without a public one is otherwise random. A later one on the command line wins.
exec "$tree/usr/bin/@CPU@-linux-gnu-@TOOL@" --sysroot="$tree" -nostdinc -no-canonical-prefixes \
  -fno-canonical-system-headers -frandom-seed=0 "$@"
