"""The algebra of SM targets, for Python programs.

toolchains/cuda/sm_targets.bzl is the same for the build; both are tested on tests/sm_targets/cases.json. The rules are
NVIDIA's (CUDA C++ Programming Guide, "Application Compatibility" and "Feature Availability"; nvcc's manual, "GPU
Feature List"; the CUDA Toolkit release notes).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

# Compute capabilities of the GPUs that people have (NVIDIA's "CUDA GPU Compute Capability" page).
DEVICES = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]

# Compute capability -> first toolkit that compiles for it, and the first that no longer does.
_SINCE: dict[tuple[int, int], tuple[tuple[int, int], tuple[int, int] | None]] = {
    (5, 0): ((6, 5), (13, 0)),
    (6, 0): ((8, 0), (13, 0)),
    (7, 0): ((9, 0), (13, 0)),
    (7, 5): ((10, 0), None),
    (8, 0): ((11, 0), None),
    (8, 6): ((11, 1), None),
    (8, 7): ((11, 4), None),
    (8, 8): ((13, 0), None),
    (8, 9): ((11, 8), None),
    (9, 0): ((11, 8), None),
    (10, 0): ((12, 8), None),
    (10, 1): ((12, 8), (13, 0)),  # Thor, 11.0 from CUDA 13.0 on
    (10, 3): ((12, 9), None),
    (10, 7): ((13, 4), None),
    (11, 0): ((13, 0), None),
    (12, 0): ((12, 8), None),
    (12, 1): ((12, 9), None),
}

# Suffix -> first toolkit that has it, and the first major compute capability.
_SUFFIX_SINCE = {"a": ((12, 0), 9), "f": ((12, 9), 10)}


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


def image_for(sm_targets: Iterable[str], device: str) -> str | None:
    """The SM target of the image that a device of that compute capability loads, or None if none runs there.

    The most specific one: the highest compute capability, and of one capability `a` before `f` before no suffix.
    """
    fitting = [sm for sm in sm_targets if runs_on(sm, device)]
    return max(
        fitting, key=lambda sm: (parse(sm).major, parse(sm).minor, " fa".index(parse(sm).suffix or " ")), default=None
    )


def toolkit_supports(cuda_version: str, sm_target: str) -> bool | None:
    """Whether the toolkit of a CUDA version (`13.0`) compiles for an SM target; None if that is not known here."""
    major, minor = cuda_version.split(".")[:2]
    version = (int(major), int(minor))
    sm = parse(sm_target)
    if (sm.major, sm.minor) not in _SINCE:
        return None
    since, until = _SINCE[sm.major, sm.minor]
    if version < since or (until and version >= until):
        return False
    if sm.suffix:
        since, first = _SUFFIX_SINCE[sm.suffix]
        return version >= since and sm.major >= first
    return True


def family_members(majors: Collection[int], base: Collection[str], sm_targets: Iterable[str]) -> list[str]:
    """The SM targets that a family takes of a list, in ascending order.

    majors: the major compute capabilities that are its own; base: targets of other majors that it carries too.
    """
    return sorted((sm for sm in sm_targets if sm in base or parse(sm).major in majors), key=parse)
