"""Unit tests of reading wheels strictly, on wheels that were tampered with, in one place or at random."""

import hashlib
import io
import random
import re
import struct
import tempfile
import tracemalloc
import unittest
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import wheel_check
import wheel_pack
import wheel_zip
from wheel_zip import WheelError
from zip_writer import Member, ZipError, write_zip

NAME = "a_kernel-1.0+cu130.sm9x-cp39-abi3-manylinux_2_28_x86_64.whl"
INFO = "a_kernel-1.0+cu130.sm9x.dist-info"
MODULE = "a_kernel/jit_cache/norm/norm.so"
SPEC = {
    "distribution": "a-kernel",
    "version": "1.0+cu130.sm9x",
    "summary": "Kernels",
    "license": "Apache-2.0",
    "license_files": {},
    "generator": "smwheel 1",
    "tag": "cp39-abi3-manylinux_2_28_x86_64",
}
FILES = {
    "a_kernel/__init__.py": b"",
    MODULE: random.Random(1).randbytes(300) + bytes(1000),
    "a_kernel/manifest.json": b"{}\n",
    f"{INFO}/METADATA": wheel_pack.metadata(SPEC).encode(),
    f"{INFO}/WHEEL": wheel_pack.wheel_file(SPEC).encode(),
}


def member(name: str, data: bytes, mode: int = 0o644) -> Member:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return Member(name, compressor.compress(data) + compressor.flush(), zlib.crc32(data), len(data), mode)


def recompressed(rng: random.Random, old: Member) -> Member:
    """The member as another compressor might make it: level, strategy, blocks that are flushed."""
    assert isinstance(old.stream, bytes)
    data = zlib.decompress(old.stream, -15)
    compressor = zlib.compressobj(rng.randint(0, 9), zlib.DEFLATED, -15, strategy=rng.randint(0, 4))
    cut = rng.randrange(len(data) + 1)
    stream = compressor.compress(data[:cut]) + compressor.flush(rng.choice([zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]))
    return replace(old, stream=stream + compressor.compress(data[cut:]) + compressor.flush())


def members(files: dict[str, bytes], record: bytes | None = None) -> list[Member]:
    """A wheel's members; a RECORD that is right, unless one is given."""
    entries = sorted((name, hashlib.sha256(data).hexdigest(), len(data)) for name, data in files.items())
    own = f"{INFO}/RECORD"
    record = wheel_pack.record(entries, own).encode() if record is None else record
    modes = {name: 0o755 if name.endswith(".so") else 0o644 for name in files}
    return [*(member(name, data, modes[name]) for name, data in files.items()), member(own, record)]


def pack(listed: list[Member]) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.zip")
        write_zip(path, listed)
        return path.read_bytes()


GOOD = pack(members(FILES))
SIZE = len(FILES[MODULE])
CRC32 = zlib.crc32(FILES[MODULE])
REGULAR = 0o100644 << 16

# Offsets of fields in the local header, those in the central one, and their form (APPNOTE, sections 4.3.7 and 4.3.12).
FIELDS = {
    "made_by": (None, 4, "<H"),
    "needed": (4, 6, "<H"),
    "flags": (6, 8, "<H"),
    "method": (8, 10, "<H"),
    "time": (10, 12, "<H"),
    "date": (12, 14, "<H"),
    "crc32": (14, 16, "<I"),
    "compressed_size": (18, 20, "<I"),
    "size": (22, 24, "<I"),
    "name_length": (26, 28, "<H"),
    "extra_length": (28, 30, "<H"),
    "comment_length": (None, 32, "<H"),
    "disk": (None, 34, "<H"),
    "internal": (None, 36, "<H"),
    "external": (None, 38, "<I"),
    "offset": (None, 42, "<I"),
}
END = {"disk": 4, "start_disk": 6, "here": 8, "count": 10, "directory": 12, "start": 16, "comment": 20}


