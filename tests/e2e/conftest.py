"""Workspaces and wheels that the end-to-end tests share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools/wheel"))

from small_wheel import WHEEL, digest
from workspace import CACHE, ROOT, Workspace, copy_workspace


@pytest.fixture(scope="session")
def here() -> Workspace:
    """This workspace."""
    return Workspace(ROOT, tuple(shlex.split(os.environ.get("SMWHEEL_BAZEL_FLAGS", ""))))


@pytest.fixture(scope="session")
def wheels(here: Workspace) -> dict[str, Path]:
    """The six wheels of CUDA 13.0 by file name, built in this workspace."""
    return here.wheels("//wheels:cu130")


@pytest.fixture(scope="session")
def all_wheels(here: Workspace) -> dict[str, Path]:
    """The twelve wheels whose toolkits can be fetched anywhere, by file name, built in one invocation."""
    return here.wheels(*(f"//wheels:{label}_{cpu}" for label in ("cu130", "cu134") for cpu in ("x86_64", "aarch64")))


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Workspace]:
    """A copy of this workspace in another directory, with another PATH and a disk cache that only it writes.

    What it builds was compiled by itself: nothing of this workspace's output or caches is used.
    """
    path = CACHE / "elsewhere" / "copy-of-smwheel"
    copy_workspace(path)
    workspace = Workspace(
        path,
        (f"--disk_cache={CACHE / 'elsewhere' / 'disk'}",),
        {"PATH": "/usr/local/games:/usr/games:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C", "USER": "somebody"},
        path / "bazelw",
    )
    yield workspace
    workspace.bazel("shutdown")


@pytest.fixture(scope="session")
def machines() -> Iterator[tuple[Workspace, Workspace]]:
    """Two machines: copies of this workspace, with output bases, PATH and user of their own. No disk cache.

    What is fetched (toolkits, sources) is kept between runs; what is built is not.
    """
    environments: list[dict[str, str]] = [
        {"USER": "alice"},
        {"USER": "bob", "PATH": "/usr/local/games:/usr/games:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C"},
    ]
    paths = [CACHE / "machines" / "alice" / "smwheel", CACHE / "machines" / "bob" / "src" / "a-checkout"]
    with ExitStack() as stack:
        workspaces = []
        for path, environment in zip(paths, environments, strict=True):
            copy_workspace(path)
            workspace = Workspace(path, (), environment, path / "bazelw", timeout=900)
            stack.callback(workspace.bazel, "shutdown")
            workspaces.append(workspace)
        yield workspaces[0], workspaces[1]


@pytest.fixture(scope="session")
def right(machines: tuple[Workspace, Workspace]) -> str:
    """The sha256 of the small wheel, built without any server."""
    machine, _ = machines
    machine.bazel("clean")
    machine.bazel("build", WHEEL)
    return digest(machine)


@pytest.fixture
def machine(machines: tuple[Workspace, Workspace], right: str) -> Workspace:
    """The first of the machines, once it is known what it builds without any server."""
    return machines[0]
