"""What a wheel of 1,000 modules and 2 GB costs: compressing its members, packing, packing again after one module changed.

    python3 -m venv V && V/bin/pip install deflate==0.9.0 wheel==0.48.0
    V/bin/python benchmarks/packing.py [--scale 0.05] [--modules 100] [bazel-bin/wheels/*.whl]

Members and wheel are made by the programs that the build runs, each in a process of its own, as many at once as there
are cores. Beside them, in the same run and on the same files: the same library on one thread of one process, `wheel
pack` (one thread, zlib) and `cp` of the wheel. Each output is a new file; what was written before is on
disk before a clock starts. The modules are made of those of the given wheels, or of bytes that compress like machine
code. Their sizes are log-normal, the largest 15 times the mean.

Full scale takes up to 20 GB in --directory (removed at the end) and ten minutes. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import deflate

TOOLS = Path(__file__).resolve().parents[1] / "tools" / "wheel"
PYTHON = ["/usr/bin/python3", "-E", "-s", "-B"]  # as actions run it: tools/private/run_python.bzl
DEFLATE = Path(deflate.__file__).parents[1]
SM_TARGETS = ["8.0", "9.0a", "12.0f"]
COMPRESSED = 2_000_000_000  # bytes of the wheel
LEVEL = 6  # that of tools/wheel/wheel_member.py
# Upstream's own wheel of all modules was 9.36 GB installed, 2.117 GB as a file (flashinfer#3907); so many different
# instructions, drawn with a weight of 1/rank, compress about as well.
INSTRUCTIONS = 700


def material(wheels: list[Path]) -> bytes:
    """The modules of wheels, or 32 MiB of 16-byte instructions. The same at every run."""
    data = []
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            data += [wheel.read(name) for name in sorted(wheel.namelist()) if name.endswith(".so")]
    if not wheels:
        rng = random.Random(0)
        instructions = [rng.randbytes(16) for _ in range(INSTRUCTIONS)]
        weights = [1 / rank for rank in range(1, INSTRUCTIONS + 1)]
        data = rng.choices(instructions, weights, k=1 << 21)
    return b"".join(data)


def write_module(path: Path, pool: bytes, size: int, seed: int) -> None:
    """Writes `size` bytes of `pool`, which is taken as a ring, from a place that `seed` gives."""
    place = random.Random(seed).randrange(len(pool))
    with open(path, "wb") as file:
        while size:
            file.write(piece := pool[place : place + min(size, 1 << 20)])
            size, place = size - len(piece), (place + len(piece)) % len(pool)


def make_tree(tree: Path, modules: int, wheels: list[Path], scale: float) -> float:
    """Writes the modules, with what `wheel pack` wants beside them; returns the size that they compress to (1 = none)."""
    pool = material(wheels)
    ratio = len(deflate.deflate_compress(pool, LEVEL)) / len(pool)
    rng = random.Random(1)
    shares = [rng.lognormvariate(0, 1) for _ in range(modules)]
    for number, share in enumerate(shares):
        path = module(tree, number)
        path.parent.mkdir(parents=True)
        write_module(path, pool, int(COMPRESSED * scale / ratio * share / sum(shares)), number)
    info = tree / "kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: kernels\nVersion: 1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp39-abi3-manylinux_2_28_x86_64\n")
    return ratio


def change(path: Path, wheels: list[Path], seed: int) -> None:
    """Gives a module other bytes, of the same size."""
    size = path.stat().st_size
    path.unlink()
    write_module(path, material(wheels), size, seed)


def one_thread(tree: Path, modules: int, out: Path) -> tuple[int, float, float]:
    """Does on one thread what the members' actions do.

    Returns the compressed bytes, the wall seconds in deflate alone, and the CPU seconds of everything.
    """
    total, seconds, cpu = 0, 0.0, -time.process_time()
    with open(out, "wb") as file:
        for number in range(modules):
            data = module(tree, number).read_bytes()
            seconds -= time.perf_counter()
            compressed = deflate.deflate_compress(data, LEVEL)
            seconds += time.perf_counter()
            deflate.crc32(data)
            hashlib.sha256(data).digest()
            file.write(compressed)
            total += len(compressed)
    out.unlink()
    return total, seconds, cpu + time.process_time()


def module(tree: Path, number: int) -> Path:
    """The path of a module of the tree."""
    name = f"module_{number:04}"
    return tree / "kernels" / "jit_cache" / name / f"{name}.so"


@dataclass(frozen=True)
class Work:
    """Where things are: so many `modules` in `tree`, what the build's actions make of them in `out`."""

    tree: Path
    out: Path
    modules: int

    @property
    def wheel(self) -> Path:
        """The wheel that the packer writes."""
        return self.out / "kernels-1.0-cp39-abi3-manylinux_2_28_x86_64.whl"

    def member_command(self, number: int) -> list[str]:
        """WheelMember of a module."""
        member = self.out / f"{number}.member"
        files = ["--file", str(module(self.tree, number)), "--member", str(member), "--facts", f"{member}.json"]
        return [*PYTHON, str(TOOLS / "wheel_member.py"), "--deflate", str(DEFLATE), "--level", str(LEVEL), *files]

    def pack_command(self) -> list[str]:
        """WheelPack."""
        files = [
            "--spec",
            "spec.json",
            "--members",
            "members",
            "--wheel",
            self.wheel.name,
            "--manifest",
            "manifest.json",
        ]
        return [*PYTHON, str(TOOLS / "wheel_pack.py"), "--deflate", str(DEFLATE), *files]

    def write_inputs(self) -> None:
        """Writes what the rule and ModuleCheck write: the specification, the list of modules, what was measured of each."""
        self.out.mkdir()
        spec = {
            "compression_level": LEVEL,
            "cpu": "x86_64",
            "cuda_version": "13.0",
            "distribution": "kernels",
            "files": {},
            "generator": "smwheel",
            "license": "Apache-2.0",
            "license_files": {},
            "minimum_driver": "580",
            "modules_directory": "jit_cache",
            "package": "kernels",
            "not_built": {},
            "siblings": {},
            "sm_family": "all",
            "sm_targets": SM_TARGETS,
            "summary": "A benchmark",
            "supports": {module(self.tree, number).stem: ["8.0", "9.0", "12.0"] for number in range(self.modules)},
            "tag": "cp39-abi3-manylinux_2_28_x86_64",
            "version": "1.0",
        }
        (self.out / "spec.json").write_text(json.dumps(spec))
        lines = []
        for number in range(self.modules):
            self.write_facts(number)
            stem = module(self.tree, number).stem
            lines += [stem, f"{number}.member", f"{number}.member.json", f"{number}.facts.json"]
        (self.out / "members").write_text("".join(f"{line}\n" for line in lines))

    def write_facts(self, number: int) -> None:
        """Writes what ModuleCheck measures of a module. These modules hold no device code; their parts are invented."""
        data = module(self.tree, number).read_bytes()
        part = len(data) // 4
        targets = {sm: {"bytes": part, "kernels": 1, "weight": part} for sm in SM_TARGETS}
        host = {"bytes": len(data) - part * len(SM_TARGETS), "weight": part}
        facts = {"sha256": hashlib.sha256(data).hexdigest(), "host": host, "sm_targets": targets}
        (self.out / f"{number}.facts.json").write_text(json.dumps(facts))

    def run(self, command: list[str]) -> None:
        """Runs a command in `out`."""
        subprocess.run(command, cwd=self.out, check=True, stdout=subprocess.DEVNULL)

    def members(self) -> None:
        """Compresses every module, as many at once as there are cores."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda number: self.run(self.member_command(number)), range(self.modules)))

    def verify_command(self) -> list[str]:
        """The strict reader, on the whole wheel."""
        code = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import pathlib, wheel_zip as z; p = pathlib.Path({str(self.wheel)!r}); z.verify(p, z.read(p))"
        return [*PYTHON, "-c", code]


def cpu_of_children() -> float:
    """CPU seconds of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass
