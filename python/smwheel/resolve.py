"""Which wheel runs on a machine, and why each other one does not.

The wheels go through stages; each refuses some, with a reason. If one leaves none, the error is that stage's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import Version
from sm_targets import DEVICES, image_for, parse

from smwheel.candidates import Wheel
from smwheel.detect import Request
from smwheel.environment import Environment, cuda_tuple, driver_tuple, public
from smwheel.exit_codes import CodedError, ExitCode

# The first CUDA version whose libraries for servers (SBSA) are Tegra's too: Thor from 13.0 on, Orin from 13.2 (CUDA
# Toolkit release notes; before, "CUDA for Tegra" is a distribution of its own).
_TEGRA_SINCE = {"8.7": (13, 2)}
_TEGRA_SINCE_OTHERS = (13, 0)

# manylinux_2_28, by the wheels' tag (PEP 600).
_GLIBC = (2, 28)


@dataclass(frozen=True)
class Refusal:
    """A wheel and why it is not the one."""

    wheel: Wheel
    reason: str


@dataclass(frozen=True)
class Decision:
    """The wheel, and why each other one is not."""

    wheel: Wheel
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]


class RefusedError(CodedError):
    """No wheel is the one: an error, with why each was refused."""

    def __init__(self, failure: CodedError, refusals: Sequence[Refusal]) -> None:
        Exception.__init__(self, str(failure))
        self.code, self.exit_code = failure.code, failure.exit_code
        self.refusals = tuple(refusals)


def alias(device: str, cuda_major: int) -> str:
    """A device's compute capability as a CUDA version counts it: Thor is 10.1 to CUDA 12 and 11.0 since (release notes)."""
    if device in ("10.1", "11.0"):
        return "11.0" if cuda_major >= 13 else "10.1"
    return device


def covers(sm_targets: Sequence[str], devices: Sequence[str], cuda_version: str, device: str) -> bool:
    """Whether a wheel, by its manifest, runs on a device.

    Of a device that manifests speak of (sm_targets.DEVICES) it must be said; others need an image that runs there.
    """
    device = alias(device, cuda_tuple(cuda_version)[0])
    return device in devices if device in DEVICES else image_for(sm_targets, device) is not None


def covers_gpu(wheel: Wheel, device: str) -> bool:
    """Whether a wheel runs on a device."""
    return covers(wheel.sm_targets, wheel.devices, wheel.cuda_version, device)


def check(request: Request, env: Environment) -> None:
    """Whether enough is known to choose. Raises CodedError with what is missing."""
    if env.flashinfer is None:
        raise CodedError(
            ExitCode.FLASHINFER, "It is not known which version of FlashInfer the wheel is for.",
            "flashinfer-python installed, or a version given", f"no flashinfer-python for {env.python}",
            "give --flashinfer-version, such as 0.7.4; or --python, the Python that FlashInfer is installed for.",
        )  # fmt: skip
    version = public(env.flashinfer.value)
    if version is None:
        raise CodedError(
            ExitCode.FLASHINFER, "FlashInfer's version names no release.", "a version such as 0.7.4",
            f"{env.flashinfer.value} ({env.flashinfer.source})",
            "give --flashinfer-version: the release that the source tree is closest to.",
        )  # fmt: skip
    if request.nightly and not Version(version).is_prerelease:
        raise CodedError(
            ExitCode.FLASHINFER, f"There is no nightly wheel for FlashInfer {version}.",
            "with --nightly, a nightly version of FlashInfer, such as 0.7.5.dev20261130",
            f"the release {version} ({env.flashinfer.source})",
            "leave out --nightly; or give --flashinfer-version with the nightly's version.",
        )  # fmt: skip
    if Version(version).is_prerelease and not request.nightly:
        raise CodedError(
            ExitCode.FLASHINFER, f"FlashInfer {version} is a {'nightly' if Version(version).is_devrelease else 'pre-release'}.", "a release, or --nightly",
            f"{version} ({env.flashinfer.source})", "add --nightly.",
        )  # fmt: skip
    if env.cuda and env.torch_cuda and cuda_tuple(env.torch_cuda)[0] != cuda_tuple(env.cuda.value)[0]:
        raise CodedError(
            ExitCode.CUDA, f"CUDA {env.cuda.value} was asked for, and torch here is for CUDA {env.torch_cuda}.",
            f"a wheel of torch's CUDA major version, {cuda_tuple(env.torch_cuda)[0]}: its modules load torch's CUDA libraries",
            f"CUDA {env.cuda.value} ({env.cuda.source}), torch {env.torch}",
            f"leave out --cuda-version; or install a torch for CUDA {cuda_tuple(env.cuda.value)[0]} first.",
        )  # fmt: skip
    if not request.sm_family:
        _check_gpus(env)
    if env.cuda is None:
        raise CodedError(
            ExitCode.CUDA, "The CUDA version is unknown.", "torch with CUDA, or an NVIDIA driver that answers",
            "neither: " + _probes(env), "give --cuda-version, such as 13.0 or cu130: the one of the torch to be used.",
        )  # fmt: skip


