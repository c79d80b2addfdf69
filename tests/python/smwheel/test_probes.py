"""The probes themselves: what they ask of NVML, libcuda, a Python and a machine."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from smwheel import probe_libcuda, probe_nvml
from smwheel.detect import Request, ask_python, detect, from_environment, is_tegra
from smwheel.environment import Gpu, cuda_version, device, public
from smwheel.exit_codes import CodedError
from smwheel.system import Completed, LocalSystem, NotRun
from smwheel.visible_devices import AmbiguousError, visible


class _Library:
    """A library of functions that are given in Python; a name that is not there is an AttributeError, as in ctypes."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self.__dict__.update(functions)


def _set(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


def _text(buffer: Any, value: str) -> int:
    buffer.value = value.encode()
    return 0


NVML = {
    "nvmlInit_v2": lambda: 0,
    "nvmlSystemGetDriverVersion": lambda buffer, _: _text(buffer, "580.95.05"),
    "nvmlSystemGetCudaDriverVersion_v2": lambda pointer: _set(pointer, 13000),
    "nvmlDeviceGetCount_v2": lambda pointer: _set(pointer, 2),
    "nvmlDeviceGetHandleByIndex_v2": lambda index, pointer: _set(pointer, index + 1),
    "nvmlDeviceGetUUID": lambda handle, buffer, _: _text(
        buffer, f"{'GPU' if handle.value < 9 else 'MIG'}-{handle.value}"
    ),
    "nvmlDeviceGetName": lambda handle, buffer, _: _text(buffer, "NVIDIA H100"),
    "nvmlDeviceGetCudaComputeCapability": lambda handle, major, minor: (
        3 if handle.value == 2 else _set(major, 9) or _set(minor, 0)
    ),
    "nvmlDeviceGetMaxMigDeviceCount": lambda handle, pointer: _set(pointer, 7 if handle.value == 1 else 0),
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, index, pointer: _set(pointer, 9 + index) if index < 2 else 6,
}


def _load(monkeypatch: pytest.MonkeyPatch, functions: dict[str, Any] | None) -> None:
    def load(name: str) -> _Library:
        if functions is None:
            raise OSError(f"{name}: cannot open shared object file")
        return _Library(functions)

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    _load(monkeypatch, NVML)
    assert probe_nvml.main() == {
        "driver": "580.95.05",
        "cuda": "13.0",
        "gpus": [
            {"uuid": "GPU-1", "name": "NVIDIA H100", "device": "9.0", "mig": ["MIG-9", "MIG-10"]},
            {"uuid": "GPU-2", "name": "NVIDIA H100", "device": None, "mig": []},
        ],
    }


def test_nvml_of_a_driver_without_mig(monkeypatch: pytest.MonkeyPatch) -> None:
    _load(monkeypatch, {name: f for name, f in NVML.items() if "Mig" not in name})
    assert [gpu["mig"] for gpu in probe_nvml.main()["gpus"]] == [[], []]


def test_nvml_absent_or_at_odds_with_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    _load(monkeypatch, None)
    assert probe_nvml.main() == {"missing": True, "error": "libnvidia-ml.so.1: cannot open shared object file"}

    def message(_: int) -> bytes:
        return b"Driver/library version mismatch"

    _load(monkeypatch, {"nvmlInit_v2": lambda: 18, "nvmlErrorString": message})
    assert probe_nvml.main() == {"error": "nvmlInit: Driver/library version mismatch"}


def _attribute(value: Any, attribute: int, handle: Any) -> int:
    return _set(value, {75: 12, 76: 1}[attribute]) if handle.value == 0 else 1


def _uuid(identity: Any, _handle: Any) -> int:
    identity[:] = bytes(range(16))
    return 0


CUDA = {
    "cuInit": lambda _: 0,
    "cuDriverGetVersion": lambda pointer: _set(pointer, 12090),
    "cuDeviceGetCount": lambda pointer: _set(pointer, 2),
    "cuDeviceGet": lambda pointer, index: _set(pointer, index),
    "cuDeviceGetAttribute": _attribute,
    "cuDeviceGetUuid": _uuid,
    "cuDeviceGetName": lambda buffer, _size, _device: _text(buffer, "NVIDIA GB10"),
    "cuGetErrorName": lambda _, pointer: _set(pointer, b"CUDA_ERROR_STUB_LIBRARY"),  # type: ignore[arg-type]
}


def test_libcuda(monkeypatch: pytest.MonkeyPatch) -> None:
    _load(monkeypatch, CUDA)
    uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert probe_libcuda.main() == {
        "driver": None,
        "cuda": "12.9",
        "gpus": [
            {"uuid": uuid, "name": "NVIDIA GB10", "device": "12.1", "mig": []},
            {"uuid": uuid, "name": "NVIDIA GB10", "device": None, "mig": []},
        ],
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (100, {"driver": None, "cuda": "12.9", "gpus": []}),
        (34, {"driver": None, "cuda": "12.9", "gpus": None, "error": "cuInit: CUDA_ERROR_STUB_LIBRARY"}),
    ],
)
def test_libcuda_without_gpus_and_with_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int, expected: dict[str, Any]
) -> None:
    _load(monkeypatch, {**CUDA, "cuInit": lambda _: status})
    assert probe_libcuda.main() == expected


