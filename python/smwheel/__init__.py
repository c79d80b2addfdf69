"""smwheel for people: installs the right wheel, says what is in one, indexes and publishes them."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# The build's own programs, as they lie in tools/wheel: they import their neighbours by plain names.
sys.path.append(str(Path(__file__).parent / "wheel_tools"))

try:
    __version__ = version("smwheel")
except PackageNotFoundError:  # from a checkout
    __version__ = "0+checkout"
