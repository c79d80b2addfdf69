"""Wheels that a test writes: small, with a manifest, and sound to the strict reader."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import random
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import smwheel  # noqa: F401  finds the programs of the build
from size_report import share
from zip_writer import Member, write_zip

DISTRIBUTION = "flashinfer_jit_cache"

# Installed bytes of a module by SM target; "host" is its host code.
Sizes = Mapping[str, Mapping[str, int]]


def wheel_name(family: str, version: str = "0.7.4", label: str = "cu130", cpu: str = "x86_64") -> str:
    """The file name of a wheel."""
    return f"{DISTRIBUTION}-{version}+{label}.{family}-cp39-abi3-manylinux_2_28_{cpu}.whl"


def make_wheel(
    directory: Path, family: str, sizes: Sizes, *, version: str = "0.7.4", label: str = "cu130", cpu: str = "x86_64"
) -> Path:
    """Writes a wheel; half of each part can't be compressed. Same arguments, same bytes."""
    full = f"{version}+{label}.{family}"
    dist_info = f"{DISTRIBUTION}-{full}.dist-info"
    texts: dict[str, bytes] = {f"{DISTRIBUTION}/__init__.py": b"# The package.\n"}
    libraries: dict[str, bytes] = {}
    modules: dict[str, Any] = {}
    for name, parts in sorted(sizes.items()):
        data = b"".join(
            random.Random(f"{full} {cpu} {name} {sm}").randbytes(size // 2) + bytes(size - size // 2)
            for sm, size in parts.items()
        )
        libraries[f"{DISTRIBUTION}/jit_cache/{name}/{name}.so"] = data
        compressed = len(_deflate(data))
        shares = share(compressed, parts)
        entries = {sm: {"bytes": size, "compressed_bytes": shares[sm]} for sm, size in parts.items()}
        host = entries.pop("host")
        modules[name] = {
            "bytes": len(data),
            "compressed_bytes": compressed,
            "sha256": hashlib.sha256(data).hexdigest(),
            "sm_targets": {sm: {**entry, "kernels": 1} for sm, entry in entries.items()},
            "host": host,
        }
    manifest = {
        "schema_version": 2,
        "distribution": DISTRIBUTION.replace("_", "-"),
        "version": full,
        "cuda_version": f"{label[2:4]}.{label[4:]}",
        "minimum_driver": "580",
        "cpu": cpu,
        "tag": f"cp39-abi3-manylinux_2_28_{cpu}",
        "sm_family": family,
        "sm_targets": sorted({sm for parts in sizes.values() for sm in parts} - {"host"}),
        "devices": [],
        "modules": modules,
    }
    texts[f"{DISTRIBUTION}/manifest.json"] = json.dumps(manifest).encode()
    texts[f"{dist_info}/METADATA"] = f"Metadata-Version: 2.4\nName: flashinfer-jit-cache\nVersion: {full}\n".encode()
    texts[f"{dist_info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: cp39-abi3-manylinux_2_28_{cpu}\n".encode()
    )
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    for name, data in {**texts, **libraries}.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(data)])
    writer.writerow([f"{dist_info}/RECORD", "", ""])
    texts[f"{dist_info}/RECORD"] = record.getvalue().encode()
    members = [Member(name, _deflate(data), zlib.crc32(data), len(data), 0o755) for name, data in libraries.items()]
    members += [Member(name, _deflate(data), zlib.crc32(data), len(data)) for name, data in texts.items()]
    path = directory / wheel_name(family, version, label, cpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_zip(path, members)
    return path


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def make_matrix(
    path: Path,
    families: list[str],
    cpus: list[str],
    version: str = "0.7.4",
    label: str = "cu130",
    budget: int = 1 << 20,
) -> Path:
    """Writes a resolved matrix of one CUDA version."""
    wheels = [
        {
            "name": f"{label}_{cpu}_{family}",
            "budget": budget,
            "cpu": cpu,
            "cuda_label": label,
            "cuda_version": f"{label[2:4]}.{label[4:]}",
            "devices": {"sm9x": ["8.0", "9.0"], "sm10x": ["10.0", "10.3"], "sm12x": ["12.0", "12.1"]}.get(family, []),
            "distribution": "flashinfer-jit-cache",
            "family": family,
            "tag": f"cp39-abi3-manylinux_2_28_{cpu}",
            "version": f"{version}+{label}.{family}",
        }
        for cpu in cpus
        for family in families
    ]
    matrix = {"asset_limit": 2147483648, "cubin_groups": [], "host_groups": [], "wheels": wheels}
    path.write_text(json.dumps(matrix))
    return path
