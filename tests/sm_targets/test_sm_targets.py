"""The Python algebra of SM targets, on the cases that the Starlark one is tested on."""

import json
import unittest
from pathlib import Path

from sm_targets import DEVICES, family_members, image_for, parse, runs_on, toolkit_supports

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

    def test_image_for(self) -> None:
        for sm_targets, device, expected in CASES["image_for"]:
            with self.subTest(sm_targets=sm_targets, device=device):
                self.assertEqual(image_for(sm_targets, device), expected)

    def test_toolkit_supports(self) -> None:
        for cuda, sm, expected in CASES["toolkit_supports"]:
            with self.subTest(cuda=cuda, sm=sm):
                self.assertIs(toolkit_supports(cuda, sm), expected)

    def test_toolkits(self) -> None:
        every = [c + suffix for c in CASES["compute_capabilities"] for suffix in ("", "a", "f")]
        for cuda, supported in CASES["toolkits"].items():
            with self.subTest(cuda=cuda):
                self.assertEqual([sm for sm in every if toolkit_supports(cuda, sm)], supported)

    def test_family_members(self) -> None:
        for majors, base, sm_targets, expected in CASES["family_members"]:
            with self.subTest(sm_targets=sm_targets):
                self.assertEqual(family_members(majors, base, sm_targets), expected)

    def test_devices_are_in_order(self) -> None:
        self.assertEqual(sorted(DEVICES, key=parse), DEVICES)
        self.assertEqual(DEVICES, CASES["devices"])


if __name__ == "__main__":
    unittest.main()
