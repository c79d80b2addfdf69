"""The x86_64 wheels, installed by pip and by uv, loaded by tvm_ffi and found by FlashInfer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from test_sharing import modules
from workspace import Workspace

FAMILIES = ["sm9x", "sm10x", "sm12x"]

# Loads every module as FlashInfer does, and prints what each exports.
LOAD = """
import ctypes, json, os, sys
from pathlib import Path
import nvidia.cu13, tvm_ffi
[cudart] = Path(nvidia.cu13.__path__[0], "lib").glob("libcudart.so.*")
ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
sys.path.insert(0, sys.argv[1])
import flashinfer_jit_cache
root = Path(flashinfer_jit_cache.get_jit_cache_dir())
for path in sorted(root.glob("*/*.so")):
    ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    tvm_ffi.load_module(str(path))
print(json.dumps({"version": flashinfer_jit_cache.__version__, "loaded": sorted(p.stem for p in root.glob("*/*.so"))}))
"""

# Asks FlashInfer itself which modules it finds, and where.
DISCOVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from flashinfer.jit import env
manifest = json.loads(sys.argv[2])
providers = env.FLASHINFER_AOT_PROVIDERS
print(json.dumps({
    "modules": sorted({m for p in providers for m in p.modules}),
    "targets": sorted(t for p in providers for t in p.cuda_architectures),
    "found": {m: [str(a.path) for a in env.get_aot_artifacts(m)] for m in manifest["modules"]},
}))
"""


def run(*command: str | Path, **environment: str) -> str:
    """Runs a program; what it says is in the failure."""
    result = subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def manifest_of(wheel: Path) -> Any:
    """The manifest in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read("flashinfer_jit_cache/manifest.json"))


@pytest.fixture(params=FAMILIES)
def wheel(request: pytest.FixtureRequest, wheels: dict[str, Path]) -> Path:
    """An x86_64 wheel."""
    return wheels[f"flashinfer_jit_cache-0.7.4+cu130.{request.param}-cp39-abi3-manylinux_2_28_x86_64.whl"]


def installed_by_pip(wheel: Path, into: Path) -> Path:
    """Installs a wheel into a new venv with pip, and returns its site-packages directory."""
    venv.create(into, with_pip=True)
    run(into / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    [site] = into.glob("lib/python*/site-packages")
    return site


def test_pip_installs_and_every_module_loads(wheel: Path, tmp_path: Path) -> None:
    site = installed_by_pip(wheel, tmp_path / "venv")
    run(tmp_path / "venv/bin/python", "-m", "pip", "check")
    loaded = json.loads(run(sys.executable, "-c", LOAD, site))
    manifest = manifest_of(wheel)
    assert loaded == {"version": manifest["version"], "loaded": sorted(manifest["modules"])}


def test_uv_installs_the_same_files(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    run(
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--offline",
        "--no-deps",
        "--python",
        tmp_path / "venv/bin/python",
        wheel,
    )
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    loaded = json.loads(run(sys.executable, "-c", LOAD, site))
    assert loaded["loaded"] == sorted(manifest_of(wheel)["modules"])


def test_flashinfer_finds_exactly_the_modules_of_the_manifest(wheel: Path, tmp_path: Path) -> None:
    site = installed_by_pip(wheel, tmp_path / "venv")
    manifest = manifest_of(wheel)
    for sm in manifest["sm_targets"]:
        output = run(
            sys.executable, "-c", DISCOVER, site, json.dumps(manifest),
            FLASHINFER_CUDA_ARCH_LIST=sm, FLASHINFER_WORKSPACE_BASE=str(tmp_path),
        )  # fmt: skip
        found = json.loads(output.splitlines()[-1])
        assert found["modules"] == sorted(manifest["modules"])
        assert found["targets"] == sorted("sm" + t.replace(".", "") for t in manifest["sm_targets"])
        directory = site / "flashinfer_jit_cache/jit_cache"
        assert found["found"] == {m: [str(directory / m / f"{m}.so")] for m in manifest["modules"]}


# Family, CPU, the SM targets of a host's GPUs as FlashInfer writes them, and the providers that it must choose.
CHOICES = [
    ("sm9x", "x86_64", "8.6", ["sm80"]),
    ("sm9x", "x86_64", "8.9", ["sm89"]),
    ("sm9x", "x86_64", "9.0a", ["sm90a"]),
    ("sm9x", "x86_64", "8.6 9.0a", ["sm80", "sm90a"]),
    ("sm9x", "x86_64", "12.0f", []),
    ("sm10x", "x86_64", "10.3a", ["sm103a"]),
    ("sm10x", "x86_64", "9.0a", []),
    ("sm10x", "aarch64", "11.0a", ["sm110a"]),
    ("sm12x", "x86_64", "12.0f", ["sm120f"]),
    ("sm12x", "x86_64", "12.1a", ["sm120f"]),
    ("sm12x", "aarch64", "12.1a", ["sm121a"]),
    # Two families in one host: what the wheel has for one of them. FlashInfer compiles for the other itself.
    ("sm12x", "x86_64", "9.0a 12.0f", ["sm120f"]),
]

CHOOSE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from flashinfer.jit import env
print(json.dumps([[a.provider_id for a in env.get_aot_artifacts(module)] for module in json.loads(sys.argv[2])]))
"""


@pytest.mark.parametrize(("family", "cpu", "gpus", "providers"), CHOICES)
def test_flashinfer_chooses_the_image_that_runs(
    wheels: dict[str, Path], family: str, cpu: str, gpus: str, providers: list[str], tmp_path: Path
) -> None:
    wheel = wheels[f"flashinfer_jit_cache-0.7.4+cu130.{family}-cp39-abi3-manylinux_2_28_{cpu}.whl"]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    modules_ = sorted(manifest_of(wheel)["modules"])
    output = run(
        sys.executable, "-c", CHOOSE, tmp_path, json.dumps(modules_),
        FLASHINFER_CUDA_ARCH_LIST=gpus, FLASHINFER_WORKSPACE_BASE=str(tmp_path),
    )  # fmt: skip
    assert json.loads(output.splitlines()[-1]) == [providers] * len(modules_)


def exported(wheel: Path, module: str) -> set[str]:
    """The functions that a module's dynamic symbol table defines."""
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"flashinfer_jit_cache/jit_cache/{module}/{module}.so") as file,
    ):
        symbols: Any = ELFFile(file).get_section_by_name(".dynsym")
        return {
            s.name
            for s in symbols.iter_symbols()
            if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] == "STB_GLOBAL"
        }


def upstreams_functions(here: Workspace, module: str) -> set[str]:
    """The functions that the sources of a module export."""
    repository = here.repository("flashinfer")
    sources = [(repository / tu["src"]).read_text() for tu in modules(here)[module]["tus"]]
    return {
        name for text in sources for name in re.findall(r"^TVM_FFI_DLL_EXPORT_TYPED_FUNC\((\w+)", text, re.MULTILINE)
    }


def test_modules_export_exactly_upstreams_functions(here: Workspace, wheel: Path) -> None:
    for module in manifest_of(wheel)["modules"]:
        expected = {f"__tvm_ffi_{name}" for name in upstreams_functions(here, module)}
        assert expected, module
        names = exported(wheel, module)
        described = {
            name.replace("__tvm_ffi__metadata_", "__tvm_ffi_") for name in names if name.startswith("__tvm_ffi_")
        }
        assert described == expected
        assert not [name for name in names if "smwheel" in name], "what joins the halves of a TU stays inside"
