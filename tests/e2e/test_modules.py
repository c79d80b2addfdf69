"""Profiles, the flag that names modules, and the lists of modules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from test_sharing import action_counts, modules
from workspace import ROOT, Workspace

GOLDEN = ROOT / "tests" / "kernels" / "flashinfer" / "golden"


@pytest.fixture(scope="module")
def full(elsewhere: Workspace) -> Iterator[Workspace]:
    """The workspace elsewhere with every module."""
    yield replace(elsewhere, flags=(*elsewhere.flags, "--config=full"))
    elsewhere.bazel("build", "--nobuild", "//wheels:cu130")


def test_only_modules_that_are_asked_for(here: Workspace) -> None:
    counts = action_counts(here, "//wheels:cu130_x86_64_sm9x")
    assert counts["CudaLink"] == 10
    flags = ("--//kernels:modules=norm,page",)
    asked = action_counts(replace(here, flags=(*here.flags, *flags)), "//wheels:cu130_x86_64_sm9x")
    assert asked["CudaLink"] == 2
    assert asked["CudaCubin"] == 2 * 4 == asked["CudaPreprocess"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("norm,nrom", ["modules=norm,nrom: FlashInfer has no module 'nrom'", "//kernels:modules.<label>.txt", "To do: correct the name"]),
        ("rope", ["modules=rope: FlashInfer's module 'rope' is not built here: not in profile core", "expected: modules that are `built`", "To do: add --config=full"]),
        ("moe_utils", ["'moe_utils' is not built here: needs files of NVIDIA's cubin server", "To do: leave the name out"]),
    ],
)  # fmt: skip
def test_a_module_that_there_is_not(here: Workspace, names: str, words: list[str]) -> None:
    message = here.failure("--nobuild", "//wheels:cu130_x86_64_sm9x", f"--//kernels:modules={names}")
    for text in words:
        assert text in message


def test_a_profile_that_there_is_not(elsewhere: Workspace) -> None:
    message = elsewhere.failure("--nobuild", "//wheels:cu130_x86_64_sm9x", "--repo_env=FLASHINFER_PROFILE=all")
    for text in ("FLASHINFER_PROFILE=all: there is no such profile", "expected: one of core, full, serving", "To do:"):
        assert text in message


@pytest.mark.parametrize("label", ["cu130", "cu134"])
def test_every_pair_of_full_is_one_cubin(full: Workspace, label: str) -> None:
    """Over all wheels of a CUDA version, each (TU with device code, SM target) and embedded cubin is compiled once."""
    # A server's memory has room for all modules of one CUDA version, not for whatever it did before as well.
    full.bazel("shutdown")
    counts = action_counts(full, f"//wheels:{label}")
    listed = modules(full, label).values()
    pairs = sum(tu["device_code"] * len(module["sm_targets"]) for module in listed for tu in module["tus"])
    pairs += sum(len(module["embedded"]) for module in listed)
    assert counts["CudaCubin"] == counts["CudaPreprocess"] == pairs


def test_lists(full: Workspace) -> None:
    targets = [f"//kernels:modules.{golden.name}" for golden in sorted(GOLDEN.iterdir())]
    full.bazel("build", *targets)
    for path, golden in zip(full.files(" + ".join(targets)), sorted(GOLDEN.iterdir()), strict=True):
        assert path.read_text() == golden.read_text().partition("\n")[2]


def test_the_manifest_says_what_is_missing(full: Workspace) -> None:
    """The manifest of a wheel with one module of `full` names those that can't be built."""
    flag = "--//kernels:modules=silu_and_mul"
    full.bazel("build", "//wheels:cu130_x86_64_sm12x", "--output_groups=manifest", flag)
    [path] = [
        p
        for p in replace(full, flags=(*full.flags, flag)).files("//wheels:cu130_x86_64_sm12x")
        if p.name.endswith(".whl")
    ]
    manifest = json.loads((path.parent / "cu130_x86_64_sm12x.manifest.json").read_text())
    assert list(manifest["modules"]) == ["silu_and_mul"]
    assert Counter(manifest["not_built"].values())["needs files of NVIDIA's cubin server"] == 6
