"""The command that installs a wheel: pip of the target Python, or uv."""

from __future__ import annotations

from dataclasses import dataclass

from smwheel.candidates import DISTRIBUTION, Wheel
from smwheel.environment import Environment
from smwheel.exit_codes import CodedError, ExitCode


@dataclass(frozen=True)
class Command:
    """A command, as a list for no shell, and what it reads on standard input: a requirement with its hash."""

    installer: str
    arguments: tuple[str, ...]
    stdin: str = ""

    def __str__(self) -> str:
        """As it can be pasted into a shell."""
        import shlex

        line = shlex.join(self.arguments)
        return f"echo {shlex.quote(self.stdin.strip())} | {line}" if self.stdin else line


def choose(wanted: str, env: Environment) -> str:
    """`pip` or `uv`. In an environment that uv made, uv if there is one; else pip if the Python has it. Raises CodedError."""
    if wanted == "pip" and not env.has_pip:
        raise _absent(
            "pip", f"{env.python} has no module pip", f"run {env.python} -m ensurepip, or use --installer uv."
        )
    if wanted == "uv" and env.uv is None:
        raise _absent("uv", "no uv on PATH", "install uv, or use --installer pip.")
    if wanted != "auto":
        return wanted
    if env.uv and (env.uv_environment or not env.has_pip):
        return "uv"
    if env.has_pip:
        return "pip"
    raise _absent(
        "pip or uv", f"{env.python} has no module pip, and there is no uv on PATH",
        f"install uv, or run {env.python} -m ensurepip.",
    )  # fmt: skip


def _absent(what: str, found: str, todo: str) -> CodedError:
    return CodedError(ExitCode.INSTALLER, f"There is no {what} to install with.", what, found, todo)


def command(installer: str, env: Environment, wheel: Wheel, from_directory: bool, reinstall: bool) -> Command:
    """The command that installs exactly this wheel and nothing else.

    Where its sha256 is known the installer must check it: that takes a requirements file, here standard input.
    reinstall: also if the version is there already.
    """
    if installer == "uv":
        start = [env.uv or "uv", "pip", "install", "--python", env.python]
        start += ["--reinstall-package", DISTRIBUTION] if reinstall else []
    else:
        start = [env.python, "-m", "pip", "install", "--disable-pip-version-check"]
        start += ["--force-reinstall"] if reinstall else []
    source = ["--no-index", "--find-links", wheel.location] if from_directory else ["--index-url", wheel.location]
    arguments = [*start, "--no-deps", *source]
    if wheel.sha256 is None:
        return Command(installer, (*arguments, wheel.requirement))
    file = "-" if installer == "uv" else "/dev/stdin"
    pinned = f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n"
    return Command(installer, (*arguments, "--require-hashes", "-r", file), pinned)
