"""A build farm runs the same build: every action travels, and the bytes are those of a local build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from servers import During, Server, buildgrid, casd, free_ports, within, worker
from small_wheel import ACTIONS, KINDS, WHEEL, digest, runners
from workspace import CACHE, Workspace

pytestmark = pytest.mark.remote

MAIN = "//wheels:cu130_aarch64_sm12x"


@contextmanager
def buildgrid_with_worker(directory: Path) -> Iterator[Server]:
    """BuildGrid with one worker."""
    with buildgrid(directory / "farm") as farm, worker(directory / "worker", farm):
        yield farm


def on(machine: Workspace, farm: Server | str, *flags: str) -> Workspace:
    """A machine that builds on a farm, or on an address, with nothing built."""
    address = farm if isinstance(farm, str) else farm.address
    machine.bazel("clean")
    return replace(machine, flags=("--config=remote", f"--remote_executor={address}", "--verbose_failures", *flags))


def size(directory: Path) -> int:
    """Bytes of the files in a directory, which may change meanwhile: servers write to temporary files."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@pytest.mark.parametrize("kind", [casd, buildgrid_with_worker])
def test_every_action_runs_there(
    machine: Workspace, right: str, kind: Callable[[Path], AbstractContextManager[Server]], tmp_path: Path
) -> None:
    with kind(tmp_path / "farm") as farm:
        # One cubin uploads the toolkit and the compiler; another one adds its own files only.
        store = farm.directory / "store"
        remote = on(machine, farm)
        remote.bazel("build", "//tests/e2e/remote:small.scale.sm_80")
        first = size(store)
        assert first > 200e6
        remote.bazel("build", "//tests/e2e/remote:small.shift.sm_120f")
        assert size(store) - first < 3e6

        spawns = on(machine, farm, "--noremote_accept_cached").spawns(WHEEL)
        assert Counter(spawn.mnemonic for spawn in spawns) == KINDS
        assert runners(spawns) == {"remote": ACTIONS}
        assert digest(machine) == right
        assert not list((machine.path / "bazel-bin/tests/e2e/remote").rglob("*.member")), "only the wheel is fetched"

        # A job that needs no file: nothing is run, nothing is fetched.
        remote = on(machine, farm, "--remote_download_outputs=minimal")
        assert runners(remote.spawns(WHEEL)) == {"remote cache hit": ACTIONS}
        assert not list((machine.path / "bazel-bin/tests/e2e/remote").rglob("*.whl"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [casd, buildgrid_with_worker])
def test_the_main_target(
    machine: Workspace,
    here: Workspace,
    kind: Callable[[Path], AbstractContextManager[Server]],
    tmp_path: Path,
) -> None:
    """A wheel of FlashInfer: all its actions run there, and it is the local build's to the byte."""
    [local] = here.wheels(MAIN).values()
    # casd's results serve test_remote_machines.py too, which need not compile the same again.
    with kind(CACHE / "machines" / "casd" if kind is casd else tmp_path / "farm") as farm:
        spawns = on(machine, farm, "--noremote_accept_cached").spawns(MAIN)
        counts = Counter(spawn.mnemonic for spawn in spawns)
        assert counts["CudaCubin"] == counts["CudaPreprocess"] > 30
        assert counts["CudaHostCompile"] > 10
        assert set(runners(spawns)) == {"remote"}
        [path] = machine.files(MAIN)
        assert path.read_bytes() == local.read_bytes()


def test_a_worker_that_is_killed(machine: Workspace, right: str, tmp_path: Path) -> None:
    """Its actions are given to another one."""
    with buildgrid(tmp_path / "farm") as farm, worker(tmp_path / "one", farm) as one:
        with worker(tmp_path / "two", farm), within(180):
            with During(lambda: one.processes("buildbox-run-bubblewrap"), one.kill):
                spawns = on(machine, farm).spawns(WHEEL)
        assert runners(spawns) == {"remote": ACTIONS}
        assert digest(machine) == right


def test_a_farm_that_is_down(machine: Workspace) -> None:
    with within(60):
        message = on(machine, f"grpc://127.0.0.1:{free_ports(1)[0]}").failure(WHEEL)
    assert "Failed to query remote execution capabilities" in message
    assert "Connection refused" in message


def test_a_farm_that_is_killed(machine: Workspace, tmp_path: Path) -> None:
    with buildgrid_with_worker(tmp_path / "farm") as farm, within(120):
        with During(lambda: size(farm.directory / "store") > 50e6, farm.kill):
            message = on(machine, farm).failure(WHEEL)
    assert "UNAVAILABLE" in message
