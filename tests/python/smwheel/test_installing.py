"""Installing, with pip and with uv, small wheels from a directory and from an index; then what doctor says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from recorded_system import ROOT, matrix_wheels
from smwheel.exit_codes import ExitCode
from synthetic_wheels import write, write_index

CPU = os.uname().machine
WHEELS = [w for w in matrix_wheels() if w.cuda_label in ("cu129", "cu130")]
BASE = ["--flashinfer-version", "0.7.4", "--cuda-version", "13.0"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels in a directory."""
    path: Path = tmp_path_factory.mktemp("wheels")
    for wheel in WHEELS:
        write(path, wheel)
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index in files."""
    path: Path = tmp_path_factory.mktemp("index")
    write_index(path, WHEELS)
    return path


@pytest.fixture(scope="module")
def pip_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment with pip."""
    path: Path = tmp_path_factory.mktemp("pip")
    venv.create(path, with_pip=True)
    return str(path / "bin/python")


@pytest.fixture(scope="module")
def uv_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One of uv, without pip."""
    path: Path = tmp_path_factory.mktemp("uv") / "venv"
    subprocess.run([sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, path], check=True)
    return str(path / "bin/python")


def smwheel(*arguments: object, code: int = 0) -> Any:
    """Runs the command line with --json; returns what it prints."""
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("SMWHEEL_", "FLASHINFER_", "CUDA_", "VIRTUAL_ENV"))
    }
    result = subprocess.run(
        [sys.executable, "-c", "from smwheel.cli import main; main()", *map(str, arguments), "--json"],
        env={**clean, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == code, result.stdout + result.stderr
    return json.loads(result.stdout) | {"stderr": result.stderr}


def installed(python: str) -> str:
    script = "from importlib.metadata import version; print(version('flashinfer-jit-cache'))"
    return subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("source", ["directory", "index"])
def test_installs_what_the_dry_run_says(request: pytest.FixtureRequest, installer: str, source: str) -> None:
    python: str = request.getfixturevalue(f"{installer}_python")
    path: Path = request.getfixturevalue(source)
    place = ["--find-links", path] if source == "directory" else ["--index-url", path.as_uri()]
    for device, family in (("9.0", "sm9x"), ("12.0", "sm12x")):
        options = ["install", *place, "--python", python, "--device", device, *BASE]
        said = smwheel(*options, "--dry-run")
        assert said["wheel"]["version"] == f"0.7.4+cu130.{family}"
        assert said["installed"] is False
        done = smwheel(*options)
        assert done["installed"] is True
        assert done["command"] == said["command"]
        assert (done["command"][0] == python) == (installer == "pip")
        assert installed(python) == said["wheel"]["version"]
    # There already: nothing is run.
    assert smwheel(*options)["command"] is None
    # FlashInfer itself is not there.
    found = smwheel("doctor", "--python", python, "--device", "12.0", code=ExitCode.FLASHINFER)
    assert [finding["name"] for finding in found["findings"]] == ["FLASHINFER", "OK"]


def test_a_damaged_wheel_is_found_and_mended(pip_python: str, directory: Path) -> None:
    options = ["install", "--find-links", directory, "--python", pip_python, "--device", "12.0", *BASE]
    smwheel(*options)
    [module] = Path(pip_python).parents[1].glob("lib/python*/site-packages/*/jit_cache/norm/norm.so")
    module.unlink()
    found = smwheel("doctor", "--python", pip_python, "--device", "12.0", code=ExitCode.FLASHINFER)
    assert "DAMAGED" in [finding["name"] for finding in found["findings"]]
    assert "--force-reinstall" in smwheel(*options)["command"]
    assert module.exists()


def test_bytes_that_are_not_those_of_the_index_are_refused(pip_python: str, tmp_path: Path) -> None:
    """The pin has the sha256 of index.json: a page that serves other bytes does not get them installed."""
    write_index(tmp_path, [w for w in WHEELS if w.cpu == CPU and w.version == "0.7.4+cu130.sm9x"])
    [path] = tmp_path.glob("cu130/sm9x/flashinfer-jit-cache/*.whl")
    wheel = next(w for w in WHEELS if w.filename == path.name)
    write(path.parent, wheel, note="other bytes")
    (path.parent / "index.html").write_text(f'<a href="{path.name.replace("+", "%2B")}">{path.name}</a>')
    said = smwheel(
        "install", "--index-url", tmp_path.as_uri(), "--python", pip_python, "--device", "9.0", *BASE,
        code=ExitCode.INSTALLER,
    )  # fmt: skip
    assert "do not match the hashes" in said["stderr"].lower()
    assert "pip did not install the wheel" in said["error"]["message"]
    assert "exit status 1" in said["error"]["message"]


def test_what_was_installed_is_checked(pip_python: str, tmp_path: Path) -> None:
    """An index whose list says more than the wheel has."""
    write_index(tmp_path, [w for w in WHEELS if w.cpu == CPU and w.version == "0.7.4+cu130.sm10x"])
    listing = json.loads((tmp_path / "index.json").read_text())
    listing["wheels"][0]["devices"].append("10.7")
    (tmp_path / "index.json").write_text(json.dumps(listing))
    said = smwheel(
        "install", "--index-url", tmp_path.as_uri(), "--python", pip_python, "--device", "10.7", *BASE,
        code=ExitCode.VERIFICATION,
    )  # fmt: skip
    assert "a wheel without code for 10.7" in said["error"]["message"]
    assert "run smwheel doctor" in said["error"]["message"]
    assert said["installed"] is False


def test_torch_of_the_target_decides(uv_python: str, directory: Path) -> None:
    """A torch that would fail if it were imported."""
    [site] = Path(uv_python).parents[1].glob("lib/python*/site-packages")
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("raise RuntimeError")
    (site / "torch/version.py").write_text("__version__ = '2.13.0+cu129'\ncuda = '12.9'\n")
    (site / "torch-2.13.0+cu129.dist-info").mkdir()
    (site / "torch-2.13.0+cu129.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cu129\n"
    )
    said = smwheel(
        "install", "--find-links", directory, "--python", uv_python, "--device", "12.0", "--flashinfer-version", "0.7.4",
        "--dry-run",
    )  # fmt: skip
    assert said["wheel"]["version"] == "0.7.4+cu129.sm12x"
    assert said["environment"]["cuda"] == {"value": "12.9", "source": "torch 2.13.0+cu129"}
