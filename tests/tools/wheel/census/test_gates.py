"""The gates of a wheel's build, each failing for the right reason: on real modules and wheels that are tampered with."""

import contextlib
import dataclasses
import io
import json
import os
import struct
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import elf_gate
import module_check
import samples
import size_report
import wheel_check
from elf import Elf
from fatbin import fatbins
from samples import SM_TARGETS
from wheel_member import load_deflate

TUS = [f"tests/tools/wheel/census/{name}.cu" for name in ("stored", "lz4", "zstd")]
IMAGES = [{"tu": tu, "sm_target": sm} for tu in TUS for sm in SM_TARGETS]


def module_check_says(data: bytes, images: list[dict[str, str]], *options: str) -> tuple[int, str, Any]:
    """Runs module_check.py: exit status, what it says, what it measured."""
    with tempfile.TemporaryDirectory() as directory:
        module, listing, facts = (Path(directory, name) for name in ("m.so", "images.json", "facts.json"))
        module.write_bytes(data)
        listing.write_text(json.dumps(images))
        arguments = [
            "module_check.py",
            *("--module", str(module), "--name", "kernels", "--images", str(listing), "--facts", str(facts)),
            *(
                "--cpu",
                "x86_64",
                "--cuda-version",
                "13.0",
                "--tag",
                "cp39-abi3-manylinux_2_28_x86_64",
                "--zstd",
                samples.LIBZSTD,
                "--deflate",
                os.environ["DEFLATE"],
            ),
            *options,
        ]
        said = io.StringIO()
        with mock.patch("sys.argv", arguments), contextlib.redirect_stderr(said):
            status = module_check.main()
        return status, said.getvalue(), json.loads(facts.read_text()) if facts.exists() else None


def without_last_image(data: bytes) -> bytes:
    """A module whose first fatbin ends before its last image."""
    section = Elf(data, "m.so").section(".nv_fatbin")
    assert section
    last = fatbins(Elf(data, "m.so"))[0].images[-1].bytes
    size = struct.unpack_from("<Q", data, section.offset + 8)[0]
    end = section.offset + 16 + size
    return (
        data[: section.offset + 8]
        + struct.pack("<Q", size - last)
        + data[section.offset + 16 : end - last]
        + bytes(last)
        + data[end:]
    )


def without_a_kernel(data: bytes) -> bytes:
    """A module in whose first fatbin, which is stored, the cubin for 12.0f has one kernel less: a device function now."""
    image = next(i for i in fatbins(Elf(data, "m.so"))[0].images if i.sm == "12.0f")
    payload = bytes(image.payload)
    start = data.index(payload)
    cubin = Elf(payload, "cubin")
    table = cubin.section(".symtab")
    assert table
    for position in range(table.offset, table.offset + table.size, 24):
        # st_info of a global function, st_other of a kernel.
        if payload[position + 4] == 0x12 and payload[position + 5] == 0x10:
            return data[: start + position + 5] + b"\0" + data[start + position + 6 :]
    raise AssertionError("the cubin has no kernel")


