"""Drives Bazel from outside, in this workspace or in a copy of it elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(
    os.environ.get("SMWHEEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smwheel"
)


@dataclass(frozen=True)
class Action:
    """An action that ran: its mnemonic, the label that it is of, and its primary output."""

    mnemonic: str
    label: str
    output: str


@dataclass(frozen=True)
class Workspace:
    """A workspace, the flags of every command in it, and what is different in its environment."""

    path: Path
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    bazelw: Path = ROOT / "bazelw"

    def bazel(self, command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a Bazel command; with `check`, a failure is an AssertionError with what Bazel said."""
        words = [str(self.bazelw), command]
        if command not in ("info", "shutdown", "clean"):
            words += [*self.flags, "--color=no", "--curses=no", "--noshow_progress"]
        result = subprocess.run(
            [*words, *arguments],
            cwd=self.path,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or result.returncode == 0, (
            f"{' '.join([*words, *arguments])}\n{result.stdout}\n{result.stderr}"
        )
        return result

    def build(self, *arguments: str) -> list[Action]:
        """Builds, and returns the actions that ran (those that a disk cache answered among them)."""
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory, "events.json")
            self.bazel("build", f"--build_event_json_file={log}", "--build_event_publish_all_actions", *arguments)
            actions = []
            for line in log.read_text().splitlines():
                event = json.loads(line)
                if "action" in event and "actionCompleted" in event["id"]:
                    identity = event["id"]["actionCompleted"]
                    actions.append(
                        Action(event["action"]["type"], identity.get("label", ""), identity["primaryOutput"])
                    )
            return actions

    def failure(self, *arguments: str) -> str:
        """Builds what must not build, and returns what Bazel said."""
        result = self.bazel("build", *arguments, check=False)
        assert result.returncode != 0, f"this was built: {' '.join(arguments)}"
        return result.stderr

    def files(self, *targets: str) -> list[Path]:
        """The files that targets build, in the order of the targets."""
        output = self.bazel("cquery", *targets, "--output=files").stdout
        root = Path(self.bazel("info", "execution_root").stdout.strip())
        return [root / line for line in output.splitlines()]

    def repository(self, name: str) -> Path:
        """The directory of an external repository, as MODULE.bazel declares it (WORKSPACE may have another)."""
        [path] = Path(self.bazel("info", "output_base").stdout.strip(), "external").glob(f"*[~+]{name}")
        return path

    def wheels(self, *patterns: str) -> dict[str, Path]:
        """Builds wheels, or groups of them, in one invocation, and returns them by file name."""
        self.bazel("build", *patterns)
        paths = self.files(f'kind("py_wheel", deps({" + ".join(patterns)}, 1))')
        return {path.name: path for path in paths if path.suffix == ".whl"}


def copy_workspace(to: Path) -> None:
    """Makes `to` a copy of what git sees of this workspace; files that are the same already stay untouched."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = {name for name in listed if (ROOT / name).is_file()}
    to.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        source, target = ROOT / name, to / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for directory, _, files in os.walk(to):
        for file in files:
            path = Path(directory, file)
            if str(path.relative_to(to)) not in wanted:
                path.unlink()
