"""Makes a directory that looks like an installed toolkit of CUDA 12.4, from Debian's nvcc and NVIDIA's wheels."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workspace import CACHE, ROOT

_LOCKS = Path(__file__).parent / "cuda_12_4"

# NVIDIA's own nvcc.profile; Debian's has Debian's paths.
_PROFILE = """TOP                = $(_HERE_)/..
CICC_PATH          = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH              += $(CICC_PATH):$(_HERE_):
INCLUDES          += "-I$(TOP)/$(_TARGET_DIR_)/include" $(_SPACE_)
"""


def _fetch(program: str, *arguments: str | Path) -> None:
    command = [sys.executable, ROOT / "tools/fetch" / program, "fetch", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def _wheel(package: str, platform: str, strip: str, dest: Path) -> None:
    _fetch(
        "pypi.py",
        *("--lock", _LOCKS / "pypi.txt", "--package", package, "--strip", strip, "--dest", dest),
        *("--platform", platform),
    )


def installed_toolkit() -> Path:
    """The toolkit's directory, made at most once for what the lock files name."""
    pins = b"".join(path.read_bytes() for path in (*sorted(_LOCKS.iterdir()), Path(__file__)))
    home = CACHE / f"cuda-12.4-{hashlib.sha256(pins).hexdigest()[:12]}"
    if home.exists():
        return home
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        part = Path(scratch, "part")
        _fetch("debian.py", "--lock", _LOCKS / "debian.lock.json", "--group", "nvcc", "--dest", Path(scratch, "debian"))
        debian = Path(scratch, "debian/usr")
        own = debian / "lib/nvidia-cuda-toolkit"
        for directory, files in {
            "bin": [
                own / "bin/nvcc",
                *(debian / "bin" / tool for tool in ("cudafe++", "fatbinary", "nvlink", "ptxas")),
            ],
            "nvvm/bin": [own / "bin/cicc"],
            "nvvm/libdevice": [own / "libdevice/libdevice.10.bc"],
        }.items():
            (part / directory).mkdir(parents=True)
            for file in files:
                shutil.copy(file, part / directory)
        (part / "bin/nvcc.profile").write_text(_PROFILE)
        for number, (package, parts) in enumerate(
            {
                "nvidia-cuda-runtime-cu12": "nvidia/cuda_runtime/include/",
                "nvidia-cuda-nvcc-cu12": "nvidia/cuda_nvcc/include/",
                "nvidia-cuda-cccl-cu12": "nvidia/cuda_cccl/include/",
            }.items()
        ):
            _wheel(package, "manylinux2014_x86_64", parts, Path(scratch, str(number)))
            shutil.copytree(Path(scratch, str(number)), part / "include", dirs_exist_ok=True)
        for cpu, target in (("x86_64", "x86_64-linux"), ("aarch64", "sbsa-linux")):
            library = part / "targets" / target / "lib"
            _wheel("nvidia-cuda-runtime-cu12", f"manylinux2014_{cpu}", "nvidia/cuda_runtime/lib/", library)
        part.rename(home)
    return home
