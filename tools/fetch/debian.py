"""Fetches pinned Debian packages with the machine's own apt, checks and unpacks them.

    debian.py fetch --lock LOCK.json --group NAME --dest DIR [--group NAME --dest DIR ...]
    debian.py lock  --lock LOCK.json

A lock names a suite and groups of packages:

    {"suite": "bullseye", "component": "main",
     "groups": {"x86_64": [{"name": "gcc-10", "version": "10.2.1-6", "sha256": "<of the .deb>"}]}}

`fetch` unpacks the packages of each group into its directory, which is complete or absent
afterwards. `lock` writes what the suite's index has now; names and groups are written by hand (a
new entry needs its name only).

Packages come from the mirror that this machine's apt is configured with, through its proxy
settings. Everything else of apt (index, cache, state) is private to the run and nothing is
installed, so neither root nor a machine of that suite is needed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

# Of the packages, whatever the machine is: the locked tools run on x86_64. Debian's cross
# toolchains carry the files of their target CPU under this architecture or under "all".
_ARCHITECTURE = "amd64"

_APT_DIRECTORY = Path("/etc/apt")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# The system's settings that decide how a mirror is reached. The rest of them (pinning, hooks,
# directories) would make what is fetched depend on the machine.
_KEPT_SETTINGS = re.compile(r"Acquire::(https?|tor|Retries|ForceIPv[46]|Check-Date)\b", re.I)


class DebianError(Exception):
    """Packages could not be had.

    The message names them, what was expected, what was found and what to do.
    """


@dataclasses.dataclass(frozen=True)
class Package:
    """A pinned package; `sha256` is that of the .deb. An entry never locked has a name only."""

    name: str
    version: str = ""
    sha256: str = ""


@dataclasses.dataclass(frozen=True)
class Lock:
    """The content of a lock file: the packages of each group, sorted by name."""

    suite: str
    groups: dict[str, tuple[Package, ...]]
    component: str = "main"

    def packages(self, groups: Iterable[str]) -> list[Package]:
        """The packages of `groups`, each once, sorted by name."""
        return sorted({p for group in groups for p in self.groups[group]}, key=lambda p: p.name)


def refresh_command(lock: Path) -> str:
    """What a person types to refresh `lock`."""
    return f"python3 tools/fetch/debian.py lock --lock {lock}"


def read_lock(path: Path) -> Lock:
    """Reads a lock file. Raises DebianError if it is missing or does not have a lock's shape."""
    try:
        content = json.loads(path.read_text())
        groups = {
            group: tuple(sorted((Package(**entry) for entry in entries), key=lambda p: p.name))
            for group, entries in content["groups"].items()
        }
        return Lock(str(content["suite"]), groups, str(content.get("component", "main")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DebianError(
            f"{path} is not a lock of Debian packages.\n"
            '  expected: {"suite": ..., "component": ..., "groups": {NAME: [{"name": ..., "version": ..., "sha256": '
            "...}, ...]}}\n"
            f"  found:    {error!r}\n"
            "  To do: restore the file from version control."
        ) from error


def format_lock(lock: Lock) -> str:
    """The text of a lock file: groups and packages sorted, one package a line."""
    groups = []
    for name in sorted(lock.groups):
        lines = [json.dumps(dataclasses.asdict(p)) for p in lock.packages([name])]
        packages = ",\n".join(f"      {line}" for line in lines)
        groups.append(f"    {json.dumps(name)}: [\n{packages}\n    ]")
    text = ",\n".join(groups)
    head = "".join(
        f'  "{key}": {json.dumps(value)},\n' for key, value in (("suite", lock.suite), ("component", lock.component))
    )
    return f'{{\n{head}  "groups": {{\n{text}\n  }}\n}}\n'


def require_tools(*names: str) -> None:
    """Raises DebianError unless every program of `names` is on PATH."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise DebianError(
            f"this machine has no {' and no '.join(missing)}.\n"
            "  expected: apt and dpkg, which fetch and unpack the pinned Debian packages\n"
            "  To do: build on a Debian machine or in a Debian container. (./bazelw makes one and\n"
            "  runs in it, where it finds no Bazel.)"
        )


def _run(
    command: Sequence[str | Path], cwd: Path | None = None, config: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program and captures what it says, with the apt configuration `config` if given."""
    # What apt says is read, so it has to be in one language.
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
    if config:
        environment["APT_CONFIG"] = str(config)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    """A failed program's own words, indented."""
    said = result.stderr.splitlines()
    lines = [line for line in said if line.startswith(("E:", "W:", "Err:"))] or said
    if not lines:
        lines = [f"(exit status {result.returncode}, without a word)"]
    return "\n".join(f"    {line}" for line in lines[:8])


def _mirrors_in(sources: str) -> Iterator[str]:
    """The URIs of the enabled binary entries of an apt sources file, in either of its formats."""
    for line in sources.splitlines():
        if match := re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)", line):
            yield match[1]
    for stanza in re.split(r"\n\s*\n", sources):
        fields = dict(re.findall(r"^([A-Za-z-]+):(.*(?:\n[ \t]+\S.*)*)", stanza, re.M))
        enabled = fields.get("Enabled", "").strip().lower() not in ("no", "false")
        if enabled and "deb" in fields.get("Types", "").split():
            yield from fields.get("URIs", "").split()


def find_mirror(directory: Path = _APT_DIRECTORY) -> str:
    """The URI of the Debian mirror that this machine's apt is configured with.

    apt says which of its sources are Debian's once it has an index. Before that, a source whose
    path ends in /debian, in the sources files of `directory`, is taken for one. Raises DebianError
    if there is none.
    """
    wanted = "$(REPO_URI)\t$(ORIGIN)\t$(COMPONENT)\t$(CREATED_BY)"
    for line in _run(["apt-get", "indextargets", "--format", wanted]).stdout.splitlines():
        uri, *kind = line.split("\t")
        if kind == ["Debian", "main", "Packages"] and "security" not in uri:
            return uri
    candidates = [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]
    files = [file for file in candidates if file.suffix in (".list", ".sources") and file.is_file()]
    for file in files:
        for uri in _mirrors_in(file.read_text()):
            if uri.rstrip("/").endswith("/debian"):
                return uri
    raise DebianError(
        "apt on this machine knows no Debian mirror.\n"
        f"  expected: a source of Debian's main archive in {directory}/sources.list(.d)\n"
        f"  found:    none in {', '.join(map(str, files)) or 'any sources file: there is none'}\n"
        "  To do: add your Debian mirror there (its path ends in /debian), or build on a Debian\n"
        "  machine."
    )


class Apt:
    """apt over one component of a suite, with a configuration, an index and a cache of its own."""

    def __init__(self, suite: str, component: str, directory: Path) -> None:
        """Writes the configuration into `directory`, which has to stay while this is used.

        Raises DebianError if the mirror is not known.
        """
        self._suite = suite
        self._config = directory / "apt.conf"
        empty = directory / "empty"
        sources = directory / "sources.list"
        for needed in (empty, directory / "state/lists/partial", directory / "cache"):
            needed.mkdir(parents=True)
        signed_by = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
        sources.write_text(f"deb {signed_by}{find_mirror()} {suite} {component}\n")
        dump = _run(["apt-config", "dump"]).stdout
        settings = [line for line in dump.splitlines() if _KEPT_SETTINGS.match(line)]
        own: dict[str, str | Path] = {
            # The system's settings would be read after these, and win.
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": empty,
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": empty,
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": empty,
            "Dir::State": directory / "state",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": directory / "cache",
            "APT::Architecture": _ARCHITECTURE,
            "APT::Architectures": _ARCHITECTURE,
            # Run by root, apt would otherwise download as a user that can't write here.
            "APT::Sandbox::User": "root",
            # A part of the index that can't be fetched is an error, not a warning.
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
            # The index of a suite that gets no more updates has passed its date.
            "Acquire::Check-Valid-Until": "false",
            "Debug::NoLocking": "true",
        }
        settings += [f'{name} "{value}";' for name, value in own.items()]
        self._config.write_text("\n".join(settings) + "\n")

    def update(self) -> None:
        """Fetches the suite's index. Raises DebianError with apt's reason if it can't."""
        result = _run(["apt-get", "-q", "update"], config=self._config)
        if result.returncode:
            raise self._unreachable(f"the package index of Debian {self._suite}", result)

    def newest(self, names: Sequence[str]) -> dict[str, Package]:
        """The newest version of each package, by name; what the index lacks is absent."""
        command = ["apt-cache", "--no-all-versions", "show", *names]
        packages = {}
        for stanza in _run(command, config=self._config).stdout.split("\n\n"):
            fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)", stanza, re.M))
            if len(fields) == 3:
                name = fields["Package"]
                packages[name] = Package(name, fields["Version"], fields["SHA256"])
        return packages

    def download(self, packages: Sequence[Package], into: Path, lock: Path) -> dict[str, Path]:
        """Downloads the pinned versions; returns the checked .deb of each package by its name.

        Raises DebianError: never locked, not on the mirror any more, mirror unreachable, another
        sha256 than the pinned one.
        """
        for package in packages:
            if not package.version or not package.sha256:
                raise DebianError(
                    f"{package.name} is not pinned in {lock}.\n"
                    "  expected: its version and sha256\n"
                    f"  To do: {refresh_command(lock)}"
                )
        pins = [f"{package.name}={package.version}" for package in packages]
        result = _run(["apt-get", "-q", "download", *pins], cwd=into, config=self._config)
        if result.returncode:
            raise self._explanation(packages, result, lock)
        files = {file.name.split("_")[0]: file for file in into.glob("*.deb")}
        for package in packages:
            if package.name not in files:
                raise self._unreachable(f"{package.name} {package.version}", result)
            found = hashlib.sha256(files[package.name].read_bytes()).hexdigest()
            if found != package.sha256:
                raise DebianError(
                    f"{package.name} {package.version}: the mirror served another file than the "
                    "pinned one.\n"
                    f"  expected sha256: {package.sha256} (pinned in {lock})\n"
                    f"  found sha256:    {found}\n"
                    "  To do: do not use it. If you trust the mirror, refresh the pin:\n"
                    f"    {refresh_command(lock)}"
                )
        return files

    def _explanation(
        self, packages: Sequence[Package], result: subprocess.CompletedProcess[str], lock: Path
    ) -> DebianError:
        """What a person should read after a failed download."""
        newest = self.newest([package.name for package in packages])
        for package in packages:
            found = newest.get(package.name)
            if found is None or found.version != package.version:
                return DebianError(
                    f"{package.name} {package.version} is not on the Debian mirror any more.\n"
                    f"  expected: {package.version} in {self._suite} (pinned in {lock})\n"
                    f"  found:    {found.version if found else 'no package of that name'}\n"
                    f"  To do: refresh the pins, and build again:\n    {refresh_command(lock)}"
                )
        return self._unreachable(", ".join(package.name for package in packages), result)

    def _unreachable(self, what: str, result: subprocess.CompletedProcess[str]) -> DebianError:
        return DebianError(
            f"{what} could not be fetched from the Debian mirror.\n"
            f"  found (apt's own words):\n{_reason(result)}\n"
            f"  To do: check the network, and that the mirror has {self._suite}. Which mirror is "
            f"said by\n  {_APT_DIRECTORY}/sources.list(.d); a proxy by Acquire::http::Proxy in "
            f"{_APT_DIRECTORY}/apt.conf.d\n  or by the environment variable http_proxy."
        )


