"""Real wheels: pip and uv install what `smwheel install --dry-run` says, and a request that no wheel fits says why."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from workspace import ROOT

CPU = platform.machine()

# A device of each family that wheels of both CUDA versions cover on both CPUs.
DEVICES = {"sm9x": "9.0", "sm10x": "10.0", "sm12x": "12.0"}


@pytest.fixture(scope="module")
def directory(all_wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All wheels in one directory."""
    path: Path = tmp_path_factory.mktemp("wheels")
    for name, wheel in all_wheels.items():
        (path / name).symlink_to(wheel.resolve())
    return path


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A virtual environment with pip, and one of uv without it."""
    path: Path = tmp_path_factory.mktemp("environments")
    venv.create(path / "pip", with_pip=True)
    subprocess.run([sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, path / "uv"], check=True)
    return {name: str(path / name / "bin/python") for name in ("pip", "uv")}


def smwheel(*arguments: object) -> tuple[int, Any]:
    """Runs the command line; returns its exit code and what it prints as JSON."""
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("SMWHEEL_", "FLASHINFER_", "CUDA_", "VIRTUAL_ENV"))
    }
    result = subprocess.run(
        [sys.executable, "-c", "from smwheel.cli import main; main()", *map(str, arguments), "--json"],
        env={**clean, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return result.returncode, json.loads(result.stdout)


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("cuda", ["13.0", "13.4"])
@pytest.mark.parametrize("family", list(DEVICES))
def test_installs_what_the_dry_run_says(
    directory: Path, pythons: dict[str, str], installer: str, cuda: str, family: str
) -> None:
    python = pythons[installer]
    request = [
        "install", "--find-links", directory, "--python", python, "--device", DEVICES[family], "--cuda-version", cuda,
        "--flashinfer-version", "0.7.4",
    ]  # fmt: skip
    code, said = smwheel(*request, "--dry-run")
    assert code == 0, said
    version = f"0.7.4+cu{cuda.replace('.', '')}.{family}"
    assert (said["wheel"]["version"], said["wheel"]["cpu"]) == (version, CPU)
    code, done = smwheel(*request)
    assert code == 0, done
    assert done["command"] == said["command"]
    code, found = smwheel("doctor", "--python", python, "--device", DEVICES[family])
    assert found["environment"]["installed"]["version"] == version
    assert found["environment"]["installed"]["damaged"] == []
    # FlashInfer and torch are not in this environment.
    assert {finding["name"] for finding in found["findings"]} == {"FLASHINFER", "OK"}
    assert code == 10


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--device", "9.0", "--sm-family", "sm12x", "--cuda-version", "13.0"], 5,
         "No wheel of SM family sm12x for this CUDA version has code for 9.0."),
        (["--device", "10.7", "--cuda-version", "13.0"], 5, "then 0.7.4+cu134.sm10x covers it"),
        (["--device", "9.0", "--cuda-version", "12.9"], 7, "There is no wheel for CUDA 12.9."),
        (["--device", "9.0", "--device", "12.0", "--cuda-version", "13.0"], 6, "they are of several SM families"),
        (["--device", "9.0", "--cuda-version", "13.0", "--flashinfer-version", "0.7.3"], 10,
         "There is no wheel for FlashInfer 0.7.3."),
    ],
    ids=["family", "newer CUDA", "CUDA", "families", "version"],
)  # fmt: skip
def test_what_fits_no_wheel(
    directory: Path, pythons: dict[str, str], options: list[str], code: int, message: str
) -> None:
    request = ["install", "--find-links", directory, "--python", pythons["pip"], "--flashinfer-version", "0.7.4"]
    found, said = smwheel(*request, *options)
    assert (found, said["exit_code"]) == (code, code)
    assert message in said["error"]["message"]


def test_a_directory_of_the_other_cpu(directory: Path, pythons: dict[str, str], tmp_path: Path) -> None:
    for wheel in directory.iterdir():
        if not wheel.name.endswith(f"_{CPU}.whl"):
            (tmp_path / wheel.name).symlink_to(wheel.resolve())
    request = ["install", "--find-links", tmp_path, "--python", pythons["pip"], "--flashinfer-version", "0.7.4"]
    code, said = smwheel(*request, "--device", "9.0", "--cuda-version", "13.0")
    assert code == 9
    assert f"There is no wheel for the CPU {CPU}." in said["error"]["message"]


def test_manifests_name_the_other_wheels_of_their_cell(all_wheels: dict[str, Path]) -> None:
    manifests = {}
    for name, path in all_wheels.items():
        with zipfile.ZipFile(path) as wheel:
            manifests[name] = json.loads(wheel.read("flashinfer_jit_cache/manifest.json"))
    for manifest in manifests.values():
        others = {
            other["version"]: other["devices"]
            for other in manifests.values()
            if (other["cuda_version"], other["cpu"]) == (manifest["cuda_version"], manifest["cpu"])
            and other["sm_family"] != manifest["sm_family"]
        }
        assert list(manifest["siblings"]) == sorted(others)
        for version, devices in manifest["siblings"].items():
            assert devices
            assert set(devices) <= set(others[version]), "what the matrix promises of it, its own manifest says too"
