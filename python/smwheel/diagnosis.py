"""What is wrong with what is installed, and the command that mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from sm_targets import parse

from smwheel.candidates import DISTRIBUTION
from smwheel.environment import Environment, cuda_tuple, driver_tuple, public
from smwheel.exit_codes import ExitCode
from smwheel.resolve import covers


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, and the command or step that mends it. `code` is OK for what is worth knowing only."""

    code: ExitCode
    what: str
    mend: str


# The worst comes first: what stops everything, then what makes wrong code run, then what makes FlashInfer compile.
ORDER = [
    ExitCode.FLASHINFER,
    ExitCode.NOT_INSTALLED,
    ExitCode.DAMAGED,
    ExitCode.PLATFORM,
    ExitCode.CUDA,
    ExitCode.DRIVER_TOO_OLD,
    ExitCode.GPU_NOT_COVERED,
    ExitCode.GPU_UNKNOWN,
    ExitCode.NO_GPU,
    ExitCode.OK,
]


def worst(findings: list[Finding]) -> ExitCode:
    """The exit code of a list of findings."""
    return min((finding.code for finding in findings), key=ORDER.index, default=ExitCode.OK)


def diagnose(env: Environment) -> list[Finding]:
    """All findings, the worst first."""
    findings = [*_versions(env), *_wheel(env), *_gpus(env)]
    return sorted(findings, key=lambda finding: ORDER.index(finding.code))


def _install(env: Environment, *options: str) -> str:
    return shlex.join(["smwheel", "install", "--python", env.python, *options])


def _versions(env: Environment) -> list[Finding]:
    findings = []
    if env.flashinfer is None:
        findings.append(
            Finding(
                ExitCode.FLASHINFER,
                f"FlashInfer is not installed for {env.python}.",
                shlex.join([env.python, "-m", "pip", "install", _flashinfer(env)]),
            )
        )
    elif env.installed and public(env.installed.version) != public(env.flashinfer.value):
        findings.append(
            Finding(
                ExitCode.FLASHINFER,
                f"The wheel is for FlashInfer {public(env.installed.version)}, and FlashInfer {env.flashinfer.value} is "
                "installed, which ignores it.",
                _install(env),
            )
        )
    if env.installed is None:
        findings.append(
            Finding(
                ExitCode.NOT_INSTALLED,
                f"{DISTRIBUTION} is not installed: FlashInfer compiles every kernel at its first use.",
                _install(env),
            )
        )
    if env.torch is None:
        findings.append(
            Finding(
                ExitCode.OK, "torch is not installed, and FlashInfer needs it.", "install torch for your CUDA version"
            )
        )
    elif env.torch_cuda is None:
        findings.append(
            Finding(ExitCode.OK, f"torch {env.torch} is a build without CUDA.", "install a torch for your CUDA version")
        )
    return findings


def _flashinfer(env: Environment) -> str:
    version = public(env.installed.version) if env.installed else None
    return f"flashinfer-python=={version}" if version else "flashinfer-python"


def _wheel(env: Environment) -> list[Finding]:
    """Of the installed wheel against all but the GPUs."""
    if env.installed is None:
        return []
    manifest = env.installed.manifest
    if manifest is None or not _complete(manifest):
        what = "has no manifest.json that can be read: it is not one of smwheel's, or not whole"
        return [Finding(ExitCode.DAMAGED, f"{DISTRIBUTION} {env.installed.version} {what}.", _install(env))]
    findings = []
    if manifest["version"] != env.installed.version:
        what = f"calls itself {env.installed.version}, and its manifest says {manifest['version']}"
        findings.append(Finding(ExitCode.DAMAGED, f"{DISTRIBUTION} {what}.", _install(env)))
    if env.installed.damaged:
        files = ", ".join(env.installed.damaged[:3])
        more = f" and {len(env.installed.damaged) - 3} more" if len(env.installed.damaged) > 3 else ""
        what = f"Files of {DISTRIBUTION} are missing or of another size than RECORD says: {files}{more}."
        findings.append(Finding(ExitCode.DAMAGED, what, _install(env)))
    if manifest["cpu"] != env.cpu.value:
        what = f"The wheel is for {manifest['cpu']}, and this is {env.cpu.value}."
        findings.append(Finding(ExitCode.PLATFORM, what, _install(env)))
    if env.torch_cuda:
        wheel, torch = cuda_tuple(manifest["cuda_version"]), cuda_tuple(env.torch_cuda)
        if wheel[0] != torch[0] or wheel > torch:
            what = (
                f"The wheel is for CUDA {manifest['cuda_version']}, and torch {env.torch} for CUDA {env.torch_cuda}: "
                f"it must be of the same major version and not later."
            )
            findings.append(Finding(ExitCode.CUDA, what, _install(env)))
    if env.driver and driver_tuple(env.driver.value) < driver_tuple(manifest["minimum_driver"]):
        what = f"The driver is {env.driver.value}, and the wheel needs {manifest['minimum_driver']} or later."
        findings.append(Finding(ExitCode.DRIVER_TOO_OLD, what, "upgrade the NVIDIA driver"))
    return findings


def _complete(manifest: dict[str, Any]) -> bool:
    needed = {"version", "cuda_version", "cpu", "minimum_driver", "sm_targets", "devices", "sm_family"}
    return needed <= manifest.keys()


def _gpus(env: Environment) -> list[Finding]:
    probes = "; ".join(f"{probe.name}: {probe.outcome}" for probe in env.probes)
    if env.gpus is None:
        return [
            Finding(
                ExitCode.GPU_UNKNOWN, f"It is unknown which GPUs are here: {probes}.", "smwheel doctor --device 9.0"
            )
        ]
    if not env.gpus.value:
        what = f"No GPU is visible: {env.gpus.source}."
        return [Finding(ExitCode.NO_GPU, what, "smwheel doctor --device 9.0, for a GPU that is elsewhere")]
    findings = []
    manifest = env.installed.manifest if env.installed else None
    for gpu in dict.fromkeys(env.gpus.value):
        if gpu.device is None:
            what = f"The compute capability of {gpu} is unknown: {env.gpus.source}."
            findings.append(Finding(ExitCode.GPU_UNKNOWN, what, "smwheel doctor --device 9.0"))
        elif manifest and _complete(manifest):
            facts = manifest["sm_targets"], manifest["devices"], manifest["cuda_version"]
            if not covers(*facts, gpu.device):
                what = f"The wheel, of SM family {manifest['sm_family']}, has no code for {gpu}; it covers {_devices(facts[1])}."
                findings.append(Finding(ExitCode.GPU_NOT_COVERED, what, _install(env)))
    return findings


def _devices(devices: list[str]) -> str:
    return ", ".join(sorted(devices, key=parse))