@contextmanager
def _scratch(beside: Path) -> Iterator[Path]:
    """A directory on the file system of `beside`, gone afterwards even if the run is stopped."""

    def stop(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    beside.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".debian-", dir=beside.parent) as directory:
            yield Path(directory).resolve()
    finally:
        signal.signal(signal.SIGTERM, before)


def fetch(lock_path: Path, wanted: dict[str, Path]) -> None:
    """Fetches groups and unpacks each into its directory, which is complete or absent afterwards.

    Raises DebianError: see Apt; also for a group that the lock does not have, and a directory that
    has files already.
    """
    require_tools("apt-get", "apt-cache", "apt-config", "dpkg-deb")
    lock = read_lock(lock_path)
    for group, dest in wanted.items():
        if group not in lock.groups:
            has = ", ".join(sorted(lock.groups))
            raise DebianError(f"{lock_path} has no group {group!r}.\n  found:    {has}")
        if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
            raise DebianError(
                f"{dest} has files already.\n"
                "  expected: an empty or absent directory\n"
                "  To do: remove it, or give another one."
            )
    with _scratch(next(iter(wanted.values()))) as scratch:
        apt = Apt(lock.suite, lock.component, scratch)
        apt.update()
        (scratch / "debs").mkdir()
        files = apt.download(lock.packages(wanted), scratch / "debs", lock_path)
        for group, dest in wanted.items():
            tree = scratch / "trees" / group
            tree.mkdir(parents=True)
            for package in lock.packages([group]):
                result = _run(["dpkg-deb", "-x", files[package.name], tree])
                if result.returncode:
                    raise DebianError(
                        f"{package.name} {package.version} could not be unpacked.\n"
                        f"  found (dpkg-deb's own words):\n{_reason(result)}\n"
                        f"  To do: make room on the file system of {dest}."
                    )
        for group, dest in wanted.items():
            dest.parent.mkdir(parents=True, exist_ok=True)
            (scratch / "trees" / group).rename(dest)


