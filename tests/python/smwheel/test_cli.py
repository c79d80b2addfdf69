"""The command line as a whole."""

from __future__ import annotations

import importlib

import click
import pytest
from click.testing import CliRunner
from smwheel import cli


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(cli.group, ["--help"])
    assert result.exit_code == 0
    for name in cli.COMMANDS:
        assert name in result.output


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_commands_have_help(name: str) -> None:
    command = importlib.import_module(f"smwheel.commands.{name}").command
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(cli.group, [name, "--help"])
    assert result.exit_code == 0, result.output


def test_unknown_command() -> None:
    result = CliRunner().invoke(cli.group, ["instal"])
    assert result.exit_code == 2
    assert "No such command 'instal'" in result.output
