"""The wheel of tests/e2e/remote: one of each kind of action, in seconds."""

from __future__ import annotations

import hashlib
from collections import Counter

from workspace import Spawn, Workspace

WHEEL = "//tests/e2e/remote:aarch64"

# How many actions of each kind it takes.
KINDS = {
    "CcNonshared": 1,
    "CppCompile": 1,
    "CudaCubin": 4,
    "CudaFatbin": 1,
    "CudaHostCompile": 2,
    "CudaHostFront": 2,
    "CudaLink": 1,
    "CudaPreprocess": 4,
    "CudaStub": 1,
    "ModuleCheck": 1,
    "WheelCheck": 1,
    "WheelMember": 1,
    "WheelPack": 1,
}
ACTIONS = sum(KINDS.values())


def digest(machine: Workspace) -> str:
    """The sha256 of the wheel that was built."""
    [wheel] = machine.files(WHEEL)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def runners(spawns: list[Spawn]) -> Counter[str]:
    """How many actions each kind of runner ran."""
    return Counter(spawn.runner for spawn in spawns)
