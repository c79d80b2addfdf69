"""Finds out what a machine has, without importing torch.

In this order: what is told > the environment > torch > NVML > libcuda > nvidia-smi > /proc. Each probe has a time limit,
and what none of them can say stays unknown.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from smwheel import environment, probe_python
from smwheel.environment import Environment, Found, Gpu, Installed, Probe
from smwheel.exit_codes import CodedError, ExitCode
from smwheel.system import NotRun, System
from smwheel.visible_devices import AmbiguousError, visible

_HERE = Path(__file__).parent

# Seconds. The target Python may lie on a slow network file system; libcuda starts the driver up.
PYTHON_TIMEOUT, NVML_TIMEOUT, LIBCUDA_TIMEOUT, NVIDIA_SMI_TIMEOUT = 30.0, 5.0, 15.0, 10.0

# Branch of the Linux driver -> CUDA version that it comes with (CUDA Toolkit release notes, "CUDA Toolkit and
# Corresponding Driver Versions"). A later branch is at least the last one's.
_DRIVER_CUDA = {
    525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8",
    575: "12.9", 580: "13.0", 590: "13.1",
}  # fmt: skip

# Chip in the device tree -> compute capability (NVIDIA's "CUDA GPU Compute Capability" page: Jetson Xavier, Orin, Thor).
_TEGRA = {"tegra194": "7.2", "tegra234": "8.7", "tegra264": "11.0"}

# A program of this package, run by the Python that is asked: the working directory is no place where things are installed.
_RUN = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))"
)


@dataclass(frozen=True)
class Request:
    """What a person asks for: what is None is to be found out. Values as environment.cuda_version and .device give them."""

    cuda_version: str | None = None
    sm_family: str | None = None
    devices: tuple[str, ...] = ()
    flashinfer_version: str | None = None
    nightly: bool = False
    python: str | None = None
    # Where the values come from if not from options: name of the field -> environment variable.
    sources: dict[str, str] = field(default_factory=dict)

    def source(self, name: str) -> str:
        """The option or the environment variable that a value comes from."""
        return self.sources.get(name, "--" + {"devices": "device"}.get(name, name).replace("_", "-"))


def from_environment(request: Request, system: System) -> Request:
    """Fills in what the environment says and no option does. Raises CodedError for a value that can't be read."""
    values: dict[str, Any] = {}
    sources = {}

    def take(name: str, variable: str, read: Any) -> None:
        text = system.environ.get(variable, "").strip()
        if text and not getattr(request, name) and name not in values:
            try:
                values[name], sources[name] = read(text), variable
            except ValueError as error:
                raise CodedError(
                    ExitCode.USAGE, f"The environment variable {variable} can't be read.", str(error).split(", found ")[0],
                    f"{variable}={text}", f"correct or unset {variable}.",
                ) from None  # fmt: skip

    def devices(text: str) -> tuple[str, ...]:
        return tuple(environment.device(word) for word in re.split(r"[ ,;]+", text) if word)

    take("cuda_version", "SMWHEEL_CUDA_VERSION", environment.cuda_version)
    take("sm_family", "SMWHEEL_SM_FAMILY", str)
    take("devices", "SMWHEEL_DEVICES", devices)
    # FlashInfer serves and compiles for these whatever GPUs there are.
    take("devices", "FLASHINFER_CUDA_ARCH_LIST", devices)
    return replace(request, **values, sources={**request.sources, **sources})


def target_python(request: Request, system: System) -> Found[str]:
    """The Python to install for: --python, else of the active virtual environment, else the one that runs smwheel."""
    if request.python:
        path = system.which(request.python) or request.python
        return Found(path, "--python")
    active = system.environ.get("VIRTUAL_ENV")
    if active and system.which(f"{active}/bin/python"):
        own = Path(system.executable).parent == Path(active, "bin")
        return Found(system.executable if own else f"{active}/bin/python", "VIRTUAL_ENV")
    return Found(sys.executable, "the Python that runs smwheel")


def ask_python(python: str, system: System, anew: bool = False) -> dict[str, Any]:
    """What probe_python.py says. Raises CodedError: without it nothing can be decided.

    The Python that runs this program is not started once more, unless something has been installed since (`anew`).
    """
    if python == system.executable and not anew:
        return probe_python.main()
    answer = system.run("python", [python, "-c", _RUN, str(_HERE / "probe_python.py")], PYTHON_TIMEOUT)
    if isinstance(answer, NotRun):
        found = answer.reason
    elif answer.status != 0:
        found = f"exit status {answer.status}: {(answer.stderr.strip().splitlines() or ['no message'])[-1]}"
    else:
        try:
            said: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
            return said
        except (ValueError, IndexError):
            found = f"output {answer.stdout[:80]!r}"
    raise CodedError(
        ExitCode.ERROR, f"The Python to install for, {python}, can't be asked what is installed.",
        "Python 3.9 or later that answers", found, "give the path of another one with --python.",
    )  # fmt: skip


