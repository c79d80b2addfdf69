"""CUDA 13.4 and compute capability 10.7 (Rubin)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from workspace import Workspace

TARGET = "//wheels:cu134_aarch64_sm10x"


def test_every_module_runs_on_rubin(here: Workspace) -> None:
    """Of FlashInfer's core modules, upstream builds all for 10.0f in place of 10.7a: their CUTLASS has no 10.7."""
    here.bazel("build", TARGET)
    [path] = here.files(TARGET)
    with zipfile.ZipFile(path) as wheel:
        manifest = json.loads(wheel.read("flashinfer_jit_cache/manifest.json"))
    assert manifest["version"] == "0.7.4+cu134.sm10x"
    assert manifest["sm_targets"] == ["8.0", "10.0a", "10.3a", "10.7a", "11.0a"]
    assert manifest["devices"] == ["8.0", "8.6", "8.9", "10.0", "10.3", "10.7", "11.0"]
    for module in manifest["modules"].values():
        assert list(module["sm_targets"]) == ["8.0", "10.0a", "10.0f", "10.3a", "11.0a"]


def test_no_wheel_of_an_older_toolkit_claims_it(here: Workspace, wheels: dict[str, Path]) -> None:
    for path in wheels.values():
        with zipfile.ZipFile(path) as wheel:
            assert "10.7" not in json.loads(wheel.read("flashinfer_jit_cache/manifest.json"))["devices"]
    here.bazel("build", "//wheels:matrix.json")
    [matrix] = here.files("//wheels:matrix.json")
    promising = {w["name"] for w in json.loads(matrix.read_text())["wheels"] if "10.7" in w["devices"]}
    assert promising == {"cu134_aarch64_sm10x", "cu134_x86_64_sm10x"}
