"""smwheel's version is in two files, since MODULE.bazel can't load another."""

import re
import unittest
from pathlib import Path


class VersionTest(unittest.TestCase):
    def test_both_files_agree(self) -> None:
        module = re.search(r'^    version = "(.+)",$', Path("MODULE.bazel").read_text(), re.MULTILINE)
        constant = re.search(r'^VERSION = "(.+)"$', Path("version.bzl").read_text(), re.MULTILINE)
        assert module and constant
        self.assertEqual(module[1], constant[1])


if __name__ == "__main__":
    unittest.main()
