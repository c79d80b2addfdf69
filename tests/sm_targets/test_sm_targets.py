"""The Python algebra of SM targets, on the cases that the Starlark one is tested on."""

import json
import unittest
from pathlib import Path

from sm_targets import DEVICES, parse, runs_on

CASES = json.loads(Path("tests/sm_targets/cases.json").read_text())


class SmTargetsTest(unittest.TestCase):
    def test_names(self) -> None:
        for text, name in CASES["names"].items():
            with self.subTest(text=text):
                self.assertEqual(str(parse(text)), name)

    def test_other_texts_are_refused(self) -> None:
        for text in CASES["invalid"]:
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, "expected an SM target such as 8.0"):
                parse(text)

    def test_order(self) -> None:
        self.assertEqual(sorted(reversed(CASES["sorted"]), key=parse), CASES["sorted"])

    def test_runs_on(self) -> None:
        for image, device, expected in CASES["runs_on"]:
            with self.subTest(image=image, device=device):
                self.assertIs(runs_on(image, device), expected)

    def test_devices_are_in_order(self) -> None:
        self.assertEqual(sorted(DEVICES, key=parse), DEVICES)


if __name__ == "__main__":
    unittest.main()
