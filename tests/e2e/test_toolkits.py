"""Where toolkits come from: NVIDIA's archives through a mirror, an installed toolkit; and what each compiles for."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from installed_toolkit import installed_toolkit
from test_failures import edited
from test_sharing import DISTINCT, action_counts, expected_counts
from workspace import ROOT, Workspace

LOCKS = "toolchains/cuda/locks"
RELEASES = {"12.8": "12.8.2", "12.9": "12.9.2"}
CASES = json.loads((ROOT / "tests/sm_targets/cases.json").read_text())

# What an archive of a component must have to be analysed with; nothing of it can compile.
STAND_INS = {
    "cuda_nvcc": ["bin/nvcc", "nvvm/bin/cicc", "include/crt/host_config.h"],
    "cuda_cudart": ["include/cuda_runtime.h", "lib/libcudart.so.12"],
    "cuda_cccl": ["include/nv/target"],
    "libcurand": ["include/curand.h"],
}


def write_archive(path: Path, files: list[str]) -> str:
    """Writes a .tar.xz in the layout of NVIDIA's archives; returns its sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for name in files:
            # Bytes of their own: Bazel's repository cache answers for an archive that it has seen.
            data = f"stands in for a file of NVIDIA's, made for {path}\n".encode()
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.xz')}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unreachable(workspace: Workspace) -> Workspace:
    """The workspace on a machine without a network: nothing listens on port 9 (discard)."""
    proxies = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    return replace(workspace, environment={**workspace.environment, **proxies})


@contextmanager
def mirrored(workspace: Workspace, directory: Path) -> Iterator[Workspace]:
    """The workspace with a file mirror of 12.x in `directory`, whose stand-ins are what its locks pin."""
    with ExitStack() as stack:
        for version, release in RELEASES.items():
            lock = workspace.path / LOCKS / f"redistrib_{release}.json"
            manifest = json.loads(lock.read_text())
            for component, files in STAND_INS.items():
                for platform in ("linux-x86_64", "linux-sbsa"):
                    pin = manifest[component][platform]
                    pin["sha256"] = write_archive(directory / pin["relative_path"], files)
            stack.enter_context(edited(lock, r"(?s)\A.+\Z", json.dumps(manifest)))
            lock = workspace.path / LOCKS / f"{version}.txt"
            cublas = re.search(r"^nvidia-cublas-cu12==(\S+)", lock.read_text(), re.MULTILINE)[1]  # type: ignore[index]
            wheel = directory / f"nvidia_cublas_cu12-{cublas}-py3-none-manylinux_2_27_x86_64.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("nvidia/cublas/include/cublasLt.h", "")
                info = f"nvidia_cublas_cu12-{cublas}.dist-info"
                archive.writestr(
                    f"{info}/METADATA", f"Metadata-Version: 2.1\nName: nvidia-cublas-cu12\nVersion: {cublas}\n"
                )
                archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-manylinux_2_27_x86_64\n")
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            stack.enter_context(
                edited(lock, r"(nvidia-cublas-cu12==\S+ --hash=sha256:)[0-9a-f]{64}", rf"\g<1>{digest}")
            )
        environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(directory), "PIP_CONFIG_FILE": "/dev/null"}
        yield replace(
            unreachable(workspace),
            flags=(*workspace.flags, f"--repo_env=CUDA_REDIST_MIRROR=file://{directory}"),
            environment={**unreachable(workspace).environment, **environment},
        )


def test_all_24_wheels_are_analysed(elsewhere: Workspace, tmp_path: Path) -> None:
    """With a mirror: of a TU that supports all, 33 (SM target, CUDA version) pairs and 8 (CPU, CUDA version) pairs."""
    # What the other toolkits fetch must be there already: in the mirror is only 12.x.
    elsewhere.bazel("build", "--nobuild", "//wheels:cu130", "//wheels:cu134")
    with mirrored(elsewhere, tmp_path) as workspace:
        counts = action_counts(workspace, "//wheels:all")
        of_norm = action_counts(
            workspace, 'kind("cuda_(library|object) rule", filter(":norm[.]csrc_norm[.]", deps(//wheels:all)))'
        )
        for mnemonic, number in expected_counts(workspace, list(DISTINCT)).items():
            assert counts[mnemonic] == number
    assert counts["WheelPack"] == 24
    assert (of_norm["CudaCubin"], of_norm["CudaHostCompile"]) == (33, 8)
    assert sum(DISTINCT.values()) == 33


