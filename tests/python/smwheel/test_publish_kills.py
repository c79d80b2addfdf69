"""Publishing through faults and kills, at random: never a half release, a wrong byte or a lost asset.

Each run has its own server with another history, and faults at requests that are drawn from the run's seed. A publisher
is a process; when it was killed, or gave up, the same command is run again, as a person would. The server checks the
public view after each change. SMWHEEL_PUBLISH_SEED=N repeats run N alone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from fake_github import FAULTS, TOKEN, UPLOAD_FAULTS, FakeGithub
from made_wheels import make_wheel, wheel_name
from smwheel import cli
from smwheel.publish import MARKER
from smwheel.release_set import sha256

RUNS = 200
TAG = "v0.7.4"
WORKERS = 4
SEEDS = [int(os.environ["SMWHEEL_PUBLISH_SEED"])] if "SMWHEEL_PUBLISH_SEED" in os.environ else list(range(RUNS))

# Reads a line of JSON for each publisher: arguments and a file for what it says. Forks it, for imports take longer than
# publishing, and writes its pid, then its exit status, which is negative for a signal.
_FORKER = """
import json, os, sys
from smwheel import cli
import smwheel.commands.publish, wheel_zip
for line in sys.stdin:
    arguments, output = json.loads(line)
    pid = os.fork()
    if not pid:
        file = os.open(output, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        try:
            cli.main(arguments)
        except SystemExit as error:
            code = error.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Forker:
    """Starts publishers one after the other, and kills them."""

    def __init__(self) -> None:
        environment = {"PYTHONPATH": str(Path(cli.__file__).parents[1]), "GH_TOKEN": TOKEN}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._pid: int | None = None
        self._lock = threading.Lock()

    def run(self, arguments: list[str], output: Path, kill_after: float | None) -> int:
        """Runs a publisher to its end, or until it is killed; returns its exit status."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps([arguments, str(output)]), file=self._process.stdin, flush=True)
        self._pid = int(self._process.stdout.readline())
        timer = threading.Timer(kill_after, self.kill) if kill_after is not None else None
        if timer:
            timer.start()
        status = int(self._process.stdout.readline())
        with self._lock:
            self._pid = None
        if timer:
            timer.cancel()
        return status

    def kill(self) -> None:
        """Kills the publisher, if there is one, as nothing can guard against."""
        with self._lock:
            if self._pid:
                try:
                    os.kill(self._pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def close(self) -> None:
        """Ends the process that forks."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


class Faults:
    """Faults at some of the requests, and more of them at uploads; after so many, none."""

    def __init__(self, noise: random.Random, counts: Counter[str]) -> None:
        self._counts, self._lock = counts, threading.Lock()
        self._noise, self._left = random.Random(noise.random()), noise.randrange(9)

    def __call__(self, method: str, path: str) -> str | None:
        with self._lock:
            upload = method == "POST" and path.endswith("/assets")
            draw, kill, kind = (self._noise.random() for _ in range(3))
            if not self._left or draw > (0.4 if upload else 0.1):
                return None
            known = UPLOAD_FAULTS if upload and kind < 0.7 else FAULTS
            fault = self._noise.choice([fault for fault in known if fault.startswith("kill") == (kill < 0.4)])
            self._left -= 1
            self._counts[fault] += 1
            return fault


def add_history(github: FakeGithub, noise: random.Random, expected: dict[str, bytes]) -> None:
    """What earlier runs and releases may have left."""
    github.page = noise.choice([2, 5, 100])
    for number in range(noise.randrange(8)):
        github.add_release(f"v0.6.{number}", noise.random() < 0.3, {"a.whl": b"old", "SHA256SUMS": b"sums"})
    for _ in range(noise.choice([0, 0, 1, 2])):
        names = noise.sample(sorted(expected), noise.randrange(len(expected)))
        starter = noise.choice([name for name in expected if name not in names])
        wreck = starter if noise.random() < 0.5 else ""
        github.add_release(TAG, True, {name: expected[name] for name in names}, body=MARKER, starter=wreck)


def one_run(seed: int, directory: Path, expected: dict[str, bytes], forker: Forker, output: Path) -> Counter[str]:
    """One release through the faults of a seed; returns what happened, by name."""
    noise = random.Random(seed)
    counts: Counter[str] = Counter()
    with FakeGithub() as github:
        github.expected[TAG] = expected
        github.immutable = noise.random() < 0.5
        github.hang = 0.6
        add_history(github, noise, expected)
        others = {tag: files for tag, files in github.public().items() if tag != TAG}
        github.fault, github.kill = Faults(noise, counts), forker.kill
        arguments = ["publish", str(directory), "--repository", "owner/name", "--tag", TAG, "--pace", "0.0005"]
        arguments += ["--api-url", github.api_url, "--deadline", "0.4"]
        for _ in range(20):
            kill_after = noise.uniform(0, 0.3) if noise.random() < 0.25 else None
            status = forker.run(arguments, output, kill_after)
            counts[f"exit {status}"] += 1
            said = output.read_text() if output.exists() else ""
            output.unlink(missing_ok=True)
            assert TOKEN not in said
            # What anybody would see, asked as anybody: nothing, or all of it.
            github.fault = github.fault if status else (lambda method, path: None)
            with github.lock:
                assert github.public().get(TAG, expected) == expected, f"seed {seed}: {said}"
                assert not github.violations, f"seed {seed}: {github.violations}"
            if status == 0:
                break
            # Killed before it could delete what arrived damaged: that is not its own any more, but for --replace.
            if status == 4 and "add --replace" in said and counts["corrupt"]:
                arguments.append("--replace")
                continue
            # Killed, or failed too often: run it again. Everything else would be wrong.
            assert status in (-signal.SIGKILL, 5), f"seed {seed}: exit {status}: {said}"
        else:
            pytest.fail(f"seed {seed} did not end: {said}")
        public = requests.get(f"{github.api_url}/repos/owner/name/releases/tags/{TAG}", timeout=10).json()
        there = {asset["name"]: asset["digest"] for asset in public["assets"] if asset["state"] == "uploaded"}
        digests = {name: f"sha256:{sha256(directory / name)}" for name in expected if name != "SHA256SUMS"}
        assert {name: there[name] for name in digests} == digests, f"seed {seed}"
        assert github.public() == {**others, TAG: expected}, f"seed {seed}"
        # No draft of it is left behind.
        assert [r.draft for r in github.releases.values() if r.tag == TAG] == [False], f"seed {seed}"
    return counts


def test_random_faults_and_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every fault is met, and every run ends with the right release."""
    directory = tmp_path / "dist"
    for family in ("sm9x", "sm10x", "sm12x"):
        make_wheel(directory, family, {"norm": {"host": 300, "12.0f": 90_000}})
    expected = {
        wheel_name(family): (directory / wheel_name(family)).read_bytes() for family in ("sm9x", "sm10x", "sm12x")
    }
    sums = "".join(f"{sha256(directory / name)}  {name}\n" for name in sorted(expected))
    expected["SHA256SUMS"] = sums.encode()
    counts: Counter[str] = Counter()
    start = time.monotonic()

    # Runs wait more than they work.
    def some(part: int) -> None:
        forker = Forker()
        try:
            for seed in SEEDS[part::WORKERS]:
                counts.update(one_run(seed, directory, expected, forker, tmp_path / f"{seed}.log"))
        finally:
            forker.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(some, range(WORKERS)))
    with capsys.disabled():
        figures = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        print(f"\n{len(SEEDS)} runs in {time.monotonic() - start:.0f} s: {figures}")
    if len(SEEDS) == RUNS:
        assert {name for name in counts if not name.startswith("exit")} == {*FAULTS, *UPLOAD_FAULTS}
        assert counts["exit -9"] >= RUNS / 4
