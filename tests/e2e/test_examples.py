"""The examples: a workspace that uses the rules from outside."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from test_x86_64 import run
from workspace import ROOT, Workspace

LOAD = """
import ctypes, sys
from pathlib import Path
import nvidia.cu13
[cudart] = Path(nvidia.cu13.__path__[0], "lib").glob("libcudart.so.*")
ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
sys.path.insert(0, sys.argv[1])
from smwheel_examples import axpy, histogram
print(axpy.axpy_version().decode(), bool(axpy.axpy_f32), bool(histogram.histogram))
"""


@pytest.fixture(scope="module")
def examples(here: Workspace) -> Iterator[Workspace]:
    """The workspace of the examples."""
    workspace = replace(here, path=ROOT / "examples")
    yield workspace
    workspace.bazel("shutdown")


@pytest.mark.parametrize("cpu", ["aarch64", "x86_64"])
def test_wheel(examples: Workspace, cpu: str, tmp_path: Path) -> None:
    examples.bazel("build", f"//:wheel_{cpu}")
    [path] = examples.files(f"//:wheel_{cpu}")
    assert path.name == f"smwheel_examples-1.0+cu130-py3-none-manylinux_2_28_{cpu}.whl"
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(tmp_path)
    if cpu == "x86_64":
        assert run(sys.executable, "-c", LOAD, tmp_path) == "1.0 True True\n"


@pytest.mark.parametrize("sm", ["80", "90a", "120f"])
@pytest.mark.parametrize("tu", ["histogram", "normalise"])
def test_host_code_registers_the_kernels_of_the_cubin(examples: Workspace, tu: str, sm: str) -> None:
    """Also those that only their TU can see: the halves that are compiled apart agree on every name."""
    target = f"//histogram:histogram.{tu}.sm_{sm}"
    examples.bazel("build", target, "--output_groups=+stub")
    [cubin] = examples.files(target)
    with open(cubin, "rb") as file:
        kernels = {s.name.removeprefix(".text.") for s in ELFFile(file).iter_sections() if s.name.startswith(".text.")}
    stub = cubin.with_name(cubin.name.replace(".cubin", ".stub.c")).read_text()
    registered = set(re.findall(r"__cudaRegisterEntry\(\w+, .*?\), (\w+), ", stub))
    assert len(kernels) == 2
    assert registered == kernels
