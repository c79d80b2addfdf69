"""A static package index of wheels: its pages as pure functions of its entries, and the directory that holds them.

    index.json                                     every wheel, for programs
    index.html                                     the directories below, for people
    <label>/<family>/index.html, simple.json       the projects (PEP 503, PEP 691)
    <label>/<family>/<project>/index.html, simple.json    the files of one
    files/                                         wheels and their .metadata, unless they are hosted elsewhere
    nightly/                                       an index as this one, of pre-releases and development releases

An installer is given `<root>/<label>/<family>/`. No page has wheels of two SM families or CUDA versions: of one version,
installers take the local version that sorts last (PEP 440), and "sm10x" < "sm12x" < "sm9x".
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from packaging.version import InvalidVersion, Version

from smwheel.directory_swap import changed, settle
from smwheel.errors import SmwheelError
from smwheel.wheel_file import WheelFile, guarded, read_wheel, sha256

if TYPE_CHECKING:
    from jinja2 import Template

Json = dict[str, Any]

SCHEMA = 1
# PEP 629; PEP 833 freezes HTML at this version. JSON has PEP 700's fields since 1.1, PEP 792's since 1.4.
API_VERSION = "1.4"

NIGHTLY = "nightly/"

_PIECE = 1 << 20
_PART = re.compile(r"[a-z0-9]+")
_PROJECT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # a normalised name (PEP 503)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RefusedError(SmwheelError):
    """An index would say something false, or change what it said. Nothing was written."""

    exit_code = 3

    @classmethod
    def of(cls, errors: Sequence[SmwheelError]) -> RefusedError:
        """All of several errors, as one."""
        error = cls("", "", "", "")
        error.args = ("\nerror: ".join(map(str, errors)),)
        return error


@dataclass(frozen=True)
class Entry:
    """A wheel of the index, as index.json has it. `size` is in bytes.

    url: absolute, or relative to the directory of index.json, percent-encoded
    metadata_sha256: of the file `<url>.metadata` (PEP 658), None if there is none
    upload_time: `2026-11-30T12:00:00.000000Z` (PEP 700), None if nobody said
    yanked: the reason, which may be empty (PEP 592); None for a wheel that is not yanked
    """

    filename: str
    url: str
    sha256: str
    size: int
    distribution: str
    version: str
    tag: str
    cuda_version: str
    cuda_label: str
    cpu: str
    sm_family: str
    sm_targets: tuple[str, ...]
    devices: tuple[str, ...]
    minimum_driver: str
    requires_python: str | None
    metadata_sha256: str | None = None
    upload_time: str | None = None
    yanked: str | None = None

    @property
    def directory(self) -> str:
        """What an installer is given, relative to the directory of index.json: `cu130/sm12x`."""
        return f"{self.cuda_label}/{self.sm_family}"

    @property
    def subtree(self) -> str:
        """Which index it is in: `nightly/` for pre-releases and development releases (PEP 440), else the root."""
        return NIGHTLY if Version(self.version).is_prerelease else ""

    @property
    def hosted(self) -> str | None:
        """Where the wheel's file is, relative to the root, or None if it is hosted elsewhere."""
        return None if urlsplit(self.url).scheme else self.subtree + unquote(self.url)


@dataclass(frozen=True)
class Outcome:
    """What an update did: the names of wheels that are new, the number of all, whether anything was written."""

    added: tuple[str, ...]
    wheels: int
    written: bool


def timestamp(text: str) -> str:
    """A time as PEP 700 writes it, from ISO 8601 with a zone. Raises ValueError."""
    time = datetime.fromisoformat(re.sub(r"Z$", "+00:00", text))
    if time.tzinfo is None:
        raise ValueError(f"a time with its zone, such as 2026-11-30T12:00:00Z, not {text!r}")
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# ---- Entries ----------------------------------------------------------------------------------------------------


