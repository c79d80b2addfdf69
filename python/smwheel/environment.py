"""What is known of a machine and of what is installed on it, each value with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from packaging.version import InvalidVersion, Version
from sm_targets import parse

T = TypeVar("T")


@dataclass(frozen=True)
class Found(Generic[T]):
    """A value and its source, in words."""

    value: T
    source: str


@dataclass(frozen=True)
class Gpu:
    """A GPU. `device`: compute capability, `9.0`; None if the probe could not say."""

    device: str | None
    name: str | None = None
    uuid: str | None = None
    mig: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name or 'GPU'} ({self.device or 'compute capability unknown'})"


@dataclass(frozen=True)
class Probe:
    """What a probe said, in a line."""

    name: str
    outcome: str


@dataclass(frozen=True)
class Installed:
    """An installed wheel of the kernels. `manifest` is without its modules; `damaged`: files not as RECORD says."""

    version: str
    manifest: dict[str, Any] | None = None
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """A machine and the Python environment to install into. None is "unknown", never "none"; no GPU is an empty tuple.

    cuda: `13.0`, of torch if it is installed. driver: of NVIDIA, `580.65.06`. libc: `glibc 2.36`.
    """

    python: str
    python_version: str
    cpu: Found[str]
    libc: str | None
    flashinfer: Found[str] | None
    torch: str | None
    torch_cuda: str | None
    cuda: Found[str] | None
    driver: Found[str] | None
    gpus: Found[tuple[Gpu, ...]] | None
    tegra: bool
    has_pip: bool
    uv_environment: bool
    uv: str | None
    installed: Installed | None
    probes: tuple[Probe, ...] = ()
    # The GPUs were told and not detected: they may be another machine's, so this one's driver says nothing.
    devices_given: bool = False
    # The CUDA version is what the driver can run: torch is not here, and no one said which it will be.
    cuda_of_driver: bool = False
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> list[str]:
        """Compute capabilities of the GPUs, each once, ascending; without those that are unknown."""
        known = {gpu.device for gpu in (self.gpus.value if self.gpus else ()) if gpu.device}
        return sorted(known, key=parse)


def cuda_tuple(text: str) -> tuple[int, ...]:
    """`13.0` as (13, 0); `13` as (13,). Raises ValueError."""
    return tuple(int(part) for part in text.split("."))


def cuda_version(text: str) -> str:
    """Parses `12.9`, `12.9.1`, `cu129`, `13`. Returns `12.9`. Raises ValueError for anything else.

    A CUDA label is major and minor without a dot; the minor has one digit (12.9, 13.0).
    """
    digits = text.removeprefix("cu")
    if digits != text and digits.isascii() and digits.isdigit() and len(digits) == 3:
        return f"{digits[:2]}.{digits[2]}"
    parts = text.split(".")
    if text.isascii() and 1 <= len(parts) <= 3 and all(part.isdigit() for part in parts) and 9 < int(parts[0]) < 100:
        return ".".join(parts[:2])
    raise ValueError(f"expected a CUDA version such as 12.9, or a label such as cu129, found {text!r}")


def device(text: str) -> str:
    """Parses a compute capability: `9.0`, `90`, `9.0a`, `sm_90a`. Returns `9.0`. Raises ValueError for anything else."""
    target = parse(text)
    return f"{target.major}.{target.minor}"


def driver_tuple(text: str) -> tuple[int, ...]:
    """`580.65.06` as (580, 65, 6). Raises ValueError."""
    return tuple(int(part) for part in text.split("."))


def public(version: str) -> str | None:
    """The public part of a version: `0.7.4+cu130` is 0.7.4. None for what is no version or no release (0.0.0+unknown)."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return None
    return parsed.public if parsed.release != (0, 0, 0) else None
