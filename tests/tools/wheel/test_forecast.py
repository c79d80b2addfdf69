"""Unit tests of forecasts: the plan and the BUILD file of an exact one, the arithmetic of an estimate."""

import io
import json
import random
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import forecast
from forecast import ForecastError, build_file, changed, estimate, known_cases, plan, sister, verdict
from size_report import Json, compare, dump


def report(modules: dict[str, dict[str, int]], wheel: str = "w.whl", other: int = 100) -> Json:
    """A report of a wheel with these compressed bytes; what is installed is three times as large."""
    rows = {name: {sm: [size, 3 * size] for sm, size in parts.items()} for name, parts in modules.items()}
    total = other + sum(size for parts in modules.values() for size in parts.values())
    return {
        "schema_version": 1,
        "wheel": wheel,
        "bytes": total,
        "installed_bytes": 3 * total,
        "cpu": "aarch64",
        "cuda_version": "13.4",
        "sm_family": "sm10x",
        "other": {"compressed_bytes": other, "installed_bytes": 3 * other},
        "modules": rows,
    }


class ChangedTest(unittest.TestCase):
    def test_in_ascending_order(self) -> None:
        self.assertEqual(changed("w", ["8.0", "10.0a"], ["12.0f", "9.0a"], ["8.0"]), ["9.0a", "10.0a", "12.0f"])

    def test_messages(self) -> None:
        for add, remove, words in (
            (["8.0"], [], "w can't get 8.0"),
            (["9.0a"], ["9.0a"], "w can't get 9.0a"),
            ([], ["9.0a"], "w can't lose 9.0a"),
            ([], ["8.0"], "w would have no SM target"),
            (["hopper"], [], "'hopper' is no SM target"),
        ):
            with self.subTest(words), self.assertRaises(ForecastError) as caught:
                changed("w", ["8.0"], add, remove)
            for text in (words, "expected: ", "found: ", "To do: "):
                self.assertIn(text, str(caught.exception))


def wheel(label: str, cpu: str, family: str, *sm_targets: str) -> Json:
    name, version = f"{label}_{cpu}_{family}", f"1.0+{label}.{family}"
    devices, targets = ["12.0"], list(sm_targets)
    return {
        "name": name, "cuda_label": label, "cpu": cpu, "devices": devices, "family": family, "sm_targets": targets,
        "version": version,
    }  # fmt: skip


MATRIX: Json = {
    "wheels": [
        wheel("cu130", "x86_64", "sm9x", "7.5", "8.0", "9.0a"),
        wheel("cu130", "x86_64", "sm12x", "8.0", "12.0f"),
        wheel("cu130", "aarch64", "sm12x", "8.0", "12.0f", "12.1a"),
        wheel("cu134", "x86_64", "sm10x", "8.0", "10.7a"),
    ]
}


class PlanTest(unittest.TestCase):
    def test_other_sm_targets(self) -> None:
        before, after = plan(MATRIX, "cu130_x86_64_sm12x", ["12.1a"], ["8.0"], monolithic=False)
        self.assertEqual(before, MATRIX["wheels"][1])
        self.assertEqual(after, {**before, "sm_targets": ["12.0f", "12.1a"]})

    def test_monolithic(self) -> None:
        """All families of the cell, not those of its other CPU, and named as a family of the matrix would be."""
        _, after = plan(MATRIX, "cu130_x86_64_sm12x", [], [], monolithic=True)
        self.assertEqual(after["sm_targets"], ["7.5", "8.0", "9.0a", "12.0f"])
        self.assertEqual(
            (after["name"], after["version"], after["family"]), ("cu130_x86_64_all", "1.0+cu130.all", "all")
        )
        _, after = plan(MATRIX, "cu130_x86_64_sm12x", ["12.1a"], ["7.5"], monolithic=True)
        self.assertEqual(after["sm_targets"], ["8.0", "9.0a", "12.0f", "12.1a"])

    def test_messages(self) -> None:
        for name, add, words in (
            ("cu130_sm12x", [], ("there is no wheel cu130_sm12x", "one of cu130_x86_64_sm9x, cu130_x86_64_sm12x")),
            (
                "cu130_x86_64_sm12x",
                ["10.7a"],
                ("no module of cu130 is built for 10.7a", "12.1a", "forecast.py estimate"),
            ),
        ):
            with self.subTest(name), self.assertRaises(ForecastError) as caught:
                plan(MATRIX, name, add, [], monolithic=False)
            for text in (*words, "expected: ", "found: ", "To do: "):
                self.assertIn(text, str(caught.exception))


