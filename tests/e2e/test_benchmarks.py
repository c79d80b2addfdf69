"""The benchmark of packing still runs: it writes by hand what the rules of wheels write for the same programs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import ROOT

PACKING = ROOT / "benchmarks/packing.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment's Python, with the packages that the benchmark says it takes."""
    path = tmp_path_factory.mktemp("packing") / "venv"
    subprocess.run([sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, path], check=True)
    python = str(path / "bin/python")
    [packages] = re.findall(r"pip install (.*)", PACKING.read_text())
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, *packages.split()], check=True)
    return python


def test_packing(python: str, tmp_path: Path) -> None:
    """On a wheel of four modules and 2 MB, to the last figure."""
    size = ["--scale", "0.001", "--modules", "4", "--repetitions", "1"]
    command = [python, str(PACKING), *size, "--directory", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    said = result.stdout
    assert "\n4 modules, " in said
    for line in ("cold: all members", "one module changed", "wheel pack (0.", "strict reader, every member"):
        assert f"\n{line}" in said
    assert [line.partition(",")[0] for line in said.splitlines()[-3:]] == ["peak memory"] * 3
    assert list(tmp_path.iterdir()) == [], "nothing is left"
