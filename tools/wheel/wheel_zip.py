"""Reads a wheel strictly: one way to read it is left, or it is refused.

`read` checks the zip, `verify` its contents against RECORD and its names against each other. Every byte of the file is
accounted for: members lie end to end in the directory's order, the directory follows, then the end record. No field
may have more than one meaning, so the fields that smwheel has no use for have one value.

The zip is PKWARE's APPNOTE.TXT 6.3.10; the numbers of its sections are given. The wheel is the binary distribution
format (packaging.python.org; PEP 427), PEP 376 for RECORD.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_END = struct.Struct("<4s4H2IH")  # end of central directory record (section 4.3.16)
_CENTRAL = struct.Struct("<4s6H3I5H2I")  # central directory header (4.3.12)
_LOCAL = struct.Struct("<4s5H3I2H")  # local file header (4.3.7)
_ZIP64_LOCATOR = struct.Struct("<4s16s")  # would lie right before the end record (4.3.15)

_MADE_BY = 3 << 8 | 20  # Unix, 2.0 (4.4.2)
_NEEDED = 20  # 2.0: deflate (4.4.3)
_FLAGS = 1 << 11  # UTF-8 names; bit 0 would be encryption, bit 3 a data descriptor (4.4.4)
_DEFLATED = 8  # (4.4.5)
_DATE = 1 << 5 | 1  # 1980-01-01, the first day of the format (4.4.6)
_ZIP64_COUNT, _ZIP64_SIZE = 0xFFFF, 0xFFFFFFFF  # "the value is in a zip64 record" (4.4.1.4)
_MODES = (0o100644, 0o100755)  # regular files, as stat.h has them; the upper half of the external attributes (4.4.15)

_PIECE = 1 << 20  # bytes that are inflated at once: what `verify` takes of memory, whatever the members' sizes
_TEXT = 1 << 26  # bytes that METADATA, WHEEL, RECORD or the manifest may have; they are held in memory
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LINE_BREAKS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # some readers end a line at them, some don't
_REBUILD = (
    "build the wheel again, and publish the bytes as they were built: a transfer can cut a file short, "
    "and `wheel tags` or a zip program writes another zip."
)


class WheelError(Exception):
    """A wheel that a strict reader refuses, or that two readers could read differently."""

    def __init__(self, wheel: str, where: str, expected: object, found: object, todo: str = _REBUILD) -> None:
        """Says which wheel, where in it, what was expected, what was found and what to do."""
        super().__init__(f"{wheel}: {where}\n  expected: {expected}\n  found:    {found}\n  To do: {todo}")


@dataclass(frozen=True)
class Entry:
    """One file of the wheel. Sizes and offsets are bytes; `offset` is where its deflate stream starts."""

    name: str
    crc32: int
    compressed_size: int
    size: int
    offset: int
    mode: int
    """Permissions: 0o644 or 0o755."""


@dataclass(frozen=True)
class Wheel:
    """A wheel file, as its zip says. `texts` has METADATA, WHEEL, RECORD and manifest.json, by those names."""

    name: str
    size: int
    """Bytes of the file. Whether it may have so many is for the caller to say."""
    entries: tuple[Entry, ...]
    dist_info: str
    """Name of the dist-info directory."""
    texts: dict[str, str]


def read(path: Path) -> Wheel:
    """Reads the zip and its texts. Raises WheelError unless there is exactly one way to read it.

    Of the members it inflates the four texts only; it takes memory for those and for the directory.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start, count = _read_end(path.name, file, size)
        entries = _read_directory(path.name, file, start, count, size - _END.size)
        _check_names(path.name, entries)
        _check_local_headers(path.name, file, entries, start)
        dist_info, found = _find_texts(path.name, entries)
        texts = {name: _read_text(path.name, file, entry) for name, entry in found.items()}
    return Wheel(path.name, size, tuple(entries), dist_info, texts)


def verify(path: Path, wheel: Wheel) -> dict[str, str]:
    """Checks the wheel's names, RECORD and every member; returns the sha256 (hex) of each member, by name.

    It inflates with zlib, which unlike libdeflate works piece by piece and says where a stream ends. Raises WheelError.
    """
    check_wheel_names(wheel)
    record = _read_record(wheel)
    digests = {}
    with open(path, "rb") as file:
        for entry in wheel.entries:
            digest = hashlib.sha256()
            for piece in inflate(wheel.name, file, entry):
                digest.update(piece)
            found = "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
            if record[entry.name] not in ("", found):
                raise WheelError(wheel.name, f"{entry.name}: hash in RECORD", record[entry.name], found)
            digests[entry.name] = digest.hexdigest()
    return digests


