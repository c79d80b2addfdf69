"""The workflow that releases: it is what the matrix gives, and its scripts upload every wheel or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from workspace import ROOT, Workspace

WORKFLOW = ROOT / ".github/workflows/release.yml"
PROGRAM = ROOT / "tools/release/workflow.py"
TEXT = WORKFLOW.read_text()
CONTENT: dict[str, Any] = yaml.safe_load(TEXT)
JOBS = CONTENT["jobs"]
SCRIPTS = {
    f"{job}: {step['name']}": step["run"] for job, content in JOBS.items() for step in content["steps"] if "run" in step
}
TAG = "v1.0"

# Writes down how it is called, and says of the uploaded files what GitHub would: their names and digests.
FAKE_GH = f"""#!{sys.executable}
import hashlib, json, os, pathlib, sys
state = pathlib.Path(os.environ["FAKE_GH"])
arguments = sys.argv[1:]
assert os.environ["GH_TOKEN"] == "secret" and os.environ["GH_REPO"] == "owner/name"
with open(state / "calls", "a") as calls:
    print(json.dumps(arguments), file=calls)
if arguments[:2] == ["release", "upload"]:
    file = pathlib.Path(arguments[3])
    if file.name != os.environ["FAKE_GH_LOSES"]:
        with open(state / "assets", "a") as assets:
            print(hashlib.sha256(file.read_bytes()).hexdigest(), "", file.name, file=assets)
elif arguments[0] == "api":
    file = state / ("assets" if "digest" in arguments[-1] else "tags")
    print(file.read_text() if file.exists() else "", end="")
