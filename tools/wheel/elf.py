"""A strict reader of ELF: 64 bits, little-endian. Host modules are such files, and so are cubins.

The layout is that of the System V ABI, "Object Files" and "Program Loading and Dynamic Linking" (gABI); symbol versions
are those of the LSB Core Specification, "Symbol Versioning". Nothing is copied before it is asked for, and every offset
and count is checked against the bytes that are there, so a damaged file is an ElfError and costs a small multiple of what
it weighs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# e_machine
EM_X86_64, EM_AARCH64, EM_CUDA = 62, 183, 190

# sh_type
SHT_NULL, SHT_STRTAB, SHT_DYNAMIC, SHT_NOBITS = 0, 3, 6, 8
SHT_GNU_VERNEED, SHT_GNU_VERSYM = 0x6FFFFFFE, 0x6FFFFFFF

# sh_flags
SHF_ALLOC, SHF_EXECINSTR = 2, 4

# p_type and p_flags
PT_GNU_STACK = 0x6474E551
PF_X = 1

STB_GLOBAL = 1
STT_FUNC = 2
SHN_UNDEF = 0

# d_tag
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_TEXTREL, _DT_RUNPATH, _DT_FLAGS, _DT_FLAGS_1 = 1, 14, 15, 22, 29, 30, 0x6FFFFFFB
_DF_TEXTREL = 4

_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<QQ")
_NOTE = struct.Struct("<III")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")


class ElfError(Exception):
    """The bytes are not what they must be. The message names the file, what was expected and what was found."""

    def __init__(self, file: str, where: object, expected: str, found: object) -> None:
        super().__init__(f"{file}: {where}: expected {expected}, found {found}")


@dataclass(frozen=True)
class Section:
    """A section header. Offsets and sizes are in bytes; `name` has its dot."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int

    def __str__(self) -> str:
        return f"section {self.name!r}"


def _section(name: str, header: tuple[int, ...]) -> Section:
    _, type_, flags, address, offset, size, link, info, _, entry_size = header
    return Section(name, type_, flags, address, offset, size, link, info, entry_size)


