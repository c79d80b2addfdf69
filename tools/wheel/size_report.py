"""What a wheel weighs, by module and SM target, read from the wheel file alone; and what grew between two of them.

    size_report.py report WHEEL [--json OUT] [--text OUT]
    size_report.py compare OLD NEW

OLD and NEW are wheels, or reports as --json writes them: a line for each module, so that a report can be committed as a
wheel's baseline and its diff be read.

Sizes are exact. A byte of the file belongs to the share of one (module, SM target), to a module's host code, or to
`other`: package files, metadata, and the zip's headers and directory. The shares of a compressed member are those that
the wheel's manifest gives. 1 MB is 1,000,000 bytes; a release asset must be under 2147.5 MB, which is 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sm_targets import DEVICES, image_for, parse

Json = dict[str, Any]

# In the place of an SM target: a module's host code, and everything that is no module's.
HOST, OTHER = "host", "other"

_SCHEMA = 1
_MANIFEST_SCHEMA = 2

# What reading a damaged zip raises.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError, ValueError)

REFRESH = "python3 tools/wheel/size_report.py report {wheel} --json {baseline}"


class ReportError(Exception):
    """A file is no wheel with a manifest of sizes, and no report of one. The message says what to do."""

    def __init__(self, file: str, expected: str, found: str, todo: str) -> None:
        super().__init__(
            f"{file}: no size report can be made of it.\n  expected: {expected}\n  found:    {found}\n  To do: {todo}"
        )


def share(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Shares `total` out in proportion to `weights`, in whole units that sum to it: the largest-remainder method.

    A remainder that several have goes by name. Without any weight above 0, all weigh the same. The order is that of
    `weights`. Raises ValueError for a negative number, and for a total that nobody can take.
    """
    if total < 0 or min(weights.values(), default=0) < 0:
        raise ValueError(f"expected nothing negative, found {total} and {dict(weights)}")
    if total and not weights:
        raise ValueError(f"expected somebody to take {total}, found nobody")
    if not any(weights.values()):
        weights = dict.fromkeys(weights, 1)
    whole = sum(weights.values())
    shares = {name: total * weight // whole for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: (-(total * weights[name] % whole), name))
    for name in by_remainder[: total - sum(shares.values())]:
        shares[name] += 1
    return shares


def _sm_key(name: str) -> tuple[Any, ...]:
    """Host code first, then SM targets in ascending order."""
    return (0,) if name == HOST else (1, parse(name), name)


def _pair(entry: Any) -> list[int]:
    pair = [entry["compressed_bytes"], entry["bytes"]]
    if not all(type(size) is int and size >= 0 for size in pair):
        raise ValueError(f"sizes {pair}")
    return pair


def _module(name: str, entry: Json, member: zipfile.ZipInfo) -> dict[str, list[int]]:
    """A module's rows, and that they are what the zip's directory says."""
    rows = {HOST: _pair(entry["host"])} | {sm: _pair(size) for sm, size in entry["sm_targets"].items()}
    rows = {sm: rows[sm] for sm in sorted(rows, key=_sm_key)}
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    for where, found in (("the shares of", sums), ("the manifest's entry of", _pair(entry))):
        if found != [member.compress_size, member.file_size]:
            raise ValueError(
                f"{where} module {name}: {found[0]} bytes compressed, {found[1]} installed; "
                f"the member {member.filename} has {member.compress_size} and {member.file_size}"
            )
    return rows


def report(wheel: Path) -> Json:
    """The size report of a wheel: sizes in bytes, [compressed, installed] for the rows of each module.

    All compressed sizes sum to `bytes`, the file's size, all installed ones to `installed_bytes`, what its members
    weigh unpacked. Raises ReportError for what is not a wheel, or whose manifest gives no sizes or wrong ones.
    """
    expected = (
        f"a wheel whose <package>/manifest.json, of schema_version {_MANIFEST_SCHEMA}, gives the sizes of its modules"
    )
    again = "give a wheel of this project; if it is one, build it again."
    try:
        size = wheel.stat().st_size
        with zipfile.ZipFile(wheel) as archive:
            members = {info.filename: info for info in archive.infolist()}
            manifests = [name for name in members if name.count("/") == 1 and name.endswith("/manifest.json")]
            if len(manifests) != 1 or len(members) != len(archive.infolist()):
                found = f"{len(archive.infolist())} members, {len(set(members))} names, manifests: {manifests}"
                raise ReportError(wheel.name, expected, found, again)
            manifest = json.loads(archive.read(manifests[0]))
        if manifest["schema_version"] != _MANIFEST_SCHEMA:
            found = f"a manifest of schema_version {manifest['schema_version']!r}"
            raise ReportError(wheel.name, expected, found, "build the wheel again with this version of smwheel.")
        package = manifests[0].partition("/")[0]
        libraries = defaultdict(list)
        for path, member in members.items():
            directory, _, file = path.rpartition("/")
            name = directory.rpartition("/")[2]
            if path.startswith(f"{package}/") and file == f"{name}.so":
                libraries[name].append(member)
        modules = {}
        for name, entry in sorted(manifest["modules"].items()):
            if len(libraries[name]) != 1:
                raise ValueError(f"{len(libraries[name])} members {name}/{name}.so, and module {name} in the manifest")
            modules[name] = _module(name, entry, libraries[name][0])
        facts = {key: str(manifest[key]) for key in ("cpu", "cuda_version", "sm_family")}
    except (*_DAMAGE, KeyError, TypeError, AttributeError) as error:
        found = f"no {error} in the manifest" if isinstance(error, KeyError) else str(error) or repr(error)
        raise ReportError(wheel.name, expected, found, again) from error
    installed = sum(member.file_size for member in members.values())
    rows = [row for module in modules.values() for row in module.values()]
    return {
        "schema_version": _SCHEMA,
        "wheel": wheel.name,
        "bytes": size,
        "installed_bytes": installed,
        **facts,
        "other": {
            "compressed_bytes": size - sum(row[0] for row in rows),
            "installed_bytes": installed - sum(row[1] for row in rows),
        },
        "modules": modules,
    }


def dump(report: Json) -> str:
    """A report as JSON, a line for each module. Same report, same text."""
    head = {key: value for key, value in report.items() if key != "modules"}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    modules = [f"  {json.dumps(name)}: {json.dumps(rows)}" for name, rows in sorted(report["modules"].items())]
    return "\n".join(["{", *lines, ' "modules": {', ",\n".join(modules), " }", "}"]) + "\n"


def write(path: Path, text: str) -> None:
    """Makes `text` the content of `path`, in one step: an interrupted run leaves the old file."""
    with tempfile.TemporaryDirectory(prefix=".part-", dir=path.parent) as scratch:
        part = Path(scratch, path.name)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)


