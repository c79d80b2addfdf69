"""CUDA 13.4 and compute capability 10.7 (Rubin)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from workspace import Workspace

# FlashInfer's generators ask for it only where 10.7a is among the SM targets, and build it for just that.
ONLY_RUBIN = "cake_megamoe_topk_reduce_sm107a"


def manifest(path: Path) -> Any:
    """A wheel's manifest."""
    with zipfile.ZipFile(path) as wheel:
        return json.loads(wheel.read("flashinfer_jit_cache/manifest.json"))


def test_every_module_runs_on_rubin(all_wheels: dict[str, Path]) -> None:
    """Most are built for 10.0f in place of 10.7a: upstream does so while their CUTLASS has no `struct Sm107`."""
    [path] = [p for name, p in all_wheels.items() if "+cu134.sm10x" in name and "aarch64" in name]
    found = manifest(path)
    assert found["sm_targets"] == ["8.0", "10.0a", "10.3a", "10.7a", "11.0a"]
    assert "10.7" in found["devices"]
    for name, module in found["modules"].items():
        expected = ["10.7a"] if name == ONLY_RUBIN else ["8.0", "10.0a", "10.0f", "10.3a", "11.0a"]
        assert list(module["sm_targets"]) == expected


def test_the_stand_in_is_the_pinned_sources_own_choice(here: Workspace) -> None:
    """A CUTLASS that has `struct Sm107` would give native images; the one that FlashInfer carries has none."""
    arch = here.repository("flashinfer_sources") / "files/flashinfer/data/cutlass/include/cutlass/arch/arch.h"
    modules = json.loads((here.repository("flashinfer") / "cu134/modules.json").read_text())
    has_it = "struct Sm107" in arch.read_text()
    assert ("10.7a" in modules["page"]["sm_targets"]) == has_it
    assert ("10.0f" in modules["page"]["sm_targets"]) != has_it
    assert modules[ONLY_RUBIN]["sm_targets"] == ["10.7a"]


def test_a_module_of_rubin_alone_is_in_its_wheels_and_nowhere_else(all_wheels: dict[str, Path]) -> None:
    having = {name for name, path in all_wheels.items() if ONLY_RUBIN in manifest(path)["modules"]}
    assert {name.split("-")[1] for name in having} == {"0.7.4+cu134.sm10x"}
    assert len(having) == 2


def test_no_wheel_of_an_older_toolkit_claims_it(here: Workspace, all_wheels: dict[str, Path]) -> None:
    claiming = {name.split("-")[1] for name, path in all_wheels.items() if "10.7" in manifest(path)["devices"]}
    assert claiming == {"0.7.4+cu134.sm10x"}
    here.bazel("build", "//wheels:matrix.json")
    [matrix] = here.files("//wheels:matrix.json")
    promising = {w["name"] for w in json.loads(matrix.read_text())["wheels"] if "10.7" in w["devices"]}
    assert promising == {"cu134_aarch64_sm10x", "cu134_x86_64_sm10x"}
