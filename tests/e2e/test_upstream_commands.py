"""What is described of each module is what upstream's own ninja file for it says.

With what is fetched, and with everything provided that a person may provide: real headers of NCCL and torch, made files of the
cubin server.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import provisions
import pytest
from workspace import ROOT

Json = dict[str, Any]
IMPORTER = ROOT / "kernels" / "flashinfer"
CELLS = {
    "cu130": "13.0:7.5 8.0 8.9 9.0a 10.0a 10.3a 11.0a 12.0f 12.1a",
    "cu134": "13.4:7.5 8.0 8.9 9.0a 10.0a 10.3a 10.7a 11.0a 12.0f 12.1a",
}

FILES = {"profile": "full", "core": "core", "deviations": "deviations"}
# Modules with sources that upstream's list lacks, each with its reason.
DEVIATIONS = json.loads((IMPORTER / "deviations.json").read_text())
ADDED = DEVIATIONS["sources"]

# What the description leaves out of a command line, and why.
LEFT_OUT = {
    r"--threads=\d+": "how many processes nvcc starts; nvcc's steps are actions here",
    r"-isystem .*/include/python3\.\d+": "which Python's: who includes Python.h has the pinned one's, in the same place",
}
# Include directories that every command line has, in their order. What is between two numbers is the module's own.
CCCL = ["@cccl@/cub", "@cccl@/libcudacxx/include", "@cccl@/thrust"]
SYSTEM = [
    "$cuda_home/include",
    "/tvm_ffi",
    "/tvm_ffi",
    "@include@",
    "@csrc@",
    "@cutlass@/include",
    "@cutlass@/tools/util/include",
    "@spdlog@/include",
]


@dataclass
class Command:
    """One compile command of a ninja file."""

    source: str
    flags: list[str] = field(default_factory=list)
    gencode: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)


def parse(text: str) -> tuple[list[Command], list[str]]:
    """The compile commands of a ninja file in the order of its link, and what the link has besides objects."""
    variables: dict[str, str] = {}
    own: dict[str, str] = {}
    builds: list[tuple[str, str, dict[str, str]]] = []
    for line in text.replace("$\n", "").splitlines():
        if match := re.match(r"build (\S+): (\w+) (.*)", line):
            own = {}
            builds.append((match[2], match[3], own))
        elif match := re.match(r"(\s*)(\w+) = ?(.*)", line):
            (own if match[1] else variables)[match[2]] = match[3]
        elif line.startswith("rule "):
            own = {}
    commands = []
    for rule, source, changed in builds:
        if rule in ("compile", "cuda_compile"):
            name = "cuda_cflags" if rule == "cuda_compile" else "cflags"
            line = {**variables, **changed}[name].replace("$common_cflags", variables["common_cflags"])
            commands.append(take_apart(source, re.split(r" {2,}", re.sub(r" (?=-I|-isystem)", "  ", line))))
    return commands, shlex.split(variables["ldflags"])


def take_apart(source: str, words: list[str]) -> Command:
    command = Command(source)
    for word in (w.strip() for w in words):
        if any(re.fullmatch(pattern, word) for pattern in LEFT_OUT):
            continue
        if match := re.match(r"-I(\S+)", word):
            (command.late if CCCL[-1] in command.own else command.own).append(match[1])
        elif match := re.match(r"-isystem (\S+)", word):
            command.system.append(match[1])
        elif match := re.fullmatch(r"-gencode=arch=compute_\w+,code=sm_(\d+)(\d)([af]?)", word):
            command.gencode.append(f"{match[1]}.{match[2]}{match[3]}")
        else:
            command.flags += shlex.split(word)
    assert command.own[-3:] == CCCL, source
    del command.own[-3:]
    return command


def named(path: str) -> str:
    """`csrc/norm.cu` for `@csrc@/norm.cu`."""
    return re.sub(r"^@([\w/]+)@", r"\1", path)


def libraries(link: list[str]) -> list[str]:
    """What a link has besides objects, with libraries that who loads the module has loaded by name."""
    loaded = [re.sub(r"^/.*/nccl/lib/libnccl\.so\.2$", "-lnccl", word) for word in link]
    return [word for word in loaded if not re.fullmatch(r"(-L|-Wl,-rpath,)/.*/(nccl|torch)/lib", word)]


@pytest.fixture(scope="module", params=["nothing provided", "everything provided"])
def described(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the importer makes of all modules, and upstream's ninja files in <label>.ninja/."""
    out = tmp_path_factory.mktemp("described")
    spec = find_spec("flashinfer")
    assert spec and spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    site = out / "site"
    site.mkdir()
    for name in ("jinja2", "markupsafe", "packaging", "filelock"):
        found = find_spec(name)
        assert found and found.origin
        (site / name).symlink_to(Path(found.origin).parent)
    trees = [
        f"--python-root={package.parent}",
        f"--first-party={package / 'data'}",
        f"--third-party={package / 'data'}",
    ]
    if request.param == "everything provided":
        provisions.cubins(package, out / "python", out / "cubins")
        trees[0] = f"--python-root={out / 'python'}"
        trees += [
            f"--nccl={provisions.nccl()}",
            f"--torch={provisions.torch(out / 'torch')}",
            f"--cubins={out / 'cubins'}",
        ]
    python = [sys.executable, "-E", "-s", "-B"]
    for label, cell in CELLS.items():
        options = [f"--site={site}", f"--out={out}", f"--cell={label}={cell}", f"--ninja={out / label}.ninja"]
        subprocess.run([*python, str(IMPORTER / "upstream.py"), *trees, *options], check=True)
    profiles = [f"--{option}={IMPORTER / file}.json" for option, file in FILES.items()]
    specs = [f"--specs={out / label}" for label in CELLS]
    labels = ["--module-bzl=//:module.bzl", "--defs-bzl=//:defs.bzl"]
    subprocess.run(
        [*python, str(IMPORTER / "importer.py"), *trees, *specs, *profiles, *labels, f"--out={out / 'all'}"], check=True
    )
    return out


