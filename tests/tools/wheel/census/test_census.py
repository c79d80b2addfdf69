"""The census: of real modules, of damaged ones, and what it says of a module that is not what was to be built."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import census
import samples
from census import Image, check, take
from elf import Elf, ElfError
from samples import SM_TARGETS, ZSTD, cubin, fatbin, image, module, module_with_cubins

TUS = {f"tests/tools/wheel/census/{name}.cu": SM_TARGETS for name in ("stored", "lz4", "zstd")}


class RealTest(unittest.TestCase):
    CENSUSES = {label: take(data, "kernels.so", ZSTD) for label, data in samples.real_modules().items()}

    def test_images(self) -> None:
        for label, found in self.CENSUSES.items():
            for index in range(3):
                with self.subTest(label=label, fatbin=index):
                    self.assertEqual([(i.kind, i.sm) for i in found[index]], [("sass", sm) for sm in SM_TARGETS])

    def test_kernels(self) -> None:
        """Instances, and what has internal linkage; no device function."""
        expected = [
            (3, "_Z5scaleIdEvPT_S0_", "_Z5scaleIfEvPT_S0_"),
            (2, "_Z8unrolledILi2EEvPf", "_Z8unrolledILi64EEvPf"),
            (1, "_Z5plainPi"),
        ]
        for label, found in self.CENSUSES.items():
            for images, (count, *names) in zip(found, expected, strict=True):
                for i in images:
                    with self.subTest(label=label, sm=i.sm):
                        self.assertEqual(len(i.kernels), count)
                        self.assertEqual(i.kernels[: len(names)], tuple(names))
        self.assertRegex(self.CENSUSES["cu130"][0][0].kernels[2], "^_ZN.*GLOBAL.*hidden")

    def test_compression(self) -> None:
        """Nothing is gained without, and each of the two ways gains."""
        for found in self.CENSUSES.values():
            for images, compressed in zip(found, (False, True, True), strict=True):
                for i in images:
                    self.assertEqual(i.bytes < i.uncompressed_bytes, compressed)

    def test_it_is_what_was_built(self) -> None:
        for found in self.CENSUSES.values():
            self.assertEqual(check("kernels", found, TUS), [])


class DamagedTest(samples.DamageTest):
    def test_a_damaged_module(self) -> None:
        data = samples.real_modules()["cu134"]
        section = Elf(data, "a.so").section(".nv_fatbin")
        assert section
        hot = [section.offset]
        for found in samples.image_offsets(data[section.offset : section.offset + section.size]):
            hot += [section.offset + found] * 3
        self.survives(lambda copy: take(copy, "a.so", ZSTD), data, hot, at_least=50)


class CheckTest(unittest.TestCase):
    A, B = Image("sass", "8.0", 9, 9, ("f", "g")), Image("sass", "12.0f", 9, 9, ("f", "g"))

    def problem(self, images: list[Image], expected: list[str]) -> str:
        [message] = check("norm", [images], {"norm.cu": expected})
        return message

    def test_all_is_well(self) -> None:
        self.assertEqual(check("norm", [[self.A, self.B]], {"norm.cu": ["8.0", "12.0f"]}), [])
        ptx = Image("ptx", "9.0a", 9, 9, ("f", "g"))
        self.assertEqual(check("norm", [[self.A, ptx]], {"norm.cu": ["8.0", "compute_90a"]}), [])

    def test_missing_image(self) -> None:
        self.assertEqual(
            self.problem([self.A], ["8.0", "12.0f"]),
            "norm, norm.cu (fatbin 0) has no image for: SASS 12.0f.\n"
            "  expected: SASS 8.0, SASS 12.0f\n"
            "  found:    SASS 8.0\n"
            "  To do: build it again; if that does not help, the cubin got lost between CudaFatbin and CudaLink.",
        )

    def test_foreign_image(self) -> None:
        message = self.problem([self.A, self.B], ["8.0"])
        self.assertIn("norm, norm.cu (fatbin 0) has an image that it was not built with: SASS 12.0f.", message)
        self.assertIn("To do: find what brings it", message)

    def test_an_image_twice(self) -> None:
        self.assertIn("not built with: SASS 8.0.", self.problem([self.A, self.A], ["8.0"]))

    def test_suffixes_count(self) -> None:
        messages = check("norm", [[self.B]], {"norm.cu": ["12.0a"]})
        self.assertEqual(len(messages), 2)

    def test_ptx_that_nobody_promised(self) -> None:
        ptx = Image("ptx", "8.0", 9, 9, ("f", "g"))
        self.assertIn("was not built with: PTX 8.0.", self.problem([self.A, ptx], ["8.0"]))

    def test_a_kind_that_nobody_knows(self) -> None:
        other = Image("kind 8", "8.0", 9, 9, ())
        self.assertIn("was not built with: KIND 8 8.0.", self.problem([self.A, other], ["8.0"]))

    def test_fewer_kernels(self) -> None:
        lacks = Image("sass", "12.0f", 9, 9, ("f",))
        message = self.problem([self.A, lacks], ["8.0", "12.0f"])
        for words in (
            "norm, norm.cu (fatbin 0): SASS for 12.0f has fewer kernels than another image of the same fatbin.",
            "expected: 2 kernels",
            "found:    1; these are missing:\n    g (in SASS for 8.0)",
            "To do: find what leaves them out",
        ):
            self.assertIn(words, message)

    def test_fewer_kernels_for_a_reason(self) -> None:
        lacks = Image("sass", "12.0f", 9, 9, ("f",))
        images, tus = [[self.A, lacks]], {"norm.cu": ["8.0", "12.0f"]}
        self.assertEqual(check("norm", images, tus, {("norm", "norm.cu", "12.0f"): "g needs wgmma"}), [])
        for other in (("page", "norm.cu", "12.0f"), ("norm", "x.cu", "12.0f"), ("norm", "norm.cu", "8.0")):
            self.assertEqual(len(check("norm", images, tus, {other: "g needs wgmma"})), 1)

    def test_many_missing_kernels(self) -> None:
        full = Image("sass", "8.0", 9, 9, tuple(f"k{i:03}" for i in range(230)))
        message = self.problem([full, Image("sass", "11.0a", 9, 9, ())], ["8.0", "11.0a"])
        self.assertIn("    k009 (in SASS for 8.0)\n    and 220 more\n", message)

    def test_another_number_of_fatbins(self) -> None:
        [message] = check("norm", [[self.A]], {"norm.cu": ["8.0"], "more.cu": ["8.0"]})
        for words in ("norm does not have one fatbin", "2 fatbins (norm.cu, more.cu)", "found:    1"):
            self.assertIn(words, message)
        messages = check("norm", [[self.A], [self.A]], {"norm.cu": ["8.0"]})
        self.assertEqual(len(messages), 2)
        self.assertIn("norm, fatbin 1 has an image that it was not built with: SASS 8.0", messages[1])


class EmbeddedTest(unittest.TestCase):
    """Cubins outside of fatbins, which host code loads itself."""

    DATA = module_with_cubins(late=("90a", cubin("k", "l", note=b"-arch sm_90a")), early=("90", cubin("k")))
    EXPECTED = {"early": ("9.0", "k"), "late": ("9.0a", "l")}

    def problems(self, expected: dict[str, tuple[str, str]]) -> list[str]:
        return check("kda", take(self.DATA, "kda.so", None), {}, embedded=expected)

    def test_they_are_counted(self) -> None:
        found = [i for images in take(self.DATA, "kda.so", None) for i in images]
        self.assertEqual(
            [(i.embedded, i.kind, i.sm, i.kernels) for i in found],
            [("early", "sass", "9.0", ("k",)), ("late", "sass", "9.0a", ("k", "l"))],
        )
        self.assertEqual([i.bytes for i in found], [len(cubin("k")), len(cubin("k", "l", note=b"-arch sm_90a"))])

    def test_all_is_well(self) -> None:
        self.assertEqual(self.problems(self.EXPECTED), [])

    def test_one_that_is_not_there(self) -> None:
        [message] = self.problems({**self.EXPECTED, "more": ("9.0a", "k")})
        for words in (
            "kda, embedded cubin more is not what was built",
            "expected: SASS for 9.0a with kernel k",
            "found:    nothing",
            "To do: see whether host code refers to its symbol",
        ):
            self.assertIn(words, message)

    def test_one_that_nobody_declared(self) -> None:
        [message] = self.problems({"early": ("9.0", "k")})
        for words in ("embedded cubin late", "expected: nothing of that name", "found:    SASS for 9.0a", "To do:"):
            self.assertIn(words, message)

    def test_another_kernel_or_sm_target(self) -> None:
        for expected in (("9.0", "_Z1kv"), ("9.0a", "k")):
            [message] = self.problems({**self.EXPECTED, "early": expected})
            for words in ("embedded cubin early", f"SASS for {expected[0]} with kernel {expected[1]}",
                          "found:    SASS for 9.0 with kernels k", 'declare the kernel extern "C"'):  # fmt: skip
                self.assertIn(words, message)

    def test_one_that_is_not_what_its_section_says(self) -> None:
        for content, words in (
            (b"no cubin", "embedded cubin a, cubin for 9.0a: ELF header: expected 64 bytes, found 8 bytes"),
            (
                cubin("k", note=b"-arch sm_90"),
                "a.so, embedded cubin a: sass for 9.0a: expected a cubin that ptxas made",
            ),
            (cubin("k", number=80), "a.so, embedded cubin a: sass for 9.0a: expected a cubin .ELF machine 190. for it"),
        ):
            with self.subTest(words), self.assertRaisesRegex(ElfError, words):
                take(module_with_cubins(a=("90a", content)), "a.so", None)
        twice = samples.elf({".cubin.sm_90.a": (1, cubin("k")), ".cubin.sm_90a.a": (1, cubin("k"))})
        with self.assertRaisesRegex(ElfError, "embedded cubin a: .* expected one section of that name, found two"):
            take(twice, "a.so", None)


class CommandLineTest(unittest.TestCase):
    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["census.py", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            return census.main(), out.getvalue(), err.getvalue()

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name, "a.so")

    def test_table(self) -> None:
        self.path.write_bytes(module(fatbin(image(cubin("k")), image(cubin("a", "b"), flags=1 << 20))))
        status, out, _ = self.run_main(str(self.path))
        self.assertEqual(status, 0)
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual(lines[0], "module fatbin kind SM bytes uncompressed kernels".split())
        self.assertEqual([(line[3], line[-1]) for line in lines[1:]], [("9.0", "1"), ("9.0a", "2")])

    def test_table_with_embedded_cubins(self) -> None:
        self.path.write_bytes(module_with_cubins(body=("90", cubin("k"))))
        line = self.run_main(str(self.path))[1].splitlines()[1].split()
        self.assertEqual((line[1:4], line[-1]), (["body", "sass", "9.0"], "1"))

    def test_json(self) -> None:
        self.path.write_bytes(samples.real_modules()["cu130"])
        status, out, _ = self.run_main("--json", "--zstd", os.environ["LIBZSTD"], str(self.path))
        [fatbins] = json.loads(out).values()
        self.assertEqual((status, fatbins[2][3]["sm"], fatbins[2][3]["kernels"]), (0, "12.0f", ["_Z5plainPi"]))

    def test_no_device_code(self) -> None:
        self.path.write_bytes(samples.elf({}))
        self.assertIn("no device code", self.run_main(str(self.path))[1])

    def test_errors(self) -> None:
        self.path.write_bytes(b"")
        self.assertEqual(
            self.run_main(str(self.path)), (1, "", "error: a.so: ELF header: expected 64 bytes, found 0 bytes\n")
        )
        for arguments in ([str(self.path) + ".missing"], ["--zstd", "/missing.so.1", str(self.path)]):
            status, _, err = self.run_main(*arguments)
            self.assertEqual((status, "No such file" in err), (1, True))

    def test_as_a_program(self) -> None:
        self.path.write_bytes(samples.elf({}))
        command = [sys.executable, "-S", census.__file__, str(self.path)]
        self.assertEqual(subprocess.run(command, capture_output=True, text=True, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