class Clock:
    """Wall time of a block and CPU time of its children, seconds. Everything written before is on disk when it starts."""

    seconds: float = 0
    cpu: float = 0

    def __enter__(self) -> Clock:
        os.sync()
        self.seconds, self.cpu = -time.perf_counter(), -cpu_of_children()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter()
        self.cpu += cpu_of_children()


def memory(command: list[str], directory: Path) -> tuple[int, int]:
    """Runs a command; returns its peak of anonymous memory (sampled) and of all that is resident, bytes.

    What is resident and not anonymous are pages of mapped files, which the kernel can drop.
    """
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    anonymous = resident = 0
    stop = threading.Event()
    while process.poll() is None:
        fields = dict(
            line.split(":") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "kB" in line
        )
        if "RssAnon" in fields:
            anonymous = max(anonymous, int(fields["RssAnon"].split()[0]) * 1024)
            resident = max(resident, int(fields["VmHWM"].split()[0]) * 1024)
        stop.wait(0.001)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return anonymous, resident


def spread(values: list[float]) -> str:
    """Median of measurements, with the least and the greatest."""
    return f"{statistics.median(values):8.2f} s ({min(values):.2f} to {max(values):.2f}, {len(values)} runs)"


def report(args: argparse.Namespace, directory: Path) -> Iterator[str]:
    """Measures; yields a line when it is known."""
    work = Work(directory / "tree", directory / "out", args.modules)
    cores = os.cpu_count() or 1
    yield f"{time.strftime('%Y-%m-%d')}, {cores} cores, load average before: {os.getloadavg()[0]:.1f}"
    # In processes of their own, so that this one stays small: children's peaks start at their parent's.
    with ProcessPoolExecutor(1) as other:
        ratio = other.submit(make_tree, work.tree, work.modules, args.wheel, args.scale).result()
        sizes = sorted((module(work.tree, n).stat().st_size, n) for n in range(work.modules))
        raw = sum(size for size, _ in sizes)
        yield f"{work.modules} modules, {raw / 1e6:.0f} MB, the largest {sizes[-1][0] / 1e6:.0f} MB; they compress to {ratio:.3f}"
        other.submit(work.write_inputs).result()

        with Clock() as members:
            work.members()
        with Clock() as pack:
            work.run(work.pack_command())
        cold = members.seconds + pack.seconds
        size = work.wheel.stat().st_size
        yield f"cold: all members on {cores} cores, {members.seconds:.2f} s, and packing, {pack.seconds:.2f} s: {cold:.2f} s"
        with Clock() as alone:
            compressed, seconds, cpu = other.submit(one_thread, work.tree, work.modules, directory / "streams").result()
        yield f"one thread, same library: {alone.seconds:.2f} s, of which deflate {seconds:.2f} s; size {compressed / size:.4f} of the wheel's"
        for what, base in (("one thread", alone.seconds), ("its deflate", seconds)):
            yield f"  {what} : cold = {base / cold:.2f}, {base / cold / cores:.2f} per core"
        yield f"  CPU seconds, one thread : cold = {cpu:.1f} : {members.cpu + pack.cpu:.1f} = {cpu / (members.cpu + pack.cpu):.2f}"

        first, last, cpus = [], [], []
        for run in range(args.repetitions):
            number = sizes[work.modules // 2][1]
            other.submit(change, module(work.tree, number), args.wheel, work.modules + run).result()
            other.submit(work.write_facts, number).result()
            for stale in (f"{number}.member", f"{number}.member.json", "manifest.json", work.wheel.name, "copy"):
                (work.out / stale).unlink(missing_ok=True)
            with Clock() as again:
                work.run(work.member_command(number))
                work.run(work.pack_command())
            first.append(again.seconds)
            with Clock() as copy:
                work.run(["cp", "--reflink=never", work.wheel.name, "copy"])
            last.append(copy.seconds)
            cpus.append(again.cpu / copy.cpu)
        (work.out / "copy").unlink()
        yield f"one module changed, its member and packing: {spread(first)}"
        yield f"cp of the wheel, {work.wheel.stat().st_size / 1e6:.0f} MB:          {spread(last)}"
        ratios = [a / b for a, b in zip(first, last, strict=True)]
        yield f"  packing again : cp, in pairs               {statistics.median(ratios):8.2f}   ({min(ratios):.2f} to {max(ratios):.2f})"
        yield f"  the same in CPU seconds                    {statistics.median(cpus):8.2f}   ({min(cpus):.2f} to {max(cpus):.2f})"

        other_wheel = directory / "other"
        other_wheel.mkdir()
        with Clock() as peer:
            work.run([sys.executable, "-m", "wheel", "pack", "--dest-dir", str(other_wheel), str(work.tree)])
        [packed] = other_wheel.iterdir()
        version = importlib.metadata.version("wheel")
        yield f"wheel pack ({version}): {peer.seconds:.2f} s, size {packed.stat().st_size / size:.4f} of the wheel's"
        yield f"  cold is {peer.seconds / cold:.2f} times faster; packing again {peer.seconds / statistics.median(first):.0f} times"
        packed.unlink()

        with Clock() as verify:
            work.run(work.verify_command())
        yield f"strict reader, every member inflated and hashed: {verify.seconds:.2f} s"
        for what, command in (
            (f"WheelMember, the largest module ({sizes[-1][0] / 1e6:.0f} MB)", work.member_command(sizes[-1][1])),
            ("WheelPack", work.pack_command()),
            ("strict reader", work.verify_command()),
        ):
            anonymous, resident = memory(command, work.out)
            yield f"peak memory, {what}: {anonymous / 1e6:.0f} MB its own, {resident / 1e6:.0f} MB with mapped files"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="*", help="wheels whose modules the data are made of")
    parser.add_argument("--scale", type=float, default=1, help="1 is a wheel of 2 GB")
    parser.add_argument("--modules", type=int, default=1000, help="of the wheel (default: 1000)")
    parser.add_argument("--repetitions", type=int, default=5, help="of packing again and cp")
    parser.add_argument("--directory", help="where the files are made; the system's temporary directory if not given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        for line in report(args, Path(directory)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
