"""Recorded environments (environments.json), each with what smwheel install and smwheel doctor must make of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from recorded_system import TABLE, matrix_wheels, recorded
from smwheel.cli import group
from smwheel.commands import install
from smwheel.environment import Environment
from smwheel.errors import SmwheelError


def ids(cases: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in cases]


def invoke(command: str, case: dict[str, Any], *options: str) -> tuple[Result, int, str, list[str]]:
    """Runs a command on a recorded machine: its result, exit code, all that a person reads, and who was asked."""
    system = recorded(case)
    arguments = [command, *case.get("arguments", []), *options]
    result = CliRunner().invoke(group, arguments, obj=system)
    error = result.exception
    if isinstance(error, SmwheelError):
        return result, error.exit_code, f"{result.output}error: {error}", system.asked
    assert error is None or isinstance(error, SystemExit), f"{error!r}"
    return result, result.exit_code, result.output, system.asked


@pytest.fixture(autouse=True)
def _the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "candidates", lambda *_: matrix_wheels())


def test_the_table_is_large_enough() -> None:
    assert len(TABLE["install"]) >= 60
    for table in ("install", "doctor"):
        assert len(set(ids(TABLE[table]))) == len(TABLE[table])


@pytest.mark.parametrize("case", TABLE["install"], ids=ids(TABLE["install"]))
def test_install(case: dict[str, Any]) -> None:
    expect = case["expect"]
    _, code, said, asked = invoke("install", case, "--dry-run")
    assert code == expect["exit_code"], said
    for text in expect.get("says", []):
        assert text in said, said
    if code not in (0, 2):
        assert all(word in said for word in ("expected:", "found:", "To do:"))
    if "asked" in expect:
        assert asked == expect["asked"]

    result, again, _, _ = invoke("install", case, "--dry-run", "--json")
    assert again == code
    if code == 2 and not result.stdout:
        return  # click refuses an option before anything is looked at
    report = json.loads(result.stdout)
    assert report["exit_code"] == code
    if code:
        assert report["error"]["message"]
        return
    wheel, command = report["wheel"], report["command"]
    assert wheel["version"] == expect["wheel"]
    assert wheel["cpu"] == expect.get("cpu", "x86_64")
    assert len(report["refused"]) == len(matrix_wheels()) - 1, "every other wheel is refused, with a reason"
    if expect.get("installer", "any") is None:
        assert command is None
        return
    assert "--no-deps" in command
    assert report["stdin"].startswith(f"flashinfer-jit-cache=={expect['wheel']} --hash=sha256:")
    if "installer" in expect:
        assert (command[1:3] == ["-m", "pip"]) == (expect["installer"] == "pip")
    if "reinstalls" in expect:
        assert any("reinstall" in word for word in command) == expect["reinstalls"]
    if "devices" in expect:
        assert [gpu["device"] for gpu in report["environment"]["gpus"]["value"]] == expect["devices"]


@pytest.mark.parametrize("case", TABLE["doctor"], ids=ids(TABLE["doctor"]))
def test_doctor(case: dict[str, Any]) -> None:
    expect = case["expect"]
    _, code, said, _ = invoke("doctor", case)
    assert code == expect["exit_code"], said
    for text in expect.get("says", []):
        assert text in said, said
    result, again, _, _ = invoke("doctor", case, "--json")
    report = json.loads(result.stdout)
    assert again == code == report["exit_code"]
    assert [finding["name"] for finding in report["findings"]] == expect["findings"]
    assert all(finding["mend"] for finding in report["findings"])


def test_unknown_is_not_none() -> None:
    """What is not known stays None: no probe that fails makes an empty list of GPUs."""
    for case in TABLE["install"]:
        if case["expect"]["exit_code"] == 4:
            report = json.loads(invoke("install", case, "--dry-run", "--json")[0].stdout)
            gpus = report["environment"]["gpus"]
            assert gpus is None or any(gpu["device"] is None for gpu in gpus["value"]), case["name"]


def test_environment_has_a_source_for_each_value() -> None:
    report = json.loads(invoke("install", TABLE["install"][0], "--dry-run", "--json")[0].stdout)
    for name in ("cpu", "flashinfer", "cuda", "driver", "gpus"):
        assert report["environment"][name]["source"], name
    assert set(report["environment"]) == set(Environment.__dataclass_fields__)
