"""Fatbins and their images: what is read, and what is refused."""

import struct
import unittest

import samples
from elf import Elf, ElfError
from fatbin import Fatbin, FatbinError, fatbins
from samples import cubin, fatbin, frame, image, module

LZ4, ZSTD, A, F = 1 << 13, 1 << 15, 1 << 20, 1 << 21


def read(data: bytes) -> list[Fatbin]:
    return fatbins(Elf(data, "a.so"))


def kernels(*images: bytes) -> list[list[str]]:
    return [i.kernels(samples.ZSTD) for f in read(module(fatbin(*images))) for i in f.images]


class ImagesTest(unittest.TestCase):
    def test_several_fatbins_with_padding_between(self) -> None:
        found = read(module(fatbin(image(cubin("k"))), fatbin(image(cubin("k")), image(cubin("k"), flags=A))))
        self.assertEqual([[i.sm for i in f.images] for f in found], [["9.0"], ["9.0", "9.0a"]])

    def test_a_module_without_device_code(self) -> None:
        self.assertEqual(read(samples.elf({})), [])

    def test_suffixes(self) -> None:
        [found] = read(module(fatbin(*(image(b"", number=120, flags=flags) for flags in (0x11, A, F)))))
        self.assertEqual([i.sm for i in found.images], ["12.0", "12.0a", "12.0f"])

    def test_kinds(self) -> None:
        ptx = b"\n.version 9.0\n.target sm_120f\n.address_size 64\n.visible .entry k(\n)\n{ret;}\n.weak .entry a()\n"
        images = read(module(fatbin(image(ptx, 120, F, kind=1), image(b"?", kind=8))))[0].images
        self.assertEqual([(i.kind, i.kernels(None)) for i in images], [("ptx", ["a", "k"]), ("kind 8", [])])

    def test_compressions(self) -> None:
        plain = cubin("kernel")
        # Literals, then the end: a block may hold no match.
        literals = len(plain) - 15
        block = b"\xf0" + b"\xff" * (literals // 255) + bytes([literals % 255]) + plain
        self.assertEqual(
            kernels(
                image(plain),
                image(frame(plain), flags=ZSTD, stored=len(frame(plain)), uncompressed=len(plain)),
                image(block, flags=LZ4, stored=len(block), uncompressed=len(plain)),
            ),
            [["kernel"]] * 3,
        )

    def test_lz4_matches(self) -> None:
        """`a` and a match that overlaps itself; then one that does not, and literals."""
        data = b"\x1fa\x01\x00\x05" + b"\x00\x08\x00" + b"\x20zz"
        [found] = read(module(fatbin(image(data, flags=LZ4, stored=len(data), uncompressed=31))))[0].images
        self.assertEqual(bytes(found.content(None)), b"a" * 29 + b"zz")


class RefusedTest(unittest.TestCase):
    def refused(self, words: str, *images: bytes) -> None:
        with self.assertRaisesRegex(FatbinError, "^a.so, fatbin 0, image 0.*" + words):
            kernels(*images)

    def test_truncated_images(self) -> None:
        self.refused("expected 64 bytes, found 8", bytes(8))
        self.refused("payload that ends within the fatbin", image(b"x" * 8)[:-8])

    def test_contradicting_flags(self) -> None:
        self.refused("at most one compression and one suffix", image(b"", flags=A | F))
        self.refused("at most one compression and one suffix", image(b"", flags=LZ4 | ZSTD))

    def test_zstd(self) -> None:
        good = frame(b"x" * 100)
        for words, data, size in (
            ("a Zstandard frame of 99 bytes, found one of 100 bytes", good, 99),
            ("a Zstandard frame of 100 bytes, found Src size is incorrect", good[:-1], 100),
            ("a Zstandard frame of 99 bytes, found no frame", b"x" * 8, 99),
            ("a Zstandard frame of 0 bytes, found no frame", b"", 0),
            ("at most 1073741824 bytes, found 1152921504606846976", b"", 1 << 60),
        ):
            with self.subTest(words=words):
                self.refused(words, image(data, flags=ZSTD, stored=len(data), uncompressed=size))

    def test_zstd_without_the_library(self) -> None:
        [found] = read(module(fatbin(image(b"", flags=ZSTD))))[0].images
        with self.assertRaisesRegex(FatbinError, r"libzstd.*--zstd"):
            found.kernels(None)

    def test_lz4(self) -> None:
        for words, block, size in (
            ("an LZ4 block that ends after its literals", b"", 9),
            ("an LZ4 block that ends after its literals", b"\xf0\xff\xff", 9),
            ("literals within the block", b"\x30ab", 9),
            ("literals within .* the image", b"\x90abcdefghi", 8),
            ("a match within the image, found 4 bytes, 2 back, at 1 of 9", b"\x10a\x02\x00", 9),
            ("a match within the image", b"\x1fa\x01\x00\xff\x00", 9),
            ("9 bytes, found 2", b"\x20ab", 9),
        ):
            with self.subTest(block=block):
                self.refused(words, image(block, flags=LZ4, stored=len(block), uncompressed=size))

    def test_a_cubin_for_another_sm_target(self) -> None:
        self.refused("found machine 190, SM number 80", image(cubin("k", number=80)))
        with self.assertRaisesRegex(ElfError, "expected 7f 45 4c 46"):
            kernels(image(bytes(64)))
        self.refused("a cubin .* found machine 62", image(samples.elf({}, flags=90 << 8)))

    def test_a_cubin_with_another_suffix(self) -> None:
        """fatbinary lets this pass."""
        note = b"-arch sm_120f -m 64 "
        self.assertEqual(kernels(image(cubin("k", number=120, note=note), 120, F)), [["k"]])
        self.refused(r"ptxas made for it .* found 12\.0f", image(cubin("k", number=120, note=note), 120, A))
        self.refused(r"ptxas made for it .* found 12\.0f", image(cubin("k", number=120, note=note), 120))
        for value, flags in ((0, F), (0, 0), (1, A)):
            compat = struct.pack("<BBHBBHQ", 4, 11, 8, 0, 0, 0, 0)[:12] + bytes([2, 9, value, 0])
            self.assertEqual(kernels(image(cubin("k", number=120, compat=compat), 120, flags)), [["k"]])
            self.refused(r"\.nv\.compat", image(cubin("k", number=120, compat=compat), 120, 0 if value else A))

    def test_ptx_for_another_sm_target(self) -> None:
        self.refused(r"found \.target sm_120f", image(b".target sm_120f\n", 120, kind=1))
        self.refused("found none", image(b"", 120, kind=1))

    def test_what_is_not_a_fatbin(self) -> None:
        with self.assertRaisesRegex(
            FatbinError, r"^a.so: \.nv_fatbin at 8: expected a fatbin .* found magic 0x78787878"
        ):
            read(module(bytes(8) + b"x" * 16))
        with self.assertRaisesRegex(FatbinError, "end at 24 of 16"):
            read(module(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 8)))

    def test_wrappers(self) -> None:
        for pointers in ([], [64, 64], [72]):
            with self.assertRaisesRegex(FatbinError, r"one for each fatbin, at \['0x40'\], found"):
                read(module(fatbin(), pointers=pointers))
        with self.assertRaisesRegex(FatbinError, "expected magic 0x466243b1"):
            read(samples.elf({".nvFatBinSegment": (1, bytes(24))}))
        with self.assertRaisesRegex(FatbinError, "wrappers of 24 bytes, found 23 bytes"):
            read(samples.elf({".nvFatBinSegment": (1, bytes(23))}))

    def test_a_module_of_no_host(self) -> None:
        with self.assertRaisesRegex(ElfError, r"expected machine 62 \(x86_64\) or 183 \(aarch64\), found 190"):
            read(cubin("k"))


if __name__ == "__main__":
    unittest.main()
