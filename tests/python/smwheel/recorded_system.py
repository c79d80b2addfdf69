"""A machine as it was recorded: what each probe of smwheel.detect would get there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import smwheel  # noqa: F401 (the build's programs are importable by it)
from sm_targets import DEVICES, image_for
from smwheel.candidates import Wheel
from smwheel.system import Completed, NotRun

ROOT = Path(__file__).resolve().parents[3]
TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "environments.json").read_text())

# What the target Python says where a case says nothing else: an x86_64 machine with torch for CUDA 13.0.
PYTHON: dict[str, Any] = {
    "python": "3.12.3",
    "machine": "x86_64",
    "libc": "glibc 2.35",
    "pip": True,
    "uv_environment": False,
    "torch": "2.13.0+cu130",
    "torch_cuda": "13.0",
    "flashinfer": "0.7.4",
    "jit_cache": None,
}


@dataclass(frozen=True)
class RecordedSystem:
    """See smwheel.system.System."""

    environ: Mapping[str, str] = field(default_factory=dict)
    release: str = "6.8.0-87-generic"
    executable: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Completed | NotRun] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def which(self, program: str) -> str | None:
        return self.programs.get(program)

    def run(self, name: str, command: Sequence[str], timeout: float) -> Completed | NotRun:
        assert 0 < timeout <= 60
        self.asked.append(name)
        return self.answers.get(name, NotRun("not found", missing=True))


def _answer(name: str, recording: Any) -> Completed | NotRun:
    """`hung`, `missing`; the name of a recording, or one: text, JSON, or {status, stdout, stderr}."""
    if recording == "hung":
        return NotRun("no answer within 5 s")
    if recording == "missing":
        if name == "nvidia-smi":
            return NotRun("not found", missing=True)
        library = {"nvml": "libnvidia-ml.so.1", "libcuda": "libcuda.so.1"}[name]
        error = f"{library}: cannot open shared object file: No such file or directory"
        return Completed(0, json.dumps({"missing": True, "error": error}))
    if isinstance(recording, str):
        recording = TABLE["recordings"][name][recording]
    if isinstance(recording, dict) and "status" in recording:
        return Completed(recording["status"], recording.get("stdout", ""), recording.get("stderr", ""))
    return Completed(0, "\n".join(recording) + "\n" if isinstance(recording, list) else json.dumps(recording))


def recorded(case: dict[str, Any]) -> RecordedSystem:
    """The machine of a case. Probes that it does not speak of find nothing."""
    python = case.get("python", {})
    answers = {name: _answer(name, case.get(name, "missing")) for name in ("nvml", "libcuda", "nvidia-smi")}
    answers["python"] = (
        _answer("python", python) if python == "hung" or "status" in python
        else Completed(0, json.dumps({**PYTHON, **python}))
    )  # fmt: skip
    programs = dict(case.get("programs", {}))
    if "nvidia-smi" in case and "/usr/lib/wsl/lib/nvidia-smi" not in programs:
        programs["nvidia-smi"] = "/usr/bin/nvidia-smi"
    return RecordedSystem(
        environ=case.get("environ", {}),
        release=case.get("release", "6.8.0-87-generic"),
        files=case.get("files", {}),
        programs=programs,
        answers=answers,
    )


def matrix_wheels() -> list[Wheel]:
    """The wheels of the matrix, as an index would list them: `devices` as wheel_pack.py measures them."""
    golden = json.loads((ROOT / "tests/wheels/matrix.golden.json").read_text())
    return [
        Wheel(
            filename=f"flashinfer_jit_cache-{w['version']}-{w['tag']}.whl",
            version=w["version"],
            cuda_version=w["cuda_version"],
            cpu=w["cpu"],
            sm_family=w["family"],
            sm_targets=tuple(w["sm_targets"]),
            devices=tuple(d for d in DEVICES if image_for(w["sm_targets"], d)),
            minimum_driver=w["minimum_driver"],
            location=f"https://index.test/{w['cuda_label']}/{w['family']}/",
            requires_python=">=3.9",
            sha256="ab" * 32,
        )
        for w in golden["wheels"]
    ]
