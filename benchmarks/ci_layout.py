"""How long CI takes for the wheels of CUDA 13.0 and 13.4, by how its jobs are laid out: a simulation.

    python3 benchmarks/ci_layout.py [--cores 4] [--rate 100] [--fixed 90] [--download all|toplevel]
    python3 benchmarks/ci_layout.py --measure
    python3 benchmarks/ci_layout.py --check //wheels:cu130_x86_64_sm10x

The action graph is Bazel's own (aquery); each action takes as long as it took in a cold build, which --measure does, and
writes to ci_layout.measured.json. --check builds targets from nothing and compares with what the model says of this
machine. Both build in an output base of their own, with all that is fetched there already. docs/ci.md has the results.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedule import Task, schedule

ROOT = Path(__file__).resolve().parents[1]
MEASURED = Path(__file__).with_suffix(".measured.json")
MEASURE = "python3 benchmarks/ci_layout.py --measure"
CACHE = Path(
    os.environ.get("SMWHEEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smwheel"
)
LABELS = ("cu130", "cu134")
MACHINES = (1, 2, 4, 8, 16, 32)

# All of FlashInfer 0.7.4, as its own gen_all_modules lists it for each toolkit: (TU, SM target) pairs by SM target, TUs,
# modules. Of cu134's pairs that cu130 has not, the few that are not for 10.7a are counted there too.
_PAIRS = {
    **{"7.5": 1425, "8.0": 1580, "8.9": 1581, "9.0a": 3919, "10.0a": 4379},
    **{"10.3a": 4250, "11.0a": 1775, "12.0f": 3312, "12.1a": 3306},
}
FULL: dict[str, tuple[dict[str, int], int, int]] = {
    "cu130": (_PAIRS, 6319, 1532),
    "cu134": ({**_PAIRS, "10.7a": 3820}, 6399, 1576),
}


# ---- The action graph -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Action:
    """An action: what it is called in the measured table, and the actions whose outputs it reads."""

    mnemonic: str
    scope: str
    output: str
    outputs: tuple[str, ...]
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """The actions of the wheels by primary output, and what each target of //wheels needs by name."""

    actions: Mapping[str, Action]
    roots: Mapping[str, tuple[str, ...]]

    def closure(self, roots: Iterable[str]) -> list[str]:
        """The actions that `roots` need and they themselves, each after those that it needs."""
        found: dict[str, None] = {}
        stack = [(root, False) for root in reversed(list(roots))]
        while stack:
            name, expanded = stack.pop()
            if expanded:
                found[name] = None
            elif name not in found:
                stack.append((name, True))
                stack += [(need, False) for need in reversed(self.actions[name].needs) if need not in found]
        return list(found)

    def of(self, names: Iterable[str]) -> list[str]:
        """The actions that targets need."""
        return self.closure(root for name in names for root in self.roots[name])

    def dependents(self, changed: Iterable[str]) -> frozenset[str]:
        """The actions that changed and all that read of them."""
        result = set(changed)
        for name in self.closure(self.actions):
            if result.intersection(self.actions[name].needs):
                result.add(name)
        return frozenset(result)


def bazel(*arguments: str, output_base: Path | None = None) -> str:
    """What a Bazel command prints."""
    startup = [f"--output_base={output_base}"] if output_base else []
    command = [str(ROOT / "bazelw"), *startup, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"bazelw {' '.join(arguments)} failed:\n{result.stderr}")
    return result.stdout


