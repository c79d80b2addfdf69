"""Makes a library that has the functions which a header declares, and nothing in them.

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


def functions(text: str, start: str) -> list[str]:
    """The functions that preprocessed text declares and does not define, whose names begin as the pattern `start` says."""
    declared = re.findall(rf"\b({start}\w*)\s*\([^(){{}};]*(?:\([^()]*\)[^(){{}};]*)*\)[^(){{}};]*;", text)
    return sorted(set(declared))


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("cxx", "header", "functions", "soname", "out"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("directories", nargs="*")
    args = parser.parse_args(argv)
    include = [word for directory in args.directories for word in ("-isystem", directory)]
    preprocess = [args.cxx, "-E", "-P", "-x", "c++", *include, "-include", args.header, "/dev/null"]
    text = subprocess.run(preprocess, stdout=subprocess.PIPE, check=True, text=True).stdout
    names = functions(text, args.functions)
    if not names:
        print(
            f"error: {args.header} declares no function whose name begins with {args.functions}.\n"
            f"  expected: the functions of {args.soname}\n"
            f"  To do: correct the header or the pattern in STUBS of toolchains/cuda/private/toolkits.bzl",
            file=sys.stderr,
        )
        return 1
    assembly = "".join(f".globl {name}\n.type {name},%function\n{name}:\n" for name in names)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "stub.s"
        source.write_text(f'.text\n{assembly}.section .note.GNU-stack,"",%progbits\n')
        link = ["-shared", "-nostdlib", "-Wl,--build-id=none", "-s", f"-Wl,-soname,{args.soname}"]
        return subprocess.run([args.cxx, *link, str(source), "-o", args.out], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
