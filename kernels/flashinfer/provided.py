"""What FlashInfer's modules need that is not fetched, and that a person may provide, each as a directory.

That is the headers of NCCL, those of CUDA's torch, and what FlashInfer downloads from NVIDIA's cubin server.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

# The setting that names the directory, by option of upstream.py and importer.py.
SETTINGS = {"nccl": "FLASHINFER_NCCL", "torch": "FLASHINFER_TORCH", "cubins": "FLASHINFER_CUBINS"}

# The trees with headers, of which <tree>/include is searched.
TREES = ("nccl", "torch")

# The NCCL that upstream takes (cake_mxfp4_megamoe/shim/cake_jit.py). With any other it leaves modules out without a word.
NCCL_VERSION = "2.30.7"
# What of each include directory belongs to the tree: NCCL's may be the machine's own, with the headers of others too.
_HEADERS = {"nccl": ("nccl*.h", "nccl_device"), "torch": ("*",)}


class ProvidedError(Exception):
    """A directory does not have what it is given for."""


@dataclass(frozen=True)
class Provided:
    """Resolved directories: the include directories of NCCL and torch, and that of the cubin server's files."""

    nccl: Path | None = None
    torch: Path | None = None
    cubins: Path | None = None

    @property
    def include_dirs(self) -> dict[str, Path]:
        """The include directories that are provided, by tree."""
        return {tree: path for tree, path in (("nccl", self.nccl), ("torch", self.torch)) if path}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds an option for each setting; `find_provided` takes what they say."""
    for option, setting in SETTINGS.items():
        parser.add_argument(f"--{option}", type=Path, help=f"the directory that the setting {setting} names")


def find_provided(nccl: Path | None, torch: Path | None, cubins: Path | None) -> Provided:
    """Finds what was asked for in the directories; ProvidedError names the setting of one that lacks it."""
    return Provided(nccl and _nccl(nccl), torch and _torch(torch), cubins and _cubins(cubins))


def _include_dir(option: str, directory: Path, packaged: str, headers: tuple[str, ...], todo: str) -> Path:
    """The include directory in an installation's root, or in what a wheel was unpacked into."""
    candidates = [root / "include" for root in (directory, directory / packaged)]
    for candidate in candidates:
        if all((candidate / header).is_file() for header in headers):
            return candidate.resolve()
    # What the nearest one lacks says more than what both lack.
    nearest = next((c for c in candidates if c.is_dir()), None)
    lacking = [header for header in headers if not nearest or not (nearest / header).is_file()]
    found = f"no {', no '.join(lacking)} in {nearest}" if nearest else "no such directory"
    raise ProvidedError(
        f"{SETTINGS[option]}={directory} does not have what it is given for.\n"
        f"  expected: {', '.join(headers)} in include or in {packaged}/include\n"
        f"  found:    {found}\n"
        f"  To do: {todo}, or leave the setting out."
    )


def _nccl(directory: Path) -> Path:
    todo = f"give the directory of NCCL {NCCL_VERSION}, for instance of the unpacked wheel nvidia-nccl-cu13=={NCCL_VERSION}"
    include = _include_dir("nccl", directory, "nvidia/nccl", ("nccl.h", "nccl_device.h"), todo)
    text = (include / "nccl.h").read_text(encoding="utf-8", errors="replace")
    numbers = [re.search(rf"#define\s+NCCL_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    version = ".".join(number[1] if number else "?" for number in numbers)
    if version != NCCL_VERSION:
        raise ProvidedError(
            f"{SETTINGS['nccl']}={directory} has another NCCL than FlashInfer's modules are made for.\n"
            f"  expected: NCCL {NCCL_VERSION}\n"
            f"  found:    NCCL {version}, by {include / 'nccl.h'}\n"
            f"  To do: {todo}, or leave the setting out."
        )
    return include


def _torch(directory: Path) -> Path:
    # Only a torch that was built with CUDA has the last.
    headers = ("torch/library.h", "torch/csrc/api/include/torch/all.h", "c10/cuda/impl/cuda_cmake_macros.h")
    todo = "give the directory of an installed torch, or of an unpacked wheel of it, that was built with CUDA"
    return _include_dir("torch", directory, "torch", headers, todo)


def _cubins(directory: Path) -> Path:
    if not directory.is_dir():
        raise ProvidedError(
            f"{SETTINGS['cubins']}={directory} does not have what it is given for.\n"
            "  expected: a directory as `flashinfer download-cubin` fills it (FLASHINFER_CUBIN_DIR)\n"
            "  found:    no such directory\n"
            "  To do: correct the path, or leave the setting out."
        )
    return directory.resolve()


def copy_headers(tree: str, source: Path, into: Path) -> None:
    """Copies what belongs to a tree of an include directory."""
    for pattern in _HEADERS[tree]:
        for path in sorted(source.glob(pattern)):
            target = into / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(path, target)


def digest(tree: str, source: Path) -> str:
    """The sha256 of what `copy_headers` copies: of names and contents."""
    sha256 = hashlib.sha256()
    for pattern in _HEADERS[tree]:
        for top in sorted(source.glob(pattern)):
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if path.is_file():
                    sha256.update(f"{path.relative_to(source)}\n{path.stat().st_size}\n".encode())
                    sha256.update(path.read_bytes())
    return sha256.hexdigest()