def read_graph(matrix: Mapping[str, Any], output_base: Path | None = None) -> Graph:
    """Asks Bazel for the actions of the wheels of LABELS, and for what the groups and wheels of the matrix are made by."""
    targets = {
        f"//wheels:{entry['name']}": entry
        for kind in ("cubin_groups", "host_groups", "wheels")
        for entry in matrix[kind]
        if entry["cuda_label"] in LABELS
    }
    listing = " + ".join(targets)
    text = bazel(
        *("aquery", f"deps({listing})", "--output=jsonproto", "--noinclude_commandline"), output_base=output_base
    )
    actions, by_output = _actions(json.loads(text), targets)
    expression = "' '.join([str(target.label).lstrip('@')] + [f.path for f in target.files.to_list()])"
    files = bazel(
        *("cquery", listing, "--output=starlark", f"--starlark:expr={expression}"), output_base=output_base
    ).splitlines()
    roots: dict[str, tuple[str, ...]] = {}
    for label, *paths in (line.split() for line in files):
        made_by = [by_output[path] for path in paths]
        # A wheel's validation is built with it, though it is none of its files.
        made_by += [n for n, a in actions.items() if a.mnemonic == "WheelCheck" and a.scope == label.partition(":")[2]]
        roots[label.partition(":")[2]] = tuple(dict.fromkeys(made_by))
    return Graph(actions, roots)


def _actions(content: Any, targets: Mapping[str, Any]) -> tuple[dict[str, Action], dict[str, str]]:
    """Reads aquery's output: the actions, and the action that makes each file."""
    fragments = {f["id"]: f for f in content["pathFragments"]}
    labels = {t["id"]: t["label"].lstrip("@") for t in content["targets"]}

    def path(fragment: int) -> str:
        parts: list[str] = []
        at: int | None = fragment
        while at is not None:
            parts.append(fragments[at]["label"])
            at = fragments[at].get("parentId")
        return "/".join(reversed(parts))

    paths = {a["id"]: path(a["pathFragmentId"]) for a in content["artifacts"]}
    sets = {s["id"]: s for s in content["depSetOfFiles"]}
    maker = {output: action for action in content["actions"] for output in action["outputIds"]}
    made: dict[int, frozenset[int]] = {}

    def members(identifier: int) -> frozenset[int]:
        """The files of a depset that an action makes."""
        if identifier not in made:
            files = sets[identifier]
            own = frozenset(i for i in files.get("directArtifactIds", []) if i in maker)
            made[identifier] = own.union(*(members(i) for i in files.get("transitiveDepSetIds", [])))
        return made[identifier]

    actions: dict[str, Action] = {}
    by_output: dict[str, str] = {}
    for action in content["actions"]:
        primary = paths[action["primaryOutputId"]]
        needs = sorted(
            {
                paths[maker[i]["primaryOutputId"]]
                for s in action.get("inputDepSetIds", [])
                for i in members(s)
                if maker[i] is not action
            }
        )
        outputs = tuple(sorted(paths[i] for i in action["outputIds"]))
        for output in outputs:
            by_output[output] = primary
        short = re.sub(r"^bazel-out/[^/]*/bin/", "", primary)
        owner = labels[action["targetId"]]
        scope = owner.partition(":")[2] if owner in targets else ""
        actions[primary] = Action(action["mnemonic"], scope, short, outputs, tuple(needs))
    return _with_scopes(actions, targets), by_output


def _with_scopes(actions: Mapping[str, Action], targets: Mapping[str, Any]) -> dict[str, Action]:
    """Names the scope that an action is shared in: a CUDA label for device code, with a CPU for host code, else a wheel."""
    graph = Graph(actions, {})
    users: dict[str, set[str]] = {name: set() for name in actions}
    for name, action in actions.items():
        if action.mnemonic in ("WheelPack", "WheelCheck"):
            for needed in graph.closure([name]):
                users[needed].add(action.scope)

    def scope(name: str, action: Action) -> str:
        wheels = [targets[f"//wheels:{wheel}"] for wheel in users[name]]
        labels, cpus = {w["cuda_label"] for w in wheels}, {w["cpu"] for w in wheels}
        if action.scope or len(labels) != 1:
            return action.scope
        if action.mnemonic in ("CudaPreprocess", "CudaCubin"):
            return str(labels.pop())
        if action.mnemonic in ("CudaHostFront", "CudaHostCompile") and len(cpus) == 1:
            return f"{labels.pop()}_{cpus.pop()}"
        return str(wheels[0]["name"]) if len(wheels) == 1 else ""

    return {
        name: Action(action.mnemonic, scope(name, action), action.output, action.outputs, action.needs)
        for name, action in actions.items()
    }


