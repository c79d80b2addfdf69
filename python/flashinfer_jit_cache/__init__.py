"""FlashInfer's kernels, compiled ahead of time. FlashInfer finds them by itself; there is nothing to call.

Made by smwheel. `manifest.json` beside this file says what is inside. A GPU that this wheel has no code for gets none of
its modules: FlashInfer compiles for that one, and is told once which wheel would serve it.
"""

import json
import logging
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Tuple

from ._build_meta import __version__

__all__ = ["JitCacheProvider", "__version__", "get_jit_cache_dir", "get_jit_cache_providers"]

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class JitCacheProvider:
    """What flashinfer.jit.env reads of a provider (0.7 and later)."""

    provider_id: str
    distribution: str
    version: str
    jit_cache_dir: Path
    cuda_architectures: FrozenSet[str]
    modules: FrozenSet[str]


@lru_cache(maxsize=None)
def _manifest() -> Dict[str, Any]:
    with open(_HERE / "manifest.json", encoding="utf-8") as file:
        manifest: Dict[str, Any] = json.load(file)
    return manifest


def _built() -> List[str]:
    """The SM targets that are really in it: upstream builds 10.0f in place of 10.7a for some modules."""
    return sorted({sm for module in _manifest()["modules"].values() for sm in module["sm_targets"]})


def get_jit_cache_dir() -> str:
    """The directory with `<module>/<module>.so`, all that FlashInfer 0.6 and earlier ask for.

    They load a module from there whatever the GPU is. So if there is one that this wheel has no code for, they get the
    name of a directory that does not exist, and compile.
    """
    return str(_HERE / ("jit_cache" if not _refused() else "no_code_for_this_gpu"))


def get_jit_cache_providers() -> Tuple[JitCacheProvider, ...]:
    """One provider for each SM target, with the modules that have an image for it.

    A provider vouches for all its modules on all its targets, and not every module has every target. FlashInfer takes
    what runs on each GPU, and nothing for one that no provider's target runs on.
    """
    _refused()
    modules = _manifest()["modules"]
    # A module without device code runs everywhere.
    by_target: List[Tuple[str, FrozenSet[str]]] = [
        (sm, frozenset(name for name, module in modules.items() if sm in (module["sm_targets"] or [sm])))
        for sm in _built()
    ]
    return tuple(
        JitCacheProvider(
            provider_id="sm" + sm.replace(".", ""),
            distribution=_manifest()["distribution"],
            version=__version__,
            jit_cache_dir=_HERE / "jit_cache",
            cuda_architectures=frozenset(["sm" + sm.replace(".", "")]),
            modules=names,
        )
        for sm, names in by_target
    )


def _gpus() -> List[str]:
    """Compute capabilities that FlashInfer works for, as it finds them itself; empty if it is not FlashInfer that asks.

    FlashInfer asks torch for them as it is imported, right after it has asked this package for its modules. Nothing is
    imported here, and CUDA is not started for anybody else.
    """
    torch = sys.modules.get("torch")
    if "flashinfer" not in sys.modules or torch is None:
        return []
    listed = os.environ.get("FLASHINFER_CUDA_ARCH_LIST")
    if listed is not None:
        return sorted({arch.rstrip("af") for arch in listed.split()})
    try:
        found = {torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())}
    except Exception:
        # FlashInfer meets the same error next, and reports it.
        return []
    return [f"{major}.{minor}" for major, minor in sorted(found)]


def _runs_on(sm_target: str, device: str) -> bool:
    """Whether SASS for an SM target (`9.0a`) runs on a device (`9.0`): tools/wheel/sm_targets.py, less what is not here."""
    number = sm_target.rstrip("af")
    if sm_target.endswith("a"):
        return number == device
    (major, minor), (device_major, device_minor) = number.split("."), device.split(".")
    return major == device_major and int(minor) <= int(device_minor)


def _refused() -> List[str]:
    """The devices that there is no code for. Says so, once, with the wheel that has it."""
    devices = _gpus()
    refused = [device for device in devices if not any(_runs_on(sm, device) for sm in _built())]
    if refused:
        _warn(tuple(devices), tuple(refused))
    return refused


@lru_cache(maxsize=None)
def _warn(devices: Tuple[str, ...], refused: Tuple[str, ...]) -> None:
    manifest = _manifest()
    siblings: Dict[str, List[str]] = manifest.get("siblings", {})
    for_all = [version for version, served in siblings.items() if set(devices) <= set(served)]
    for_these = [version for version, served in siblings.items() if set(refused) <= set(served)]
    name = manifest["distribution"]
    if for_all:
        todo = f"Install {name}=={for_all[0]}, which has it: `smwheel install`."
    elif for_these:
        todo = f"{name}=={for_these[0]} has it, for an environment with these GPUs alone: `smwheel install` says how."
    else:
        todo = f"No wheel for CUDA {manifest['cuda_version']} has it: `smwheel install` says what can be done."
    logging.getLogger(__name__).warning(
        "%s %s has no code for GPUs of compute capability %s: FlashInfer compiles for them at first use. %s",
        name, __version__, ", ".join(refused), todo,
    )  # fmt: skip
