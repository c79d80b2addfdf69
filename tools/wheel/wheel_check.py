"""Checks a built wheel against what it must be: WheelCheck. Part of building the wheel.

wheel_check.py --wheel W.whl --limit BYTES --budget BYTES --stamp OUT
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from sm_targets import runs_on


def largest(manifest: dict[str, Any], count: int) -> list[tuple[str, str, int]]:
    """The (module, SM target, bytes) triples of a manifest with the most bytes, largest first.

    A module's compressed bytes are shared out among its SM targets by what each takes in the fatbins.
    """
    triples = []
    for name, module in manifest["modules"].items():
        total = sum(module["sm_targets"].values())
        for sm, size in module["sm_targets"].items():
            triples.append((name, sm, module["compressed_bytes"] * size // total))
    return sorted(triples, key=lambda triple: (-triple[2], triple[0], triple[1]))[:count]


def check_size(name: str, size: int, limits: list[tuple[str, int, str]], manifest: dict[str, Any]) -> str | None:
    """The message that a wheel of `size` bytes fails with, or None. `limits`: what it is, bytes, what to do."""
    problems = []
    for what, limit, todo in limits:
        if size >= limit:
            problems.append(
                f"{name} is too large.\n"
                f"  found:    {size} bytes\n"
                f"  expected: under {limit} bytes, {what}\n"
                f"  excess:   {size - limit + 1} bytes ({(size / limit - 1) * 100:+.1f} %)\n"
                f"  To do: {todo}"
            )
    if not problems:
        return None
    rows = [f"  {bytes_:>12}  {module}  {sm}" for module, sm, bytes_ in largest(manifest, 10)]
    return "\n".join([*problems, "The ten largest (module, SM target) pairs, in compressed bytes:", *rows])


def check_promises(
    name: str, devices: list[str], supports: dict[str, list[str]], manifest: dict[str, Any]
) -> str | None:
    """The message that a wheel fails with if a module that supports a promised device has no image for it, or None."""
    problems = []
    for module, entry in sorted(manifest["modules"].items()):
        for device in devices:
            could = [sm for sm in supports.get(module, []) if runs_on(sm, device)]
            if could and not any(runs_on(sm, device) for sm in entry["sm_targets"]):
                problems.append(
                    f"  {module} has images for {', '.join(entry['sm_targets']) or 'no SM target'}, none of which runs on "
                    f"compute capability {device}; it can be built for {', '.join(could)}"
                )
    if not problems:
        return None
    return "\n".join(
        [
            f"{name} promises GPUs that some of its modules do not run on.",
            f"  expected: every module that supports a device has an image for it ({', '.join(devices)})",
            *problems,
            "  To do: add the SM target to the wheel's cell in wheels/matrix.bzl, or take the device out of the promise.",
        ]
    )


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--limit", type=int, required=True, help="bytes that a wheel must stay below, by its host")
    parser.add_argument(
        "--budget", type=int, required=True, help="bytes that this wheel must stay below, by the matrix"
    )
    parser.add_argument("--device", action="append", default=[], help="compute capability that the wheel promises")
    parser.add_argument("--supports", action="append", default=[], help="MODULE=SM targets that it can be built for")
    parser.add_argument("--stamp", type=Path, required=True)
    args = parser.parse_args()
    with zipfile.ZipFile(args.wheel) as wheel:
        manifest = json.loads(wheel.read(next(n for n in wheel.namelist() if n.endswith("/manifest.json"))))
    supports = {module: sms.split(",") for module, _, sms in (text.partition("=") for text in args.supports)}
    limits = [
        ("the size at which a release asset is refused", args.limit, "ship fewer modules or SM targets in this wheel."),
        (
            "its budget in wheels/matrix.bzl",
            args.budget,
            "make a module smaller, drop an SM target, or raise the budget if the growth is meant.",
        ),
    ]
    messages = [
        check_size(args.wheel.name, args.wheel.stat().st_size, limits, manifest),
        check_promises(args.wheel.name, args.device, supports, manifest),
    ]
    if any(messages):
        print("\n".join(f"error: {message}" for message in messages if message), file=sys.stderr)
        return 1
    args.stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
