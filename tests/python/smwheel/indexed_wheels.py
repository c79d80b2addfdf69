"""Small wheels, made as the build makes them, of any version, CUDA version, CPU and SM family."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import smwheel  # noqa: F401  the build's programs are found through it
import wheel_pack
from sm_targets import DEVICES, image_for
from zip_writer import Member, write_zip

Json = dict[str, Any]

FAMILIES = {"sm9x": ["8.0", "9.0a"], "sm10x": ["8.0", "10.0a"], "sm12x": ["8.0", "12.0f"]}
DISTRIBUTION = "flashinfer-jit-cache"
PACKAGE = "flashinfer_jit_cache"


def _member(name: str, data: bytes) -> Member:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = compressor.compress(data) + compressor.flush()
    return Member(name, stream, zlib.crc32(data), len(data), 0o755 if name.endswith(".so") else 0o644)


def make_wheel(
    directory: Path,
    family: str = "sm9x",
    cpu: str = "x86_64",
    cuda_version: str = "13.0",
    version: str = "0.7.4",
    *,
    modules: tuple[str, ...] = ("norm", "page"),
    size: int = 600,
    seed: int = 0,
    build: str = "",
    name: str | None = None,
    edit_manifest: Callable[[Json], Any] | None = None,
    edit_metadata: Callable[[str], str] | None = None,
) -> Path:
    """Writes a wheel whose modules have images of `size` bytes for each SM target, and returns its path.

    seed: other bytes under the same name; build: a build tag; name: another file name.
    """
    local = f"{version}+cu{cuda_version.replace('.', '')}.{family}"
    tag = f"cp39-abi3-manylinux_2_28_{cpu}"
    spec: Json = {
        "distribution": DISTRIBUTION,
        "version": local,
        "summary": "Kernels",
        "license": "Apache-2.0",
        "license_files": {},
        "generator": "smwheel",
        "tag": tag,
        "cuda_version": cuda_version,
        "minimum_driver": "580",
        "cpu": cpu,
        "sm_family": family,
        "sm_targets": FAMILIES[family],
        "not_built": {},
        "siblings": {},
        "supports": {name: [d for d in DEVICES if image_for(FAMILIES[family], d)] for name in modules},
    }
    files: dict[str, bytes] = {}
    described: Json = {}
    members = []
    for module in modules:
        data = random.Random(f"{seed} {module} {local} {cpu}").randbytes(size * (1 + len(FAMILIES[family])))
        path = f"{PACKAGE}/jit_cache/{module}/{module}.so"
        members.append(_member(path, data))
        assert isinstance(members[-1].stream, bytes)
        part = {"bytes": size, "weight": size, "kernels": 1}
        entry = {
            "bytes": len(data),
            "compressed_bytes": len(members[-1].stream),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        facts = {"host": {"bytes": size, "weight": size}, "sm_targets": dict.fromkeys(FAMILIES[family], part)}
        described[module] = wheel_pack.describe_module(entry, facts)
        files[path] = data
    manifest = wheel_pack.describe_wheel(spec, described)
    if edit_manifest:
        edit_manifest(manifest)
    dist_info = f"{PACKAGE}-{local}.dist-info"
    metadata = wheel_pack.metadata(spec)
    wheel_file = wheel_pack.wheel_file(spec) + (f"Build: {build}\n" if build else "")
    texts = {
        f"{PACKAGE}/__init__.py": b'"""Synthetic."""\n',
        f"{PACKAGE}/manifest.json": json.dumps(manifest).encode(),
        f"{dist_info}/METADATA": (edit_metadata(metadata) if edit_metadata else metadata).encode(),
        f"{dist_info}/WHEEL": wheel_file.encode(),
    }
    files.update(texts)
    entries = [(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in sorted(files.items())]
    own = f"{dist_info}/RECORD"
    record = _member(own, wheel_pack.record(entries, own).encode())
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / (name or "-".join(filter(None, [PACKAGE, local, build, tag])) + ".whl")
    write_zip(wheel, [*(_member(path, data) for path, data in texts.items()), *members, record])
    return wheel


def matrix_of(wheels: list[Path], limit: int = 1 << 31) -> Json:
    """A resolved matrix of which these wheels, as `make_wheel` wrote them, are all."""
    entries = []
    for wheel in wheels:
        _, version, *_, cpu = wheel.stem.split("-")
        label, family = version.partition("+")[2].split(".")
        cpu = cpu.removeprefix("manylinux_2_28_")
        own = {"sm9x": ["8.0", "9.0"], "sm10x": ["10.0"], "sm12x": ["12.0"]}[family]
        entries.append(
            {
                "name": f"{label}_{cpu}_{family}",
                "cuda_label": label,
                "cuda_version": f"{label[2:-1]}.{label[-1]}",
                "cpu": cpu,
                "family": family,
                "distribution": DISTRIBUTION,
                "version": version,
                "tag": f"cp39-abi3-manylinux_2_28_{cpu}",
                "minimum_driver": "580",
                "sm_targets": FAMILIES[family],
                "devices": own,
                "budget": limit,
            }
        )
    return {"asset_limit": limit, "cubin_groups": [], "host_groups": [], "wheels": entries}
