"""Compresses one file as it will lie in the zip, in an action of its own: WheelMember.

    wheel_member.py --deflate DIR --level N --file M.so --member OUT --facts OUT.json

Packing a wheel is then a copy. The library is pinned (wheels/lock.txt), not the interpreter's zlib: that differs
between Python builds, and so would the bytes.

--facts says what the zip's directory and RECORD say of the file.

libdeflate compresses a buffer as a whole. The file is mapped, so the process's own memory is the compressed stream; the
file's pages belong to the kernel's cache. A wheel has a thousand of these actions, each a tenth of a
second long; importing argparse, json and pathlib would take a tenth more.
"""

from __future__ import annotations

import hashlib
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
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    deflate = load_deflate(options["--deflate"])
    with open(options["--file"], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # An empty file can't be mapped.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        compressed = deflate.deflate_compress(data, int(options["--level"]))
        crc32, sha256 = deflate.crc32(data), hashlib.sha256(data).hexdigest()
    with open(options["--member"], "wb") as file:
        file.write(compressed)
    with open(options["--facts"], "w") as text:
        text.write(
            f'{{\n "bytes": {size},\n "compressed_bytes": {len(compressed)},\n "crc32": {crc32},\n "sha256": "{sha256}"\n}}\n'
        )


if __name__ == "__main__":
    main()
