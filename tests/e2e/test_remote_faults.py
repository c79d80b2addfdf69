"""Caches and build farms that fail: the build ends with the right wheel, or with one clear message, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from servers import During, Server, buildgrid, casd, free_ports, http_cache, within
from small_wheel import ACTIONS, WHEEL, digest, runners
from workspace import Spawn, Workspace

pytestmark = pytest.mark.remote


def build(machine: Workspace, server: Server | str, *flags: str, config: str = "cache") -> list[Spawn]:
    """Builds the wheel from nothing, with a server or an address as cache."""
    address = server if isinstance(server, str) else server.address
    machine.bazel("clean")
    return machine.spawns(WHEEL, f"--config={config}", f"--remote_cache={address}", *flags)


def uploads(server: Server) -> int:
    """How many requests to write nginx has answered with success."""
    return (server.directory / "access.log").read_text().count('" 201 ')


def stored(server: Server, kind: str) -> list[Path]:
    """The files of the HTTP cache: `cas` has contents, `ac` has results of actions."""
    return [path for path in (server.directory / "store" / kind).glob("*") if path.is_file()]


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_down_at_the_start(machine: Workspace, right: str, scheme: str) -> None:
    with within(60):
        spawns = build(machine, f"{scheme}://127.0.0.1:{free_ports(1)[0]}")
    assert runners(spawns) == {"linux-sandbox": ACTIONS}
    assert digest(machine) == right


def test_killed_in_the_middle(machine: Workspace, right: str, tmp_path: Path) -> None:
    with http_cache(tmp_path / "cache") as server, within(60):
        with During(lambda: uploads(server) > 10, server.kill):
            build(machine, server)
        assert digest(machine) == right


def test_killed_in_the_middle_over_grpc(machine: Workspace, right: str, tmp_path: Path) -> None:
    store = tmp_path / "cache" / "store"
    with buildgrid(tmp_path / "cache") as server, within(90):
        with During(lambda: sum(path.is_file() for path in store.rglob("*")) > 10, server.kill):
            build(machine, server)
        assert digest(machine) == right


@pytest.mark.parametrize(("kind", "program"), [(http_cache, "nginx"), (casd, "buildbox-casd")])
def test_hung(
    machine: Workspace,
    right: str,
    kind: Callable[[Path], AbstractContextManager[Server]],
    program: str,
    tmp_path: Path,
) -> None:
    """It accepts connections and never answers. The worst moment is the start: every action has to notice it.

    Each call may take a second here, to keep the test short; the configuration allows five.
    """
    with kind(tmp_path / "cache") as server, server.stopped(program), within(180):
        build(machine, server, "--remote_timeout=1s")
        assert digest(machine) == right


def test_slow(machine: Workspace, right: str, tmp_path: Path) -> None:
    """A transfer that goes on is not cut off, however long it takes; a slow cache is no broken one."""
    with http_cache(tmp_path / "cache", "--rate", "40k") as server:
        build(machine, server)
        with within(120):
            spawns = build(machine, server)
        assert runners(spawns) == {"remote cache hit": ACTIONS}
        assert digest(machine) == right


def damage(path: Path) -> None:
    """Changes one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


FAULTS = pytest.mark.parametrize("fault", [damage, Path.unlink])


@FAULTS
def test_contents_that_are_corrupt_or_missing(
    machine: Workspace, right: str, fault: Callable[[Path], None], tmp_path: Path
) -> None:
    """Those of every file: each action that asks for one runs instead, and the good file replaces it."""
    with http_cache(tmp_path / "cache") as server:
        build(machine, server)
        for path in stored(server, "cas"):
            fault(path)
        with within(120):
            build(machine, server)
        assert digest(machine) == right
        assert runners(build(machine, server)) == {"remote cache hit": ACTIONS}, "it has healed"
        assert digest(machine) == right


@FAULTS
def test_the_same_where_only_the_wheel_is_fetched(
    machine: Workspace, right: str, fault: Callable[[Path], None], tmp_path: Path
) -> None:
    """A wheel is packed again. If everything is bad, the build says so, and one that fetches everything heals the cache."""
    flag = "--remote_download_outputs=toplevel"
    with http_cache(tmp_path / "cache") as server:
        build(machine, server)
        fault(server.directory / "store/cas" / right)
        with within(120):
            spawns = build(machine, server, flag)
        assert [s.mnemonic for s in spawns if s.runner == "linux-sandbox"] == ["WheelPack"]
        assert digest(machine) == right

        for path in stored(server, "cas"):
            fault(path)
        machine.bazel("clean")
        with within(120):
            message = machine.failure(WHEEL, "--config=cache", f"--remote_cache={server.address}", flag)
        assert "Failed to fetch blobs" in message
        build(machine, server)
        assert digest(machine) == right


@pytest.mark.parametrize("length", [0, 40])
def test_results_that_are_cut_off(machine: Workspace, right: str, length: int, tmp_path: Path) -> None:
    with http_cache(tmp_path / "cache") as server:
        build(machine, server)
        for path in stored(server, "ac"):
            path.write_bytes(path.read_bytes()[:length])
        with within(60):
            build(machine, server)
        assert digest(machine) == right


def test_full_disk(machine: Workspace, right: str, tmp_path: Path) -> None:
    """What does not fit is refused whole: nothing that is cut off is ever stored."""
    directory = tmp_path / "cache"
    with http_cache(directory, prefix=f"mount -t tmpfs -o size=2m none {directory}") as server:
        with within(60):
            build(machine, server)
        assert digest(machine) == right
        with within(60):
            spawns = build(machine, server)
        assert 0 < runners(spawns)["remote cache hit"] < ACTIONS
        assert digest(machine) == right


def test_read_only(machine: Workspace, right: str, tmp_path: Path) -> None:
    """A job that must not write does not try to; and if it does, it is refused, and builds all the same."""
    with http_cache(tmp_path / "cache") as server:
        read_only = f"http://127.0.0.1:{server.ports[1]}"
        build(machine, read_only, config="cache-readonly")
        log = (server.directory / "access.log").read_text()
        assert "GET" in log
        assert "PUT" not in log
        with within(60):
            build(machine, read_only)
        assert digest(machine) == right
        assert '"PUT' in (server.directory / "access.log").read_text()
        assert stored(server, "cas") == stored(server, "ac") == []

        build(machine, server)
        spawns = build(machine, read_only, config="cache-readonly")
        assert runners(spawns) == {"remote cache hit": ACTIONS}
        assert digest(machine) == right
