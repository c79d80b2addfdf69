"""What a wheel would weigh with other SM targets, before the matrix is changed.

    forecast.py exact --wheel cu134_aarch64_sm10x --add 12.0f --remove 8.0
    forecast.py exact --wheel cu134_aarch64_sm10x --monolithic
    forecast.py estimate --report WHEEL.json [--report OTHER.json...] --add 10.7a

`exact` builds the wheel that the edited matrix would give, beside the real ones: the target of wheels/BUILD.bazel with
other SM targets, in a package of its own. Every cubin and host object that a real wheel has is shared with it, so only
links, compression and packing run, and what no wheel has had yet is compiled. `--monolithic` joins all families of the
wheel's CUDA version and CPU, as a family `all` would. The host code of what includes CUB holds the list of all SM targets
that its module is built for: where the edit takes a target out of the whole matrix, a few bytes of it will differ.

`estimate` builds nothing. It takes a target's sizes from those of its sister targets in size reports, and says how well
that would have foretold the targets that are known.

Exit status: 0 if the wheel is under the limit, 1 if not, 2 if there is no forecast.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from size_report import (
    HOST,
    OTHER,
    Json,
    ReportError,
    by_sm_target,
    compare,
    describe,
    dump,
    load,
    megabytes,
    plural,
    write,
)
from sm_targets import SmTarget, parse

# GitHub docs, "About releases": a release asset must be under 2 GiB. The matrix says the same (ASSET_LIMIT).
LIMIT = 2147483648

# The family of a monolithic wheel.
ALL = "all"


class ForecastError(Exception):
    """There is no forecast of what was asked for. The message says what was expected, what was found, what to do."""

    def __init__(self, what: str, expected: str, found: str, todo: str) -> None:
        super().__init__(f"{what}\n  expected: {expected}\n  found:    {found}\n  To do: {todo}")


# ---- Which SM targets ---------------------------------------------------------------------------------------------


def changed(what: str, sm_targets: Sequence[str], add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """SM targets with some more and some less, in ascending order. `what` they are of is for messages.

    Raises ForecastError: one to add that is there, one to remove that is not, none left, or what is no SM target.
    """
    todo = "name SM targets that change it."
    for sm in (*add, *remove):
        try:
            parse(sm)
        except ValueError as error:
            raise ForecastError(f"{sm!r} is no SM target.", "8.0, 9.0a or 12.0f", repr(sm), todo) from error
    if wrong := [sm for sm in add if sm in sm_targets or sm in remove]:
        raise ForecastError(
            f"{what} can't get {', '.join(wrong)}.", "SM targets it does not have", ", ".join(sm_targets), todo
        )
    if wrong := [sm for sm in remove if sm not in sm_targets]:
        raise ForecastError(f"{what} can't lose {', '.join(wrong)}.", "SM targets it has", ", ".join(sm_targets), todo)
    after = sorted({*sm_targets, *add} - {*remove}, key=parse)
    if not after:
        raise ForecastError(f"{what} would have no SM target.", "at least one", "none", todo)
    return after


# ---- Exact --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bazel:
    """A workspace, and flags of `bazel build` in it."""

    workspace: Path
    flags: tuple[str, ...] = ()

    def run(self, command: str, *arguments: str) -> str:
        """What a command prints; what Bazel says meanwhile goes to the terminal. Raises ForecastError."""
        flags = self.flags if command in ("build", "cquery") else ()
        quiet = () if command == "build" else ("--ui_event_filters=-info", "--noshow_progress")
        words = [str(self.workspace / "bazelw"), command, *flags, *quiet, *arguments]
        result = subprocess.run(words, cwd=self.workspace, stdout=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            found = f"exit status {result.returncode} of {' '.join(words)}"
            raise ForecastError("Bazel failed.", "a build", found, "read what it says above.")
        return result.stdout

    def file(self, target: str, *flags: str) -> Path:
        """The one file that a target builds."""
        [path] = self.run("cquery", "--output=files", *flags, target).split()
        return Path(self.run("info", "execution_root").strip(), path)


def plan(matrix: Json, name: str, add: Sequence[str], remove: Sequence[str], monolithic: bool) -> tuple[Json, Json]:
    """The wheel of the resolved matrix that is called `name`, and what it would be. Raises ForecastError."""
    wheels = {wheel["name"]: wheel for wheel in matrix["wheels"]}
    if name not in wheels:
        todo = "give the name of a target of //wheels, cu130_aarch64_sm12x; //wheels:matrix.json lists them."
        raise ForecastError(f"there is no wheel {name}.", f"one of {', '.join(wheels)}", name, todo)
    wheel = wheels[name]
    of_label = [other for other in matrix["wheels"] if other["cuda_label"] == wheel["cuda_label"]]
    known = sorted({sm for other in of_label for sm in other["sm_targets"]}, key=parse)
    if strangers := [sm for sm in add if sm not in known]:
        raise ForecastError(
            f"no module of {wheel['cuda_label']} is built for {', '.join(strangers)}.",
            f"SM targets that a cell of {wheel['cuda_label']} has: {', '.join(known)}",
            ", ".join(strangers),
            "estimate it: forecast.py estimate; or add it to a cell of wheels/matrix.bzl, and build that wheel.",
        )
    sm_targets, family = wheel["sm_targets"], wheel["family"]
    if monolithic:
        sm_targets = [sm for other in of_label if other["cpu"] == wheel["cpu"] for sm in other["sm_targets"]]
        sm_targets, family = sorted(set(sm_targets), key=parse), ALL
    return wheel, {
        **wheel,
        "family": family,
        "name": wheel["name"].removesuffix(wheel["family"]) + family,
        "sm_targets": changed(name, sm_targets, add, remove),
        "version": wheel["version"].removesuffix(wheel["family"]) + family,
    }


def build_file(declaration: str, before: Json, after: Json) -> str:
    """A BUILD file with the wheel as it would be.

    declaration: that of the wheel as it is, by `bazel query --output=build`; before, after: what `plan` returned.
    """
    statements = ast.parse(declaration).body
    [call] = [node.value for node in statements if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    # Which modules there are depends on flags, and is asked for anew. A forecast is not held to the baseline.
    asked_anew = ("modules", "baseline")
    attributes = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg not in asked_anew}
    attributes |= {
        "name": after["name"],
        "sm_family": after["family"],
        "sm_targets": after["sm_targets"],
        "summary": attributes["summary"].removesuffix(before["family"]) + after["family"],
        "version": after["version"],
    }
    if after["name"] != before["name"]:
        attributes["siblings"] = {**attributes["siblings"], before["version"]: before["devices"]}
    modules = f"modules_for({after['cuda_label']!r}, {after['sm_targets']!r})"
    lines = [f"    {key} = {value!r}," for key, value in attributes.items()]
    return "\n".join(
        [
            'load("//kernels/flashinfer:modules.bzl", "modules_for")',
            'load("//wheels:defs.bzl", "py_wheel")',
            "",
            "py_wheel(",
            *lines,
            f"    modules = {modules},",
            ")",
            "",
        ]
    )


def exact(
    bazel: Bazel, name: str, add: Sequence[str] = (), remove: Sequence[str] = (), monolithic: bool = False
) -> tuple[Path, Json]:
    """Builds the wheel that is called `name` in //wheels as it would be; returns its file and its entry of the matrix.

    The file lies in Bazel's output directory until another forecast replaces it. It is not checked against its budget
    or its limit. Raises ForecastError.
    """
    bazel.run("build", "//wheels:matrix.json")
    matrix = json.loads(bazel.file("//wheels:matrix.json").read_text(encoding="utf-8"))
    before, after = plan(matrix, name, add, remove, monolithic)
    declaration = bazel.run("query", "--output=build", f"//wheels:{name}")
    with tempfile.TemporaryDirectory(prefix="smwheel-forecast-") as directory:
        # A package of a second root, so that nothing is written into the workspace. Its wheels reach cubins and host
        # objects by py_wheel's own transition: by flags of the command line they would be other files, compiled anew.
        package = Path(directory, "forecast")
        package.mkdir()
        (package / "BUILD.bazel").write_text(build_file(declaration, before, after), encoding="utf-8")
        flags = (f"--package_path=%workspace%:{directory}", "--norun_validations")
        bazel.run("build", *flags, f"//forecast:{after['name']}")
        return bazel.file(f"//forecast:{after['name']}", *flags), after


# ---- Estimate -----------------------------------------------------------------------------------------------------


def sister(target: str, known: Sequence[str]) -> str | None:
    """Of `known`, the SM target whose sizes stand in for those of `target`, or None.

    That is the nearest of the same major compute capability, else the nearest below. Of two that are as near, the one
    with the same suffix, then the lower.
    """
    wanted = parse(target)

    def below(sm: SmTarget) -> bool:
        return (sm.major, sm.minor) < (wanted.major, wanted.minor)

    def key(name: str) -> tuple[int, int, int, bool, SmTarget]:
        sm = parse(name)
        same = sm.major == wanted.major
        distance = abs(sm.minor - wanted.minor) if same else -sm.minor
        return (0 if same else 1, wanted.major - sm.major, distance, sm.suffix != wanted.suffix, sm)

    fit = [name for name in known if parse(name).ptx == wanted.ptx]
    fit = [name for name in fit if parse(name).major == wanted.major or below(parse(name))]
    return min(fit, key=key, default=None)


Rows = dict[str, list[int]]


def _known(reports: Sequence[Json], without: str | None = None) -> dict[str, Rows]:
    """The rows of each module over all reports; what several have is taken from the first of them."""
    known: dict[str, Rows] = {}
    for report in reports:
        for name, rows in report["modules"].items():
            module = known.setdefault(name, {})
            for sm, row in rows.items():
                if sm != without:
                    module.setdefault(sm, row)
    return known


def _predict(target: str, known: dict[str, Rows]) -> dict[str, str]:
    """The sister of `target` in each module that is expected to get it.

    A module that has none of the target's major compute capability, while others do, is expected not to get it: it is
    made for other GPUs.
    """
    major = parse(target).major
    has_major = any(parse(sm).major == major for rows in known.values() for sm in rows if sm != HOST)
    sisters = {}
    for name, rows in known.items():
        found = sister(target, [sm for sm in rows if sm != HOST])
        if found and (parse(found).major == major or not has_major):
            sisters[name] = found
    return sisters


@dataclass(frozen=True)
class Case:
    """A known SM target of a report, predicted as if it were not known, in compressed bytes.

    sisters: the SM targets that stood in, with the number of modules
    unexpected: modules that were predicted to have it and do not; they are not in `predicted`
    """

    wheel: str
    target: str
    sisters: dict[str, int]
    predicted: int
    actual: int
    unexpected: int

    @property
    def percent(self) -> float:
        """How far the prediction is off, in percent of what there is."""
        return (self.predicted / self.actual - 1) * 100

    @property
    def same_major(self) -> bool:
        """Whether all that stood in are of the target's own major compute capability."""
        return all(parse(sm).major == parse(self.target).major for sm in self.sisters)

    def __str__(self) -> str:
        extra = f"; it was expected in {plural(self.unexpected, 'module')} more" if self.unexpected else ""
        return f"predicting {self.target} from {_sisters(self.sisters)}: {self.percent:+.1f} %{extra} ({self.wheel})"


