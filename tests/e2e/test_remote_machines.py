"""Machines that share a cache: what one has compiled, no other compiles."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from servers import Server, buildgrid, casd, http_cache
from workspace import CACHE, Spawn, Workspace

pytestmark = pytest.mark.remote

SMALL = "//tests/e2e/remote:"


def cached(machine: Workspace, server: Server) -> Workspace:
    """A machine that uses a server as its cache, with nothing built."""
    machine.bazel("clean")
    return replace(machine, flags=("--config=cache", f"--remote_cache={server.address}"))


def ran(spawns: list[Spawn]) -> Counter[str]:
    """How many actions of each mnemonic were run, rather than fetched."""
    return Counter(spawn.mnemonic for spawn in spawns if spawn.runner != "remote cache hit")


@pytest.mark.parametrize("kind", [casd, buildgrid])
def test_a_small_wheel_over_grpc(
    machines: tuple[Workspace, Workspace], kind: Callable[[Path], AbstractContextManager[Server]], tmp_path: Path
) -> None:
    with kind(tmp_path / "cache") as server:
        alice, bob = (cached(machine, server) for machine in machines)
        first = alice.spawns(SMALL + "aarch64")
        assert ran(first)["CudaCubin"] == 4
        assert {spawn.runner for spawn in first} == {"linux-sandbox"}

        # The second machine runs nothing.
        second = bob.spawns(SMALL + "aarch64")
        assert Counter(s.mnemonic for s in second) == Counter(s.mnemonic for s in first)
        assert ran(second) == {}
        wheels = [machine.files(SMALL + "aarch64")[0].read_bytes() for machine in (alice, bob)]
        assert wheels[0] == wheels[1]

        # The other CPU's wheel, by a machine that has nothing: host code only.
        bob.bazel("clean")
        other = bob.spawns(SMALL + "x86_64")
        assert Counter(s.mnemonic for s in other)["CudaCubin"] == 4
        assert ran(other)["CudaPreprocess"] == ran(other)["CudaCubin"] == 0
        assert ran(other)["CudaHostCompile"] == 2

        # One kernel is edited on one machine, then on the other.
        edit = f"\n__global__ void edit_{uuid.uuid4().hex}() {{}}\n"
        runs = []
        for machine in (bob, alice):
            file = machine.path / "tests/e2e/remote/scale.cu"
            before = file.read_text()
            try:
                file.write_text(before + edit)
                runs.append(ran(machine.spawns(SMALL + "aarch64")))
            finally:
                file.write_text(before)
        assert runs[0] == {
            **{"CudaPreprocess": 2, "CudaCubin": 2, "CudaHostFront": 1, "CudaHostCompile": 1},
            **{"CudaFatbin": 1, "CudaLink": 1, "ModuleCheck": 1, "WheelMember": 1, "WheelPack": 1, "WheelCheck": 1},
        }
        assert runs[1] == {}


WHEELS = "//wheels:cu130_{}_sm12x"


@pytest.fixture(scope="module", params=[http_cache, casd], ids=["http", "grpc"])
def shared(
    machines: tuple[Workspace, Workspace], request: pytest.FixtureRequest
) -> Iterator[tuple[Workspace, Workspace]]:
    """Both machines on one cache, which is kept between runs: a wheel of FlashInfer takes minutes to compile."""
    directory = CACHE / "machines" / request.param.__name__
    if sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) > 2 << 30:
        shutil.rmtree(directory)
    with request.param(directory) as server:
        alice, bob = (cached(machine, server) for machine in machines)
        yield alice, bob


def test_the_second_machine_compiles_nothing(shared: tuple[Workspace, Workspace]) -> None:
    alice, bob = shared
    first = alice.spawns(WHEELS.format("aarch64"))
    second = bob.spawns(WHEELS.format("aarch64"))
    counts = Counter(spawn.mnemonic for spawn in second)
    assert counts == Counter(spawn.mnemonic for spawn in first)
    assert counts["CudaCubin"] > 30
    assert ran(second) == {}
    wheels = [machine.files(WHEELS.format("aarch64"))[0].read_bytes() for machine in shared]
    assert wheels[0] == wheels[1]


def test_the_other_cpu_compiles_no_cubin(shared: tuple[Workspace, Workspace]) -> None:
    _, bob = shared
    bob.bazel("clean")
    spawns = bob.spawns(WHEELS.format("x86_64"))
    assert Counter(spawn.mnemonic for spawn in spawns)["CudaCubin"] > 20
    assert ran(spawns)["CudaPreprocess"] == ran(spawns)["CudaCubin"] == 0


def third_party(directory: str, names: list[str]) -> set[str]:
    """What a checkout need not have: the trees that always come from the pinned sources."""
    return {"cccl", "cutlass", "spdlog"} & set(names) if Path(directory).name == "data" else set()


def test_an_edit_compiles_that_kernel(shared: tuple[Workspace, Workspace]) -> None:
    """One machine edits a kernel, the other makes the same edit: the first runs that kernel's actions, the other none."""
    edit = f"\n__global__ void edit_{uuid.uuid4().hex}() {{}}\n"
    runs = []
    for machine in reversed(shared):
        machine.bazel("build", WHEELS.format("aarch64"))
        pinned = machine.repository("flashinfer_sources") / "files" / "flashinfer"
        checkout = CACHE / "machines" / machine.environment["USER"] / "a-flashinfer"
        shutil.rmtree(checkout, ignore_errors=True)
        shutil.copytree(pinned, checkout / "flashinfer", ignore=third_party)
        flag = f"--repo_env=FLASHINFER_CHECKOUT={checkout}"
        assert ran(machine.spawns(WHEELS.format("aarch64"), flag)) == {}, "the same sources by another way"
        with open(checkout / "flashinfer/data/csrc/page.cu", "a") as file:
            file.write(edit)
        runs.append([s for s in machine.spawns(WHEELS.format("aarch64"), flag) if s.runner != "remote cache hit"])
    assert ran(runs[0]) == {
        **{"CudaPreprocess": 3, "CudaCubin": 3, "CudaHostFront": 1, "CudaHostCompile": 1},
        **{"CudaFatbin": 1, "CudaLink": 1, "ModuleCheck": 1, "WheelMember": 1, "WheelPack": 1, "WheelCheck": 1},
    }
    compiled = {s.label.partition(":")[2] for s in runs[0] if s.mnemonic.startswith("Cuda")}
    assert compiled == {"page", "page.csrc_page.host"} | {f"page.csrc_page.sm_{sm}" for sm in ("80", "120f", "121a")}
    assert runs[1] == []
