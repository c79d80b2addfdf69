"""The modules that the importer finds are upstream's, name by name, and each that can't be built has its reason.

Works for every profile: a module that is not in it is only compared by name. tests/kernels/flashinfer/refresh writes the
golden files.
"""

from __future__ import annotations

import json
import unittest
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
GOLDEN = sorted((HERE / "golden").glob("*.txt"))


def read(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return dict(line.split("\t") for line in lines)


class GoldenTest(unittest.TestCase):
    def test_every_label_has_one(self) -> None:
        matrix = json.loads((HERE.parents[2] / "wheels" / "matrix.json").read_text(encoding="utf-8"))
        self.assertEqual([path.stem for path in GOLDEN], sorted({wheel["cuda_label"] for wheel in matrix["wheels"]}))

    def test_imported_modules(self) -> None:
        for golden in GOLDEN:
            with self.subTest(golden.stem):
                expected = read(golden)
                found = read(HERE.parents[2] / "kernels" / f"modules.{golden.name}")
                self.assertEqual(sorted(found), sorted(expected))
                differing = {
                    name: (status, found[name])
                    for name, status in expected.items()
                    if found[name] != status and not (status == "built" and found[name].startswith("not in profile "))
                }
                self.assertEqual(differing, {})

    def test_numbers(self) -> None:
        """Upstream has 1532 modules for cu130 and 1576 for cu134; seven more where it finds NCCL."""
        for label, total in (("cu128", 855), ("cu129", 1531), ("cu130", 1532), ("cu134", 1576)):
            reasons = Counter(read(HERE / "golden" / f"{label}.txt").values())
            nccl_only = sum(reasons[r] for r in reasons if r.startswith("needs NCCL"))
            self.assertEqual(sum(reasons.values()) - nccl_only, total)
            self.assertEqual(nccl_only, 7)
        self.assertFalse([r for r in reasons if "raised" in r])


if __name__ == "__main__":
    unittest.main()
