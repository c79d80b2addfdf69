"""Compresses one file as it will lie in the zip, in an action of its own: WheelMember.

    wheel_member.py --deflate DIR --level N --file M.so --member OUT --facts OUT.json

Packing a wheel is then a copy. The library is pinned (wheels/lock.txt), not the interpreter's zlib: that differs
between Python builds, and so would the bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path


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
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--member", type=Path, required=True, help="the raw deflate stream")
    parser.add_argument(
        "--facts", type=Path, required=True, help="what the zip's directory and RECORD say of it (JSON)"
    )
    args = parser.parse_args()
    deflate = load_deflate(args.deflate)
    data = args.file.read_bytes()
    compressed = deflate.deflate_compress(data, args.level)
    args.member.write_bytes(compressed)
    facts = {
        "bytes": len(data),
        "compressed_bytes": len(compressed),
        "crc32": deflate.crc32(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    args.facts.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
