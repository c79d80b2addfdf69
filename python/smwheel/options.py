"""Options that `smwheel install` and `smwheel doctor` share, and types of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from smwheel import environment


class _Parsed(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A value that a function reads; its ValueError is what a person sees."""

    def __init__(self, name: str, read: Callable[[str], str]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


CUDA_VERSION = _Parsed("version", environment.cuda_version)
DEVICE = _Parsed("device", environment.device)

python = click.option(
    "--python",
    metavar="PATH",
    help="The Python to install for. Default: of the active virtual environment, else the one that runs smwheel.",
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output, all else on standard error."
)
