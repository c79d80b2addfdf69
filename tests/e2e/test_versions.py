"""Several CUDA versions in one build."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

from workspace import Workspace


def test_twelve_wheels_in_one_invocation(all_wheels: dict[str, Path]) -> None:
    """Of both toolkits that can be fetched anywhere, for both CPUs and all families."""
    assert {tuple(name.split("-")[i] for i in (1, 4)) for name in all_wheels} == {
        (f"0.7.4+{label}.{family}", f"manylinux_2_28_{cpu}.whl")
        for label in ("cu130", "cu134")
        for cpu in ("aarch64", "x86_64")
        for family in ("sm9x", "sm10x", "sm12x")
    }


TARGETS = ["//tests/e2e/versions:cu130", "//tests/e2e/versions:cu134"]


def test_two_versions_in_one_invocation(here: Workspace) -> None:
    """Each wheel is made by its own toolkit: nothing is shared between them, and 10.7a is known to the newer one only."""
    here.bazel("build", *TARGETS)
    [older], [newer] = (here.files(target) for target in TARGETS)
    manifests = []
    for path in (older, newer):
        with zipfile.ZipFile(path) as wheel:
            manifests.append(json.loads(wheel.read("versions/manifest.json")))
    assert [m["cuda_version"] for m in manifests] == ["13.0", "13.4"]
    assert [list(m["modules"]["kernel"]["sm_targets"]) for m in manifests] == [
        ["8.0", "12.0f"],
        ["8.0", "10.7a", "12.0f"],
    ]
    output = here.bazel(
        "aquery",
        f'mnemonic("CudaCubin|CudaHostCompile", deps({" + ".join(TARGETS)}))',
        "--output=jsonproto",
        "--noinclude_artifacts",
        "--noinclude_commandline",
    ).stdout
    counts = Counter(action["mnemonic"] for action in json.loads(output)["actions"])
    assert counts == {"CudaCubin": 5, "CudaHostCompile": 2}


def test_a_target_that_only_a_newer_toolkit_knows(here: Workspace) -> None:
    message = here.failure("//tests/e2e/versions:kernel.kernel.sm_107a", "--//toolchains/cuda:version=13.0")
    assert "the toolkit of CUDA 13.0 does not know SM target 10.7a" in message
    here.bazel("build", "//tests/e2e/versions:kernel.kernel.sm_107a", "--//toolchains/cuda:version=13.4")


def test_a_version_that_is_not_there(here: Workspace) -> None:
    message = here.failure("//tests/e2e/versions:kernel", "--//toolchains/cuda:version=11.0")
    for words in ("there is no toolkit of CUDA '11.0'", "expected: one of 12.8, 12.9, 13.0, 13.4", "toolkits.bzl"):
        assert words in message
