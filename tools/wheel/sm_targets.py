"""The algebra of SM targets, for Python programs.

toolchains/cuda/sm_targets.bzl is the same for the build; both are tested on tests/sm_targets/cases.json. The rules are
NVIDIA's (CUDA C++ Programming Guide, "Application Compatibility" and "Feature Availability").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Compute capabilities of the GPUs that people have (NVIDIA's "CUDA GPU Compute Capability" page).
DEVICES = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]


@dataclass(frozen=True, order=True)
class SmTarget:
    """An SM target: `9.0a` is SmTarget(9, 0, "a"). They are ordered by major, minor, suffix."""

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}"

    def runs_on(self, device: SmTarget) -> bool:
        """Whether an image for it runs on a device of that compute capability.

        SASS for X.Y runs on X.Z with Z >= Y; with suffix `a` on exactly X.Y; with `f` on the family of X.Y: the same
        major and an equal or higher minor. PTX runs on that and all later devices; with a suffix, where SASS does.
        """
        if self.suffix == "a":
            return (self.major, self.minor) == (device.major, device.minor)
        if self.ptx and not self.suffix:
            return (self.major, self.minor) <= (device.major, device.minor)
        return self.major == device.major and self.minor <= device.minor


def parse(text: str) -> SmTarget:
    """Parses `8.0`, `9.0a`, `12.0f`, `90`, `100a`, `sm_120f`, `compute_90a`. Raises ValueError for anything else."""
    match = re.fullmatch(r"([1-9]\d?)\.(\d)([af]?)|(sm_|compute_)?([1-9]\d?)(\d)([af]?)", text, re.ASCII)
    if not match:
        raise ValueError(
            f"expected an SM target such as 8.0, 9.0a or 12.0f (also 90a, sm_90a, compute_90), found {text!r}"
        )
    major, minor, suffix = (match[1], match[2], match[3]) if match[1] else (match[5], match[6], match[7])
    return SmTarget(int(major), int(minor), suffix, match[4] == "compute_")


def runs_on(sm_target: str, device: str) -> bool:
    """Whether an image for `sm_target` runs on a device of that compute capability."""
    return parse(sm_target).runs_on(parse(device))
