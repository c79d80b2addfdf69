"""`smwheel check`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

# Exit code for a set that is not whole or not sound. 1 is an error that kept it from being checked, 2 wrong usage.
UNFIT = 3


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--matrix",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="The resolved matrix, bazel-bin/wheels/matrix.json.",
)
@click.option(
    "--cell",
    "cells",
    multiple=True,
    metavar="NAME",
    help="Of this cell only: cu130, cu130_aarch64, or one wheel. May be repeated.",
)
@click.option(
    "--quick", is_flag=True, help="Read zip directories, METADATA and manifests; don't inflate what is in the wheels."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(directory: Path, matrix: Path, cells: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Whether DIRECTORY holds every wheel of the matrix, and each is sound.

    Sound: under its limits, a zip that can be read in one way only, names, METADATA, RECORD and manifest that agree, and
    with the matrix too. All problems are listed. Exits with 3 if there is any.
    """
    from smwheel.set_check import check_directory, load_matrix, select

    resolved = load_matrix(matrix)
    wheels = select(resolved, cells)
    problems = check_directory(directory, resolved, wheels, not quick)
    if as_json:
        texts = list(map(str, problems))
        click.echo(
            json.dumps(
                {"ok": not problems, "wheels": [wheel.file_name for wheel in wheels], "problems": texts}, indent=1
            )
        )
    else:
        for problem in problems:
            click.echo(f"error: {problem}", err=True)
        if problems:
            click.echo(f"Problems: {len(problems)}. This set must not be released.", err=True)
        else:
            click.echo(f"{directory}: all {len(wheels)} wheels are there, and sound.")
    if problems:
        sys.exit(UNFIT)
