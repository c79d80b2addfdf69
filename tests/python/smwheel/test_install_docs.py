"""docs/install.md: its commands run, and its tables are those of the code."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner
from recorded_system import ROOT, TABLE, matrix_wheels, recorded
from smwheel import detect, diagnosis
from smwheel.cli import group
from smwheel.commands import doctor, install
from smwheel.exit_codes import ExitCode

TEXT = (ROOT / "docs/install.md").read_text()
COMMANDS = sorted(set(re.findall(r"^smwheel .*$", TEXT, re.MULTILINE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "candidates", lambda *_: matrix_wheels())
    healthy = TABLE["doctor"][0] | ({"nvml": "5090"} if "--sm-family sm12x" in command else {})
    arguments = shlex.split(command)[1:]
    if arguments[0] == "install":
        arguments += ["--dry-run"]
    result = CliRunner().invoke(group, arguments, obj=recorded(healthy))
    assert result.exit_code == 0, (result.output, result.exception)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 5


def test_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", TEXT, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(int(code), code.name) for code in ExitCode]


def test_order_of_doctor() -> None:
    [listed] = re.findall(r"the worst first: ([\d, ]+)\.", TEXT)
    assert [int(code) for code in listed.split(",")] == [int(code) for code in diagnosis.ORDER if code]


@pytest.mark.parametrize("command", [install.command, doctor.command])
def test_options_are_told(command: object) -> None:
    for parameter in command.params:  # type: ignore[attr-defined]
        assert parameter.help or parameter.name == "installer", parameter.name


def test_environment_variables() -> None:
    source = (ROOT / "python/smwheel/detect.py").read_text() + (ROOT / "python/smwheel/commands/install.py").read_text()
    for variable in set(re.findall(r"\b(?:SMWHEEL_\w+|FLASHINFER_CUDA_ARCH_LIST)\b", source)):
        assert variable in TEXT
    assert detect.NVML_TIMEOUT > 0
