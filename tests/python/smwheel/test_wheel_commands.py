"""smwheel inspect, diff and check, on small wheels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import size_report
from indexed_wheels import FAMILIES, make_wheel, matrix_of
from smwheel import cli

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line: its exit code, what it printed and what it said on stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([*map(str, words)])
        said = capsys.readouterr()
        return int(caught.value.code or 0), said.out, said.err

    return run


# ---- inspect ----------------------------------------------------------------------------------------------------


def test_inspect(run: Run, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "sm12x", "aarch64")
    status, out, err = run("inspect", wheel)
    assert (status, err) == (0, "")
    for words in (
        "version:    flashinfer-jit-cache 0.7.4+cu130.sm12x\n",
        "tag:        cp39-abi3-manylinux_2_28_aarch64, Python >=3.9\n",
        "CUDA:       13.0, driver 580 or newer\n",
        "SM targets: 8.0, 12.0f\n",
        "runs on:    compute capability 8.0, 8.6, 8.9, 12.0, 12.1\n",
        "contents:   2 modules, 3.6 kB installed; 5 other files",
        f"{wheel.name}: {wheel.stat().st_size} bytes",
        "Bytes by SM target:",
        "Which image each GPU loads",
    ):
        assert words in out
    assert "sha256" not in out and "jit_cache/norm/norm.so" not in out
    assert "  1800  " in run("inspect", wheel, "--members")[1]
    assert "norm.so" in run("inspect", wheel, "--members")[1]


def test_inspect_as_json(run: Run, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "sm12x")
    found = json.loads(run("inspect", wheel, "--json")[1])
    assert found["sm_targets"] == ["8.0", "12.0f"] and found["bytes"] == wheel.stat().st_size
    assert found["coverage"]["norm"]["12.1"] == "12.0f" and found["coverage"]["norm"]["9.0"] is None
    assert found["sizes"] == size_report.report(wheel)
    assert sum(member["bytes"] for member in found["members"]) == found["sizes"]["installed_bytes"]
    assert "sha256" not in found
    verified = json.loads(run("inspect", wheel, "--json", "--verify")[1])
    assert verified == {**found, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}


def test_damage_inside_a_module_takes_verify_to_find(run: Run, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, modules=("norm",), size=5000)
    data = bytearray(wheel.read_bytes())
    place = data.index(b"norm.so") + 5000
    data[place] ^= 1
    wheel.write_bytes(data)
    assert run("inspect", wheel)[0] == 0
    status, out, err = run("inspect", wheel, "--verify")
    assert (status, out) == (1, "")
    assert f"error: {wheel.name}: flashinfer_jit_cache/jit_cache/norm/norm.so" in err
    assert "expected:" in err and "To do: build the wheel again" in err


def test_inspect_of_what_is_no_wheel(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    file.write_text("hello")
    status, _, err = run("inspect", file)
    assert status == 1 and "error: a.whl: the end of the file\n  expected: a zip\n  found:    a file of 5 bytes" in err
    status, _, err = run("inspect", tmp_path / "none.whl")
    assert status == 2 and "does not exist" in err


# ---- diff -------------------------------------------------------------------------------------------------------


def test_diff_of_wheels_and_reports(run: Run, tmp_path: Path) -> None:
    old, new = make_wheel(tmp_path, "sm9x"), make_wheel(tmp_path, "sm12x", modules=("norm", "page", "rope"))
    report = tmp_path / "old.json"
    report.write_text(size_report.dump(size_report.report(old)))
    status, out, _ = run("diff", old, new)
    assert status == 0
    for words in (
        "SM target 9.0a was removed: -",
        "SM target 12.0f was added: +",
        "module rope was added",
        "  on 9.0, 2 modules (norm, page): no longer runs (it loaded 9.0a)\n",
        "  on 12.1, 2 modules (norm, page): loads 12.0f, before nothing",
    ):
        assert words in out
    assert run("diff", report, new)[1] == out
    found = json.loads(run("diff", old, new, "--json")[1])
    assert found["growth"] == new.stat().st_size - old.stat().st_size
    assert sum(change["bytes"] for change in found["sm_targets"]) == found["growth"]
    assert {"module": "norm", "device": "9.0", "old": "9.0a", "new": None} in found["coverage"]
    assert "Which image" not in run("diff", old, old)[1]


def test_diff_of_what_is_neither(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    status, _, err = run("diff", file, make_wheel(tmp_path))
    assert status == 1 and "error: a.json: no size report can be made of it." in err


# ---- check ------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> list[Path]:
    """A directory `wheels` with all that `matrix.json` beside it asks for."""
    wheels = [
        make_wheel(tmp_path / "wheels", family, cpu, cuda)
        for cuda in ("12.9", "13.0")
        for cpu in ("aarch64", "x86_64")
        for family in FAMILIES
    ]
    (tmp_path / "matrix.json").write_text(json.dumps(matrix_of(wheels)))
    return wheels


def check(run: Run, tmp_path: Path, *words: object) -> tuple[int, str, str]:
    return run("check", tmp_path / "wheels", "--matrix", tmp_path / "matrix.json", *words)


def change_matrix(tmp_path: Path, **fields: Any) -> str:
    """Changes the first wheel of the matrix; returns its file name."""
    file = tmp_path / "matrix.json"
    matrix = json.loads(file.read_text())
    matrix["wheels"][0].update(fields)
    file.write_text(json.dumps(matrix))
    return f"flashinfer_jit_cache-0.7.4+cu129.sm9x-{matrix['wheels'][0]['tag']}.whl"


def test_a_whole_set(run: Run, whole: list[Path], tmp_path: Path) -> None:
    (tmp_path / "wheels/SHA256SUMS").write_text("not a wheel")
    status, out, err = check(run, tmp_path)
    assert (status, err) == (0, "") and "all 12 wheels are there, and sound." in out
    found = json.loads(check(run, tmp_path, "--json")[1])
    assert found == {"ok": True, "wheels": [wheel.name for wheel in whole], "problems": []}


def test_what_is_missing_and_what_does_not_belong(run: Run, whole: list[Path], tmp_path: Path) -> None:
    whole[0].unlink()
    whole[5].unlink()
    stray = make_wheel(tmp_path / "wheels", version="0.7.5")
    status, out, err = check(run, tmp_path)
    assert (status, out) == (3, "")
    for words in (
        f"error: cu129_aarch64_sm9x is missing.\n  expected: {whole[0].name} in {tmp_path / 'wheels'}\n  found:    no such file",
        "To do: ./bazelw build //wheels:cu129_aarch64_sm9x",
        "error: cu129_x86_64_sm12x is missing.",
        f"error: {stray.name} does not belong here.",
        "a wheel that the matrix does not know",
        "Problems: 3. This set must not be released.",
    ):
        assert words in err
    status, out, err = check(run, tmp_path, "--json")
    assert (status, err) == (3, "") and len(json.loads(out)["problems"]) == 3


def test_cells(run: Run, whole: list[Path], tmp_path: Path) -> None:
    status, _, err = check(run, tmp_path, "--cell", "cu130_x86_64")
    assert status == 3 and "Problems: 9." in err and "cu129_aarch64_sm9x, which was not asked for" in err
    for wheel in whole[:9]:
        wheel.unlink()
    status, out, _ = check(run, tmp_path, "--cell", "cu130_x86_64")
    assert status == 0 and "all 3 wheels" in out
    assert check(run, tmp_path)[0] == 3
    assert "Problems: 2." in check(run, tmp_path, "--cell", "cu130_x86_64_sm9x")[2]
    status, _, err = check(run, tmp_path, "--cell", "cu13")
    assert status == 1 and "error: cu13 is no cell of the matrix." in err
    assert "expected: cu129_aarch64, cu129_x86_64, cu130_aarch64, cu130_x86_64" in err


@pytest.mark.parametrize(
    ("field", "value", "what", "promised", "found"),
    [
        ("sm_targets", ["7.5", "9.0a"], "SM targets", "7.5, 9.0a", "8.0, 9.0a"),
        ("devices", ["8.0", "12.0"], "devices", "8.0, 12.0", "8.0"),
        ("minimum_driver", "610", "minimum driver", "610", "580"),
        ("cuda_version", "12.8", "CUDA version", "12.8", "12.9"),
        ("family", "sm9y", "SM family", "sm9y", "sm9x"),
        ("cpu", "riscv", "CPU", "riscv", "aarch64"),
    ],
)
def test_a_manifest_that_differs_from_the_matrix(
    field: str, value: Any, what: str, promised: str, found: str, run: Run, whole: list[Path], tmp_path: Path
) -> None:
    name = change_matrix(tmp_path, **{field: value})
    status, _, err = check(run, tmp_path)
    assert status == 3
    assert (
        f"error: {name}: {what} in the manifest and of cu129_aarch64_sm9x in the matrix differ.\n"
        f"  expected: {promised}\n  found:    {found}\n  To do: build the wheel and the matrix from one commit: "
        "./bazelw build //wheels:cu129_aarch64_sm9x"
    ) in err


def test_a_promise_that_no_image_keeps(run: Run, whole: list[Path], tmp_path: Path) -> None:
    name = change_matrix(tmp_path, devices=["10.0"])
    whole[0].unlink()
    make_wheel(tmp_path / "wheels", "sm9x", "aarch64", "12.9", edit_manifest=lambda m: m.update(devices=["10.0"]))
    status, _, err = check(run, tmp_path)
    assert status == 3 and "Problems: 1." in err
    assert f"{name}: nothing in it runs on compute capability 10.0, which it promises." in err
    assert "found:    images for 8.0, 9.0a" in err


def test_limits(run: Run, whole: list[Path], tmp_path: Path) -> None:
    size = whole[0].stat().st_size
    name = change_matrix(tmp_path, budget=size)
    status, _, err = check(run, tmp_path)
    assert status == 3
    assert f"{name} is over the budget of cu129_aarch64_sm9x in the matrix.\n  expected: under {size} bytes" in err
    assert f"found:    {size} bytes, 1 too many" in err
    change_matrix(tmp_path, budget=size + 1)
    assert check(run, tmp_path)[0] == 0
    matrix = json.loads((tmp_path / "matrix.json").read_text())
    (tmp_path / "matrix.json").write_text(json.dumps({**matrix, "asset_limit": 100}))
    status, _, err = check(run, tmp_path)
    assert status == 3 and err.count("is too large for a release asset.") == 12


def test_damage_is_found_in_each_wheel(run: Run, whole: list[Path], tmp_path: Path) -> None:
    whole[0].write_bytes(whole[0].read_bytes()[:-30])
    data = bytearray(whole[1].read_bytes())
    data[data.index(b"norm.so") + 500] ^= 1
    whole[1].write_bytes(data)
    status, _, err = check(run, tmp_path)
    assert status == 3 and "Problems: 2." in err
    assert f"error: {whole[0].name}: the end of the file" in err
    assert f"error: {whole[1].name}: flashinfer_jit_cache/jit_cache/norm/norm.so" in err
    assert "Problems: 1." in check(run, tmp_path, "--quick")[2], "the directory is read, the members are not inflated"


def test_a_zip_that_another_program_wrote(run: Run, whole: list[Path], tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(whole[0]) as old:
        files = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(whole[0], "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in files.items():
            new.writestr(name, data)
    status, _, err = check(run, tmp_path)
    assert status == 3 and f"error: {whole[0].name}: " in err and "Problems: 1." in err


def test_no_matrix(run: Run, whole: list[Path], tmp_path: Path) -> None:
    (tmp_path / "matrix.json").write_text("{}")
    status, _, err = check(run, tmp_path)
    assert status == 1 and "matrix.json is not the resolved matrix." in err
    assert run("check", tmp_path / "wheels")[0] == 2