# ---- What actions cost ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Seconds that an action takes, and bytes of its outputs. Both are zero for what Bazel does without a process."""

    seconds: float = 0
    size: float = 0


# Mnemonics that run a process. The rest costs nothing worth counting: Bazel does it itself, or it copies a few members of an
# archive, once for a wheel (CcNonshared).
PROCESSES = (
    *("CudaPreprocess", "CudaCubin", "CudaHostFront", "CudaHostCompile", "CudaFatbin", "CudaLink"),
    *("ModuleCheck", "WheelMember", "WheelPack", "WheelCheck"),
)


def costs_of(graph: Graph, table: Mapping[str, Any]) -> dict[str, Cost]:
    """The measured cost of each action of the graph.

    Raises SystemExit, with the command that measures, if the table lacks one.
    """
    costs = {}
    for name, action in graph.actions.items():
        if action.mnemonic not in PROCESSES or not action.scope:
            costs[name] = Cost()
            continue
        row = table.get(action.mnemonic, {}).get(action.scope, {}).get(action.output)
        if row is None:
            raise SystemExit(
                f"error: {MEASURED.name} has no time of {action.mnemonic} {action.output} of {action.scope}.\n"
                f"  To do: {MEASURE}"
            )
        costs[name] = Cost(*row)
    return costs


def extrapolated(graph: Graph, matrix: Mapping[str, Any], costs: Mapping[str, Cost]) -> dict[str, Cost]:
    """The costs of all of FlashInfer, spread over the actions of the modules that are here: its TUs take their mean."""
    factors: dict[str, float] = {}
    for group in matrix["cubin_groups"]:
        if group["cuda_label"] in FULL:
            pairs, _, _ = FULL[group["cuda_label"]]
            cubins = [
                n for n in graph.of([group["name"]]) if graph.actions[n].mnemonic in ("CudaPreprocess", "CudaCubin")
            ]
            factors |= {name: pairs[group["sm_target"]] / (len(cubins) / 2) for name in cubins}
    for label, (_, tus, modules) in FULL.items():
        of_label = {n: a for n, a in graph.actions.items() if a.scope.startswith(label) and n not in factors}
        here = len({a.output for a in of_label.values() if a.mnemonic == "CudaHostFront"})
        for name, action in of_label.items():
            if action.mnemonic.startswith("CudaHost"):
                factors[name] = tus / here
            else:
                factors[name] = modules / len({a.output for a in of_label.values() if a.mnemonic == "CudaLink"})
    return {n: Cost(c.seconds * factors.get(n, 1), c.size * factors.get(n, 1)) for n, c in costs.items()}


# ---- Layouts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Stages of jobs, each after all of the one before. A job builds targets; with `shared`, all read and fill one cache."""

    name: str
    stages: tuple[tuple[tuple[str, ...], ...], ...]
    shared: bool


@dataclass(frozen=True)
class Machine:
    """Machines of CI: cores of each, bytes a second from and to the cache, seconds of a job before Bazel runs an action."""

    cores: int
    rate: float
    fixed: float
    download: str = "all"
    whole: bool = False
    """Actions can be split at will: the work of a job is spread evenly over the cores."""


@dataclass(frozen=True)
class Job:
    """Seconds that a job takes, CPU seconds of its actions and its fixed part, bytes that it fetches and stores."""

    seconds: float
    cpu: float
    transferred: float


def layouts(matrix: Mapping[str, Any]) -> list[Layout]:
    """The layouts that are compared."""
    wheels = [wheel for wheel in matrix["wheels"] if wheel["cuda_label"] in LABELS]
    cells: dict[tuple[str, str], list[str]] = {}
    for wheel in wheels:
        cells.setdefault((wheel["cuda_label"], wheel["cpu"]), []).append(wheel["name"])
    device = tuple((g["name"],) for g in matrix["cubin_groups"] if g["cuda_label"] in LABELS)
    host = tuple((g["name"],) for g in matrix["host_groups"] if g["cuda_label"] in LABELS)
    each = tuple((wheel["name"],) for wheel in wheels)
    return [
        Layout("a job per cell", (tuple(tuple(names) for names in cells.values()),), shared=False),
        Layout("a job per wheel", (each,), shared=False),
        Layout("device, host, wheels", (device, host, each), shared=True),
        Layout("host beside device", (device + host, each), shared=True),
        Layout("one job", ((tuple(wheel["name"] for wheel in wheels),),), shared=True),
    ]


