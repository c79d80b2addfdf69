"""Makes directories to provide to FlashInfer's modules: of NCCL, of a torch with CUDA, of the cubin server's files."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from workspace import CACHE, ROOT

_LOCK = Path(__file__).parent / "nccl.lock.txt"

# In the form in which FlashInfer takes such files apart (jit/trtllm_gen_metainfo.py).
_METAINFO = """static constexpr size_t tllmGen{0}ListLen = 3;
static const {0}Config tllmGen{0}List[] = {{
{{nullptr, 0, 1,
 }}, gemm::SmVersion::Sm100a}},
{{nullptr, 0, 2,
 }}, gemm::SmVersion::Sm103a}},
{{nullptr, 0, 3,
 }}, gemm::SmVersion::Sm107a}},
}};
"""


def nccl() -> Path:
    """The headers of NCCL 2.30.7 as its wheel has them, fetched at most once for what the lock names."""
    home = CACHE / f"nccl-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            part = Path(scratch, "part")
            command: list[str | Path] = [
                sys.executable,
                ROOT / "tools/fetch/pypi.py",
                "fetch",
                "--lock",
                _LOCK,
                "--dest",
                part,
            ]
            command += ["--package", "nvidia-nccl-cu13", "--strip", "nvidia/nccl/", "--keep", "include/"]
            command += ["--platform", "manylinux_2_18_x86_64"]
            subprocess.run(command, check=True)
            part.rename(home)
    return home


def torch(directory: Path) -> Path:
    """The headers of the installed torch, whatever it was built for, and of those that only a build with CUDA has what is used."""
    spec = find_spec("torch")
    assert spec and spec.submodule_search_locations
    shutil.copytree(Path(spec.submodule_search_locations[0], "include"), directory / "include")
    macros = directory / "include/c10/cuda/impl/cuda_cmake_macros.h"
    macros.parent.mkdir(exist_ok=True)
    macros.write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    return directory


def _list(path: Path, name: str) -> list[str]:
    """A list of strings that is a global of a Python file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no {name}")


def cubins(package: Path, python_root: Path, directory: Path) -> None:
    """Made files of the cubin server's, and a FlashInfer that pins them.

    The server can't be asked by a test, and its own files are pinned by sha256: so both sides are made. The checksum files are
    of the server's form, and the pins are where FlashInfer has them.

    Args:
      package: the directory of the installed package flashinfer.
      python_root: where to copy it to, with the sha256 of the made checksum files in place of the pinned ones.
      directory: where to make the files.
    """
    text = (package / "artifacts.py").read_text()
    for name, export, metainfo, kind in (
        ("FMHA", [], "flashInferMetaInfo.h", ""),
        ("BMM", _list(package / "jit/fused_moe.py", "BMM_EXPORT_HEADERS"), "flashinferMetaInfo.h", "BatchedGemm"),
        ("GEMM", _list(package / "jit/gemm/core.py", "GEMM_EXPORT_HEADERS"), "flashinferMetaInfo.h", "Gemm"),
    ):
        path = re.search(rf'TRTLLM_GEN_{name}: str = \(?\s*"([^"]+)"', text)
        assert path
        files = {f"include/{metainfo}": _METAINFO.format(kind)}
        files |= {f"include/trtllmGen_{name.lower()}_export/{h}": f"// {name} {h}\n" for h in export}
        checksums = ""
        for file, content in files.items():
            target = directory / path[1] / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
            checksums += f"{hashlib.sha256(content.encode()).hexdigest()}  {file}\n"
        (directory / path[1] / "checksums.txt").write_text(checksums)
        pin = rf'(TRTLLM_GEN_{name}: str = \(\s*")[0-9a-f]{{64}}"'
        text, number = re.subn(pin, rf'\g<1>{hashlib.sha256(checksums.encode()).hexdigest()}"', text)
        assert number == 1
    shutil.copytree(package, python_root / "flashinfer", ignore=shutil.ignore_patterns("data", "__pycache__"))
    (python_root / "flashinfer/artifacts.py").write_text(text)
