"""What the tests of this package read: real modules, fatbins and modules made by hand, and damaged copies of them."""

from __future__ import annotations

import os
import random
import resource
import struct
import time
import unittest
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from elf import ElfError
from zstd import Zstd

HERE = Path("tests/tools/wheel/census")
SM_TARGETS = ["8.0", "9.0a", "10.0a", "12.0f", "12.1a"]
LIBZSTD = os.environ["LIBZSTD"]
ZSTD = Zstd(LIBZSTD)


def real_modules() -> dict[str, bytes]:
    """The modules that BUILD.bazel declares, by CUDA label."""
    modules = {}
    for path in HERE.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            modules[path.name.split("+")[1].split("-")[0]] = wheel.read("census/jit_cache/kernels/kernels.so")
    assert sorted(modules) == ["cu130", "cu134"]
    return modules


def image(
    payload: bytes, number: int = 90, flags: int = 0x11, kind: int = 2, stored: int = 0, uncompressed: int = 0
) -> bytes:
    """An image of a fatbin. `stored` and `uncompressed` are sizes in bytes, for a payload that is compressed."""
    padded = payload + bytes(-len(payload) % 8)
    return (
        struct.pack(
            "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), stored, 0, 8, 1, number, 0, 0, flags, 0, uncompressed
        )
        + padded
    )


def fatbin(*images: bytes) -> bytes:
    """A fatbin."""
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, images))) + b"".join(images)


def frame(data: bytes) -> bytes:
    """A Zstandard frame of one raw block (RFC 8878, sections 3.1.1.1 and 3.1.1.2)."""
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data)) + struct.pack("<I", len(data) << 3 | 1)[:3] + data


def elf(
    sections: dict[str, tuple[int, bytes]], machine: int = 62, flags: int = 0, link: int = 0, info: int = 0
) -> bytes:
    """An ELF file with sections of the given types and contents, in that order after section 0.

    A section's address is its offset. `.strtab`, if there is one, is the string table of all others, and `info` the
    sh_info of all.
    """
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    offset, headers, body = 64, [bytes(64)], b""
    strings = [*sections].index(".strtab") + 1 if ".strtab" in sections else link
    for name, (type_, content) in {**sections, ".shstrtab": (3, names)}.items():
        where = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", where, type_, 0, offset, offset, len(content), strings, info, 8, 0))
        padded = content + bytes(-len(content) % 8)
        body, offset = body + padded, offset + len(padded)
    header = struct.pack(
        "<4sBBBBB7xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, 0, 8, 3, machine, 1, 0, 0, offset, flags, 64, 0, 0, 64, len(headers), len(headers) - 1),
    )
    return header + body + b"".join(headers)


def cubin(*kernels: str, number: int = 90, note: bytes = b"", compat: bytes = b"") -> bytes:
    """A cubin with symbols of kernels; `note` is what ptxas says of its command line."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in kernels)
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", strings.index(b"\0" + name.encode() + b"\0") + 1, 0x12, 0x10, 1, 0, 8)
        for name in kernels
    )
    sections = {".text": (1, bytes(8)), ".strtab": (3, strings), ".symtab": (2, symbols)}
    if note:
        description = bytes(24) + b"\0ptxas\0" + note + b"\0"
        description += bytes(-len(description) % 4)
        sections[".note.nv.tkinfo"] = (
            7,
            struct.pack("<III", 12, len(description), 2000) + b"NVIDIA Corp\0" + description,
        )
    if compat:
        sections[".nv.compat"] = (0x70000086, compat)
    return elf(sections, machine=190, flags=0x06000004 | number << 8)


def module(*fatbins: bytes, pointers: list[int] | None = None) -> bytes:
    """An x86_64 module with fatbins and their wrappers, which point to `pointers` if given."""
    content, addresses = b"", []
    for data in fatbins:
        addresses.append(64 + len(content))
        content += data + bytes(-len(data) % 8)
    wrappers = b"".join(
        struct.pack("<IIQQ", 0x466243B1, 1, a, 0) for a in (addresses if pointers is None else pointers)
    )
    return elf({".nv_fatbin": (1, content), ".nvFatBinSegment": (1, wrappers)})


def module_with_cubins(**cubins: tuple[str, bytes]) -> bytes:
    """An x86_64 module with embedded cubins: by name, what the section says that it is for, and the bytes."""
    return elf({f".cubin.sm_{sm}.{name}": (1, content) for name, (sm, content) in cubins.items()})


def image_offsets(section: bytes) -> Iterator[int]:
    """Where images and their payloads begin in a section of fatbins, found by their magic and version."""
    position = 0
    while (position := section.find(struct.pack("<IHH", 0xBA55ED50, 1, 16), position)) >= 0:
        end = position + 16 + struct.unpack_from("<Q", section, position + 8)[0]
        yield position
        position += 16
        while position < end:
            yield position
            header, padded = struct.unpack_from("<IQ", section, position + 4)
            yield position + header
            position += header + padded


def damaged(data: bytes, hot: list[int], seed: int) -> Iterator[bytes]:
    """Copies of `data` without end, each damaged in another way: most of them at or after one of the offsets `hot`."""
    generator = random.Random(seed)
    while True:
        copy = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 8))):
            start = generator.choice([*hot, generator.randrange(len(data))])
            position = min(start + generator.randrange(generator.choice((4, 64, 512))), len(data) - 1)
            width = generator.choice((1, 1, 2, 4, 8))
            value = generator.choice((0, 1, 0x7F, 0xFF, generator.randrange(256)))
            copy[position : position + width] = bytes([value] * len(copy[position : position + width]))
        yield bytes(copy[: generator.randrange(len(copy))] if generator.random() < 0.05 else copy)


class DamageTest(unittest.TestCase):
    """Tests that damaged bytes are an ElfError or have an answer, soon, and in little memory."""

    # Bytes of address space beyond what the process has, seconds in all, seconds for one copy.
    MEMORY, TIME, TIME_EACH = 256 << 20, 3.0, 2.0

    def setUp(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + self.MEMORY, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, limits)

    def survives(self, read: Callable[[bytes], object], data: bytes, hot: list[int], at_least: int) -> None:
        """Reads damaged copies of `data` until the time is over; at least so many of them."""
        refused = read_ = 0
        end = time.monotonic() + self.TIME
        for copy in damaged(data, hot, seed=1):
            start = time.monotonic()
            try:
                read(copy)
            except ElfError as error:
                refused += 1
                self.assertRegex(str(error), r"(?s)^.+: .+: expected .+, found .+")
            read_ += 1
            self.assertLess(time.monotonic() - start, self.TIME_EACH)
            if time.monotonic() > end:
                break
        print(f"{read_} damaged copies read, {refused} of them refused")
        self.assertGreaterEqual(read_, at_least)
        self.assertGreater(refused, 0)
