"""The examples: a workspace that uses the rules from outside."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from test_x86_64 import run
from workspace import ROOT, Workspace

LOAD = """
import ctypes, sys
from pathlib import Path
import nvidia.cu13
[cudart] = Path(nvidia.cu13.__path__[0], "lib").glob("libcudart.so.*")
ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
sys.path.insert(0, sys.argv[1])
import axpy
print(axpy.library.axpy_version().decode(), bool(axpy.library.axpy_f32))
"""


@pytest.mark.parametrize("cpu", ["aarch64", "x86_64"])
def test_wheel(here: Workspace, cpu: str, tmp_path: Path) -> None:
    examples = replace(here, path=ROOT / "examples")
    examples.bazel("build", f"//axpy:wheel_{cpu}")
    [path] = examples.files(f"//axpy:wheel_{cpu}")
    assert path.name == f"axpy-1.0+cu130.sm12x-py3-none-manylinux_2_28_{cpu}.whl"
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(tmp_path)
    if cpu == "x86_64":
        assert run(sys.executable, "-c", LOAD, tmp_path) == "1.0 True\n"


@pytest.fixture(scope="module", autouse=True)
def _shut_down(here: Workspace) -> object:
    yield
    replace(here, path=ROOT / "examples").bazel("shutdown")