DECLARATION = """\
# /somewhere/wheels/BUILD.bazel:26:13
py_wheel(
  name = "cu130_x86_64_sm12x",
  visibility = ["//visibility:public"],
  budget = "3145728",
  modules = select({"//kernels:all": ["//kernels:a", "//kernels:b"], "//conditions:default": []}) + select({"//kernels:only_a": ["//kernels:a"], "//conditions:default": []}),
  siblings = {"1.0+cu130.sm9x": ["9.0"]},
  sm_family = "sm12x",
  sm_targets = ["8.0", "12.0f"],
  summary = "Kernels for SM family sm12x",
  testonly = False,
  version = "1.0+cu130.sm12x",
)
# Rule cu130_x86_64_sm12x instantiated at (most recent call last):
"""


class BuildFileTest(unittest.TestCase):
    def test_only_what_names_the_targets_is_another(self) -> None:
        before, after = plan(MATRIX, "cu130_x86_64_sm12x", [], [], monolithic=True)
        self.assertEqual(
            build_file(DECLARATION, before, after),
            """\
load("//kernels/flashinfer:modules.bzl", "modules_for")
load("//wheels:defs.bzl", "py_wheel")

py_wheel(
    name = 'cu130_x86_64_all',
    visibility = ['//visibility:public'],
    budget = '3145728',
    siblings = {'1.0+cu130.sm9x': ['9.0'], '1.0+cu130.sm12x': ['12.0']},
    sm_family = 'all',
    sm_targets = ['7.5', '8.0', '9.0a', '12.0f'],
    summary = 'Kernels for SM family all',
    testonly = False,
    version = '1.0+cu130.all',
    modules = modules_for('cu130', ['7.5', '8.0', '9.0a', '12.0f']),
)
""",
        )


class SisterTest(unittest.TestCase):
    def test_choice(self) -> None:
        known = ["7.5", "8.0", "8.9", "9.0a", "10.0a", "10.0f", "10.3a", "12.0f"]
        for target, expected in (
            ("10.7a", "10.3a"), ("10.1a", "10.0a"), ("10.1f", "10.0f"), ("12.1a", "12.0f"), ("8.6", "8.9"),
            ("8.8", "8.9"), ("8.7", "8.9"), ("11.0a", "10.3a"), ("10.3a", "10.3a"), ("13.0", "12.0f"), ("7.0", "7.5"),
        ):  # fmt: skip
            self.assertEqual(sister(target, known), expected, target)

    def test_none(self) -> None:
        self.assertIsNone(sister("7.5", ["8.0", "9.0a"]))
        self.assertIsNone(sister("8.0", []))

    def test_ptx_stands_in_for_ptx(self) -> None:
        self.assertEqual(sister("compute_100", ["compute_90", "10.0a"]), "compute_90")
        self.assertEqual(sister("10.0a", ["compute_100", "9.0a"]), "9.0a")


