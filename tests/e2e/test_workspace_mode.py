"""The legacy way of declaring dependencies builds the same wheel."""

from __future__ import annotations

from pathlib import Path

from workspace import Workspace

TARGET = "//wheels:cu130_aarch64_sm12x"


def test_the_main_target_is_the_same_bytes(elsewhere: Workspace, wheels: dict[str, Path]) -> None:
    elsewhere.bazel("build", "--config=workspace", TARGET)
    [wheel] = elsewhere.files(TARGET, "--config=workspace")
    assert wheel.read_bytes() == wheels[wheel.name].read_bytes()
