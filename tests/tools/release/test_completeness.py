"""Unit tests of the check that stops a release: every message is read, and nothing is written."""

import contextlib
import hashlib
import io
import json
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import completeness
from wheel_set import MatrixError, Wheel, read_matrix

LIMIT = 2147483648
FIRST, SECOND = "jit-cache-cu130-aarch64-sm9x", "jit-cache-cu130-x86_64-sm9x"


def entry(cpu: str) -> dict[str, object]:
    """A wheel as //wheels:matrix.json has it, with a field that nobody reads."""
    return {
        "name": f"cu130_{cpu}_sm9x",
        "budget": 1,
        "cpu": cpu,
        "cuda_label": "cu130",
        "cuda_version": "13.0",
        "devices": ["9.0"],
        "distribution": "Some.jit-cache",
        "family": "sm9x",
        "fatbin_compression": "size",
        "minimum_driver": "580",
        "sm_targets": ["9.0a"],
        "tag": f"cp39-abi3-manylinux_2_28_{cpu}",
        "version": "1.2+cu130.sm9x",
    }


def content(*cpus: str) -> dict[str, object]:
    """A resolved matrix with a wheel for each CPU."""
    return {"asset_limit": LIMIT, "cubin_groups": [], "host_groups": [], "wheels": [entry(cpu) for cpu in cpus]}


def file_name(cpu: str) -> str:
    return f"some_jit_cache-1.2+cu130.sm9x-cp39-abi3-manylinux_2_28_{cpu}.whl"


