"""One page about a directory of wheels: what takes the bytes, what runs where, what grew, how much room is left."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from size_report import (
    HOST,
    OTHER,
    Comparison,
    Json,
    ReportError,
    by_sm_target,
    compare,
    coverage,
    describe,
    load,
    megabytes,
    plural,
)
from sm_targets import DEVICES, parse

import smwheel  # noqa: F401  the build's programs are found through it
from smwheel.errors import SmwheelError
from smwheel.release_set import ASSET_LIMIT

_REPORT = ".report.json"


@dataclass(frozen=True)
class Limit:
    """What the matrix says of a wheel: sizes in bytes that it must be under, and the devices that it is for."""

    asset_limit: int
    budget: int | None
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Wheel:
    """A wheel of the page: its size report, its limits, and what changed since its baseline."""

    report: Json
    limit: Limit
    growth: Comparison | None

    @property
    def label(self) -> str:
        """Its name as that of a target in //wheels: cu130_x86_64_sm12x."""
        return label(self.report)


def label(report: Json) -> str:
    """The name of a wheel's target in //wheels."""
    return f"cu{report['cuda_version'].replace('.', '')}_{report['cpu']}_{report['sm_family']}"


def _order(report: Json) -> tuple[Any, ...]:
    """CUDA versions and families by their numbers: sm9x before sm10x."""
    cuda, family = (
        [int(number) for number in re.findall(r"\d+", report[key])] for key in ("cuda_version", "sm_family")
    )
    return cuda, report["cpu"], family, report["wheel"]


def _load(path: Path) -> Json:
    try:
        return load(path)
    except ReportError as error:
        problem = SmwheelError("", "", "", "")
        problem.args = (str(error),)  # reads as SmwheelError does
        raise problem from error


def find_reports(path: Path, what: str) -> list[Json]:
    """The size reports of a wheel, of a report in JSON, or of all of them in a directory and below.

    In a directory, reports are files that end in .report.json, or .json if it has none of those and no wheel. Raises
    SmwheelError if there is none; `what` is for the message.
    """
    if path.is_dir():
        paths = sorted([*path.rglob("*.whl"), *path.rglob(f"*{_REPORT}")]) or sorted(path.rglob("*.json"))
    else:
        paths = [path]
    if not paths:
        raise SmwheelError(
            f"{path}: {what} has no wheel.",
            f"wheels, or size reports that end in {_REPORT}",
            "neither",
            "give a directory of wheels, or build reports: ./bazelw build //wheels:NAME --output_groups=report",
        )
    return [_load(path) for path in paths]


def _by_label(reports: Iterable[Json], what: str) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for report in sorted(reports, key=_order):
        name = label(report)
        # A wheel and its own report may lie side by side.
        if name in found and found[name] != report:
            files = f"{found[name]['wheel']} and {report['wheel']}"
            raise SmwheelError(f"{what} has two wheels {name}.", "one", files, "give the files of one release.")
        found[name] = report
    return found


def read_limits(path: Path) -> dict[str, Limit]:
    """The limits of a resolved matrix, by label. Raises SmwheelError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        limit = int(content["asset_limit"])
        return {
            label({**entry, "sm_family": entry["family"]}): Limit(
                limit, int(entry["budget"]), tuple(map(str, entry.get("devices", ())))
            )
            for entry in content["wheels"]
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SmwheelError(
            f"{path} is not the resolved matrix.",
            "JSON with asset_limit, and cuda_version, cpu, family and budget of each of its wheels",
            f"no {error} in it" if isinstance(error, KeyError) else str(error),
            "./bazelw build //wheels:matrix.json, and give bazel-bin/wheels/matrix.json",
        ) from error


def collect(directory: Path, baselines: Sequence[Path], matrix: Path | None) -> list[Wheel]:
    """Reads the wheels, their baselines and their limits. Raises SmwheelError."""
    reports = _by_label(find_reports(directory, "DIRECTORY"), str(directory))
    before = _by_label([report for path in baselines for report in find_reports(path, "--baseline")], "--baseline")
    limits = read_limits(matrix) if matrix else {}
    none = Limit(ASSET_LIMIT, None, ())
    return [
        Wheel(report, limits.get(name, none), compare(before[name], report) if name in before else None)
        for name, report in reports.items()
    ]


def _sm_name(sm: str) -> str:
    return {HOST: "host code", OTHER: "the rest"}.get(sm, sm)


def _sm_order(names: Iterable[str]) -> list[str]:
    """Host code, SM targets in ascending order, the rest."""
    return sorted(names, key=lambda sm: (0, 0, 0, "") if sm == HOST else (2, 0, 0, "") if sm == OTHER else _key(sm))


def _key(sm: str) -> tuple[int, int, int, str]:
    target = parse(sm)
    return 1, target.major, target.minor, target.suffix


def hues(wheels: Sequence[Wheel]) -> dict[str, int]:
    """A hue in degrees for each SM target of any wheel, as far apart as can be."""
    names = _sm_order({sm for wheel in wheels for sm in by_sm_target(wheel.report)})
    return {sm: 360 * number // len(names) for number, sm in enumerate(names)}


def treemap(wheels: Sequence[Wheel]) -> Json:
    """The treemap's data: module names once, and for each wheel and SM target the numbers of modules and their bytes.

    Each list is [module, bytes, module, bytes …], largest first, in compressed bytes.
    """
    names = sorted({name for wheel in wheels for name in wheel.report["modules"]})
    number = {name: index for index, name in enumerate(names)}
    data = []
    for wheel in wheels:
        pairs: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, rows in wheel.report["modules"].items():
            for sm, (compressed, _) in rows.items():
                pairs[sm].append((-compressed, number[name]))
        targets = [
            [_sm_name(sm), sm, [value for size, module in sorted(pairs[sm]) for value in (module, -size)]]
            for sm in _sm_order(pairs)
        ]
        data.append([wheel.label, wheel.report["bytes"], targets, wheel.report["other"]["compressed_bytes"]])
    return {"modules": names, "wheels": data}


def covered(wheel: Wheel) -> list[Json]:
    """The rows of the coverage table: modules that load the same image on every device, most first."""
    by_targets: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, rows in wheel.report["modules"].items():
        by_targets[tuple(rows)].append(name)
    # What a module loads depends on its SM targets alone, and few sets of them are different.
    first = {names[0]: wheel.report["modules"][names[0]] for names in by_targets.values()}
    alike: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    loaded = coverage({**wheel.report, "modules": first})
    for names in by_targets.values():
        alike[tuple(loaded[names[0]].values())] += names
    ordered = sorted((tuple(sorted(names)), images) for images, names in alike.items())
    ordered.sort(key=lambda row: -len(row[0]))
    return [
        {
            "title": names[0] if len(names) == 1 else plural(len(names), "module"),
            "names": list(names) if len(names) > 1 else [],
            "images": [
                {
                    "text": image or "none",
                    "sm": image or "",
                    # A module without an image for a device that the wheel is for.
                    "missing": image is None and device in wheel.limit.devices,
                }
                for device, image in zip(DEVICES, images, strict=True)
            ],
        }
        for names, images in ordered
    ]


def _bar(value: int, largest: int) -> str:
    """A bar's width in percent of the largest."""
    return f"{abs(value) / largest * 100:.2f}" if largest else "0"