class EstimateTest(unittest.TestCase):
    WHEEL = report(
        {
            "a": {"host": 10, "8.0": 500, "10.0a": 1000, "10.3a": 1020},
            "b": {"host": 10, "8.0": 100, "10.0a": 200},
            "old": {"host": 10, "8.0": 100},
        }
    )

    def test_modules_of_the_same_major_get_it(self) -> None:
        found = estimate([self.WHEEL], ["10.7a"])
        self.assertEqual(found.report["modules"]["a"]["10.7a"], [1020, 3060])
        self.assertEqual(found.report["modules"]["b"]["10.7a"], [200, 600])
        self.assertNotIn("10.7a", found.report["modules"]["old"])
        self.assertEqual(found.sisters, {"10.7a": {"10.3a": 1, "10.0a": 1}})
        self.assertEqual(found.added_bytes, 1220)
        self.assertEqual(found.report["bytes"], self.WHEEL["bytes"] + 1220)
        self.assertEqual(found.report["installed_bytes"], self.WHEEL["installed_bytes"] + 3660)
        text = forecast.describe_estimate(found)
        self.assertIn("10.7a is estimated from 10.0a (1 module) and 10.3a (1 module), in 2 modules", text)

    def test_a_new_major_takes_the_nearest_below(self) -> None:
        found = estimate([self.WHEEL], ["12.0f"])
        self.assertEqual(
            {n: rows["12.0f"][0] for n, rows in found.report["modules"].items()}, {"a": 1020, "b": 200, "old": 100}
        )

    def test_less(self) -> None:
        found = estimate([self.WHEEL], [], ["8.0"])
        self.assertEqual(found.report["bytes"], self.WHEEL["bytes"] - 700 - 10)
        self.assertNotIn("old", found.report["modules"])
        self.assertNotIn("error", forecast.describe_estimate(found))

    def test_another_report_that_has_it(self) -> None:
        """It is taken as it is, with the modules that the wheel does not have yet."""
        other = report({"a": {"host": 11, "12.1a": 333}, "new": {"host": 5, "12.1a": 50}}, "other.whl")
        found = estimate([self.WHEEL, other], ["12.1a"])
        self.assertEqual(found.sisters, {"12.1a": {"12.1a": 2}})
        self.assertEqual(found.report["bytes"], self.WHEEL["bytes"] + 333 + 55)
        self.assertEqual(found.report["modules"]["a"]["host"], [10, 30])

    def test_the_report_is_one(self) -> None:
        """On random reports, an estimate's sizes sum to its totals, and compare() finds just the targets."""
        for seed in range(50):
            noise = random.Random(seed)
            modules = {
                f"m{i}": {"host": 5} | {sm: noise.randrange(1, 999) for sm in noise.sample(["8.0", "9.0a", "10.0a"], 2)}
                for i in range(4)
            }
            old = report(modules)
            found = estimate([old], ["10.3a", "9.0"], ["8.0"])
            dump(found.report)
            rows = [row for module in found.report["modules"].values() for row in module.values()]
            self.assertEqual(sum(row[0] for row in rows) + 100, found.report["bytes"])
            self.assertEqual(sum(row[1] for row in rows) + 300, found.report["installed_bytes"])
            by_name = {change.name: change.what for change in compare(old, found.report).sm_targets}
            self.assertLessEqual(by_name.keys(), {"10.3a", "9.0", "8.0", "host"})
            self.assertEqual(by_name.get("8.0", "removed"), "removed")

    def test_messages(self) -> None:
        for add, words in ((["7.5"], "no SM target can stand in for 7.5"), (["8.0"], "w.whl can't get 8.0")):
            with self.subTest(add), self.assertRaises(ForecastError) as caught:
                estimate([self.WHEEL], add)
            self.assertIn(words, str(caught.exception))


class KnownCasesTest(unittest.TestCase):
    def test_leave_one_out(self) -> None:
        wheel = report({"a": {"host": 1, "10.0a": 1000, "10.3a": 1020, "8.0": 400}, "b": {"host": 1, "10.0a": 200}})
        cases = {case.target: case for case in known_cases([wheel])}
        self.assertEqual(set(cases), {"10.0a", "10.3a"})
        forward, back = cases["10.3a"], cases["10.0a"]
        self.assertEqual((forward.predicted, forward.actual, forward.unexpected), (1000, 1020, 1))
        # Nothing foretells the module b, which has 10.0a alone.
        self.assertEqual((back.predicted, back.actual, back.unexpected), (1020, 1200, 0))
        self.assertEqual(str(forward), "predicting 10.3a from 10.0a: -2.0 %; it was expected in 1 module more (w.whl)")
        self.assertEqual(str(back), "predicting 10.0a from 10.3a: -15.0 % (w.whl)")

    def test_error_is_that_of_cases_of_the_same_kind(self) -> None:
        wheel = report({"a": {"host": 1, "8.0": 100, "9.0a": 1000, "10.0a": 900, "10.3a": 910}})
        same, below = estimate([wheel], ["10.7a"]), estimate([wheel], ["12.0f"])
        self.assertEqual({case.target for case in same.cases}, {"10.0a", "10.3a"})
        self.assertEqual({case.target for case in below.cases}, {"9.0a"})
        self.assertAlmostEqual(same.worst or 0, (910 / 900 - 1) * 100)
        self.assertAlmostEqual(below.worst or 0, 90.0)

    def test_a_target_is_left_out_of_all_reports(self) -> None:
        first = report({"a": {"host": 1, "12.0f": 100, "12.1a": 104}}, "first.whl")
        second = report({"a": {"host": 1, "12.1a": 104}}, "second.whl")
        found = [(case.wheel, case.target, case.predicted) for case in known_cases([first, second])]
        self.assertEqual(
            found, [("first.whl", "12.0f", 104), ("first.whl", "12.1a", 100), ("second.whl", "12.1a", 100)]
        )

    def test_nothing_is_known(self) -> None:
        found = estimate([report({"a": {"host": 1, "8.0": 100}})], ["8.6"])
        self.assertIsNone(found.worst)
        self.assertIn("error:    unknown", forecast.describe_estimate(found))


