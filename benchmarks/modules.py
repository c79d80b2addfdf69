"""What all of FlashInfer costs to compile: a sample of its modules is compiled and loaded, and its costs are scaled up.

    python3 benchmarks/modules.py --measure [--only NAME]
    python3 benchmarks/modules.py --nvcc
    python3 benchmarks/modules.py

The sample is in modules.json. --measure compiles each of its modules for one SM target, without any cache, loads the library
(every symbol is resolved; those of the driver, cuBLAS and NVRTC by the stubs that the build links to), and writes what it took
to modules.measured.json. --nvcc compiles a few TUs for all their SM targets with nvcc, as FlashInfer does, and with the build's
actions. Without an option it prints what was measured, and what all modules cost here and by nvcc. All times are CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CATEGORIES = Path(__file__).with_suffix(".json")
MEASURED = Path(__file__).with_suffix(".measured.json")
CPUS = 2  # the CPUs that wheels are made for: x86_64, aarch64

# What is made once for each SM target, and what is made once for each CPU.
DEVICE = ("CudaPreprocess", "CudaCubin")
HOST = ("CudaHostFront", "CudaHostCompile", "CppCompile")

# Libraries that whoever loads a module has.
STUBS = {"-lcublas": "cublas", "-lcublasLt": "cublasLt", "-lnvrtc": "nvrtc"}

LOAD = """
import ctypes, os, sys
from pathlib import Path
import nvidia.cu13, tvm_ffi
[cudart] = Path(nvidia.cu13.__path__[0], "lib").glob("libcudart.so.*")
ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
module, *stubs = sys.argv[1:]
for stub in stubs:
    ctypes.CDLL(stub)
ctypes.CDLL(module, mode=os.RTLD_NOW | os.RTLD_LOCAL)
tvm_ffi.load_module(module)
"""

Json = dict[str, Any]


def run(*command: str | Path) -> str:
    """What a program prints; what it says is in the failure."""
    result = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def bazel(command: str, *arguments: str) -> str:
    """A Bazel command, with all of FlashInfer's modules."""
    return run(ROOT / "bazelw", command, "--config=full", "--noshow_progress", *arguments)


@cache
def modules(label: str) -> Json:
    """The modules of a CUDA label, as importer.py describes them."""
    bazel("build", "--nobuild", f"//kernels:modules.{label}.txt")
    external = Path(run(ROOT / "bazelw", "info", "output_base").strip(), "external")
    [path] = external.glob(f"*flashinfer/{label}/modules.json")
    return dict(json.loads(path.read_text()))


def category(module: str, categories: Mapping[str, Json]) -> str:
    """The first category with a pattern that matches."""
    return next(name for name, entry in categories.items() if any(fnmatchcase(module, p) for p in entry["patterns"]))


# ---- Measuring ------------------------------------------------------------------------------------------------------


def cpu_seconds(targets: Sequence[str], *flags: str) -> dict[str, tuple[int, float]]:
    """Compiles targets, and all that they need, from nothing: mnemonic -> number of actions, CPU seconds of all of them."""
    with tempfile.NamedTemporaryFile(suffix=".json") as events:
        # Bazel knows the CPU time of an action that it runs in its own sandbox, and sums it up for each mnemonic.
        metrics = (f"--build_event_json_file={events.name}", "--experimental_record_metrics_for_all_mnemonics")
        bazel("build", *targets, *flags, *metrics, "--disk_cache=", "--remote_cache=")
        for line in events:
            if summary := json.loads(line).get("buildMetrics", {}).get("actionSummary"):
                break
    seconds = {}
    for entry in summary.get("actionData", []):
        if "userTime" in entry:
            cpu = sum(float(entry[key].rstrip("s")) for key in ("userTime", "systemTime") if key in entry)
            seconds[entry["mnemonic"]] = (int(entry["actionsExecuted"]), round(cpu, 2))
    return seconds


def files(target: str, *flags: str) -> list[Path]:
    """The output files of a target."""
    return [ROOT / line for line in bazel("cquery", target, *flags, "--output=files").split()]


