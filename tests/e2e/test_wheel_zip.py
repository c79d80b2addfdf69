"""What the strict reader says of wheels, and what pip, uv and unzip do with them."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
import wheel_pack
import wheel_zip
from packaging.utils import parse_wheel_filename
from zip_writer import Member, write_zip

UV = str(Path(sys.executable).parent / "uv")
INSTALLED_TOO = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"}  # written by the installers


def tree(directory: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, without what an installer writes of its own."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in INSTALLED_TOO | {".lock"}
    }


def install(installer: str, wheel: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Unpacks a wheel for whatever CPU it is."""
    cpu = wheel.stem.rpartition("manylinux_2_28_")[2]
    if installer == "uv":
        words = [UV, "pip", "install", "--offline", f"--cache-dir={directory}.cache", f"--python={sys.executable}"]
        words += [f"--python-platform={cpu}-manylinux_2_28"]
    else:
        words = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-compile"]
        words += ["--only-binary=:all:", f"--platform=manylinux_2_28_{cpu}"]
    words += ["--no-deps", f"--target={directory}", str(wheel)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def as_installed(wheel: wheel_zip.Wheel, digests: dict[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if name != f"{wheel.dist_info}/RECORD"}


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_wheels_install_as_they_are_read(wheels: dict[str, Path], installer: str, tmp_path: Path) -> None:
    for number, (name, path) in enumerate(wheels.items()):
        wheel = wheel_zip.read(path)
        digests = wheel_zip.verify(path, wheel)
        assert (wheel.name, wheel.size) == (name, path.stat().st_size)
        assert wheel.dist_info == f"flashinfer_jit_cache-{parse_wheel_filename(name)[1]}.dist-info"
        for module, entry in json.loads(wheel.texts["manifest.json"])["modules"].items():
            assert digests[f"flashinfer_jit_cache/jit_cache/{module}/{module}.so"] == entry["sha256"]
        result = install(installer, path, tmp_path / str(number))
        assert result.returncode == 0, result.stderr
        assert tree(tmp_path / str(number)) == as_installed(wheel, digests)


def test_unzip_tests_the_wheels(wheels: dict[str, Path]) -> None:
    for path in wheels.values():
        result = subprocess.run(["unzip", "-t", "-q", path], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_wheel_that_wheel_tags_rewrites_is_refused(wheels: dict[str, Path], tmp_path: Path) -> None:
    """It has other dates and compression, so it isn't what was built; zipfile writes as `wheel tags` does."""
    name, path = next(iter(wheels.items()))
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with pytest.raises(wheel_zip.WheelError, match="To do: build the wheel again"):
        wheel_zip.read(tmp_path / name)


def test_a_renamed_wheel_is_refused(wheels: dict[str, Path], tmp_path: Path) -> None:
    """uv would install it (facts of pip and uv: the version in METADATA is another)."""
    name, path = next((n, p) for n, p in wheels.items() if "+cu130.sm9x" in n)
    renamed = tmp_path / name.replace("+cu130.sm9x", "+cu130.sm12x")
    shutil.copy(path, renamed)
    with pytest.raises(wheel_zip.WheelError, match=r"dist-info directory\n  expected: .*sm12x.*\n  found: .*sm9x"):
        wheel_zip.verify(renamed, wheel_zip.read(renamed))


def random_wheel(rng: random.Random, path: Path) -> None:
    """A small wheel with names, streams and modes of many kinds, as the packer writes it."""
    spec = {
        "distribution": "a-kernel",
        "version": "1.0",
        "summary": "Kernels",
        "license": "Apache-2.0",
        "license_files": {},
        "generator": "smwheel",
        "tag": "cp39-abi3-manylinux_2_28_x86_64",
    }
    info = "a_kernel-1.0.dist-info"
    parts = ["a", "B", "é", "e\u0301", "文", " ", ".", "..", "", "a.", "\\", "~", "a,b", '"', "%2e", "$x", "-"]
    files = {
        "/".join(
            ["a_kernel", *("".join(rng.choices(parts, k=rng.randint(1, 2))) for _ in range(rng.randint(1, 2)))]
        ): rng.choice([b"", b"x", rng.randbytes(300), bytes(70000)])
        for _ in range(rng.randint(1, 2))
    }
    files["a_kernel/manifest.json"] = b"{}"
    files[f"{info}/METADATA"] = wheel_pack.metadata(spec).encode()
    files[f"{info}/WHEEL"] = wheel_pack.wheel_file(spec).encode()
    entries = [(name, hashlib.sha256(data).hexdigest(), len(data)) for name, data in files.items()]
    files[f"{info}/RECORD"] = wheel_pack.record(entries, f"{info}/RECORD").encode()
    members = []
    for name, data in files.items():
        compressor = zlib.compressobj(rng.randint(0, 9), zlib.DEFLATED, -15, strategy=rng.randint(0, 4))
        stream = compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH) + compressor.flush()
        members.append(Member(name, stream, zlib.crc32(data), len(data), rng.choice([0o644, 0o755])))
    write_zip(path, members)


def test_what_is_accepted_installs_alike(tmp_path: Path) -> None:
    """pip, uv and unzip agree on the wheels that the reader accepts; those that it refuses don't matter."""
    rng = random.Random(4)
    accepted = 0
    for number in range(60):
        path = tmp_path / str(number) / "a_kernel-1.0-cp39-abi3-manylinux_2_28_x86_64.whl"
        path.parent.mkdir()
        random_wheel(rng, path)
        try:
            wheel = wheel_zip.read(path)
            digests = wheel_zip.verify(path, wheel)
        except wheel_zip.WheelError:
            continue
        accepted += 1
        for installer in ("uv", "pip") if accepted % 8 == 0 else ("uv",):
            target = path.parent / installer
            result = install(installer, path, target)
            assert result.returncode == 0, f"{sorted(digests)}\n{result.stderr}"
            assert tree(target) == as_installed(wheel, digests)
        result = subprocess.run(["unzip", "-t", "-q", path], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{sorted(digests)}\n{result.stdout}{result.stderr}"
    assert accepted > 15