@dataclass(frozen=True)
class Segment:
    """A program header, without its physical address. Offsets and sizes are in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    size: int
    memory_size: int


@dataclass(frozen=True)
class Symbol:
    """An entry of a symbol table: binding and type are the halves of st_info, `other` is st_other."""

    name: str
    value: int
    size: int
    binding: int
    type: int
    other: int
    section: int


@dataclass(frozen=True)
class Rela:
    """A relocation with an addend."""

    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Note:
    """An entry of a note section."""

    owner: str
    type: int
    description: memoryview


@dataclass(frozen=True)
class Dynamic:
    """What the dynamic section asks of the loader. `flags` is DT_FLAGS, `flags_1` is DT_FLAGS_1."""

    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    textrel: bool = False
    flags: int = 0
    flags_1: int = 0


class _Strings:
    """A string table. Each string is decoded once, and all of them together within a bound.

    Without the bound, a table of n bytes whose n offsets are all named would cost n*n/2 bytes. Linkers let a string be
    the tail of another, which makes the sum of all strings a small multiple of the table.
    """

    def __init__(self, elf: Elf, section: Section) -> None:
        if section.type != SHT_STRTAB:
            raise elf.error(section, f"a string table (type {SHT_STRTAB})", f"type {section.type}")
        self._elf, self._section = elf, section
        self._data = bytes(elf.content(section))
        self._known: dict[int, str] = {}
        self._left = 16 * len(self._data)

    def __getitem__(self, offset: int) -> str:
        known = self._known.get(offset)
        if known is not None:
            return known
        end = self._data.find(b"\0", offset) if offset < len(self._data) else -1
        self._left -= end - offset
        if end < 0 or self._left < 0:
            raise self._elf.error(self._section, f"strings that end within its {len(self._data)} bytes", offset)
        text = self._known[offset] = self._data[offset:end].decode("utf-8", "backslashreplace")
        return text


class Elf:
    """A file, by its section headers.

    `name` is what messages call it. Raises ElfError, here and in every method, for what is not ELF or is damaged.
    """

    def __init__(self, data: bytes | memoryview, name: str) -> None:
        self.name = name
        self.data = memoryview(data).cast("B")
        if len(self.data) < _HEADER.size:
            raise self.error("ELF header", f"{_HEADER.size} bytes", f"{len(self.data)} bytes")
        (
            magic, class_, encoding, version, self.os_abi, self.abi_version, self.type, self.machine, _, self.entry,
            programs, table, self.flags, _, program_size, program_count, size, count, names,
        ) = _HEADER.unpack_from(self.data)  # fmt: skip
        if (magic, class_, encoding, version) != (b"\x7fELF", 2, 1, 1):
            found = bytes(self.data[:7]).hex(" ")
            raise self.error("ELF header", "7f 45 4c 46 02 01 01 (64 bits, little-endian, version 1)", found)
        if size != _SECTION.size:
            raise self.error("ELF header", f"section headers of {_SECTION.size} bytes", size)
        if not table:
            raise self.error("ELF header", "a table of section headers", "none")
        first = _SECTION.unpack(self._bytes("section header 0", table, _SECTION.size))
        # gABI, "Extended section numbering": what does not fit 16 bits is in section header 0.
        count, names = count or first[5], first[6] if names == 0xFFFF else names
        program_count = first[7] if program_count == 0xFFFF else program_count
        self._programs = programs, program_size, program_count
        headers = list(_SECTION.iter_unpack(self._bytes("section headers", table, count * _SECTION.size)))
        if names >= len(headers):
            raise self.error("ELF header", f"the index of one of {len(headers)} sections' names", names)
        strings = _Strings(self, _section("section names", headers[names]))
        self.sections = [_section(strings[header[0]], header) for header in headers]
        self._strings: dict[int, _Strings] = {}

    def error(self, where: object, expected: str, found: object) -> ElfError:
        """An ElfError about this file."""
        return ElfError(self.name, where, expected, found)

    def _bytes(self, where: object, offset: int, size: int) -> memoryview:
        if offset + size > len(self.data):
            raise self.error(where, f"an end within the file's {len(self.data)} bytes", f"{offset} + {size}")
        return self.data[offset : offset + size]

    def section(self, name: str) -> Section | None:
        """The only section of that name, or None; ElfError if there are several."""
        found = [section for section in self.sections if section.name == name]
        if len(found) > 1:
            raise self.error(found[0], "at most one of that name", len(found))
        return found[0] if found else None

    def segments(self) -> list[Segment]:
        """The program headers, in their order; none for a file that is not there to be loaded."""
        table, size, count = self._programs
        if count and size != _SEGMENT.size:
            raise self.error("ELF header", f"program headers of {_SEGMENT.size} bytes", size)
        found: list[Segment] = []
        for type_, flags, offset, address, _, file_size, memory_size, _ in _SEGMENT.iter_unpack(
            self._bytes("program headers", table, count * _SEGMENT.size)
        ):
            self._bytes(f"program header {len(found)}", offset, file_size)
            found.append(Segment(type_, flags, offset, address, file_size, memory_size))
        return found

    def content(self, section: Section) -> memoryview:
        """The bytes of a section; none, for one that takes no place in the file."""
        if section.type in (SHT_NULL, SHT_NOBITS):
            return self.data[:0]
        return self._bytes(section, section.offset, section.size)

    def _entries(self, section: Section, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
        content = self.content(section)
        if len(content) % entry.size or section.entry_size not in (0, entry.size):
            raise self.error(
                section,
                f"entries of {entry.size} bytes",
                f"{len(content)} bytes in entries of {section.entry_size}",
            )
        return entry.iter_unpack(content)

    def _linked_strings(self, section: Section) -> _Strings:
        if section.link >= len(self.sections):
            raise self.error(section, f"a link to one of {len(self.sections)} sections", section.link)
        if section.link not in self._strings:
            self._strings[section.link] = _Strings(self, self.sections[section.link])
        return self._strings[section.link]

    def symbols(self, table: str) -> Iterator[Symbol]:
        """The entries of `.symtab` or `.dynsym`; none, if there is no such section."""
        section = self.section(table)
        if section:
            strings = self._linked_strings(section)
            for name, info, other, index, value, size in self._entries(section, _SYMBOL):
                yield Symbol(strings[name], value, size, info >> 4, info & 0xF, other, index)

    def relocations(self, name: str) -> Iterator[Rela]:
        """The entries of a SHT_RELA section such as `.rela.dyn`; none, if there is no such section."""
        section = self.section(name)
        if section:
            for offset, info, addend in self._entries(section, _RELA):
                yield Rela(offset, info & 0xFFFFFFFF, info >> 32, addend)

    def _only(self, type_: int, what: str) -> Section | None:
        found = [section for section in self.sections if section.type == type_]
        if len(found) > 1:
            raise self.error(what, "at most one", len(found))
        return found[0] if found else None

    def dynamic(self) -> Dynamic:
        """The dynamic section; an empty Dynamic, if there is none."""
        section = self._only(SHT_DYNAMIC, "dynamic sections")
        if not section:
            return Dynamic()
        strings = self._linked_strings(section)
        entries: dict[int, list[int]] = {}
        for tag, value in self._entries(section, _DYNAMIC):
            if tag == 0:
                break
            entries.setdefault(tag, []).append(value)

        def text(tag: int) -> str | None:
            return strings[entries[tag][0]] if tag in entries else None

        flags = entries.get(_DT_FLAGS, [0])[0]
        return Dynamic(
            tuple(strings[value] for value in entries.get(_DT_NEEDED, [])),
            text(_DT_SONAME),
            text(_DT_RPATH),
            text(_DT_RUNPATH),
            _DT_TEXTREL in entries or any(value & _DF_TEXTREL for value in entries.get(_DT_FLAGS, [])),
            flags,
            entries.get(_DT_FLAGS_1, [0])[0],
        )

    def _needed_versions(self) -> Iterator[tuple[str, str, int]]:
        """Library, version, and the number by which `.gnu.version` refers to it."""
        section = self._only(SHT_GNU_VERNEED, "sections of needed versions")
        if not section:
            return
        content, strings = self.content(section), self._linked_strings(section)
        left = len(content) // _VERNAUX.size  # the entries that there is place for; chains that overlap have more

        def entry(layout: struct.Struct, offset: int) -> tuple[int, ...]:
            nonlocal left
            left -= 1
            if left < 0 or offset + layout.size > len(content):
                raise self.error(section, f"chains of entries within its {len(content)} bytes", offset)
            return layout.unpack_from(content, offset)

        library = 0
        for _ in range(section.info):
            version, count, file, offset, following = entry(_VERNEED, library)
            if version != 1:
                raise self.error(section, "entries of version 1", version)
            offset += library
            for _ in range(count):
                _, _, number, name, step = entry(_VERNAUX, offset)
                yield strings[file], strings[name], number
                offset += step
            library += following

    def needed_versions(self) -> dict[str, set[str]]:
        """The symbol versions that are needed, by library: {"libc.so.6": {"GLIBC_2.17"}}."""
        needed: dict[str, set[str]] = {}
        for library, version, _ in self._needed_versions():
            needed.setdefault(library, set()).add(version)
        return needed

    def symbols_by_version(self) -> dict[str, list[str]]:
        """The symbols that are needed in a version, by version: {"GLIBC_2.27": ["expf", "powf"]}."""
        numbers = self._only(SHT_GNU_VERSYM, "sections of symbols' versions")
        content = self.content(numbers) if numbers else memoryview(b"")
        if len(content) % 2:
            raise self.error(numbers, "entries of 2 bytes", f"{len(content)} bytes")
        versions = {number: version for _, version, number in self._needed_versions()}
        found: dict[str, list[str]] = {version: [] for version in versions.values()}
        for symbol, (number,) in zip(self.symbols(".dynsym"), struct.iter_unpack("<H", content), strict=False):
            if symbol.section == SHN_UNDEF and number in versions:
                found[versions[number]].append(symbol.name)
        return found

    def notes(self, name: str) -> Iterator[Note]:
        """The entries of a note section; none, if there is no such section."""
        section = self.section(name)
        if section:
            content, position = self.content(section), 0
            while position < len(content):
                end = position + _NOTE.size
                owner_size, size, type_ = _NOTE.unpack_from(content, position) if end <= len(content) else (0, 0, 0)
                start = end + (owner_size + 3) // 4 * 4
                if start + size > len(content):
                    raise self.error(section, f"notes that end within its {len(content)} bytes", f"one at {position}")
                owner = bytes(content[end : end + owner_size]).rstrip(b"\0").decode("utf-8", "backslashreplace")
                yield Note(owner, type_, content[start : start + size])
                position = start + (size + 3) // 4 * 4