def refresh(lock_path: Path) -> list[str]:
    """Writes the suite's newest versions into a lock. Returns what changed, a line a package.

    Raises DebianError: see Apt; also for a name that the suite does not have.
    """
    require_tools("apt-get", "apt-cache", "apt-config")
    lock = read_lock(lock_path)
    before = lock.packages(lock.groups)
    with _scratch(lock_path) as scratch:
        apt = Apt(lock.suite, lock.component, scratch)
        apt.update()
        newest = apt.newest([package.name for package in before])
        for package in before:
            if package.name not in newest:
                raise DebianError(
                    f"{package.name} (in {lock_path}) is not a package of Debian {lock.suite}.\n"
                    "  To do: correct its name in the lock, or take it out."
                )
        groups = {group: tuple(newest[package.name] for package in packages) for group, packages in lock.groups.items()}
        part = scratch / "lock"
        part.write_text(format_lock(dataclasses.replace(lock, groups=groups)))
        part.replace(lock_path)
    return [
        f"{package.name}: {package.version or 'new'} -> {newest[package.name].version}"
        for package in before
        if package != newest[package.name]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("fetch", "lock"):
        sub = commands.add_parser(command)
        sub.add_argument("--lock", type=Path, required=True)
        if command == "fetch":
            sub.add_argument("--group", action="append", required=True, help="may be repeated")
            sub.add_argument("--dest", action="append", required=True, type=Path, help="once for each --group")
    args = parser.parse_args(arguments)
    try:
        if args.command == "fetch":
            if len(set(args.group)) != len(args.dest):
                parser.error("give each --group once, and a --dest for each")
            fetch(args.lock, dict(zip(args.group, args.dest, strict=True)))
        else:
            print("\n".join(refresh(args.lock)) or f"{args.lock} is up to date")
    except DebianError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