def entry_of(
    wheel: WheelFile, digest: str, base_url: str | None = None, metadata: bool = True, upload_time: str | None = None
) -> Entry:
    """The entry of a wheel whose sha256 is `digest`.

    base_url: where it is hosted, or None for the index's own files; metadata: whether `<url>.metadata` is there too.
    """
    for what, word in (("CUDA version", wheel.cuda_label), ("SM family", wheel.sm_family)):
        if not _PART.fullmatch(word):
            raise RefusedError(
                f"{wheel.path.name}: its {what} can't name a directory.", "a-z and 0-9", word, "rename it."
            )
    # A plus is a space to some servers (S3).
    name = quote(wheel.path.name, safe="")
    return Entry(
        filename=wheel.path.name,
        url=f"{base_url.rstrip('/')}/{name}" if base_url else f"files/{name}",
        sha256=digest,
        size=wheel.size,
        distribution=wheel.name,
        version=wheel.version,
        tag=wheel.tag,
        cuda_version=wheel.cuda_version,
        cuda_label=wheel.cuda_label,
        cpu=wheel.cpu,
        sm_family=wheel.sm_family,
        sm_targets=wheel.sm_targets,
        devices=wheel.devices,
        minimum_driver=wheel.minimum_driver,
        requires_python=wheel.requires_python,
        metadata_sha256=hashlib.sha256(wheel.metadata).hexdigest() if metadata else None,
        upload_time=upload_time,
    )


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By version, then by file name."""
    return sorted(entries, key=lambda entry: (Version(entry.version), entry.filename))


def merge(old: Iterable[Entry], new: Iterable[Entry]) -> list[Entry]:
    """Entries of an index with `new` ones, in order. What was said of a wheel's time and of yanking stays.

    Raises RefusedError: a file name with another sha256, or two files of one version and tag.
    """
    by_name: dict[str, Entry] = {}
    by_tag: dict[tuple[str, Version, str], str] = {}
    for entry in [*old, *new]:
        before = by_name.get(entry.filename)
        if before and before.sha256 != entry.sha256:
            raise RefusedError(
                f"{entry.filename}: there is a wheel of this name with other bytes.",
                f"sha256 {before.sha256}",
                f"sha256 {entry.sha256}",
                "give the new wheel a new version: installers keep and pin what was published.",
            )
        if before:
            entry = replace(entry, upload_time=before.upload_time or entry.upload_time, yanked=before.yanked)
        key = (entry.distribution, Version(entry.version), entry.tag)
        if (other := by_tag.setdefault(key, entry.filename)) != entry.filename:
            raise RefusedError(
                f"{entry.filename}: there is another wheel of this version and tag.",
                "one file",
                other,
                "keep one of them, or give the new wheel a new version: installers would take either.",
            )
        by_name[entry.filename] = entry
    return in_order(by_name.values())


def yank(entries: Iterable[Entry], what: str, reason: str | None) -> list[Entry]:
    """Entries of which those called `what` are yanked, with a reason, or not any more, with None.

    what: a file name, a version, or a version without its local part. Raises RefusedError if nothing is called so.
    """
    entries = list(entries)
    try:
        version = Version(what)
    except InvalidVersion:
        version = None

    def meant(entry: Entry) -> bool:
        found = Version(entry.version)
        return what == entry.filename or version in (found, Version(found.public))

    if not any(map(meant, entries)):
        known = ", ".join(sorted({entry.version for entry in entries})) or "none"
        raise RefusedError(
            f"{what}: no wheel of the index is called so.", f"a file name or a version: {known}", what, "name one."
        )
    return [replace(entry, yanked=reason) if meant(entry) else entry for entry in entries]


# ---- Pages ------------------------------------------------------------------------------------------------------


def dump(entries: Sequence[Entry]) -> str:
    """index.json."""
    return json.dumps({"schema_version": SCHEMA, "wheels": [asdict(entry) for entry in entries]}, indent=1) + "\n"


def _entry(wheel: Json) -> Entry:
    """A wheel of index.json; fields that nobody knows are passed over. Raises ValueError, KeyError."""

    def text(key: str) -> str:
        if not isinstance(wheel[key], str):
            raise ValueError(f"{key}: {wheel[key]!r}")
        return str(wheel[key])

    def maybe(key: str) -> str | None:
        return None if wheel.get(key) is None else text(key)

    entry = Entry(
        filename=text("filename"),
        url=text("url"),
        sha256=text("sha256"),
        size=int(wheel["size"]),
        distribution=text("distribution"),
        version=text("version"),
        tag=text("tag"),
        cuda_version=text("cuda_version"),
        cuda_label=text("cuda_label"),
        cpu=text("cpu"),
        sm_family=text("sm_family"),
        sm_targets=tuple(map(str, wheel["sm_targets"])),
        devices=tuple(map(str, wheel["devices"])),
        minimum_driver=text("minimum_driver"),
        requires_python=maybe("requires_python"),
        metadata_sha256=maybe("metadata_sha256"),
        upload_time=maybe("upload_time"),
        yanked=maybe("yanked"),
    )
    Version(entry.version)
    for value, form in (
        (entry.sha256, _SHA256),
        (entry.cuda_label, _PART),
        (entry.sm_family, _PART),
        (entry.distribution, _PROJECT),
    ):
        if not form.fullmatch(value):
            raise ValueError(f"{value!r} in {entry.filename}")
    return entry


def load(text: str, file: str) -> list[Entry]:
    """Entries of an index.json; `file` is its name, for messages. Raises SmwheelError."""
    try:
        content = json.loads(text)
        if content["schema_version"] != SCHEMA:
            raise ValueError(f"schema_version {content['schema_version']!r}")
        return [_entry(wheel) for wheel in content["wheels"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SmwheelError(
            f"{file} is not an index that smwheel wrote.",
            f"JSON of schema_version {SCHEMA} with wheels",
            repr(error),
            "restore the file, or write the index anew, from all wheels, elsewhere.",
        ) from error


@cache
def _template() -> Template:
    """The form of every HTML page. jinja2 is imported when the first is written."""
    from jinja2 import Environment

    text = Path(__file__).with_name("simple_page.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, keep_trailing_newline=True).from_string(text)


def _html(title: str, links: list[tuple[dict[str, str], str]]) -> str:
    return _template().render(version=API_VERSION, title=title, links=links)


def _json(content: Json) -> str:
    return json.dumps({"meta": {"api-version": API_VERSION}, **content}, indent=1) + "\n"


def _address(entry: Entry, directory: str) -> str:
    """The URL of a wheel on a page in `directory`."""
    return posixpath.relpath(entry.url, directory) if entry.hosted else entry.url


def _link(entry: Entry, directory: str) -> tuple[dict[str, str], str]:
    """A file's link (PEP 503, 592, 714)."""
    attributes = {"href": f"{_address(entry, directory)}#sha256={entry.sha256}"}
    if entry.requires_python is not None:
        attributes["data-requires-python"] = entry.requires_python
    if entry.metadata_sha256:
        attributes["data-core-metadata"] = f"sha256={entry.metadata_sha256}"
    if entry.yanked is not None:
        attributes["data-yanked"] = entry.yanked
    return attributes, entry.filename


