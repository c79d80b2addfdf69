"""The ELF gate on the modules of real wheels, against auditwheel's policies and analysis, and objdump's reading of code."""

from __future__ import annotations

import json
import re
import subprocess
import time
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import elf_gate
import instructions_aarch64
import instructions_x86_64
import pytest
from auditwheel.elfutils import elf_find_versioned_symbols
from elf import Elf
from elftools.elf.elffile import ELFFile
from packaging.utils import parse_wheel_filename
from workspace import Workspace

CPUS = ("x86_64", "aarch64")


def numeric(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.fixture(scope="session")
def modules(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """The modules of each of the six wheels, by the wheel's file name and their own."""
    assert len(wheels) == 6
    found: dict[str, dict[str, Path]] = {}
    for name, path in wheels.items():
        directory = tmp_path_factory.mktemp("wheel")
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(directory)
        found[name] = {module.stem: module for module in sorted(directory.glob("*/jit_cache/*/*.so"))}
        assert len(found[name]) == 10
    return found


def cpu_of(wheel: str) -> str:
    [cpu] = [cpu for cpu in CPUS if wheel.endswith(f"_{cpu}.whl")]
    return cpu


def test_wheels_keep_their_promise(modules: dict[str, dict[str, Path]]) -> None:
    start, size = time.monotonic(), 0
    for wheel, paths in modules.items():
        [tag] = {tag.platform for tag in parse_wheel_filename(wheel)[3]}
        cpu = cpu_of(wheel)
        facts = {}
        for name, path in paths.items():
            elf = Elf(path.read_bytes(), path.name)
            size += len(elf.data)
            facts[name] = elf_gate.facts_of(elf)
            assert elf_gate.check(name, elf, facts[name], cpu=cpu, cuda_version="13.0", tag=tag) == []
        assert elf_gate.platform_tag(facts.values(), cpu) == tag == f"manylinux_2_28_{cpu}"
        assert elf_gate.check_tag(wheel, tag, facts) is None
        assert elf_gate.check_tag(wheel, f"manylinux_2_31_{cpu}", facts)
    seconds = time.monotonic() - start
    print(f"60 modules, {size} bytes, {seconds:.1f} s")
    assert seconds < 20


def test_same_symbol_versions_as_auditwheel(modules: dict[str, dict[str, Path]]) -> None:
    for paths in modules.values():
        for path in paths.values():
            with path.open("rb") as stream:
                # What auditwheel holds against a policy's lists: (library, version), `libc.so.6`, `GLIBC_2.17`.
                theirs = set(elf_find_versioned_symbols(ELFFile(stream)))
            elf = Elf(path.read_bytes(), path.name)
            ours = {(library, version) for library, versions in elf.needed_versions().items() for version in versions}
            assert {pair for pair in ours if not pair[0].startswith("ld-linux")} == theirs
            highest: dict[str, str] = {}
            for _, version in theirs:
                namespace, _, number = version.rpartition("_")
                if namespace:
                    highest[namespace] = max(highest.get(namespace, "0"), number, key=numeric)
            facts = elf_gate.facts_of(elf)
            assert facts.versions == highest
            assert facts.glibc == highest["GLIBC"]


def test_same_policies_as_auditwheel() -> None:
    text = resources.files("auditwheel").joinpath("policy/manylinux-policy.json").read_text()
    theirs: list[dict[str, Any]] = [
        policy
        for policy in json.loads(text)
        if policy["name"] != "linux" and numeric(policy["name"].removeprefix("manylinux_").replace("_", ".")) >= (2, 28)
    ]
    for policy in theirs:
        assert set(policy["lib_whitelist"]) == elf_gate.SYSTEM_LIBRARIES, policy["name"]
    for cpu in CPUS:
        expected: dict[str, dict[str, str]] = {}
        not_numbers: set[str] = set()
        for policy in theirs:
            name = policy["name"].removeprefix("manylinux_").replace("_", ".")
            expected[name] = {}
            for namespace, versions in policy["symbol_versions"][cpu].items():
                numbers = [version for version in versions if re.fullmatch(r"[\d.]+", version)]
                expected[name][namespace] = max(numbers, key=numeric)
                for version in set(versions) - set(numbers):
                    not_numbers.add(f"{namespace}_{version}")
                    _, first = elf_gate._NOT_NUMBERS[f"{namespace}_{version}"]
                    assert numeric(first) <= numeric(expected[name][namespace])
        assert elf_gate.POLICIES[cpu] == dict(sorted(expected.items(), key=lambda item: numeric(item[0])))
        assert not_numbers <= elf_gate._NOT_NUMBERS.keys()


@pytest.mark.parametrize("cpu", CPUS)
def test_code_is_read_as_objdump_reads_it(cpu: str, here: Workspace, modules: dict[str, dict[str, Path]]) -> None:
    """What begins where objdump has an instruction ends where objdump's next one begins, and is of the baseline."""
    objdump = here.repository("smwheel_gcc") / f"bin/{cpu}-linux-gnu-objdump"
    extensions = {"x86_64": instructions_x86_64, "aarch64": instructions_aarch64}[cpu].extensions
    wheel = next(name for name in modules if cpu_of(name) == cpu)
    count = 0
    for path in modules[wheel].values():
        command = [str(objdump), "-dw", "-j", ".text", "--no-show-raw-insn", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        starts = [int(address, 16) for address in re.findall(r"^ *([0-9a-f]+):\t", said, re.MULTILINE)]
        elf = Elf(path.read_bytes(), path.name)
        section = elf.section(".text")
        assert section
        content = bytes(elf.content(section))
        for start, end in zip(starts, [*starts[1:], section.address + section.size], strict=True):
            instruction = content[start - section.address : end - section.address]
            found = [name for _, name in extensions(instruction)]
            # One that is alone has no guard.
            assert found == [] or (cpu == "aarch64" and found == ["LSE"]), (path, hex(start))
            if cpu == "x86_64" and 1 < len(instruction) and instruction[0]:
                last = [name for _, name in extensions(instruction[:-1])]
                assert last[-1:] == ["unknown"], (path, hex(start), instruction.hex())
        count += len(starts)
    assert count > 100000
