"""What the probes may ask of a machine: files, environment variables and programs under a time limit.

Tests put a recording in its place.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """What a program answered."""

    status: int
    stdout: str
    stderr: str = ""


@dataclass(frozen=True)
class NotRun:
    """Why a program gave no answer. `missing`: there is no such program."""

    reason: str
    missing: bool = False


class System(Protocol):
    """A machine, as the probes see it."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment variables."""

    @property
    def executable(self) -> str:
        """The Python that runs this program, which can be asked without another process; empty if it can't."""

    @property
    def release(self) -> str:
        """`uname -r`."""

    def read(self, path: str) -> str | None:
        """The text of a file; None if it can't be read."""

    def which(self, program: str) -> str | None:
        """The path of a program, None if there is none."""

    def run(self, name: str, command: Sequence[str], timeout: float) -> Completed | NotRun:
        """Runs a program for at most `timeout` seconds. `name` is what a recording knows it by."""


@dataclass(frozen=True)
class LocalSystem:
    """This machine."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    release: str = field(default_factory=lambda: os.uname().release)
    executable: str = sys.executable

    def read(self, path: str) -> str | None:
        """The text of a file; None if it can't be read."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def which(self, program: str) -> str | None:
        """The path of a program, None if there is none."""
        import shutil

        return shutil.which(program, path=self.environ.get("PATH"))

    def run(self, name: str, command: Sequence[str], timeout: float) -> Completed | NotRun:
        """Runs a program for at most `timeout` seconds.

        It is not waited for once it is killed: a program that hangs inside the driver can't be, and would hang this one.
        """
        import subprocess

        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environ),
                start_new_session=True,
            )
        except FileNotFoundError:
            return NotRun("not found", missing=True)
        except OSError as error:
            return NotRun(str(error))
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return NotRun(f"no answer within {timeout:g} s")
        return Completed(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
