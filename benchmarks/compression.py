"""Compares libraries that could compress the members of a wheel, on the modules of a built wheel.

    python3 -m venv V && V/bin/pip install deflate==0.9.0 isal zlib-ng
    V/bin/python benchmarks/compression.py bazel-bin/wheels/*.whl

Prints, for each library and level, the speed against the interpreter's zlib at its default level and the size against
it, all measured in this run on one core (the best of three).
"""

from __future__ import annotations

import argparse
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deflate
from isal import isal_zlib
from zlib_ng import zlib_ng


def raw(module: Any, level: int) -> Callable[[bytes], bytes]:
    """A function that compresses to a raw deflate stream with a module that has zlib's interface."""

    def compress(data: bytes) -> bytes:
        compressor = module.compressobj(level, zlib.DEFLATED, -15)
        return bytes(compressor.compress(data) + compressor.flush())

    return compress


def libdeflate(level: int) -> Callable[[bytes], bytes]:
    """The same with libdeflate, which compresses a buffer as a whole."""
    return lambda data: bytes(deflate.deflate_compress(data, level))


CANDIDATES: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("zlib 6 (the interpreter's)", raw(zlib, 6)),
    *((f"libdeflate {level}", libdeflate(level)) for level in (1, 6, 9, 12)),
    *((f"zlib-ng {level}", raw(zlib_ng, level)) for level in (6, 9)),
    *((f"isal {level}", raw(isal_zlib, level)) for level in (1, 3)),
]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="+")
    modules = []
    for path in parser.parse_args().wheel:
        with zipfile.ZipFile(path) as wheel:
            modules += [wheel.read(name) for name in wheel.namelist() if name.endswith(".so")]
    total = sum(map(len, modules))
    print(f"{len(modules)} modules, {total / 1e6:.1f} MB")
    print(f"{'library, level':<28}{'MB/s':>8}{'speed':>8}{'size':>9}{'ratio':>8}")
    base_time = base_size = 0.0
    for name, compress in CANDIDATES:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            size = sum(len(compress(module)) for module in modules)
            times.append(time.perf_counter() - start)
        best = min(times)
        base_time, base_size = base_time or best, base_size or size
        print(
            f"{name:<28}{total / best / 1e6:>8.0f}{base_time / best:>8.2f}{size / base_size:>9.4f}{size / total:>8.4f}"
        )


if __name__ == "__main__":
    main()