def headers(data: bytes) -> dict[str, tuple[int, int]]:
    """Where each file's local and central headers are, in a zip that is right."""
    central: int = struct.unpack_from("<I", data, len(data) - 6)[0]
    found = {}
    while data[central : central + 4] == b"PK\1\2":
        length = struct.unpack_from("<H", data, central + 28)[0]
        name = data[central + 46 : central + 46 + length].decode()
        found[name] = (struct.unpack_from("<I", data, central + 42)[0], central)
        central += 46 + length
    return found


def edit(data: bytes, field: str, value: int, name: str = MODULE, where: str = "both") -> bytes:
    """Sets a field of a file's header, in the local header, the central one or both."""
    local, central, form = FIELDS[field]
    at = headers(data)[name]
    changed = bytearray(data)
    if where != "central" and local is not None:
        struct.pack_into(form, changed, at[0] + local, value)
    if where != "local":
        struct.pack_into(form, changed, at[1] + central, value)
    return bytes(changed)


def edit_end(data: bytes, field: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<I" if field in ("directory", "start") else "<H", changed, len(data) - 22 + END[field], value)
    return bytes(changed)


def split(data: bytes, place: int, length: int) -> tuple[bytes, bytes]:
    """What lies before and after `length` bytes that are put at `place`; the offsets of what lies behind are right."""
    for name, (local, _) in headers(data).items():
        if local >= place:
            data = edit(data, "offset", (local + length) & 0xFFFFFFFF, name, "central")
    start = struct.unpack_from("<I", data, len(data) - 6)[0]
    data = edit_end(data, "start", (start + length) & 0xFFFFFFFF)
    return data[:place], data[place:]


def stretch(data: bytes, name: str, length: int, grow: bool) -> tuple[bytes, bytes]:
    """`split` behind the stream of `name`, which has the bytes that are put there or (not `grow`) has not."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = archive.getinfo(name)
    if grow:
        data = edit(data, "compressed_size", (info.compress_size + length) & 0xFFFFFFFF, name)
    return split(data, info.header_offset + 30 + len(name.encode()) + info.compress_size, length)


def zip64_extra(data: bytes) -> bytes:
    """With the local header that `wheel pack` writes where zip64 is forced (pypa/wheel#692), for one file."""
    extra = struct.pack("<HHQQ", 1, 16, SIZE, 0)
    data = edit(data, "extra_length", len(extra), where="local")
    return extra.join(split(data, headers(data)[MODULE][0] + 30 + len(MODULE), len(extra)))


def rename(data: bytes, old: str, new: str) -> bytes:
    """Renames a file in both headers, to a name of the same length, and in RECORD not at all."""
    assert len(old) == len(new)
    return data.replace(old.encode(), new.encode())


def swapped_directory(data: bytes) -> bytes:
    """The first two entries of the directory change places; the members stay."""
    (_, first), (_, second), (_, third) = list(headers(data).values())[:3]
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def files(**changes: bytes) -> dict[str, bytes]:
    """FILES with METADATA, WHEEL or the manifest changed."""
    paths = {"metadata": f"{INFO}/METADATA", "wheel": f"{INFO}/WHEEL", "manifest": "a_kernel/manifest.json"}
    return FILES | {paths[key]: value for key, value in changes.items()}


def replaced(name: str, old: str, new: str) -> bytes:
    """A wheel in which a text of the dist-info directory has other words, and RECORD is right."""
    text = FILES[f"{INFO}/{name}"]
    assert old.encode() in text
    return pack(members(FILES | {f"{INFO}/{name}": text.replace(old.encode(), new.encode())}))


def with_record(change: Callable[[str], str]) -> bytes:
    entries = sorted((name, hashlib.sha256(data).hexdigest(), len(data)) for name, data in FILES.items())
    return pack(members(FILES, change(wheel_pack.record(entries, f"{INFO}/RECORD")).encode()))


def by_zipfile() -> bytes:
    """The same files as Python's zipfile writes them, with the same modes and date."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive, zipfile.ZipFile(io.BytesIO(GOOD)) as good:
        for info in good.infolist():
            copy = zipfile.ZipInfo(info.filename)
            copy.external_attr, copy.compress_type = info.external_attr, zipfile.ZIP_DEFLATED
            with archive.open(copy, "w") as out:
                out.write(good.read(info))
    return data.getvalue()


def zip64_locator(data: bytes) -> bytes:
    """With a locator where readers look for it: in the directory's last 20 bytes, which are part of a name."""
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, 0, 1)
    name = "x" * 4 + locator.decode("latin-1")
    return pack([*members(FILES), member(name, b"")])


def with_stream(change: Callable[[bytes], bytes]) -> bytes:
    """With a module whose deflate stream is changed."""
    listed = members(FILES)
    [(number, old)] = [(n, m) for n, m in enumerate(listed) if m.name == MODULE]
    assert isinstance(old.stream, bytes)
    listed[number] = replace(old, stream=change(old.stream))
    return pack(listed)


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "a file of 0 bytes"),
    "a byte after the end": (GOOD + b"\0", "nothing after it"),
    "a byte before the start": (b"\0" + GOOD, "a directory that ends at"),
    "a comment": (edit_end(GOOD, "comment", 1) + b"!", "nothing after it"),
    "two disks": (edit_end(GOOD, "disk", 1), "disks 1, 0"),
    "a directory on another disk": (edit_end(GOOD, "start_disk", 1), "disks 0, 1"),
    "entries elsewhere": (edit_end(GOOD, "here", 1), "1 of 6"),
    "an entry too many": (edit_end(edit_end(GOOD, "here", 7), "count", 7), "entry 7 of 7"),
    "an entry too few": (edit_end(edit_end(GOOD, "here", 5), "count", 5), "its 5 entries end at"),
    "a zip64 count": (edit_end(edit_end(GOOD, "here", 0xFFFF), "count", 0xFFFF), "marker of zip64"),
    "a zip64 start": (edit_end(GOOD, "start", 0xFFFFFFFF), "marker of zip64"),
    "a zip64 directory size": (edit_end(GOOD, "directory", 0xFFFFFFFF), "marker of zip64"),
    "a zip64 locator": (zip64_locator(GOOD), "zip64 locator"),
    "a zip64 extra field": (zip64_extra(GOOD), "norm.so: local header"),
    "an extra field": (edit(GOOD, "extra_length", 4), "bytes of extra fields"),
    "a zip64 size": (edit(GOOD, "size", 0xFFFFFFFF), "marker of zip64"),
    "a zip64 compressed size": (edit(GOOD, "compressed_size", 0xFFFFFFFF), "marker of zip64"),
    "a zip64 offset": (edit(GOOD, "offset", 0xFFFFFFFF), "marker of zip64"),
    "crc32, local only": (edit(GOOD, "crc32", 1, where="local"), "local header"),
    "crc32, central only": (edit(GOOD, "crc32", 1, where="central"), "local header"),
    "crc32": (edit(GOOD, "crc32", CRC32 ^ 1), f"{MODULE}: crc32\n  expected: {CRC32 ^ 1:08x}\n  found:    {CRC32:08x}"),
    "size, local only": (edit(GOOD, "size", 1, where="local"), "local header"),
    "a size too small": (edit(GOOD, "size", SIZE - 1), f"RECORD: size of {MODULE}"),
    "compressed size, local only": (edit(GOOD, "compressed_size", 1, where="local"), "local header"),
    "compressed size, central only": (edit(GOOD, "compressed_size", 1, where="central"), "local header"),
    "a compressed size too small": (edit(GOOD, "compressed_size", 1), "offset"),
    "a compressed size beyond the file": (edit(GOOD, "compressed_size", 0x7FFFFFFF), "offset"),
    "a name, local only": (GOOD.replace(MODULE.encode(), MODULE.upper().encode(), 1), "local header"),
    "encrypted": (edit(GOOD, "flags", 0x801), "not encrypted"),
    "a data descriptor": (edit(GOOD, "flags", 0x808), "no data descriptor"),
    "a name of no encoding": (edit(GOOD, "flags", 0), "flags"),
    "flags, local only": (edit(GOOD, "flags", 0, where="local"), "local header"),
    "stored": (edit(GOOD, "method", 0), "compression method"),
    "zstd": (edit(GOOD, "method", 93), "compression method"),
    "method, local only": (edit(GOOD, "method", 0, where="local"), "local header"),
    "a time": (edit(GOOD, "time", 1), "time of day"),
    "a date": (edit(GOOD, "date", 0x5D7E), "date"),
    "a date, local only": (edit(GOOD, "date", 0x5D7E, where="local"), "local header"),
    "made on MS-DOS": (edit(GOOD, "made_by", 20), "version made by"),
    "zip64 needed": (edit(GOOD, "needed", 45), "version needed"),
    "a comment of an entry": (edit(GOOD, "comment_length", 1), "bytes of comment"),
    "an entry's disk": (edit(GOOD, "disk", 1), "disk"),
    "internal attributes": (edit(GOOD, "internal", 1), "internal"),
    "an MS-DOS directory": (edit(GOOD, "external", REGULAR | 0x10), "MS-DOS"),
    "mode 0777": (edit(GOOD, "external", 0o100777 << 16), "expected: 100644 or 100755\n  found:    100777"),
    "setuid": (edit(GOOD, "external", 0o104755 << 16), "mode"),
    "a symlink": (edit(GOOD, "external", 0o120777 << 16), "mode"),
    "a directory's mode": (edit(GOOD, "external", 0o040755 << 16), "mode"),
    "no mode": (edit(GOOD, "external", 0), "mode"),
    "a gap": (b"\0".join(stretch(GOOD, MODULE, 1, False)), "where the member before it ends"),
    "a gap before the directory": (b"\0".join(stretch(GOOD, f"{INFO}/RECORD", 1, False)), "where the last member ends"),
    "an overlap": (edit(GOOD, "offset", 0), "where the member before it ends"),
    "an offset beyond the file": (edit(GOOD, "offset", 0x7FFFFFFF), "where the member before it ends"),
    "another order": (swapped_directory(GOOD), "where the member before it ends"),
    "a byte after a stream": (with_stream(lambda s: s + b"\0"), "1 bytes after it"),
    "a stream cut short": (with_stream(lambda s: s[:-1]), "cut short"),
    "no stream": (with_stream(lambda s: b""), "cut short"),
    "not a stream": (with_stream(lambda s: b"\xff" * 9), "a deflate stream"),
    "a name twice": (pack([*members(FILES), member(MODULE, b"other")]), "every name once"),
    "an absolute name": (rename(GOOD, MODULE, "/" + MODULE[1:]), "relative names"),
    "a name that leads out": (rename(GOOD, MODULE, "../" + MODULE[3:]), "relative names"),
    "a name that leads back": (rename(GOOD, "jit_cache/norm", "jit_cache/x/.."), "relative names"),
    "a backslash": (rename(GOOD, MODULE, MODULE.replace("/", "\\")), "relative names"),
    "a NUL in a name": (rename(GOOD, MODULE, MODULE.replace("norm.so", "norm\0so")), "relative names"),
    "a directory": (pack([*members(FILES), member("a_kernel/jit_cache/", b"")]), "relative names"),
    "an empty name": (pack([*members(FILES), member("", b"")]), "relative names"),
    "a file under a file": (pack([*members(FILES), member(f"{MODULE}/x", b"")]), "no file that another lies under"),
    "a name in Latin-1": (GOOD.replace(b"norm/norm.so", b"norm/n\xf6rm.so"), "a name in UTF-8"),
    "no dist-info": (rename(GOOD, INFO, INFO.replace(".dist-info", ".dist-infO")), "one dist-info directory"),
    "two dist-infos": (pack([*members(FILES), member("b-1.dist-info/METADATA", b"")]), "one dist-info directory"),
    "no METADATA": (rename(GOOD, "/METADATA", "/METADATE"), "one METADATA"),
    "no manifest": (rename(GOOD, "manifest.json", "manifest.jsom"), "one manifest.json"),
    "two manifests": (pack([*members(FILES), member("b/manifest.json", b"{}")]), "one manifest.json"),
    "a text in Latin-1": (pack(members(files(metadata=b"Name: \xf6\n"))), "UTF-8"),
    "a carriage return": (replaced("METADATA", "Summary", "X: y\rSummary"), "no control character"),
    "another dist-info": (rename(GOOD, INFO, INFO.replace("1.0", "1.1")), "dist-info directory"),
    "another version": (replaced("METADATA", "Version: 1.0+", "Version: 1.1+"), "Version in METADATA"),
    "no local version": (replaced("METADATA", "+cu130.sm9x", ""), "Version in METADATA"),
    "two versions": (replaced("METADATA", "Summary", "version: 1.1\nSummary"), "Version in METADATA"),
    "another name": (replaced("METADATA", "Name: a-kernel", "Name: b-kernel"), "Name in METADATA"),
    "a continued line": (replaced("METADATA", "Kernels", "Kernels\n  Version: 2"), "Field: value"),
    "another tag": (replaced("WHEEL", "x86_64", "aarch64"), "tags in WHEEL"),
    "a tag too many": (replaced("WHEEL", "Tag:", "Tag: py3-none-any\nTag:"), "tags in WHEEL"),
    "no tag": (replaced("WHEEL", "Tag:", "Label:"), "tags in WHEEL"),
    "purelib": (replaced("WHEEL", "false", "true"), "Root-Is-Purelib"),
    "a build number": (replaced("WHEEL", "Tag:", "Build: 1\nTag:"), "Build in WHEEL"),
    "text after WHEEL": (replaced("WHEEL", "Tag:", "\nTag:"), "fields only"),
    "a wrong hash": (with_record(lambda r: r.replace("sha256=", "sha256=x", 1)), "hash in RECORD"),
    "another hash": (with_record(lambda r: r.replace("sha256=", "md5=", 1)), "hash in RECORD"),
    "no hash": (with_record(lambda r: re.sub(r"sha256=[^,]*", "", r, count=1)), "RECORD: hash of"),
    "a hash of RECORD": (with_record(lambda r: r.replace("RECORD,,", "RECORD,sha256=x,")), "RECORD: hash of"),
    "a size of RECORD": (with_record(lambda r: r.replace("RECORD,,", "RECORD,,1")), "RECORD: size of"),
    "a size of another form": (with_record(lambda r: r.replace(",3\n", ",03\n")), "RECORD: size of"),
    "a line missing": (with_record(lambda r: r.partition("\n")[2]), f"missing ['{INFO}/METADATA'], surplus []"),
    "a line twice": (with_record(lambda r: r.partition("\n")[0] + "\n" + r), f"surplus ['{INFO}/METADATA']"),
    "a line for no file": (with_record(lambda r: r + "b.py,sha256=x,1\n"), "missing [], surplus ['b.py']"),
    "a file without a line": (pack([*members(FILES), member("b.py", b"")]), "missing ['b.py']"),
    "an empty line": (with_record(lambda r: "\n" + r), "rows of path, hash and size"),
    "bad quotes": (with_record(lambda r: '"a"b,,\n' + r), "comma-separated values"),
    "rewritten by zipfile": (by_zipfile(), "flags"),
}


class WheelZipTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name, NAME)

    def check(self, data: bytes) -> tuple[wheel_zip.Wheel, dict[str, str]]:
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(data)
        wheel = wheel_zip.read(self.path)
        return wheel, wheel_zip.verify(self.path, wheel)

    def refusal(self, data: bytes) -> str:
        with self.assertRaises(WheelError) as caught:
            self.check(data)
        return str(caught.exception)

    def assert_as_others_read_it(self, wheel: wheel_zip.Wheel, digests: dict[str, str], data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.assertIsNone(archive.testzip())
            infos = archive.infolist()
            self.assertEqual(
                [(e.name, e.crc32, e.compressed_size, e.size, e.mode) for e in wheel.entries],
                [(i.filename, i.CRC, i.compress_size, i.file_size, i.external_attr >> 16 & 0o777) for i in infos],
            )
            self.assertEqual(digests, {i.filename: hashlib.sha256(archive.read(i)).hexdigest() for i in infos})

    def test_what_the_packer_writes(self) -> None:
        wheel, digests = self.check(GOOD)
        self.assert_as_others_read_it(wheel, digests, GOOD)
        self.assertEqual((wheel.name, wheel.size, wheel.dist_info), (NAME, len(GOOD), INFO))
        self.assertEqual(
            {name: text.encode() for name, text in wheel.texts.items() if name != "RECORD"},
            {
                "METADATA": FILES[f"{INFO}/METADATA"],
                "WHEEL": FILES[f"{INFO}/WHEEL"],
                "manifest.json": b"{}\n",
            },
        )
        module = next(entry for entry in wheel.entries if entry.name == MODULE)
        stream = GOOD[module.offset : module.offset + module.compressed_size]
        self.assertEqual(zlib.decompress(stream, -15), FILES[MODULE])

    def test_refusals(self) -> None:
        for what, (data, words) in REFUSED.items():
            with self.subTest(what):
                message = self.refusal(data)
                self.assertIn(words, message)
                for part in (f"{NAME}: ", "\n  expected: ", "\n  found:    ", "\n  To do: "):
                    self.assertIn(part, message)

    def test_cut_short_anywhere(self) -> None:
        for length in range(len(GOOD)):
            self.refusal(GOOD[:length])
            self.refusal(GOOD[length + 1 :])

    def test_file_names(self) -> None:
        for name in (
            NAME.replace("sm9x", "sm10x"),
            NAME.replace("a_kernel", "b_kernel"),
            NAME.replace("a_kernel", "A_kernel"),
            NAME.replace("cp39", "cp310"),
            NAME.replace("x86_64", "aarch64"),
            NAME.replace("-cp39", "-1-cp39"),
            NAME.replace("-cp39", ""),
            NAME.replace(".whl", ".zip"),
        ):
            path = self.path.with_name(name)
            path.write_bytes(GOOD)
            with self.subTest(name), self.assertRaises(WheelError):
                wheel_zip.verify(path, wheel_zip.read(path))

    def test_compressed_tags_and_build_number(self) -> None:
        path = self.path.with_name(NAME.replace("-cp39-abi3-manylinux", "-7-cp39.cp310-abi3-manylinux"))
        text = FILES[f"{INFO}/WHEEL"].replace(
            b"Tag: cp39", b"Build: 7\nTag: cp310-abi3-manylinux_2_28_x86_64\nTag: cp39"
        )
        path.write_bytes(pack(members(files(wheel=text))))
        wheel_zip.verify(path, wheel_zip.read(path))

    def test_two_gibibytes_exactly(self) -> None:
        """It is read; that it is too large is for the check of its size to say. The file is sparse."""
        limit = 2**31
        head, tail = stretch(GOOD, MODULE, limit - len(GOOD), True)
        with open(self.path, "wb") as file:
            file.write(head)
            file.seek(limit - len(tail))
            file.write(tail)
        wheel = wheel_zip.read(self.path)
        self.assertEqual(wheel.size, limit)
        spec = {"asset_limit": limit, "budget": limit + 1}
        self.assertEqual(wheel_check.check_size(NAME, wheel.size - 1, spec, {"modules": {}}), [])
        [message] = wheel_check.check_size(NAME, wheel.size, spec, {"modules": {}})
        self.assertIn("found:    2147483648 bytes", message)
        with self.assertRaisesRegex(WheelError, r"norm\.so.*\n.*ends with its deflate stream\n.* \d+ bytes after it"):
            wheel_zip.verify(self.path, wheel)

    def test_beyond_what_the_format_holds(self) -> None:
        for length, words in ((2**32 - len(GOOD) - 1, None), (2**32, "a directory that ends at")):
            head, tail = stretch(GOOD, MODULE, length, True)
            with open(self.path, "wb") as file:
                file.write(head)
                file.seek(len(head) + length)
                file.write(tail)
            if words is None:
                self.assertEqual(wheel_zip.read(self.path).size, 2**32 - 1)
            else:
                with self.assertRaisesRegex(WheelError, words):
                    wheel_zip.read(self.path)

    def test_memory_does_not_grow_with_a_member(self) -> None:
        data = bytes(1 << 26)
        path = self.path
        path.write_bytes(pack(members(FILES | {MODULE: data})))
        del data
        wheel = wheel_zip.read(path)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        wheel_zip.verify(path, wheel)
        self.assertLess(tracemalloc.get_traced_memory()[1], 4 << 20)

    def test_random_wheels(self) -> None:
        """Wheels of names that readers may change, from other compressors: refused, or read as zipfile reads them."""
        rng = random.Random(2)
        parts = [
            "a",
            "B",
            "é",
            "e\u0301",
            "ß",
            "文",
            " ",
            ".",
            "..",
            "",
            ".a",
            "a.",
            "\\",
            ":",
            "\x7f",
            "~",
            "a,b",
            '"',
            "\u2028",
        ]
        accepted = 0
        for _ in range(1500):
            names = {
                "/".join("".join(rng.choices(parts, k=rng.randint(1, 2))) for _ in range(rng.randint(1, 3)))
                for _ in range(rng.randint(0, 2))
            }
            extra = {name: rng.choice([b"", b"x", rng.randbytes(99)]) for name in sorted(names)}
            data = pack([recompressed(rng, m) for m in members(FILES | extra)])
            try:
                wheel, digests = self.check(data)
            except WheelError:
                continue
            accepted += 1
            self.assert_as_others_read_it(wheel, digests, data)
        self.assertGreater(accepted, 300)

    def test_random_damage(self) -> None:
        """Refused with a WheelError, or the damage is of no consequence to any reader."""
        rng = random.Random(3)
        whole = self.check(GOOD)[1]
        harmless = set()
        for _ in range(10000):
            data = damage(rng, GOOD)
            try:
                wheel, digests = self.check(data)
            except WheelError:
                continue
            self.assert_as_others_read_it(wheel, digests, data)
            self.assertEqual(digests, whole)
            harmless.add(data)
        self.assertGreater(len(harmless), 5)


def damage(rng: random.Random, data: bytes) -> bytes:
    """Changes bytes, drops, doubles or moves a range, or sets a field of a header in one place or in both."""
    changed = bytearray(data)
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice([1, 2, 4, 30, 46, 200]))
    kind = rng.randrange(8)
    if kind == 0:
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        changed[start:end] = rng.randbytes(end - start)
    elif kind == 2:
        del changed[start:end]
    elif kind == 3:
        changed[start:start] = changed[start:end]
    elif kind == 4:
        part = changed[start:end]
        del changed[start:end]
        place = rng.randrange(len(changed) + 1)
        changed[place:place] = part
    elif kind == 5:
        value = rng.choice([0, 1, 0xFFFF, rng.randrange(1 << 16)])
        name = rng.choice(list(headers(data)))
        return edit(data, rng.choice(list(FIELDS)), value, name, rng.choice(["local", "central", "both"]))
    elif kind == 6:
        # A stream's last byte may have bits that mean nothing.
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            info = rng.choice(archive.infolist())
        changed[info.header_offset + 30 + len(info.filename) + info.compress_size - 1] ^= 1 << rng.randrange(8)
    else:
        return edit_end(data, rng.choice(list(END)), rng.choice([0, 1, 0xFFFF, rng.randrange(1 << 16)]))
    return bytes(changed)


class WriterTest(unittest.TestCase):
    def test_a_stream_that_changes_while_it_is_copied(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "stream")
            path.write_bytes(b"\3\0")

            class Growing(Member):
                def open(self) -> io.FileIO:
                    class Stream(io.FileIO):
                        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
                            path.write_bytes(b"\3")
                            return super().readinto(buffer)

                    return Stream(path)

            with self.assertRaisesRegex(ZipError, "a changed while it was copied: 2 bytes, then 1"):
                write_zip(Path(directory, "a.zip"), [Growing("a", path, 0, 0)])


if __name__ == "__main__":
    unittest.main()
