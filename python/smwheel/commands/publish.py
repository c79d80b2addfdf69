"""`smwheel publish`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import TracebackType
from typing import TextIO

import click
from packaging.utils import parse_wheel_filename
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from smwheel.github import Github, Limits, TokenError, check_api_url, clean_token
from smwheel.publish import Patience, Publisher, Upload
from smwheel.release_set import File, check_set, read_matrix


class Lines:
    """Progress in plain lines on stderr."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to do."""

    def note(self, text: str) -> None:
        """Prints it."""
        click.echo(text, err=True)

    def uploading(self, file: File) -> None:
        """Prints that."""
        click.echo(f"upload {file.name}, {file.size} bytes", err=True)

    def advanced(self, size: int) -> None:
        """A line for each piece would be too many."""

    def uploaded(self, file: File) -> None:
        """Prints that."""
        click.echo(f"uploaded {file.name}, {file.digest}", err=True)


class _Bars(Lines):
    """Progress as a bar for each upload, and one for all."""

    def __init__(self, console: Console, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bars = Bars(*columns, TimeRemainingColumn(), console=console)
        self._all = self._bars.add_task("all files", total=total)
        self._task = self._all
        self._sent = 0

    def __enter__(self) -> _Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def uploading(self, file: File) -> None:
        # An upload that failed is sent anew.
        self._bars.advance(self._all, -self._sent)
        self._sent = 0
        if self._task != self._all:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(file.name, total=file.size)

    def advanced(self, size: int) -> None:
        self._sent += size
        self._bars.advance(self._task, size)
        self._bars.advance(self._all, size)

    def uploaded(self, file: File) -> None:
        self._sent = 0
        self.note(f"uploaded {file.name}, {file.digest}")


def _repository(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+", value):
        raise click.BadParameter(f"expected owner/name, found {value!r}")
    return value


def _tag(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    # git check-ref-format has more rules; these keep a tag from changing a URL.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+/-]*", value) or ".." in value or "//" in value:
        raise click.BadParameter(f"expected the name of a tag, such as v0.7.4, found {value!r}")
    return value


@click.command(name="publish")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--repository", required=True, callback=_repository, help="owner/name on GitHub.")
@click.option("--tag", required=True, callback=_tag, help="The release's tag, which must be pushed already.")
@click.option("--matrix", type=click.Path(path_type=Path), help="//wheels:matrix.json: DIRECTORY must have its wheels.")
@click.option("--dry-run", is_flag=True, help="Check the files, look what is there, and say what would be done.")
@click.option("--replace", is_flag=True, help="Replace other files in a draft of ours. Never what is published.")
@click.option(
    "--prerelease/--no-prerelease", default=None, help="Default: whether the wheels' version is a prerelease."
)
@click.option("--notes", type=click.File(encoding="utf-8"), help="A file with the text of the release.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option("--api-url", envvar="GITHUB_API_URL", default="https://api.github.com", show_default=True)
@click.option(
    "--deadline",
    type=click.FloatRange(0.01),
    default=1800.0,
    show_default=True,
    help="Seconds that one upload may take.",
)
@click.option("--attempts", type=click.IntRange(1), default=8, show_default=True, help="Of one step.")
@click.option(
    "--pace",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds between two changes; waits after failures are multiples of it.",
)
def command(
    directory: Path,
    repository: str,
    tag: str,
    matrix: Path | None,
    dry_run: bool,
    replace: bool,
    prerelease: bool | None,
    notes: TextIO | None,
    as_json: bool,
    api_url: str,
    deadline: float,
    attempts: int,
    pace: float,
) -> None:
    """Publish the wheels in DIRECTORY, and below it, as a GitHub release: all of them or none.

    All files are checked before anything is uploaded, to a draft; the draft is published when GitHub has every file with
    the right digest. If it is interrupted, run the same command again. The token is read from GH_TOKEN or GITHUB_TOKEN.

    Exit codes: 0 published, or it was already; 1 another error; 2 usage; 3 the files are unfit; 4 what is there must
    not be changed, or GitHub refuses; 5 it failed too often, run it again; 6 the token.
    """
    api_url = check_api_url(api_url)
    token = clean_token(os.environ)
    if not token and not dry_run:
        raise TokenError(
            "There is no token.",
            "one that may write the repository's contents, in GH_TOKEN or GITHUB_TOKEN",
            "neither is set",
            "set one; smwheel reads it from nowhere else.",
        )
    console = Console(stderr=True)
    lines = Lines()
    files = check_set(
        directory, tag, read_matrix(matrix) if matrix else None, lambda name: lines.note(f"checked {name}")
    )
    if prerelease is None:
        versions = [parse_wheel_filename(file.name)[1] for file in files if file.name.endswith(".whl")]
        prerelease = any(version.is_prerelease for version in versions)
    total = sum(file.size for file in files)
    lines.note(f"{len(files)} files are fit to be released: {total} bytes")
    url, sent = None, 0
    steps: list[str] = []
    uploaded: list[str] = []
    with _Bars(console, total) if console.is_terminal and not dry_run else lines as progress:
        if token:
            limits = Limits(request=min(30.0, deadline), upload=deadline, pace=pace)
            publisher = Publisher(
                Github(api_url, repository, token, limits),
                tag,
                files,
                progress,
                Patience(attempts=attempts, pace=pace),
                replace=replace,
                prerelease=prerelease,
                notes=notes.read() if notes else "",
            )
            if dry_run:
                actions = publisher.plan(publisher.look())
                steps = [str(action) for action in actions]
                # A plan ends before its last step if files are missing.
                steps += ["publish the draft"] if any(isinstance(action, Upload) for action in actions) else []
            else:
                result = publisher.run()
                url, uploaded, sent = result.release.html_url, result.uploaded, result.sent
        else:
            steps = ["(without GH_TOKEN or GITHUB_TOKEN: not known what is there)"]
    if as_json:
        said = {
            "repository": repository,
            "tag": tag,
            "prerelease": prerelease,
            "dry_run": dry_run,
            "url": url,
            "files": [
                {"name": f.name, "bytes": f.size, "sha256": f.sha256, "uploaded": f.name in uploaded} for f in files
            ],
            "sent_bytes": sent,
            "steps": steps,
        }
        click.echo(json.dumps(said, indent=1))
    elif dry_run:
        click.echo(
            "\n".join(f"would {step}" if not step.startswith("(") else step for step in steps) or "nothing to do"
        )
    else:
        click.echo(f"published: {url}\n{len(uploaded)} of {len(files)} files were uploaded now, {sent} bytes")
        click.echo(f"Next, the index that points there: smwheel index {directory} --help")
