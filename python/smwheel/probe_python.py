"""Says what is installed for the Python that runs it, and prints JSON. It imports no package of those.

Python 3.9: the wheels are for that, and so may be the Python that it is run by.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any

DISTRIBUTION = "flashinfer-jit-cache"
MANIFEST = "flashinfer_jit_cache/manifest.json"


def installed(name: str) -> metadata.Distribution | None:
    """A distribution, or None."""
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def version(distribution: metadata.Distribution) -> str:
    """Its version. Parsing torch's metadata as the mail message that it is takes longer than all else here."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    for line in text.splitlines():
        if line.lower().startswith("version:"):
            return line.partition(":")[2].strip()
        if not line:
            break
    return distribution.version


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


def jit_cache() -> dict[str, Any] | None:
    """What is installed of the wheel: version, manifest, and files of its RECORD that are not there as they should be."""
    distribution = installed(DISTRIBUTION)
    if distribution is None:
        return None
    manifest = damaged = None
    files = distribution.files
    if files is not None:
        damaged = []
        for file in files:
            try:
                size = os.stat(str(file.locate())).st_size
            except OSError:
                size = -1
            if size < 0 or (file.size is not None and file.size != size):
                damaged.append(str(file))
    try:
        with open(str(distribution.locate_file(MANIFEST)), encoding="utf-8") as opened:
            manifest = json.load(opened)
        # The sizes of each module are many, and nothing here asks for them.
        manifest = {key: value for key, value in manifest.items() if key != "modules"}
    except (OSError, ValueError, AttributeError):
        manifest = None
    return {"version": version(distribution), "manifest": manifest, "damaged": damaged}


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
