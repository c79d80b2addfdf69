"""smwheel install: finds out what a machine has, chooses the wheel whose code runs there, installs it and checks that."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from packaging.version import Version
from sm_targets import image_for

from smwheel import options
from smwheel.candidates import Wheel, candidates
from smwheel.detect import Request, ask_python, detect, from_environment
from smwheel.environment import Environment
from smwheel.exit_codes import CodedError, ExitCode
from smwheel.installers import Command, choose
from smwheel.installers import command as installer_command
from smwheel.resolve import Decision, Refusal, RefusedError, alias, covers, resolve
from smwheel.system import LocalSystem, System


def _version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            Version(value)
        except ValueError as error:
            raise click.BadParameter(f"expected a version such as 0.7.4, found {value!r}") from error
    return value


@click.command(help="Install the wheel whose code runs on this machine's GPUs.")
@click.option("--cuda-version", type=options.CUDA_VERSION, help="CUDA version, 12.9 or cu129. Default: torch's.")
@click.option("--sm-family", metavar="FAMILY", help="Take a wheel of this SM family, sm12x.")
@click.option(
    "--device", "devices", type=options.DEVICE, multiple=True, help="A GPU's compute capability, 8.6. Repeatable."
)
@click.option(
    "--flashinfer-version", callback=_version, help="FlashInfer's version. Default: the one that is installed."
)
@click.option("--index-url", envvar="SMWHEEL_INDEX_URL", metavar="URL", help="Index that `smwheel index` wrote.")
@click.option(
    "--find-links",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take wheels in this directory, and ask no index.",
)
@click.option("--nightly", is_flag=True, help="Take nightly wheels.")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@click.option("--installer", type=click.Choice(["auto", "pip", "uv"]), default="auto", show_default=True)
@options.python
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    cuda_version: str | None,
    sm_family: str | None,
    devices: tuple[str, ...],
    flashinfer_version: str | None,
    index_url: str | None,
    find_links: Path | None,
    nightly: bool,
    dry_run: bool,
    installer: str,
    python: str | None,
    as_json: bool,
) -> None:
    """The command line."""
    system: System = ctx.obj or LocalSystem()
    report: dict[str, Any] = {"error": None, "exit_code": 0, "installed": False}
    say = Printer(as_json)
    try:
        request = from_environment(
            Request(cuda_version, sm_family, devices, flashinfer_version, nightly, python), system
        )
        env = detect(request, system)
        report["environment"] = asdict(env)
        say.environment(env)
        decision = decide(request, env, index_url, find_links)
        chosen = decision.wheel
        report |= {"wheel": asdict(chosen), "requirement": chosen.requirement, "notes": decision.notes}
        report["refused"] = [describe(refusal) for refusal in decision.refusals]
        say.decision(decision, env)
        run = plan(installer, env, chosen, find_links is not None)
        report["command"] = list(run.arguments) if run else None
        report["stdin"] = run.stdin if run else ""
        say.command(run, chosen)
        if not dry_run:
            if run:
                install(run, as_json)
            verify(env, chosen, system)
            report["installed"] = True
            say.line(f"Checked: {chosen.requirement} is installed{_for(env)}.")
    except CodedError as failure:
        report |= {"error": {"name": failure.code.name, "message": str(failure)}, "exit_code": failure.exit_code}
        if isinstance(failure, RefusedError):
            report["refused"] = [describe(refusal) for refusal in failure.refusals]
            say.refusals(failure.refusals)
        raise
    finally:
        if as_json:
            click.echo(json.dumps(report, indent=1))


def decide(request: Request, env: Environment, index_url: str | None, find_links: Path | None) -> Decision:
    """Chooses among the wheels that there are. What is not known of the machine is said before any index is asked."""
    from smwheel.resolve import check

    check(request, env)
    return resolve(request, env, candidates(index_url, find_links, request.nightly))


def describe(refusal: Refusal) -> dict[str, str]:
    """A refusal, for JSON."""
    return {"filename": refusal.wheel.filename, "version": refusal.wheel.version, "reason": refusal.reason}


def problems(manifest: dict[str, Any], env: Environment) -> list[str]:
    """The devices that an installed wheel has no code for, by its manifest."""
    facts = [manifest[key] for key in ("sm_targets", "devices", "cuda_version")]
    return [device for device in env.devices if not covers(facts[0], facts[1], facts[2], device)]


def plan(installer: str, env: Environment, wheel: Wheel, from_directory: bool) -> Command | None:
    """The command that is needed; None if the wheel is there already, and whole. Raises CodedError."""
    installed = env.installed
    same = installed is not None and installed.version == wheel.version
    if (
        same
        and installed
        and installed.manifest
        and not installed.damaged
        and installed.manifest.get("cpu") == wheel.cpu
    ):
        return None
    return installer_command(choose(installer, env), env, wheel, from_directory, same)


def install(run: Command, as_json: bool) -> None:
    """Runs the installer; what it says goes to the person. Raises CodedError if it fails."""
    import subprocess

    try:
        done = subprocess.run(
            run.arguments,
            input=run.stdin.encode(),
            stdout=sys.stderr.fileno() if as_json else None,
            check=False,
        )
    except OSError as error:
        found = str(error)
    else:
        if done.returncode == 0:
            return
        found = f"exit status {done.returncode}; what it said is above"
    raise CodedError(
        ExitCode.INSTALLER, f"{run.installer} did not install the wheel: {run}", "exit status 0", found,
        "see what it says. Nothing was changed if it could not find or fetch the wheel.",
    )  # fmt: skip


def verify(env: Environment, wheel: Wheel, system: System) -> None:
    """Whether what is installed now is this wheel, whole, with code for every visible GPU. Raises CodedError."""
    installed = ask_python(env.python, system, anew=True)["jit_cache"]
    if installed is None:
        found = "nothing"
    elif installed["version"] != wheel.version:
        found = f"version {installed['version']}"
    elif not installed["manifest"]:
        found = "no manifest.json in it"
    elif installed["damaged"]:
        found = f"files that are not as its RECORD says: {', '.join(installed['damaged'][:3])}"
    elif installed["manifest"]["cpu"] != env.cpu.value:
        found = f"a wheel for {installed['manifest']['cpu']}"
    elif problems(installed["manifest"], env):
        found = f"a wheel without code for {', '.join(problems(installed['manifest'], env))}"
    else:
        return
    raise CodedError(
        ExitCode.VERIFICATION, f"What is installed for {env.python} is not what was to be installed.",
        f"{wheel.requirement} for {env.cpu.value}{_for(env)}", found, "run smwheel doctor.",
    )  # fmt: skip


def _for(env: Environment) -> str:
    return f", with code for {', '.join(env.devices)}" if env.devices else ""


class Printer:
    """Says what is found and done; with JSON on standard output, on standard error."""

    def __init__(self, as_json: bool) -> None:
        self.err = as_json

    def line(self, text: str = "") -> None:
        """Prints a line."""
        click.echo(text, err=self.err)

    def environment(self, env: Environment) -> None:
        """What was found, and from where."""
        for name, value in rows(env):
            self.line(f"{name + ':':<12}{value}")

    def refusals(self, refusals: tuple[Refusal, ...]) -> None:
        """Why each wheel is not the one."""
        self.line("Refused:")
        for refusal in refusals:
            self.line(f"  {refusal.wheel.version} {refusal.wheel.cpu}: {refusal.reason}")

    def decision(self, decision: Decision, env: Environment) -> None:
        """What was chosen, and why nothing else."""
        self.refusals(decision.refusals)
        for note in decision.notes:
            self.line(f"Note: {note}")
        wheel = decision.wheel
        major = int(wheel.cuda_version.split(".")[0])
        images = [f"{device} runs {image_for(wheel.sm_targets, alias(device, major))}" for device in env.devices]
        self.line(f"Chosen: {wheel.filename}" + (f" ({', '.join(images)})" if images else ""))

    def command(self, run: Command | None, wheel: Wheel) -> None:
        """The exact command."""
        self.line(f"Command: {run}" if run else f"{wheel.requirement} is installed already: there is nothing to do.")


def rows(env: Environment) -> list[tuple[str, str]]:
    """What is known of a machine, a line for each value with its source."""

    def show(found: Any, text: str | None = None) -> str:
        return "unknown" if found is None else f"{text if text is not None else found.value} ({found.source})"

    gpus = None if env.gpus is None else ", ".join(map(str, env.gpus.value)) or "none"
    if env.devices_given:
        gpus = ", ".join(env.devices)
    driver = "not asked" if env.devices_given and env.driver is None else show(env.driver)
    lines = [
        ("Python", f"{env.python_version}, {env.python}"),
        ("CPU", show(env.cpu)),
        ("FlashInfer", show(env.flashinfer)),
        ("CUDA", show(env.cuda)),
        ("driver", driver),
        ("GPUs", show(env.gpus, gpus)),
        ("installed", env.installed.version if env.installed else "no flashinfer-jit-cache"),
    ]
    return lines + [("probe", f"{probe.name}: {probe.outcome}") for probe in env.probes]