def load(path: Path, linkopts: Iterable[str]) -> bool:
    """Loads a module in a process of its own. False if all its symbols are found and its own initialisation asks for a GPU."""
    names = ["cuda", *(STUBS[option] for option in linkopts if option in STUBS)]
    stubs = [f"//toolchains/cuda:stub_{name}" for name in names]
    libraries = []
    for stub in stubs:
        bazel("build", stub)
        libraries += files(stub)
    python = Path(run(ROOT / "tests/environment").strip(), "bin/python")
    command = [str(word) for word in (python, "-c", LOAD, path, *libraries)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode and "cudaErrorStubLibrary" not in result.stderr:
        raise SystemExit(f"{path} can't be loaded:\n{result.stderr}")
    return not result.returncode


def forget(module: str) -> None:
    """Removes what was built of a module that has a package of its own."""
    for outputs in ROOT.glob(f"bazel-out/*/bin/external/*flashinfer/modules/{module}"):
        shutil.rmtree(outputs)


def measure(name: str, sm: str) -> Json:
    """Compiles a module, or TU of one, for an SM target, and loads a module."""
    module, _, tu = name.partition(":")
    forget(module)
    flags = (f"--//toolchains/cuda:sm_targets={sm}",)
    if tu:
        prefix = f"@flashinfer//modules/{module}:{tu}"
        actions = cpu_seconds([f"{prefix}.sm_{sm.replace('.', '')}", f"{prefix}.host"], *flags)
        return {"sm_target": sm, "actions": actions}
    target = f"//kernels/flashinfer:{module}"
    actions = cpu_seconds([target], *flags)
    [path] = files(target, *flags)
    loads = load(path, modules("cu130")[module]["linkopts"])
    return {"sm_target": sm, "actions": actions, "bytes": path.stat().st_size, "loads": loads}


def measure_all(categories: Mapping[str, Json], only: str) -> None:
    """Measures what was not measured yet. Each result is written at once."""
    measured = read_measured()
    failed = []
    for entry in categories.values():
        for name, sm in entry["sample"].items():
            if only in name and (name not in measured["sample"] or measured["sample"][name]["sm_target"] != sm):
                print(f"{name} for {sm}", file=sys.stderr)
                try:
                    record("sample", name, measure(name, sm))
                except SystemExit as error:
                    print(error, file=sys.stderr)
                    failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


# ---- nvcc -----------------------------------------------------------------------------------------------------------


def compare(module: str, src: str) -> Json:
    """A TU for all SM targets of its module: CPU seconds by nvcc in one call, as FlashInfer does, and by the actions here."""
    sms = modules("cu130")[module]["sm_targets"]
    asking = f"--//toolchains/cuda:sm_targets={','.join(sms)}"
    query = f'mnemonic("CudaHostFront", deps(//kernels/flashinfer:{module}))'
    graph = json.loads(bazel("aquery", query, asking, "--output=jsonproto", "--include_param_files"))
    [action] = [a for a in graph["actions"] if any(word.endswith(f"/{src}") for word in a["arguments"])]
    words = action["arguments"]

    def after(option: str) -> str:
        return str(words[words.index(option) + 1])

    owner = next(t["label"] for t in graph["targets"] if t["id"] == action["targetId"])
    device = next(tu["device_code"] for tu in modules("cu130")[module]["tus"] if tu["src"] == src)
    names = [sm.replace(".", "") for sm in sms]
    targets = [owner, *(f"{owner.removesuffix('.host')}.sm_{name}" for name in names if device)]
    # Where the paths of sources, headers and tools lead to.
    root = Path(run(ROOT / "bazelw", "info", "output_base").strip())
    with tempfile.TemporaryDirectory() as scratch:
        cxx = Path(scratch, "cxx")
        cxx.write_text(f'#!/bin/sh\nexec {root / after("--cxx")} "$@"\n')
        cxx.chmod(0o755)
        gencode = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
        command = [after("--nvcc"), "-c", "-ccbin", str(cxx), *gencode, *words[words.index("--") + 1 :], after("--src")]
        before = os.times()
        command += ["-o", str(Path(scratch, "tu.o"))]
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}\n{result.stderr}")
        after_it = os.times()
    nvcc = after_it.children_user + after_it.children_system - before.children_user - before.children_system
    forget(module)
    actions = cpu_seconds(targets, asking)
    return {"sm_targets": len(sms), "device_code": device, "nvcc": round(nvcc, 2), "actions": actions}


def compare_all(entries: Mapping[str, Sequence[str]]) -> None:
    """Compares the TUs that modules.json names for it."""
    for module, sources in entries.items():
        for src in (src for src in sources if f"{module}:{src}" not in read_measured()["nvcc"]):
            print(f"{module}: {src}", file=sys.stderr)
            record("nvcc", f"{module}:{src}", compare(module, src))


# ---- Estimate -------------------------------------------------------------------------------------------------------


def spent(actions: Mapping[str, tuple[int, float]], mnemonics: Iterable[str]) -> float:
    """CPU seconds of some kinds of actions."""
    return sum(actions[mnemonic][1] for mnemonic in mnemonics if mnemonic in actions)


@dataclass(frozen=True)
class Means:
    """Means over the sample of a category, in CPU seconds: a cubin, the host code of a CUDA TU, and of a C++ one, for one CPU."""

    cubin: float
    host: float
    cpp: float


