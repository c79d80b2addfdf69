"""pip and uv against the index that `smwheel index` writes, served on this machine."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "python/smwheel"))

from indexed_wheels import make_wheel
from workspace import ROOT

LABELS = ["cu130", "cu134"]
CPUS = ["x86_64", "aarch64"]
FAMILIES = ["sm9x", "sm10x", "sm12x"]
NAME = "flashinfer-jit-cache"
VERSION = "0.7.4"
PIP = "pip==26.3"

# The tag of a platform, as pip is given it, and what uv calls that.
UV_PLATFORMS = {
    "manylinux_2_28_x86_64": "x86_64-manylinux_2_28",
    "manylinux_2_28_aarch64": "aarch64-manylinux_2_28",
    "manylinux_2_28_riscv64": "riscv64-unknown-linux",
    "manylinux_2_17_x86_64": "x86_64-manylinux_2_17",
}

Tool = Literal["pip", "uv"]
TOOLS: list[Tool] = ["pip", "uv"]
JSON_TYPE = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True)
class Site:
    """A directory that is served: its address, and the paths that were asked for, with the status of the answer."""

    root: Path
    url: str
    requests: list[tuple[str, int]] = field(default_factory=list)

    def asked(self, end: str) -> list[int]:
        """The status of each answer to a request for a path with this end."""
        return [status for path, status in self.requests if path.endswith(end)]


@contextmanager
def served(root: Path, negotiate: bool = False) -> Iterator[Site]:
    """Serves a directory as a static host does; with `negotiate`, pages in JSON to those who ask for it (PEP 691)."""
    requests: list[tuple[str, int]] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if negotiate and self.path.endswith("/") and JSON_TYPE in self.headers.get("Accept", ""):
                self.path += "simple.json"
            super().do_GET()

        def guess_type(self, path: Any) -> str:
            return JSON_TYPE if negotiate and str(path).endswith("simple.json") else super().guess_type(path)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            requests.append((self.path, int(code)))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Site(root, f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def smwheel(*words: str | Path) -> str:
    """Runs the command line."""
    code = "from smwheel.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the pip that is tested."""
    environment = tmp_path_factory.mktemp("pip")
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PIP], check=True)
    return python


@dataclass(frozen=True)
class Got:
    """What an installer did: its exit code, what it said, the version and CPU of what it got, and the file's sha256."""

    status: int
    said: str
    version: str | None = None
    cpu: str | None = None
    sha256: str | None = None


Get = Callable[..., Got]


@pytest.fixture
def get(pip: Path, tmp_path: Path) -> Get:
    """Has pip or uv get `requirement` from one index for a platform. pip downloads the file, uv installs it."""
    # Neither the person's settings nor what was cached before.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}

    def get(tool: Tool, index: str, requirement: str, platform: str = "manylinux_2_28_x86_64", *words: str) -> Got:
        target = tmp_path / "got"
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        if tool == "pip":
            command = [
                pip, "-m", "pip", "download", "--disable-pip-version-check", "--no-cache-dir",
                "--only-binary=:all:", "--python-version=3.12", f"--platform={platform}", f"--index-url={index}",
                f"--dest={target}",
            ]  # fmt: skip
        else:
            command = [
                sys.executable, "-m", "uv", "pip", "install", "--only-binary=:all:",
                "--python-version=3.12", f"--python-platform={UV_PLATFORMS[platform]}",
                f"--index-url={index}", f"--target={target}",
            ]  # fmt: skip
        result = subprocess.run(
            [*map(str, command), *words, requirement], env=environment, capture_output=True, text=True, check=False
        )
        said = result.stdout + result.stderr
        if result.returncode:
            return Got(result.returncode, said)
        if tool == "pip":
            [wheel] = target.glob("*.whl")
            _, version, *_, tag = wheel.stem.split("-")
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            return Got(0, said, version, tag.removeprefix("manylinux_2_28_"), digest)
        manifest = json.loads((target / "flashinfer_jit_cache/manifest.json").read_text())
        return Got(0, said, manifest["version"], manifest["cpu"])

    return get


