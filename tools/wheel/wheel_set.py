"""The resolved matrix (//wheels:matrix.json): the wheels that it promises and what they share; what is wrong with files of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

ARTIFACT_PREFIX = "jit-cache-"


class MatrixError(Exception):
    """A file is no usable matrix. The message names it, what was expected, what was found and what to do."""


@dataclass(frozen=True)
class Wheel:
    """One wheel of the matrix. `name` is that of its target in //wheels, `budget` the bytes that it must be under."""

    name: str
    cuda_label: str
    cuda_version: str
    cpu: str
    family: str
    distribution: str
    version: str
    tag: str
    minimum_driver: str
    sm_targets: tuple[str, ...]
    devices: tuple[str, ...]
    budget: int

    @property
    def artifact(self) -> str:
        """The name of the CI artifact that holds this wheel and nothing else."""
        return f"{ARTIFACT_PREFIX}{self.cuda_label}-{self.cpu}-{self.family}"

    @property
    def escaped_distribution(self) -> str:
        """The distribution as it is written in file names (binary distribution format, "Escaping and Unicode")."""
        return re.sub(r"[-_.]+", "_", self.distribution).lower()

    @property
    def file_name(self) -> str:
        """The wheel's file name."""
        return f"{self.escaped_distribution}-{self.version}-{self.tag}.whl"


@dataclass(frozen=True)
class CubinGroup:
    """The cubins of one (CUDA label, SM target). `name` is that of its target in //wheels."""

    name: str
    cuda_label: str
    sm_target: str


@dataclass(frozen=True)
class HostGroup:
    """The host objects of one (CUDA label, CPU). `name` is that of its target in //wheels."""

    name: str
    cuda_label: str
    cpu: str


@dataclass(frozen=True)
class Matrix:
    """All wheels, in the matrix's order, the size in bytes that each must be under, and what they share."""

    asset_limit: int
    wheels: tuple[Wheel, ...]
    cubin_groups: tuple[CubinGroup, ...]
    host_groups: tuple[HostGroup, ...]


@dataclass(frozen=True)
class Problem:
    """Something wrong with a set of wheels: what it is about, what was expected, what was found, what to do."""

    what: str
    expected: str
    found: str
    todo: str

    def __str__(self) -> str:
        return f"{self.what}\n  expected: {self.expected}\n  found:    {self.found}\n  To do: {self.todo}"


def _wheel(entry: dict[str, Any]) -> Wheel:
    return Wheel(
        name=str(entry["name"]),
        cuda_label=str(entry["cuda_label"]),
        cuda_version=str(entry["cuda_version"]),
        cpu=str(entry["cpu"]),
        family=str(entry["family"]),
        distribution=str(entry["distribution"]),
        version=str(entry["version"]),
        tag=str(entry["tag"]),
        minimum_driver=str(entry["minimum_driver"]),
        sm_targets=tuple(map(str, entry["sm_targets"])),
        devices=tuple(map(str, entry["devices"])),
        budget=int(entry["budget"]),
    )


_Group = TypeVar("_Group", CubinGroup, HostGroup)


def _groups(kind: type[_Group], entries: list[dict[str, Any]]) -> tuple[_Group, ...]:
    return tuple(kind(**{field.name: str(entry[field.name]) for field in fields(kind)}) for entry in entries)


def read_matrix(path: Path) -> Matrix:
    """Reads a resolved matrix.

    Raises MatrixError: no such file, not of a matrix's shape, without wheels, or two wheels with one artifact or file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        wheels = tuple(map(_wheel, content["wheels"]))
        matrix = Matrix(
            int(content["asset_limit"]),
            wheels,
            _groups(CubinGroup, content["cubin_groups"]),
            _groups(HostGroup, content["host_groups"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_a_matrix(path, repr(error)) from error
    if not wheels:
        raise _not_a_matrix(path, "no wheels")
    counts = Counter([wheel.artifact for wheel in wheels] + [wheel.file_name for wheel in wheels])
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise _not_a_matrix(path, f"more than one wheel with {', '.join(twice)}")
    return matrix


def check_asset_size(what: str, size: int, limit: int) -> list[Problem]:
    """The problem with a file of `size` bytes if a release asset must be under `limit`."""
    if size < limit:
        return []
    return [
        Problem(
            f"{what} is too large for a release asset.",
            f"under {limit} bytes",
            f"{size} bytes, {size - limit + 1} too many",
            "ship fewer modules or SM targets in this wheel.",
        )
    ]


def _not_a_matrix(path: Path, found: str) -> MatrixError:
    return MatrixError(
        f"{path} is not the resolved matrix.\n"
        "  expected: JSON with asset_limit, cubin_groups, host_groups and wheels, of which no two have one artifact or one file name\n"
        f"  found:    {found}\n"
        "  To do: ./bazelw build //wheels:matrix.json, and give bazel-bin/wheels/matrix.json"
    )
