"""Unit tests of fetching pinned wheels, with the real pip and an index that is a directory of wheels."""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import pypi
from pypi import FetchError


def make_wheel(directory: Path, name: str = "thing", version: str = "1.0") -> Path:
    """A small wheel that pip accepts, with one program in bin/."""
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("nvidia/bin/tool", "#!/bin/sh\n")
        wheel.writestr("nvidia/include/a.h", "int a;\n")
        wheel.writestr("nvidia/lib/big.a", "x")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


class FetchTest(unittest.TestCase):
    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.index = self.root / "index"
        self.index.mkdir()
        (self.root / "home").mkdir()
        self.wheel = make_wheel(self.index)
        self.lock = self.root / "lock.txt"
        self.dest = self.root / "dest"
        self.pin(hashlib.sha256(self.wheel.read_bytes()).hexdigest())
        previous = dict(os.environ)
        stack.callback(os.environ.update, previous)
        stack.callback(os.environ.clear)
        # No index but the directory: pip's own configuration is left out.
        os.environ.update(
            PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.index), HOME=str(self.root / "home")
        )

    def pin(self, digest: str) -> None:
        self.lock.write_text(f"# a comment\nthing==1.0 --hash=sha256:{digest}\n")

    def fetch(self, package: str = "thing", keep: list[str] | None = None) -> None:
        pypi.fetch(self.lock, [package], [], self.dest, "nvidia/", keep or [])

    def failure(self, package: str = "thing", keep: list[str] | None = None) -> str:
        with self.assertRaises(FetchError) as caught:
            self.fetch(package, keep)
        self.assertFalse(self.dest.exists(), "a failed fetch leaves nothing")
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["home", "index", "lock.txt"])
        return str(caught.exception)

    def test_unpacks_what_is_kept_with_run_bits(self) -> None:
        self.fetch(keep=["bin/", "include/"])
        self.assertEqual(sorted(p.name for p in self.dest.iterdir()), ["bin", "include"])
        self.assertTrue(os.access(self.dest / "bin/tool", os.X_OK))
        self.assertFalse(os.access(self.dest / "include/a.h", os.X_OK))

    def test_hash_that_does_not_match(self) -> None:
        self.pin("0" * 64)
        message = self.failure()
        found = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        for words in (
            "thing 1.0",
            "not the pinned one",
            "expected sha256: " + "0" * 64,
            "found sha256:    " + found,
            "lock.txt",
            "do not use",
        ):
            self.assertIn(words, message)

    def test_package_that_the_index_has_not(self) -> None:
        self.wheel.unlink()
        message = self.failure()
        for words in (
            "thing 1.0 could not be fetched",
            "sources tried",
            str(self.index),
            "PIP_INDEX_URL",
            "PIP_FIND_LINKS",
        ):
            self.assertIn(words, message)

    def test_no_network(self) -> None:
        del os.environ["PIP_NO_INDEX"], os.environ["PIP_FIND_LINKS"]
        os.environ.update(PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0")
        message = self.failure()
        for words in ("thing 1.0 could not be fetched", "127.0.0.1:9", "check the network", "found (pip's own words)"):
            self.assertIn(words, message)

    def test_package_that_is_not_pinned(self) -> None:
        self.assertIn("other is not pinned in lock.txt, which has: thing", self.failure("other"))

    def test_wheel_without_the_wanted_files(self) -> None:
        self.assertIn("has no file below nvidia/ that starts with one of ['nvvm/']", self.failure(keep=["nvvm/"]))

    def test_line_that_is_no_pin(self) -> None:
        self.lock.write_text("thing==1.0\n")
        self.assertIn("lock.txt, line 1: expected 'NAME==VERSION --hash", self.failure())

    def test_lock_command_writes_what_fetch_accepts(self) -> None:
        self.pin("0" * 64)
        command = [sys.executable, "-B", pypi.__file__, "lock", "--lock", str(self.lock)]
        subprocess.run(command, check=True)
        self.fetch()
        self.assertTrue(self.lock.read_text().startswith("# a comment\n"))


if __name__ == "__main__":
    unittest.main()
