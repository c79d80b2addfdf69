"""A wheel file and what it says of itself: METADATA and the manifest, read strictly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import size_report
import wheel_zip
from packaging.metadata import Metadata
from packaging.utils import NormalizedName, canonicalize_name, parse_wheel_filename

from smwheel.errors import SmwheelError

Json = dict[str, Any]
T = TypeVar("T")

_REBUILD = (
    "build the wheel again, and give the file as it was built: names and metadata are not to be changed afterwards."
)
_PIECE = 1 << 20  # bytes that are hashed at once


class WheelFileError(SmwheelError):
    """What a program of the build says of a wheel or a report. Its message has the form of the others already."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


@dataclass(frozen=True)
class WheelFile:
    """A wheel, by its METADATA and its manifest (docs/manifest.md). `size` is in bytes."""

    path: Path
    name: NormalizedName
    version: str
    tag: str
    size: int
    cuda_version: str
    cpu: str
    sm_family: str
    sm_targets: tuple[str, ...]
    devices: tuple[str, ...]
    minimum_driver: str
    requires_python: str | None
    metadata: bytes
    """METADATA, the bytes in the wheel."""
    content: wheel_zip.Wheel
    report: Json
    """Its size report (tools/wheel/size_report.py)."""

    @property
    def cuda_label(self) -> str:
        """`cu130` for CUDA 13.0."""
        return "cu" + self.cuda_version.replace(".", "")


def guarded(read: Callable[[], T], what: str) -> T:
    """What `read` returns. Errors of the build's programs and of the file system become SmwheelErrors."""
    try:
        return read()
    except (wheel_zip.WheelError, size_report.ReportError) as error:
        raise WheelFileError(str(error)) from error
    except OSError as error:
        raise SmwheelError(f"{what} can't be read.", "a file", str(error), "give another path.") from error


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _check_modules(wheel: str, manifest: Json, digests: Mapping[str, str]) -> None:
    """Checks that the members that are modules are those that the manifest describes."""
    found = {
        path.rpartition("/")[2].removesuffix(".so"): digest
        for path, digest in digests.items()
        if path.endswith(".so") and path.split("/")[-2] == path.split("/")[-1].removesuffix(".so")
    }
    listed = {name: module["sha256"] for name, module in manifest["modules"].items()}
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            raise SmwheelError(
                f"{wheel}: module {name} is not the one that the manifest describes.",
                f"sha256 {listed.get(name, 'of no such module')}",
                f"sha256 {found.get(name, 'of no such file')}",
                _REBUILD,
            )


def _check_manifest(wheel: WheelFile, manifest: Json) -> None:
    """Checks that the manifest says what the file's name and METADATA say."""
    for what, expected, found in (
        ("distribution in the manifest", wheel.name, canonicalize_name(manifest["distribution"])),
        ("version in the manifest", wheel.path.name.split("-")[1], wheel.version),
        ("tag in the manifest", "-".join(wheel.path.stem.split("-")[-3:]), wheel.tag),
        # An exact pin is the only thing that names a wheel of one family; installers see the version alone.
        ("local version", f"{wheel.cuda_label}.{wheel.sm_family}", wheel.version.partition("+")[2]),
    ):
        if found != expected:
            raise SmwheelError(
                f"{wheel.path.name}: {what} is another than that of the wheel.", expected, found, _REBUILD
            )
    if not wheel.tag.endswith(f"_{wheel.cpu}"):
        raise SmwheelError(
            f"{wheel.path.name}: the CPU in the manifest is not that of the tag.", wheel.tag, wheel.cpu, _REBUILD
        )


def read_wheel(path: Path, verify: bool = True) -> WheelFile:
    """Reads a wheel: the zip's directory, METADATA and the manifest, and whether they agree with each other.

    verify: inflate all members as well, and compare them with RECORD and the manifest. Raises SmwheelError.
    """
    content = guarded(lambda: wheel_zip.read(path), path.name)
    guarded(lambda: wheel_zip.check_wheel_names(content), path.name)
    report = guarded(lambda: size_report.report(path), path.name)
    metadata = content.texts["METADATA"].encode()
    manifest = json.loads(content.texts["manifest.json"])
    try:
        requires_python = Metadata.from_email(metadata, validate=False).requires_python
        # A name that packaging refuses is one that installers pass over.
        name, _, _, _ = parse_wheel_filename(path.name)
    except ValueError as error:
        raise SmwheelError(
            f"{path.name}: its name or its METADATA is not valid.", "what packaging can read", str(error), _REBUILD
        ) from error
    try:
        wheel = WheelFile(
            path=path,
            name=name,
            version=str(manifest["version"]),
            tag=str(manifest["tag"]),
            size=content.size,
            cuda_version=str(manifest["cuda_version"]),
            cpu=str(manifest["cpu"]),
            sm_family=str(manifest["sm_family"]),
            sm_targets=tuple(map(str, manifest["sm_targets"])),
            devices=tuple(map(str, manifest["devices"])),
            minimum_driver=str(manifest["minimum_driver"]),
            requires_python=None if requires_python is None else str(requires_python),
            metadata=metadata,
            content=content,
            report=report,
        )
        _check_manifest(wheel, manifest)
        if verify:
            _check_modules(path.name, manifest, guarded(lambda: wheel_zip.verify(path, content), path.name))
    except (KeyError, TypeError, AttributeError) as error:
        raise SmwheelError(
            f"{path.name}: its manifest has not all that it must have.", "docs/manifest.md", repr(error), _REBUILD
        ) from error
    return wheel