@pytest.fixture(scope="module")
def site(all_wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The index of the twelve wheels."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "wheels").mkdir()
    for name, path in all_wheels.items():
        (directory / "wheels" / name).symlink_to(path)
    smwheel("index", directory / "wheels", "--output", directory / "index")
    with served(directory / "index") as site:
        yield site


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Site]:
    """An index of synthetic wheels that a test may change."""
    for family in FAMILIES:
        make_wheel(tmp_path / "wheels", family)
    smwheel("index", tmp_path / "wheels", "--output", tmp_path / "index")
    with served(tmp_path / "index") as site:
        yield site


# ---- What is asked for is what is got ---------------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("label", LABELS)
def test_an_exact_pin_gets_its_wheel(
    label: str, cpu: str, family: str, tool: Tool, site: Site, get: Get, all_wheels: dict[str, Path]
) -> None:
    version = f"{VERSION}+{label}.{family}"
    name = f"flashinfer_jit_cache-{version}-cp39-abi3-manylinux_2_28_{cpu}.whl"
    site.requests.clear()
    got = get(tool, f"{site.url}/{label}/{family}/", f"{NAME}=={version}", f"manylinux_2_28_{cpu}")
    assert (got.status, got.version, got.cpu) == (0, version, cpu), got.said
    if tool == "pip":
        assert got.sha256 == hashlib.sha256(all_wheels[name].read_bytes()).hexdigest()
    # The metadata was advertised, is there, and was read in place of the wheel.
    address = name.replace("+", "%2B")
    assert site.asked(f"/files/{address}.metadata") == [200]
    assert site.asked(f"/files/{address}") == [200]


# A device of each family that wheels of both CUDA versions cover.
DEVICES = {"sm9x": "9.0", "sm10x": "10.3", "sm12x": "12.1"}

# Runs as the Python of this machine, but says that it is of another CPU, as a Python of that CPU would.
FOREIGN = """#!{python}
import os, sys
_, *rest = os.uname()
os.uname = lambda: os.uname_result(("Linux", *rest[:-1], "{cpu}"))
code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
exec(code)
"""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("label", LABELS)
def test_installers_get_what_the_dry_run_says(
    label: str, cpu: str, family: str, site: Site, get: Get, all_wheels: dict[str, Path], tmp_path: Path
) -> None:
    """Each of the twelve wheels, asked for by device, CUDA version and CPU, through the index."""
    python = tmp_path / "python"
    python.write_text(FOREIGN.format(python=sys.executable, cpu=cpu))
    python.chmod(0o755)
    said = json.loads(
        smwheel(
            *("install", "--dry-run", "--json", "--index-url", f"{site.url}/", "--python", python, "--installer", "uv"),
            *(
                "--device",
                DEVICES[family],
                "--cuda-version",
                f"{label[2:4]}.{label[4:]}",
                "--flashinfer-version",
                VERSION,
            ),
        )
    )
    version = f"{VERSION}+{label}.{family}"
    assert (said["wheel"]["version"], said["wheel"]["cpu"]) == (version, cpu)
    [name] = [n for n in all_wheels if f"-{version}-" in n and n.endswith(f"_{cpu}.whl")]
    digest = hashlib.sha256(all_wheels[name].read_bytes()).hexdigest()
    # The command pins version and bytes; here it is given to both installers, for the platform that it is meant for.
    words = said["command"]
    requirement, pinned = said["stdin"].split(" --hash=sha256:")
    assert (requirement, pinned.strip()) == (f"{NAME}=={version}", digest)
    for tool in TOOLS:
        got = get(tool, words[words.index("--index-url") + 1], requirement, f"manylinux_2_28_{cpu}")
        assert (got.status, got.version, got.cpu) == (0, version, cpu), got.said
        assert got.sha256 in (digest, None)


