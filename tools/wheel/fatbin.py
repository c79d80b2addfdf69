"""Finds the fatbins in a module and reads their images.

NVIDIA documents the wrapper (fatbinary_section.h in every toolkit) but not the fatbin. What follows is read off the
output of fatbinary 13.0 and 13.4, for the SM targets of wheels/matrix.bzl with each suffix and for every --compress-mode.

A fatbin is a header of 16 bytes (u32 magic, u16 version, u16 header's size, u64 size of what follows) and then images,
each with a header of its own, of at least 64 bytes, and a payload that is padded to 8 bytes:

     0 u16 kind                         16 u32 payload's bytes, if it is compressed     40 u64 flags
     2 u16 version                      24 u16, u16 version of the code: minor, major   56 u64 uncompressed bytes, if it is
     4 u32 header's size                28 u32 SM number: 90 is 9.0
     8 u64 payload's size, padded

Images of other kinds than SASS and PTX are listed, not opened: NVVM IR for link-time optimisation (8), and what `fatbinary
--concat` of 13.4 makes of several images (256).

What the bytes tell of an SM target's suffix:

- the image's flags have a bit for `a` and one for `f`. fatbinary sets them as its command line says (`sm=120f`) and does
  not compare them with the cubin: that a cubin for 12.0 is called 12.0a is no error to it.
- the cubin's section .note.nv.tkinfo holds the command line of ptxas, `-arch sm_120f`.
- the cubin's section .nv.compat, which it has from SM 9.0 on, says whether it is for an `a` target. Nothing in the cubin
  but ptxas' command line tells `f` from no suffix.
- the cubin's e_flags hold the SM number and no suffix: EF_CUDA_ACCELERATORS of LLVM's BinaryFormat/ELF.h is clear for `a` too.
- PTX says `.target sm_120f`.

So the suffix is read from the flags, and wherever the image itself says it too, both must agree.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elf import EM_AARCH64, EM_CUDA, EM_X86_64, SHN_UNDEF, STT_FUNC, Elf, ElfError
from zstd import Zstd, ZstdError

# fatbinary_section.h: __fatBinC_Wrapper_t {int magic; int version; data; filename_or_fatbins}, its section, and the
# sections of what it points to: whole programs, and relocatable device code (nvcc -rdc=true).
_WRAPPER = struct.Struct("<IIQQ")
_WRAPPER_MAGIC, _WRAPPER_VERSIONS, _WRAPPERS = 0x466243B1, (1, 2), ".nvFatBinSegment"
FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_FATBIN = struct.Struct("<IHHQ")
_FATBIN_MAGIC = 0xBA55ED50
_IMAGE = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS = {1: "ptx", 2: "sass"}
_LZ4, _ZSTD, _A, _F = 1 << 13, 1 << 15, 1 << 20, 1 << 21

# An image that claims more is damaged: it is not worth the memory to find out.
_LARGEST_IMAGE = 1 << 30

# psABI of x86_64 and of aarch64: R_X86_64_RELATIVE, R_AARCH64_RELATIVE.
_RELATIVE = {EM_X86_64: 8, EM_AARCH64: 1027}

# st_other of a kernel's symbol (cuobjdump -symbols calls it STO_ENTRY).
_STO_ENTRY = 0x10

_TO_DO = "or a fatbin that calls it what it is (fatbinary --image3=sm=...)"


class FatbinError(ElfError):
    """A fatbin or an image is not what it must be. The message names it, what was expected and what was found."""


@dataclass(frozen=True)
class Image:
    """An image of a fatbin.

    where: how messages name it
    kind: `sass`, `ptx`, or `kind <number>` for what is neither
    sm: its SM target, `9.0a`
    bytes: what it takes in the fatbin, header and padding included
    uncompressed_bytes: the size of its content
    payload: its content as it lies in the fatbin; `compression` is `lz4`, `zstd` or empty
    """

    where: str
    kind: str
    sm: str
    bytes: int
    uncompressed_bytes: int
    compression: str
    payload: memoryview

    def error(self, expected: str, found: object) -> FatbinError:
        """A FatbinError about this image."""
        return FatbinError(self.where, f"{self.kind} for {self.sm}", expected, found)

    def content(self, zstd: Zstd | None) -> memoryview:
        """The cubin, or the PTX. `zstd` is needed for what is compressed with it. Raises FatbinError."""
        size = self.uncompressed_bytes
        if not self.compression:
            return self.payload
        if size > _LARGEST_IMAGE:
            raise self.error(f"an image of at most {_LARGEST_IMAGE} bytes", size)
        if self.compression == "lz4":
            data = _lz4_block(self, size)
            if len(data) != size:
                raise self.error(f"{size} bytes", len(data))
            return memoryview(data)
        if zstd is None:
            raise self.error("libzstd, which it takes to read it (census.py --zstd)", "none")
        try:
            return zstd.decompress(bytes(self.payload), size)
        except ZstdError as error:
            raise self.error(f"a Zstandard frame of {size} bytes", error) from None

    def kernels(self, zstd: Zstd | None) -> list[str]:
        """The names of its kernels, sorted; none for what is neither SASS nor PTX.

        Raises ElfError or FatbinError if it is damaged, or is for another SM target than its header says.
        """
        if self.kind == "sass":
            return _kernels_of_cubin(self, Elf(self.content(zstd), f"{self.where}, cubin for {self.sm}"))
        if self.kind == "ptx":
            return _kernels_of_ptx(self, bytes(self.content(zstd)).decode("utf-8", "backslashreplace"))
        return []


def _lz4_block(image: Image, size: int) -> bytes:
    """Decompresses a block of at most `size` bytes (lz4_Block_format.md, LZ4's own description)."""
    data, out, position = image.payload, bytearray(), 0

    def length(start: int) -> int:
        nonlocal position
        if start == 15:
            while data[position] == 255:
                start += 255
                position += 1
            start += data[position]
            position += 1
        return start

    try:
        while True:
            token = data[position]
            position += 1
            count = length(token >> 4)
            if count > len(data) - position or len(out) + count > size:
                raise image.error("literals within the block and the image", count)
            out += data[position : position + count]
            position += count
            if position == len(data):
                return bytes(out)
            offset = data[position] | data[position + 1] << 8
            position += 2
            count = length(token & 15) + 4
            if not 0 < offset <= len(out) or len(out) + count > size:
                raise image.error("a match within the image", f"{count} bytes, {offset} back, at {len(out)} of {size}")
            seen = out[len(out) - offset : len(out) - offset + count]
            out += seen if offset >= count else (seen * (count // offset + 1))[:count]
    except IndexError:
        raise image.error("an LZ4 block that ends after its literals", f"its end after {len(data)} bytes") from None


def _kernels_of_cubin(image: Image, cubin: Elf) -> list[str]:
    # e_flags by ABI version (LLVM, BinaryFormat/ELF.h): EF_CUDA_SM up to 7, EF_CUDA_SM_MASK from 8 on.
    number = cubin.flags & 0xFF if cubin.abi_version < 8 else cubin.flags >> 8 & 0xFF
    if cubin.machine != EM_CUDA or _sm(number) != image.sm.rstrip("af"):
        raise image.error(
            f"a cubin (ELF machine {EM_CUDA}) for it", f"machine {cubin.machine}, SM number {number} in its e_flags"
        )
    for said in _ptxas_targets(cubin):
        if said != image.sm:
            raise image.error(f"a cubin that ptxas made for it (.note.nv.tkinfo), {_TO_DO}", said)
    specific = _architecture_specific(cubin)
    if specific is not None and specific != image.sm.endswith("a"):
        found = "one for an a target" if specific else "one for a target without a"
        raise image.error(f"a cubin that says so in its .nv.compat, {_TO_DO}", found)
    return sorted(
        symbol.name
        for symbol in cubin.symbols(".symtab")
        if symbol.type == STT_FUNC and symbol.other & _STO_ENTRY and symbol.section != SHN_UNDEF
    )


def _ptxas_targets(cubin: Elf) -> Iterator[str]:
    """The SM targets that ptxas was asked for, by its own note; none for a cubin without one.

    Note 2000 of NVIDIA (read off ptxas 13.0 and 13.4): u32 version, five u32 offsets (object's name, tool, its version, its
    branch, its options), then the strings.
    """
    for note in cubin.notes(".note.nv.tkinfo"):
        if (note.owner, note.type) == ("NVIDIA Corp", 2000):
            for number, suffix in re.findall(
                rb"(?<![^\0 ])-arch[ =]sm_(\d{2,3})([af]?)(?![^\0 ])", bytes(note.description[24:])
            ):
                yield _sm(int(number)) + suffix.decode()


def _architecture_specific(cubin: Elf) -> bool | None:
    """Whether the cubin is for an `a` target, or None if it doesn't say.

    .nv.compat (read off ptxas 13.0 and 13.4) is a list of attributes: u8 format, u8 attribute, then a u16 value or, for
    format 4, a u16 size and as many bytes. Attribute 9 is 1 for an `a` target and 0 for any other.
    """
    section = cubin.section(".nv.compat")
    content = cubin.content(section) if section else memoryview(b"")
    position = 0
    while position + 4 <= len(content):
        form, attribute, value = struct.unpack_from("<BBH", content, position)
        if attribute == 9:
            return bool(value == 1)
        position += 4 + (value if form == 4 else 0)
    return None


def _kernels_of_ptx(image: Image, text: str) -> list[str]:
    # PTX ISA: ".target" names the SM target first; ".entry" and its linkage are directives of one line each.
    target = re.search(r"^[ \t]*\.target[ \t]+sm_(\d{2,3})([af]?)\b", text, re.MULTILINE)
    if not target or _sm(int(target[1])) + target[2] != image.sm:
        raise image.error("PTX with a .target of that name", target[0].strip() if target else "none")
    return sorted(re.findall(r"^[ \t]*(?:\.(?:visible|weak)[ \t]+)?\.entry[ \t]+([\w$%]+)", text, re.MULTILINE))


def _sm(number: int) -> str:
    """The SM target of an SM number, without a suffix: 9.0 for 90."""
    return f"{number // 10}.{number % 10}"


@dataclass(frozen=True)
class Fatbin:
    """A fatbin: `address` is where its module is told to find it, `images` in their order."""

    address: int
    images: tuple[Image, ...]


def fatbins(module: Elf) -> list[Fatbin]:
    """All fatbins of a module, in the order in which they lie in it; none for a module without device code.

    Raises ElfError or FatbinError for damaged bytes, for a fatbin that no wrapper points to (it is dead weight: nothing
    registers it), and for a wrapper that points elsewhere.
    """
    if module.machine not in _RELATIVE:
        raise module.error("ELF header", f"machine {EM_X86_64} (x86_64) or {EM_AARCH64} (aarch64)", module.machine)
    found: list[Fatbin] = []
    for name in FATBIN_SECTIONS:
        section = module.section(name)
        if section:
            content = module.content(section)
            for offset, end in _extents(module, name, content):
                where = f"{module.name}, fatbin {len(found)}"
                found.append(Fatbin(section.address + offset, tuple(_images(where, content[offset:end]))))
    expected, pointers = sorted(fatbin.address for fatbin in found), sorted(_pointers(module))
    if expected != pointers:
        raise FatbinError(
            module.name,
            f"wrappers in {_WRAPPERS}",
            f"one for each fatbin, at {[hex(a) for a in expected]}",
            [hex(a) for a in pointers],
        )
    return found


_EMBEDDED = re.compile(r"\.cubin\.sm_(\d+)([af]?)\.(\w+)")


def embedded_cubins(module: Elf) -> dict[str, Image]:
    """The cubins that host code of a module loads itself, by the names that they were embedded with, sorted.

    Each is a section of its own, `.cubin.sm_100a.<name>`, as toolchains/cuda/private/embed_step.py makes it: what a symbol
    or an address would tell is gone from a stripped module. Raises ElfError for a damaged section or two of one name.
    """
    found: dict[str, Image] = {}
    for section in module.sections:
        match = _EMBEDDED.fullmatch(section.name)
        if match:
            content = module.content(section)
            where = f"{module.name}, embedded cubin {match[3]}"
            if match[3] in found:
                raise FatbinError(where, section, "one section of that name", "two")
            sm = _sm(int(match[1])) + match[2]
            found[match[3]] = Image(where, "sass", sm, len(content), len(content), "", content)
    return dict(sorted(found.items()))


def _extents(module: Elf, name: str, content: memoryview) -> Iterator[tuple[int, int]]:
    """Where the fatbins in a section begin and end. Between them are zeros, for alignment."""
    position = 0
    while position < len(content):
        if content[position : position + 8] == bytes(len(content[position : position + 8])):
            position += 8
            continue
        if position + _FATBIN.size > len(content):
            raise FatbinError(module.name, f"{name} at {position}", "a fatbin", f"{len(content) - position} bytes")
        magic, version, header, size = _FATBIN.unpack_from(content, position)
        end = position + header + size
        if (magic, version, header) != (_FATBIN_MAGIC, 1, _FATBIN.size) or end > len(content):
            raise FatbinError(
                module.name,
                f"{name} at {position}",
                f"a fatbin (magic {_FATBIN_MAGIC:#x}, version 1, {_FATBIN.size} bytes of header) that ends within the section",
                f"magic {magic:#x}, version {version}, {header} bytes of header, end at {end} of {len(content)}",
            )
        yield position, end
        position = (end + 7) // 8 * 8


def _images(fatbin: str, content: memoryview) -> Iterator[Image]:
    position, index = _FATBIN.size, 0
    while position < len(content):
        where = f"{fatbin}, image {index}"
        if position + _IMAGE.size > len(content):
            raise FatbinError(where, "header", f"{_IMAGE.size} bytes", f"{len(content) - position} bytes")
        kind, version, header, padded, stored, _, _, _, number, _, _, flags, _, size = _IMAGE.unpack_from(
            content, position
        )
        compressions = [name for name, bit in (("lz4", _LZ4), ("zstd", _ZSTD)) if flags & bit]
        suffixes = [name for name, bit in (("a", _A), ("f", _F)) if flags & bit]
        stored = stored if compressions else padded
        end = position + header + padded
        if version != 0x101 or header < _IMAGE.size or end > len(content) or stored > padded:
            raise FatbinError(
                where,
                "header",
                f"version 0x101, at least {_IMAGE.size} bytes of header, and a payload that ends within the fatbin",
                f"version {version:#x}, {header} bytes of header, {stored} of {padded} bytes of payload, {len(content) - position} left",
            )
        if len(compressions) > 1 or len(suffixes) > 1:
            raise FatbinError(where, "flags", "at most one compression and one suffix", hex(flags))
        payload = content[position + header : position + header + stored]
        yield Image(
            where,
            _KINDS.get(kind, f"kind {kind}"),
            _sm(number) + "".join(suffixes),
            header + padded,
            size if compressions else padded,
            "".join(compressions),
            payload,
        )
        position, index = end, index + 1


def _pointers(module: Elf) -> Iterator[int]:
    """The addresses that the wrappers of a module point to, once it is loaded at address 0."""
    section = module.section(_WRAPPERS)
    if not section:
        return
    content = module.content(section)
    if len(content) % _WRAPPER.size:
        raise FatbinError(module.name, _WRAPPERS, f"wrappers of {_WRAPPER.size} bytes", f"{len(content)} bytes")
    # The pointers of a shared library are relocations; without one (or with a packed one) they are in place.
    relocated = {
        relocation.offset: relocation.addend
        for relocation in module.relocations(".rela.dyn")
        if relocation.type == _RELATIVE[module.machine]
    }
    for index, (magic, version, data, _) in enumerate(_WRAPPER.iter_unpack(content)):
        if magic != _WRAPPER_MAGIC or version not in _WRAPPER_VERSIONS:
            raise FatbinError(
                module.name,
                f"wrapper {index} in {_WRAPPERS}",
                f"magic {_WRAPPER_MAGIC:#x}, version 1 or 2",
                f"{magic:#x}, {version}",
            )
        yield relocated.get(section.address + index * _WRAPPER.size + 8, data)
