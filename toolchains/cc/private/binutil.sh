#!/bin/sh
# Binutils' @TOOL@ for @CPU@, from this repository's tree.
case $0 in
  */bin/*) root=${0%/bin/*} ;;
  bin/*) root=. ;;
  *) root=${0%/*}/.. ;;
esac
export LD_LIBRARY_PATH="$root/lib"
exec "$root/@CPU@/usr/bin/@CPU@-linux-gnu-@TOOL@" "$@"
