"""Writes a zip of members that are compressed already. Same members, same bytes.

The format is PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 (central directory) and 4.3.16 (end).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import BytesIO, FileIO
from pathlib import Path
from typing import BinaryIO

_VERSION = 20  # 2.0: deflate (section 4.4.3)
_UNIX = 3  # "version made by": the external attributes are a Unix mode (section 4.4.2)
_DEFLATED = 8
_UTF8 = 0x0800  # section 4.4.4, bit 11
_TIME, _DATE = 0, (1 << 5) | 1  # 1980-01-01 00:00, the first moment of the format (section 4.4.6)
_BUFFER = 1 << 20  # bytes that are copied at once: what packing takes of memory, whatever the members' sizes
_LIMIT = 0xFFFFFFFF  # from here on sizes and offsets need zip64, which a wheel under 2 GiB never does


class ZipError(Exception):
    """The members do not fit the format."""


@dataclass(frozen=True)
class Member:
    """One file of the zip: its name, its raw deflate stream (a path or the bytes), crc32, size in bytes and mode."""

    name: str
    stream: Path | bytes
    crc32: int
    size: int
    mode: int = 0o644

    def open(self) -> FileIO | BytesIO:
        """The stream, from its start."""
        return BytesIO(self.stream) if isinstance(self.stream, bytes) else FileIO(self.stream)


def _copy(stream: FileIO | BytesIO, out: BinaryIO, buffer: memoryview) -> int:
    """Copies a stream through `buffer`; returns its bytes."""
    total = 0
    while count := stream.readinto(buffer):
        out.write(buffer[:count])
        total += count
    return total


def write_zip(path: Path, members: list[Member]) -> None:
    """Writes `members` in the given order to `path`.

    Raises ZipError if a size or an offset reaches 4 GiB, or if a stream changes while it is copied.
    """
    directory = []
    buffer = memoryview(bytearray(_BUFFER))
    with open(path, "wb") as out:
        for member in members:
            offset, name = out.tell(), member.name.encode()
            with member.open() as stream:
                compressed_size = stream.seek(0, os.SEEK_END)
                stream.seek(0)
                if max(offset, member.size, compressed_size) >= _LIMIT:
                    raise ZipError(
                        f"{path.name}: {member.name} would reach beyond 4 GiB (offset {offset}, {member.size} bytes). "
                        f"Ship fewer modules or SM targets in one wheel: a release asset must be under 2 GiB."
                    )
                common = struct.pack(
                    "<HHHHHIIIHH",
                    _VERSION, _UTF8, _DEFLATED, _TIME, _DATE, member.crc32, compressed_size, member.size, len(name), 0,
                )  # fmt: skip
                out.write(b"PK\3\4" + common + name)
                if (copied := _copy(stream, out, buffer)) != compressed_size:
                    raise ZipError(
                        f"{path.name}: {member.name} changed while it was copied: {compressed_size} bytes, then {copied}. "
                        f"Build again, and change no output of the build meanwhile."
                    )
            attributes = (0o100000 | member.mode) << 16
            directory.append(
                b"PK\1\2"
                + struct.pack("<BB", _VERSION, _UNIX)
                + common
                + struct.pack("<HHHII", 0, 0, 0, attributes, offset)
                + name
            )
        start = out.tell()
        out.write(b"".join(directory))
        count, size = len(directory), out.tell() - start
        out.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, size, start, 0))
