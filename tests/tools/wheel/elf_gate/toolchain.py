"""The host compiler, as the tests of this package call it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

CPUS = ("aarch64", "x86_64")
_BIN = next(Path(path).parent for path in os.environ["TOOLS"].split() if path.endswith("-g++")).absolute()


def tool(cpu: str, name: str, *arguments: str | Path, check: bool = True) -> str:
    """What a tool for a CPU prints, errors and all."""
    result = subprocess.run(
        [_BIN / f"{cpu}-linux-gnu-{name}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    assert not check or result.returncode == 0, result.stdout
    return result.stdout


def module(cpu: str, source: str, *flags: str, language: str = "c++") -> bytes:
    """A shared library. It is stripped, as modules are: the names of crti.o and crtn.o are paths of this machine."""
    suffix = {"c++": "cc", "assembler": "s"}[language]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"a.{suffix}")
        path.write_text(source)
        tool(cpu, "g++", path, "-shared", "-fPIC", "-O2", "-std=c++17", "-s", *flags, "-o", Path(directory, "a.so"))
        return Path(directory, "a.so").read_bytes()