def means(names: Iterable[str], sample: Mapping[str, Json]) -> Means:
    """The means over a part of the sample."""
    actions = [sample[name]["actions"] for name in names if name in sample]

    def mean(kind: str, *mnemonics: str) -> float:
        number = sum(a[kind][0] for a in actions if kind in a)
        return sum(spent(a, mnemonics) for a in actions if kind in a) / number if number else 0.0

    return Means(
        mean("CudaCubin", *DEVICE),
        mean("CudaHostFront", "CudaHostFront", "CudaHostCompile"),
        mean("CppCompile", "CppCompile"),
    )


def nvcc_costs(entries: Mapping[str, Json]) -> tuple[float, float]:
    """nvcc's CPU time for TUs with device code relative to the actions', and its CPU seconds for each SM target of others."""
    device = [e for e in entries.values() if e["device_code"]]
    others = [e for e in entries.values() if not e["device_code"]]
    ratio = sum(e["nvcc"] for e in device) / sum(spent(e["actions"], (*DEVICE, *HOST)) for e in device)
    return ratio, sum(e["nvcc"] - spent(e["actions"], HOST) for e in others) / sum(e["sm_targets"] for e in others)


@dataclass(frozen=True)
class Row:
    """A category: how many modules and cubins, and CPU hours for both CPUs' wheels, here and by nvcc."""

    name: str
    modules: int
    cubins: int
    here: float
    nvcc: float


def estimate(label: str, categories: Mapping[str, Json], measured: Json) -> Iterator[Row]:
    """The categories of a CUDA label."""
    ratio, without = nvcc_costs(measured["nvcc"])
    of: dict[str, list[Json]] = {}
    for name, module in modules(label).items():
        of.setdefault(category(name, categories), []).append(module)
    everything = [name for entry in categories.values() for name in entry["sample"]]
    overall = means(everything, measured["sample"])
    for name, members in of.items():
        own = means(categories[name]["sample"], measured["sample"])
        pairs, host, others = 0, 0.0, 0
        for module in members:
            for tu in module["tus"]:
                cuda = tu["lang"] == "cuda"
                pairs += len(module["sm_targets"]) if tu["device_code"] else 0
                others += len(module["sm_targets"]) if cuda and not tu["device_code"] else 0
                host += (own.host or overall.host) if cuda else (own.cpp or overall.cpp)
        device = pairs * own.cubin
        here = device + CPUS * host
        by_nvcc = CPUS * (ratio * (device + host) + others * without)
        yield Row(name, len(members), pairs, here / 3600, by_nvcc / 3600)


def report(categories: Mapping[str, Json], measured: Json) -> None:
    """Prints the tables of docs/modules.md."""
    sample = measured["sample"]
    print(
        "| module | SM target | cubins | CPU seconds of these | of host code and link | MB |\n|---|---|---:|---:|---:|---:|"
    )
    for entry in categories.values():
        for name in entry["sample"]:
            if name in sample:
                actions = sample[name]["actions"]
                device = spent(actions, DEVICE)
                rest = spent(actions, actions) - device
                size = f"{sample[name]['bytes'] / 1e6:.2f}" if "bytes" in sample[name] else ""
                cubins = actions.get("CudaCubin", (0, 0))[0]
                print(f"| `{name}` | {sample[name]['sm_target']} | {cubins} | {device:.0f} | {rest:.0f} | {size} |")
    for label in ("cu130", "cu134"):
        rows = sorted(estimate(label, categories, measured), key=lambda row: -row.here)
        print(f"\n| {label} | modules | cubins | CPU hours here | by nvcc |\n|---|---:|---:|---:|---:|")
        for row in rows:
            print(f"| {row.name} | {row.modules} | {row.cubins} | {row.here:.1f} | {row.nvcc:.1f} |")
        here, nvcc = sum(row.here for row in rows), sum(row.nvcc for row in rows)
        number, cubins = sum(row.modules for row in rows), sum(row.cubins for row in rows)
        print(f"| all | {number} | {cubins} | {here:.0f} | {nvcc:.0f} |\n\nhere relative to nvcc: {here / nvcc:.2f}")


# ---- What was measured ----------------------------------------------------------------------------------------------


def read_measured() -> Json:
    """What was measured."""
    return dict(json.loads(MEASURED.read_text())) if MEASURED.exists() else {"sample": {}, "nvcc": {}}


def record(part: str, name: str, result: Json) -> None:
    """Adds a result to modules.measured.json."""
    measured = read_measured()
    measured[part][name] = result
    temporary = MEASURED.with_suffix(".new")
    temporary.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    temporary.rename(MEASURED)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="compile and load the sample")
    parser.add_argument("--only", default="", help="the part of the sample with this in its name")
    parser.add_argument("--nvcc", action="store_true", help="compile some TUs by nvcc and by the build")
    args = parser.parse_args()
    content = json.loads(CATEGORIES.read_text())
    if args.measure:
        measure_all(content["categories"], args.only)
    elif args.nvcc:
        compare_all(content["nvcc"])
    else:
        report(content["categories"], read_measured())


if __name__ == "__main__":
    main()
