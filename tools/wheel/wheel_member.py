"""Compresses one file as it will lie in the zip, in an action of its own: WheelMember.

    wheel_member.py --deflate DIR --level N --file M.so --member OUT --facts OUT.json

Packing a wheel is then a copy. The library is pinned (wheels/lock.txt), not the interpreter's zlib: that differs
between Python builds, and so would the bytes.

libdeflate compresses a buffer as a whole. The file is mapped, so the process's own memory is the compressed stream; the
file's pages belong to the kernel's cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import sys


def load_deflate(directory: str):  # type: ignore[no-untyped-def]
    """The pinned `deflate` package (libdeflate's bindings) in `directory`."""
    sys.path.insert(0, directory)
    import deflate

    return deflate


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deflate", required=True, help="directory with the pinned package")
    parser.add_argument("--level", type=int, required=True, help="libdeflate's, 1 to 12")
    parser.add_argument("--file", required=True)
    parser.add_argument("--member", required=True, help="the raw deflate stream")
    parser.add_argument("--facts", required=True, help="what the zip's directory and RECORD say of it (JSON)")
    args = parser.parse_args()
    deflate = load_deflate(args.deflate)
    with open(args.file, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # An empty file can't be mapped.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        compressed = deflate.deflate_compress(data, args.level)
        facts = {
            "bytes": size,
            "compressed_bytes": len(compressed),
            "crc32": deflate.crc32(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    with open(args.member, "wb") as file:
        file.write(compressed)
    with open(args.facts, "w") as text:
        text.write(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
