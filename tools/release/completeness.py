"""Checks that the artifacts of a CI run are the wheels of the matrix, before anything is uploaded.

    completeness.py --matrix MATRIX.json --artifacts DIR [--sha256sums OUT]

DIR has a directory for each artifact, as actions/download-artifact makes them. All problems are reported, not the first
alone. With none, OUT gets the sha256 of every wheel, in sha256sum's format.
"""

from __future__ import annotations

import argparse
import email.parser
import hashlib
import sys
import zipfile
import zlib
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "wheel"))

from files import replace_file
from wheel_set import Matrix, MatrixError, Problem, Wheel, check_asset_size, read_matrix

# What reading a damaged zip raises.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError)


def _again(wheel: Wheel) -> str:
    return f"run the job of {wheel.name} again, and the release job after it."


def _listing(directory: Path) -> str:
    return ", ".join(sorted(path.name for path in directory.iterdir())) or "nothing"


def check_metadata(wheel: Wheel, file: Path) -> Problem | None:
    """The problem with a wheel's zip or the version in its METADATA, or None."""
    member = f"{wheel.escaped_distribution}-{wheel.version}.dist-info/METADATA"
    try:
        with zipfile.ZipFile(file) as archive:
            text = archive.read(member)
    except KeyError:
        return Problem(
            f"artifact {wheel.artifact}: {file.name} has no METADATA where its name says.",
            member,
            "no such member",
            f"do not release this file; {_again(wheel)}",
        )
    except _DAMAGE as error:
        return Problem(
            f"artifact {wheel.artifact}: {file.name} can't be read as a zip.",
            "a whole wheel",
            f"{file.stat().st_size} bytes; {error}",
            f"the file was cut short or damaged on its way; {_again(wheel)}",
        )
    found = email.parser.BytesHeaderParser().parsebytes(text)["Version"]
    if found == wheel.version:
        return None
    return Problem(
        f"artifact {wheel.artifact}: the METADATA of {file.name} is of another version than its name.",
        f"Version: {wheel.version}",
        f"Version: {found}" if found else "no Version",
        f"do not release this file; {_again(wheel)}",
    )


def check_artifact(wheel: Wheel, directory: Path, asset_limit: int) -> list[Problem]:
    """The problems with the artifact of one wheel, whose file must be under `asset_limit` bytes."""
    what = f"artifact {wheel.artifact}"
    if not directory.is_dir():
        return [
            Problem(
                f"{what} is missing.",
                f"a directory {directory} with {wheel.file_name} in it",
                "a file of that name" if directory.exists() else "no such directory",
                _again(wheel),
            )
        ]
    found = list(directory.iterdir())
    if len(found) != 1 or not found[0].is_file():
        return [
            Problem(
                f"{what} is not one file.",
                wheel.file_name,
                _listing(directory),
                f"see what the job of {wheel.name} copies into dist/; {_again(wheel)}",
            )
        ]
    [file] = found
    problems = check_asset_size(f"{what}: {file.name}", file.stat().st_size, asset_limit)
    if file.name != wheel.file_name:
        problems.append(
            Problem(
                f"{what} holds a file of another name.",
                wheel.file_name,
                file.name,
                "build the wheels and the matrix from the same commit.",
            )
        )
    elif problem := check_metadata(wheel, file):
        problems.append(problem)
    return problems


def check(matrix: Matrix, artifacts: Path) -> list[Problem]:
    """All problems with a directory of artifacts: in the matrix's order, then what the matrix does not know."""
    problems = []
    for wheel in matrix.wheels:
        problems += check_artifact(wheel, artifacts / wheel.artifact, matrix.asset_limit)
    known = {wheel.artifact for wheel in matrix.wheels}
    for name in sorted(path.name for path in artifacts.glob("*") if path.name not in known):
        problems.append(
            Problem(
                f"artifact {name} is not of the matrix.",
                f"the {len(known)} artifacts of the matrix and nothing else in {artifacts}",
                name,
                "if the matrix changed, refresh the workflow (docs/release.md); else drop the job that made it.",
            )
        )
    return problems


def sha256sums(matrix: Matrix, artifacts: Path) -> str:
    """The sha256 of every wheel, sorted by file name, in the format that `sha256sum --check` reads."""
    lines = []
    for wheel in sorted(matrix.wheels, key=lambda wheel: wheel.file_name):
        digest = hashlib.sha256()
        with open(artifacts / wheel.artifact / wheel.file_name, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        lines.append(f"{digest.hexdigest()}  {wheel.file_name}\n")
    return "".join(lines)


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix", type=Path, required=True, help="//wheels:matrix.json")
    parser.add_argument("--artifacts", type=Path, required=True, help="has a directory for each artifact")
    parser.add_argument("--sha256sums", type=Path, help="written if nothing is wrong")
    args = parser.parse_args()
    try:
        matrix = read_matrix(args.matrix)
    except MatrixError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    problems = check(matrix, args.artifacts)
    if problems:
        print("\n".join(f"error: {problem}" for problem in problems), file=sys.stderr)
        print(f"Problems: {len(problems)}. Nothing may be released.", file=sys.stderr)
        return 1
    if args.sha256sums:
        replace_file(args.sha256sums, sha256sums(matrix, args.artifacts))
    print(f"all {len(matrix.wheels)} wheels of the matrix are there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
