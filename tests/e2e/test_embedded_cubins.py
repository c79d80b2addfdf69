"""Modules that load cubins from their own bytes: the cubins are the build's, where upstream's launcher looks for them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elf import Elf
from elftools.elf.elffile import ELFFile
from test_sharing import modules
from workspace import Workspace

SM_TARGET = "10.0a"

# Loads a module with all its symbols resolved. The driver is a library that has its functions and nothing in them.
LOAD = """
import ctypes, os, sys
from pathlib import Path
import nvidia.cu13, tvm_ffi
[cudart] = Path(nvidia.cu13.__path__[0], "lib").glob("libcudart.so.*")
for path in (str(cudart), sys.argv[1]):
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[2], mode=os.RTLD_NOW | os.RTLD_LOCAL)
"""


@pytest.fixture(scope="module")
def full(here: Workspace) -> Workspace:
    """This workspace with every module, and one SM target."""
    return replace(here, flags=(*here.flags, "--config=full", f"--//toolchains/cuda:sm_targets={SM_TARGET}"))


@pytest.fixture(scope="module", params=["flash_kda_generated_sm100a_", "alphamoe_fused_router_"])
def module(request: pytest.FixtureRequest, full: Workspace) -> str:
    """A module of FlashKDA with one cubin in an object; and AlphaMoE's, with many, most of them in a header of upstream's."""
    full.bazel("build", "//kernels:modules.cu130.txt")
    described: dict[str, Any] = modules(full)
    return next(name for name, m in described.items() if name.startswith(request.param) and m["embedded"])


def symbols(path: Path) -> dict[str, Any]:
    """The symbols of an object by name."""
    with path.open("rb") as file:
        table: Any = ELFFile(file).get_section_by_name(".symtab")
        return {symbol.name: symbol.entry for symbol in table.iter_symbols()}


def data(path: Path, symbol: str) -> tuple[Any, bytes]:
    """The entry of a symbol in an object, and what is from it to `<symbol>_end`."""
    found = symbols(path)
    start, end = found[symbol], found[f"{symbol}_end"]
    assert start["st_shndx"] == end["st_shndx"]
    elf = Elf(path.read_bytes(), path.name)
    return start, bytes(elf.content(elf.sections[start["st_shndx"]])[start["st_value"] : end["st_value"]])


def test_cubins_are_where_the_launcher_looks(full: Workspace, module: str, tmp_path: Path) -> None:
    embedded = modules(full)[module]["embedded"]
    package = f"@flashinfer//modules/{module}:"
    there = [cubin for cubin in embedded if cubin["sm_target"] == SM_TARGET]
    suffix = f".sm_{SM_TARGET.replace('.', '')}"
    cubins = [f"{package}embedded.{cubin['name']}{suffix}" for cubin in there]
    objects = [f"{package}embedded.{cubin['name']}" for cubin in there]
    absent = [f"{package}embedded.{cubin['name']}.absent" for cubin in embedded if cubin not in there]
    full.bazel("build", package + module, f"{package}{module}.hosts", *cubins, *objects, *absent)
    root = Path(full.bazel("info", "execution_root").stdout.strip())

    def files(targets: list[str]) -> list[Path]:
        """In the order of the targets."""
        if not targets:
            return []
        expression = 'str(target.label).split("//")[-1] + " " + target.files.to_list()[0].path'
        query = [" + ".join(targets), "--output=starlark", f"--starlark:expr={expression}"]
        lines = dict(line.split() for line in full.bazel("cquery", *query).stdout.splitlines())
        return [root / lines[target.partition("//")[2]] for target in targets]

    [library] = files([package + module])
    [host] = full.files(f"{package}{module}.hosts")
    contents = {cubin["name"]: path.read_bytes() for cubin, path in zip(there, files(cubins), strict=True)}

    # What upstream's host code asks for is what there is, for all SM targets.
    asked = {name for name, entry in symbols(host).items() if entry["st_shndx"] == "SHN_UNDEF"}
    wanted = {name for name in asked if "__tvm_ffi__cubin_" in name or name.endswith("_image")}
    assert {name.removesuffix("_end") for name in wanted} == {cubin["symbol"] for cubin in embedded}

    for cubin, object_ in zip(there, files(objects), strict=True):
        entry, content = data(object_, cubin["symbol"])
        assert content == contents[cubin["name"]]
        assert entry["st_other"]["visibility"] == "STV_HIDDEN"
    others = [cubin["symbol"] for cubin in embedded if cubin not in there]
    for symbol, object_ in zip(others, files(absent), strict=True):
        assert data(object_, symbol)[1] == bytes(64), "no driver takes it for a cubin"

    elf = Elf(library.read_bytes(), library.name)
    found = {s.name.split(".")[-1]: bytes(elf.content(s)) for s in elf.sections if s.name.startswith(".cubin.")}
    assert found == contents
    assert not [s.name for s in elf.symbols(".dynsym") if "__tvm_ffi__cubin_" in s.name or s.name.endswith("_image")]

    full.bazel("build", "//toolchains/cuda:stub_cuda")
    [driver] = full.files("//toolchains/cuda:stub_cuda")
    subprocess.run([sys.executable, "-c", LOAD, driver, library], check=True)

    if not [cubin for cubin in embedded if cubin["symbol"].endswith("_image")]:
        [cubin] = there
        upstreams(full, host, cubin["name"], contents[cubin["name"]], tmp_path)


def upstreams(full: Workspace, host: Path, name: str, content: bytes, work: Path) -> None:
    """What TVM-FFI's own program makes of the same host object and cubin has the same bytes at the same symbols."""
    tools = full.repository("smwheel_gcc") / "bin"
    for tool in ("ld", "objcopy"):
        (work / tool).write_text(f'#!/bin/sh\nexec {tools}/x86_64-linux-gnu-{tool} "$@"\n')
        (work / tool).chmod(0o755)
    (work / "a.cubin").write_bytes(content)
    program = [sys.executable, "-m", "tvm_ffi.utils.embed_cubin", f"--name={name}", f"--cubin={work / 'a.cubin'}"]
    paths = [f"--input-obj={host}", f"--output-obj={work / 'out.o'}"]
    subprocess.run([*program, *paths], env={"PATH": str(work)}, check=True)
    assert data(work / "out.o", f"__tvm_ffi__cubin_{name}")[1] == content


def test_a_cubin_is_shared_by_both_cpus(full: Workspace, module: str) -> None:
    """Objects are made for each CPU, cubins once."""
    query = " + ".join(f"//wheels:cu130_{cpu}_sm10x" for cpu in ("x86_64", "aarch64"))
    listed = full.bazel(
        "aquery",
        f'mnemonic("CudaCubin|CudaEmbed", deps({query}))',
        f"--//kernels:modules={module}",
        "--output=jsonproto",
        "--noinclude_artifacts",
        "--noinclude_commandline",
    ).stdout
    mnemonics = [action["mnemonic"] for action in json.loads(listed)["actions"]]
    described = modules(full)[module]
    of_tus = sum(tu["device_code"] * len(described["sm_targets"]) for tu in described["tus"])
    assert mnemonics.count("CudaEmbed") == 2 * len(described["embedded"])
    assert mnemonics.count("CudaCubin") == of_tus + len(described["embedded"])
