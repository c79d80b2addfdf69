"""`smwheel index`."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import click


def _base_url(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
        raise click.BadParameter(f"expected an address such as https://…/releases/download/v1/, found {value!r}")
    return value


def _time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from smwheel.package_index import timestamp

    try:
        return timestamp(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(f"expected a time with its zone, such as 2026-11-30T12:00:00Z: {error}") from error


def _reason(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.isprintable():
        raise click.BadParameter("expected one line of text")
    return value


@click.command()
@click.argument(
    "directories", nargs=-1, metavar="[DIR]...", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="The index: made, or added to."
)
@click.option(
    "--base-url",
    metavar="URL",
    callback=_base_url,
    help="Where the wheels of DIR are hosted. Without it, they are copied into the index.",
)
@click.option(
    "--metadata-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --base-url: write WHEEL.metadata here, and say that each is beside its wheel.",
)
@click.option(
    "--upload-time", metavar="TIME", callback=_time, help="When the new wheels were uploaded; no clock is asked."
)
@click.option(
    "--yank", "yanks", multiple=True, metavar="NAME", help="A file name or a version that nobody should take any more."
)
@click.option("--reason", default="", callback=_reason, help="Why, for --yank.")
@click.option("--unyank", "unyanks", multiple=True, metavar="NAME", help="Takes --yank back.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    directories: tuple[Path, ...],
    output: Path,
    base_url: str | None,
    metadata_dir: Path | None,
    upload_time: str | None,
    yanks: tuple[str, ...],
    reason: str,
    unyanks: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add the wheels in each DIR to a static package index.

    What the index has is kept. It changes as a whole or not at all; the same wheels again change nothing. Exits with 3 if
    a wheel is damaged, says two things of itself, or is not the one that the index has under its name.
    """
    from smwheel.errors import SmwheelError
    from smwheel.package_index import update

    if metadata_dir and not base_url:
        raise click.UsageError(
            "--metadata-dir needs --base-url: the index's own files have their .metadata beside them"
        )
    wheels = []
    for directory in directories:
        found = sorted(directory.glob("*.whl"))
        if not found:
            raise SmwheelError(
                f"{directory} has no wheels.", "files *.whl", "none", "give the directory that they are in."
            )
        wheels += found
    try:
        outcome = update(
            output,
            wheels,
            base_url=base_url,
            metadata_directory=metadata_dir,
            upload_time=upload_time,
            yanked={**dict.fromkeys(yanks, reason), **dict.fromkeys(unyanks)},
        )
    except OSError as error:
        raise SmwheelError(
            f"The index {output} can't be written.",
            "a directory, in one that can be written to",
            str(error),
            "mend it and run this again; nothing was changed.",
        ) from error
    if as_json:
        click.echo(json.dumps({"added": outcome.added, "wheels": outcome.wheels, "written": outcome.written}, indent=1))
        return
    for name in outcome.added:
        click.echo(f"added {name}")
    changed = "written" if outcome.written else "nothing changed"
    click.echo(f"{output}: {outcome.wheels} wheels; {changed}.")
