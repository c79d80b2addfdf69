"""smwheel for people: installs the right wheel, says what is in one, indexes and publishes them."""

from __future__ import annotations

import sys
from pathlib import Path

# The build's own programs, as they lie in tools/wheel: they import their neighbours by plain names.
sys.path.append(str(Path(__file__).parent / "wheel_tools"))


def __getattr__(name: str) -> str:
    """`__version__`, which takes a quarter of the command line's start to find out and is seldom asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("smwheel")
    except PackageNotFoundError:  # from a checkout
        return "0+checkout"
