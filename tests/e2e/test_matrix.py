"""The recipes of docs/matrix.md, on a copy of the matrix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from test_failures import edited
from test_sharing import DISTINCT, count, modules, sm_targets
from workspace import Workspace

MATRIX = "wheels/matrix.bzl"


@pytest.fixture
def built(elsewhere: Workspace) -> Iterator[Workspace]:
    """The copy with all wheels of CUDA 13.0 built, before and after, and nothing that an earlier run of a test built.

    Its wheels may grow: one more SM target is more than the 5 % that a baseline allows.
    """
    elsewhere.bazel("clean")
    with edited(elsewhere.path / MATRIX, 'GROWTH_LIMIT = "5"', 'GROWTH_LIMIT = "100"'):
        elsewhere.bazel("build", "//wheels:cu130")
        yield elsewhere
    elsewhere.bazel("build", "//wheels:cu130")


def test_an_sm_target_of_its_own(built: Workspace) -> None:
    """8.6 for one CPU: one cubin for each TU with device code, and one wheel is another."""
    tus = [tu for module in modules(built).values() for tu in module["tus"] if tu["device_code"]]
    with edited(built.path / MATRIX, '"x86_64": _CU130,', '"x86_64": _CU130 + ["8.6"],'):
        actions = built.build("//wheels:cu130")
        # Under the limit that ships, the build says what has grown.
        with edited(built.path / MATRIX, 'GROWTH_LIMIT = "100"', 'GROWTH_LIMIT = "5"'):
            message = built.failure("//wheels:cu130_x86_64_sm9x")
    assert sm_targets(actions) == {"8.6"}
    assert count(actions)["CudaCubin"] == len(tus)
    assert [a.label for a in actions if a.mnemonic == "WheelPack"] == ["//wheels:cu130_x86_64_sm9x"]
    assert re.search(r"found: +\d+ bytes, \+\d+\.\d % of its baseline's \d+", message), message
    assert re.search(r"8\.6 was added", message), message


def test_an_sm_target_that_another_cell_has(built: Workspace) -> None:
    """12.1a for x86_64: aarch64 has it already, so nothing is compiled."""
    with edited(built.path / MATRIX, '"x86_64": _CU130,', '"x86_64": _CU130 + ["12.1a"],'):
        actions = built.build("//wheels:cu130")
    assert count(actions)["CudaCubin"] == count(actions)["CudaHostCompile"] == 0
    assert [a.label for a in actions if a.mnemonic == "WheelPack"] == ["//wheels:cu130_x86_64_sm12x"]


def test_a_cuda_label(elsewhere: Workspace) -> None:
    """One entry gives six wheels of all modules, also where a server runs that knows the matrix of before."""
    elsewhere.bazel("shutdown")
    elsewhere.bazel("build", "//wheels:matrix.json")
    targets = '["8.0", "9.0a", "10.0a", "12.0f"]'
    cell = f'struct(cuda_version = "13.4", fatbin_compression = "size", sm_targets = {{"aarch64": {targets}, "x86_64": {targets}}})'
    with edited(elsewhere.path / MATRIX, "CELLS = {", f'CELLS = {{\n    "cu135": {cell},'):
        elsewhere.bazel("build", "--nobuild", "//wheels:cu135")
        wheels = 'kind("py_wheel", deps(//wheels:cu135, 1))'
        assert len(elsewhere.bazel("query", wheels).stdout.split()) == 6
        built = elsewhere.bazel("query", f'kind("cuda_shared_library", deps({wheels}, 1))').stdout.split()
        assert len(built) == len(modules(elsewhere, "cu135")) >= 10
    assert "cu135" not in elsewhere.bazel("query", "//wheels:*").stdout


def resolved(workspace: Workspace) -> dict[str, Any]:
    """The wheels of the resolved matrix by name."""
    workspace.bazel("build", "//wheels:matrix.json")
    [path] = workspace.files("//wheels:matrix.json")
    return {wheel["name"]: wheel for wheel in json.loads(path.read_text())["wheels"]}


def test_a_device(elsewhere: Workspace) -> None:
    """It is promised by the wheels whose SM targets reach it: 12.0f runs on all of 12.x, 12.0a would not."""
    with edited(elsewhere.path / MATRIX, r'"12\.1"\]', '"12.1", "12.7"]'):
        promising = {name for name, wheel in resolved(elsewhere).items() if "12.7" in wheel["devices"]}
    assert promising == {
        f"{label}_{cpu}_sm12x" for label in ("cu129", "cu130", "cu134") for cpu in ("aarch64", "x86_64")
    }


def test_a_family(elsewhere: Workspace) -> None:
    """One entry gives a wheel for each cell; here one for a single major."""
    before = resolved(elsewhere)
    entry = '"sm90": struct(majors = [9], base = [], devices = ["9.0"], budget = 4 * _MIB)'
    with edited(elsewhere.path / MATRIX, "FAMILIES = {", f"FAMILIES = {{\n    {entry},"):
        after = resolved(elsewhere)
    added = {name: wheel for name, wheel in after.items() if name not in before}
    assert {name: after[name] for name in before} == before
    assert set(added) == {f"{label}_{cpu}_sm90" for label in DISTINCT for cpu in ("aarch64", "x86_64")}
    assert all((w["sm_targets"], w["devices"]) == (["9.0a"], ["9.0"]) for w in added.values())


def test_a_family_without_its_base(elsewhere: Workspace) -> None:
    with edited(elsewhere.path / MATRIX, r'base = \["8\.0"\]', "base = []"):
        after = resolved(elsewhere)
    assert {name for name, wheel in after.items() if "8.0" in wheel["sm_targets"]} == {
        f"{label}_{cpu}_sm9x" for label in DISTINCT for cpu in ("aarch64", "x86_64")
    }


def test_an_sm_target_that_the_toolkit_does_not_know(elsewhere: Workspace) -> None:
    with edited(elsewhere.path / MATRIX, '"x86_64": _CU129,', '"x86_64": _CU129 + ["10.7a"],'):
        message = elsewhere.failure("//wheels:matrix.json")
    for words in (
        "cu129, x86_64: the toolkit of CUDA 12.9 does not know SM target 10.7a",
        "expected:",
        "To do: take 10.7a out",
    ):
        assert words in message