def is_tegra(system: System) -> bool:
    """Whether this is a Jetson or another board with a Tegra chip."""
    compatible = system.read("/proc/device-tree/compatible") or ""
    return "-tegra" in system.release or "nvidia,tegra" in compatible or bool(system.read("/etc/nv_tegra_release"))


@dataclass(frozen=True)
class _Answer:
    """What a probe of the driver says; None is unknown. `gpus`: all, in the order of PCI bus IDs, if not `filtered`."""

    name: str
    outcome: str = ""
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] | None = None
    filtered: bool = False
    # There is nothing of NVIDIA here that could have answered.
    absent: bool = False


def _driver(text: str | None) -> str | None:
    """A driver's version; None for anything else that stands in its place, such as `[N/A]`."""
    return text if text and re.fullmatch(r"\d+(\.\d+)+", text, re.ASCII) else None


def _ask_library(system: System, name: str, label: str, timeout: float) -> _Answer:
    answer = system.run(name, [sys.executable, "-I", "-S", str(_HERE / f"probe_{name}.py")], timeout)
    if isinstance(answer, NotRun):
        return _Answer(label, answer.reason)
    try:
        said = json.loads(answer.stdout)
    except ValueError:
        # A driver that is at odds with its kernel module can take the process down.
        return _Answer(label, f"ended with status {answer.status}")
    gpus = said.get("gpus")
    return _Answer(
        label,
        said.get("error") or "",
        _driver(said.get("driver")),
        said.get("cuda"),
        None if gpus is None else tuple(Gpu(g["device"], g["name"], g["uuid"], tuple(g["mig"])) for g in gpus),
        name == "libcuda",
        bool(said.get("missing")),
    )


def ask_nvml(system: System) -> _Answer:
    """NVML knows the driver and all GPUs."""
    return _ask_library(system, "nvml", "NVML", NVML_TIMEOUT)


def ask_libcuda(system: System) -> _Answer:
    """The CUDA driver knows the GPUs that it shows to a process with this environment."""
    return _ask_library(system, "libcuda", "libcuda", LIBCUDA_TIMEOUT)


def ask_nvidia_smi(system: System) -> _Answer:
    """nvidia-smi knows the driver and all GPUs, a line for each; what it does not know it calls `[N/A]`."""
    name = "nvidia-smi"
    # WSL2 keeps it here, where PATH does not always lead.
    program = system.which(name) or system.which("/usr/lib/wsl/lib/nvidia-smi")
    if program is None:
        return _Answer(name, "not found", absent=True)
    query = [program, "--query-gpu=uuid,compute_cap,driver_version,name", "--format=csv,noheader"]
    answer = system.run(name, query, NVIDIA_SMI_TIMEOUT)
    if isinstance(answer, NotRun):
        return _Answer(name, answer.reason, absent=answer.missing)
    lines = [line for line in answer.stdout.splitlines() if line.strip()]
    if answer.status != 0:
        return _Answer(name, f"exit status {answer.status}: {(lines or [answer.stderr.strip()])[0][:120]}")
    rows = [[field.strip() for field in row] for row in csv.reader(lines)]
    if not rows or any(len(row) != 4 for row in rows):
        return _Answer(name, f"output that is not understood: {(lines or ['nothing'])[0][:120]!r}")
    drivers = [row[2] for row in rows if _driver(row[2])]
    gpus = tuple(
        Gpu(capability if re.fullmatch(r"\d+\.\d", capability, re.ASCII) else None, model, uuid)
        for uuid, capability, _, model in rows
    )
    return _Answer(name, driver=drivers[0] if drivers else None, gpus=gpus)


def ask_proc(system: System) -> _Answer:
    """The kernel's files know the driver; of GPUs they know only the chip of a Jetson."""
    name = "/proc"
    driver = _driver((system.read("/sys/module/nvidia/version") or "").strip())
    if not driver:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", system.read("/proc/driver/nvidia/version") or "", re.ASCII)
        driver = found[0] if found else None
    compatible = system.read("/proc/device-tree/compatible") or ""
    chips = [device for chip, device in _TEGRA.items() if chip in compatible]
    outcome = "" if driver or chips else "no NVIDIA driver"
    gpus = (Gpu(chips[0], "Jetson"),) if chips else None
    return _Answer(name, outcome, driver, gpus=gpus, absent=not driver and not chips)


def _describe(answer: _Answer) -> str:
    said = [f"driver {answer.driver}"] if answer.driver else []
    said += [f"CUDA {answer.cuda}"] if answer.cuda else []
    if answer.gpus is not None:
        said += [", ".join(map(str, answer.gpus)) or "no GPU"]
    said += [answer.outcome] if answer.outcome else []
    return "; ".join(said) or "nothing"


