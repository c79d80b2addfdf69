"""Checks a built wheel on its bytes against what it must be: WheelCheck. Part of building the wheel.

    wheel_check.py --wheel W.whl --spec SPEC.json --facts LIST [--baseline REPORT.json] --stamp OUT

SPEC.json is what the rule knows; LIST names each module and what module_check.py measured of it, a word a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import elf_gate
import size_report
import wheel_zip
from sm_targets import image_for, runs_on

Json = dict[str, Any]


def largest(manifest: Json, count: int) -> list[tuple[str, str, int]]:
    """The (module, SM target or `host`, compressed bytes) triples of a manifest with the most bytes, largest first."""
    triples = [
        (name, part, entry["compressed_bytes"])
        for name, module in manifest["modules"].items()
        for part, entry in {"host": module["host"], **module["sm_targets"]}.items()
    ]
    return sorted(triples, key=lambda triple: (-triple[2], triple[0], triple[1]))[:count]


def check_size(name: str, size: int, spec: Json, manifest: Json) -> list[str]:
    """The messages that a wheel of `size` bytes fails with: it must be under its limit and its budget."""
    problems = []
    for what, limit, todo in (
        (
            "the size at which a release asset is refused",
            spec["asset_limit"],
            "ship fewer modules or SM targets in this wheel.",
        ),
        (
            "its budget in wheels/matrix.bzl",
            spec["budget"],
            "make a module smaller, drop an SM target, or raise the budget if the growth is meant.",
        ),
    ):
        if size >= limit:
            problems.append(
                f"{name} is too large.\n"
                f"  found:    {size} bytes\n"
                f"  expected: under {limit} bytes, {what}\n"
                f"  excess:   {size - limit + 1} bytes ({(size / limit - 1) * 100:+.1f} %)\n"
                f"  To do: {todo}"
            )
    if problems:
        rows = [f"  {bytes_:>12}  {module}  {part}" for module, part, bytes_ in largest(manifest, 10)]
        header = "The ten largest (module, SM target) pairs, in compressed bytes:"
        problems[-1] = "\n".join([problems[-1], header, *rows])
    return problems


def check_promises(name: str, spec: Json, supports: dict[str, list[str]], manifest: Json) -> list[str]:
    """The message that a wheel fails with if a module that supports a promised device has no image that runs there.

    supports: name of a module -> all SM targets that it can be built for.
    """
    problems = []
    for module, entry in sorted(manifest["modules"].items()):
        for device in spec["devices"]:
            could = [sm for sm in supports[module] if runs_on(sm, device)]
            if could and not image_for(entry["sm_targets"], device):
                problems.append(
                    f"  {module} has images for {', '.join(entry['sm_targets']) or 'no SM target'}, none of which runs on "
                    f"compute capability {device}; it can be built for {', '.join(could)}"
                )
    if not problems:
        return []
    return [
        "\n".join(
            [
                f"{name} promises GPUs that some of its modules do not run on.",
                f"  expected: every module that supports a device has an image for it ({', '.join(spec['devices'])})",
                *problems,
                "  To do: add the SM target to the wheel's cell in wheels/matrix.bzl, or take the device out of the promise.",
            ]
        )
    ]


def check_contents(name: str, spec: Json, manifest: Json, members: dict[str, str], facts: dict[str, Json]) -> list[str]:
    """Messages if what is packed is not what was measured.

    members: sha256 by name, as found in the zip; facts: what was measured, by module.
    """
    directory = f"{spec['package']}/{spec['modules_directory']}"
    expected = {f"{directory}/{module}/{module}.so": entry["sha256"] for module, entry in facts.items()}
    found = {path: sha256 for path, sha256 in members.items() if path.startswith(directory + "/")}
    problems = [
        f"{name}: {path} is not the module that was checked.\n"
        f"  expected: {expected.get(path, 'no such file')}\n"
        f"  found:    {found.get(path, 'no such file')}\n"
        f"  To do: build the wheel again; if that does not help, something between ModuleCheck and WheelPack is wrong."
        for path in sorted(expected.keys() | found.keys())
        if expected.get(path) != found.get(path)
    ]
    listed = {module: entry["sha256"] for module, entry in manifest["modules"].items()}
    measured = {module: entry["sha256"] for module, entry in facts.items()}
    if listed != measured:
        wrong = sorted(m for m in listed.keys() | measured.keys() if listed.get(m) != measured.get(m))
        problems.append(
            f"{name}: its manifest is about other modules than it holds: {', '.join(wrong)}.\n"
            f"  expected: the sha256 of each module\n"
            f"  To do: build the wheel again; if that does not help, wheel_pack.py is wrong."
        )
    return problems


def check_tag(name: str, spec: Json, facts: dict[str, Json]) -> list[str]:
    """The message that a wheel fails with if its platform tag is not the one that its modules deserve."""
    measured = {module: elf_gate.ElfFacts(**entry["elf"]) for module, entry in facts.items()}
    message = elf_gate.check_tag(name, spec["tag"].rpartition("-")[2], measured)
    return [message] if message else []


def read_facts(path: Path) -> dict[str, Json]:
    """Reads LIST: module -> what was measured of it."""
    words = iter(path.read_text().splitlines())
    return {name: json.loads(Path(next(words)).read_text()) for name in words}


def check(
    wheel: Path, spec: Json, supports: dict[str, list[str]], facts: dict[str, Json], baseline: Path | None
) -> list[str]:
    """All messages that a wheel fails with; the one about its zip alone if that is damaged."""
    try:
        content = wheel_zip.read(wheel)
        members = wheel_zip.verify(wheel, content)
        report = size_report.report(wheel)
        before = size_report.load(baseline) if baseline else None
    except (wheel_zip.WheelError, size_report.ReportError) as error:
        return [str(error)]
    manifest = json.loads(content.texts["manifest.json"])
    refresh = f"python3 tools/release/baselines.py {spec['name']}"
    grown = before and size_report.check_growth(report, before, float(spec["growth_limit"]), refresh)
    return [
        *check_size(wheel.name, content.size, spec, manifest),
        *([grown] if grown else []),
        *check_contents(wheel.name, spec, manifest, members, facts),
        *check_promises(wheel.name, spec, supports, manifest),
        *check_tag(wheel.name, spec, facts),
    ]


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("wheel", "spec", "facts", "stamp"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    parser.add_argument("--supports", action="append", default=[], help="MODULE=SM targets that it can be built for")
    parser.add_argument("--baseline", type=Path, help="a report of the wheel as it was (size_report.py)")
    args = parser.parse_args()
    supports = {module: sms.split(",") if sms else [] for module, _, sms in (s.partition("=") for s in args.supports)}
    problems = check(args.wheel, json.loads(args.spec.read_text()), supports, read_facts(args.facts), args.baseline)
    if problems:
        print("\n".join(f"error: {problem}" for problem in problems), file=sys.stderr)
        return 1
    args.stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
