"""Whether a directory of wheels is the set that the matrix promises, and each wheel what the matrix says of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sm_targets import DEVICES, image_for
from wheel_set import Matrix, MatrixError, Problem, Wheel, check_asset_size, read_matrix

from smwheel.errors import SmwheelError
from smwheel.wheel_file import WheelFile, WheelFileError, read_wheel

_MATRIX = "build the wheel and the matrix from one commit: ./bazelw build //wheels:{name} //wheels:matrix.json"


def load_matrix(path: Path) -> Matrix:
    """The resolved matrix in a file. Raises SmwheelError."""
    try:
        return read_matrix(path)
    except MatrixError as error:
        raise WheelFileError(str(error)) from error


def select(matrix: Matrix, cells: Sequence[str]) -> tuple[Wheel, ...]:
    """The wheels of the matrix that are in `cells`, or all without any.

    A cell is named as the targets of //wheels are: `cu130`, `cu130_aarch64`, `cu130_aarch64_sm12x`. Raises
    SmwheelError for one that the matrix has not.
    """
    for cell in cells:
        if not any(f"{wheel.name}_".startswith(f"{cell}_") for wheel in matrix.wheels):
            known = sorted({f"{wheel.cuda_label}_{wheel.cpu}" for wheel in matrix.wheels})
            raise SmwheelError(f"{cell} is no cell of the matrix.", ", ".join(known), cell, "give one of them.")
    return tuple(
        wheel for wheel in matrix.wheels if not cells or any(f"{wheel.name}_".startswith(f"{cell}_") for cell in cells)
    )


def check_promise(expected: Wheel, found: WheelFile) -> list[Problem]:
    """The problems with what a wheel's manifest says, compared with the matrix."""
    problems = []
    for what, promised, said in (
        ("CUDA version", expected.cuda_version, found.cuda_version),
        ("CPU", expected.cpu, found.cpu),
        ("SM family", expected.family, found.sm_family),
        ("minimum driver", expected.minimum_driver, found.minimum_driver),
        ("SM targets", ", ".join(expected.sm_targets), ", ".join(found.sm_targets)),
        # The manifest lists the devices of base targets as well; the matrix, those that the family is for.
        ("devices", ", ".join(expected.devices), ", ".join(d for d in found.devices if d in expected.devices)),
    ):
        if promised != said:
            problems.append(
                Problem(
                    f"{expected.file_name}: {what} in the manifest and of {expected.name} in the matrix differ.",
                    promised,
                    said,
                    _MATRIX.format(name=expected.name),
                )
            )
    images = [sm for module in found.report["modules"].values() for sm in module if sm != "host"]
    for device in (device for device in expected.devices if device in DEVICES and not image_for(images, device)):
        problems.append(
            Problem(
                f"{expected.file_name}: nothing in it runs on compute capability {device}, which it promises.",
                f"an image that runs on {device}",
                f"images for {', '.join(sorted(set(images))) or 'no SM target'}",
                "add the SM target to the wheel's cell in wheels/matrix.bzl, or take the device out of the promise.",
            )
        )
    return problems


def check_wheel(expected: Wheel, file: Path, asset_limit: int, verify: bool = True) -> list[Problem | SmwheelError]:
    """The problems with the file of one wheel: damage alone, or its size and what it says of itself."""
    size = file.stat().st_size
    problems: list[Problem | SmwheelError] = [*check_asset_size(file.name, size, asset_limit)]
    if size >= expected.budget and not problems:
        problems.append(
            Problem(
                f"{file.name} is over the budget of {expected.name} in the matrix.",
                f"under {expected.budget} bytes",
                f"{size} bytes, {size - expected.budget + 1} too many",
                "make a module smaller, drop an SM target, or raise the budget if the growth is meant.",
            )
        )
    try:
        return [*problems, *check_promise(expected, read_wheel(file, verify))]
    except SmwheelError as error:
        return [*problems, error]


def check_directory(
    directory: Path,
    matrix: Matrix,
    wheels: Sequence[Wheel],
    verify: bool = True,
    checked: Callable[[str], None] = lambda name: None,
) -> list[Problem | SmwheelError]:
    """All problems with a directory that is to hold `wheels`: in the matrix's order, then what it should not hold.

    verify: inflate every member of every wheel; checked: called with the name of each file that was read.
    """
    there = {path.name for path in directory.iterdir() if path.is_file()}

    def check(wheel: Wheel) -> list[Problem | SmwheelError]:
        if wheel.file_name not in there:
            what = f"{wheel.name} is missing."
            build = f"./bazelw build //wheels:{wheel.name}, and copy the wheel to {directory}."
            return [Problem(what, f"{wheel.file_name} in {directory}", "no such file", build)]
        found = check_wheel(wheel, directory / wheel.file_name, matrix.asset_limit, verify)
        checked(wheel.file_name)
        return found

    # zlib and hashlib work without the interpreter's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [problem for found in pool.map(check, wheels) for problem in found]
    known = {wheel.file_name: wheel.name for wheel in matrix.wheels}
    promised = {wheel.file_name for wheel in wheels}
    for name in sorted(name for name in there - promised if name.endswith(".whl")):
        where = f"{known[name]}, which was not asked for" if name in known else "a wheel that the matrix does not know"
        todo = (
            "move it elsewhere, or name its cell."
            if name in known
            else "build wheels and matrix from one commit, or move it elsewhere."
        )
        problems.append(Problem(f"{name} does not belong here.", f"the {len(promised)} wheels of the set", where, todo))
    return problems