def _check_gpus(env: Environment) -> None:
    """Whether every GPU is known. Raises CodedError."""
    if env.gpus is None:
        raise CodedError(
            ExitCode.GPU_UNKNOWN, "It is unknown which GPUs are here.", "the compute capability of every visible GPU",
            _probes(env), "give them, --device 9.0 for each kind; or choose a wheel with --sm-family.",
        )  # fmt: skip
    if not env.gpus.value:
        raise CodedError(
            ExitCode.NO_GPU, "No GPU is visible.", "at least one NVIDIA GPU, or options that say what the wheel is for",
            f"none ({env.gpus.source})",
            "give --device 9.0 for each kind of GPU that it will run on, or --sm-family; "
            "in a container, make the GPUs visible to it.",
        )  # fmt: skip
    unknown = [gpu for gpu in env.gpus.value if gpu.device is None]
    if unknown:
        raise CodedError(
            ExitCode.GPU_UNKNOWN, f"The compute capability of {_count(len(unknown), 'GPU')} is unknown.",
            "the compute capability of every visible GPU", f"{', '.join(map(str, env.gpus.value))} ({env.gpus.source})",
            "give them, --device 9.0 for each kind.",
        )  # fmt: skip


def _probes(env: Environment) -> str:
    return "; ".join(f"{probe.name}: {probe.outcome}" for probe in env.probes) or "nothing"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list(words: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(words)) or "none"


@dataclass(frozen=True)
class _Stage:
    """`refuse`: why a wheel is not the one, or None. `failure`: the error if that is so of all that came here."""

    refuse: Callable[[Wheel], str | None]
    failure: Callable[[list[Wheel]], CodedError]