def _growth(wheel: Wheel) -> Json | None:
    if not wheel.growth:
        return None
    head, *lines = describe(wheel.growth).splitlines()
    changes = [*wheel.growth.sm_targets[:12]]
    largest = max((abs(change.bytes) for change in changes), default=0)
    return {
        "head": head,
        "lines": [line.strip() for line in lines],
        "bars": [
            {
                "name": _sm_name(change.name),
                "what": change.what,
                "size": megabytes(change.bytes, sign=True),
                "width": _bar(change.bytes, largest),
                "less": change.bytes < 0,
            }
            for change in changes
        ],
    }


def _room(wheel: Wheel) -> Json:
    """How far a wheel is from what it must stay under."""
    size = wheel.report["bytes"]
    bounds = [("budget", wheel.limit.budget)] if wheel.limit.budget else []
    bounds.append(("asset limit", wheel.limit.asset_limit))
    name, nearest = min(bounds, key=lambda bound: bound[1] or 0)
    assert nearest
    left = nearest - size
    return {
        "size": megabytes(size),
        "bytes": size,
        "budget": megabytes(wheel.limit.budget) if wheel.limit.budget else "none",
        "limit": megabytes(wheel.limit.asset_limit),
        "bound": name,
        "nearest": nearest,
        "percent": f"{size / nearest * 100:.1f}",
        # Sizes must be under a bound, strictly.
        "over": left <= 0,
        "left": megabytes(left) if left > 0 else f"too large by {megabytes(1 - left)}",
    }


def _stack(wheel: Wheel, largest: int) -> list[Json]:
    """The parts of a wheel's bar."""
    return [
        {
            "sm": sm,
            "name": _sm_name(sm),
            "size": megabytes(compressed),
            "bytes": compressed,
            "installed": megabytes(installed),
            "modules": modules,
            "percent": f"{compressed / wheel.report['bytes'] * 100:.1f}",
            "width": f"{compressed / largest * 100:.3f}",
        }
        for sm, (compressed, installed, modules) in by_sm_target(wheel.report).items()
    ]


def render(wheels: Sequence[Wheel], baselines: bool) -> str:
    """The page. Same wheels, same bytes. baselines: whether any were given."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    largest = max(wheel.report["bytes"] for wheel in wheels)
    colours: Mapping[str, int] = hues(wheels)
    total = sum(wheel.report["bytes"] for wheel in wheels)
    shown = [
        {
            "label": wheel.label,
            "file": wheel.report["wheel"],
            "cuda": wheel.report["cuda_version"],
            "cpu": wheel.report["cpu"],
            "family": wheel.report["sm_family"],
            "modules": plural(len(wheel.report["modules"]), "module"),
            "installed": megabytes(wheel.report["installed_bytes"]),
            "devices": wheel.limit.devices,
            "room": _room(wheel),
            "stack": _stack(wheel, largest),
            "growth": _growth(wheel),
            "coverage": covered(wheel),
        }
        for wheel in wheels
    ]
    # `<` would end the script element.
    data = json.dumps(treemap(wheels), separators=(",", ":")).replace("<", "\\u003c")
    template = environment.get_template("report.html")
    return template.render(
        wheels=shown,
        hues=colours,
        names={sm: _sm_name(sm) for sm in colours},
        devices=DEVICES,
        data=data,
        total=megabytes(total),
        count=plural(len(wheels), "wheel"),
        baselines=baselines,
    )
