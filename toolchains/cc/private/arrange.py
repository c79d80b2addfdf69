"""Arranges unpacked Debian packages into the trees of the repository @smwheel_gcc.

    arrange.py DIR --gcc-version 10 --tool g++ [--tool ...]
        --tree x86_64=usr/lib/gcc/x86_64-linux-gnu/10 [--tree ...]

DIR holds a directory per CPU and `shared/`, as unpacked. Afterwards it holds the directories per
CPU, `lib/`, `libstdcxx/` and the file `pin`, without what no compile or link reads. The result
depends on the packages only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# Below a tree.
_DROPPED = ["etc", "sbin", "usr/sbin", "usr/share", "usr/lib/*/audit", "usr/lib/*/gconv"]

# Below the directory of the compiler proper. Link-time optimisation, sanitizers and plugins are not
# offered. (liblto_plugin.so stays: GCC hands it to every link.)
_DROPPED_OF_GCC = ["install-tools", "libcc1*", "lib*san*", "lto1", "lto-wrapper", "plugin"]

# Debian ships its cross compilers with symbols: nine tenths of 420 MB.
_STRIPPED = ["cc1", "cc1plus", "collect2"]

# What a link needs of the compiler proper's directory, beside the programs above.
_NEEDED_OF_GCC = ["crtbegin.o", "crtbeginS.o", "libgcc.a", "libstdc++.a", "libstdc++.so"]


class ArrangeError(Exception):
    """The packages do not hold what the toolchain needs. The message says what, and what to do."""


def walk(tree: Path) -> Iterator[Path]:
    """Every path below `tree`, sorted by name, a directory before what is in it."""
    for path in sorted(tree.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from walk(path)


def drop(paths: Iterable[Path]) -> None:
    """Removes files, links and whole directories."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def mend_links(tree: Path) -> None:
    """Makes absolute links relative, `tree` being their root; removes links to what is not there.

    A link out of the tree would name a file of the machine, and Bazel refuses a source directory
    that has a dangling link.
    """
    for path in [path for path in walk(tree) if path.is_symlink()]:
        target = path.readlink()
        if target.is_absolute():
            path.unlink()
            path.symlink_to(os.path.relpath(tree / target.relative_to("/"), path.parent))
    while dangling := [path for path in walk(tree) if path.is_symlink() and not path.exists()]:
        drop(dangling)


def digest(tree: Path) -> str:
    """A sha256 of the names, modes, contents and link targets below `tree`."""
    total = hashlib.sha256()
    for path in walk(tree):
        name = path.relative_to(tree)
        if path.is_symlink():
            total.update(f"link {name} {path.readlink()}\n".encode())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"file {name} {path.stat().st_mode & 0o777:o} {content}\n".encode())
    return total.hexdigest()


def arrange_tree(root: Path, cpu: str, gcc: Path, version: str, tools: Sequence[str]) -> None:
    """Arranges the tree of one CPU; `gcc` is its directory of the compiler proper.

    Raises ArrangeError if a tool, the compiler proper or a library is missing.
    """
    tree, triple = root / cpu, f"{cpu}-linux-gnu"
    drop(path for pattern in _DROPPED for path in tree.glob(pattern))
    drop(path for pattern in _DROPPED_OF_GCC for path in gcc.glob(pattern))
    if cpu != "x86_64":
        # Binutils' own libraries, which come in the package of the cross binutils.
        for library in (tree / "usr/lib/x86_64-linux-gnu").glob("*.so*"):
            library.rename(root / "lib" / library.name)

    programs = tree / "usr/bin"
    kept = {programs / f"{triple}-{tool}" for tool in tools}
    for path in kept:
        for suffix in (f"-{version}", ".bfd"):
            if (source := path.with_name(path.name + suffix)).exists():
                source.replace(path)
    drop(set(programs.iterdir()) - kept)

    # Where GCC looks for the programs it calls, before PATH.
    own_bin = tree / "usr" / triple / "bin"
    drop(own_bin.glob("*"))
    own_bin.mkdir(parents=True, exist_ok=True)
    for tool in ("as", "ld", "nm", "strip"):
        (own_bin / tool).symlink_to(f"../../bin/{triple}-{tool}")

    mend_links(tree)
    for path in reversed(list(walk(tree))):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
    for path in sorted(kept | {gcc / name for name in _STRIPPED + _NEEDED_OF_GCC}):
        if not path.exists():
            raise ArrangeError(
                f"the packages of group {cpu} hold no {path.relative_to(tree)}.\n"
                f"  expected: GCC {version} for {triple} with its C and C++ libraries\n"
                "  To do: add the package that holds it to toolchains/cc/debian.lock.json and run\n"
                "    python3 tools/fetch/debian.py lock --lock toolchains/cc/debian.lock.json"
            )
    static = root / "libstdcxx" / cpu / "libstdc++.a"
    static.parent.mkdir(parents=True)
    static.hardlink_to(gcc / "libstdc++.a")


def strip(root: Path, files: Sequence[Path]) -> None:
    """Takes the symbols out of programs of this machine, with the tree's own strip."""
    command = [root / "x86_64/usr/bin/x86_64-linux-gnu-strip", *files]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(root / "lib")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise ArrangeError(
            "the unpacked strip does not run here.\n"
            "  expected: an x86_64 Linux machine with glibc 2.31 or newer\n"
            f"  found:    {result.stderr.strip()}\n"
            "  To do: build on such a machine."
        )


def arrange(root: Path, trees: dict[str, Path], version: str, tools: Sequence[str]) -> None:
    """Arranges all of `root`. `trees` gives the directory of the compiler proper by CPU.

    Raises ArrangeError: see arrange_tree and strip.
    """
    (root / "lib").mkdir()
    for library in sorted((root / "shared").rglob("*.so*")):
        library.rename(root / "lib" / library.name)
    drop([root / "shared"])
    for cpu, gcc in trees.items():
        arrange_tree(root, cpu, root / cpu / gcc, version, tools)
    strip(root, [root / cpu / gcc / name for cpu, gcc in trees.items() for name in _STRIPPED])
    pins = [f"{digest(root / name)}  {name}" for name in ["lib", *sorted(trees)]]
    (root / "pin").write_text("\n".join(pins) + "\n")


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--gcc-version", required=True, help="as in Debian's names of programs")
    parser.add_argument("--tool", action="append", required=True)
    parser.add_argument("--tree", action="append", required=True, metavar="CPU=PATH")
    args = parser.parse_args()
    trees = {cpu: Path(gcc) for cpu, gcc in (tree.split("=") for tree in args.tree)}
    try:
        arrange(args.root.resolve(), trees, args.gcc_version, args.tool)
    except ArrangeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
