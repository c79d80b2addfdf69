"""The headers that the include scan finds for a TU are enough: the preprocessor sees no others, and misses none.

TUs of all kinds of modules are preprocessed twice: in a sandbox that holds only the headers of their closure, and where
every header is in sight. The texts are the same, and what the second says that it is made of is in the closure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from preprocessed import first_party
from test_sharing import modules
from workspace import Workspace

PACKAGE = "closures"
# C++ is preprocessed too, not compiled.
SANDBOXED = ("--cxxopt=-E", "--output_groups=preprocessed,compilation_outputs")
# Only a sandbox can give outputs the paths that cache keys have.
UNBOXED = (*SANDBOXED, "--spawn_strategy=local", "--experimental_output_paths=off", "--disk_cache=")
# Headers that TUs are deprived of.
MISSING = [
    ("csrc/norm.cu", "include/flashinfer/norm.cuh"),
    ("csrc/norm.cu", "include/flashinfer/vec_dtypes.cuh"),
    ("csrc/nv_internal/cpp/common/envUtils.cpp", "csrc/nv_internal/tensorrt_llm/common/envUtils.h"),
]


@dataclass(frozen=True)
class Unit:
    """A TU as the importer describes it, under a name of its own in PACKAGE."""

    name: str
    tu: dict[str, Any]
    sm_targets: list[str]

    @property
    def device(self) -> list[str]:
        """Targets of its device code, for the lowest and the highest of its SM targets."""
        ends = dict.fromkeys([self.sm_targets[0], self.sm_targets[-1]]) if self.tu["device_code"] else {}
        return [f"//{PACKAGE}:{self.name}.sm_{sm.replace('.', '')}" for sm in ends]

    @property
    def host(self) -> str:
        """The target of its host code."""
        return f"//{PACKAGE}:{self.name}.host"


def sample(workspace: Workspace) -> list[Unit]:
    """For each kind of module, by the first two words of its name, the CUDA and the C++ TU with most headers.

    Of the CUDA TUs, one with device code where there is any.
    """
    largest: dict[tuple[str, str], tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {}
    for name, module in modules(workspace).items():
        for tu in module["tus"]:
            kind = ("_".join(name.split("_")[:2]), tu["lang"])
            rank = (tu["device_code"], len(tu["hdrs"]), name, tu["src"])
            if kind not in largest or rank > largest[kind][0]:
                largest[kind] = (rank, tu, module["sm_targets"])
    return [
        Unit(f"{kind}.{'cu' if lang == 'cuda' else 'cc'}", tu, sm_targets)
        for (kind, lang), (_, tu, sm_targets) in sorted(largest.items())
    ]


def deprived(workspace: Workspace) -> list[Unit]:
    """The TUs of MISSING, as a scan that does not see the header would describe them."""
    described = {
        tu["src"]: (tu, module["sm_targets"]) for module in modules(workspace).values() for tu in module["tus"]
    }
    units = []
    for number, (src, header) in enumerate(MISSING):
        tu, sm_targets = described[src]
        assert header in tu["hdrs"]
        hdrs = [other for other in tu["hdrs"] if other != header]
        units.append(Unit(f"missing_{number}", {**tu, "hdrs": hdrs}, sm_targets))
    return units


def declare(workspace: Workspace, units: list[Unit]) -> None:
    """Writes PACKAGE, with a module for each unit, made by the macro that makes FlashInfer's."""
    lines = ['load("//kernels/flashinfer:module.bzl", "flashinfer_module")']
    for unit in units:
        arguments = {
            "name": f"{unit.name}.module",
            "linkopts": [],
            "sm_targets": {"cu130": unit.sm_targets},
            "tus": [{**unit.tu, "name": unit.name}],
        }
        # Python's literals of these are Starlark's.
        lines.append(f"flashinfer_module({', '.join(f'{key} = {value!r}' for key, value in arguments.items())})")
    (workspace.path / PACKAGE).mkdir(exist_ok=True)
    (workspace.path / PACKAGE / "BUILD.bazel").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def full(elsewhere: Workspace) -> Iterator[Workspace]:
    """The workspace elsewhere with every module, and PACKAGE."""
    workspace = replace(elsewhere, flags=(*elsewhere.flags, "--config=full"))
    workspace.bazel("build", "@flashinfer//:modules.cu130.txt")
    declare(workspace, sample(workspace) + deprived(workspace))
    yield workspace
    elsewhere.bazel("build", "--nobuild", "//wheels:cu130")


def texts(workspace: Workspace, targets: list[str], flags: tuple[str, ...] = SANDBOXED) -> dict[str, bytes]:
    """Builds the preprocessed texts of targets; they are by target."""
    workspace.bazel("build", *flags, *targets)
    found = {}
    for path in workspace.files(" + ".join(targets), *flags):
        # `x.sm_80.ii`, `x.host.cudafe1.cpp`, or what C++ rules call an object: `_objs/x.host/file.pic.o`.
        name = path.parent.name if path.suffix == ".o" else path.name.removesuffix(".ii").removesuffix(".cudafe1.cpp")
        found[f"//{PACKAGE}:{name}"] = path.read_bytes()
    assert set(found) == set(targets)
    return found


@pytest.mark.slow
def test_a_closure_is_never_too_small(full: Workspace) -> None:
    units = sample(full)
    assert len(units) >= 40
    assert {unit.tu["lang"] for unit in units} == {"cuda", "c++"}
    assert {unit.tu["src"].split("/")[0] for unit in units} == {"csrc", "generated", "cached_ops", "package"}
    owner = {target: unit for unit in units for target in (*unit.device, unit.host)}
    device = [target for unit in units for target in unit.device]
    plain = [unit.host for unit in units if unit.tu["lang"] == "c++"]
    # Front ends of host code parse it as well, which takes long: some will do.
    front = [unit.host for unit in units if unit.tu["lang"] == "cuda"][::8]
    sandboxed = texts(full, [*device, *plain, *front])
    # Once more where every header is in sight, for one SM target each.
    again = [unit.device[-1] for unit in units if unit.device] + plain + front
    for target, text in texts(full, again, UNBOXED).items():
        tu = owner[target].tu
        assert text == sandboxed[target], f"{tu['src']} is another text where more headers are in sight"
        files = first_party(text)
        assert tu["src"] in files
        assert files <= {tu["src"], *tu["hdrs"]}


@pytest.mark.parametrize("number", range(len(MISSING)))
def test_a_header_that_the_scan_misses(full: Workspace, number: int) -> None:
    """A header that is not in the closure is not in the sandbox, though it lies in the source tree."""
    unit = deprived(full)[number]
    _, header = MISSING[number]
    targets = [*unit.device[-1:], unit.host]
    for target in targets:
        message = full.failure(*SANDBOXED, target)
        [including] = re.findall(r"fatal error: (\S+): No such file or directory", message)
        assert header.endswith(including.lstrip("./"))
    for text in texts(full, targets, UNBOXED).values():
        assert header in first_party(text)