def make_wheel(path: Path, version: str = "1.2+cu130.sm9x", dist_info: str = "some_jit_cache-1.2+cu130.sm9x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("a.so", path.name * 100)
        wheel.writestr(f"{dist_info}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: a\nVersion: {version}\n\nText")


class CompletenessTest(unittest.TestCase):
    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.matrix = self.root / "matrix.json"
        self.matrix.write_text(json.dumps(content("aarch64", "x86_64")))
        self.artifacts = self.root / "artifacts"
        self.first = self.artifacts / FIRST / file_name("aarch64")
        self.second = self.artifacts / SECOND / file_name("x86_64")
        self.sums = self.root / "SHA256SUMS"
        make_wheel(self.first)
        make_wheel(self.second)

    def run_main(self) -> tuple[int, str]:
        """The exit status, and what was said on stderr."""
        arguments = ["--matrix", self.matrix, "--artifacts", self.artifacts, "--sha256sums", self.sums]
        said = io.StringIO()
        with (
            mock.patch("sys.argv", ["completeness.py", *map(str, arguments)]),
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            return completeness.main(), said.getvalue()

    def assert_fails(self, *words: str, problems: int = 1) -> None:
        """It fails with `words` in its messages and writes nothing."""
        before = sorted(self.root.rglob("*"))
        status, said = self.run_main()
        self.assertEqual(status, 1)
        for word in [*words, "expected:", "found:", "To do:", f"Problems: {problems}. Nothing may be released."]:
            self.assertIn(word, said)
        self.assertEqual(said.count("error:"), problems, said)
        self.assertEqual(sorted(self.root.rglob("*")), before)

    def test_a_full_set(self) -> None:
        self.assertEqual(self.run_main(), (0, ""))
        expected = [f"{hashlib.sha256(w.read_bytes()).hexdigest()}  {w.name}\n" for w in (self.first, self.second)]
        self.assertEqual(self.sums.read_text(), "".join(expected))

    def test_a_missing_artifact(self) -> None:
        self.second.unlink()
        self.second.parent.rmdir()
        self.assert_fails(
            f"artifact {SECOND} is missing.",
            f"{SECOND} with {file_name('x86_64')} in it",
            "found:    no such directory",
            "To do: run the job of cu130_x86_64_sm9x again",
        )

    def test_no_artifacts_at_all(self) -> None:
        self.artifacts = self.root / "absent"
        self.assert_fails(f"artifact {FIRST} is missing.", f"artifact {SECOND} is missing.", problems=2)

    def test_a_file_in_place_of_an_artifact(self) -> None:
        self.second.unlink()
        self.second.parent.rmdir()
        self.second.parent.touch()
        self.assert_fails(f"artifact {SECOND} is missing.", "found:    a file of that name")

    def test_an_artifact_that_the_matrix_does_not_know(self) -> None:
        make_wheel(self.artifacts / "jit-cache-cu999-x86_64-sm9x" / "a.whl")
        (self.artifacts / "stray.whl").touch()
        self.assert_fails(
            "artifact jit-cache-cu999-x86_64-sm9x is not of the matrix.",
            "artifact stray.whl is not of the matrix.",
            "the 2 artifacts of the matrix and nothing else",
            "docs/release.md",
            problems=2,
        )

    def test_a_wrong_file_name(self) -> None:
        self.first.rename(self.first.with_name("some_jit_cache-1.3-cp39-abi3-manylinux_2_28_aarch64.whl"))
        self.assert_fails(
            f"artifact {FIRST} holds a file of another name.",
            f"expected: {file_name('aarch64')}",
            "found:    some_jit_cache-1.3-cp39-abi3-manylinux_2_28_aarch64.whl",
            "from the same commit",
        )

    def test_two_files(self) -> None:
        make_wheel(self.first.with_name("another.whl"))
        self.assert_fails(f"artifact {FIRST} is not one file.", f"found:    another.whl, {file_name('aarch64')}")

    def test_an_empty_artifact(self) -> None:
        self.first.unlink()
        self.assert_fails(f"artifact {FIRST} is not one file.", "found:    nothing")

    def test_a_directory_in_an_artifact(self) -> None:
        self.first.unlink()
        self.first.mkdir()
        self.assert_fails(f"artifact {FIRST} is not one file.", f"found:    {file_name('aarch64')}")

    def test_a_file_of_the_limits_size(self) -> None:
        """The limit itself is too large. The file is sparse, and so no zip either: both are said."""
        with open(self.first, "r+b") as file:
            file.truncate(LIMIT)
        self.assert_fails(
            f"{file_name('aarch64')} is too large for a release asset.",
            f"expected: under {LIMIT} bytes",
            f"found:    {LIMIT} bytes, 1 too many",
            "ship fewer modules",
            "can't be read as a zip",
            problems=2,
        )

    def test_a_truncated_wheel(self) -> None:
        size = self.first.stat().st_size - 30
        with open(self.first, "r+b") as file:
            file.truncate(size)
        self.assert_fails(
            f"artifact {FIRST}: {file_name('aarch64')} can't be read as a zip.",
            "expected: a whole wheel",
            f"found:    {size} bytes; ",
            "cut short or damaged",
        )

    def test_metadata_of_another_version(self) -> None:
        make_wheel(self.first, version="1.2+cu130.sm10x")
        self.assert_fails(
            f"artifact {FIRST}: the METADATA of {file_name('aarch64')} is of another version than its name.",
            "expected: Version: 1.2+cu130.sm9x",
            "found:    Version: 1.2+cu130.sm10x",
            "do not release this file",
        )

    def test_no_metadata(self) -> None:
        make_wheel(self.first, dist_info="some_jit_cache-1.2")
        self.assert_fails(
            f"artifact {FIRST}: {file_name('aarch64')} has no METADATA where its name says.",
            "expected: some_jit_cache-1.2+cu130.sm9x.dist-info/METADATA",
        )

    def test_all_problems_are_reported(self) -> None:
        self.first.unlink()
        make_wheel(self.second, version="9")
        (self.artifacts / "stray").mkdir()
        self.assert_fails("not one file", "of another version", "stray is not of the matrix", problems=3)

    def test_sums_of_an_earlier_run_stay(self) -> None:
        self.sums.write_text("old")
        self.first.unlink()
        self.assert_fails("not one file")
        self.assertEqual(self.sums.read_text(), "old")

    def test_no_matrix(self) -> None:
        self.matrix.write_text("{}")
        status, said = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("error: " + str(self.matrix), said)
        self.assertFalse(self.sums.exists())


class MatrixTest(unittest.TestCase):
    def read(self, text: str) -> tuple[Wheel, ...]:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "matrix.json")
            path.write_text(text)
            return read_matrix(path).wheels

    def assert_refused(self, text: str, found: str) -> None:
        with self.assertRaises(MatrixError) as caught:
            self.read(text)
        for words in ("matrix.json is not the resolved matrix", f"found:    {found}", "//wheels:matrix.json"):
            self.assertIn(words, str(caught.exception))

    def test_names(self) -> None:
        [wheel] = self.read(json.dumps(content("x86_64")))
        self.assertEqual(wheel.artifact, SECOND)
        self.assertEqual(wheel.file_name, file_name("x86_64"))

    def test_not_a_matrix(self) -> None:
        self.assert_refused("", "JSONDecodeError")
        self.assert_refused("[]", "TypeError")
        self.assert_refused('{"asset_limit": 1}', "KeyError('wheels')")
        self.assert_refused('{"asset_limit": 1, "wheels": [{}]}', "KeyError('name')")
        self.assert_refused(
            json.dumps({**content("x86_64"), "cubin_groups": [{"name": "cu130_sm_80"}]}), "KeyError('cuda_label')"
        )

    def test_no_wheels(self) -> None:
        self.assert_refused(json.dumps(content()), "no wheels")

    def test_two_wheels_of_one_name(self) -> None:
        text = json.dumps({**content(), "wheels": [entry("x86_64"), {**entry("x86_64"), "name": "other"}]})
        self.assert_refused(text, f"more than one wheel with {SECOND}, {file_name('x86_64')}")

    def test_no_such_file(self) -> None:
        with self.assertRaisesRegex(MatrixError, "FileNotFoundError"):
            read_matrix(Path("absent.json"))


if __name__ == "__main__":
    unittest.main()
