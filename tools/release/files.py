"""Writing a file so that an interrupted run leaves the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Makes `text` the content of `path`, in one step. Directories that are missing are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=path.parent) as scratch:
        part = Path(scratch, path.name)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
