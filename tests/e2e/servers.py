"""Starts the servers of tools/remote, and does to them what happens to servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from workspace import ROOT


@dataclass(frozen=True)
class Server:
    """A script of tools/remote that runs: its process, its address, the ports it was given, where it keeps its data."""

    process: subprocess.Popen[bytes]
    address: str
    ports: tuple[int, ...]
    directory: Path

    def processes(self, name: str) -> list[int]:
        """The numbers of its processes that run a program."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                program, _, rest = path.read_text().partition("(")[2].rpartition(")")
            except OSError:  # it has ended
                continue
            parents[int(path.parent.name)] = (program, int(rest.split()[1]))

        def is_own(pid: int) -> bool:
            while pid in parents and pid != self.process.pid:
                pid = parents[pid][1]
            return pid == self.process.pid

        return [pid for pid, (program, _) in parents.items() if program == name[:15] and is_own(pid)]

    def kill(self) -> None:
        """Ends it as a machine that loses power does."""
        self.process.kill()
        self.process.wait(30)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """A program of it that hangs for a while: connections are accepted, and nothing is answered."""
        pids = self.processes(name)
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


def free_ports(number: int) -> list[int]:
    """Ports of this machine on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [s.getsockname()[1] for s in sockets]


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Waits for a condition; an AssertionError says what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@contextmanager
def server(name: str, directory: Path, ports: dict[str, int], *options: str, prefix: str = "") -> Iterator[Server]:
    """Runs a script of tools/remote until the block ends; ready when the block begins.

    `ports` are its options that name ports. `prefix` is shell text to run before it, in a mount namespace of its own.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = [str(ROOT / "tools/remote" / name), "--directory", str(directory), *options]
    for option, port in ports.items():
        command += [f"--{option}", str(port)]
    if prefix:
        command = ["unshare", "--mount", "bash", "-ec", f'{prefix}; exec "$@"', "bash", *command]
    log = directory.with_name(directory.name + ".log")
    with open(log, "wb") as output:
        # If this process is killed, the server is as well.
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            # The first one may have to make the servers' Debian root.
            wait_until(
                lambda: b": ready" in log.read_bytes() or process.poll() is not None, 900, f"{name} is ready: {log}"
            )
            assert process.poll() is None, log.read_text()
            scheme = "http" if name == "http-cache" else "grpc"
            yield Server(process, f"{scheme}://127.0.0.1:{ports['port']}", tuple(ports.values()), directory)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def http_cache(directory: Path, *options: str, prefix: str = "") -> Iterator[Server]:
    """nginx; its ports are the one that can be written to and the one that can't."""
    port, read_only = free_ports(2)
    with server(
        "http-cache", directory, {"port": port, "read-only-port": read_only}, *options, prefix=prefix
    ) as started:
        yield started


@contextmanager
def casd(directory: Path) -> Iterator[Server]:
    """buildbox-casd behind nginx."""
    port, inner = free_ports(2)
    with server("casd", directory, {"port": port, "inner-port": inner}) as started:
        yield started


@contextmanager
def buildgrid(directory: Path) -> Iterator[Server]:
    """BuildGrid with its database, and no worker."""
    port, database = free_ports(2)
    with server("buildgrid", directory, {"port": port, "database-port": database}) as started:
        yield started


@contextmanager
def worker(directory: Path, farm: Server) -> Iterator[Server]:
    """A worker of BuildGrid."""
    [port] = free_ports(1)
    with server("worker", directory, {"port": port}, "--server", farm.address) as started:
        yield started


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What must not take longer."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"it took {took:.0f} s, not under {seconds:.0f} s"


class During:
    """Does something as soon as a condition holds, while the block runs; the block must last until then."""

    def __init__(self, condition: Callable[[], object], what: Callable[[], None]) -> None:
        self.happened = False

        def run() -> None:
            wait_until(condition, 120, "the moment of the fault")
            what()
            self.happened = True

        self.thread = threading.Thread(target=run, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join(30)
        assert self.happened, "the build ended before the fault"
