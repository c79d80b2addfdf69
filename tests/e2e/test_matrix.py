"""The recipes of docs/matrix.md, on a copy of the matrix."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from test_failures import edited
from test_sharing import count, modules, sm_targets
from workspace import Workspace

MATRIX = "wheels/matrix.bzl"


@pytest.fixture
def built(elsewhere: Workspace) -> Iterator[Workspace]:
    """The copy with all wheels of CUDA 13.0 built, before and after, and nothing that an earlier run of a test built."""
    elsewhere.bazel("clean")
    elsewhere.bazel("build", "//wheels:cu130")
    yield elsewhere
    elsewhere.bazel("build", "//wheels:cu130")


def test_an_sm_target_of_its_own(built: Workspace) -> None:
    """8.6 for one CPU: one cubin for each TU with device code, and one wheel is another."""
    tus = [tu for module in modules(built).values() for tu in module["tus"] if tu["device_code"]]
    with edited(built.path / MATRIX, '"x86_64": _CU130,', '"x86_64": _CU130 + ["8.6"],'):
        actions = built.build("//wheels:cu130")
    assert sm_targets(actions) == {"8.6"}
    assert count(actions)["CudaCubin"] == len(tus)
    assert [a.label for a in actions if a.mnemonic == "WheelPack"] == ["//wheels:cu130_x86_64_sm9x"]


def test_an_sm_target_that_another_cell_has(built: Workspace) -> None:
    """12.1a for x86_64: aarch64 has it already, so nothing is compiled."""
    with edited(built.path / MATRIX, '"x86_64": _CU130,', '"x86_64": _CU130 + ["12.1a"],'):
        actions = built.build("//wheels:cu130")
    assert count(actions)["CudaCubin"] == count(actions)["CudaHostCompile"] == 0
    assert [a.label for a in actions if a.mnemonic == "WheelPack"] == ["//wheels:cu130_x86_64_sm12x"]


def test_a_cuda_label(built: Workspace) -> None:
    """One entry gives six wheels."""
    targets = '["8.0", "9.0a", "10.0a", "12.0f"]'
    cell = f'struct(cuda_version = "13.4", minimum_driver = "580", sm_targets = {{"aarch64": {targets}, "x86_64": {targets}}})'
    with edited(built.path / MATRIX, "CELLS = {", f'CELLS = {{\n    "cu135": {cell},'):
        built.bazel("build", "--nobuild", "//wheels:cu135")
        names = built.bazel("query", 'kind("py_wheel", deps(//wheels:cu135, 1))').stdout.split()
    assert len(names) == 6


def test_a_device(built: Workspace) -> None:
    """It is promised by the wheels whose SM targets reach it: 12.0f runs on all of 12.x, 12.0a would not."""
    with edited(built.path / MATRIX, r'"12\.1"\]', '"12.1", "12.7"]'):
        built.bazel("build", "//wheels:matrix.json")
        [path] = built.files("//wheels:matrix.json")
        promising = {w["name"] for w in json.loads(path.read_text())["wheels"] if "12.7" in w["devices"]}
    assert promising == {f"{label}_{cpu}_sm12x" for label in ("cu130", "cu134") for cpu in ("aarch64", "x86_64")}