def job_of(
    graph: Graph,
    costs: Mapping[str, Cost],
    machine: Machine,
    targets: tuple[str, ...],
    cached: frozenset[str],
    shared: bool,
) -> tuple[Job, frozenset[str]]:
    """What a job costs that builds targets, and the actions that it runs, which then are in the cache too."""
    needed = graph.of(targets)
    run = frozenset(name for name in needed if name not in cached)
    tasks = {
        name: Task(costs[name].seconds, tuple(need for need in graph.actions[name].needs if need in run))
        for name in needed
        if name in run
    }
    work = sum(task.seconds for task in tasks.values())
    build = work / machine.cores if machine.whole else schedule(tasks, machine.cores).makespan
    fetched = set(needed) - run
    if machine.download == "toplevel":
        wanted = {need for name in run for need in graph.actions[name].needs}
        fetched &= wanted.union(*(graph.roots[target] for target in targets))
    size = sum(costs[name].size for name in [*fetched, *run]) if shared else 0.0
    return Job(machine.fixed + build + size / machine.rate, machine.fixed + work, size), run


def jobs_of(
    graph: Graph, costs: Mapping[str, Cost], machine: Machine, layout: Layout, warm: frozenset[str] = frozenset()
) -> list[list[Job]]:
    """The jobs of each stage. `warm` are the actions that the cache, if there is one, has before."""
    cached = warm if layout.shared else frozenset()
    stages = []
    for stage in layout.stages:
        results = [job_of(graph, costs, machine, targets, cached, layout.shared) for targets in stage]
        stages.append([job for job, _ in results])
        # Jobs of a stage run at the same time: what one stores, another of its stage may come too early for.
        if layout.shared:
            cached = cached.union(*(run for _, run in results))
    return stages


def wall_of(stages: list[list[Job]], machines: int) -> float:
    """Seconds until all jobs are done, each on a machine of its own, taken in their order."""
    tasks: dict[str, Task] = {}
    before: tuple[str, ...] = ()
    for number, stage in enumerate(stages):
        names = tuple(f"{number}.{index}" for index in range(len(stage)))
        tasks |= {name: Task(job.seconds, before) for name, job in zip(names, stage, strict=True)}
        before = names
    return schedule(tasks, machines).makespan


def farm(
    graph: Graph, costs: Mapping[str, Cost], machine: Machine, machines: int, warm: frozenset[str] = frozenset()
) -> Job:
    """One build whose actions run on a farm of machines. Each action's inputs that were made, and its outputs, travel."""
    run = {name: None for name in graph.of(graph.roots) if name not in warm}
    tasks, size = {}, 0.0
    for name in run:
        needs = graph.actions[name].needs
        moved = costs[name].size + sum(costs[need].size for need in needs) if costs[name].seconds else 0.0
        size += moved
        tasks[name] = Task(costs[name].seconds + moved / machine.rate, tuple(need for need in needs if need in run))
    slots = machines * machine.cores
    work = sum(costs[name].seconds for name in run)
    build = sum(t.seconds for t in tasks.values()) / slots if machine.whole else schedule(tasks, slots).makespan
    return Job(machine.fixed + build, machine.fixed + work, size)


# ---- Measuring --------------------------------------------------------------------------------------------------


def cold_build(output_base: Path, targets: list[str], profile: Path) -> float:
    """Builds targets from nothing, with everything fetched and analysed; returns the seconds. The profile is written."""
    own = ["--disk_cache=", "--remote_cache=", f"--profile={profile}", "--generate_json_trace_profile"]
    names = ["--experimental_profile_include_primary_output", "--noslim_profile"]
    # bazel-bin stays that of the person's own output base.
    apart = "--experimental_convenience_symlinks=ignore"
    bazel("build", "--nobuild", apart, *targets, output_base=output_base)
    bazel("clean", apart, output_base=output_base)
    bazel("build", "--nobuild", apart, *targets, output_base=output_base)
    start = time.monotonic()
    bazel("build", apart, *own, *names, *targets, output_base=output_base)
    return time.monotonic() - start


