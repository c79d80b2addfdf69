"""Says what is installed for the Python that runs it, and prints JSON. It imports no package of those.

Python 3.9: the wheels are for that, and so may be the Python that it is run by.
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.util import find_spec
from typing import Any

DISTRIBUTION = "flashinfer-jit-cache"
MANIFEST = "flashinfer_jit_cache/manifest.json"


def installed(name: str) -> str | None:
    """The .dist-info directory of a distribution (PEP 376, names by PEP 503), or None. One without a version is none.

    importlib.metadata would find it as well, and imports half of the email package, longer than all else takes here.
    """
    wanted = normalized(name)
    for directory in sys.path:
        try:
            entries = os.listdir(directory or ".")
        except OSError:  # an archive, or not there
            continue
        for entry in entries:
            path = os.path.join(directory, entry)
            if entry.endswith(".dist-info") and normalized(entry.partition("-")[0]) == wanted and version(path):
                return path
    return None


def normalized(name: str) -> str:
    """A distribution's name as names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version(dist_info: str) -> str | None:
    """The version that METADATA says; None if there is none."""
    try:
        with open(os.path.join(dist_info, "METADATA"), encoding="utf-8") as file:
            for line in file:
                if line.lower().startswith("version:"):
                    return line.partition(":")[2].strip()
                if not line.strip():
                    break
    except (OSError, ValueError):
        pass
    return None


def torch_cuda() -> str | None:
    """The CUDA version that torch was built for, as it stands in torch/version.py: torch takes seconds to import."""
    try:
        spec = find_spec("torch")
        if spec is None:
            return None
        import ast

        for directory in spec.submodule_search_locations or []:
            with open(os.path.join(directory, "version.py"), encoding="utf-8") as file:
                for statement in ast.parse(file.read()).body:
                    targets = statement.targets if isinstance(statement, ast.Assign) else []
                    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
                    if any(isinstance(target, ast.Name) and target.id == "cuda" for target in targets):
                        value = getattr(statement, "value", None)
                        found = value.value if isinstance(value, ast.Constant) else None
                        return found if isinstance(found, str) else None
    except (OSError, SyntaxError, ValueError):
        pass
    return None


def damaged_files(dist_info: str) -> list[str] | None:
    """The files that its RECORD names and that are not there, or not of that size; None without a RECORD."""
    import csv

    damaged = []
    try:
        with open(os.path.join(dist_info, "RECORD"), encoding="utf-8", newline="") as file:
            for path, _, size in csv.reader(file):
                try:
                    found = str(os.stat(os.path.join(os.path.dirname(dist_info), path)).st_size)
                except OSError:
                    found = ""
                if not found or (size and size != found):
                    damaged.append(path)
    except (OSError, ValueError, csv.Error):
        return None
    return damaged


def jit_cache() -> dict[str, Any] | None:
    """What is installed of the wheel: version, manifest, and files of its RECORD that are not there as they should be."""
    dist_info = installed(DISTRIBUTION)
    if dist_info is None:
        return None
    try:
        with open(os.path.join(os.path.dirname(dist_info), MANIFEST), encoding="utf-8") as opened:
            manifest = json.load(opened)
        # The sizes of each module are many, and nothing here asks for them.
        manifest = {key: value for key, value in manifest.items() if key != "modules"}
    except (OSError, ValueError, AttributeError):
        manifest = None
    return {"version": version(dist_info), "manifest": manifest, "damaged": damaged_files(dist_info)}


def uv_environment() -> bool:
    """Whether uv made this virtual environment: it writes so into pyvenv.cfg."""
    try:
        with open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            return any(line.split("=")[0].strip() == "uv" for line in file)
    except OSError:
        return False


def main() -> dict[str, Any]:
    """All of it."""
    torch, flashinfer = installed("torch"), installed("flashinfer-python")
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        libc = None
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "machine": os.uname().machine,
        "libc": libc,
        "pip": find_spec("pip") is not None,
        "uv_environment": uv_environment(),
        "torch": torch and version(torch),
        "torch_cuda": torch_cuda(),
        "flashinfer": flashinfer and version(flashinfer),
        "jit_cache": jit_cache(),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