class ModuleTest(unittest.TestCase):
    DATA = samples.real_modules()["cu130"]

    def refused(self, data: bytes, images: list[dict[str, str]], *words: str) -> None:
        status, said, facts = module_check_says(data, images)
        self.assertEqual((status, facts), (1, None))
        for word in (*words, "To do:"):
            self.assertIn(word, said)

    def test_as_it_was_built(self) -> None:
        status, said, facts = module_check_says(self.DATA, IMAGES)
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(list(facts["sm_targets"]), SM_TARGETS)
        images = sum(entry["bytes"] for entry in facts["sm_targets"].values())
        self.assertEqual(facts["host"]["bytes"] + images, len(self.DATA))
        self.assertEqual({entry["kernels"] for entry in facts["sm_targets"].values()}, {6})
        self.assertEqual(len(facts["kernels"][TUS[0]]["8.0"]), 3)

    def test_embedded_cubins(self) -> None:
        """The size, the kernels and the SM target of what lies outside of fatbins are in the facts."""
        content = samples.cubin("k")
        elf = Elf(samples.module_with_cubins(body=("90", content)), "m.so")
        deflate = load_deflate(os.environ["DEFLATE"])
        facts, taken = module_check.measure(elf, samples.ZSTD, deflate)
        self.assertEqual(facts["sm_targets"]["9.0"]["bytes"], len(content))
        self.assertEqual(facts["sm_targets"]["9.0"]["kernels"], 1)
        self.assertEqual(facts["host"]["bytes"], len(elf.data) - len(content))
        self.assertLess(facts["host"]["weight"], len(deflate.deflate_compress(bytes(elf.data), 1)))
        self.assertEqual(module_check.kernels({}, taken), {"body": {"9.0": ["k"]}})

    def test_an_embedded_cubin_that_is_not_there(self) -> None:
        status, said, _ = module_check_says(self.DATA, IMAGES, "--embedded", "body 10.0a run")
        self.assertEqual(status, 1)
        self.assertIn("kernels, embedded cubin body is not what was built", said)
        self.assertIn("expected: SASS for 10.0a with kernel run", said)

    def test_a_dropped_cubin(self) -> None:
        self.refused(
            without_last_image(self.DATA),
            IMAGES,
            "kernels, tests/tools/wheel/census/stored.cu",
            "has no image for: SASS 12.1a",
        )

    def test_a_foreign_cubin(self) -> None:
        images = [i for i in IMAGES if (i["tu"], i["sm_target"]) != (TUS[1], "9.0a")]
        self.refused(self.DATA, images, "lz4.cu", "has an image that it was not built with: SASS 9.0a")

    def test_a_kernel_missing_from_one_target(self) -> None:
        self.refused(
            without_a_kernel(self.DATA), IMAGES, "stored.cu", "SASS for 12.0f has fewer kernels", "expected: 3 kernels"
        )

    def test_a_kernel_missing_for_a_reason(self) -> None:
        status, said, _ = module_check_says(
            without_a_kernel(self.DATA), IMAGES, "--fewer-kernels", f"{TUS[0]} 12.0f=a reason"
        )
        self.assertEqual((status, said), (0, ""))

    def test_another_cuda_version(self) -> None:
        self.refused(
            self.DATA.replace(b"libcudart.so.13\0", b"libcudart.so.12\0"), IMAGES,
            "kernels is linked to a library of another CUDA version", "libcudart.so.13, of CUDA 13.0", "libcudart.so.12",
        )  # fmt: skip

    def test_a_symbol_that_is_too_new(self) -> None:
        name, version = b"GLIBC_2.2.5\0", b"GLIBC_2.34\0\0"
        assert name in self.DATA
        self.refused(
            self.DATA.replace(name, version),
            IMAGES,
            "needs symbols that manylinux_2_28_x86_64 does not have",
            "GLIBC_2.34",
        )

    def test_a_truncated_module(self) -> None:
        self.assertEqual(module_check_says(self.DATA[: len(self.DATA) // 2], IMAGES)[0], 1)


class WheelTest(unittest.TestCase):
    [WHEEL] = samples.HERE.glob("*+cu130-*.whl")

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        with zipfile.ZipFile(self.WHEEL) as wheel:
            self.manifest = json.loads(wheel.read("census/manifest.json"))
        with zipfile.ZipFile(self.WHEEL) as wheel:
            elf = elf_gate.read(wheel.read("census/jit_cache/kernels/kernels.so"), "kernels")
        self.facts: dict[str, Any] = {
            "kernels": {"sha256": self.manifest["modules"]["kernels"]["sha256"], "elf": dataclasses.asdict(elf)}
        }
        self.spec = {
            "asset_limit": 2147483648, "budget": 1000000, "devices": ["8.0", "9.0", "12.1"], "growth_limit": "5",
            "modules_directory": "jit_cache", "name": "cu130_x86_64", "package": "census",
            "tag": "cp39-abi3-manylinux_2_28_x86_64",
        }  # fmt: skip

    def problems(
        self,
        wheel: Path | None = None,
        baseline: Any = None,
        supports: tuple[str, ...] | list[str] = tuple(SM_TARGETS),
        **spec: Any,
    ) -> str:
        path = None
        if baseline:
            path = self.directory / "baseline.json"
            path.write_text(size_report.dump(baseline))
        return "\n".join(
            wheel_check.check(wheel or self.WHEEL, self.spec | spec, {"kernels": list(supports)}, self.facts, path)
        )

    def assert_says(self, said: str, *words: str) -> None:
        for word in (*words, "To do:"):
            self.assertIn(word, said)

    def test_as_it_was_built(self) -> None:
        self.assertEqual(self.problems(), "")
        self.assertEqual(self.problems(baseline=size_report.report(self.WHEEL)), "")

    def test_exactly_the_limit_is_too_much(self) -> None:
        size = self.WHEEL.stat().st_size
        self.assertEqual(self.problems(asset_limit=size + 1), "")
        self.assert_says(
            self.problems(asset_limit=size),
            f"found:    {size} bytes",
            "a release asset is refused",
            "excess:   1 bytes",
        )
        said = wheel_check.check_size("w.whl", 2147483648, self.spec | {"budget": 1 << 40}, self.manifest)
        self.assert_says(said[0], "w.whl is too large", "found:    2147483648 bytes", "excess:   1 bytes")

    def test_over_its_budget(self) -> None:
        said = self.problems(budget=1000)
        self.assert_says(said, "under 1000 bytes, its budget in wheels/matrix.bzl", "The ten largest")
        rows = [line.split() for line in said.splitlines()[-6:]]
        self.assertEqual({row[1] for row in rows}, {"kernels"})
        self.assertEqual({row[2] for row in rows}, {"host", *SM_TARGETS})

    def test_it_has_outgrown_its_baseline(self) -> None:
        """By the target that the baseline lacks."""
        before = size_report.report(self.WHEEL)
        compressed, installed = before["modules"]["kernels"].pop("12.1a")
        before["bytes"] -= compressed
        before["installed_bytes"] -= installed
        said = self.problems(baseline=before)
        percent = f"{compressed / before['bytes'] * 100:+.1f} %"
        self.assert_says(
            said, "has grown", percent, "expected: at most +5 %", "SM target 12.1a was added",
            "python3 tools/release/baselines.py cu130_x86_64",
        )  # fmt: skip
        self.assertEqual(self.problems(baseline=before, growth_limit="1000"), "")

    def test_a_promise_that_no_image_keeps(self) -> None:
        """An image for 10.0a where 10.7 is promised."""
        self.assert_says(
            self.problems(devices=["10.7"], supports=[*SM_TARGETS, "10.0f"]),
            "promises GPUs", "none of which runs on compute capability 10.7", "it can be built for 10.0f",
        )  # fmt: skip

    def test_a_module_for_other_devices_need_not_run_there(self) -> None:
        self.assertEqual(self.problems(devices=["10.7"]), "")

    def test_a_module_that_was_not_checked(self) -> None:
        self.facts["kernels"]["sha256"] = "0" * 64
        self.assert_says(self.problems(), "kernels.so is not the module that was checked", "0" * 64)

    def test_a_module_too_many(self) -> None:
        self.facts = {}
        self.assert_says(self.problems(supports=[]), "kernels.so is not the module", "expected: no such file")

    def test_a_truncated_wheel(self) -> None:
        path = self.directory / self.WHEEL.name
        path.write_bytes(self.WHEEL.read_bytes()[:-100])
        self.assert_says(self.problems(path), self.WHEEL.name, "the end of the file")

    def test_another_version_in_metadata_than_in_the_name(self) -> None:
        path = self.directory / self.WHEEL.name.replace("1.0+cu130", "1.1+cu130")
        path.write_bytes(self.WHEEL.read_bytes())
        self.assert_says(
            self.problems(path), "expected: census-1.1+cu130.dist-info", "found:    census-1.0+cu130.dist-info"
        )

    def test_a_tag_that_is_not_deserved(self) -> None:
        self.facts["kernels"]["elf"]["versions"]["GLIBC"] = "2.34"
        self.assert_says(
            self.problems(), "the platform tag that its modules deserve", "manylinux_2_34_x86_64", "GLIBC_2.34"
        )

    def test_no_report_as_baseline(self) -> None:
        path = self.directory / "baseline.json"
        path.write_text("{}")
        said = "\n".join(wheel_check.check(self.WHEEL, self.spec, {"kernels": SM_TARGETS}, self.facts, path))
        self.assert_says(said, "baseline.json: no size report can be made of it")


if __name__ == "__main__":
    unittest.main()
