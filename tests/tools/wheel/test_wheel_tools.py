"""Unit tests of packing and checking wheels."""

import io
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path
from typing import Any

import wheel_check
import wheel_pack
from zip_writer import Member, write_zip


def member(name: str, data: bytes, mode: int = 0o644) -> Member:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return Member(name, compressor.compress(data) + compressor.flush(), zlib.crc32(data), len(data), mode)


class ZipWriterTest(unittest.TestCase):
    def write(self, members: list[Member]) -> bytes:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "a.zip")
            write_zip(path, members)
            return path.read_bytes()

    def test_another_reader_reads_it(self) -> None:
        data = self.write([member("a/b.so", b"x" * 1000, 0o755), member("a/ü.py", b"")])
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.namelist(), ["a/b.so", "a/ü.py"])
            self.assertEqual(archive.read("a/b.so"), b"x" * 1000)
            info = archive.getinfo("a/b.so")
            self.assertEqual(info.external_attr >> 16, 0o100755)
            self.assertEqual(info.date_time, (1980, 1, 1, 0, 0, 0))

    def test_same_members_same_bytes(self) -> None:
        members = [member("a", b"1"), member("b", b"2")]
        self.assertEqual(self.write(members), self.write(members))


class PackTest(unittest.TestCase):
    def test_manifest_lists_devices_that_every_module_runs_on(self) -> None:
        spec = dict.fromkeys(
            ("distribution", "version", "cuda_version", "minimum_driver", "cpu", "sm_family", "sm_targets"), ""
        )
        modules: dict[str, Any] = {
            "a": {"sm_targets": {"8.0": 5, "12.0f": 5}},
            "b": {"sm_targets": {"8.0": 5}},
            "host": {"sm_targets": {}},
        }
        self.assertEqual(wheel_pack.describe_wheel(spec, modules)["devices"], ["8.0", "8.6", "8.9"])

    def test_module_sums_its_images(self) -> None:
        facts = {"bytes": 9, "compressed_bytes": 7, "sha256": "ab"}
        images = [
            {"tu": "x", "sm_target": "8.0", "fatbin_bytes": 3},
            {"tu": "y", "sm_target": "8.0", "fatbin_bytes": 4},
            {"tu": "x", "sm_target": "9.0a", "fatbin_bytes": 1},
        ]
        self.assertEqual(wheel_pack.describe_module(facts, images)["sm_targets"], {"8.0": 7, "9.0a": 1})

    def test_compressed_tag_sets_are_written_out(self) -> None:
        self.assertIn(
            "Tag: cp39-abi3-a\nTag: cp39-abi3-b\n",
            wheel_pack.wheel_file({"tag": "cp39-abi3-a.b", "generator": "smwheel 1"}),
        )

    def test_record(self) -> None:
        self.assertEqual(
            wheel_pack.record([("a,b.py", "00" * 32, 3)], "x.dist-info/RECORD"),
            '"a,b.py",sha256=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA,3\nx.dist-info/RECORD,,\n',
        )


class CheckTest(unittest.TestCase):
    MANIFEST = {
        "modules": {f"m{i}": {"compressed_bytes": 100 * i, "sm_targets": {"8.0": 3, "12.0f": 1}} for i in range(1, 9)}
    }

    def test_under_the_limit(self) -> None:
        self.assertIsNone(wheel_check.check_size("w.whl", 99, [("the limit", 100, "")], self.MANIFEST))

    def test_exactly_the_limit_is_too_much(self) -> None:
        message = wheel_check.check_size("w.whl", 2147483648, [("the limit", 2147483648, "drop some")], self.MANIFEST)
        assert message is not None
        for words in ("w.whl is too large", "2147483648 bytes", "the limit", "excess:   1 bytes", "drop some"):
            self.assertIn(words, message)

    def test_ten_largest_pairs_in_order(self) -> None:
        message = wheel_check.check_size("w.whl", 120, [("its budget", 100, "")], self.MANIFEST)
        assert message is not None
        rows = [tuple(line.split()) for line in message.splitlines()[-10:]]
        self.assertEqual(rows[0], ("600", "m8", "8.0"))
        self.assertEqual(len(rows), 10)
        self.assertEqual(rows, sorted(rows, key=lambda row: -int(row[0])))
        self.assertIn("+20.0 %", message)


class PromisesTest(unittest.TestCase):
    MANIFEST = {
        "modules": {
            "a": {"sm_targets": {"8.0": 1}},
            "b": {"sm_targets": {"8.0": 1, "12.0f": 1}},
            "c": {"sm_targets": {}},
        }
    }

    def check(self, supports: dict[str, list[str]]) -> str | None:
        return wheel_check.check_promises("w.whl", ["12.0", "12.1"], supports, self.MANIFEST)

    def test_a_module_that_could_run_there_must(self) -> None:
        message = self.check({"a": ["8.0", "12.0f"], "b": ["8.0", "12.0f"]})
        assert message is not None
        for words in (
            "w.whl promises",
            "a has images for 8.0",
            "compute capability 12.1",
            "can be built for 12.0f",
            "To do:",
        ):
            self.assertIn(words, message)
        self.assertNotIn("b has images", message)

    def test_a_module_for_other_devices_need_not(self) -> None:
        self.assertIsNone(self.check({"a": ["8.0", "9.0a"], "b": ["8.0", "12.0f"], "c": []}))


if __name__ == "__main__":
    unittest.main()
