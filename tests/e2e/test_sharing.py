"""Device code is compiled once for all wheels, host code once for each CPU; and the same bytes come out elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from workspace import Action, Workspace

SM_TARGETS = ["7.5", "8.0", "8.9", "9.0a", "10.0a", "10.3a", "11.0a", "12.0f", "12.1a"]  # of cu130


def modules(workspace: Workspace) -> Any:
    """What the importer wrote of FlashInfer's modules: its modules.json."""
    return json.loads((workspace.repository("flashinfer") / "cu130" / "modules.json").read_text())


def count(actions: list[Action]) -> Counter[str]:
    """How many actions of each mnemonic ran."""
    return Counter(action.mnemonic for action in actions)


def sm_targets(actions: list[Action]) -> set[str]:
    """The SM targets of the cubins that were made."""
    names = {
        action.output.rpartition(".sm_")[2].removesuffix(".cubin")
        for action in actions
        if action.mnemonic == "CudaCubin"
    }
    return {re.sub(r"(\d)([af]?)$", r".\1\2", name) for name in names}


# SM targets by CUDA label: 10.7a of cu134 is built as 10.0f.
DISTINCT = {"cu130": 9, "cu134": 10}


@pytest.mark.parametrize("labels", [["cu130"], ["cu130", "cu134"]])
def test_action_counts(here: Workspace, labels: list[str]) -> None:
    """(TUs with device code) x (SM targets) cubins, (TUs) x (CPUs) host objects; each CUDA version has its own."""
    wheels = " + ".join(f"//wheels:{label}" for label in labels)
    output = here.bazel(
        "aquery",
        f'mnemonic("Cuda.*", deps({wheels}))',
        "--output=jsonproto",
        "--noinclude_artifacts",
        "--noinclude_commandline",
    ).stdout
    counts = Counter(action["mnemonic"] for action in json.loads(output)["actions"])
    tus = [tu for module in modules(here).values() for tu in module["tus"]]
    with_device_code = [tu for tu in tus if tu["device_code"]]
    assert (
        counts["CudaPreprocess"]
        == counts["CudaCubin"]
        == len(with_device_code) * sum(DISTINCT[label] for label in labels)
    )
    assert counts["CudaHostFront"] == counts["CudaHostCompile"] == len(tus) * 2 * len(labels)
    assert counts["CudaFatbin"] == counts["CudaLink"] == len(modules(here)) * 6 * len(labels)


@pytest.fixture(scope="module")
def sequence(elsewhere: Workspace) -> dict[str, list[Action]]:
    """The actions that ran for one wheel after the other, from nothing."""
    elsewhere.bazel("clean")
    names = ["cu130_aarch64_sm12x", "cu130_x86_64_sm12x", "cu130_aarch64_sm10x", "cu130"]
    return {name: elsewhere.build(f"//wheels:{name}") for name in names}


def test_first_wheel_compiles_its_own_targets(sequence: dict[str, list[Action]]) -> None:
    assert sm_targets(sequence["cu130_aarch64_sm12x"]) == {"8.0", "12.0f", "12.1a"}


def test_other_cpu_compiles_no_cubin(sequence: dict[str, list[Action]]) -> None:
    counts = count(sequence["cu130_x86_64_sm12x"])
    assert counts["CudaCubin"] == counts["CudaPreprocess"] == 0
    assert counts["CudaHostCompile"] > 0


def test_other_family_compiles_only_its_own_cubins(sequence: dict[str, list[Action]]) -> None:
    actions = sequence["cu130_aarch64_sm10x"]
    assert sm_targets(actions) == {"10.0a", "10.3a", "11.0a"}
    assert count(actions)["CudaHostCompile"] == count(actions)["CudaHostFront"] == 0


def test_nothing_is_compiled_twice(sequence: dict[str, list[Action]]) -> None:
    outputs = Counter(
        a.output for actions in sequence.values() for a in actions if a.mnemonic in ("CudaCubin", "CudaHostCompile")
    )
    assert [output for output, times in outputs.items() if times > 1] == []


def test_the_same_bytes_elsewhere(
    sequence: dict[str, list[Action]], elsewhere: Workspace, wheels: dict[str, Path]
) -> None:
    """Another directory, another PATH: the six wheels are byte-identical."""
    there = elsewhere.wheels()

    def digests(paths: dict[str, Path]) -> dict[str, str]:
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(paths.items())}

    assert digests(there) == digests(wheels)