def durations(profile: Path) -> dict[str, float]:
    """Seconds of each action by primary output, from Bazel's profile."""
    with gzip.open(profile) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return {
        e["out"]: e["dur"] / 1e6 for e in events if e.get("cat") == "action processing" and "out" in e and "dur" in e
    }


def measure(matrix: Mapping[str, Any], output_base: Path, profile: Path) -> None:
    """Builds the wheels of LABELS from nothing, and writes down what each action took and made."""
    load = os.getloadavg()[0]
    wall = cold_build(output_base, [f"//wheels:{label}" for label in LABELS], profile)
    graph = read_graph(matrix, output_base)
    execution_root = Path(bazel("info", "execution_root", output_base=output_base).strip())
    took = durations(profile)
    table: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in graph.of(graph.roots):
        action = graph.actions[name]
        if action.mnemonic in PROCESSES and action.scope:
            if name not in took:
                raise SystemExit(f"error: Bazel's profile has no {action.mnemonic} {name}")
            size = sum((execution_root / output).stat().st_size for output in action.outputs)
            table.setdefault(action.mnemonic, {}).setdefault(action.scope, {})[action.output] = [
                round(took[name], 3),
                size,
            ]
    content = {
        "date": datetime.date.today().isoformat(),
        "machine": _processor(),
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "targets": [f"//wheels:{label}" for label in LABELS],
        "wall": round(wall, 1),
        "actions": table,
    }
    text = json.dumps(content, indent=1, sort_keys=True)
    # A line for each action.
    MEASURED.write_text(re.sub(r"\[\s+([\d.]+),\s+(\d+)\s+\]", r"[\1, \2]", text) + "\n")
    print(
        f"{MEASURED.name}: cold build {wall:.1f} s; actions {sum(took.values()):.1f} s; load average before {load:.2f}"
    )


def _processor() -> str:
    """The machine's processor, as Linux names it."""
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else "an unknown processor"


def check(graph: Graph, costs: Mapping[str, Cost], output_base: Path, targets: list[str], profile: Path) -> None:
    """Compares what the model says of a cold build on this machine with a cold build."""
    cores = os.cpu_count() or 1
    names = [target.removeprefix("//wheels:") for target in targets]
    if unknown := [name for name in names if name not in graph.roots]:
        raise SystemExit(
            f"error: expected wheels and their groups, such as {next(iter(graph.roots))}; found {', '.join(unknown)}"
        )
    machine = Machine(cores=cores, rate=1, fixed=0)
    predicted, _ = job_of(graph, costs, machine, tuple(names), frozenset(), shared=False)
    load = os.getloadavg()[0]
    measured = cold_build(output_base, targets, profile)
    took = durations(profile)
    now = sum(took.get(name, 0) for name in graph.of(names))
    print(f"{' '.join(targets)}, {cores} cores, load average before {load:.2f}")
    print(f"predicted {predicted.seconds:8.1f} s   from actions of {predicted.cpu:.1f} s in the table")
    print(f"measured  {measured:8.1f} s   with actions of {now:.1f} s")
    print(f"predicted : measured  {predicted.seconds / measured:.2f}")


# ---- Tables -----------------------------------------------------------------------------------------------------


