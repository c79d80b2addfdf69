"""The aarch64 wheels, on x86_64: every module loads under qemu with the real aarch64 libcudart and libtvm_ffi."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from workspace import Workspace


@pytest.fixture(scope="session")
def loader(here: Workspace) -> list[str]:
    """The command that loads modules in an aarch64 process; what it is given after it are the modules."""
    targets = [
        "//tests/e2e/aarch64:qemu",
        "//tests/e2e/aarch64:load",
        "@tvm_ffi_aarch64//:files/lib/libtvm_ffi.so",
        "@cuda_13_0_runtime_aarch64//:files/lib",
        "@smwheel_gcc//:files_aarch64",
    ]
    here.bazel("build", *targets)
    paths = [here.files(target) for target in targets]
    qemu, load, tvm_ffi, cuda = (str(found[0]) for found in paths[:4])
    [tree] = [path for path in paths[4] if path.name == "aarch64"]
    cpp = [str(tree / "usr/aarch64-linux-gnu/lib" / name) for name in ("libstdc++.so.6", "libgcc_s.so.1")]
    return [qemu, "-L", str(tree / "usr/aarch64-linux-gnu"), load, *cpp, f"{cuda}/libcudart.so.13", tvm_ffi, "--"]


@pytest.mark.parametrize("family", ["sm9x", "sm10x", "sm12x"])
def test_every_module_loads(family: str, wheels: dict[str, Path], loader: list[str], tmp_path: Path) -> None:
    with zipfile.ZipFile(
        wheels[f"flashinfer_jit_cache-0.7.4+cu130.{family}-cp39-abi3-manylinux_2_28_aarch64.whl"]
    ) as wheel:
        wheel.extractall(tmp_path)
    modules = sorted(map(str, tmp_path.glob("flashinfer_jit_cache/jit_cache/*/*.so")))
    assert len(modules) == 10
    result = subprocess.run([*loader, *modules], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == modules


def test_a_module_that_does_not_resolve_is_noticed(wheels: dict[str, Path], loader: list[str], tmp_path: Path) -> None:
    """The check can fail: without libtvm_ffi no module resolves."""
    [name] = [name for name in wheels if name.endswith("sm12x-cp39-abi3-manylinux_2_28_aarch64.whl")]
    with zipfile.ZipFile(wheels[name]) as wheel:
        module = wheel.extract("flashinfer_jit_cache/jit_cache/page/page.so", tmp_path)
    without = [word for word in loader if "libtvm_ffi" not in word]
    result = subprocess.run([*without, module], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "undefined symbol: TVMFFI" in result.stderr
