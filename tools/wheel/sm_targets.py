"""Which device an image for an SM target runs on.

The rules are NVIDIA's (CUDA C++ Programming Guide, "Feature availability"; "Application compatibility"): SASS for X.Y
runs on compute capability X.Z with Z >= Y; with suffix `a` on exactly X.Y; with suffix `f` on the family of X.Y, which
is the same major and an equal or higher minor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Compute capabilities of the GPUs that people have (NVIDIA's "CUDA GPU Compute Capability" page).
DEVICES = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]


@dataclass(frozen=True, order=True)
class SmTarget:
    """An SM target: `9.0a` is SmTarget(9, 0, "a")."""

    major: int
    minor: int
    suffix: str = ""


def parse(text: str) -> SmTarget:
    """Parses `8.0`, `9.0a`, `12.0f`. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+)\.(\d)([af]?)", text)
    if not match:
        raise ValueError(f"expected an SM target such as 8.0, 9.0a or 12.0f, found {text!r}")
    return SmTarget(int(match[1]), int(match[2]), match[3])


def runs_on(sm_target: str, device: str) -> bool:
    """Whether SASS for `sm_target` runs on a device of that compute capability."""
    image, gpu = parse(sm_target), parse(device)
    if image.suffix == "a":
        return (image.major, image.minor) == (gpu.major, gpu.minor)
    return image.major == gpu.major and image.minor <= gpu.minor
