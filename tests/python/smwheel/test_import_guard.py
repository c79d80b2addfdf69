"""The wheel's package, as FlashInfer's own jit.env loads it: it serves what it has code for, and names the right wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import smwheel  # noqa: F401 (the build's programs are importable by it)
from sm_targets import runs_on

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "python/flashinfer_jit_cache"

MANIFEST = {
    "schema_version": 2,
    "distribution": "flashinfer-jit-cache",
    "version": "0.7.4+cu130.sm12x",
    "cuda_version": "13.0",
    "sm_targets": ["8.0", "12.0f"],
    "devices": ["8.0", "8.6", "8.9", "12.0", "12.1"],
    "siblings": {
        "0.7.4+cu130.sm10x": ["10.0", "10.3"],
        "0.7.4+cu130.sm9x": ["7.5", "8.0", "8.6", "8.9", "9.0"],
    },
    "modules": {
        "norm": {"sm_targets": {"8.0": {}, "12.0f": {}}},
        "only12": {"sm_targets": {"12.0f": {}}},
    },
}

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
gpus = json.loads(sys.argv[2])
torch.cuda.device_count = lambda: len(gpus)
torch.cuda.get_device_capability = lambda index=0: tuple(gpus[index])
from flashinfer.jit import env
import flashinfer_jit_cache
flashinfer_jit_cache.get_jit_cache_providers()
print(json.dumps({
    "norm": [artifact.provider_id for artifact in env.get_aot_artifacts("norm")],
    "only12": [artifact.provider_id for artifact in env.get_aot_artifacts("only12")],
    "dir": flashinfer_jit_cache.get_jit_cache_dir(),
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package as it would be installed."""
    package: Path = tmp_path_factory.mktemp("site") / "flashinfer_jit_cache"
    package.mkdir()
    shutil.copy(PACKAGE / "__init__.py", package)
    (package / "_build_meta.py").write_text(f'__version__ = "{MANIFEST["version"]}"\n')
    (package / "manifest.json").write_text(json.dumps(MANIFEST))
    for module in ("norm", "only12"):
        (package / "jit_cache" / module).mkdir(parents=True)
        (package / "jit_cache" / module / f"{module}.so").write_bytes(b"")
    return package.parent


def flashinfer(site: Path, tmp_path: Path, gpus: list[tuple[int, int]], **environment: str) -> tuple[Any, str]:
    """What FlashInfer finds on a machine with these GPUs, and what is said on standard error."""
    clean = {key: value for key, value in os.environ.items() if key != "FLASHINFER_CUDA_ARCH_LIST"}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(site), json.dumps(gpus)],
        env={**clean, "FLASHINFER_WORKSPACE_BASE": str(tmp_path), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1]), result.stderr


def test_another_familys_gpu_gets_nothing_and_the_wheel_is_named_once(site: Path, tmp_path: Path) -> None:
    found, said = flashinfer(site, tmp_path, [(9, 0), (9, 0)])
    assert found["norm"] == found["only12"] == []
    assert not Path(found["dir"]).exists(), "FlashInfer 0.6 would load what is there without a look at the GPU"
    assert said.count("has no code for") == 1
    assert (
        "flashinfer-jit-cache 0.7.4+cu130.sm12x has no code for GPUs of compute capability 9.0: FlashInfer compiles for them "
        "at first use. Install flashinfer-jit-cache==0.7.4+cu130.sm9x, which has it: `smwheel install`."
    ) in said


def test_gpus_of_two_families(site: Path, tmp_path: Path) -> None:
    found, said = flashinfer(site, tmp_path, [], FLASHINFER_CUDA_ARCH_LIST="9.0a 12.0f")
    assert found["norm"] == ["sm120f"], "what it has, it serves"
    assert "0.7.4+cu130.sm9x has it, for an environment with these GPUs alone" in said


def test_no_wheel_has_code(site: Path, tmp_path: Path) -> None:
    found, said = flashinfer(site, tmp_path, [], FLASHINFER_CUDA_ARCH_LIST="10.7a")
    assert found["norm"] == []
    assert "No wheel for CUDA 13.0 has it: `smwheel install` says what can be done." in said


@pytest.mark.parametrize(("gpus", "norm"), [([(8, 6)], ["sm80"]), ([], [])], ids=["covered", "no GPU"])
def test_nothing_is_said_without_need(site: Path, tmp_path: Path, gpus: list[tuple[int, int]], norm: list[str]) -> None:
    found, said = flashinfer(site, tmp_path, gpus)
    assert found["norm"] == norm
    assert Path(found["dir"]).is_dir()
    assert "flashinfer-jit-cache" not in said


def test_import_is_cheap_and_asks_nothing(site: Path) -> None:
    """Only the standard library is imported, and neither the manifest nor a GPU is looked at."""
    script = (
        "import sys; before = set(sys.modules); import flashinfer_jit_cache as package;"
        "assert package._manifest.cache_info().currsize == 0;"
        "tops = {name.split('.')[0] for name in set(sys.modules) - before} - {'flashinfer_jit_cache'};"
        "assert tops <= sys.stdlib_module_names, tops;"
        "package.get_jit_cache_providers(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {script}"], check=True)


def test_algebra_is_that_of_the_build(site: Path) -> None:
    """The package's few lines against tools/wheel/sm_targets.py."""
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import flashinfer_jit_cache as package;"
        "print(json.dumps([package._runs_on(sm, device) for sm, device in json.loads(sys.argv[2])]))"
    )
    targets = ["7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0a", "10.0f", "10.3a", "10.7a", "11.0a", "12.0f", "12.1a"]
    devices = ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]
    pairs = [(sm, device) for sm in targets for device in devices]
    answer = subprocess.run(
        [sys.executable, "-c", script, str(site), json.dumps(pairs)], check=True, capture_output=True, text=True
    )
    assert json.loads(answer.stdout) == [runs_on(sm, device) for sm, device in pairs]
