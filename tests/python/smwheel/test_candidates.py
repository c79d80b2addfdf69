"""Where the wheels to choose from come from, and what is said if they can't be read."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from recorded_system import TABLE, matrix_wheels, recorded
from smwheel.candidates import DISTRIBUTION, candidates, in_directory, of_index
from smwheel.cli import group
from smwheel.exit_codes import CodedError, ExitCode
from synthetic_wheels import write, write_index

WHEELS = [w for w in matrix_wheels() if w.cuda_label in ("cu129", "cu130")]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """An index on a local server."""
    write_index(tmp_path, WHEELS)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/index.json").write_text('{"wheels": [{"filename": "a.whl"}]}')
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/index.json").write_text("<html>")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_index(served: str) -> None:
    found = of_index(served, nightly=False)
    assert [(w.version, w.cpu, w.devices) for w in found] == [(w.version, w.cpu, w.devices) for w in WHEELS]
    assert found[0].location == f"{served}/cu129/sm9x/"
    assert found[0].requirement == f"{DISTRIBUTION}==0.7.4+cu129.sm9x"
    assert all(w.sha256 and w.size for w in found)


def test_index_in_a_file(tmp_path: Path) -> None:
    write_index(tmp_path, WHEELS[:1])
    assert [w.version for w in of_index(tmp_path.as_uri(), nightly=False)] == ["0.7.4+cu129.sm9x"]


def test_yanked_wheels_are_refused(tmp_path: Path) -> None:
    write_index(tmp_path, WHEELS)
    listing = json.loads((tmp_path / "index.json").read_text())
    for entry in listing["wheels"]:
        entry["yanked"] = "wrong rounding" if entry["cuda_label"] == "cu130" else None
    (tmp_path / "index.json").write_text(json.dumps(listing))
    options = ["install", "--dry-run", "--index-url", tmp_path.as_uri(), "--device", "9.0"]
    result = CliRunner().invoke(group, options, obj=recorded({}))
    assert isinstance(result.exception, CodedError)
    assert result.exception.code is ExitCode.CUDA, "those of CUDA 12 are left, and torch is for 13"
    assert "0.7.4+cu130.sm9x x86_64: yanked: wrong rounding" in result.output
    for entry in listing["wheels"]:
        entry["yanked"] = ""
    (tmp_path / "index.json").write_text(json.dumps(listing))
    result = CliRunner().invoke(group, options, obj=recorded({}))
    assert "All wheels for FlashInfer 0.7.4 were yanked." in str(result.exception)


def test_nightly_index_is_beside_the_stable_one(served: str) -> None:
    with pytest.raises(CodedError, match=r"/nightly/index\.json: the list of wheels can't be read") as caught:
        of_index(served, nightly=True)
    assert "HTTP status 404" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "found"),
    [("/broken", "KeyError: 'cuda_version'"), ("/empty", "JSONDecodeError"), ("/nowhere", "HTTP status 404")],
)
def test_index_that_is_none(served: str, path: str, found: str) -> None:
    with pytest.raises(CodedError) as caught:
        of_index(served + path, nightly=False)
    assert caught.value.code is ExitCode.INDEX
    for text in (f"{served}{path}/index.json", "as `smwheel index` writes it", found, "check --index-url"):
        assert text in str(caught.value)


def test_unreachable() -> None:
    with pytest.raises(CodedError, match="--find-links") as caught:
        of_index("http://127.0.0.1:9", nightly=False)
    assert caught.value.exit_code == 11


def test_no_index_is_known() -> None:
    with pytest.raises(CodedError) as caught:
        candidates(None, None, nightly=False)
    for text in (
        "No index of flashinfer-jit-cache is known",
        "SMWHEEL_INDEX_URL",
        "--index-url URL",
        "--find-links DIR",
    ):
        assert text in str(caught.value)


def test_directory(tmp_path: Path) -> None:
    for wheel in WHEELS:
        write(tmp_path, wheel)
    (tmp_path / "other-1-py3-none-any.whl").write_bytes(b"")
    found = in_directory(tmp_path)
    assert sorted(w.version for w in found) == sorted(w.version for w in WHEELS)
    assert {w.location for w in found} == {str(tmp_path)}


def test_directory_without_wheels(tmp_path: Path) -> None:
    with pytest.raises(CodedError, match="there is no wheel here"):
        in_directory(tmp_path)
    with pytest.raises(CodedError, match="no such directory"):
        in_directory(tmp_path / "nowhere")


def test_directory_with_a_broken_wheel(tmp_path: Path) -> None:
    write(tmp_path, WHEELS[0]).write_bytes(b"PK")
    with pytest.raises(CodedError, match="what is in this wheel can't be read") as caught:
        in_directory(tmp_path)
    assert "BadZipFile" in str(caught.value)


def test_command_line_names_the_index_page(served: str) -> None:
    case = {"nvml": "h100"}
    result = CliRunner().invoke(
        group, ["install", "--dry-run"], obj=recorded(case), env={"SMWHEEL_INDEX_URL": served + "/"}
    )
    assert result.exit_code == 0, result.output
    assert f"--index-url {served}/cu130/sm9x/ --require-hashes -r /dev/stdin" in result.output


def test_what_is_missing_on_the_machine_is_said_before_the_index_is_asked() -> None:
    case = next(case for case in TABLE["install"] if case["name"] == "no driver at all")
    result = CliRunner().invoke(group, ["install", "--dry-run"], obj=recorded(case))
    assert isinstance(result.exception, CodedError)
    assert result.exception.code is ExitCode.NO_GPU