def _version(env: Environment) -> _Stage:
    assert env.flashinfer
    wanted, source = public(env.flashinfer.value), env.flashinfer.source

    def refuse(wheel: Wheel) -> str | None:
        return None if public(wheel.version) == wanted else f"for FlashInfer {public(wheel.version)}, not {wanted}"

    def failure(wheels: list[Wheel]) -> CodedError:
        versions = sorted({public(wheel.version) or wheel.version for wheel in wheels}, key=Version)
        return CodedError(
            ExitCode.FLASHINFER, f"There is no wheel for FlashInfer {wanted}.", f"wheels of version {wanted} ({source})",
            f"wheels for FlashInfer {_list(versions)}",
            "install one of these versions of flashinfer-python, or look in another index.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _yanked() -> _Stage:
    def refuse(wheel: Wheel) -> str | None:
        return None if wheel.yanked is None else f"yanked{': ' if wheel.yanked else ''}{wheel.yanked}"

    def failure(wheels: list[Wheel]) -> CodedError:
        return CodedError(
            ExitCode.FLASHINFER, f"All wheels for FlashInfer {public(wheels[0].version)} were yanked.",
            "a wheel that is not", _list([refuse(wheel) or "" for wheel in wheels]),
            "install another version of FlashInfer; until then it compiles what it needs.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _cpu(env: Environment) -> _Stage:
    def refuse(wheel: Wheel) -> str | None:
        return None if wheel.cpu == env.cpu.value else f"for {wheel.cpu}, this is {env.cpu.value}"

    def failure(wheels: list[Wheel]) -> CodedError:
        return CodedError(
            ExitCode.PLATFORM, f"There is no wheel for the CPU {env.cpu.value}.",
            f"a CPU that there are wheels for: {_list(sorted(wheel.cpu for wheel in wheels))}",
            f"{env.cpu.value} ({env.cpu.source})",
            "run on such a machine with a Python of its own CPU; without the wheel FlashInfer compiles what it needs.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _python(env: Environment) -> _Stage:
    def refuse(wheel: Wheel) -> str | None:
        if not wheel.requires_python:
            return None
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            fits = SpecifierSet(wheel.requires_python).contains(env.python_version, prereleases=True)
        except InvalidSpecifier:
            fits = True
        return None if fits else f"needs Python {wheel.requires_python}, this is {env.python_version}"

    def failure(wheels: list[Wheel]) -> CodedError:
        return CodedError(
            ExitCode.PLATFORM, f"Python {env.python_version} is too old for the wheels.",
            f"Python {_list([wheel.requires_python or '' for wheel in wheels])}", f"{env.python_version}, {env.python}",
            "give another Python with --python.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _libc(env: Environment) -> _Stage:
    version = re.match(r"glibc (\d+)\.(\d+)", env.libc or "", re.ASCII)
    fits = version is not None and (int(version[1]), int(version[2])) >= _GLIBC
    needed = ".".join(map(str, _GLIBC))

    def failure(_wheels: list[Wheel]) -> CodedError:
        return CodedError(
            ExitCode.PLATFORM, "The C library here is not one that the wheels run with.", f"glibc {needed} or later",
            env.libc or "no glibc (musl?)", "use a distribution with it: Debian 10, Ubuntu 20.04, RHEL 8 or later.",
        )  # fmt: skip

    return _Stage(lambda _: None if fits else f"needs glibc {needed}, this is {env.libc or 'no glibc'}", failure)


def _family(request: Request) -> _Stage:
    family = request.sm_family

    def failure(wheels: list[Wheel]) -> CodedError:
        return CodedError(
            ExitCode.USAGE, f"There is no SM family {family} here.", f"one of {_list([w.sm_family for w in wheels])}",
            f"{family} ({request.source('sm_family')})", "give one of these, or leave it out.",
        )  # fmt: skip

    return _Stage(lambda wheel: f"not of SM family {family}" if family and wheel.sm_family != family else None, failure)


def _cuda(env: Environment, wheels: Sequence[Wheel]) -> _Stage:
    assert env.cuda
    bound, source = cuda_tuple(env.cuda.value), env.cuda.source
    # Where only the driver is known, any toolkit of its major version runs on it ("minor version compatibility").
    of_major = {cuda_tuple(w.cuda_version) for w in wheels if cuda_tuple(w.cuda_version)[0] == bound[0]}
    within = {version for version in of_major if len(bound) == 1 or version <= bound}
    if not within and env.cuda_of_driver:
        within = of_major

    def refuse(wheel: Wheel) -> str | None:
        version = cuda_tuple(wheel.cuda_version)
        if version in within:
            return None
        if version[0] != bound[0]:
            return f"for CUDA {version[0]}, this is CUDA {env.cuda.value if env.cuda else ''}"
        return f"for CUDA {wheel.cuda_version}, later than {env.cuda.value if env.cuda else ''}"

    def failure(wheels: list[Wheel]) -> CodedError:
        assert env.cuda
        versions = sorted({wheel.cuda_version for wheel in wheels}, key=cuda_tuple)
        return CodedError(
            ExitCode.CUDA, f"There is no wheel for CUDA {env.cuda.value}.",
            f"a wheel of CUDA {bound[0]}, not later than {env.cuda.value} ({source})",
            f"wheels for CUDA {_list(versions)}", "install a torch for one of these; or give --cuda-version.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _tegra(env: Environment) -> _Stage:
    since = max((_TEGRA_SINCE.get(device, _TEGRA_SINCE_OTHERS) for device in env.devices), default=_TEGRA_SINCE_OTHERS)
    text = ".".join(map(str, since))
    here = cuda_tuple(env.cuda.value) if env.cuda else ()

    def refuse(wheel: Wheel) -> str | None:
        fits = env.devices_given or not env.tegra or min(cuda_tuple(wheel.cuda_version), here) >= since
        return None if fits else f"for servers: a Jetson takes those only from CUDA {text} on"

    def failure(_wheels: list[Wheel]) -> CodedError:
        return CodedError(
            ExitCode.PLATFORM, "This is a Jetson (Tegra), and the wheels for its CUDA version are for servers.",
            f"CUDA {text} or later, which is one for both", f"CUDA {env.cuda.value if env.cuda else ''}",
            "upgrade JetPack; until then FlashInfer compiles what it needs.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _driver(env: Environment) -> _Stage:
    driver = None if env.devices_given else env.driver

    def refuse(wheel: Wheel) -> str | None:
        fits = driver is None or driver_tuple(driver.value) >= driver_tuple(wheel.minimum_driver)
        return None if fits or driver is None else f"needs driver {wheel.minimum_driver}, this is {driver.value}"

    def failure(wheels: list[Wheel]) -> CodedError:
        assert driver
        oldest = min((wheel.minimum_driver for wheel in wheels), key=driver_tuple)
        return CodedError(
            ExitCode.DRIVER_TOO_OLD, "The NVIDIA driver is too old for the wheels of this CUDA version.",
            f"driver {oldest} or later for CUDA {_list([w.cuda_version for w in wheels])}",
            f"driver {driver.value} ({driver.source})",
            "upgrade the driver; or install a torch for an earlier major version of CUDA.",
        )  # fmt: skip

    return _Stage(refuse, failure)


def _gpu(env: Environment, request: Request, related: Sequence[Wheel]) -> _Stage:
    """related: wheels that differ in CUDA version only; they may be what helps."""

    def missing(wheel: Wheel) -> list[str]:
        return [device for device in env.devices if not covers_gpu(wheel, device)]

    def refuse(wheel: Wheel) -> str | None:
        return f"no code for {_list(missing(wheel))}" if missing(wheel) else None

    def failure(wheels: list[Wheel]) -> CodedError:
        source = env.gpus.source if env.gpus else ""
        nowhere = [device for device in env.devices if not any(covers_gpu(wheel, device) for wheel in wheels)]
        found = f"GPUs {_list(env.devices)} ({source})"
        if not nowhere:
            by_device = [
                f"{device}: {_list([w.sm_family for w in wheels if covers_gpu(w, device)])}" for device in env.devices
            ]
            return CodedError(
                ExitCode.MIXED_FAMILIES, "No wheel covers all GPUs here: they are of several SM families.",
                "one wheel that covers every visible GPU", f"{found}; {'; '.join(by_device)}",
                "use one environment for each family, each with its GPUs in CUDA_VISIBLE_DEVICES; or name the GPUs "
                "that it is for, --device 9.0, and FlashInfer compiles for the others; or build a wheel of all "
                "families (tools/wheel/forecast.py exact --monolithic).",
            )  # fmt: skip
        helping = [w for w in related if all(covers_gpu(w, device) for device in env.devices)]
        helping.sort(key=lambda w: cuda_tuple(w.cuda_version))
        here = [cuda_tuple(w.cuda_version) for w in wheels]
        of_here = [w for w in helping if cuda_tuple(w.cuda_version) in here]
        later = [w for w in helping if cuda_tuple(w.cuda_version) > max(here)]
        if of_here:
            todo = f"leave out --sm-family; {of_here[-1].version} covers it."
        elif later:
            todo = f"install a torch for CUDA {later[0].cuda_version} or later; then {later[0].version} covers it."
        elif helping:
            todo = f"install a torch for CUDA {helping[-1].cuda_version}; then {helping[-1].version} covers it."
        elif request.sm_family:
            todo = "name the GPUs that it is for, --device 9.0: FlashInfer compiles for the others; or leave out --sm-family."
        else:
            todo = "FlashInfer compiles what it needs; or add the SM target to wheels/matrix.bzl and build the wheel."
        if "10.1" in [alias(device, 12) for device in nowhere] and {w.cuda_version[:2] for w in wheels} == {"12"}:
            todo = "Thor, 10.1 to CUDA 12, is 11.0 from CUDA 13.0 on: " + todo
        family = f" of SM family {request.sm_family}" if request.sm_family else ""
        return CodedError(
            ExitCode.GPU_NOT_COVERED, f"No wheel{family} for this CUDA version has code for {_list(nowhere)}.",
            f"one of the devices {_list(sorted({d for w in wheels for d in w.devices}, key=parse))}", found, todo,
        )  # fmt: skip

    return _Stage(refuse, failure)


def resolve(request: Request, env: Environment, wheels: Sequence[Wheel]) -> Decision:
    """Chooses the wheel that covers every GPU: of the latest CUDA version, then without targets that nothing here needs.

    Raises CodedError if too little is known, RefusedError if no wheel is the one.
    """
    check(request, env)
    refusals: list[Refusal] = []
    left = list(wheels)
    makers: list[Callable[[], _Stage]] = [
        lambda: _version(env),
        _yanked,
        lambda: _cpu(env),
        lambda: _python(env),
        lambda: _libc(env),
        lambda: _family(request),
        lambda: _tegra(env),
        lambda: _cuda(env, left),
        lambda: _driver(env),
    ]
    for maker in makers:
        left = _apply(maker(), left, refusals)
    own = {wheel.version for wheel in wheels if public(wheel.version) == public(left[0].version)}
    related = [wheel for wheel in wheels if wheel.cpu == env.cpu.value and wheel.version in own]
    left = _apply(_gpu(env, request, related), left, refusals)
    latest = max(cuda_tuple(wheel.cuda_version) for wheel in left)
    # Two Blackwell families carry 8.0 too; an 8.6 alone needs neither's own targets.
    left.sort(key=lambda w: (cuda_tuple(w.cuda_version) != latest, parse(w.sm_targets[-1]), w.filename))
    chosen, *others = left
    for wheel in others:
        older = cuda_tuple(wheel.cuda_version) != latest
        refusals.append(
            Refusal(wheel, f"CUDA {chosen.cuda_version} is later" if older else f"{chosen.sm_family} is for these GPUs")
        )
    order = {id(wheel): number for number, wheel in enumerate(wheels)}
    return Decision(chosen, tuple(sorted(refusals, key=lambda r: order[id(r.wheel)])), tuple(_notes(request, env)))


def _apply(stage: _Stage, wheels: list[Wheel], refusals: list[Refusal]) -> list[Wheel]:
    left = []
    refused = []
    for wheel in wheels:
        reason = stage.refuse(wheel)
        if reason is None:
            left.append(wheel)
        else:
            refused.append(Refusal(wheel, reason))
    if not left:
        raise RefusedError(stage.failure(wheels), [*refusals, *refused])
    refusals += refused
    return left


def _notes(request: Request, env: Environment) -> list[str]:
    notes = list(env.notes)
    if env.cuda_of_driver and env.cuda:
        notes.append(
            f"There is no torch with CUDA: {env.cuda.value} is what the driver can run. If the torch to come is for "
            "another version, give that with --cuda-version."
        )
    if request.sm_family and (env.gpus is None or any(gpu.device is None for gpu in env.gpus.value)):
        notes.append("It is unknown which GPUs are here, so it was not checked that the wheel covers them.")
    elif request.sm_family and env.gpus and not env.gpus.value:
        notes.append("No GPU is visible, so it was not checked that the wheel covers one.")
    elif env.devices_given:
        notes.append("The GPUs were named, so this machine's driver was not checked.")
    return notes