def _file(entry: Entry, directory: str) -> Json:
    """A file (PEP 691, 700, 714)."""
    file: Json = {
        "filename": entry.filename,
        "url": _address(entry, directory),
        "hashes": {"sha256": entry.sha256},
        "size": entry.size,
        "core-metadata": {"sha256": entry.metadata_sha256} if entry.metadata_sha256 else False,
        "yanked": False if entry.yanked is None else entry.yanked or True,
    }
    if entry.requires_python is not None:
        file["requires-python"] = entry.requires_python
    if entry.upload_time:
        file["upload-time"] = entry.upload_time
    return file


def _pages(entries: Sequence[Entry]) -> dict[str, str]:
    """The pages of one index, whose entries are in order."""
    by_directory: dict[str, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        by_directory[entry.directory][entry.distribution].append(entry)
    found = {"index.json": dump(entries)}
    links = []
    for directory, projects in sorted(by_directory.items()):
        names = sorted(projects)
        found[f"{directory}/index.html"] = _html("Projects", [({"href": f"{name}/"}, name) for name in names])
        found[f"{directory}/simple.json"] = _json({"projects": [{"name": name} for name in names]})
        for name, files in projects.items():
            page = f"{directory}/{name}"
            found[f"{page}/index.html"] = _html(f"Links for {name}", [_link(entry, page) for entry in files])
            versions = list(dict.fromkeys(entry.version for entry in files))
            listed = [_file(entry, page) for entry in files]
            found[f"{page}/simple.json"] = _json({"name": name, "versions": versions, "files": listed})
        devices = {device for files in projects.values() for entry in files for device in entry.devices}
        ordered = ", ".join(sorted(devices, key=lambda device: [int(part) for part in device.split(".")]))
        links.append(({"href": f"{directory}/"}, f"{directory}: compute capability {ordered}"))
    found["index.html"] = _html("Package indexes, one for each CUDA version and SM family", links)
    return found


def pages(entries: Iterable[Entry]) -> dict[str, str]:
    """The text of every page, by its path from the root. Same entries, same text, in whatever order they come."""
    entries = in_order(entries)
    nightly = _pages([entry for entry in entries if entry.subtree])
    stable = _pages([entry for entry in entries if not entry.subtree])
    return {**stable, **({NIGHTLY + path: text for path, text in nightly.items()} if len(nightly) > 2 else {})}


# ---- The directory ----------------------------------------------------------------------------------------------


def read_wheels(paths: Sequence[Path]) -> list[tuple[WheelFile, str]]:
    """Reads and verifies wheels, as many at once as there are cores; each with its sha256. Raises with all errors."""

    def read(path: Path) -> tuple[WheelFile, str] | SmwheelError:
        try:
            return read_wheel(path), guarded(lambda: sha256(path), path.name)
        except SmwheelError as error:
            return error

    # zlib and hashlib work without the interpreter's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(read, paths))
    if errors := [error for error in found if isinstance(error, SmwheelError)]:
        raise RefusedError.of(errors)
    return [pair for pair in found if not isinstance(pair, SmwheelError)]


def _write(path: Path, data: bytes) -> None:
    """Makes `data` the content of `path`, as a new file: the old one may be a file of another directory too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _copy(wheel: Path, to: Path, digest: str) -> None:
    """Copies a wheel, and sees that it is the one that was verified."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)
    found = hashlib.sha256()
    with open(wheel, "rb") as source, open(to, "xb") as target:
        while piece := source.read(_PIECE):
            target.write(piece)
            found.update(piece)
    if found.hexdigest() != digest:
        raise RefusedError(
            f"{wheel.name}: it changed while it was copied.",
            f"sha256 {digest}",
            f"sha256 {found.hexdigest()}",
            "run this again when nothing writes to the wheel.",
        )


def _check_files(root: Path, entries: Iterable[Entry]) -> None:
    """Checks that the index has the files that it hosts, by their sizes."""
    for place, size in ((entry.hosted, entry.size) for entry in entries):
        file = root / (place or "")
        found = file.stat().st_size if file.is_file() else None
        if place and found != size:
            raise RefusedError(
                f"{file.name}: the index lists this wheel and has not got it.",
                f"{size} bytes in {file.parent}",
                "no such file" if found is None else f"{found} bytes",
                "put the file back, or name the directory that it came from once more.",
            )


@dataclass(frozen=True)
class _Plan:
    """What an index is to be: its entries, those that are new, the wheels to copy, the content of all small files."""

    entries: tuple[Entry, ...]
    added: tuple[str, ...]
    copies: tuple[Entry, ...]
    files: Mapping[str, bytes]

    def stale(self, root: Path) -> list[str]:
        """The paths below `root` whose content is not what it is to be."""
        return [
            path
            for path, data in self.files.items()
            if not (root / path).is_file() or (root / path).read_bytes() != data
        ]


def _plan(root: Path, new: Sequence[Entry], read: Mapping[str, WheelFile], yanked: Mapping[str, str | None]) -> _Plan:
    """What the index in `root` is to be with `new` entries, whose wheels are `read`."""
    old = []
    for file in (root / "index.json", root / NIGHTLY / "index.json"):
        old += load(file.read_text(encoding="utf-8"), str(file)) if file.exists() else []
    entries = merge(old, new)
    for what, reason in yanked.items():
        entries = yank(entries, what, reason)
    files = {path: text.encode() for path, text in pages(entries).items()}
    copies = []
    for entry in new:
        if entry.hosted:
            files[f"{entry.hosted}.metadata"] = read[entry.filename].metadata
            if not (file := root / entry.hosted).is_file() or file.stat().st_size != entry.size:
                copies.append(entry)
    coming = {entry.filename for entry in copies}
    _check_files(root, (entry for entry in entries if entry.filename not in coming))
    known = {entry.filename for entry in old}
    return _Plan(tuple(entries), tuple(e.filename for e in entries if e.filename not in known), tuple(copies), files)


def update(
    root: Path,
    wheels: Sequence[Path],
    *,
    base_url: str | None = None,
    metadata_directory: Path | None = None,
    upload_time: str | None = None,
    yanked: Mapping[str, str | None] | None = None,
) -> Outcome:
    """Adds wheels to the index in `root`, which is made if it is not there. It changes as a whole or not at all.

    base_url: where the wheels are hosted; without it they are copied into the index
    metadata_directory: for wheels that are hosted elsewhere, gets their `.metadata`, to be uploaded beside each wheel
        before the index is published; without it they are not advertised, since pip fails if one is missing
    upload_time: of wheels that are new, as `timestamp` gives it
    yanked: file names and versions, with the reason, or with None for what is not to be yanked any more (`yank`)

    Raises RefusedError, SmwheelError, OSError. With the same wheels again, it writes nothing.
    """
    pairs = read_wheels(wheels)
    read = {wheel.path.name: wheel for wheel, _ in pairs}
    settle(root)
    advertised = base_url is None or metadata_directory is not None
    new = merge([], (entry_of(wheel, digest, base_url, advertised, upload_time) for wheel, digest in pairs))
    plan = _plan(root, new, read, yanked or {})
    if base_url and metadata_directory:
        for name, wheel in read.items():
            _write(metadata_directory / f"{name}.metadata", wheel.metadata)
    if not plan.copies and not plan.stale(root):
        return Outcome((), len(plan.entries), False)
    with changed(root) as directory:
        plan = _plan(directory, new, read, yanked or {})  # another run may have been faster
        for entry in plan.copies:
            _copy(read[entry.filename].path, directory / str(entry.hosted), entry.sha256)
        for path in plan.stale(directory):
            _write(directory / path, plan.files[path])
    return Outcome(plan.added, len(plan.entries), True)
