"""fatbin_step.py: joining the cubins of a module."""

import struct
import tempfile
import unittest
from pathlib import Path

import fatbin_step
from nvcc_steps import StepError


class FatbinTest(unittest.TestCase):
    def image(self, size: int) -> bytes:
        return struct.pack("<HHIQ", 2, 0x101, 64, size) + bytes(48 + size)

    def test_image_sizes(self) -> None:
        body = self.image(100) + self.image(8)
        fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
        self.assertEqual(fatbin_step.image_sizes(fatbin), [164, 72])

    def test_other_bytes_are_refused(self) -> None:
        with self.assertRaisesRegex(StepError, "not one fatbin"):
            fatbin_step.image_sizes(bytes(16))

    def test_stubs_that_differ_are_named(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            same, other = Path(directory, "a.c"), Path(directory, "b.c")
            same.write_text("f;")
            other.write_text("f; g;")
            fatbin_step.check_stubs("x/a.cu", str(same), [("8.0", "", str(same))])
            with self.assertRaises(StepError) as caught:
                fatbin_step.check_stubs("x/a.cu", str(same), [("8.0", "", str(same)), ("9.0a", "", str(other))])
        for words in ("x/a.cu", "SM target 9.0a", "found besides: g", "__CUDA_ARCH__"):
            self.assertIn(words, str(caught.exception))

    def test_an_image_may_have_less(self) -> None:
        """Fewer kernels, other line numbers and names of locals, other launch bounds."""
        with tempfile.TemporaryDirectory() as directory:
            all_of_them, fewer = Path(directory, "a.c"), Path(directory, "b.c")
            all_of_them.write_text(
                '# 291 "a.cuh" 3\nint *__smwheel7;f(__smwheel7);__cudaRegisterEntry(h, g<1>, _Zg, (-1)); k;\n'
            )
            fewer.write_text('# 293 "a.cuh" 3\nint *__smwheel0;f(__smwheel0);__cudaRegisterEntry(h, g<1>, _Zg, 512);\n')
            fatbin_step.check_stubs("x/a.cu", str(all_of_them), [("7.5", "", str(fewer))])
            with self.assertRaises(StepError):
                fatbin_step.check_stubs("x/a.cu", str(fewer), [("7.5", "", str(all_of_them))])

    def test_images_list(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "list")
            path.write_text("TU\na.cu\nplan\nstub\nIMAGE\n8.0\nc1\ns1\nIMAGE\n9.0a\nc2\ns2\nTU\nb.cu\np\ns\n")
            self.assertEqual(
                list(fatbin_step.parse_images(str(path))),
                [
                    ("a.cu", "plan", "stub", [("8.0", "c1", "s1"), ("9.0a", "c2", "s2")]),
                    ("b.cu", "p", "s", []),
                ],
            )

    def test_compression_replaces_what_the_flags_say(self) -> None:
        flags = ["-64", "--compress-mode=size", "--compress-all", "--cicc-cmdline=-ftz=0 "]
        for mode, expected in {
            "": flags,
            "none": ["-64", "--cicc-cmdline=-ftz=0 ", "--compress-mode=none"],
            "speed": ["-64", "--cicc-cmdline=-ftz=0 ", "--compress-mode=speed", "--compress-all"],
        }.items():
            self.assertEqual(fatbin_step.compression_flags(flags, mode), expected)


if __name__ == "__main__":
    unittest.main()
