"""What compressing fatbins and members costs and gains, for each mode of fatbinary and level of libdeflate.

    python3 -m venv V && V/bin/pip install deflate==0.9.0
    V/bin/python benchmarks/fatbins.py [--wheel cu130_x86_64_sm9x]

Builds the modules of a wheel with each mode and compresses them at each level. Cubins are compiled once, if the disk
cache does not have them yet. Sizes and times are given as ratios to the first row, which is what wheels/matrix.bzl says;
all are measured in this run. Seconds are those of the actions that join cubins, and of deflate on one core.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import deflate

ROOT = Path(__file__).resolve().parents[1]
MODES = ["size", "balance", "speed", "none"]
LEVELS = [6, 1, 9, 12]


def bazel(command: str, *arguments: str) -> str:
    """What a Bazel command prints."""
    result = subprocess.run(
        [ROOT / "bazelw", command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"bazelw {command} {' '.join(arguments)} failed:\n{result.stderr}")
    return result.stdout


def seconds(profile: Path, mnemonic: str) -> float:
    """The seconds that actions of a mnemonic took, from Bazel's profile."""
    with gzip.open(profile) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return sum(float(e["dur"]) for e in events if e.get("args", {}).get("mnemonic") == mnemonic and "dur" in e) / 1e6


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", default="cu130_x86_64_sm9x")
    parser.add_argument("--disk-cache", type=Path, default=Path.home() / ".cache/smwheel/disk", help="Bazel's")
    args = parser.parse_args()
    # What joins cubins is measured, so it must run.
    cache = [f"--disk_cache={args.disk_cache}", "--modify_execution_info=CudaFatbin=+no-cache"]
    bazel("build", *cache, f"//wheels:{args.wheel}", "//wheels:matrix.json")
    [wheel] = [
        w for w in json.loads((ROOT / "bazel-bin/wheels/matrix.json").read_text())["wheels"] if w["name"] == args.wheel
    ]
    targets = bazel("query", f"kind(cuda_shared_library, deps(//wheels:{args.wheel}, 1))").split()
    flags = [
        f"--platforms=//toolchains/cc:{wheel['cpu']}_linux",
        f"--//toolchains/cuda:version={wheel['cuda_version']}",
        f"--//toolchains/cuda:sm_targets={','.join(wheel['sm_targets'])}",
    ]
    root = Path(bazel("info", "execution_root").strip())
    rows = []
    for mode in MODES:
        with tempfile.TemporaryDirectory() as scratch:
            profile = Path(scratch, "profile.gz")
            settings = [*flags, f"--//toolchains/cuda:fatbin_compression={mode}"]
            bazel("build", *cache, *settings, f"--profile={profile}", "--generate_json_trace_profile", *targets)
            joining = seconds(profile, "CudaFatbin")
            if not joining:
                raise SystemExit(
                    f"The cubins of mode {mode} are joined already, so that can't be measured. Run: ./bazelw clean"
                )
            files = bazel("cquery", *settings, " + ".join(targets), "--output=files").split()
        modules = [(root / file).read_bytes() for file in files]
        for level in LEVELS:
            start = time.perf_counter()
            size = sum(len(deflate.deflate_compress(module, level)) for module in modules)
            rows.append((mode, level, size, sum(map(len, modules)), joining, time.perf_counter() - start))
    print(f"{args.wheel}: {len(targets)} modules")
    print("fatbinary  level    wheel  ratio   installed  ratio   joining s  deflate s")
    for mode, level, size, installed, joining, deflating in rows:
        print(
            f"{mode:<9}{level:>7}{size / 1e6:>9.2f}{size / rows[0][2]:>7.3f}{installed / 1e6:>12.2f}"
            f"{installed / rows[0][3]:>7.3f}{joining:>12.2f}{deflating:>11.2f}"
        )


if __name__ == "__main__":
    main()
