"""How bazelw finds or provides Bazel, and what it says when it can't."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from workspace import ROOT, Workspace

PINNED = (ROOT / ".bazelversion").read_text().strip()


def fake_bazel(directory: Path, name: str, version: str) -> Path:
    """A program that answers as a Bazel of some version does, and prints its arguments otherwise."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "bazel {version}" || echo "{name} ran:" "$@"\n')
    path.chmod(0o755)
    return path


def bazelw(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs bazelw with what is different in its environment."""
    return subprocess.run(
        [ROOT / "bazelw", *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_bazel_of_the_environment_comes_first(tmp_path: Path) -> None:
    result = bazelw("info", BAZEL=str(fake_bazel(tmp_path, "mine", PINNED)))
    assert result.stdout == "mine ran: info\n"


def test_bazel_of_the_environment_must_be_the_pinned_one(tmp_path: Path) -> None:
    path = fake_bazel(tmp_path, "mine", "6.0.0")
    result = bazelw("info", BAZEL=str(path))
    assert result.returncode == 2
    for words in (f"BAZEL={path} gives version '6.0.0'", f"pins {PINNED}", "Point BAZEL at"):
        assert words in result.stderr


def test_bazelisk_and_bazel_on_path(tmp_path: Path) -> None:
    fake_bazel(tmp_path, "bazel", PINNED)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert bazelw("info", PATH=path).stdout == "bazel ran: info\n"
    fake_bazel(tmp_path, "bazelisk", PINNED)
    assert bazelw("info", PATH=path).stdout == "bazelisk ran: info\n"


def test_another_version_on_path_is_passed_over(tmp_path: Path) -> None:
    fake_bazel(tmp_path, "bazel", "6.0.0")
    result = bazelw("--version", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "ran:" not in result.stdout
    assert result.returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_is_told_what_to_install(tmp_path: Path) -> None:
    """As one who can't install packages, on a machine without mmdebstrap."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "sed", "timeout", "sha256sum", "cut", "mkdir", "id", "apt-get", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    copy = tmp_path / "smwheel"
    copy.mkdir()
    for name in ("bazelw", ".bazelversion", "tools/debian_root.sh"):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    tmp_path.chmod(0o755)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    for directory in [tmp_path, *tmp_path.parents][:3]:
        directory.chmod(directory.stat().st_mode | 0o055)
    result = subprocess.run(
        [
            str(shutil.which("setpriv")),
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "bash",
            str(copy / "bazelw"),
            "info",
        ],
        env={"PATH": str(tools), "SMWHEEL_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)},
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "mmdebstrap bubblewrap uidmap. Run: sudo apt-get install mmdebstrap bubblewrap uidmap" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_interrupted_run_leaves_nothing_half_made(tmp_path: Path) -> None:
    with subprocess.Popen(
        [ROOT / "bazelw", "--version"],
        env={**os.environ, "SMWHEEL_CACHE": str(tmp_path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if "making the Debian root" in line:
                break
        else:
            pytest.fail("it did not say that it makes the root")
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("debian-root-*.part")) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)
        process.stderr.read()
        assert process.wait(120) != 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("debian-root")] == []


def test_actions_can_not_write_outside(here: Workspace) -> None:
    """Bazel really uses linux-sandbox, so this is refused."""
    assert "Read-only file system" in here.failure("//tests/e2e/failures:writes_outside")


def test_actions_can_not_connect(here: Workspace) -> None:
    """Not even to this machine: the listener is there, and the action does not reach it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        message = here.failure("//tests/e2e/failures:connects", f"--define=port={server.getsockname()[1]}")
    assert "Connection refused" in message
