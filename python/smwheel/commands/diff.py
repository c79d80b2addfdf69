"""`smwheel diff`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(old: Path, new: Path, as_json: bool) -> None:
    """What changed from OLD to NEW, by SM target and module: bytes, and which image a GPU loads.

    Each is a wheel, or a report of one in JSON (tools/wheel/size_report.py).
    """
    from size_report import compare, describe, load

    from smwheel.wheel_contents import coverage_changes, describe_coverage_changes
    from smwheel.wheel_file import guarded

    before, after = (guarded(lambda path=path: load(path), path.name) for path in (old, new))  # type: ignore[misc]
    comparison, changes = compare(before, after), coverage_changes(before, after)
    if as_json:
        content = {**dataclasses.asdict(comparison), "growth": comparison.growth, "coverage": changes}
        click.echo(json.dumps(content, indent=1))
        return
    click.echo(describe(comparison))
    if changes:
        click.echo("\nWhich image a GPU loads:\n" + describe_coverage_changes(changes))
