"""The files of a release, checked as a whole before anything of it is uploaded."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

import smwheel  # noqa: F401  the build's programs are found through it
from smwheel.errors import SmwheelError

# GitHub: "each file included in a release must be under 2 GiB" (docs.github.com, "About releases").
ASSET_LIMIT = 2147483648

SUMS = "SHA256SUMS"

# GitHub renames assets with other characters in their names (REST API, "Upload a release asset").
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]*[A-Za-z0-9])?")

_METADATA = ".metadata"


class UnfitError(SmwheelError):
    """A set of files that must not be released. The message has every problem, not the first alone."""

    exit_code = 3

    def __init__(self, problems: Iterable[SmwheelError]) -> None:
        """Joins the problems."""
        texts = [str(problem) for problem in problems]
        count = "1 problem" if len(texts) == 1 else f"{len(texts)} problems"
        Exception.__init__(self, "\nerror: ".join([*texts, f"{count}: nothing was uploaded."]))


@dataclass(frozen=True)
class File:
    """A file to release: its name as an asset, bytes, sha256 in hex, and where its bytes are."""

    name: str
    size: int
    sha256: str
    content: Path | bytes

    def open(self) -> BinaryIO:
        """Opens it for reading."""
        return BytesIO(self.content) if isinstance(self.content, bytes) else open(self.content, "rb")

    @property
    def digest(self) -> str:
        """The sha256 as GitHub writes it in an asset's `digest`."""
        return f"sha256:{self.sha256}"


@dataclass(frozen=True)
class Matrix:
    """What a resolved matrix (//wheels:matrix.json) says of a release: file name -> name of the wheel's target."""

    asset_limit: int
    wheels: Mapping[str, str]


def read_matrix(path: Path) -> Matrix:
    """Reads a resolved matrix. Raises SmwheelError for a file that is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        wheels = {}
        for entry in content["wheels"]:
            # The binary distribution format, "Escaping and Unicode".
            distribution = re.sub(r"[-_.]+", "_", entry["distribution"]).lower()
            wheels[f"{distribution}-{entry['version']}-{entry['tag']}.whl"] = str(entry["name"])
        limit = int(content["asset_limit"])
        if len(wheels) != len(content["wheels"]) or not wheels:
            raise ValueError(f"{len(content['wheels'])} wheels with {len(wheels)} file names")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SmwheelError(
            f"{path} is not the resolved matrix.",
            "JSON with asset_limit and wheels, no two of one file name",
            f"no {error} in it" if isinstance(error, KeyError) else str(error),
            "./bazelw build //wheels:matrix.json, and give bazel-bin/wheels/matrix.json",
        ) from error
    return Matrix(limit, wheels)


def find_files(directory: Path) -> list[Path]:
    """All files below a directory, sorted by name; SHA256SUMS is left out, since it is written anew."""
    files = [path for path in directory.rglob("*") if not path.is_dir() and path.name != SUMS]
    return sorted(files, key=lambda path: (path.name, str(path)))


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sums(files: Iterable[File]) -> File:
    """SHA256SUMS of files, sorted by name, in the format that `sha256sum --check` reads."""
    text = "".join(f"{file.sha256}  {file.name}\n" for file in sorted(files, key=lambda file: file.name)).encode()
    return File(SUMS, len(text), hashlib.sha256(text).hexdigest(), text)


def _check_names(directory: Path, paths: list[Path], matrix: Matrix | None) -> list[SmwheelError]:
    """The problems with which files there are."""
    problems = []
    wheels = {path.name for path in paths if path.suffix == ".whl"}
    if not wheels:
        problems.append(
            SmwheelError(
                f"{directory} has no wheel.", "wheels, in it or below", f"{len(paths)} files", "give their directory."
            )
        )
    for name, count in Counter(path.name for path in paths).items():
        if count > 1:
            where = ", ".join(str(path.relative_to(directory)) for path in paths if path.name == name)
            problems.append(SmwheelError(f"{name} is there more than once.", "one file", where, "remove all but one."))
    for path in paths:
        what = f"{path.relative_to(directory)} is no file of a release."
        if path.is_symlink() and not path.exists():
            problems.append(SmwheelError(what, "a file", "a link to nothing", "remove it."))
        elif not path.is_file():
            problems.append(SmwheelError(what, "a file", "something else", "remove it."))
        elif path.name.endswith(f".whl{_METADATA}"):
            if path.name.removesuffix(_METADATA) not in wheels:
                problems.append(SmwheelError(what, "metadata of a wheel that is there too", path.name, "remove it."))
        elif path.suffix != ".whl":
            problems.append(
                SmwheelError(what, f"wheels, their {_METADATA} and {SUMS}", path.name, "move it out of the directory.")
            )
        if not _NAME.fullmatch(path.name):
            problems.append(
                SmwheelError(
                    f"{path.name!r} can't be an asset's name.",
                    "letters, digits and . _ + - only",
                    path.name,
                    "rename nothing that is built: mend the version where the wheel is built.",
                )
            )
    if matrix:
        for name in sorted(matrix.wheels.keys() - wheels):
            target = matrix.wheels[name]
            problems.append(
                SmwheelError(
                    f"{target} is missing.",
                    name,
                    "no such file",
                    f"./bazelw build //wheels:{target}, and copy it here.",
                )
            )
        for name in sorted(wheels - matrix.wheels.keys()):
            problems.append(
                SmwheelError(
                    f"{name} is not of the matrix.",
                    f"the {len(matrix.wheels)} wheels of the matrix",
                    name,
                    "build wheels and matrix from one commit, or remove the file.",
                )
            )
    return problems


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at their end: they do not count (PEP 440, "Public version identifiers")."""
    numbers = Version(version).release
    while numbers and not numbers[-1]:
        numbers = numbers[:-1]
    return numbers


