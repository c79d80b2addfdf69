"""`smwheel inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("wheel", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--verify",
    is_flag=True,
    help="Inflate every member, compare it with RECORD and the manifest, and give the file's sha256.",
)
@click.option("--members", is_flag=True, help="List every file.")
@click.option(
    "--largest",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="List N pairs of module and SM target.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs; has everything.")
def command(wheel: Path, verify: bool, members: bool, largest: int, as_json: bool) -> None:
    """What is in WHEEL: contents, SM targets, which image each GPU loads, sizes.

    Reads its manifest and the zip's directory only, unless --verify is given.
    """
    from smwheel.wheel_contents import contents, describe
    from smwheel.wheel_file import guarded, read_wheel, sha256

    found = read_wheel(wheel, verify)
    digest = guarded(lambda: sha256(wheel), wheel.name) if verify else None
    click.echo(json.dumps(contents(found, digest), indent=1) if as_json else describe(found, digest, members, largest))
