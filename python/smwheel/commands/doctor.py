"""smwheel doctor: what is wrong with what is installed, and how to mend it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from smwheel import options
from smwheel.commands.install import Printer
from smwheel.detect import Request, detect, from_environment
from smwheel.diagnosis import diagnose, worst
from smwheel.exit_codes import CodedError
from smwheel.system import LocalSystem, System


@click.command(help="Say what is wrong with what is installed, and how to mend it.")
@click.option(
    "--device", "devices", type=options.DEVICE, multiple=True, help="A GPU's compute capability, 8.6. Repeatable."
)
@options.python
@options.as_json
@click.pass_context
def command(ctx: click.Context, devices: tuple[str, ...], python: str | None, as_json: bool) -> None:
    """The command line. Exits with the code of the worst finding."""
    system: System = ctx.obj or LocalSystem()
    say = Printer(as_json)
    report: dict[str, Any] = {"error": None, "exit_code": 0}
    try:
        env = detect(from_environment(Request(devices=devices, python=python), system), system)
        findings = diagnose(env)
        code = worst(findings)
        report |= {"environment": asdict(env), "exit_code": int(code)}
        report["findings"] = [
            {"code": int(f.code), "name": f.code.name, "what": f.what, "mend": f.mend} for f in findings
        ]
        say.environment(env)
        say.line()
        for finding in findings:
            say.line(f"{'note' if finding.code == 0 else finding.code.name}: {finding.what} To mend: {finding.mend}")
        if code == 0:
            say.line("The wheel fits.")
    except CodedError as failure:
        report |= {"error": {"name": failure.code.name, "message": str(failure)}, "exit_code": failure.exit_code}
        raise
    finally:
        if as_json:
            click.echo(json.dumps(report, indent=1))
    ctx.exit(int(code))