def _check(report: Json) -> None:
    """Raises ValueError, KeyError or the like if a report is not one, or its sizes do not sum to its totals."""
    if report["schema_version"] != _SCHEMA:
        raise ValueError(f"a report of schema_version {report['schema_version']!r}, not {_SCHEMA}")
    rows = [row for module in report["modules"].values() for row in module.values()]
    rows.append([report["other"]["compressed_bytes"], report["other"]["installed_bytes"]])
    if not all(type(size) is int and size >= 0 for compressed, installed in rows for size in (compressed, installed)):
        raise ValueError("sizes that are no numbers of bytes")
    sums, totals = [sum(column) for column in zip(*rows, strict=True)], [report["bytes"], report["installed_bytes"]]
    if sums != totals or not report["bytes"]:
        raise ValueError(f"sizes that sum to {sums} (compressed, installed), and totals of {totals}")
    for sm in (sm for module in report["modules"].values() for sm in module):
        _sm_key(sm)
    for key in ("wheel", "cpu", "cuda_version", "sm_family"):
        if not isinstance(report[key], str):
            raise ValueError(f"{key}: {report[key]!r}")


def load(path: Path) -> Json:
    """The report of a wheel, or the one that `dump` wrote to a file. Raises ReportError."""
    if zipfile.is_zipfile(path) or path.suffix == ".whl":
        return report(path)
    try:
        found: Json = json.loads(path.read_text(encoding="utf-8"))
        _check(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"no {error} in it" if isinstance(error, KeyError) else str(error) or repr(error)
        todo = "write it anew: " + REFRESH.format(wheel="WHEEL", baseline=path.name)
        raise ReportError(path.name, "a wheel, or JSON that size_report.py report wrote", text, todo) from error
    return found


def megabytes(size: int, sign: bool = False) -> str:
    """A number of bytes in words, with one decimal: MB are 1,000,000 bytes, kB 1,000. `sign`: with a plus."""
    plus = "+" if sign else ""
    if abs(size) >= 999_950:
        return f"{size / 1e6:{plus}.1f} MB"
    return f"{size / 1e3:{plus}.1f} kB" if abs(size) >= 1000 else f"{size:{plus}d} bytes"


def _columns(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Rows as aligned text; the first `left` columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def plural(count: int, noun: str) -> str:
    """A number of things: `1 module`, `2 modules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def by_sm_target(report: Json) -> dict[str, tuple[int, int, int]]:
    """Compressed bytes, installed bytes and number of modules of each SM target, and of host code and the rest."""
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for rows in report["modules"].values():
        for sm, (compressed, installed) in rows.items():
            before = sums[sm]
            sums[sm] = (before[0] + compressed, before[1] + installed, before[2] + 1)
    ordered = {sm: sums[sm] for sm in sorted(sums, key=_sm_key)}
    return {**ordered, OTHER: (report["other"]["compressed_bytes"], report["other"]["installed_bytes"], 0)}


def coverage(report: Json) -> dict[str, dict[str, str | None]]:
    """Module -> compute capability of each GPU that people have -> the SM target that it loads there, or None.

    Of a module without device code it says HOST: that runs everywhere.
    """
    found: dict[str, dict[str, str | None]] = {}
    for name, rows in report["modules"].items():
        targets = [sm for sm in rows if sm != HOST]
        found[name] = {device: image_for(targets, device) if targets else HOST for device in DEVICES}
    return found


def _coverage_rows(report: Json) -> list[list[str]]:
    """The table of what runs where: a row for all modules of which the same is true."""
    alike: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for name, by_device in coverage(report).items():
        alike[tuple(by_device.values())].append(name)
    rows = [["compute capability", *DEVICES]]
    for images, names in sorted(alike.items(), key=lambda item: (-len(item[1]), item[1])):
        rows.append([names[0] if len(names) == 1 else f"{len(names)} modules", *(sm or "-" for sm in images)])
    return rows


def table(report: Json, largest: int = 20) -> str:
    """A report as text: totals, by SM target, the `largest` (module, SM target) pairs by compressed bytes, coverage."""
    total = report["bytes"]
    rows = [("SM target", "compressed", "installed", "% of file", "modules")]
    for sm, (compressed, installed, modules) in by_sm_target(report).items():
        rows.append(
            (
                sm,
                f"{compressed:,}",
                f"{installed:,}",
                f"{compressed / total * 100:.1f}",
                str(modules) if modules else "",
            )
        )
    count = str(len(report["modules"]))
    rows.append(("total", f"{total:,}", f"{report['installed_bytes']:,}", "100.0", count))
    pairs = [
        (compressed, installed, name, sm)
        for name, module in report["modules"].items()
        for sm, (compressed, installed) in module.items()
        if sm != HOST
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[2], _sm_key(pair[3])))
    largest_rows = [("module", "SM target", "compressed", "installed", "% of file")]
    largest_rows += [
        (name, sm, f"{compressed:,}", f"{installed:,}", f"{compressed / total * 100:.1f}")
        for compressed, installed, name, sm in pairs[:largest]
    ]
    return "\n".join(
        [
            f"{report['wheel']}: {total} bytes ({megabytes(total)}), installed {report['installed_bytes']} bytes "
            f"({megabytes(report['installed_bytes'])})",
            f"CUDA {report['cuda_version']}, {report['cpu']}, SM family {report['sm_family']}, "
            f"{plural(len(report['modules']), 'module')}",
            "",
            "Bytes by SM target:",
            *_columns(rows, 1),
            "",
            f"The largest of {len(pairs)} (module, SM target) pairs, in bytes:",
            *_columns(largest_rows, 2),
            "",
            "Which image each GPU loads (-: none runs there):",
            *_columns(_coverage_rows(report), 1),
        ]
    )


@dataclass(frozen=True)
class Change:
    """What became of an SM target, a module or a pair of both.

    what: `added`, `removed`, `grew` or `shrank`
    bytes: by how much, in compressed bytes; less than 0 if it is smaller now
    modules: the modules in which it is there anew, or no longer, or of another installed size
    """

    name: str
    what: str
    bytes: int
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """What changed from one report to another, largest change first. Sizes are compressed bytes.

    Both `sm_targets` (with host code and the rest) and `modules` (with the rest) sum to `growth`.
    """

    old_wheel: str
    new_wheel: str
    old_bytes: int
    new_bytes: int
    sm_targets: tuple[Change, ...]
    modules: tuple[Change, ...]
    pairs: tuple[Change, ...]

    @property
    def growth(self) -> int:
        """By how many bytes the file is larger."""
        return self.new_bytes - self.old_bytes

    @property
    def percent(self) -> float:
        """The growth in percent of the old file."""
        return self.growth / self.old_bytes * 100


# Compressed and installed bytes by (module, SM target).
_Sizes = dict[tuple[str, str], tuple[int, int]]


def _sizes(report: Json) -> _Sizes:
    """The sizes of a report; what is of no module has an empty name for it."""
    other = report["other"]
    sizes = {(name, sm): (row[0], row[1]) for name, rows in report["modules"].items() for sm, row in rows.items()}
    return {**sizes, ("", OTHER): (other["compressed_bytes"], other["installed_bytes"])}


def _changes(old: _Sizes, new: _Sizes, part: Callable[[tuple[str, str]], str]) -> tuple[Change, ...]:
    """The changes of what `part` calls each pair, largest first."""
    before = {part(pair) for pair in old}
    after = {part(pair) for pair in new}
    grown: dict[str, int] = defaultdict(int)
    modules: dict[str, set[str]] = defaultdict(set)
    for pair in old.keys() | new.keys():
        before_pair, after_pair = old.get(pair), new.get(pair)
        grown[part(pair)] += (after_pair or (0, 0))[0] - (before_pair or (0, 0))[0]
        # Compressed shares move a little in every row of a member when one of them changes; installed sizes do not.
        if not before_pair or not after_pair or before_pair[1] != after_pair[1]:
            modules[part(pair)].add(pair[0])
    changes = []
    for name, bytes_ in grown.items():
        what = "added" if name not in before else "removed" if name not in after else "grew" if bytes_ > 0 else "shrank"
        if bytes_ or what in ("added", "removed"):
            changes.append(Change(name, what, bytes_, tuple(sorted(modules[name]))))
    return tuple(sorted(changes, key=lambda change: (-abs(change.bytes), change.name)))


def compare(old: Json, new: Json) -> Comparison:
    """Compares two reports."""
    before, after = _sizes(old), _sizes(new)
    return Comparison(
        old["wheel"],
        new["wheel"],
        old["bytes"],
        new["bytes"],
        _changes(before, after, lambda pair: pair[1]),
        _changes(before, after, lambda pair: pair[0] or OTHER),
        _changes(before, after, lambda pair: f"{pair[0]} for {pair[1]}" if pair[0] and pair[1] != HOST else ""),
    )


_NAMES = {HOST: "host code", OTHER: "the rest (package files, metadata, zip headers)"}
_VERBS = {"added": "was added", "removed": "was removed", "grew": "grew", "shrank": "shrank"}
_PLURAL_VERBS = {"added": "were added", "removed": "were removed", "grew": "grew", "shrank": "shrank"}


def describe(comparison: Comparison, largest: int = 5) -> str:
    """In words what grew: the total, the SM targets and the modules that account for it, the `largest` pairs.

    What accounts for less than 1 % of the growth is summed up.
    """
    growth = comparison.growth

    def amount(bytes_: int) -> str:
        of_growth = (
            f" ({bytes_ / growth * 100:.1f} % of the {'growth' if growth > 0 else 'reduction'})" if growth else ""
        )
        return megabytes(bytes_, sign=True) + of_growth

    def named(changes: Sequence[Change]) -> str:
        return ", ".join(f"{change.name} {megabytes(change.bytes, sign=True)}" for change in changes)

    head = f"{megabytes(growth, sign=True)} ({comparison.percent:+.1f} %): from {megabytes(comparison.old_bytes)} "
    lines = [head + f"({comparison.old_wheel}) to {megabytes(comparison.new_bytes)} ({comparison.new_wheel})"]
    if not comparison.pairs and not comparison.sm_targets:
        return lines[0] + "; no module and no SM target has another size."

    def small(change: Change) -> bool:
        return abs(change.bytes) * 100 < abs(growth) and change.what not in ("added", "removed")

    for change in (change for change in comparison.sm_targets if not small(change)):
        name = _NAMES.get(change.name, f"SM target {change.name}")
        where = "" if change.name == OTHER or not change.modules else f" in {plural(len(change.modules), 'module')}"
        lines.append(f"  {name} {_VERBS[change.what]}: {amount(change.bytes)}{where}")
    rest = [change for change in comparison.sm_targets if small(change)]
    if rest:
        names = ", ".join(_NAMES.get(change.name, change.name) for change in rest)
        lines.append(f"  together {amount(sum(change.bytes for change in rest))}: {names}")
    for what in ("added", "removed", "grew", "shrank"):
        changes = [change for change in comparison.modules if change.what == what and change.name != OTHER]
        if len(changes) == 1:
            lines.append(f"  module {changes[0].name} {_VERBS[what]}: {amount(changes[0].bytes)}")
        elif changes:
            total = amount(sum(change.bytes for change in changes))
            lines.append(f"  {len(changes)} modules {_PLURAL_VERBS[what]}: {total}; most of all {named(changes[:3])}")
    pairs = [
        change for change in comparison.pairs if change.name and (not growth or (change.bytes > 0) == (growth > 0))
    ]
    if pairs:
        lines.append(f"  by module and SM target, most of all {named(pairs[:largest])}")
    return "\n".join(lines)


def check_growth(new: Json, baseline: Json, limit_percent: float, refresh: str | None = None) -> str | None:
    """The message that a wheel fails with if it has grown by more than `limit_percent` of its baseline, or None.

    refresh: the command that writes the baseline anew.
    """
    comparison = compare(baseline, new)
    if comparison.growth * 100 <= limit_percent * comparison.old_bytes:
        return None
    cause = describe(comparison).replace("\n", "\n  ")
    command = refresh or REFRESH.format(wheel=new["wheel"], baseline="BASELINE")
    return (
        f"{new['wheel']} has grown by more than it may in one step.\n"
        f"  found:    {new['bytes']} bytes, {comparison.percent:+.1f} % of its baseline's {baseline['bytes']}\n"
        f"  expected: at most {limit_percent:+g} %\n"
        f"  cause:    {cause}\n"
        f"  To do: make smaller what grew; or, if the growth is meant, refresh the baseline:\n"
        f"    {command}"
    )


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("report", help="what a wheel weighs, by module and SM target")
    command.add_argument("wheel", type=Path)
    command.add_argument("--json", type=Path, metavar="OUT", help="the report, for programs and as a baseline")
    command.add_argument(
        "--text", type=Path, metavar="OUT", help="the report, for people; on the terminal without either"
    )
    command = commands.add_parser("compare", help="what grew from one wheel to another")
    command.add_argument("old", type=Path, help="a wheel, or a report in JSON")
    command.add_argument("new", type=Path, help="a wheel, or a report in JSON")
    args = parser.parse_args()
    try:
        if args.command == "compare":
            print(describe(compare(load(args.old), load(args.new))))
            return 0
        found = report(args.wheel)
        if args.json:
            write(args.json, dump(found))
        if args.text:
            write(args.text, table(found) + "\n")
        if not (args.json or args.text):
            print(table(found))
    except (ReportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
