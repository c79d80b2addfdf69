"""Which files a translation unit may include, found without running a preprocessor.

The scan over-approximates: `#if` is ignored and every search directory that holds the name counts.
A header too many costs a rebuild; one too few breaks a sandboxed build, so an include that the scan
cannot follow is an error.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

# Headers of CUDA components that are packaged apart from the runtime; components are named as in
# https://developer.download.nvidia.com/compute/cuda/redist/ without `lib` and `cuda_`.
TOOLKIT_HEADERS: Mapping[str, str] = {
    "cublas": "cublas*.h",
    "cufft": "cufft*.h",
    "cupti": "cupti*.h",
    "curand": "curand*.h",
    "cusolver": "cusolver*.h",
    "cusparse": "cusparse*.h",
    "nvjitlink": "nvJitLink*.h",
    "nvml": "nvml*.h",
    "nvrtc": "nvrtc*.h",
    "profiler_api": "cuda*rofiler[._]*",
}
# CUDA's own headers, which are not here to be scanned, include libcudacxx (cuda_fp16.h: <nv/target>)
# and find upstream's copy before the toolkit's. nvcc puts cuda_runtime.h into any .cu.
TOOLKIT_NEEDS = "cccl"
TOOLKIT_PREFIXES = ("cooperative_groups", "cu")
# Python's headers, which are not here to be scanned either, by the one that includes the others.
PYTHON = "python"
PYTHON_HEADER = "Python.h"
# Kernel templates: a unit that includes these can define a kernel that its text does not show.
KERNEL_TREES = frozenset({"cccl", "cutlass"})
KERNEL_PREFIXES = ("cub/", "cute/", "cutlass/", "thrust/")

_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*(?:include(?:_next)?|import)\b[ \t]*(?:<([^>\n]+)>|"([^"\n]+)"|([A-Za-z_]\w*))',
    re.MULTILINE,
)
_DEFINE = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+[<"]([^">\n]+)[">]', re.MULTILINE)
_DEFINE_FLAG = re.compile(r'-D(\w+)=["<](.+)[">]')
# A kernel, a launch, or a variable in device memory.
_DEVICE_CODE = re.compile(
    r"__global__|__constant__|__managed__|<<<"
    r"|__device__(?:[^(){};=]|(?:__align__|alignas)\s*\([^)]*\))*[;={]"
)


class ScanError(Exception):
    """An include that the scan cannot follow."""


@dataclass(frozen=True)
class Trees:
    """Named source trees. Paths are absolute, without `..`. First-party roots are searched, but for those in `unsearched`.

    followed_dirs: include directories that only some modules search, and that third-party files include from.
    """

    first_party: Mapping[str, Path]
    third_party: Mapping[str, Path]
    third_party_dirs: tuple[Path, ...]
    unsearched: frozenset[str] = frozenset()
    followed_dirs: tuple[Path, ...] = ()

    def label(self, path: str | Path) -> str:
        """`csrc/norm.cu` for a path in the tree `csrc`. ScanError if it is in no tree."""
        for name, root in _roots(self):
            if str(path).startswith(root):
                return name + str(path)[len(root) - 1 :]
        names = ", ".join([*self.first_party, *self.third_party])
        raise ScanError(f"{path}: expected a path in {names}; check --first-party, --third-party")


# The caches are keyed by the identity of the trees, which are few and live as long as the program.
_CACHE: dict[tuple[int, str], Any] = {}


def _cached(trees: Trees, key: str, make: Callable[[], Any]) -> Any:
    entry = _CACHE.get((id(trees), key))
    if entry is None:
        entry = _CACHE[id(trees), key] = (trees, make())
    return entry[1]


def _roots(trees: Trees) -> list[tuple[str, str]]:
    """Names and roots, each with a slash at its end; a tree comes before one that it lies in."""

    def make() -> list[tuple[str, str]]:
        named = {**trees.first_party, **trees.third_party}
        return sorted(((name, f"{root}/") for name, root in named.items()), key=lambda item: -len(item[1]))

    roots: list[tuple[str, str]] = _cached(trees, "/", make)
    return roots


@dataclass(frozen=True)
class Closure:
    """What a unit reaches, sorted. headers: labels of first-party files other than the unit."""

    headers: tuple[str, ...]
    third_party: tuple[str, ...]
    toolkit_components: tuple[str, ...]
    device_code: bool


@dataclass(frozen=True)
class _File:
    names: tuple[str, ...]
    macros: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    device_code: bool


@functools.cache
def _parse(path: str) -> _File:
    text = Path(path).read_text(encoding="utf-8", errors="replace").replace("\\\n", "")
    includes = _INCLUDE.findall(text)
    return _File(
        names=tuple(angle or quoted for angle, quoted, _ in includes if angle or quoted),
        macros=tuple(macro for _, _, macro in includes if macro),
        defines=tuple(_DEFINE.findall(text)),
        device_code=bool(_DEVICE_CODE.search(text)),
    )


@functools.cache
def _locate(name: str, directories: tuple[str, ...]) -> tuple[str, ...]:
    paths = dict.fromkeys(os.path.normpath(os.path.join(d, name)) for d in directories)
    return tuple(path for path in paths if os.path.isfile(path))


def _third_party(path: str, trees: Trees) -> tuple[frozenset[str], frozenset[str]]:
    """The trees that a third-party file reaches, and all names that are included on the way.

    A third-party tree is declared whole and includes nothing of ours: it is followed only to see which other trees it
    needs. So this depends on nothing but the file.
    """

    def follow() -> tuple[frozenset[str], frozenset[str]]:
        directories = tuple(map(str, (*trees.third_party_dirs, *trees.followed_dirs)))
        names: set[str] = set()
        reached = {path}
        pending = [path]
        while pending:
            current = pending.pop()
            file = _parse(current)
            names.update(file.names)
            near = (os.path.dirname(current), *directories)
            found = {f for name in file.names for f in _locate(name, near)} - reached
            reached |= found
            pending.extend(found)
        labels = {trees.label(file).split("/")[0] for file in reached}
        return frozenset(labels), frozenset(names)

    result: tuple[frozenset[str], frozenset[str]] = _cached(trees, path, follow)
    return result


def scan(source: Path, trees: Trees, own_dirs: Iterable[Path] = (), copts: Iterable[str] = ()) -> Closure:
    """Follows every include of a first-party source.

    Args:
      own_dirs: directories that the module searches besides the trees.
      copts: the unit's flags; `-DNAME="file"` gives `#include NAME` a value.
    Raises:
      ScanError: a macro include has no known file, or an include leaves the trees.
    """
    searched = [str(root) for name, root in trees.first_party.items() if name not in trees.unsearched]
    all_dirs = (*map(str, own_dirs), *searched, *map(str, trees.third_party_dirs))
    third_party: set[str] = set()  # names of trees
    reached: dict[str, str] = {}  # path: label
    names: set[str] = set()
    macros: set[tuple[str, str]] = set()  # macro, including file
    values: dict[str, set[str]] = {}
    for flag in copts:
        if match := _DEFINE_FLAG.fullmatch(flag):
            values.setdefault(match[1], set()).add(match[2])
    device_code = False

    def named_by(macro: str, path: str) -> list[str]:
        dirs = (os.path.dirname(path), *all_dirs)
        return [found for value in values.get(macro, ()) for found in _locate(value, dirs)]

    pending = [str(source)]
    while pending:
        path = pending.pop()
        if path not in reached:
            reached[path] = label = trees.label(path)
            if label.split("/")[0] in trees.first_party:
                file = _parse(path)
                names.update(file.names)
                device_code = device_code or file.device_code
                macros.update((macro, path) for macro in file.macros)
                for macro, value in file.defines:
                    values.setdefault(macro, set()).add(value)
                dirs = (os.path.dirname(path), *all_dirs)
                pending.extend(found for name in file.names for found in _locate(name, dirs))
            else:
                reached_trees, reached_names = _third_party(path, trees)
                third_party |= reached_trees
                names |= reached_names
        if not pending:
            found_by_macro = {found for macro in macros for found in named_by(*macro)}
            pending = [found for found in found_by_macro if found not in reached]

    for macro, path in sorted(macros):
        if not named_by(macro, path):
            known = ", ".join(sorted(values.get(macro, ()))) or "none"
            raise ScanError(
                f"{trees.label(source)}: {trees.label(path)} has `#include {macro}`; expected a "
                f'`#define {macro} "file"` among the included files or a -D{macro}="file" flag, '
                f"whose file exists; found values: {known}; leave the module out of the profile or "
                "teach include_scan.py"
            )
    kernels = bool(third_party & KERNEL_TREES) or any(n.startswith(KERNEL_PREFIXES) for n in names)
    if source.suffix == ".cu" or any(name.startswith(TOOLKIT_PREFIXES) for name in names):
        third_party.add(TOOLKIT_NEEDS)
    if PYTHON_HEADER in names:
        third_party.add(PYTHON)
    headers = (label for path, label in reached.items() if path != str(source))
    return Closure(
        headers=tuple(sorted(h for h in headers if h.split("/")[0] in trees.first_party)),
        third_party=tuple(sorted(third_party)),
        toolkit_components=tuple(
            component
            for component, pattern in sorted(TOOLKIT_HEADERS.items())
            if any(fnmatchcase(name, pattern) for name in names)
        ),
        device_code=device_code or kernels,
    )
