"""What a person provides is imported and built: NCCL and torch. (tests/e2e/test_upstream_commands.py: the cubin server's files.)"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import provisions
import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from workspace import CACHE, Workspace

BINDING = "cake_sm120_megamoe_binding_16a644216f3065f82931"
REDUCE = "dcp_lse_reduce"
LIST = "//kernels:modules.cu130.txt"
COMPILES = {"CudaPreprocess", "CudaCubin", "CudaHostFront", "CudaHostCompile", "CudaLink"}


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory that actions see."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="provided-") as path:
        yield Path(path)


def providing(workspace: Workspace, **directories: Path) -> Workspace:
    settings = [f"--repo_env=FLASHINFER_{name.upper()}={path}" for name, path in directories.items()]
    flags = ["--config=full", "--//toolchains/cuda:sm_targets=12.0a,12.0f", *settings]
    return replace(workspace, flags=(*workspace.flags, *flags))


def targets(*modules: str) -> list[str]:
    return [f"//kernels/flashinfer:{module}" for module in modules]


def test_modules_that_need_nccl_and_torch(here: Workspace, directory: Path) -> None:
    """Both are built, with libraries by soname alone; where the headers lie is nowhere in them."""
    workspace = providing(here, nccl=provisions.nccl(), torch=provisions.torch(directory / "torch"))
    workspace.build(*targets(BINDING, REDUCE), LIST)
    *libraries, listed = workspace.files(" + ".join([*targets(BINDING, REDUCE), LIST]))
    statuses = dict(line.split("\t") for line in listed.read_text().splitlines())
    assert statuses[BINDING] == statuses[REDUCE] == "built"
    others = {status for name, status in statuses.items() if name.startswith("cake_sm120_megamoe_") and name != BINDING}
    assert others == {"built"}
    needed = {}
    for library in libraries:
        content = library.read_bytes()
        assert str(directory).encode() not in content
        assert str(provisions.nccl()).encode() not in content
        with library.open("rb") as file:
            [dynamic] = [s for s in ELFFile(file).iter_sections() if isinstance(s, DynamicSection)]
            tags = [(tag.entry.d_tag, getattr(tag, "needed", "")) for tag in dynamic.iter_tags()]
        assert not {"DT_RPATH", "DT_RUNPATH"} & {tag for tag, _ in tags}
        needed[library.stem] = {name for tag, name in tags if tag == "DT_NEEDED"}
    assert {"libcuda.so.1", "libnccl.so.2"} <= needed[BINDING]
    torch = {"libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so"}
    assert {*torch, "libnccl.so.2"} <= needed[REDUCE]


def test_where_it_lies_says_nothing(here: Workspace, directory: Path) -> None:
    """The same headers elsewhere, in the other layout: nothing is compiled again."""
    workspace = providing(here, nccl=provisions.nccl())
    workspace.build(*targets(BINDING))
    [library] = workspace.files(*targets(BINDING))
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    shutil.copytree(provisions.nccl(), directory / "site-packages/nvidia/nccl")
    moved = providing(here, nccl=directory / "site-packages")
    assert not [action for action in moved.build(*targets(BINDING)) if action.mnemonic in COMPILES]
    assert hashlib.sha256(library.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("NCCL=/tmp/there", ["FLASHINFER_NCCL=/tmp/there lies in /tmp", "expected: a directory elsewhere", "To do: move it"]),
        ("TORCH=there", ["FLASHINFER_TORCH=there: expected an absolute path", "--repo_env=FLASHINFER_TORCH=$PWD/there"]),
        ("CUBINS=/there", ["FLASHINFER_CUBINS=/there does not have what it is given for", "flashinfer download-cubin", "found:    no such directory", "To do: correct the path"]),
        ("NCCL=/usr/share", ["FLASHINFER_NCCL=/usr/share does not have", "expected: nccl.h, nccl_device.h in include", "nvidia-nccl-cu13==2.30.7"]),
    ],
)  # fmt: skip
def test_directories_without_what_is_expected(here: Workspace, setting: str, words: list[str]) -> None:
    message = here.failure("--nobuild", "//kernels/flashinfer:norm", f"--repo_env=FLASHINFER_{setting}")
    for text in words:
        assert text in message