def _check_versions(wheels: Iterable[Path], tag: str) -> list[SmwheelError]:
    """The problems with the wheels' names together: one distribution, one version, and that of the tag if it has one."""
    found = set()
    for path in wheels:
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue  # `_check_file` says so
        found.add((name, version.public))
    problems = []
    if len(found) > 1:
        names = ", ".join(f"{name} {version}" for name, version in sorted(found))
        problems.append(
            SmwheelError(
                "The wheels are not of one release.", "one name and one version", names, "release each on its own."
            )
        )
    try:
        release = _release(tag)
    except InvalidVersion:
        return problems  # such as nightly-20261130
    for name, public in sorted(found):
        if _release(public) != release:
            problems.append(
                SmwheelError(
                    f"The tag {tag} is of another version than the wheels.",
                    f"{name} {'.'.join(map(str, release))}",
                    f"{name} {public}",
                    "give the tag that the wheels were built from.",
                )
            )
    return problems


def _check_file(path: Path, limit: int) -> File | list[SmwheelError]:
    """A file as it is to be released, or the problems with it."""
    # The strict reader takes some time to import.
    from wheel_zip import WheelError, read, verify

    size = path.stat().st_size
    if size >= limit:
        return [
            SmwheelError(
                f"{path.name} is too large for a release asset.",
                f"under {limit} bytes",
                f"{size} bytes, {size - limit + 1} too many",
                "ship fewer modules or SM targets in this wheel.",
            )
        ]
    try:
        if path.suffix == ".whl":
            wheel = read(path)
            verify(path, wheel)
        elif path.read_text(encoding="utf-8") != read(path.with_suffix("")).texts["METADATA"]:
            raise SmwheelError(
                f"{path.name} is not the wheel's METADATA.", "the same bytes", "others", "remove it, or write it anew."
            )
    except (WheelError, UnicodeDecodeError, FileNotFoundError) as error:
        # WheelError reads as SmwheelError does.
        problem = SmwheelError("", "", "", "")
        problem.args = (str(error),)
        return [problem]
    except SmwheelError as error:
        return [error]
    return File(path.name, size, sha256(path), path)


def check_set(
    directory: Path, tag: str, matrix: Matrix | None = None, checked: Callable[[str], None] = lambda name: None
) -> tuple[File, ...]:
    """Checks the files of a release; returns them sorted by name, SHA256SUMS last.

    Which files there are, names, versions, sizes, each wheel by the strict reader, each member against RECORD.
    checked: called with the name of each file that was read. Raises UnfitError with all problems.
    """
    if not directory.is_dir():
        problem = SmwheelError(
            f"{directory} is no directory.", "a directory of wheels", "none", "build the wheels first."
        )
        raise UnfitError([problem])
    paths = find_files(directory)
    problems = _check_names(directory, paths, matrix)
    problems += _check_versions((path for path in paths if path.suffix == ".whl"), tag)
    limit = min(ASSET_LIMIT, matrix.asset_limit if matrix else ASSET_LIMIT)

    def check(path: Path) -> File | list[SmwheelError]:
        result = _check_file(path, limit)
        checked(path.name)
        return result

    files = []
    readable = [path for path in paths if path.is_file() and path.name.endswith((".whl", f".whl{_METADATA}"))]
    # zlib and hashlib work without the interpreter's lock.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for result in pool.map(check, readable):
            if isinstance(result, File):
                files.append(result)
            else:
                problems += result
    if problems:
        raise UnfitError(problems)
    return (*files, sums(files))