class WordsTest(unittest.TestCase):
    def test_limit_is_strict(self) -> None:
        self.assertIn("headroom: 0 bytes", verdict(forecast.LIMIT - 1))
        self.assertIn("excess:   1 bytes (0.0 % of the limit): it does not fit", verdict(forecast.LIMIT))
        self.assertIn("limit:    under 2147483648 bytes (2147.5 MB)", verdict(5))

    def test_a_target_too_many(self) -> None:
        """The history: a wheel of 1893.6 MB, whose 12.1a would not fit. The estimate knows before it is built."""
        sizes = {"8.0": 190, "9.0a": 480, "10.0a": 445, "10.3a": 480, "12.0f": 298}
        wheel = report({f"m{i}": {"host": 600, **{sm: 1000 * s for sm, s in sizes.items()}} for i in range(1000)})
        found = estimate([wheel], ["12.1a"])
        self.assertGreater(found.report["bytes"], forecast.LIMIT)
        text = forecast.describe_estimate(found)
        self.assertIn("it does not fit", text)
        self.assertIn("12.1a is estimated from 12.0f, in 1000 modules", text)
        self.assertIn("worst of 2 known cases 7.9 %", text)
        self.assertIn("predicting 10.3a from 10.0a: -7.3 % (w.whl)", text)

    def test_within_the_error(self) -> None:
        room = forecast.LIMIT - 900
        wheel = report({"a": {"host": 0, "10.0a": 800, "10.3a": 1000, "8.0": room - 1800}}, other=0)
        found = estimate([wheel], ["10.7a"])
        self.assertEqual(found.range, (room + 800, room + 1250))
        self.assertIn("whether it fits is within that error", forecast.describe_estimate(found))


class CommandLineTest(unittest.TestCase):
    def run_main(self, *words: object) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = forecast.main([str(word) for word in words])
        return status, out.getvalue(), err.getvalue()

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name)

    def write(self, content: Any) -> Path:
        path = self.path / "w.json"
        path.write_text(dump(content))
        return path

    def test_estimate(self) -> None:
        out_file = self.path / "forecast.json"
        baseline = self.write(EstimateTest.WHEEL)
        status, out, err = self.run_main("estimate", "--report", baseline, "--add", "10.7a,12.0f", "--json", out_file)
        self.assertEqual((status, err), (0, ""))
        for words in ("w.whl with 10.7a, 12.0f added, estimated:", "headroom: ", "SM target 10.7a was added: +1.2 kB"):
            self.assertIn(words, out)
        self.assertEqual(set(json.loads(out_file.read_text())["modules"]["a"]) & {"10.7a", "12.0f"}, {"10.7a", "12.0f"})

    def test_what_does_not_fit_is_status_1(self) -> None:
        baseline = self.write(report({"a": {"host": 0, "12.0f": forecast.LIMIT // 2}}))
        self.assertEqual(self.run_main("estimate", "--report", baseline, "--add", "12.1a")[0], 1)

    def test_errors_are_status_2(self) -> None:
        status, _, err = self.run_main("estimate", "--report", self.write(EstimateTest.WHEEL), "--add", "7.5")
        self.assertEqual(status, 2)
        self.assertIn("error: no SM target can stand in for 7.5", err)
        self.assertEqual(self.run_main("estimate", "--report", self.path / "none.json", "--add", "7.5")[0], 2)


if __name__ == "__main__":
    unittest.main()
