"""Unit tests of packing and checking wheels."""

import io
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path
from typing import Any

import wheel_pack
from sm_targets import DEVICES
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
    def test_devices_that_every_module_that_can_runs_on(self) -> None:
        modules: dict[str, Any] = {
            "a": {"sm_targets": {"8.0": 5, "12.0f": 5}},
            "b": {"sm_targets": {"8.0": 5}},
            "only_rubin": {"sm_targets": {}},
            "host": {"sm_targets": {}},
        }
        sm8x, sm12x = ["8.0", "8.6", "8.9"], ["12.0", "12.1"]
        supports = {"a": [*sm8x, "9.0", *sm12x], "b": [*sm8x, *sm12x], "only_rubin": ["10.7"], "host": []}
        covered = [d for d in DEVICES if wheel_pack.covers(d, supports, modules)]
        # b could run on 12.0 and does not; no module of 9.0 is in the wheel; only_rubin is of no matter for 8.x.
        self.assertEqual(covered, ["8.0", "8.6", "8.9"])

    def test_parts_of_a_module_add_up(self) -> None:
        entry = {"bytes": 100, "compressed_bytes": 31, "sha256": "ab"}
        facts = {
            "host": {"bytes": 40, "weight": 10},
            "sm_targets": {
                "12.0f": {"bytes": 35, "kernels": 3, "weight": 30},
                "8.0": {"bytes": 25, "kernels": 3, "weight": 20},
            },
        }
        described = wheel_pack.describe_module(entry, facts)
        self.assertEqual(
            described["sm_targets"],
            {
                "8.0": {"bytes": 25, "compressed_bytes": 10, "kernels": 3},
                "12.0f": {"bytes": 35, "compressed_bytes": 16, "kernels": 3},
            },
        )
        self.assertEqual(list(described["sm_targets"]), ["8.0", "12.0f"])
        self.assertEqual(described["host"], {"bytes": 40, "compressed_bytes": 5})

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


if __name__ == "__main__":
    unittest.main()