@pytest.mark.parametrize("label", CELLS)
def test_every_module(described: Path, label: str) -> None:
    """Sources, flags, SM targets, include directories and libraries, each in upstream's order."""
    modules: dict[str, Json] = json.loads((described / "all" / label / "modules.json").read_text())
    assert len(modules) > 1300
    for name, module in modules.items():
        commands, link = parse((described / f"{label}.ninja" / f"{name}.ninja").read_text())
        added = ADDED[name]["add"] if name in ADDED else []
        assert [tu["src"] for tu in module["tus"]] == [named(c.source) for c in commands] + added, name
        for tu, command in zip(module["tus"], commands, strict=not added):
            where = f"{name}: {command.source}"
            # A directory that is searched as a system directory too is searched there: gcc ignores its -I.
            own = [d for d in dict.fromkeys(command.own) if d not in SYSTEM]
            late = [d for d in dict.fromkeys(command.late) if d not in [*SYSTEM, *own, *CCCL]]
            assert tu["copts"] == command.flags, where
            assert tu["includes"] == [named(d) for d in own], where
            assert tu["late_includes"] == [named(d) for d in late], where
            assert command.system == SYSTEM, where
            if tu["src"].endswith(".cu"):
                assert module["sm_targets"] == command.gencode, where
        assert link[:5] == ["-shared", "-L$cuda_home/lib64", "-L$cuda_home/lib64/stubs", "-lcudart", "-lcuda"], name
        assert module["linkopts"] == libraries(link[5:]), name


def test_nothing_is_missing(described: Path) -> None:
    """Every module that upstream has is described, or listed with a reason."""
    for label in CELLS:
        modules = json.loads((described / "all" / label / "modules.json").read_text())
        lines = (described / "all" / f"modules.{label}.txt").read_text().splitlines()
        statuses = dict(line.split("\t") for line in lines)
        assert sorted(statuses) == sorted(path.stem for path in (described / f"{label}.ninja").iterdir())
        assert {name for name, status in statuses.items() if status == "built"} == set(modules)
        assert all(statuses.values())
        if (described / "cubins").exists():
            reasons = {status for status in statuses.values() if status != "built"}
            assert reasons == set(DEVIATIONS["not_built"].values())


def test_paths_of_this_machine(described: Path) -> None:
    """Nothing that the importer writes says where something lies that was provided."""
    for path in (described / "all").rglob("*"):
        if path.suffix in (".bazel", ".bzl", ".json", ".txt"):
            assert str(described) not in path.read_text()
