"""The command line: `smwheel`."""

from __future__ import annotations

import importlib
import sys

import click

from smwheel.errors import SmwheelError

# Name of a command -> what it does, a line for `smwheel --help`. Its module is imported when it is called.
COMMANDS = {
    "install": "Install the wheel whose code runs on this machine's GPUs.",
    "doctor": "Say what is wrong with what is installed, and how to mend it.",
    "inspect": "What is in a wheel: SM targets, coverage, sizes.",
    "diff": "What changed from one wheel to another.",
    "check": "Whether a directory of wheels is the whole matrix, and each wheel sound.",
    "index": "Write a static package index of wheels.",
    "publish": "Publish wheels to a GitHub release, all or none.",
    "report": "One page about a directory of wheels: sizes, coverage, growth.",
}


class _Lazy(click.Group):
    """A group whose commands are imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"smwheel.commands.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from smwheel import __version__

        click.echo(f"smwheel, version {__version__}")
        ctx.exit()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def group() -> None:
    """Wheels of CUDA kernels, one per (CUDA version, CPU, GPU SM family)."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits: 0, or the exit code of the error."""
    try:
        group.main(arguments, standalone_mode=True)
    except SmwheelError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
