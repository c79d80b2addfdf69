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


def modules(workspace: Workspace, label: str = "cu130") -> Any:
    """What the importer wrote of FlashInfer's modules for a CUDA label: its modules.json."""
    return json.loads((workspace.repository("flashinfer") / label / "modules.json").read_text())


def expected_counts(workspace: Workspace, labels: list[str]) -> dict[str, int]:
    """(TUs with device code) x (SM targets of their module) cubins, (TUs) x (CPUs) host objects; each version its own."""
    listed = [module for label in labels for module in modules(workspace, label).values()]
    cubins = sum(tu["device_code"] * len(module["sm_targets"]) for module in listed for tu in module["tus"])
    objects = 2 * sum(len(module["tus"]) for module in listed)
    return {"CudaPreprocess": cubins, "CudaCubin": cubins, "CudaHostFront": objects, "CudaHostCompile": objects}


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


# CUDA label -> number of distinct SM targets of a module that supports all. 10.7a of cu134 is built as 10.0f.
DISTINCT = {"cu128": 6, "cu129": 8, "cu130": 9, "cu134": 10}


def action_counts(workspace: Workspace, targets: str) -> Counter[str]:
    """How many actions of each mnemonic a build of targets has."""
    output = workspace.bazel(
        "aquery",
        f'mnemonic("Cuda.*|WheelPack", deps({targets}))',
        "--output=jsonproto",
        "--noinclude_artifacts",
        "--noinclude_commandline",
    ).stdout
    return Counter(action["mnemonic"] for action in json.loads(output)["actions"])


@pytest.mark.parametrize("labels", [["cu130"], ["cu130", "cu134"]])
def test_action_counts(here: Workspace, labels: list[str]) -> None:
    counts = action_counts(here, " + ".join(f"//wheels:{label}" for label in labels))
    for mnemonic, number in expected_counts(here, labels).items():
        assert counts[mnemonic] == number
    for label in labels:
        assert len(modules(here, label)["norm"]["sm_targets"]) == DISTINCT[label]
    assert counts["WheelPack"] == 6 * len(labels)


def compiles(counts: Counter[str]) -> dict[str, int]:
    """The compile actions among all actions, by mnemonic."""
    return {name: counts[name] for name in ("CudaPreprocess", "CudaCubin", "CudaHostFront", "CudaHostCompile")}


def test_groups_are_what_the_wheels_compile(here: Workspace) -> None:
    """Each cubin is of one group, each host object too; a build of groups and wheels has no action that wheels lack."""
    labels = ["cu130", "cu134"]
    wheels = " + ".join(f"//wheels:{label}" for label in labels)
    groups = {
        name: here.bazel("query", f"filter('//wheels:({'|'.join(labels)}).*{name}', kind(module_parts, //wheels:*))")
        for name in ("_sm_", "_host$")
    }
    cubins, hosts = (groups[name].stdout.split() for name in ("_sm_", "_host$"))
    assert (len(cubins), len(hosts)) == (19, 4)
    of_wheels = action_counts(here, wheels)
    assert action_counts(here, " + ".join([wheels, *cubins, *hosts])) == of_wheels
    assert compiles(action_counts(here, " + ".join(cubins + hosts))) == compiles(of_wheels)
    each = [action_counts(here, group) for group in cubins]
    assert sum(counts["CudaCubin"] for counts in each) == of_wheels["CudaCubin"]
    assert sum(action_counts(here, group)["CudaHostCompile"] for group in hosts) == of_wheels["CudaHostCompile"]
    assert not any(counts["CudaHostFront"] for counts in each)


def test_a_wheel_after_its_groups(elsewhere: Workspace) -> None:
    """Once its groups are built, nothing is compiled for a wheel: it has their very actions, and so their cache keys."""
    elsewhere.bazel("clean")
    groups = [elsewhere.build(f"//wheels:cu130_{name}") for name in ("sm_80", "sm_120f", "x86_64_host")]
    tus = [tu for module in modules(elsewhere).values() for tu in module["tus"]]
    cubins = sum(tu["device_code"] for tu in tus)
    device = {"CudaPreprocess": cubins, "CudaCubin": cubins, "CudaHostFront": 0, "CudaHostCompile": 0}
    host = {"CudaPreprocess": 0, "CudaCubin": 0, "CudaHostFront": len(tus), "CudaHostCompile": len(tus)}
    assert [compiles(count(actions)) for actions in groups] == [device, device, host]
    wheel = count(elsewhere.build("//wheels:cu130_x86_64_sm12x"))
    assert wheel["WheelPack"] == 1
    assert not any(compiles(wheel).values())


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
    there = elsewhere.wheels("//wheels:cu130")

    def digests(paths: dict[str, Path]) -> dict[str, str]:
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(paths.items())}

    assert digests(there) == digests(wheels)
