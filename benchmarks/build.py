"""What building the wheels costs: a cold build against its compilers' CPU time, a no-op build, Bazel's heap.

    python3 benchmarks/build.py [--targets //wheels:cu130]

It builds from nothing in an output base of its own (external repositories are fetched before the clock starts), so it
takes as long as a cold build. Nothing needs to be installed besides what bazelw needs. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(
    os.environ.get("SMWHEEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smwheel"
)
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_children(pid: int) -> float:
    """CPU seconds of the finished children of a process (proc(5): cutime and cstime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="//wheels:cu130")
    args = parser.parse_args()
    output_base = CACHE / "benchmark"
    bazel = [str(ROOT / "bazelw"), f"--output_base={output_base}"]

    def run(*arguments: str) -> str:
        result = subprocess.run([*bazel, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{' '.join(arguments)} failed:\n{result.stderr}")
        return result.stdout.strip()

    def timed(*arguments: str) -> float:
        start = time.monotonic()
        run(*arguments)
        return time.monotonic() - start

    run("build", "--nobuild", args.targets)
    run("clean")
    run("shutdown")
    pid = int(run("info", "server_pid"))
    run("build", "--nobuild", args.targets)
    before = cpu_of_children(pid)
    wall = timed("build", args.targets)
    cpu = cpu_of_children(pid) - before
    cores = os.cpu_count() or 1
    no_op = sorted(timed("build", args.targets) for _ in range(5))
    heap = run("info", "used-heap-size"), run("info", "committed-heap-size"), run("info", "max-heap-size")
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    run("shutdown")
    print(f"{args.targets}, {cores} cores")
    print(f"cold build, wall                      {wall:8.1f} s")
    print(f"CPU seconds of its actions            {cpu:8.1f} s")
    print(f"wall : (CPU seconds / cores)          {wall / (cpu / cores):8.2f}")
    print(f"no-op build, median of 5              {no_op[2]:8.2f} s (each: {', '.join(f'{t:.2f}' for t in no_op)})")
    print(
        f"server heap after: used {heap[0]}, committed {heap[1]}, limit {heap[2]}; peak resident {int(peak.split()[1]) // 1024} MB"
    )


if __name__ == "__main__":
    main()
