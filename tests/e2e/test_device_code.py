"""The census and its ELF reader, on the modules of real wheels, against NVIDIA's cuobjdump and pyelftools."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import elf
import pytest
from census import check, take
from elftools.elf.elffile import ELFFile
from sm_targets import parse
from test_sharing import modules as tus_of_modules
from workspace import Workspace
from zstd import Zstd

# An image: kind, SM target, kernels.
Found = tuple[str, str, set[str]]


@pytest.fixture(scope="session")
def cuobjdump(here: Workspace) -> Path:
    """NVIDIA's program."""
    here.bazel("build", "@cuobjdump//:files/bin/cuobjdump")
    return here.repository("cuobjdump") / "files/bin/cuobjdump"


@pytest.fixture(scope="session")
def zstd(here: Workspace) -> Zstd:
    """The pinned libzstd."""
    here.bazel("build", "//tools/wheel:libzstd")
    return Zstd(str(here.repository("libzstd") / "files/usr/lib/x86_64-linux-gnu/libzstd.so.1"))


@pytest.fixture(scope="session")
def modules(here: Workspace, wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The modules of the six wheels of CUDA 13.0, and of the wheels of tests/tools/wheel/census (two toolkits, two CPUs)."""
    assert len(wheels) == 6
    samples = [f"//tests/tools/wheel/census:{name}" for name in ("cu130_x86_64", "cu134_aarch64")]
    here.bazel("build", *samples)
    paths: list[Path] = []
    for path in [*wheels.values(), *(path for sample in samples for path in here.files(sample))]:
        directory = tmp_path_factory.mktemp(path.stem)
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(directory)
        paths += sorted(directory.glob("*/jit_cache/*/*.so"))
    assert len(paths) == 6 * 10 + 2
    return paths


def images_by_cuobjdump(cuobjdump: Path, path: Path) -> list[Found]:
    """What `cuobjdump -symbols -ptx` says: kind, SM target, kernels of each image."""
    command = [str(cuobjdump), "-symbols", "-ptx", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[Found] = []
    kind = ""
    for line in said.splitlines():
        if match := re.fullmatch(r"Fatbin (elf|ptx) code:", line):
            kind = {"elf": "sass", "ptx": "ptx"}[match[1]]
        elif match := re.fullmatch(r"arch = (sm_\w+)", line):
            found.append((kind, str(parse(match[1])), set()))
        elif match := re.fullmatch(r"STT_FUNC +\S+ +STO_ENTRY +(\S+) *|\.(?:visible|weak) \.entry (\w+)\(", line):
            found[-1][2].add(match[1] or match[2])
    return found


def test_same_images_and_kernels_as_cuobjdump(modules: list[Path], cuobjdump: Path, zstd: Zstd) -> None:
    count = 0
    for path in modules:
        census = take(path.read_bytes(), path.name, zstd)
        found = [(i.kind, i.sm, set(i.kernels)) for images in census for i in images]
        expected = images_by_cuobjdump(cuobjdump, path)
        assert found == expected, path
        assert all(len(i.kernels) == len(set(i.kernels)) for images in census for i in images)
        assert all(kernels for _, _, kernels in found), path
        # The list of files is made of what the cubins themselves tell, in which nothing says `f`.
        listed = subprocess.run([cuobjdump, "--list-elf", path], capture_output=True, text=True, check=True).stdout
        names = [str(parse(sm)) for sm in re.findall(r"\.(sm_\w+)\.cubin$", listed, re.MULTILINE)]
        assert names == [sm.rstrip("f") for _, sm, _ in expected], path
        count += len(found)
    assert count > 200


def test_wheels_hold_what_was_built(here: Workspace, modules: list[Path], zstd: Zstd) -> None:
    """Without allowances: no kernel is left out for any SM target."""
    described = tus_of_modules(here)
    for path in modules:
        if path.stem in described:
            manifest = json.loads((path.parents[2] / "manifest.json").read_text())
            sm_targets = list(manifest["modules"][path.stem]["sm_targets"])
            tus = [tu["src"] for tu in described[path.stem]["tus"] if tu["device_code"]]
            census = take(path.read_bytes(), path.name, zstd)
            assert check(path.stem, census, dict.fromkeys(tus, sm_targets)) == []


def test_same_elf_as_pyelftools(modules: list[Path]) -> None:
    for path in modules:
        with path.open("rb") as stream:
            theirs: Any = ELFFile(stream)
            ours = elf.Elf(path.read_bytes(), path.name)
            assert ours.machine == {"EM_X86_64": elf.EM_X86_64, "EM_AARCH64": elf.EM_AARCH64}[theirs.header.e_machine]
            assert [
                (s.name, s.flags, s.address, s.offset, s.size, s.link, s.info, s.entry_size) for s in ours.sections
            ] == [
                (s.name, h.sh_flags, h.sh_addr, h.sh_offset, h.sh_size, h.sh_link, h.sh_info, h.sh_entsize)
                for s in theirs.iter_sections()
                for h in [s.header]
            ]
            assert [(s.name, s.value, s.size) for s in ours.symbols(".dynsym")] == [
                (s.name, s.entry.st_value, s.entry.st_size)
                for s in theirs.get_section_by_name(".dynsym").iter_symbols()
            ]
            assert [(r.offset, r.type, r.symbol, r.addend) for r in ours.relocations(".rela.dyn")] == [
                (r.entry.r_offset, r.entry.r_info_type, r.entry.r_info_sym, r.entry.r_addend)
                for r in theirs.get_section_by_name(".rela.dyn").iter_relocations()
            ]
            tags = list(theirs.get_section_by_name(".dynamic").iter_tags())
            dynamic = ours.dynamic()
            assert list(dynamic.needed) == [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
            assert [dynamic.flags] == [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"]
            assert [dynamic.flags_1] == [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS_1"]
            assert not {"DT_TEXTREL", "DT_RPATH", "DT_RUNPATH", "DT_SONAME"} & {tag.entry.d_tag for tag in tags}
            assert (dynamic.textrel, dynamic.rpath, dynamic.runpath, dynamic.soname) == (False, None, None, None)
            assert ours.needed_versions() == {
                need.name: {version.name for version in versions}
                for need, versions in theirs.get_section_by_name(".gnu.version_r").iter_versions()
            }