def test_an_archive_that_is_not_the_pinned_one(elsewhere: Workspace, tmp_path: Path) -> None:
    with mirrored(elsewhere, tmp_path) as workspace:
        [archive] = tmp_path.glob("cuda_nvcc/linux-x86_64/*12.9*")
        pinned = hashlib.sha256(archive.read_bytes()).hexdigest()
        archive.write_bytes(archive.read_bytes() + b"more")
        message = workspace.failure("@cuda_12_9_tools//:tools")
    assert f"the archive with sha256 {pinned}" in message
    assert f"Checksum was {hashlib.sha256(archive.read_bytes()).hexdigest()} but wanted {pinned}" in message
    assert f"file://{tmp_path}/cuda_nvcc/linux-x86_64/cuda_nvcc-linux-x86_64-12.9.86-archive.tar.xz" in message


@pytest.mark.parametrize("target", ["//wheels:cu128_aarch64_sm9x", "//wheels:cu129_x86_64_sm12x"])
def test_archives_that_cannot_be_reached(elsewhere: Workspace, target: str) -> None:
    """No 12.x wheel is built in CI: each fails at its toolkit, with one message."""
    version = {"cu128": "12.8", "cu129": "12.9"}[target[9:14]]
    release = RELEASES[version]
    # Never an archive that Bazel's repository cache has from a machine with a network.
    with edited(elsewhere.path / LOCKS / f"redistrib_{release}.json", "[0-9a-f]{64}", "0" * 64):
        message = unreachable(elsewhere).failure(target)
    for words in (
        f"of CUDA {version} (linux-", "could not be fetched", f"sha256 {'0' * 64} (pinned in locks/redistrib_{release}.json)",
        "sources tried", "compute/cuda/redist/cuda_", "--repo_env=CUDA_REDIST_MIRROR=", f"--repo_env=CUDA_HOME_{version.replace('.', '_')}=",
    ):  # fmt: skip
        assert words in message
    assert re.search(r"cuda_(nvcc|cudart) 12\.\d+\.\d+ of CUDA 12", message)


def test_nothing_of_12_is_fetched_for_the_rest(here: Workspace) -> None:
    """Wildcards, and the wheels of 13.x."""
    here.bazel("build", "--nobuild", "//...", "//wheels:cu130", "//wheels:cu134")
    fetched = {path.name.rpartition("~")[2] for path in here.repository("cuda_13_0_tools").parent.iterdir()}
    assert {"cuda_13_0_tools", "cuda_13_4_tools"} <= fetched
    assert not [name for name in fetched if name.startswith("cuda_12_")]


# ---- An installed toolkit --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_12_4(elsewhere: Workspace) -> Iterator[Workspace]:
    """The examples beside a copy that knows a toolkit of CUDA 12.4, which is installed."""
    names = [
        f'    "cuda_12_4_{part}",\n' for part in ("cublas", "curand", "runtime_aarch64", "runtime_x86_64", "tools")
    ]
    with (
        edited(
            elsewhere.path / "toolchains/cuda/private/toolkits.bzl",
            "TOOLKITS = {",
            'TOOLKITS = {\n    "12.4": _cuda_12("12.9", "12.9.2"),',
        ),
        edited(
            elsewhere.path / "MODULE.bazel", '    "cuda_12_8_cublas",\n', "".join(names) + '    "cuda_12_8_cublas",\n'
        ),
    ):
        examples = replace(
            elsewhere,
            path=elsewhere.path / "examples",
            flags=(
                *elsewhere.flags,
                "--@smwheel//toolchains/cuda:version=12.4",
                "--@smwheel//toolchains/cuda:sm_targets=8.0,9.0a",
                f"--repo_env=CUDA_HOME_12_4={installed_toolkit()}",
            ),
        )
        yield examples
        examples.bazel("shutdown")