@pytest.mark.parametrize("requirement", [NAME, f"{NAME}=={VERSION}"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_loose_pin_stays_in_its_family(requirement: str, tool: Tool, site: Site, get: Get) -> None:
    for label in LABELS:
        for family in FAMILIES:
            got = get(tool, f"{site.url}/{label}/{family}/", requirement)
            assert (got.status, got.version, got.cpu) == (0, f"{VERSION}+{label}.{family}", "x86_64"), got.said


def test_index_json_leads_to_each_wheel(site: Site, all_wheels: dict[str, Path]) -> None:
    import requests

    listed = requests.get(f"{site.url}/index.json", timeout=10).json()["wheels"]
    assert sorted(wheel["filename"] for wheel in listed) == sorted(all_wheels)
    for wheel in listed:
        data = requests.get(f"{site.url}/{wheel['url']}", timeout=10).content
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (wheel["sha256"], wheel["size"])
        assert data == all_wheels[wheel["filename"]].read_bytes()


# ---- What fails, and what is said -------------------------------------------------------------------------------

# What is asked for, where and for what platform; what pip says and what uv says.
REFUSED = {
    "another family": (
        "cu130/sm9x",
        f"=={VERSION}+cu130.sm12x",
        "manylinux_2_28_x86_64",
        f"(from versions: {VERSION}+cu130.sm9x)",
        f"Because there is no version of {NAME}=={VERSION}+cu130.sm12x",
    ),
    "another CUDA version": (
        "cu134/sm12x",
        f"=={VERSION}+cu130.sm12x",
        "manylinux_2_28_aarch64",
        f"(from versions: {VERSION}+cu134.sm12x)",
        f"Because there is no version of {NAME}=={VERSION}+cu130.sm12x",
    ),
    "no family": (
        "cu130/sm12x",
        f"=={VERSION}+cu130",
        "manylinux_2_28_x86_64",
        f"(from versions: {VERSION}+cu130.sm12x)",
        f"Because there is no version of {NAME}=={VERSION}+cu130",
    ),
    "another CPU": (
        "cu130/sm12x",
        f"=={VERSION}+cu130.sm12x",
        "manylinux_2_28_riscv64",
        "(from versions: none)",
        "no wheels with a matching platform tag",
    ),
    "a system that is too old": (
        "cu130/sm12x",
        f"=={VERSION}+cu130.sm12x",
        "manylinux_2_17_x86_64",
        "(from versions: none)",
        "no wheels with a matching platform tag",
    ),
    "a page that is not there": ("cu131/sm12x", "", "manylinux_2_28_x86_64", "(from versions: none)", "was not found"),
    "the root": ("", "", "manylinux_2_28_x86_64", "(from versions: none)", "was not found"),
    "another version": (
        "cu130/sm12x",
        "==0.7.3",
        "manylinux_2_28_x86_64",
        f"(from versions: {VERSION}+cu130.sm12x)",
        f"Because there is no version of {NAME}==0.7.3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_not_there_is_refused(case: str, tool: Tool, site: Site, get: Get) -> None:
    page, pin, platform, pip_says, uv_says = REFUSED[case]
    got = get(tool, f"{site.url}/{page}{'/' if page else ''}", NAME + pin, platform)
    assert got.status != 0
    said = " ".join(got.said.split())
    assert (pip_says if tool == "pip" else uv_says) in said, got.said
    if tool == "pip":
        assert f"ERROR: No matching distribution found for {NAME}{pin}" in said
    assert not [path for path, _ in site.requests[-1:] if path.endswith(".whl")]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_wheel_of_one_cpu_is_not_given_to_the_other(tool: Tool, small: Site, get: Get) -> None:
    got = get(tool, f"{small.url}/cu130/sm9x/", NAME, "manylinux_2_28_aarch64")
    assert got.status != 0
    words = "No matching distribution found" if tool == "pip" else "no wheels with a matching platform tag"
    assert words in " ".join(got.said.split())


@pytest.mark.parametrize("tool", TOOLS)
def test_other_bytes_are_refused(tool: Tool, small: Site, get: Get) -> None:
    """A wheel that is whole, and not the one of the index."""
    make_wheel(small.root / "files", "sm9x", seed=1)
    got = get(tool, f"{small.url}/cu130/sm9x/", NAME)
    assert got.status != 0
    assert ("DO NOT MATCH THE HASHES" if tool == "pip" else "Hash mismatch") in got.said, got.said


@pytest.mark.parametrize("tool", TOOLS)
def test_metadata_that_is_advertised_must_be_there(tool: Tool, small: Site, get: Get) -> None:
    """Why it is advertised only if it is written."""
    [metadata] = small.root.glob("files/*sm9x*.metadata")
    metadata.unlink()
    got = get(tool, f"{small.url}/cu130/sm9x/", NAME)
    assert got.status != 0 and "404" in got.said and metadata.name.replace("+", "%2B") in got.said, got.said


def test_other_metadata_is_refused(small: Site, get: Get) -> None:
    """By pip. uv does not compare it."""
    [metadata] = small.root.glob("files/*sm9x*.metadata")
    metadata.write_text(metadata.read_text() + "\n")
    got = get("pip", f"{small.url}/cu130/sm9x/", NAME)
    assert got.status != 0 and "HASHES" in got.said, got.said


# ---- Other ways to host, and other states -----------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
def test_pages_in_json(tool: Tool, small: Site, get: Get) -> None:
    with served(small.root, negotiate=True) as site:
        got = get(tool, f"{site.url}/cu130/sm12x/", NAME)
        assert got.version == f"{VERSION}+cu130.sm12x", got.said
        assert site.asked(f"/cu130/sm12x/{NAME}/simple.json") == [200]


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("tool", TOOLS)
def test_wheels_that_are_hosted_elsewhere(tool: Tool, metadata: bool, small: Site, get: Get, tmp_path: Path) -> None:
    """As a GitHub release: a directory of assets."""
    with served(tmp_path / "wheels") as release:
        words = ["--metadata-dir", str(tmp_path / "wheels")] if metadata else []
        smwheel("index", tmp_path / "wheels", "--output", tmp_path / "other", "--base-url", release.url, *words)
        with served(tmp_path / "other") as site:
            got = get(tool, f"{site.url}/cu130/sm12x/", NAME)
            assert got.version == f"{VERSION}+cu130.sm12x", got.said
            assert release.asked(".whl") == [200] or tool == "uv"
            assert release.asked(".metadata") == ([200] if metadata else [])


@pytest.mark.parametrize("tool", TOOLS)
def test_nightly_is_got_by_asking_for_it_only(tool: Tool, small: Site, get: Get, tmp_path: Path) -> None:
    nightly = make_wheel(tmp_path / "nightly", "sm12x", version="0.8.0.dev20261130")
    smwheel("index", tmp_path / "nightly", "--output", small.root)
    pre = "--pre" if tool == "pip" else "--prerelease=allow"
    got = get(tool, f"{small.url}/cu130/sm12x/", NAME, "manylinux_2_28_x86_64", pre)
    assert got.version == f"{VERSION}+cu130.sm12x", got.said
    version = nightly.name.split("-")[1]
    got = get(tool, f"{small.url}/nightly/cu130/sm12x/", f"{NAME}=={version}")
    assert got.version == version, got.said


@pytest.mark.parametrize("tool", TOOLS)
def test_a_yanked_wheel_is_got_by_its_exact_pin_only(tool: Tool, small: Site, get: Get, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "sm12x", version="0.7.5")
    smwheel("index", tmp_path / "wheels", "--output", small.root)
    page = f"{small.url}/cu130/sm12x/"
    assert get(tool, page, NAME).version == "0.7.5+cu130.sm12x"
    smwheel("index", "--output", small.root, "--yank", "0.7.5", "--reason", "wrong on <Blackwell> & others")
    assert get(tool, page, NAME).version == f"{VERSION}+cu130.sm12x"
    got = get(tool, page, f"{NAME}==0.7.5+cu130.sm12x")
    assert got.version == "0.7.5+cu130.sm12x" and "wrong on <Blackwell> & others" in got.said, got.said


@pytest.mark.parametrize("tool", TOOLS)
def test_old_releases_are_still_there(tool: Tool, small: Site, get: Get, tmp_path: Path) -> None:
    make_wheel(tmp_path / "new", "sm12x", version="0.7.10")
    smwheel("index", tmp_path / "new", "--output", small.root)
    page = f"{small.url}/cu130/sm12x/"
    assert get(tool, page, NAME).version == "0.7.10+cu130.sm12x"
    assert get(tool, page, f"{NAME}=={VERSION}+cu130.sm12x").version == f"{VERSION}+cu130.sm12x"
