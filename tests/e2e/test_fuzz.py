"""hypothesis damages real wheels and modules: what reads them gives the right answer or an error of its own.

tests/tools/wheel damages them at random as well, tens of thousands of times, at places that matter; hypothesis searches on its own, and
says which change it was, made as small as it can.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import census
import elf_gate
import pytest
import wheel_zip
from elf import ElfError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workspace import Workspace
from zstd import Zstd

# Each example reads a whole file, so there are not many; one that hangs fails by the deadline.
FEW = settings(
    max_examples=500,
    deadline=timedelta(seconds=10),
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

Change = Callable[[bytes], bytes]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Up to four changes: a place (from the start or the end of the file, where its tables are, or anywhere), and what is done there."""
    edits = draw(
        st.lists(
            st.tuples(
                st.one_of(st.integers(0, 512), st.integers(-4096, -1), st.integers(0, 1 << 24)),
                st.sampled_from(["write", "insert", "drop", "end"]),
                st.binary(min_size=1, max_size=8),
            ),
            min_size=1,
            max_size=4,
        )
    )

    def change(data: bytes) -> bytes:
        for place, what, value in edits:
            at = place % max(len(data), 1)
            if what == "write":
                data = data[:at] + value + data[at + len(value) :]
            elif what == "insert":
                data = data[:at] + value + data[at:]
            elif what == "drop":
                data = data[:at] + data[at + len(value) :]
            else:
                data = data[:at]
        return data

    change.__qualname__ = f"changes({edits})"
    return change


@pytest.fixture(scope="module")
def wheel(wheels: dict[str, Path]) -> Path:
    """The smallest of the wheels."""
    return min(wheels.values(), key=lambda path: path.stat().st_size)


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def module(wheels: dict[str, Path], request: pytest.FixtureRequest) -> bytes:
    """A module with device code."""
    path = next(path for name, path in wheels.items() if request.param in name)
    with zipfile.ZipFile(path) as archive:
        return archive.read("flashinfer_jit_cache/jit_cache/page/page.so")


@pytest.fixture(scope="module")
def zstd(here: Workspace) -> Zstd:
    """The library that fatbins are decompressed with."""
    [path] = here.repository("libzstd").glob("files/usr/lib/*/libzstd.so.1")
    return Zstd(str(path))


def test_a_wheel(wheel: Path, tmp_path: Path) -> None:
    """It is refused, or its files are to the byte what Python's zipfile reads."""
    whole = wheel.read_bytes()
    path = tmp_path / wheel.name

    @FEW
    @given(changes())
    def damaged(change: Change) -> None:
        data = change(whole)
        path.write_bytes(data)
        try:
            digests = wheel_zip.verify(path, wheel_zip.read(path))
        except wheel_zip.WheelError as error:
            assert wheel.name in str(error)
            return
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert digests == {n: hashlib.sha256(archive.read(n)).hexdigest() for n in archive.namelist()}

    damaged()


def test_a_module(module: bytes, zstd: Zstd) -> None:
    """The ELF gate and the census read it, or refuse it by its name: no other exception, and none takes long."""
    facts, images = elf_gate.read(module, "page.so"), census.take(module, "page.so", zstd)

    @FEW
    @given(changes())
    def damaged(change: Change) -> None:
        data = change(module)
        for read, whole in (
            (lambda: elf_gate.read(data, "page.so"), facts),
            (lambda: census.take(data, "page.so", zstd), images),
        ):
            try:
                found = read()
            except ElfError as error:
                assert "page.so" in str(error)
                continue
            assert data != module or found == whole

    damaged()