@pytest.mark.parametrize("name", ["nvml", "libcuda"])
def test_probes_run_alone(name: str) -> None:
    """They print one JSON object whatever the machine has."""
    path = Path(probe_nvml.__file__).parent / f"probe_{name}.py"
    result = subprocess.run([sys.executable, "-I", "-S", path], capture_output=True, text=True, check=True)
    assert isinstance(json.loads(result.stdout), dict)


def test_a_program_that_hangs_is_left_behind() -> None:
    """The children too; and what ignores signals is not waited for."""
    start = time.monotonic()
    answer = LocalSystem().run("x", ["sh", "-c", "trap '' TERM INT; sleep 60 & wait; sleep 60"], 0.3)
    assert isinstance(answer, NotRun)
    assert answer.reason == "no answer within 0.3 s"
    assert time.monotonic() - start < 10


def test_a_program_that_is_not_there() -> None:
    assert LocalSystem().run("x", ["/nowhere/program"], 1) == NotRun("not found", missing=True)
    assert LocalSystem().run("x", ["sh", "-c", "echo a; echo b >&2; exit 3"], 30) == Completed(3, "a\n", "b\n")


def test_python_probe_sees_what_is_installed_and_imports_none_of_it(tmp_path: Path) -> None:
    """Packages that fail when they are imported, and a working directory full of traps."""
    site = tmp_path / "site"
    for name, version in (("torch", "2.13.0+cu130"), ("flashinfer_python", "0.7.4")):
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        (site / f"{name}-{version}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
    for package in ("torch", "flashinfer", "flashinfer_jit_cache"):
        (site / package).mkdir()
        (site / package / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / "torch/version.py").write_text("from typing import Optional\ncuda: Optional[str] = '13.0'\nhip = None\n")
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "json.py").write_text("raise RuntimeError('the working directory was imported from')")
    here = os.getcwd()
    os.chdir(trap)
    try:
        said = ask_python(sys.executable, LocalSystem({**os.environ, "PYTHONPATH": str(site)}, executable=""))
    finally:
        os.chdir(here)
    assert (said["torch"], said["torch_cuda"], said["flashinfer"]) == ("2.13.0+cu130", "13.0", "0.7.4")
    assert said["machine"] == os.uname().machine
    assert said["jit_cache"] is None


def test_this_machine() -> None:
    """Detection as it runs for people; on any machine it ends, and tells nothing as none that it does not know."""
    system = LocalSystem()
    env = detect(from_environment(Request(python=sys.executable), system), system)
    assert env.cpu.value in ("x86_64", "aarch64")
    assert env.has_pip
    assert len(env.probes) >= 1
    assert not is_tegra(LocalSystem(release="6.8.0-generic"))
    assert is_tegra(LocalSystem(release="5.15.148-tegra"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("12.9", "12.9"), ("cu129", "12.9"), ("cu130", "13.0"), ("12.9.1", "12.9"), ("13", "13"), ("cu134", "13.4")],
)
def test_cuda_version(text: str, expected: str) -> None:
    assert cuda_version(text) == expected


@pytest.mark.parametrize(
    "text", ["", "cu13", "cu1290", "cu12.9", "12.", "12.x", "8.0", "130", "-12", "12.9.1.0", "१२.९"]
)
def test_cuda_version_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a CUDA version such as 12\.9, or a label such as cu129"):
        cuda_version(text)


@pytest.mark.parametrize("text", ["9.0", "90", "9.0a", "sm_90", "sm_90a"])
def test_device(text: str) -> None:
    assert device(text) == "9.0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.7.4", "0.7.4"),
        ("0.7.4+cu130", "0.7.4"),
        ("0.7.5.dev1+x", "0.7.5.dev1"),
        ("0.0.0+unknown", None),
        ("new", None),
    ],
)
def test_public(text: str, expected: str | None) -> None:
    assert public(text) == expected


def test_visible_devices_are_each_there_once() -> None:
    gpus = [Gpu("9.0", "a", "GPU-aa"), Gpu("9.0", "b", "GPU-ab")]
    assert visible(gpus, {}) == tuple(gpus)
    assert visible(gpus, {"CUDA_VISIBLE_DEVICES": "1, 0"}) == (gpus[1], gpus[0])
    assert visible(gpus, {"CUDA_VISIBLE_DEVICES": "GPU-ab,1"}) == (gpus[1],)
    assert visible([], {"CUDA_VISIBLE_DEVICES": "0"}) == ()
    mixed = [gpus[0], Gpu("12.0", "c", "GPU-ac")]
    with pytest.raises(AmbiguousError, match="CUDA_VISIBLE_DEVICES=0 counts GPUs of several kinds"):
        visible(mixed, {"CUDA_VISIBLE_DEVICES": "0"})


def test_python_that_can_not_be_asked() -> None:
    with pytest.raises(CodedError, match="can't be asked what is installed") as caught:
        ask_python("/nowhere/python", LocalSystem())
    assert "not found" in str(caught.value)
