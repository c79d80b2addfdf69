"""Tests of kernels/flashinfer/provided.py.

Needs that folder on the import path:
PYTHONPATH=kernels/flashinfer python3 -m unittest discover -s tests/kernels/flashinfer
"""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import provided

NCCL = "#define NCCL_MAJOR 2\n#define NCCL_MINOR {}\n#define NCCL_PATCH 7\n"
TORCH = ["torch/library.h", "torch/csrc/api/include/torch/all.h", "c10/cuda/impl/cuda_cmake_macros.h"]


class ProvidedTest(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name).resolve()

    def write(self, *names: str, text: str = "") -> None:
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def find(self, option: str, directory: Path | None = None) -> provided.Provided:
        return provided.find_provided(**{**dict.fromkeys(provided.SETTINGS), option: directory or self.root})

    def assert_fails(self, option: str, message: str, directory: Path | None = None) -> None:
        with self.assertRaisesRegex(provided.ProvidedError, f"(?s){message}"):
            self.find(option, directory)

    def test_nothing(self) -> None:
        self.assertEqual(provided.find_provided(None, None, None), provided.Provided())
        self.assertEqual(provided.Provided().include_dirs, {})

    def test_an_installation_and_an_unpacked_wheel(self) -> None:
        for prefix in ("installed/", "wheel/nvidia/nccl/"):
            self.write(f"{prefix}include/nccl.h", text=NCCL.format(30))
            self.write(f"{prefix}include/nccl_device.h")
            found = self.find("nccl", self.root / prefix.split("/")[0])
            self.assertEqual(found.include_dirs, {"nccl": self.root / prefix / "include"})
        for prefix in ("torch/", "site/torch/"):
            self.write(*(f"{prefix}include/{header}" for header in TORCH))
            found = self.find("torch", self.root / prefix.split("/")[0])
            self.assertEqual(found.include_dirs, {"torch": self.root / prefix / "include"})

    def test_directories_that_are_not_there(self) -> None:
        for option in provided.SETTINGS:
            message = f"FLASHINFER_{option.upper()}=.*/no.*expected: .*found: +no such directory.*To do: .*leave the setting out"
            self.assert_fails(option, message, self.root / "no")

    def test_directories_that_lack_a_header(self) -> None:
        self.write("include/nccl.h", text=NCCL.format(30))
        self.assert_fails(
            "nccl", r"expected: nccl\.h, nccl_device\.h in include.*found: +no nccl_device\.h in .*2\.30\.7"
        )

    def test_a_torch_without_cuda(self) -> None:
        self.write(*(f"include/{header}" for header in TORCH[:-1]))
        self.assert_fails("torch", r"found: +no c10/cuda/impl/cuda_cmake_macros\.h in .*that was built with CUDA")

    def test_another_nccl(self) -> None:
        self.write("include/nccl_device.h")
        for text, version in ((NCCL.format(28), r"2\.28\.7"), ("", r"\?\.\?\.\?")):
            self.write("include/nccl.h", text=text)
            self.assert_fails("nccl", rf"expected: NCCL 2\.30\.7.*found: +NCCL {version}, by .*nccl\.h.*To do: ")

    def test_headers_of_others_are_left_alone(self) -> None:
        self.write("in/nccl.h", "in/nccl_device/a/b.h", "in/stdio.h", "in/sys/types.h", text="x")
        provided.copy_headers("nccl", self.root / "in", self.root / "out")
        copied = sorted(path.relative_to(self.root / "out") for path in (self.root / "out").rglob("*.h"))
        self.assertEqual(copied, [Path("nccl.h"), Path("nccl_device/a/b.h")])
        before = provided.digest("nccl", self.root / "in")
        self.assertEqual(before, provided.digest("nccl", self.root / "out"))
        self.write("in/stdio.h", text="y")
        self.assertEqual(before, provided.digest("nccl", self.root / "in"))
        self.write("in/nccl_device/a/b.h", text="y")
        self.assertNotEqual(before, provided.digest("nccl", self.root / "in"))


if __name__ == "__main__":
    unittest.main()