def inflate(wheel: str, file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    """Inflates a member of the open wheel, in pieces of at most 1 MiB; `wheel` is its name, for messages.

    Raises WheelError if the stream is damaged, does not end where the member does, or has another size or crc32: the
    last piece may come before that is seen.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    file.seek(entry.offset)
    left, size, crc32 = entry.compressed_size, 0, 0
    while not inflater.eof:
        data = inflater.unconsumed_tail
        if not data:
            data = file.read(min(left, _PIECE >> 4))
            left -= len(data)
        try:
            piece = inflater.decompress(data, _PIECE)
        except zlib.error as error:
            raise WheelError(wheel, entry.name, "a deflate stream", error) from error
        if not data and not piece and not inflater.eof:
            raise WheelError(wheel, entry.name, "a whole deflate stream", "one that is cut short")
        size, crc32 = size + len(piece), zlib.crc32(piece, crc32)
        if size > entry.size:
            break
        yield piece
    if size != entry.size:
        raise WheelError(wheel, f"{entry.name}: size", entry.size, size if inflater.eof else f"{size} or more")
    if crc32 != entry.crc32:
        raise WheelError(wheel, f"{entry.name}: crc32", f"{entry.crc32:08x}", f"{crc32:08x}")
    if rest := left + len(inflater.unused_data):
        raise WheelError(wheel, entry.name, "a member that ends with its deflate stream", f"{rest} bytes after it")


def _read_end(wheel: str, file: BinaryIO, size: int) -> tuple[int, int]:
    """Reads the end record; returns where the directory starts and how many entries it has."""
    where = "the end of the file"
    if size < _END.size:
        raise WheelError(wheel, where, "a zip", f"a file of {size} bytes")
    file.seek(size - _END.size)
    signature, disk, start_disk, here, count, directory, start, comment = _END.unpack(file.read(_END.size))
    if signature != b"PK\5\6" or comment:
        raise WheelError(wheel, where, "an end record without a comment, and nothing after it", "something else")
    if (disk, start_disk) != (0, 0) or here != count:
        raise WheelError(wheel, where, "one file with all entries", f"disks {disk}, {start_disk}; {here} of {count}")
    if count == _ZIP64_COUNT or _ZIP64_SIZE in (directory, start):
        raise WheelError(wheel, where, "no zip64", "a marker of zip64")
    if start + directory != size - _END.size:
        raise WheelError(
            wheel, where, f"a directory that ends at {size - _END.size}", f"{directory} bytes of it at {start}"
        )
    # Readers look for a locator at this place whatever the directory says of its bytes.
    file.seek(max(0, size - _END.size - _ZIP64_LOCATOR.size))
    if file.read(4) == b"PK\6\7":
        raise WheelError(wheel, where, "no zip64", "a zip64 locator")
    return start, count


def _read_directory(wheel: str, file: BinaryIO, start: int, count: int, end: int) -> list[Entry]:
    """Reads the directory, which lies between `start` and `end`; member data starts after a header without extras."""
    file.seek(start)
    entries = []
    position = start
    for number in range(count):
        where = f"entry {number + 1} of {count} in the directory"
        header = file.read(_CENTRAL.size)
        if len(header) < _CENTRAL.size or position + _CENTRAL.size > end:
            raise WheelError(wheel, where, "a header", "the directory's end")
        (
            signature, made_by, needed, flags, method, time, date, crc32, compressed_size, size,
            name_length, extra_length, comment_length, disk, internal, external, offset,
        ) = _CENTRAL.unpack(header)  # fmt: skip
        if signature != b"PK\1\2":
            raise WheelError(wheel, where, "a header's signature", signature)
        raw_name = file.read(name_length)
        position += _CENTRAL.size + name_length + extra_length + comment_length
        if position > end:
            raise WheelError(wheel, where, f"a directory that ends at {end}", f"an entry that ends at {position}")
        try:
            name = raw_name.decode()
        except UnicodeDecodeError as error:
            raise WheelError(wheel, where, "a name in UTF-8", raw_name) from error
        for field, expected, found in (
            ("version made by", _MADE_BY, made_by),
            ("version needed to extract", _NEEDED, needed),
            ("flags (UTF-8, not encrypted, no data descriptor)", _FLAGS, flags),
            ("compression method (deflate)", _DEFLATED, method),
            ("time of day", 0, time),
            ("date (1980-01-01)", _DATE, date),
            ("bytes of extra fields (no zip64)", 0, extra_length),
            ("bytes of comment", 0, comment_length),
            ("disk", 0, disk),
            ("internal attributes", 0, internal),
            ("MS-DOS attributes", 0, external & 0xFFFF),
        ):
            if found != expected:
                raise WheelError(wheel, f"{name!r}: {field}", expected, found)
        mode = external >> 16
        if mode not in _MODES:
            raise WheelError(wheel, f"{name!r}: mode", " or ".join(f"{known:o}" for known in _MODES), f"{mode:o}")
        if _ZIP64_SIZE in (compressed_size, size, offset):
            raise WheelError(wheel, f"{name!r}: sizes", "no zip64", "a marker of zip64")
        data = offset + _LOCAL.size + name_length
        entries.append(Entry(name, crc32, compressed_size, size, data, mode & 0o777))
    if position != end:
        raise WheelError(wheel, "the directory", f"an end at {end}", f"its {count} entries end at {position}")
    return entries


def _check_names(wheel: str, entries: list[Entry]) -> None:
    """Refuses names that lead out of the directory, that one reader might change, or that two files would share."""
    names = {entry.name for entry in entries}
    if len(names) != len(entries):
        twice = [name for name, count in Counter(entry.name for entry in entries).items() if count > 1]
        raise WheelError(wheel, "the directory", "every name once", ", ".join(map(repr, twice)))
    for name in names:
        parts = name.split("/")
        # An empty part is an absolute path, a directory entry or a doubled slash.
        if {"", ".", ".."} & set(parts) or "\\" in name or _CONTROL.search(name):
            raise WheelError(wheel, "the directory", "relative names of files, with / between the parts", repr(name))
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in names:
                raise WheelError(wheel, "the directory", "no file that another lies under", repr(name))


def _check_local_headers(wheel: str, file: BinaryIO, entries: list[Entry], end: int) -> None:
    """Checks that the members lie end to end from 0 to `end`, and that their headers say what the directory says."""
    position = 0
    for entry in entries:
        name = entry.name.encode()
        offset = entry.offset - _LOCAL.size - len(name)
        if offset != position:
            raise WheelError(wheel, f"{entry.name}: offset", f"{position}, where the member before it ends", offset)
        file.seek(offset)
        numbers = (entry.crc32, entry.compressed_size, entry.size, len(name), 0)
        header = _LOCAL.pack(b"PK\3\4", _NEEDED, _FLAGS, _DEFLATED, 0, _DATE, *numbers) + name
        if (found := file.read(len(header))) != header:
            raise WheelError(wheel, f"{entry.name}: local header", f"as in the directory, {header!r}", found)
        position = entry.offset + entry.compressed_size
    if position != end:
        raise WheelError(wheel, "the directory", f"at {position}, where the last member ends", end)


def _find_texts(wheel: str, entries: list[Entry]) -> tuple[str, dict[str, Entry]]:
    """Finds the dist-info directory, its texts and the package's manifest."""
    directories = sorted({e.name.split("/")[0] for e in entries if re.match(r"[^/]*\.dist-info/", e.name)})
    if len(directories) != 1:
        raise WheelError(wheel, "the directory", "one dist-info directory", directories)
    found = {}
    for name in ("METADATA", "WHEEL", "RECORD", "manifest.json"):
        directory = "[^/]+" if name == "manifest.json" else re.escape(directories[0])
        matches = [entry for entry in entries if re.fullmatch(f"{directory}/{re.escape(name)}", entry.name)]
        if len(matches) != 1:
            raise WheelError(wheel, "the directory", f"one {name}", [entry.name for entry in matches])
        [found[name]] = matches
    return directories[0], found


def _read_text(wheel: str, file: BinaryIO, entry: Entry) -> str:
    if entry.size > _TEXT:
        raise WheelError(wheel, f"{entry.name}: size", f"at most {_TEXT} bytes", entry.size)
    data = b"".join(inflate(wheel, file, entry))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WheelError(wheel, entry.name, "UTF-8", error) from error
    if match := _LINE_BREAKS.search(text):
        raise WheelError(wheel, entry.name, "no control character but line feed and tab", repr(match[0]))
    return text


def _fields(wheel: Wheel, name: str) -> dict[str, list[str]]:
    """The values of METADATA's or WHEEL's fields, by the fields' names in lower case.

    Lines that are continued are not read: parsers differ on them, and smwheel writes none.
    """
    head, _, body = wheel.texts[name].partition("\n\n")
    if name == "WHEEL" and body:
        raise WheelError(wheel.name, name, "fields only", "an empty line, and text after it")
    fields: dict[str, list[str]] = defaultdict(list)
    for line in head.removesuffix("\n").split("\n"):
        match = re.fullmatch(r"([A-Za-z0-9-]+): (\S|\S.*\S)", line)
        if not match:
            raise WheelError(wheel.name, name, "lines of the form `Field: value`", repr(line))
        fields[match[1].lower()].append(match[2])
    return fields


def check_wheel_names(wheel: Wheel) -> None:
    """Checks that the file's name, the dist-info directory, METADATA and WHEEL agree. Raises WheelError."""
    form = re.fullmatch(r"([^-]+)-([^-]+)(?:-([0-9][^-]*))?-([^-]+)-([^-]+)-([^-]+)\.whl", wheel.name)
    if not form:
        raise WheelError(
            wheel.name, "the file's name", "DISTRIBUTION-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl", wheel.name
        )
    distribution, version, build, python, abi, platform = form.groups()
    metadata, fields = _fields(wheel, "METADATA"), _fields(wheel, "WHEEL")
    # The name as files carry it (packaging.python.org, "Escaping and Unicode"; PEP 503).
    names = [re.sub(r"[-_.]+", "_", name).lower() for name in metadata["name"]]
    # A compressed tag set is written out, one tag a line (PEP 425).
    tags = [f"{p}-{a}-{f}" for p in python.split(".") for a in abi.split(".") for f in platform.split(".")]
    for where, expected, found in (
        ("dist-info directory", f"{distribution}-{version}.dist-info", wheel.dist_info),
        ("Name in METADATA, normalised", [distribution], names),
        ("Version in METADATA", [version], metadata["version"]),
        ("Wheel-Version in WHEEL", ["1.0"], fields["wheel-version"]),
        ("Root-Is-Purelib in WHEEL", ["false"], fields["root-is-purelib"]),
        ("Build in WHEEL", [build] if build else [], fields["build"]),
        ("tags in WHEEL", sorted(tags), sorted(fields["tag"])),
    ):
        if found != expected:
            raise WheelError(
                wheel.name,
                where,
                expected,
                found,
                "set the version, or the tag, where the wheel is built, not afterwards.",
            )


def _read_record(wheel: Wheel) -> dict[str, str]:
    """Reads RECORD; returns what it says of each file: `sha256=…`, or nothing of itself.

    Checks that it has every file once and their sizes.
    """
    own = f"{wheel.dist_info}/RECORD"
    try:
        rows = list(csv.reader(io.StringIO(wheel.texts["RECORD"], newline=""), strict=True))
    except csv.Error as error:
        raise WheelError(wheel.name, "RECORD", "comma-separated values", error) from error
    if bad := [row for row in rows if len(row) != 3]:
        raise WheelError(wheel.name, "RECORD", "rows of path, hash and size", bad[0])
    paths = Counter(row[0] for row in rows)
    names = Counter(entry.name for entry in wheel.entries)
    if paths != names:
        raise WheelError(
            wheel.name,
            "RECORD",
            "every file of the wheel, once",
            f"missing {sorted(names - paths)[:5]}, surplus {sorted(paths - names)[:5]}",
        )
    sizes = {entry.name: str(entry.size) for entry in wheel.entries}
    record = {}
    for path, digest, size in rows:
        expected = "" if path == own else sizes[path]
        if size != expected:
            raise WheelError(wheel.name, f"RECORD: size of {path}", repr(expected), repr(size))
        if (path == own) != (not digest):
            raise WheelError(wheel.name, f"RECORD: hash of {path}", "none" if path == own else "one", repr(digest))
        record[path] = digest
    return record
