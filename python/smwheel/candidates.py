"""The wheels that there are to choose from: those that an index lists, or those in a directory.

What is in a wheel is read from its manifest, or from the index's copy of that; never from file names.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from smwheel.exit_codes import CodedError, ExitCode

DISTRIBUTION = "flashinfer-jit-cache"
_PACKAGE = "flashinfer_jit_cache"

# Seconds to connect to an index and between two parts of its answer.
_TIMEOUT = (10.0, 30.0)


@dataclass(frozen=True)
class Wheel:
    """A wheel, by what its manifest says. `location`: the directory or the index page that an installer is given."""

    filename: str
    version: str
    cuda_version: str
    cpu: str
    sm_family: str
    sm_targets: tuple[str, ...]
    devices: tuple[str, ...]
    minimum_driver: str
    location: str
    requires_python: str | None = None
    sha256: str | None = None
    size: int | None = None
    # The reason, which may be empty, why nobody should take it any more (PEP 592); None if that is not so.
    yanked: str | None = None

    @property
    def cuda_label(self) -> str:
        """`cu130` for CUDA 13.0."""
        return "cu" + self.cuda_version.replace(".", "")

    @property
    def requirement(self) -> str:
        """The pin that names this wheel and, on one CPU, no other."""
        return f"{DISTRIBUTION}=={self.version}"


def _wheel(filename: str, entry: dict[str, Any], location: str) -> Wheel:
    """A wheel from its manifest or its entry in an index. Raises KeyError or TypeError if a field is not there."""
    return Wheel(
        filename=filename,
        version=str(entry["version"]),
        cuda_version=str(entry["cuda_version"]),
        cpu=str(entry["cpu"]),
        sm_family=str(entry["sm_family"]),
        sm_targets=tuple(map(str, entry["sm_targets"])),
        devices=tuple(map(str, entry["devices"])),
        minimum_driver=str(entry["minimum_driver"]),
        location=location,
        requires_python=entry.get("requires_python"),
        sha256=entry.get("sha256"),
        size=entry.get("size"),
        yanked=entry.get("yanked"),
    )


def in_directory(directory: Path) -> list[Wheel]:
    """The wheels in a directory, by file name. Raises CodedError if there are none, or one can't be read."""
    paths = sorted(directory.glob(f"{_PACKAGE}-*.whl"))
    if not paths:
        raise CodedError(
            ExitCode.INDEX, f"{directory}: there is no wheel here.", f"wheels of {DISTRIBUTION}: {_PACKAGE}-*.whl",
            "none" if directory.is_dir() else "no such directory",
            "give --find-links a directory that has some; ./bazelw build //wheels:cu130_x86_64 makes three.",
        )  # fmt: skip
    wheels = []
    for path in paths:
        try:
            with zipfile.ZipFile(path) as archive:
                entry = json.loads(archive.read(f"{_PACKAGE}/manifest.json"))
            wheels.append(_wheel(path.name, {**entry, "size": path.stat().st_size}, str(directory)))
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise CodedError(
                ExitCode.INDEX, f"{path}: what is in this wheel can't be read.", f"a wheel with {_PACKAGE}/manifest.json",
                f"{type(error).__name__}: {error}", "build or download it again, or take it out of the directory.",
            ) from None  # fmt: skip
    return wheels


def _fetch(url: str) -> bytes:
    """The bytes at an URL, `file:` too. Raises OSError (requests' errors are such)."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        from urllib.request import url2pathname

        return Path(url2pathname(parts.path)).read_bytes()
    # Takes longer to import than all else that this program does.
    import requests

    answer = requests.get(url, timeout=_TIMEOUT)
    if answer.status_code != 200:
        raise OSError(f"HTTP status {answer.status_code} {answer.reason}")
    return answer.content


def of_index(index_url: str, nightly: bool) -> list[Wheel]:
    """The wheels that an index lists in index.json at its root; `smwheel index` writes it. Raises CodedError.

    Nightly wheels have an index of their own, in nightly/ of the stable one. The page that an installer gets is that of
    one CUDA label and SM family: on a page with several, an unpinned install would take any.
    """
    root = index_url.rstrip("/") + "/"
    if nightly:
        root += "nightly/"
    url = urljoin(root, "index.json")

    def failure(found: str, todo: str) -> CodedError:
        return CodedError(ExitCode.INDEX, f"{url}: the list of wheels can't be read.",
                       "index.json, as `smwheel index` writes it", found, todo)  # fmt: skip

    try:
        text = _fetch(url)
    except OSError as error:
        raise failure(
            str(error), "check --index-url and the network; or give wheels that are here with --find-links."
        ) from None
    try:
        entries = json.loads(text)["wheels"]
        return [
            _wheel(str(e["filename"]), e, f"{root}{e.get('cuda_label') or _label(e)}/{e['sm_family']}/")
            for e in entries
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise failure(
            f"{type(error).__name__}: {error}", "check --index-url; it must be an index made by `smwheel index`."
        ) from None


def _label(entry: dict[str, Any]) -> str:
    return "cu" + str(entry["cuda_version"]).replace(".", "")


def candidates(index_url: str | None, find_links: Path | None, nightly: bool) -> list[Wheel]:
    """The wheels to choose from. Raises CodedError if it is not known where to look."""
    if find_links is not None:
        return in_directory(find_links)
    if index_url:
        return of_index(index_url, nightly)
    raise CodedError(
        ExitCode.INDEX, f"No index of {DISTRIBUTION} is known.", "where the wheels are: an index or a directory",
        "neither --index-url nor --find-links, and SMWHEEL_INDEX_URL is not set",
        "give --index-url URL (an index that `smwheel index` wrote), or --find-links DIR with wheels that are here.",
    )  # fmt: skip
