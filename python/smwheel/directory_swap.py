"""Changing a directory as a whole: whoever interrupts it finds the old one or the new one."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# linux/fcntl.h, linux/fs.h; renameat2(2).
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names of one directory, in one step. False where the system or its file system can't."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _link(source: str, target: str) -> None:
    """Makes `target` the same file, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Waits until no other process has this directory, and holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _beside(root: Path) -> tuple[Path, Path]:
    """Where the new directory is made, and where the old one is for a moment if they can't be exchanged."""
    return root.with_name(f".{root.name}.new"), root.with_name(f".{root.name}.old")


def _settle(root: Path) -> None:
    """Ends what a killed run began; the directory that `root` is in is locked."""
    new, old = _beside(root)
    if old.exists() and not root.exists():
        os.rename(old, root)
    for left in (new, old):
        if left.exists():
            shutil.rmtree(left)


def settle(root: Path) -> None:
    """Puts right what a killed run left: `root` is there, if it was, and nothing is beside it. Raises OSError."""
    root = root.resolve()
    if any(path.exists() for path in _beside(root)):
        with _locked(root.parent):
            _settle(root)


@contextmanager
def changed(root: Path) -> Iterator[Path]:
    """Gives a copy of `root` to change, which takes its place when the block ends without an exception.

    The copy's files are hard links: a file of it may be replaced, never written to. It lies beside `root`, as
    `.<name>.new`. Two runs wait for each other. Raises OSError.
    """
    root = root.resolve()
    root.parent.mkdir(parents=True, exist_ok=True)
    new, old = _beside(root)
    with _locked(root.parent):
        _settle(root)
        try:
            if root.exists():
                shutil.copytree(root, new, copy_function=_link, symlinks=True)
            else:
                new.mkdir()
            yield new
            if not root.exists():
                os.rename(new, root)
            elif not _exchange(new, root):
                # There is a moment without `root` here: then `old` is it, and `_settle` puts it back.
                os.rename(root, old)
                os.rename(new, root)
        finally:
            # After an exchange `new` is the old directory.
            _settle(root)