"""

# Gives the files that a test has put where Bazel would.
FAKE_BAZELW = """#!/bin/sh
echo "$@" >>bazelw-calls
[ "$1" != cquery ] || ls built/*.whl
"""


@pytest.fixture(scope="module")
def matrix_file(here: Workspace) -> Path:
    """//wheels:matrix.json."""
    here.bazel("build", "//wheels:matrix.json")
    [path] = here.files("//wheels:matrix.json")
    return path


@pytest.fixture(scope="module")
def matrix(matrix_file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(matrix_file.read_text())
    return content


def compiled(job: str) -> list[dict[str, str]]:
    """What a job's matrix lists."""
    entries: list[dict[str, str]] = JOBS[job]["strategy"]["matrix"]["include"]
    return entries


def artifact(wheel: dict[str, str]) -> str:
    return f"jit-cache-{wheel['cuda_label']}-{wheel['cpu']}-{wheel['family']}"


def program(matrix: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, "--matrix", matrix, "--output", output, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def index_of(script_or_action: str) -> int:
    """The place of the one step of the release job that has this text in its script or its action's name."""
    [index] = [
        index
        for index, step in enumerate(JOBS["release"]["steps"])
        if script_or_action in step.get("run", step.get("uses"))
    ]
    return index


# ---- The file ---------------------------------------------------------------------------------------------------


def test_the_committed_workflow_is_current(matrix_file: Path) -> None:
    result = program(matrix_file, WORKFLOW, "--check")
    assert result.returncode == 0, result.stderr


def test_check_shows_what_differs_and_how_to_refresh(matrix: dict[str, Any], tmp_path: Path) -> None:
    changed, output = tmp_path / "matrix.json", tmp_path / "out/release.yml"
    wheel = {**matrix["wheels"][0], "name": "cu999_riscv_sm99x", "cuda_label": "cu999", "tag": "new"}
    changed.write_text(json.dumps({**matrix, "wheels": [*matrix["wheels"], wheel]}))
    output.parent.mkdir()
    output.write_text(TEXT)
    result = program(changed, output, "--check")
    assert result.returncode == 1
    for words in (
        f"error: {output} is not the workflow of the matrix.",
        "--- found\n+++ expected\n",
        "\n+        - target: cu999_riscv_sm99x\n",
        "To do: ./bazelw build //wheels:matrix.json && ",
        "tools/release/workflow.py --matrix bazel-bin/wheels/matrix.json --output .github/workflows/release.yml",
    ):
        assert words in result.stderr
    assert output.read_text() == TEXT
    output.unlink()
    assert f"error: {output} is missing." in program(changed, output, "--check").stderr
    assert list(output.parent.iterdir()) == []


def test_same_matrix_same_bytes(matrix_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "release.yml"
    for before in ("something else", TEXT):
        output.write_text(before)
        assert program(matrix_file, output).returncode == 0
        assert output.read_text() == TEXT
    assert list(tmp_path.iterdir()) == [output], "nothing is left of how it was written"


def test_what_is_no_matrix_leaves_the_workflow_as_it_was(tmp_path: Path) -> None:
    matrix, output = tmp_path / "matrix.json", tmp_path / "release.yml"
    matrix.write_text('{"asset_limit": 1, "wheels": []}')
    output.write_text("before")
    result = program(matrix, output)
    assert result.returncode == 1
    assert f"error: {matrix} is not the resolved matrix." in result.stderr
    assert output.read_text() == "before"


def test_it_says_who_wrote_it() -> None:
    head = TEXT.splitlines()[:2]
    assert "do not edit" in head[0]
    assert head[1].startswith("# ./bazelw build //wheels:matrix.json && ")


# ---- Its structure ----------------------------------------------------------------------------------------------


def test_every_wheel_has_a_job(matrix: dict[str, Any]) -> None:
    strategy = JOBS["build"]["strategy"]
    assert strategy["matrix"] == {
        "include": [{"target": wheel["name"], "artifact": artifact(wheel)} for wheel in matrix["wheels"]]
    }
    assert strategy["fail-fast"] is False
    [upload] = [step["with"] for step in JOBS["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload == {
        "name": "${{ matrix.artifact }}",
        "path": "dist/*.whl",
        "if-no-files-found": "error",
        "compression-level": 0,
    }


def test_every_part_that_wheels_share_has_a_job(matrix: dict[str, Any], here: Workspace) -> None:
    """Every (CUDA label, SM target) and every (CUDA label, CPU) of the wheels, as a target that there is."""
    wheels = matrix["wheels"]
    device = {(entry["cuda_label"], entry["sm_target"]): entry["target"] for entry in compiled("device")}
    assert set(device) == {(wheel["cuda_label"], sm) for wheel in wheels for sm in wheel["sm_targets"]}
    host = {(entry["cuda_label"], entry["cpu"]): entry["target"] for entry in compiled("host")}
    assert set(host) == {(wheel["cuda_label"], wheel["cpu"]) for wheel in wheels}
    assert device["cu130", "9.0a"] == "cu130_sm_90a"
    assert host["cu130", "aarch64"] == "cu130_aarch64_host"
    groups = here.bazel("query", "kind(module_parts, //wheels:*)").stdout.split()
    targets = [f"//wheels:{target}" for target in [*device.values(), *host.values()]]
    assert sorted(targets) == sorted(groups)
    assert len(targets) == len(compiled("device")) + len(compiled("host"))


def test_a_person_sees_what_a_job_compiles() -> None:
    assert JOBS["device"]["name"] == "cubins of ${{ matrix.cuda_label }} for SM target ${{ matrix.sm_target }}"
    assert JOBS["host"]["name"] == "host objects of ${{ matrix.cuda_label }} for ${{ matrix.cpu }}"
    assert JOBS["build"]["name"] == "wheel ${{ matrix.target }}"


def test_jobs_come_after_what_they_share() -> None:
    """With no cache, only the wheels' jobs run; a skipped job must not skip the rest, a failed one must."""
    needs = {name: (job.get("needs"), job.get("if")) for name, job in JOBS.items()}
    assert needs == {
        "device": (None, "vars.SMWHEEL_CACHE != ''"),
        "host": ("device", "vars.SMWHEEL_CACHE != ''"),
        "build": (["device", "host"], "!failure() && !cancelled()"),
        "release": ("build", "!failure() && !cancelled() && needs.build.result == 'success'"),
    }


def test_triggers() -> None:
    assert CONTENT["on"]["push"] == {"tags": ["v*"]}
    assert CONTENT["on"]["workflow_dispatch"]["inputs"]["tag"]["required"] is True


def test_nothing_is_uploaded_before_the_check() -> None:
    assert JOBS["release"]["needs"] == "build"
    order = [
        index_of("actions/download-artifact"),
        index_of("bazelw build //wheels:matrix.json"),
        index_of("tools/release/completeness.py"),
        index_of("gh release create"),
        index_of("gh release upload"),
        index_of("diff"),
        index_of("gh release edit"),
    ]
    assert order == sorted(order)
    assert order[-1] == len(JOBS["release"]["steps"]) - 1


def test_no_failure_is_passed_over() -> None:
    for words in ("continue-on-error", "|| true", "always()"):
        assert words not in TEXT
    assert not any("if" in step for job in JOBS.values() for step in job["steps"])
    assert CONTENT["defaults"]["run"]["shell"] == "bash -euo pipefail {0}"


def test_what_the_jobs_may_do() -> None:
    """Writing is for the release job. The token is in the environment of the steps that run gh, and nowhere else.

    The cache's credential is in that of the step that writes it down. No pull request runs this workflow.
    """
    assert CONTENT["permissions"] == {"contents": "read"}
    assert [name for name, job in JOBS.items() if "permissions" in job] == ["release"]
    assert set(CONTENT["on"]) == {"push", "workflow_dispatch"}
    assert JOBS["release"]["permissions"] == {"contents": "write"}
    steps = [step for job in JOBS.values() for step in job["steps"]]
    for step in steps:
        script = step.get("run", "")
        assert ("GH_TOKEN" in step.get("env", {})) == ("gh api" in script or "gh release" in script), step["name"]
        assert "${{" not in script, "text of GitHub's in a script would be run"
        assert ("secrets." in str(step)) == (step["name"] == "Give Bazel the cache's credential")
        if "uses" in step:
            name, _, commit = step["uses"].partition("@")
            assert len(commit) == 40, f"{name} is not pinned by commit"
    assert [s["with"]["persist-credentials"] for s in steps if "actions/checkout" in s.get("uses", "")] == [False] * 4


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_sound(name: str) -> None:
    subprocess.run(["bash", "-n"], input=SCRIPTS[name], text=True, check=True)
    shellcheck = Path(sys.executable).with_name("shellcheck")
    result = subprocess.run(
        [shellcheck, "--shell=bash", "-"], input=SCRIPTS[name], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


# ---- Its scripts, run -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A job that was run: the step that failed, if any, what was said, and the calls of gh."""

    failed: str | None
    said: str
    calls: list[list[str]]

    def releasing(self) -> list[str]:
        """The calls that change something."""
        return [" ".join(call) for call in self.calls if call[0] == "release"]


class Checkout:
    """A checkout in which a job's scripts run, with programs of its own in place of gh, apt-get and bazelw."""

    def __init__(self, path: Path, matrix_file: Path) -> None:
        """Makes the checkout, with the artifacts of every wheel of the matrix."""
        self.path = path / "checkout"
        self.state = path / "github"
        self.programs = path / "bin"
        for directory in (self.path / "bazel-bin/wheels", self.state, self.programs):
            directory.mkdir(parents=True)
        for file, text in (
            (self.programs / "gh", FAKE_GH),
            (self.programs / "apt-get", "#!/bin/sh\n"),
            (self.path / "bazelw", FAKE_BAZELW),
        ):
            file.write_text(text)
            file.chmod(0o755)
        (self.path / "tools").symlink_to(ROOT / "tools")
        (self.path / "bazel-bin/wheels/matrix.json").write_text(matrix_file.read_text())
        self.wheels = {}
        for wheel in json.loads(matrix_file.read_text())["wheels"]:
            stem = f"flashinfer_jit_cache-{wheel['version']}"
            file = self.path / "artifacts" / artifact(wheel) / f"{stem}-{wheel['tag']}.whl"
            file.parent.mkdir(parents=True)
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr(f"{stem}.dist-info/METADATA", f"Version: {wheel['version']}\n")
            self.wheels[wheel["name"]] = file

    def run(self, job: str, target: str = "", loses: str = "", cache: str = "", authorization: str = "") -> Run:
        """Runs a job's scripts in their order up to the first that fails, as GitHub does.

        `target` is the matrix entry, `loses` the name of a file whose upload GitHub forgets; `cache` and `authorization`
        are the repository's settings.
        """
        failed, said = None, ""
        for step in JOBS[job]["steps"]:
            if "run" not in step:
                continue
            script = self.state / "script"
            script.write_text(step["run"])
            token = {"GH_TOKEN": "secret", "GH_REPO": "owner/name"} if "GH_TOKEN" in step.get("env", {}) else {}
            result = subprocess.run(
                [str(script) if word == "{0}" else word for word in CONTENT["defaults"]["run"]["shell"].split()],
                cwd=self.path,
                env={
                    **os.environ,
                    **token,
                    "PATH": f"{self.programs}:{os.environ['PATH']}",
                    "FAKE_GH": str(self.state),
                    "FAKE_GH_LOSES": loses,
                    "TAG": TAG,
                    "TARGET": target,
                    "CACHE": cache,
                    **({"AUTHORIZATION": authorization} if "AUTHORIZATION" in step.get("env", {}) else {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            said += result.stdout
            if result.returncode:
                failed = step["name"]
                break
        calls = self.state / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return Run(failed, said, [json.loads(line) for line in lines])


@pytest.fixture
def checkout(tmp_path: Path, matrix_file: Path) -> Checkout:
    return Checkout(tmp_path, matrix_file)


def test_a_full_set_is_released(checkout: Checkout) -> None:
    run = checkout.run("release")
    assert run.failed is None, run.said
    files = [str(file.relative_to(checkout.path)) for file in checkout.wheels.values()]
    releasing = run.releasing()
    assert releasing[0].startswith(f"release create {TAG} --draft --verify-tag ")
    assert sorted(releasing[1:-2]) == [f"release upload {TAG} {file}" for file in sorted(files)]
    assert releasing[-2:] == [f"release upload {TAG} SHA256SUMS", f"release edit {TAG} --draft=false"]
    assert run.calls[-2][0] == "api", "what was uploaded is looked at before it is published"


@pytest.mark.parametrize("wheel", [0, -1])
def test_nothing_is_uploaded_if_an_artifact_is_missing(checkout: Checkout, wheel: int) -> None:
    file = list(checkout.wheels.values())[wheel]
    file.unlink()
    file.parent.rmdir()
    run = checkout.run("release")
    assert run.failed == "Check that every wheel is there"
    assert f"error: artifact {file.parent.name} is missing." in run.said
    assert run.calls == []
    assert not (checkout.path / "SHA256SUMS").exists()


def test_nothing_is_uploaded_if_there_is_a_draft_already(checkout: Checkout) -> None:
    (checkout.state / "tags").write_text(f"v0.9\n{TAG}\n")
    run = checkout.run("release")
    assert run.failed == "Create a draft"
    assert f"there is a release or a draft of {TAG} already. If it is a draft: gh release delete {TAG}" in run.said
    assert run.releasing() == []


def test_a_tag_that_only_begins_alike_is_another(checkout: Checkout) -> None:
    (checkout.state / "tags").write_text(f"{TAG}.1\nv1x0\n")
    assert checkout.run("release").failed is None


def test_an_upload_that_got_lost_is_not_published(checkout: Checkout) -> None:
    lost = next(iter(checkout.wheels.values())).name
    run = checkout.run("release", loses=lost)
    assert run.failed == "Compare what was uploaded"
    assert "--- what was checked\n+++ what GitHub has\n" in run.said
    assert f"  {lost}\n" in run.said
    assert f"the draft of {TAG} is not what was checked, and stays a draft: gh release delete {TAG}" in run.said
    assert run.releasing()[-1] == f"release upload {TAG} SHA256SUMS"


def test_the_build_job_keeps_the_wheel(checkout: Checkout) -> None:
    built = checkout.path / "built"
    built.mkdir()
    (built / "a.whl").write_text("a")
    run = checkout.run("build", target="cu130_x86_64_sm9x")
    assert run.failed is None, run.said
    assert [file.name for file in (checkout.path / "dist").iterdir()] == ["a.whl"]
    assert (checkout.path / "bazelw-calls").read_text().splitlines() == [
        "build --config=ci --remote_cache= //wheels:cu130_x86_64_sm9x",
        "cquery //wheels:cu130_x86_64_sm9x --output=files",
    ]
    assert not (checkout.path / "user.bazelrc").exists()


@pytest.mark.parametrize("job", ["device", "host", "build"])
def test_jobs_share_the_cache(checkout: Checkout, job: str) -> None:
    """Its credential is in a file that only the job reads, and in no command line."""
    run = checkout.run(job, target="cu130_sm_90a", cache="https://cache.example", authorization="Basic c2VjcmV0")
    assert run.failed in (None, "Copy the wheel")
    first = (checkout.path / "bazelw-calls").read_text().splitlines()[0]
    assert first == "build --config=ci --remote_cache=https://cache.example //wheels:cu130_sm_90a"
    settings = checkout.path / "user.bazelrc"
    assert settings.read_text() == 'common:cache --remote_header="Authorization=Basic c2VjcmV0"\n'
    assert settings.stat().st_mode & 0o077 == 0
    assert "c2VjcmV0" not in run.said


def test_the_build_job_fails_without_a_wheel(checkout: Checkout) -> None:
    assert checkout.run("build", target="cu130_x86_64_sm9x").failed == "Copy the wheel"


# ---- Real wheels ------------------------------------------------------------------------------------------------


def test_wheels_that_bazel_built_pass_the_check(
    matrix: dict[str, Any], wheels: dict[str, Path], tmp_path: Path
) -> None:
    """Their file names and METADATA are what the check derives from the matrix."""
    part = [wheel for wheel in matrix["wheels"] if wheel["cuda_label"] == "cu130"]
    (tmp_path / "matrix.json").write_text(json.dumps({**matrix, "wheels": part}))
    for wheel in part:
        [file] = [path for name, path in wheels.items() if name.endswith(f"-{wheel['version']}-{wheel['tag']}.whl")]
        directory = tmp_path / "artifacts" / artifact(wheel)
        directory.mkdir(parents=True)
        (directory / file.name).symlink_to(file)
    result = subprocess.run(
        [
            *(sys.executable, ROOT / "tools/release/completeness.py", "--matrix", tmp_path / "matrix.json"),
            *("--artifacts", tmp_path / "artifacts", "--sha256sums", tmp_path / "SHA256SUMS"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert [line.split()[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()] == sorted(wheels)