@dataclass(frozen=True)
class _Machine:
    driver: Found[str] | None = None
    cuda: Found[str] | None = None
    gpus: Found[tuple[Gpu, ...]] | None = None
    probes: tuple[Probe, ...] = ()
    notes: tuple[str, ...] = ()


def ask_driver(system: System) -> _Machine:
    """Asks NVML, libcuda, nvidia-smi and /proc, until driver, CUDA version and every visible GPU are known."""
    found = _Machine()
    partial: Found[tuple[Gpu, ...]] | None = None
    absent = True
    setting = system.environ.get("CUDA_VISIBLE_DEVICES")
    suffix = "" if setting is None else f", CUDA_VISIBLE_DEVICES={setting}"
    for ask in (ask_nvml, ask_libcuda, ask_nvidia_smi, ask_proc):
        answer = ask(system)
        outcome = _describe(answer)
        absent = absent and answer.absent
        if answer.driver and not found.driver:
            found = replace(found, driver=Found(answer.driver, answer.name))
        if answer.cuda and not found.cuda:
            found = replace(found, cuda=Found(answer.cuda, f"the driver, asked through {answer.name}"))
        if answer.gpus is not None and found.gpus is None:
            try:
                seen = answer.gpus if answer.filtered else visible(answer.gpus, system.environ)
                gpus = Found(seen, answer.name + suffix)
                if all(gpu.device for gpu in seen):
                    found = replace(found, gpus=gpus)
                else:
                    partial = partial or gpus
            except AmbiguousError as error:
                outcome += f"; {error}"
        found = replace(found, probes=(*found.probes, Probe(answer.name, outcome)))
        # Only /proc is left then, which asks nothing of the driver.
        if found.gpus is not None and found.cuda and found.driver:
            break
    if found.gpus is None:
        if partial:
            found = replace(found, gpus=partial)
        elif absent:
            found = replace(found, gpus=Found((), "no NVIDIA driver is here"))
    if found.driver and not found.cuda:
        branch = max((b for b in _DRIVER_CUDA if b <= environment.driver_tuple(found.driver.value)[0]), default=None)
        if branch:
            found = replace(found, cuda=Found(_DRIVER_CUDA[branch], f"driver {found.driver.value}"))
    return found


def _cpu(machine: str) -> str:
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine)


def detect(request: Request, system: System) -> Environment:
    """Finds out what the request leaves open. Raises CodedError if the target Python can't be asked."""
    python = target_python(request, system)
    said = ask_python(python.value, system)
    given = bool(request.devices)
    torch_cuda = _read(environment.cuda_version, said["torch_cuda"])
    cuda, machine, notes = None, _Machine(), []
    if request.cuda_version:
        cuda = Found(request.cuda_version, request.source("cuda_version"))
    elif torch_cuda:
        cuda = Found(torch_cuda, f"torch {said['torch']}")
    elif said["torch"] and said["torch_cuda"]:
        notes.append(f"torch {said['torch']} is for CUDA {said['torch_cuda']}, which is not understood.")
    elif said["torch"]:
        notes.append(f"torch {said['torch']} is a build without CUDA: it says nothing of the CUDA version.")
    if not given or cuda is None:
        machine = ask_driver(system)
    flashinfer = None
    if request.flashinfer_version:
        flashinfer = Found(request.flashinfer_version, request.source("flashinfer_version"))
    elif said["flashinfer"]:
        flashinfer = Found(said["flashinfer"], "flashinfer-python is installed")
    installed = said["jit_cache"]
    return Environment(
        python=python.value,
        python_version=said["python"],
        cpu=Found(_cpu(said["machine"]), f"Python {said['python']}, {python.source}"),
        libc=said["libc"],
        flashinfer=flashinfer,
        torch=said["torch"],
        torch_cuda=torch_cuda,
        cuda=cuda or machine.cuda,
        driver=machine.driver,
        gpus=Found(tuple(Gpu(d) for d in request.devices), request.source("devices")) if given else machine.gpus,
        tegra=is_tegra(system),
        has_pip=said["pip"],
        uv_environment=said["uv_environment"],
        uv=_uv(system),
        installed=installed
        and Installed(installed["version"], installed["manifest"], tuple(installed["damaged"] or ())),
        probes=machine.probes,
        devices_given=given,
        cuda_of_driver=cuda is None and machine.cuda is not None,
        notes=tuple(notes),
    )


def _read(read: Callable[[str], str], text: str | None) -> str | None:
    """A value of a form that may be unknown."""
    try:
        return read(text) if text else None
    except ValueError:
        return None


def _uv(system: System) -> str | None:
    """uv on PATH, else beside the Python that runs smwheel."""
    return system.which("uv") or system.which(str(Path(sys.executable).parent / "uv"))
