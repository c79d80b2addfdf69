"""smwheel's version is in three files: MODULE.bazel can't load another, and pip reads pyproject.toml."""

import re
import unittest
from pathlib import Path


class VersionTest(unittest.TestCase):
    def test_all_files_agree(self) -> None:
        module = re.search(r'^    version = "(.+)",$', Path("MODULE.bazel").read_text(), re.MULTILINE)
        constant = re.search(r'^VERSION = "(.+)"$', Path("version.bzl").read_text(), re.MULTILINE)
        project = re.search(r'^version = "(.+)"$', Path("python/pyproject.toml").read_text(), re.MULTILINE)
        assert module and constant and project
        self.assertEqual({module[1], project[1]}, {constant[1]})


if __name__ == "__main__":
    unittest.main()
