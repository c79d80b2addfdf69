"""What `smwheel install --dry-run` starts with: benchmarks/startup.py measures it, and this keeps it from growing unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from recorded_system import ROOT, matrix_wheels
from synthetic_wheels import write

TOLD = ["--device", "9.0", "--cuda-version", "13.0", "--flashinfer-version", "0.7.4"]
SCRIPT = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from smwheel.cli import main
main()
"""


def test_nothing_is_imported_that_the_answer_does_not_need(tmp_path: Path) -> None:
    for wheel in matrix_wheels():
        write(tmp_path, wheel)
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("SMWHEEL_", "FLASHINFER_", "CUDA_", "VIRTUAL_ENV"))
    }
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, "install", "--dry-run", *TOLD, "--find-links", str(tmp_path)],
        env={**clean, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Chosen: flashinfer_jit_cache-0.7.4+cu130.sm9x-" in result.stdout
    imported = set(result.stderr.split())
    # A process is started for nothing either: subprocess is not there.
    assert not imported & {"subprocess", "requests", "urllib.request", "rich", "jinja2", "torch", "flashinfer", "ssl"}
    assert not imported & {"flashinfer_jit_cache", "ctypes"}
    assert len(imported) < 260
