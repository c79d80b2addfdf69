"""What is in a wheel, as text and for programs; and what runs where after a change."""

from __future__ import annotations

from typing import Any

from size_report import coverage, megabytes, plural, table

from smwheel.wheel_file import WheelFile

Json = dict[str, Any]


def contents(wheel: WheelFile, digest: str | None = None) -> Json:
    """All that is known of a wheel, as JSON. Sizes in bytes; `sha256` only if `digest` is given."""
    return {
        "wheel": wheel.path.name,
        **({"sha256": digest} if digest else {}),
        "bytes": wheel.size,
        "distribution": wheel.name,
        "version": wheel.version,
        "tag": wheel.tag,
        "requires_python": wheel.requires_python,
        "cuda_version": wheel.cuda_version,
        "minimum_driver": wheel.minimum_driver,
        "cpu": wheel.cpu,
        "sm_family": wheel.sm_family,
        "sm_targets": list(wheel.sm_targets),
        "devices": list(wheel.devices),
        "coverage": coverage(wheel.report),
        "sizes": wheel.report,
        "members": [
            {"name": entry.name, "bytes": entry.size, "compressed_bytes": entry.compressed_size}
            for entry in wheel.content.entries
        ],
    }


def describe(wheel: WheelFile, digest: str | None = None, members: bool = False, largest: int = 20) -> str:
    """What `contents` says, for people; `members`: with every file, `largest`: so many (module, SM target) pairs."""
    entries = wheel.content.entries
    modules = [entry for entry in entries if entry.name.endswith(".so")]
    others = [entry for entry in entries if entry not in modules]
    facts = [
        ("version", f"{wheel.name} {wheel.version}"),
        ("tag", f"{wheel.tag}, Python {wheel.requires_python or 'any'}"),
        ("CUDA", f"{wheel.cuda_version}, driver {wheel.minimum_driver} or newer"),
        ("SM targets", ", ".join(wheel.sm_targets)),
        ("runs on", f"compute capability {', '.join(wheel.devices)}"),
        (
            "contents",
            f"{plural(len(modules), 'module')}, {megabytes(sum(entry.size for entry in modules))} installed; "
            f"{plural(len(others), 'other file')}, {megabytes(sum(entry.size for entry in others))}",
        ),
        *([("sha256", f"{digest}; every member was inflated and compared with RECORD")] if digest else []),
    ]
    lines = [f"{what + ':':<12}{value}" for what, value in facts]
    if members:
        width = max(len(str(entry.size)) for entry in entries)
        lines += ["", "Files, bytes installed and compressed:"]
        lines += [f"  {entry.size:>{width}}  {entry.compressed_size:>{width}}  {entry.name}" for entry in entries]
    return "\n".join([*lines, "", table(wheel.report, largest)])


def coverage_changes(old: Json, new: Json) -> list[Json]:
    """Where another image runs, by module and device, in modules that both reports have; None: none runs there."""
    before, after = coverage(old), coverage(new)
    return [
        {"module": module, "device": device, "old": before[module][device], "new": after[module][device]}
        for module in sorted(before.keys() & after.keys())
        for device in before[module]
        if before[module][device] != after[module][device]
    ]


def describe_coverage_changes(changes: list[Json]) -> str:
    """The changes for people: a line for all modules of which the same is true."""
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for change in changes:
        alike.setdefault((change["device"], change["old"], change["new"]), []).append(change["module"])
    lines = []
    for (device, old, new), modules in alike.items():
        names = (
            modules[0]
            if len(modules) == 1
            else f"{len(modules)} modules ({', '.join(modules[:3])}{', …' if len(modules) > 3 else ''})"
        )
        text = (
            f"loads {new} instead of {old}"
            if old and new
            else f"loads {new}, before nothing"
            if new
            else f"no longer runs (it loaded {old})"
        )
        lines.append(f"  on {device}, {names}: {text}")
    return "\n".join(lines)
