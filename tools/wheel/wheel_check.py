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


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--limit", type=int, required=True, help="bytes that a wheel must stay below, by its host")
    parser.add_argument(
        "--budget", type=int, required=True, help="bytes that this wheel must stay below, by the matrix"
    )
    parser.add_argument("--stamp", type=Path, required=True)
    args = parser.parse_args()
    with zipfile.ZipFile(args.wheel) as wheel:
        manifest = json.loads(wheel.read(next(n for n in wheel.namelist() if n.endswith("/manifest.json"))))
    message = check_size(
        args.wheel.name,
        args.wheel.stat().st_size,
        [
            (
                "the size at which a release asset is refused",
                args.limit,
                "ship fewer modules or SM targets in this wheel.",
            ),
            (
                "its budget in wheels/matrix.bzl",
                args.budget,
                "make a module smaller, drop an SM target, or raise the budget if the growth is meant.",
            ),
        ],
        manifest,
    )
    if message:
        print(f"error: {message}", file=sys.stderr)
        return 1
    args.stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