def _sisters(sisters: dict[str, int]) -> str:
    if len(sisters) == 1:
        return next(iter(sisters))
    ordered = sorted(sisters.items(), key=lambda item: (-item[1], parse(item[0])))
    return " and ".join(f"{sm} ({plural(count, 'module')})" for sm, count in ordered)


def known_cases(reports: Sequence[Json]) -> list[Case]:
    """Each SM target of each report, predicted from the others: leave-one-out.

    A target is left out of all reports. Left aside are those that no other can stand in for.
    """
    cases = []
    for report in reports:
        for target in [sm for sm in by_sm_target(report) if sm not in (HOST, OTHER)]:
            others = [other for other in reports if other is not report]
            known = _known([report, *others], without=target)
            sisters = _predict(target, known)
            having = {name: rows[target][0] for name, rows in report["modules"].items() if target in rows}
            used = Counter(sm for name, sm in sisters.items() if name in having)
            predicted = sum(known[name][sm][0] for name, sm in sisters.items() if name in having)
            unexpected = [name for name in sisters if name in report["modules"] and name not in having]
            actual = sum(having.values())
            if predicted and actual:
                cases.append(Case(report["wheel"], target, dict(used), predicted, actual, len(unexpected)))
    return cases


@dataclass(frozen=True)
class Estimate:
    """What a wheel would weigh by its sister targets' sizes.

    report: as of the wheel that there would be; its shares are exact for what the wheel has, estimated for the rest
    sisters: for each SM target that is added, what stands in, with the number of modules
    added_bytes: compressed bytes that are estimated
    cases: the known cases of the same kind (of the same major compute capability or not); all, if there are none
    """

    report: Json
    sisters: dict[str, dict[str, int]]
    added_bytes: int
    cases: list[Case]

    @property
    def worst(self) -> float | None:
        """The largest error of the known cases, in percent; None without any."""
        return max((abs(case.percent) for case in self.cases), default=None)

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest file in bytes, if what is added is as far off as the known cases were."""
        known = self.report["bytes"] - self.added_bytes
        ratios = [1.0, *(case.actual / case.predicted for case in self.cases)]
        return known + round(self.added_bytes * min(ratios)), known + round(self.added_bytes * max(ratios))


def estimate(reports: Sequence[Json], add: Sequence[str] = (), remove: Sequence[str] = ()) -> Estimate:
    """Estimates what the wheel of the first report would weigh. The other reports are further known sizes.

    A target that another report has is taken from there as it is. Raises ForecastError: as `changed`, and for a target
    that nothing can stand in for.
    """
    wheel = reports[0]
    has = [sm for sm in by_sm_target(wheel) if sm not in (HOST, OTHER)]
    changed(wheel["wheel"], has, add, remove)
    known = _known(reports)
    modules = {
        name: {sm: row for sm, row in rows.items() if sm not in remove} for name, rows in wheel["modules"].items()
    }
    # A module goes with the last of its images; one without any has stayed host code alone.
    modules = {name: rows for name, rows in modules.items() if len(rows) > 1 or len(wheel["modules"][name]) == 1}
    sisters: dict[str, dict[str, int]] = {}
    added = 0
    for target in add:
        found = _predict(target, known)
        if not found:
            todo = "give reports that have one, or build it: forecast.py exact."
            others = ", ".join(sorted({sm for rows in known.values() for sm in rows if sm != HOST}, key=parse))
            expected = "one of the same major compute capability, or a lower one"
            raise ForecastError(f"no SM target can stand in for {target}.", expected, others or "none", todo)
        sisters[target] = dict(Counter(found.values()))
        for name, sm in found.items():
            if name not in modules:
                modules[name] = {HOST: known[name][HOST]}
                added += known[name][HOST][0]
            modules[name][target] = known[name][sm]
            added += known[name][sm][0]
    rows = [row for module in modules.values() for row in module.values()]
    report = {
        **wheel,
        "wheel": f"estimate for {wheel['wheel']}",
        "bytes": wheel["other"]["compressed_bytes"] + sum(row[0] for row in rows),
        "installed_bytes": wheel["other"]["installed_bytes"] + sum(row[1] for row in rows),
        "modules": modules,
    }
    cases = known_cases(reports)
    same = all(parse(sm).major == parse(target).major for target, used in sisters.items() for sm in used)
    alike = [case for case in cases if case.same_major == same]
    return Estimate(report, sisters, added, alike or cases)


# ---- Command line -------------------------------------------------------------------------------------------------


def verdict(size: int, limit: int = LIMIT) -> str:
    """Whether a wheel of `size` bytes is under the limit, and by how much, in words."""
    room = limit - 1 - size
    rows = [f"size:     {size} bytes ({megabytes(size)})", f"limit:    under {limit} bytes ({megabytes(limit)})"]
    if room >= 0:
        return "\n".join([*rows, f"headroom: {room} bytes ({room / limit * 100:.1f} % of the limit)"])
    return "\n".join([*rows, f"excess:   {-room} bytes ({-room / limit * 100:.1f} % of the limit): it does not fit"])


def describe_estimate(found: Estimate, limit: int = LIMIT) -> str:
    """The size, what it was taken from, and its error, in words."""
    size = found.report["bytes"]
    lines = [verdict(size, limit)]
    for target, sisters in found.sisters.items():
        lines.append(f"{target} is estimated from {_sisters(sisters)}, in {plural(sum(sisters.values()), 'module')}")
    if found.sisters and found.worst is None:
        lines.append("error:    unknown, since these reports have no two SM targets of which one foretells the other")
    elif found.sisters and found.worst is not None:
        low, high = found.range
        worst = f"worst of {plural(len(found.cases), 'known case')} {found.worst:.1f} %"
        lines.append(f"error:    {worst}; as far off as those, it would be {megabytes(low)} to {megabytes(high)}")
        if low < limit <= high:
            lines.append("          whether it fits is within that error: build it (forecast.py exact) to know")
        lines += [f"  {case}" for case in found.cases]
    return "\n".join(lines)


def _exact(args: argparse.Namespace) -> int:
    bazel = Bazel(args.workspace.resolve(), tuple(args.bazel_flag))
    path, entry = exact(bazel, args.wheel, args.add, args.remove, args.monolithic)
    size = path.stat().st_size
    print(f"{entry['name']} with SM targets {', '.join(entry['sm_targets'])}, exactly:")
    print(verdict(size))
    new = load(path)
    if args.json:
        write(args.json, dump(new))
    against = args.against
    if not against:
        bazel.run("build", "--norun_validations", f"//wheels:{args.wheel}")
        against = bazel.file(f"//wheels:{args.wheel}")
    print(f"Against {args.against or 'the wheel as it is'}:")
    print(describe(compare(load(against), new)))
    return 0 if size < LIMIT else 1


def _estimate(args: argparse.Namespace) -> int:
    reports = [load(path) for path in args.report]
    found = estimate(reports, args.add, args.remove)
    print(f"{reports[0]['wheel']} with {', '.join(args.add) or 'nothing'} added, estimated:")
    print(describe_estimate(found))
    print("Against the wheel as it is:")
    print(describe(compare(reports[0], found.report)))
    if args.json:
        write(args.json, dump(found.report))
    return 0 if found.report["bytes"] < LIMIT else 1


def _words(text: str) -> list[str]:
    return text.split(",")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("exact", help="builds the wheel as it would be")
    command.add_argument("--wheel", required=True, help="target of //wheels: cu134_aarch64_sm10x")
    command.add_argument("--monolithic", action="store_true", help="all families of its CUDA version and CPU in one")
    command.add_argument(
        "--against", type=Path, metavar="FILE", help="a wheel or a report, instead of the wheel as it is"
    )
    command.add_argument(
        "--bazel-flag", action="append", default=[], metavar="FLAG", help="--bazel-flag=--disk_cache=DIR"
    )
    command.add_argument("--workspace", type=Path, default=Path(__file__).parents[2], help="default: this file's")
    command.set_defaults(run=_exact)
    command = commands.add_parser("estimate", help="estimates it from size reports")
    command.add_argument(
        "--report", action="append", type=Path, required=True, metavar="FILE",
        help="a wheel or a report; the first is the one that is forecast",
    )  # fmt: skip
    command.set_defaults(run=_estimate)
    for command in commands.choices.values():
        for option, what in (("--add", "SM targets more"), ("--remove", "SM targets less")):
            command.add_argument(
                option, action="extend", type=_words, default=[], metavar="SM", help=f"{what}, with commas or repeated"
            )
        command.add_argument("--json", type=Path, metavar="OUT", help="the size report of the forecast")
    args = parser.parse_args(arguments)
    try:
        result: int = args.run(args)
    except (ForecastError, ReportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return result


if __name__ == "__main__":
    sys.exit(main())
