"""Makes a library that has the functions which a header declares, all of which fail; or one without functions.

    stub_step.py --cxx CXX --header cuda.h --functions 'cu[A-Z]' --soname libcuda.so.1 --out libcuda.so [-- directories]

The preprocessed text counts: cuda.h calls cuMemAlloc_v2 what it says cuMemAlloc of.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# What each of them returns: CUDA_ERROR_STUB_LIBRARY of cuda.h. For the other libraries it is a failure too.
STUB_LIBRARY = 34


def functions(text: str, start: str) -> list[str]:
    """The functions that preprocessed text declares and does not define, whose names begin as the pattern `start` says."""
    # What inline functions call counts as well; it is declared anyway.
    found = re.findall(rf"\b({start}\w*)\s*\([^{{}};]*;", text)
    return sorted(set(found))


def declared(args: argparse.Namespace) -> list[str]:
    """The functions of the header that the command line names."""
    include = [word for directory in args.directories for word in ("-isystem", directory)]
    preprocess = [args.cxx, "-E", "-P", "-x", "c++", *include, "-include", args.header, "/dev/null"]
    text = subprocess.run(preprocess, stdout=subprocess.PIPE, check=True, text=True).stdout
    return functions(text, args.functions)


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("cxx", "soname", "out"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--header", help="default: it has no functions")
    parser.add_argument("--functions", default="", help="pattern of what their names begin with")
    parser.add_argument("directories", nargs="*")
    args = parser.parse_args(argv)
    names = declared(args) if args.header else []
    if args.header and not names:
        print(
            f"error: {args.header} declares no function whose name begins with {args.functions}.\n"
            f"  expected: the functions of {args.soname}\n"
            f"  To do: correct the header or the pattern in STUBS of toolchains/cuda/private/toolkits.bzl",
            file=sys.stderr,
        )
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "stub.cc"
        source.write_text("".join(f'extern "C" int {name}() {{ return {STUB_LIBRARY}; }}\n' for name in names))
        link = ["-shared", "-fPIC", "-O1", "-nostdlib", "-Wl,--build-id=none", "-s", f"-Wl,-soname,{args.soname}"]
        return subprocess.run([args.cxx, *link, str(source), "-o", args.out], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
