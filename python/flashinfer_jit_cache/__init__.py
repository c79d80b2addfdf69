"""FlashInfer's kernels, compiled ahead of time. FlashInfer finds them by itself; there is nothing to call.

Made by smwheel. `manifest.json` beside this file says what is inside.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import FrozenSet, List, Tuple

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


def get_jit_cache_dir() -> str:
    """The directory with `<module>/<module>.so` (FlashInfer 0.6 and earlier ask only for this)."""
    return str(_HERE / "jit_cache")


def get_jit_cache_providers() -> Tuple[JitCacheProvider, ...]:
    """One provider for each SM target, with the modules that have an image for it.

    A provider vouches for all its modules on all its targets, and not every module has every target.
    """
    with open(_HERE / "manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    modules = manifest["modules"]
    # Not what the wheel was asked to cover: upstream builds 10.0f in place of 10.7a for some modules.
    built = sorted({sm for module in modules.values() for sm in module["sm_targets"]})
    # A module without device code runs everywhere.
    by_target: List[Tuple[str, FrozenSet[str]]] = [
        (sm, frozenset(name for name, module in modules.items() if sm in (module["sm_targets"] or [sm])))
        for sm in built
    ]
    return tuple(
        JitCacheProvider(
            provider_id="sm" + sm.replace(".", ""),
            distribution=manifest["distribution"],
            version=__version__,
            jit_cache_dir=_HERE / "jit_cache",
            cuda_architectures=frozenset(["sm" + sm.replace(".", "")]),
            modules=names,
        )
        for sm, names in by_target
    )