@pytest.mark.parametrize("cpu", ["aarch64", "x86_64"])
def test_a_real_12_compiler(with_12_4: Workspace, cpu: str) -> None:
    """nvcc's steps of 12.x: the examples' modules are made for both CPUs, and x86_64's load."""
    platform = f"--platforms=@smwheel//toolchains/cc:{cpu}_linux"
    result = with_12_4.bazel("build", "//axpy", "//histogram", platform)
    assert (
        "CUDA 12.4 is taken from this machine. What is built with it is not hermetic." in result.stderr
        or cpu == "x86_64"
    )
    output = with_12_4.bazel("cquery", "//axpy + //histogram", platform, "--output=files").stdout
    root = Path(with_12_4.bazel("info", "execution_root").stdout.strip())
    for path in (root / line for line in output.splitlines()):
        with open(path, "rb") as file:
            elf = ELFFile(file)
            assert elf["e_machine"] == {"aarch64": "EM_AARCH64", "x86_64": "EM_X86_64"}[cpu]
            dynamic = elf.get_section_by_name(".dynamic")
            assert isinstance(dynamic, DynamicSection)
            assert "libcudart.so.12" in [getattr(tag, "needed", None) for tag in dynamic.iter_tags("DT_NEEDED")]
        if cpu == "x86_64":
            load = "import ctypes, sys; ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL); ctypes.CDLL(sys.argv[2])"
            cudart = installed_toolkit() / "targets/x86_64-linux/lib/libcudart.so.12"
            subprocess.run(["python3", "-c", load, cudart, path], check=True, env={"LD_BIND_NOW": "1"})


def test_an_installed_toolkit_of_another_version(elsewhere: Workspace) -> None:
    home = installed_toolkit()
    message = elsewhere.failure("@cuda_12_9_tools//:tools", f"--repo_env=CUDA_HOME_12_9={home}")
    for words in (f"CUDA_HOME_12_9={home} is not a toolkit of CUDA 12.9", "with bin/nvcc of release 12.9", "release 12.4, V12.4.131", "To do:"):  # fmt: skip
        assert words in message
    message = elsewhere.failure("@cuda_12_9_tools//:tools", "--repo_env=CUDA_HOME_12_9=/nowhere")
    assert "found:    no bin/nvcc" in message


def test_an_installed_toolkit_without_the_other_cpu(with_12_4: Workspace, tmp_path: Path) -> None:
    home = tmp_path / "cuda"
    shutil.copytree(installed_toolkit(), home, ignore=shutil.ignore_patterns("sbsa-linux", "include"))
    workspace = replace(with_12_4, flags=(*with_12_4.flags[:-1], f"--repo_env=CUDA_HOME_12_4={home}"))
    message = workspace.failure("//axpy", "--platforms=@smwheel//toolchains/cc:aarch64_linux")
    for words in (f"CUDA_HOME_12_4={home} has no libcudart for aarch64", "targets/sbsa-linux/lib", "install this part of CUDA 12.4"):  # fmt: skip
        assert words in message


# ---- What the toolkits compile for -----------------------------------------------------------------------------


def accepted(nvcc: Path, compiler: Path, sm_target: str) -> bool:
    """Whether nvcc takes an SM target; it asks the host compiler for its version."""
    name = sm_target.replace(".", "")
    command = [
        str(nvcc),
        "--dryrun",
        "-c",
        f"-gencode=arch=compute_{name},code=sm_{name}",
        "-ccbin",
        str(compiler),
        "x.cu",
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0 or "Unsupported gpu architecture" in result.stderr, result.stderr
    return result.returncode == 0


@pytest.mark.parametrize("version", ["12.4", "13.0", "13.4"])
def test_what_a_toolkit_supports(here: Workspace, version: str) -> None:
    """Every SM target of a toolkit's cells, and every row of the table that tells what it supports."""
    if version == "12.4":
        nvcc = installed_toolkit() / "bin/nvcc"
    else:
        name = f"cuda_{version.replace('.', '_')}_tools"
        here.bazel("build", "--nobuild", f"@{name}//:tools", "//wheels:cu130_x86_64_sm9x")
        nvcc = here.repository(name) / "files/bin/nvcc"
    compiler = here.repository("smwheel_gcc") / "bin/x86_64-linux-gnu-g++"
    every = [c + suffix for c in CASES["compute_capabilities"] for suffix in ("", "a", "f")]
    assert [sm for sm in every if accepted(nvcc, compiler, sm)] == CASES["toolkits"][version]
    here.bazel("build", "//wheels:matrix.json")
    [matrix] = here.files("//wheels:matrix.json")
    wheels = [w for w in json.loads(matrix.read_text())["wheels"] if w["cuda_version"] == version]
    assert {sm for w in wheels for sm in w["sm_targets"]} <= set(CASES["toolkits"][version])
    assert wheels or version == "12.4"
