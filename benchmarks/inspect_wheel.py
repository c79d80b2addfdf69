"""How long `smwheel inspect` takes on a wheel of 1 GB with 1,000 modules, process start and all.

    $(tests/environment)/bin/python benchmarks/inspect_wheel.py [--bytes 1000000000] [--modules 1000]

The wheel is written by the build's own programs: each module is random bytes, which do not compress, and its deflate
stream holds them as they are. The file is written once and is in the page cache when a clock starts; before the
runs called "cold" it is dropped from there. With --verify every byte is inflated and hashed.

Takes as much space in --directory as the wheel has (removed at the end). Linux only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools/wheel"))

import wheel_pack
from zip_writer import Member, write_zip

ROOT = Path(__file__).resolve().parents[1]
SM_TARGETS = ["8.0", "9.0a", "12.0f"]
VERSION = "0.7.4+cu130.sm9x"
TAG = "cp39-abi3-manylinux_2_28_x86_64"
INFO = f"flashinfer_jit_cache-{VERSION}.dist-info"
RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from smwheel.cli import main; main(sys.argv[1:])"


def member(name: str, data: bytes, level: int) -> Member:
    """A file of the wheel, deflated."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
    return Member(name, compressor.compress(data) + compressor.flush(), zlib.crc32(data), len(data))


def make_wheel(directory: Path, size: int, count: int) -> Path:
    """Writes a wheel of `size` bytes, more or less, with `count` modules."""
    spec = {
        "distribution": "flashinfer-jit-cache",
        "version": VERSION,
        "summary": "Kernels",
        "license": "Apache-2.0",
        "license_files": {},
        "generator": "smwheel",
        "tag": TAG,
        "cuda_version": "13.0",
        "minimum_driver": "580",
        "cpu": "x86_64",
        "sm_family": "sm9x",
        "sm_targets": SM_TARGETS,
        "not_built": {},
        "siblings": {},
        "supports": {f"module_{number:04}": SM_TARGETS for number in range(count)},
    }
    # All modules have the same bytes: what is measured does not look at them, or hashes every one of them.
    part = size // count // (len(SM_TARGETS) + 1)
    data = os.urandom(part * (len(SM_TARGETS) + 1))
    stream = member("", data, 0).stream
    assert isinstance(stream, bytes)
    digest, crc32 = hashlib.sha256(data).hexdigest(), zlib.crc32(data)
    entry = {"bytes": len(data), "compressed_bytes": len(stream), "sha256": digest}
    image = {"bytes": part, "weight": part, "kernels": 1}
    facts = {"host": {"bytes": part, "weight": part}, "sm_targets": dict.fromkeys(SM_TARGETS, image)}
    modules = {name: wheel_pack.describe_module(entry, facts) for name in spec["supports"]}
    texts = {
        "flashinfer_jit_cache/__init__.py": b"",
        "flashinfer_jit_cache/manifest.json": json.dumps(wheel_pack.describe_wheel(spec, modules), indent=1).encode(),
        f"{INFO}/METADATA": wheel_pack.metadata(spec).encode(),
        f"{INFO}/WHEEL": wheel_pack.wheel_file(spec).encode(),
    }
    paths = [f"flashinfer_jit_cache/jit_cache/{name}/{name}.so" for name in modules]
    entries = [(path, digest, len(data)) for path in paths]
    entries += [(path, hashlib.sha256(text).hexdigest(), len(text)) for path, text in texts.items()]
    record = wheel_pack.record(sorted(entries), f"{INFO}/RECORD").encode()
    members = [Member(path, stream, crc32, len(data), 0o755) for path in paths]
    wheel = directory / f"flashinfer_jit_cache-{VERSION}-{TAG}.whl"
    rest = [member(path, text, 6) for path, text in {**texts, f"{INFO}/RECORD": record}.items()]
    write_zip(wheel, [*members, *rest])
    return wheel


def seconds(wheel: Path, *options: str, cold: bool = False) -> float:
    """How long one run takes."""
    if cold:
        with open(wheel, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", RUN, ROOT / "python", "inspect", wheel, *options], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - start


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        wheel = make_wheel(Path(directory), args.bytes, args.modules)
        print(f"{wheel.stat().st_size:,} bytes, {args.modules} modules; load {os.getloadavg()[0]:.1f}")
        for what, runs, options, cold in (
            ("inspect", args.runs, (), False),
            ("inspect, cold", args.runs, (), True),
            ("inspect --json", args.runs, ("--json",), False),
            ("inspect --verify", 1, ("--verify",), False),
        ):
            times = [seconds(wheel, *options, cold=cold) for _ in range(runs)]
            print(f"{what}: median {statistics.median(times):.2f} s of {runs} ({min(times):.2f} to {max(times):.2f})")


if __name__ == "__main__":
    main()
