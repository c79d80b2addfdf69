"""Wheels that pip and uv install, with a manifest and one module of a few bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from recorded_system import ROOT
from smwheel.candidates import Wheel

PACKAGE = "flashinfer_jit_cache"


def write(directory: Path, wheel: Wheel, **manifest: Any) -> Path:
    """Writes a wheel of the matrix; `manifest` changes fields of its manifest."""
    facts = {
        "schema_version": 2,
        "distribution": "flashinfer-jit-cache",
        "version": wheel.version,
        "cuda_version": wheel.cuda_version,
        "minimum_driver": wheel.minimum_driver,
        "cpu": wheel.cpu,
        "sm_family": wheel.sm_family,
        "sm_targets": wheel.sm_targets,
        "devices": wheel.devices,
        "modules": {"norm": {"sm_targets": {sm: {} for sm in wheel.sm_targets}}},
        **manifest,
    }
    info = f"{PACKAGE}-{wheel.version}.dist-info"
    tag = wheel.filename.removesuffix(".whl").split("-", 2)[2]
    files = {
        f"{PACKAGE}/__init__.py": (ROOT / "python" / PACKAGE / "__init__.py").read_bytes(),
        f"{PACKAGE}/_build_meta.py": f'__version__ = "{wheel.version}"\n'.encode(),
        f"{PACKAGE}/manifest.json": json.dumps(facts).encode(),
        f"{PACKAGE}/jit_cache/norm/norm.so": b"module",
        f"{info}/METADATA": f"Metadata-Version: 2.4\nName: flashinfer-jit-cache\nVersion: {wheel.version}\n"
        "Requires-Python: >=3.9\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    record = ""
    path = directory / wheel.filename
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


def write_index(root: Path, wheels: list[Wheel]) -> None:
    """Writes an index as `smwheel index` does: index.json, and for each CUDA label and family a PEP 503 page."""
    entries = []
    for wheel in wheels:
        label = wheel.cuda_label
        page = root / label / wheel.sm_family / "flashinfer-jit-cache"
        page.mkdir(parents=True, exist_ok=True)
        path = write(page, wheel)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        link = wheel.filename.replace("+", "%2B")
        with open(page / "index.html", "a", encoding="utf-8") as file:
            file.write(f'<a href="{link}#sha256={sha256}">{wheel.filename}</a><br>\n')
        entries.append(
            {
                "filename": wheel.filename,
                "url": f"{label}/{wheel.sm_family}/flashinfer-jit-cache/{link}",
                "sha256": sha256,
                "version": wheel.version,
                "cuda_version": wheel.cuda_version,
                "cuda_label": label,
                "cpu": wheel.cpu,
                "sm_family": wheel.sm_family,
                "sm_targets": wheel.sm_targets,
                "devices": wheel.devices,
                "minimum_driver": wheel.minimum_driver,
                "requires_python": ">=3.9",
                "size": path.stat().st_size,
            }
        )
    (root / "index.json").write_text(json.dumps({"wheels": entries}))
