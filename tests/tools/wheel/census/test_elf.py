"""The ELF reader: what it reads, and what it refuses."""

import struct
import unittest

import samples
from elf import EM_AARCH64, EM_X86_64, Elf, ElfError


def read_all(data: bytes) -> None:
    elf = Elf(data, "a.so")
    elf.dynamic()
    elf.needed_versions()
    for table in (".symtab", ".dynsym"):
        list(elf.symbols(table))
    list(elf.relocations(".rela.dyn"))
    for section in elf.sections:
        elf.content(section)
        if section.type == 7:
            list(elf.notes(section.name))


class RealTest(unittest.TestCase):
    MODULES = samples.real_modules()

    def test_what_a_module_asks_for(self) -> None:
        for label, machine in (("cu130", EM_X86_64), ("cu134", EM_AARCH64)):
            with self.subTest(label=label):
                elf = Elf(self.MODULES[label], "a.so")
                dynamic = elf.dynamic()
                self.assertEqual(elf.machine, machine)
                self.assertIn("libcudart.so.13", dynamic.needed)
                self.assertEqual((dynamic.soname, dynamic.rpath, dynamic.runpath), (None, None, None))
                self.assertFalse(dynamic.textrel)
                self.assertEqual(elf.needed_versions()["libcudart.so.13"], {"libcudart.so.13"})
                self.assertTrue(all(v.startswith("GLIBC_2.") for v in elf.needed_versions()["libc.so.6"]))
                exported = {s.name for s in elf.symbols(".dynsym") if s.section}
                self.assertTrue({"launch_stored", "launch_lz4", "launch_zstd"} <= exported)

    def test_sections(self) -> None:
        elf = Elf(self.MODULES["cu130"], "a.so")
        section = elf.section(".nv_fatbin")
        assert section
        self.assertEqual(bytes(elf.content(section)[:4]), b"\x50\xed\x55\xba")
        bss = elf.section(".bss")
        assert bss
        self.assertEqual(bytes(elf.content(bss)), b"")
        self.assertIsNone(elf.section(".no_such_section"))


class RefusedTest(unittest.TestCase):
    def refused(self, data: bytes, words: str) -> None:
        with self.assertRaisesRegex(ElfError, "^a.so: .*" + words):
            read_all(data)

    def test_other_files(self) -> None:
        self.refused(b"", "expected 64 bytes, found 0 bytes")
        self.refused(b"#!/bin/sh\n" + bytes(64), "expected 7f 45 4c 46 02 01 01 .*, found 23 21")
        self.refused(b"\x7fELF\x01\x01\x01" + bytes(64), "64 bits, little-endian")

    def test_no_sections(self) -> None:
        data = bytearray(samples.elf({}))
        data[40:48] = bytes(8)
        self.refused(bytes(data), "a table of section headers, found none")

    def test_section_beyond_the_end(self) -> None:
        data = bytearray(samples.elf({".a": (1, b"x" * 8)}))
        (table,) = struct.unpack_from("<Q", data, 40)
        struct.pack_into("<Q", data, table + 64 + 32, 1 << 62)
        self.refused(
            bytes(data), rf"section '\.a': expected an end within the file's {len(data)} bytes, found 64 \+ {1 << 62}"
        )

    def test_more_sections_than_there_is_place_for(self) -> None:
        data = bytearray(samples.elf({}))
        struct.pack_into("<H", data, 60, 0)  # the number is in section header 0 then
        (table,) = struct.unpack_from("<Q", data, 40)
        struct.pack_into("<Q", data, table + 32, 1 << 58)
        self.refused(bytes(data), "section headers: expected an end within")

    def test_a_name_that_does_not_end(self) -> None:
        self.refused(
            samples.elf({".strtab": (3, b"\0abc"), ".symtab": (2, struct.pack("<IBBHQQ", 1, 0, 0, 0, 0, 0))}),
            "found 1$",
        )

    def test_two_sections_of_one_name(self) -> None:
        data = samples.elf({".dynsym": (2, b""), ".dynsyn": (2, b"")}).replace(b".dynsyn", b".dynsym")
        self.refused(data, r"section '\.dynsym': expected at most one of that name, found 2")

    def test_half_a_symbol(self) -> None:
        self.refused(samples.elf({".strtab": (3, b"\0"), ".symtab": (2, bytes(25))}), "entries of 24 bytes, found 25")

    def test_versions_that_go_round_in_circles(self) -> None:
        need = struct.pack("<HHIII", 1, 0xFFFF, 0, 0, 0)
        data = samples.elf({".strtab": (3, b"\0"), ".gnu.version_r": (0x6FFFFFFE, need)}, info=0xFFFFFFFF)
        self.refused(data, "chains of entries within its 16 bytes")

    def test_strings_that_overlap(self) -> None:
        """A table of 64 KiB whose every offset is a name would be 2 GiB of names."""
        strings = b"a" * 65535 + b"\0"
        symbols = b"".join(struct.pack("<IBBHQQ", offset, 0, 0, 0, 0, 0) for offset in range(65535))
        self.refused(
            samples.elf({".strtab": (3, strings), ".symtab": (2, symbols)}), "strings that end within its 65536 bytes"
        )


class DamagedTest(samples.DamageTest):
    def test_a_damaged_module(self) -> None:
        data = samples.real_modules()["cu130"]
        elf = Elf(data, "a.so")
        names = (".dynamic", ".dynsym", ".dynstr", ".gnu.version_r", ".rela.dyn")
        (table,) = struct.unpack_from("<Q", data, 40)
        hot = [0, table, *(section.offset for section in elf.sections if section.name in names)]
        self.survives(read_all, data, [*hot, *range(table, len(data), 64)], at_least=300)


if __name__ == "__main__":
    unittest.main()
