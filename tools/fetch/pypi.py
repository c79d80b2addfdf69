"""Fetches pinned wheels from the person's own package index with pip, and unpacks what is wanted of them.

    pypi.py fetch --lock LOCK.txt --package NAME... --dest DIR [--platform TAG...] [--strip PREFIX] [--keep PREFIX...]
    pypi.py lock  --lock LOCK.txt [--platform TAG...] NAME==VERSION...

A lock is a pip requirements file with hashes, one requirement a line:

    nvidia-nvvm==13.0.88 --hash=sha256:<64 hex digits> [--hash=...]

Several hashes of one requirement are the wheels of several platforms or Python versions. pip itself is asked for the
packages by name, so a configured index, mirror or find-links directory is honoured, and pip checks the hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Any Python that pip can download for: the packages here have a `py3` or an `abi3` wheel, or are read, not run.
_ONLY_WHEELS = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]


class FetchError(Exception):
    """A package could not be had. The message names it, what was expected, what was found and what to do."""


def normalise(name: str) -> str:
    """The normalised form of a project name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(lock: Path) -> dict[str, str]:
    """The requirement lines of a lock file by normalised project name.

    Raises FetchError for a line that is not a requirement with at least one sha256.
    """
    lines: dict[str, str] = {}
    for number, line in enumerate(lock.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==\S+( --hash=sha256:[0-9a-f]{64})+", line)
        if not match:
            raise FetchError(
                f"{lock.name}, line {number}: expected 'NAME==VERSION --hash=sha256:<64 hex digits>', found {line!r}. "
                f"Write it anew with: pypi.py lock --lock {lock.name}"
            )
        lines[normalise(match[1])] = line
    return lines


def _pip(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs this Python's pip. Raises FetchError when there is none."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        raise FetchError(f"{sys.executable} has no pip, which fetches the pinned packages. Install python3-pip.")
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _target(platforms: list[str], python: str = "") -> list[str]:
    """pip's options for wheels of `platforms` and of Python `python`: this machine's where empty."""
    options = [option for tag in platforms for option in ("--platform", tag)]
    return options + (["--python-version", python] if python else [])


def _explain(output: str, requirement: str, lock: Path) -> str:
    """What a person should read when pip failed with `output`."""
    said = [line for line in output.splitlines() if not line.startswith(("Looking in", "WARNING: Location"))]
    name, version = requirement.split()[0].split("==")
    if "DO NOT MATCH" in output:
        expected = re.search(r"Expected sha256 (?:or )?(\S+)", output)
        got = re.search(r"Got\s+(\S+)", output)
        return (
            f"{name} {version}: the file that the index served is not the pinned one.\n"
            f"  expected sha256: {expected[1] if expected else 'see the lock'} (pinned in {lock.name})\n"
            f"  found sha256:    {got[1] if got else 'unknown'}\n"
            f"  To do: do not use this file. If the new one is meant and you trust your index, refresh the pin:\n"
            f"    python3 tools/fetch/pypi.py lock --lock {lock.name}"
        )
    sources = "\n".join(f"    {line}" for line in output.splitlines() if line.startswith("Looking in"))
    tail = "\n".join(f"    {line}" for line in said[-6:])
    return (
        f"{name} {version} could not be fetched (pinned in {lock.name}).\n"
        f"  expected: a wheel of it from pip's configured index\n"
        f"  sources tried: pip's index{' and:' if sources else ', as configured for this user'}\n{sources}\n"
        f"  found (pip's own words):\n{tail}\n"
        f"  To do: check the network; or point pip at an index or mirror that has it: PIP_INDEX_URL, PIP_FIND_LINKS\n"
        f"  (a directory of wheels) or pip.conf."
    )


def download(lock: Path, packages: list[str], target_options: list[str], into: Path) -> list[Path]:
    """Downloads the wheels of `packages` as pinned in `lock` and returns their paths, in the order of `packages`.

    Raises FetchError: package not in the lock, not on the index, index unreachable, hash mismatch.
    """
    lines = read_lock(lock)
    wheels = []
    for package in packages:
        line = lines.get(normalise(package))
        if line is None:
            raise FetchError(
                f"{package} is not pinned in {lock.name}, which has: {', '.join(sorted(lines))}. "
                f"Add it with: python3 tools/fetch/pypi.py lock --lock {lock.name} {package}==VERSION"
            )
        target = into / normalise(package)
        target.mkdir()
        requirement = into / f"{normalise(package)}.txt"
        requirement.write_text(line + "\n")
        result = _pip(
            ["download", "--require-hashes", *_ONLY_WHEELS, *target_options, "-d", str(target), "-r", str(requirement)]
        )
        found = list(target.glob("*.whl"))
        if result.returncode or len(found) != 1:
            raise FetchError(_explain(result.stdout, line, lock))
        wheels.append(found[0])
    return wheels


def unpack(wheel: Path, into: Path, strip: str, keep: list[str]) -> int:
    """Unpacks the members of `wheel` below `strip` that start with one of `keep` (all, if empty); returns how many."""
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.is_dir() or not info.filename.startswith(strip):
                continue
            name = info.filename[len(strip) :]
            if keep and not name.startswith(tuple(keep)):
                continue
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            # Wheels made without their executables' run bits (NVIDIA's) are mended by content: ELF and scripts in bin/.
            mode = info.external_attr >> 16
            path.chmod(0o755 if mode & 0o111 or path.parent.name == "bin" else 0o644)
            count += 1
    return count


def fetch(lock: Path, packages: list[str], target_options: list[str], dest: Path, strip: str, keep: list[str]) -> None:
    """Fetches `packages` and unpacks them into `dest`, which is complete or absent afterwards."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dest.parent) as scratch:
        part = Path(scratch) / "part"
        part.mkdir()
        wheels = download(lock, packages, target_options, Path(scratch))
        for package, wheel in zip(packages, wheels, strict=True):
            if not unpack(wheel, part, strip, keep):
                raise FetchError(
                    f"{package}: {wheel.name} has no file below {strip or '/'} that starts with one of {keep}. "
                    f"The pin in {lock.name} and the rule that asks for these files do not fit each other."
                )
        part.rename(dest)


def update_lock(lock: Path, requirements: list[str], platforms: list[str], pythons: list[str]) -> None:
    """Writes the sha256 of the wheels of `requirements` (those of the lock itself, if none are given) into `lock`.

    Hashes of other platforms or Python versions than this run's are dropped from the requirements it writes, so give
    every platform that is wanted. Raises FetchError if a wheel can't be had.
    """
    lines = read_lock(lock) if lock.exists() else {}
    for requirement in requirements or [line.split()[0] for line in lines.values()]:
        hashes = set()
        for platform, python in itertools.product(platforms or [""], pythons or [""]):
            with tempfile.TemporaryDirectory() as scratch:
                target = _target(platform.split(",") if platform else [], python)
                result = _pip(["download", *_ONLY_WHEELS, *target, "-d", scratch, requirement])
                found = list(Path(scratch).glob("*.whl"))
                if result.returncode or len(found) != 1:
                    raise FetchError(_explain(result.stdout, requirement, lock))
                hashes.add(hashlib.sha256(found[0].read_bytes()).hexdigest())
        name = normalise(requirement.split("==")[0])
        lines[name] = requirement + "".join(f" --hash=sha256:{digest}" for digest in sorted(hashes))
    comments = [line for line in lock.read_text().splitlines() if line.startswith("#")] if lock.exists() else []
    part = lock.with_suffix(".part")
    part.write_text("\n".join([*comments, *(lines[name] for name in sorted(lines))]) + "\n")
    os.replace(part, lock)


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("fetch", "lock"):
        sub = commands.add_parser(command)
        sub.add_argument("--lock", type=Path, required=True)
        sub.add_argument("--platform", action="append", default=[], help="pip platform tag (lock: tags joined by ',')")
        sub.add_argument("--python-version", action="append", default=[], help="of the wheels, where they differ by it")
        if command == "fetch":
            sub.add_argument("--package", action="append", required=True)
            sub.add_argument("--dest", type=Path, required=True)
            sub.add_argument("--strip", default="", help="prefix in the wheel that is taken off")
            sub.add_argument("--keep", action="append", default=[], help="prefixes, after --strip, to unpack")
        else:
            sub.add_argument("requirement", nargs="*")
    args = parser.parse_args()
    try:
        if args.command == "fetch":
            target = _target(args.platform, *args.python_version)
            fetch(args.lock, args.package, target, args.dest, args.strip, args.keep)
        else:
            update_lock(args.lock, args.requirement, args.platform, args.python_version)
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