def print_table(
    title: str, graph: Graph, costs: Mapping[str, Cost], machine: Machine, compared: list[Layout], warm: frozenset[str]
) -> None:
    """Prints minutes by number of machines for each layout and for a farm, and the ratio to the first layout."""
    stages = {layout.name: jobs_of(graph, costs, machine, layout, warm) for layout in compared}
    columns = [*stages, "a build farm"]
    pool = {n: farm(graph, costs, machine, n, warm) for n in MACHINES}
    print(f"\n{title}\n")
    print("| machines | " + " | ".join(columns) + " |")
    print("|---:|" + "---:|" * len(columns))
    for n in MACHINES:
        walls = [wall_of(jobs, n) for jobs in stages.values()] + [pool[n].seconds]
        print(f"| {n} | " + " | ".join(f"{wall / 60:.1f} ({wall / walls[0]:.2f})" for wall in walls) + " |")
    every = {name: [job for stage in jobs for job in stage] for name, jobs in stages.items()} | {"": [pool[1]]}
    rows = {
        "jobs": [f"{len(jobs)}" for jobs in every.values()],
        "CPU hours": [f"{sum(j.cpu for j in jobs) / 3600:.2f}" for jobs in every.values()],
        "GB moved": [f"{sum(j.transferred for j in jobs) / 1e9:.2f}" for jobs in every.values()],
    }
    for row, cells in rows.items():
        print(f"| {row} | " + " | ".join(cells) + " |")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=4, help="of each machine of CI (default: 4)")
    parser.add_argument("--rate", type=float, default=100, help="MB/s between a machine and the cache (default: 100)")
    parser.add_argument("--fixed", type=float, default=90, help="seconds before a job's first action (default: 90)")
    parser.add_argument("--download", choices=["all", "toplevel"], default="all", help="--remote_download_outputs")
    parser.add_argument("--edited", default="page.csrc_page", help="the TU whose edit is simulated")
    parser.add_argument("--added", default="cu130_sm_103a", help="the group of cubins whose addition is simulated")
    parser.add_argument("--measure", action="store_true", help="build from nothing and write the table")
    parser.add_argument("--check", nargs="+", metavar="TARGET", help="compare with a cold build of wheels or groups")
    args = parser.parse_args()
    bazel("build", "//wheels:matrix.json")
    matrix = json.loads((ROOT / "bazel-bin/wheels/matrix.json").read_text())
    output_base, profile = CACHE / "benchmark", CACHE / "ci_layout.profile.gz"
    if args.measure:
        measure(matrix, output_base, profile)
        bazel("shutdown", output_base=output_base)
        return
    if not MEASURED.exists():
        raise SystemExit(f"error: there is no {MEASURED.name}.\n  To do: {MEASURE}")
    content = json.loads(MEASURED.read_text())
    graph = read_graph(matrix)
    costs = costs_of(graph, content["actions"])
    if args.check:
        check(graph, costs, output_base, args.check, profile)
        bazel("shutdown", output_base=output_base)
        return
    machine = Machine(args.cores, args.rate * 1e6, args.fixed, args.download)
    whole = Machine(args.cores, args.rate * 1e6, args.fixed, args.download, whole=True)
    compared = layouts(matrix)
    everything = frozenset(graph.of(graph.roots))
    own, _ = job_of(
        graph, costs, Machine(content["cores"], rate=1, fixed=0), tuple(graph.roots), frozenset(), shared=False
    )
    print(
        f"Actions measured {content['date']} on {content['cores']} cores of {content['machine']}, load before {content['load_before']}."
    )
    print(f"That cold build took {content['wall']} s; the model gives {own.seconds:.1f} s.")
    print(
        f"Machines of {args.cores} cores; {args.rate:g} MB/s to the cache; {args.fixed:g} s before a job's first action."
    )
    print("Minutes, and in brackets the ratio to the first column.")
    edited = graph.dependents(
        n for n in everything if f"/{args.edited}." in f"/{graph.actions[n].output.rpartition('/')[2]}"
    )
    added = graph.dependents(graph.of([args.added]))
    full = extrapolated(graph, matrix, costs)
    cases = [("Nothing is in the cache", frozenset()), (f"{args.edited} was edited", everything - edited)]
    cases += [(f"{args.added} was added", everything - added), ("Nothing changed", everything)]
    for title, warm in cases:
        print_table(f"{title}:", graph, costs, machine, compared, frozenset(warm))
    for title, warm in cases:
        print_table(
            f"All of FlashInfer (extrapolated), {title[0].lower()}{title[1:]}:",
            graph,
            full,
            whole,
            compared,
            frozenset(warm),
        )


if __name__ == "__main__":
    main()
