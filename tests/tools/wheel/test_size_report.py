"""Unit tests of size reports, on wheels that are written here: each size is known."""

import io
import json
import random
import sys
import tempfile
import unittest
import zlib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import size_report
from size_report import Json, ReportError, check_growth, compare, describe, dump, load, share, table
from zip_writer import Member, write_zip

# Installed bytes by module and SM target; None is the module's host code.
Sizes = dict[str, dict[str | None, int]]


def member(name: str, data: bytes, level: int = 6) -> Member:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
    return Member(name, compressor.compress(data) + compressor.flush(), zlib.crc32(data), len(data))


def make_wheel(path: Path, sizes: Sizes, seed: int = 0, edit: Any = None) -> dict[str, bytes]:
    """Writes a wheel with modules of these sizes and a manifest of schema 2; returns its files.

    Half of each part can't be compressed. `edit` may change the manifest.
    """
    files: dict[str, bytes] = {"pkg/__init__.py": b"# The package.\n" * 9, "pkg-1.dist-info/METADATA": b"Name: pkg\n"}
    modules: Json = {}
    members = []
    for name, parts in sizes.items():
        data = b"".join(
            random.Random(f"{seed} {name} {sm}").randbytes(size // 2) + bytes(size - size // 2)
            for sm, size in parts.items()
        )
        files[f"pkg/jit_cache/{name}/{name}.so"] = data
        members.append(member(f"pkg/jit_cache/{name}/{name}.so", data, level=1))
        stream = members[-1].stream
        assert isinstance(stream, bytes)
        compressed = share(len(stream), {str(sm): size for sm, size in parts.items()})
        entries = {sm: {"bytes": size, "compressed_bytes": compressed[str(sm)]} for sm, size in parts.items()}
        host = entries.pop(None)
        modules[name] = {
            "bytes": len(data),
            "compressed_bytes": len(stream),
            "sha256": "00",
            "sm_targets": {str(sm): {**entry, "kernels": 1} for sm, entry in entries.items()},
            "host": host,
        }
    manifest: Json = {
        "schema_version": 2,
        "cpu": "aarch64",
        "cuda_version": "12.9",
        "sm_family": "all",
        "modules": modules,
    }
    if edit:
        edit(manifest)
    files["pkg/manifest.json"] = json.dumps(manifest).encode()
    texts = [member(name, data) for name, data in files.items() if not name.endswith(".so")]
    write_zip(path, [*texts, *members])
    return files


class Scratch(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def report(self, sizes: Sizes, name: str = "w.whl", **kwargs: Any) -> Json:
        make_wheel(self.directory / name, sizes, **kwargs)
        return size_report.report(self.directory / name)


class ShareTest(unittest.TestCase):
    def test_largest_remainders_get_what_is_left(self) -> None:
        self.assertEqual(share(10, {"a": 1, "b": 1, "c": 1}), {"a": 4, "b": 3, "c": 3})
        # Votes for ten seats, of which proportion alone gives 9: 4.7, 1.6, 1.58, 1.2, 0.61 and 0.31 seats.
        votes = {"yellow": 47000, "white": 16000, "red": 15800, "green": 12000, "blue": 6100, "pink": 3100}
        self.assertEqual(list(share(10, votes).values()), [5, 2, 1, 1, 1, 0])

    def test_sums_and_is_within_one_of_proportion(self) -> None:
        noise = random.Random(1)
        for _ in range(300):
            weights = {f"w{i}": noise.choice([0, 1, noise.randrange(1 << 34)]) for i in range(noise.randrange(1, 12))}
            total = noise.randrange(1 << noise.randrange(1, 34))
            shares = share(total, weights)
            self.assertEqual(sum(shares.values()), total)
            self.assertEqual(list(shares), list(weights))
            self.assertEqual(shares, {name: share(total, dict(reversed(weights.items())))[name] for name in weights})
            if whole := sum(weights.values()):
                for name, weight in weights.items():
                    self.assertTrue(total * weight // whole <= shares[name] <= total * weight // whole + 1)
                    self.assertTrue(weight or not shares[name])

    def test_nobody_weighs_anything(self) -> None:
        self.assertEqual(share(3, {"a": 0, "b": 0}), {"a": 2, "b": 1})
        self.assertEqual(share(0, {}), {})
        for total, weights in ((1, {}), (-1, {"a": 1}), (1, {"a": -1, "b": 2})):
            with self.assertRaises(ValueError):
                share(total, weights)


class ReportTest(Scratch):
    def test_every_byte_has_its_place(self) -> None:
        """On random wheels: what is compressed sums to the file, what is installed to its files."""
        for seed in range(25):
            noise = random.Random(seed)
            targets: list[str | None] = ["7.5", "8.0", "9.0a", "10.0a", "12.0f", "12.1a"]
            hosts: list[dict[str | None, int]] = [{None: noise.randrange(2000)} for _ in range(noise.randrange(6))]
            sizes: Sizes = {
                f"m{i}": host
                | {sm: noise.choice([0, 7, noise.randrange(9000)]) for sm in noise.sample(targets, noise.randrange(6))}
                for i, host in enumerate(hosts)
            }
            path = self.directory / f"{seed}.whl"
            files = make_wheel(path, sizes, seed)
            report = size_report.report(path)
            rows = [row for module in report["modules"].values() for row in module.values()]
            self.assertEqual(sum(row[0] for row in rows) + report["other"]["compressed_bytes"], path.stat().st_size)
            self.assertEqual(report["bytes"], path.stat().st_size)
            self.assertEqual(report["installed_bytes"], sum(map(len, files.values())))
            self.assertEqual(
                report["other"]["installed_bytes"], sum(len(d) for name, d in files.items() if not name.endswith(".so"))
            )
            for name, parts in sizes.items():
                found = {sm: row[1] for sm, row in report["modules"][name].items()}
                self.assertEqual(found, {sm or "host": size for sm, size in parts.items()})

    def test_rows_are_in_order(self) -> None:
        report = self.report({"b": {"12.0f": 1, "8.0": 2, None: 3, "9.0a": 4}, "a": {None: 1}})
        self.assertEqual(list(report["modules"]), ["a", "b"])
        self.assertEqual(list(report["modules"]["b"]), ["host", "8.0", "9.0a", "12.0f"])
        self.assertEqual([report[key] for key in ("cpu", "cuda_version", "sm_family")], ["aarch64", "12.9", "all"])

    def message(self, content: Any = None, **edits: Any) -> str:
        """What is said of a wheel with another manifest, or of a file with other content."""
        path = self.directory / "bad.whl"
        make_wheel(path, {"m": {None: 10, "8.0": 20}}, **edits)
        if content is not None:
            path.write_bytes(content(path.read_bytes()))
        with self.assertRaises(ReportError) as caught:
            size_report.report(path)
        text = str(caught.exception)
        for words in ("bad.whl: no size report", "expected: ", "found: ", "To do: "):
            self.assertIn(words, text)
        return text

    def test_what_is_no_such_wheel(self) -> None:
        self.assertIn("not a zip file", self.message(lambda data: b"hello"))
        self.assertIn("not a zip file", self.message(lambda data: b""))
        self.message(lambda data: data[:-30])
        self.assertIn("schema_version 1", self.message(edit=lambda m: m.update(schema_version=1)))
        self.assertIn("build the wheel again", self.message(edit=lambda m: m.update(schema_version=1)))
        self.assertIn("no 'host'", self.message(edit=lambda m: m["modules"]["m"].pop("host")))
        self.assertIn("no 'cpu'", self.message(edit=lambda m: m.pop("cpu")))
        self.assertIn("0 members n/n.so", self.message(edit=lambda m: m["modules"].update(n=m["modules"]["m"])))
        self.message(edit=lambda m: m.update(modules=[1]))
        self.message(
            edit=lambda m: m["modules"]["m"].update(sm_targets={"hopper": {"bytes": 20, "compressed_bytes": 0}})
        )

    def test_shares_that_do_not_sum(self) -> None:
        def more(manifest: Json) -> None:
            manifest["modules"]["m"]["host"]["bytes"] += 1

        def less(manifest: Json) -> None:
            manifest["modules"]["m"]["sm_targets"]["8.0"]["compressed_bytes"] -= 1

        def other(manifest: Json) -> None:
            manifest["modules"]["m"]["bytes"] += 1

        self.assertIn("the shares of module m", self.message(edit=more))
        self.assertIn("31 installed; the member pkg/jit_cache/m/m.so has", self.message(edit=more))
        self.assertIn("the shares of module m", self.message(edit=less))
        self.assertIn("the manifest's entry of module m", self.message(edit=other))

    def test_no_manifest(self) -> None:
        path = self.directory / "empty.whl"
        write_zip(path, [member("a.py", b"")])
        with self.assertRaisesRegex(ReportError, r"(?s)empty.whl.*manifests: \[\]"):
            size_report.report(path)
        with self.assertRaisesRegex(ReportError, "no-such.whl"):
            size_report.report(self.directory / "no-such.whl")


class JsonTest(Scratch):
    def test_there_and_back(self) -> None:
        report = self.report({"b": {None: 3, "8.0": 100}, "a": {None: 30}})
        baseline = self.directory / "w.json"
        size_report.write(baseline, dump(report))
        self.assertEqual(load(baseline), report)
        self.assertEqual(load(self.directory / "w.whl"), report)
        lines = [line.partition(":")[0].strip() for line in dump(report).splitlines()]
        self.assertEqual(lines[lines.index('"modules"') + 1 :], ['"a"', '"b"', "}", "}"])
        self.assertEqual([path.name for path in self.directory.iterdir()], ["w.whl", "w.json"])

    def test_without_modules(self) -> None:
        self.assertEqual(json.loads(dump(self.report({})))["modules"], {})

    def test_what_is_no_report(self) -> None:
        good = self.report({"a": {None: 3, "8.0": 100}})
        for edit, words in (
            ({"bytes": good["bytes"] + 1}, "sizes that sum to"),
            ({"schema_version": 2}, "schema_version 2"),
            ({"modules": {"a": {"host": [-1, 2]}}}, "no numbers of bytes"),
            ({"modules": {"a": {"host": [1]}}}, "found"),
            ({"cpu": None}, "cpu: None"),
        ):
            with self.subTest(edit):
                path = self.directory / "bad.json"
                path.write_text(json.dumps({**good, **edit}))
                with self.assertRaises(ReportError) as caught:
                    load(path)
                self.assertIn(words, str(caught.exception))
                self.assertIn("size_report.py report WHEEL --json bad.json", str(caught.exception))
        for text in ("", "[]", "{}", "\0"):
            (self.directory / "bad.json").write_text(text)
            with self.assertRaisesRegex(ReportError, "bad.json: no size report"):
                load(self.directory / "bad.json")


class TableTest(Scratch):
    def test_what_a_person_reads(self) -> None:
        report = self.report({f"m{i}": {None: 100, "8.0": 1000 * i, "12.0f": 400} for i in range(1, 4)})
        text = table(report, largest=2)
        self.assertIn(f"w.whl: {report['bytes']} bytes", text)
        self.assertIn("CUDA 12.9, aarch64, SM family all, 3 modules", text)
        rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
        self.assertEqual(rows["8.0"][2:], ["6,000", rows["8.0"][3], "3"])
        self.assertEqual(
            rows["total"], ["total", f"{report['bytes']:,}", f"{report['installed_bytes']:,}", "100.0", "3"]
        )
        compressed = [int(rows[name][1].replace(",", "")) for name in ("host", "8.0", "12.0f", "other")]
        self.assertEqual(sum(compressed), report["bytes"])
        self.assertEqual([line.split()[:2] for line in text.splitlines()[-6:-4]], [["m3", "8.0"], ["m2", "8.0"]])

    def test_coverage(self) -> None:
        """What each GPU loads, in one row for modules that are alike."""
        sizes: Sizes = {
            "a": {None: 9, "8.0": 9, "12.0f": 9},
            "b": {None: 9, "8.0": 9, "12.0f": 9},
            "c": {None: 9, "9.0": 5, "9.0a": 9},
            "host_only": {None: 9},
        }
        report = self.report(sizes)
        covered = size_report.coverage(report)
        self.assertEqual(covered["a"]["8.9"], "8.0")
        self.assertEqual(covered["a"]["12.1"], "12.0f")
        self.assertIsNone(covered["a"]["10.7"])
        self.assertEqual(covered["c"]["9.0"], "9.0a")
        self.assertEqual(set(covered["host_only"].values()), {"host"})
        rows = [line.split() for line in table(report).partition("Which image")[2].splitlines()]
        self.assertIn(["2", "modules", "-", "8.0", "8.0", "8.0", "-", "-", "-", "-", "-", "12.0f", "12.0f"], rows)
        self.assertIn(["c", "-", "-", "-", "-", "9.0a", "-", "-", "-", "-", "-", "-"], rows)

    def test_units(self) -> None:
        for size, text in (
            (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_999, "1.0 MB"),
            (2147483648, "2147.5 MB"), (-301_000_000, "-301.0 MB"),
        ):  # fmt: skip
            self.assertEqual(size_report.megabytes(size), text)
        self.assertEqual(size_report.megabytes(301_000_000, sign=True), "+301.0 MB")


def scaled_history() -> tuple[Sizes, Sizes]:
    """The arm64 wheel of CUDA 12.9 that grew by 15.9 % to 2194.6 MB, at a scale of 1 to 1000.

    What can't be compressed is half, so installed sizes are twice as large. 406 of 500 modules get 12.1a.
    """
    targets = {"7.5": 118, "8.0": 190, "8.9": 187, "9.0a": 486, "10.0a": 450, "10.3a": 280, "12.0f": 182}
    old: Sizes = {
        f"m{i:03}": {None: 100} | {sm: size * 3676 // 1000 for sm, size in targets.items()} for i in range(500)
    }
    new: Sizes = {name: dict(parts) for name, parts in old.items()}
    for name in list(new)[:406]:
        new[name]["12.1a"] = 1422
    new["m007"]["9.0a"] += 14400
    return old, new


class CompareTest(Scratch):
    def test_both_divisions_sum_to_the_growth(self) -> None:
        for seed in range(10):
            noise = random.Random(seed)

            def sizes(noise: random.Random = noise) -> Sizes:
                return {
                    f"m{i}": {None: 50}
                    | {sm: noise.randrange(3000) for sm in noise.sample(["8.0", "9.0a", "12.0f"], 2)}
                    for i in noise.sample(range(8), noise.randrange(8))
                }

            old, new = self.report(sizes(), "old.whl", seed=seed), self.report(sizes(), "new.whl", seed=seed + 99)
            found = compare(old, new)
            self.assertEqual(found.growth, new["bytes"] - old["bytes"])
            self.assertEqual(sum(change.bytes for change in found.sm_targets), found.growth)
            self.assertEqual(sum(change.bytes for change in found.modules), found.growth)
            self.assertEqual(sum(change.bytes for change in found.pairs), found.growth - self.rest(found))
            back = compare(new, old)
            self.assertEqual({c.name: -c.bytes for c in back.sm_targets}, {c.name: c.bytes for c in found.sm_targets})

    def rest(self, found: size_report.Comparison) -> int:
        return sum(c.bytes for c in found.sm_targets) - sum(c.bytes for c in found.pairs)

    def test_history_is_explained(self) -> None:
        """One more target: 15.9 %, and the target is named as the cause."""
        old, new = (self.report(sizes, f"{i}.whl") for i, sizes in enumerate(scaled_history()))
        self.assertAlmostEqual(new["bytes"], 2194600, delta=4000)
        text = describe(compare(old, new))
        self.assertIn("(+15.9 %)", text.splitlines()[0])
        self.assertRegex(text, r"  SM target 12.1a was added: \+297\.\d kB \(98\.\d % of the growth\) in 406 modules")
        self.assertRegex(text, r"  SM target 9.0a grew: \+\d\.\d kB \(\d\.\d % of the growth\) in 1 module\n")
        self.assertTrue(text.splitlines()[1].startswith("  SM target 12.1a was added"), text)
        self.assertIn("  406 modules grew: ", text)
        self.assertIn("most of all m007 +", text)
        self.assertIn("by module and SM target, most of all m007 for 9.0a +", text)

    def test_modules_that_come_and_go(self) -> None:
        old = self.report({"a": {None: 10, "8.0": 4000}, "gone": {None: 10, "8.0": 9000}}, "old.whl")
        added: Sizes = {f"new{i}": {None: 10, "8.0": 8000 + i} for i in range(5)}
        new = self.report({"a": {None: 10, "8.0": 3000}, **added}, "new.whl")
        text = describe(compare(old, new))
        self.assertRegex(text, r"  5 modules were added: \+.* of the growth\); most of all new\d .*, new\d .*, new\d ")
        self.assertIn("  module gone was removed: -", text)
        self.assertIn("  module a shrank: -", text)
        back = describe(compare(new, old))
        self.assertIn("% of the reduction", back)
        self.assertIn("  5 modules were removed: -", back)

    def test_a_target_that_goes(self) -> None:
        old = self.report({"a": {None: 10, "8.0": 4000, "9.0a": 5000}}, "old.whl")
        new = self.report({"a": {None: 10, "8.0": 4000}}, "new.whl")
        self.assertRegex(describe(compare(old, new)), r"  SM target 9.0a was removed: -.* in 1 module\n")

    def test_nothing_changed(self) -> None:
        report = self.report({"a": {None: 10, "8.0": 4000}})
        self.assertIn("no module and no SM target has another size", describe(compare(report, report)))
        self.assertIn("+0 bytes (+0.0 %)", describe(compare(report, report)))

    def test_growth_that_cancels_out(self) -> None:
        def report(a: int, b: int) -> Json:
            modules = {"a": {"host": [0, 0], "8.0": [a, a]}, "b": {"host": [0, 0], "9.0a": [b, b]}}
            other = {"compressed_bytes": 10, "installed_bytes": 10}
            return {
                "wheel": "w",
                "bytes": a + b + 10,
                "installed_bytes": a + b + 10,
                "other": other,
                "modules": modules,
            }

        text = describe(compare(report(100, 300), report(300, 100)))
        self.assertIn("SM target 8.0 grew: +200 bytes in 1 module", text)
        self.assertIn("SM target 9.0a shrank: -200 bytes in 1 module", text)


class GrowthTest(Scratch):
    def test_message(self) -> None:
        old, new = (self.report(sizes, f"{i}.whl") for i, sizes in enumerate(scaled_history()))
        self.assertIsNone(check_growth(new, old, 16))
        message = check_growth(new, old, 5, "bazel run //x:refresh")
        assert message is not None
        for words in (
            "1.whl has grown by more than it may",
            f"found:    {new['bytes']} bytes, +15.9 % of its baseline's {old['bytes']}",
            "expected: at most +5 %",
            "SM target 12.1a was added",
            "To do: make smaller what grew; or, if the growth is meant, refresh the baseline:\n    bazel run //x:refresh",
        ):
            self.assertIn(words, message)
        self.assertIn("size_report.py report 1.whl --json BASELINE", str(check_growth(new, old, 5)))

    def test_exactly_the_limit_is_allowed(self) -> None:
        def report(size: int) -> Json:
            return {
                "wheel": "w",
                "bytes": size,
                "modules": {},
                "other": {"compressed_bytes": size, "installed_bytes": size},
            }

        self.assertIsNone(check_growth(report(1050), report(1000), 5))
        self.assertIsNotNone(check_growth(report(1051), report(1000), 5))
        self.assertIsNone(check_growth(report(900), report(1000), 0))
        self.assertIsNotNone(check_growth(report(1001), report(1000), 0))


class CommandLineTest(Scratch):
    def run_main(self, *words: object) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["size_report.py", *map(str, words)]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status = size_report.main()
        return status, out.getvalue(), err.getvalue()

    def test_report_and_compare(self) -> None:
        old, new = self.directory / "old.whl", self.directory / "new.whl"
        make_wheel(old, {"a": {None: 10, "8.0": 4000}})
        make_wheel(new, {"a": {None: 10, "8.0": 4000, "9.0a": 5000}})
        baseline, text = self.directory / "old.json", self.directory / "old.txt"
        self.assertEqual(self.run_main("report", old, "--json", baseline, "--text", text), (0, "", ""))
        status, out, _ = self.run_main("report", old)
        self.assertEqual((status, out), (0, text.read_text()))
        for first in (old, baseline):
            status, out, _ = self.run_main("compare", first, new)
            self.assertEqual(status, 0)
            self.assertIn("SM target 9.0a was added", out)

    def test_errors(self) -> None:
        status, out, err = self.run_main("report", self.directory / "no-such.whl")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("error: no-such.whl: no size report can be made of it", err)


if __name__ == "__main__":
    unittest.main()
