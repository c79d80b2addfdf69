"""The wheels as other tools read them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.wheel_abi import analyze_wheel_abi
from elftools.elf.elffile import ELFFile
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename
from test_sharing import SM_TARGETS

MACHINES = {"aarch64": "EM_AARCH64", "x86_64": "EM_X86_64"}


def test_names_agree_and_record_is_right(wheels: dict[str, Path]) -> None:
    assert len(wheels) == 6
    for name, path in wheels.items():
        distribution, version, _, tags = parse_wheel_filename(name)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            info = f"flashinfer_jit_cache-{version}.dist-info"
            metadata = Metadata.from_email(archive.read(f"{info}/METADATA"))
            assert (metadata.name, metadata.version) == (distribution, version)
            lines = archive.read(f"{info}/WHEEL").decode().splitlines()
            assert {line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")} == {
                str(tag) for tag in tags
            }
            record = list(csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode())))
            assert sorted(row[0] for row in record) == sorted(archive.namelist())
            assert archive.namelist()[-1] == f"{info}/RECORD"
            for member, digest, size in record[:-1]:
                data = archive.read(member)
                if digest:
                    assert (
                        digest
                        == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    )
                    assert int(size) == len(data)


def test_manifest_describes_the_wheel(wheels: dict[str, Path]) -> None:
    seen = set()
    for path in wheels.values():
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("flashinfer_jit_cache/manifest.json"))
            libraries = {Path(n).stem for n in archive.namelist() if n.endswith(".so")}
            assert set(manifest["modules"]) == libraries
            assert len(libraries) == 10
            for name, module in manifest["modules"].items():
                info = archive.getinfo(f"flashinfer_jit_cache/jit_cache/{name}/{name}.so")
                assert (module["bytes"], module["compressed_bytes"]) == (info.file_size, info.compress_size)
                assert module["sha256"] == hashlib.sha256(archive.read(info)).hexdigest()
                assert list(module["sm_targets"]) == manifest["sm_targets"]
            assert manifest["version"].endswith(f"+cu130.{manifest['sm_family']}")
            seen.update(manifest["sm_targets"])
    assert sorted(seen) == sorted(SM_TARGETS)


def test_every_module_is_of_its_wheels_cpu(wheels: dict[str, Path]) -> None:
    for name, path in wheels.items():
        cpu = name.removesuffix(".whl").partition("manylinux_2_28_")[2]
        with zipfile.ZipFile(path) as archive:
            for member in [n for n in archive.namelist() if n.endswith(".so")]:
                with archive.open(member) as file:
                    elf = ELFFile(file)
                    assert elf.header["e_machine"] == MACHINES[cpu], member
                    dynamic: Any = elf.get_section_by_name(".dynamic")
                    needed = {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
                    assert "libcudart.so.13" in needed
                    stack = [s for s in elf.iter_segments() if s["p_type"] == "PT_GNU_STACK"]
                    assert stack and not stack[0]["p_flags"] & 1, f"{member} asks for an executable stack"


def test_platform_tag_is_earned(wheels: dict[str, Path]) -> None:
    """By auditwheel's policy tables, every module asks for no more of the machine than the tag promises.

    libcudart comes with PyTorch or NVIDIA's packages, as upstream has it, so it is left out.
    """
    for name, path in wheels.items():
        cpu = name.removesuffix(".whl").partition("manylinux_2_28_")[2]
        result = analyze_wheel_abi(
            Libc.GLIBC,
            Architecture(cpu),
            path,
            frozenset(["libcudart.so.13"]),
            disable_isa_ext_check=False,
            allow_graft=False,
        )
        earned = re.fullmatch(r"manylinux_2_(\d+)_" + cpu, result.overall_policy.name)
        assert earned, f"{name}: {result.overall_policy.name}: {result.versioned_symbols}"
        assert int(earned[1]) <= 28, f"{name}: {result.versioned_symbols}"


def test_no_path_of_a_machine_is_in_a_wheel(wheels: dict[str, Path]) -> None:
    for path in wheels.values():
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                data = archive.read(member)
                for words in (b"/execroot/", b"/sandbox/", b"/tmp/tmp", f"{Path.home()}/".encode()):
                    assert words not in data, f"{member} of {path.name} names {words.decode()}"
