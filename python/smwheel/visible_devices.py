"""Which of a machine's GPUs a process sees: CUDA_VISIBLE_DEVICES (CUDA C++ Programming Guide, "CUDA Environment Variables")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from smwheel.environment import Gpu


class AmbiguousError(Exception):
    """It can't be told which GPUs are meant. The message says why."""


def visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, of all of a machine in the order of their PCI bus IDs.

    An entry is an ordinal, a UUID `GPU-…` or the beginning of one, or a MIG device: `MIG-<uuid>`, or
    `MIG-GPU-<uuid>/<gi>/<ci>` before driver 470. What comes after an entry that names nothing is not visible; so -1, or an
    empty value, leaves none. A MIG device has the compute capability of its GPU. Raises AmbiguousError.
    """
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return tuple(gpus)
    chosen = []
    for entry in (part.strip() for part in setting.split(",")):
        gpu = _find(gpus, entry, environ)
        if gpu is None:
            break
        chosen.append(gpu)
    return tuple(dict.fromkeys(chosen))


def _find(gpus: Sequence[Gpu], entry: str, environ: Mapping[str, str]) -> Gpu | None:
    alike = len({gpu.device for gpu in gpus}) == 1
    if re.fullmatch(r"\d+", entry, re.ASCII):
        index = int(entry)
        if index >= len(gpus):
            return None
        # CUDA counts the fastest GPU first, unless it is told to count as NVML does.
        if alike or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
            return gpus[index]
        raise AmbiguousError(
            f"CUDA_VISIBLE_DEVICES={environ['CUDA_VISIBLE_DEVICES']} counts GPUs of several kinds in CUDA's own order"
        )
    if entry.startswith("GPU-"):
        return _one([gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(entry)], entry)
    if entry.startswith("MIG-GPU-"):
        parent = entry.removeprefix("MIG-").split("/")[0]
        return _one([gpu for gpu in gpus if gpu.uuid == parent], entry)
    if entry.startswith("MIG-"):
        [*owners] = [gpu for gpu in gpus if any(uuid.startswith(entry) for uuid in gpu.mig)]
        if not owners and alike and not any(gpu.mig for gpu in gpus):
            return gpus[0]
        if not owners:
            raise AmbiguousError(f"no GPU is known to have the MIG device {entry}")
        return _one(owners, entry)
    return None


def _one(gpus: list[Gpu], entry: str) -> Gpu | None:
    """CUDA takes the beginning of a UUID if it is that of one GPU only."""
    return gpus[0] if len(gpus) == 1 else None
