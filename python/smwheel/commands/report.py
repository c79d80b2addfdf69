"""`smwheel report`."""

from __future__ import annotations

from pathlib import Path

import click
from size_report import write

from smwheel.report import collect, render


@click.command(name="report")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(path_type=Path), required=True, help="The page that is written.")
@click.option(
    "--baseline",
    "baselines",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Wheels or size reports as they were: a file or a directory; may be repeated.",
)
@click.option("--matrix", type=click.Path(path_type=Path), help="//wheels:matrix.json, for budgets and devices.")
def command(directory: Path, html: Path, baselines: tuple[Path, ...], matrix: Path | None) -> None:
    """Write one page about the wheels, or their size reports, in DIRECTORY and below.

    The page needs nothing but itself. Exit codes: 0 written; 1 an error; 2 usage.
    """
    wheels = collect(directory, baselines, matrix)
    write(html, render(wheels, bool(baselines)))
    click.echo(f"{html}: {len(wheels)} wheels")
