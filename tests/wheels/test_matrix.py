"""The resolved matrix is the golden one, so that a change of one cell shows that the others stayed as they were."""

import unittest
from pathlib import Path

REFRESH = "./bazelw build //wheels:matrix.json && cp bazel-bin/wheels/matrix.json tests/wheels/matrix.golden.json"


class MatrixTest(unittest.TestCase):
    maxDiff = None

    def test_is_the_golden_one(self) -> None:
        golden = Path("tests/wheels/matrix.golden.json").read_text()
        self.assertEqual(golden, Path("wheels/matrix.json").read_text(), f"\nIf the change is meant: {REFRESH}")


if __name__ == "__main__":
    unittest.main()
