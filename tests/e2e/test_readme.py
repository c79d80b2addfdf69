"""Every command in the README and in docs/ works, word for word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from workspace import ROOT, Workspace

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# What runs this very test, and what takes as long as a build from nothing.
ELSEWHERE = {"tests/run", ".ci/run", "python3 benchmarks/build.py"}


def blocks() -> list[tuple[str, str]]:
    """The ```sh blocks, each with the name of its document."""
    found = []
    for document in DOCUMENTS:
        for block in re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
            if block.strip() not in ELSEWHERE:
                found.append((document.name, block))
    return found


@pytest.mark.parametrize(("document", "block"), blocks())
def test_block(document: str, block: str, elsewhere: Workspace, tmp_path: Path) -> None:
    # In the copy of the workspace, with its flags on each line that builds.
    before = set(elsewhere.path.iterdir())
    flags = " ".join(elsewhere.flags)
    script = re.sub(r"^(\./bazelw build)", rf"\1 {flags}", block, flags=re.MULTILINE)
    try:
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=elsewhere.path,
            env={**os.environ, **elsewhere.environment, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{document}:\n{script}\n{result.stdout}\n{result.stderr}"
    finally:
        for path in set(elsewhere.path.iterdir()) - before:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def test_there_are_blocks() -> None:
    assert len(blocks()) >= 2
