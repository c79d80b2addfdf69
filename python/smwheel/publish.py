"""Publishes a set of files as a GitHub release: all of them, or nothing that anybody sees.

`plan` says what is left to do, from what is there: a run that starts, one that starts again after it was killed, and
one whose last request failed without telling whether it took effect all do the same.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from smwheel.errors import SmwheelError
from smwheel.github import UNSTATED, Asset, Github, Release, TransientError
from smwheel.release_set import SUMS, File

# In the body of a draft that `publish` made: it takes no other for its own.
MARKER = "<!-- made by smwheel publish -->"

T = TypeVar("T")


class ConflictError(SmwheelError):
    """What is there must not be changed: published bytes, somebody else's draft, a file of other bytes."""

    exit_code = 4


class GaveUpError(SmwheelError):
    """It failed too often. Nobody sees what is there; the same command goes on from it."""

    exit_code = 5


@dataclass(frozen=True)
class Remote:
    """A release or a draft with its assets."""

    release: Release
    assets: tuple[Asset, ...]


@dataclass(frozen=True)
class Seen:
    """What the repository has of a tag: the published release and all drafts."""

    published: Remote | None
    drafts: tuple[Remote, ...]


@dataclass(frozen=True)
class CreateDraft:
    """To create a draft."""

    def __str__(self) -> str:
        return "create a draft"


@dataclass(frozen=True)
class DeleteDraft:
    """To delete a draft of ours."""

    release: Release

    def __str__(self) -> str:
        return f"delete draft {self.release.id}, of which there is another"


@dataclass(frozen=True)
class DeleteAsset:
    """To delete an asset of a draft of ours."""

    asset: Asset
    why: str

    def __str__(self) -> str:
        return f"delete {self.asset.name}: {self.why}"


@dataclass(frozen=True)
class Upload:
    """To upload a file to the draft."""

    file: File

    def __str__(self) -> str:
        return f"upload {self.file.name}, {self.file.size} bytes"


@dataclass(frozen=True)
class AwaitDigest:
    """To wait until GitHub has computed the digest of an asset."""

    asset: Asset

    def __str__(self) -> str:
        return f"wait for the digest of {self.asset.name}"


@dataclass(frozen=True)
class Publish:
    """To make the draft visible."""

    release: Release

    def __str__(self) -> str:
        return "publish the draft"


Action = CreateDraft | DeleteDraft | DeleteAsset | Upload | AwaitDigest | Publish


def is_equal(asset: Asset, file: File) -> bool:
    """Whether an asset is whole and has the file's bytes."""
    return asset.state == "uploaded" and asset.size == file.size and asset.digest == file.digest


def _differences(assets: Sequence[Asset], files: Mapping[str, File]) -> list[str]:
    """What is wrong with assets that should be exactly the files."""
    there = {asset.name: asset for asset in assets}
    found = [f"{name} is missing" for name in files if name not in there]
    found += [f"{name} is not of this set" for name in sorted(there) if name not in files]
    for name, asset in sorted(there.items()):
        if name in files and not is_equal(asset, files[name]):
            found.append(f"{name} is {asset.state}, {asset.size} bytes, {asset.digest}")
    return found


def draft_to_use(drafts: Sequence[Remote], files: Mapping[str, File]) -> Remote | None:
    """Of several drafts the one with most whole files, the oldest of those."""

    def key(draft: Remote) -> tuple[int, int]:
        whole = sum(asset.name in files and is_equal(asset, files[asset.name]) for asset in draft.assets)
        return -whole, draft.release.id

    return min(drafts, key=key, default=None)


def plan(tag: str, files: Mapping[str, File], seen: Seen, replace: bool = False) -> list[Action]:
    """What is left to do, in order; nothing if the release is there and right.

    files: by name, the set to release. replace: whether assets of our own draft may be replaced. An upload is left out
    of no plan but for an asset that is uploaded and has the file's size and digest. Raises ConflictError.
    """
    drafts = [draft for draft in seen.drafts if MARKER in draft.release.body]
    if seen.published:
        if found := _differences(seen.published.assets, files):
            immutable = ", which is immutable" if seen.published.release.immutable else ""
            raise ConflictError(
                f"{tag} is published{immutable}, and is not this set: {seen.published.release.html_url}",
                f"the {len(files)} files of this set",
                "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else ""),
                "published files are never changed: release these under another version and tag.",
            )
    elif len(drafts) != len(seen.drafts):
        others = [draft.release for draft in seen.drafts if MARKER not in draft.release.body]
        raise ConflictError(
            f"There is a draft of {tag} that `smwheel publish` did not make.",
            "no draft of that tag but its own",
            ", ".join(f"{release.html_url} (id {release.id})" for release in others),
            "delete that draft, or publish it by hand.",
        )
    draft = None if seen.published else draft_to_use(drafts, files)
    actions: list[Action] = []
    for surplus in drafts:
        if surplus is draft:
            continue
        if not replace and (kept := _foreign(surplus.assets, files)):
            raise ConflictError(
                f"There is more than one draft of {tag}: {surplus.release.html_url} has files that are not of this set.",
                "files of this set",
                ", ".join(kept),
                "if that draft may go, add --replace; else delete one of them.",
            )
        actions.append(DeleteDraft(surplus.release))
    if seen.published:
        return actions
    if not draft:
        return [*actions, CreateDraft(), *map(Upload, files.values())]
    if not replace and (kept := _foreign(draft.assets, files)):
        raise ConflictError(
            f"The draft of {tag} has files that are not of this set: {draft.release.html_url}",
            "files of this set with its digests",
            ", ".join(kept),
            "if the set was built anew, add --replace: nobody has seen the draft.",
        )
    there = {asset.name: asset for asset in draft.assets}
    for asset in draft.assets:
        if asset.state != "uploaded":
            actions.append(DeleteAsset(asset, f"an upload that broke off left it ({asset.state})"))
        elif asset.name not in files:
            actions.append(DeleteAsset(asset, "it is not of this set"))
        elif asset.digest is None and asset.size == files[asset.name].size:
            actions.append(AwaitDigest(asset))
        elif not is_equal(asset, files[asset.name]):
            actions.append(DeleteAsset(asset, "it has other bytes"))
    deleted = {action.asset.name for action in actions if isinstance(action, DeleteAsset)}
    actions += [Upload(file) for name, file in files.items() if name not in there or name in deleted]
    return actions or [Publish(draft.release)]


def _foreign(assets: Sequence[Asset], files: Mapping[str, File]) -> list[str]:
    """Whole assets that are not of the set, or have other bytes."""
    names = []
    for asset in assets:
        file = files.get(asset.name)
        unknown = file is not None and asset.digest is None and asset.size == file.size
        if asset.state == "uploaded" and not unknown and not (file and is_equal(asset, file)):
            names.append(asset.name)
    return names


class Progress(Protocol):
    """Is told what happens."""

    def note(self, text: str) -> None:
        """A line for the person that waits."""

    def uploading(self, file: File) -> None:
        """An upload starts, maybe anew."""

    def advanced(self, size: int) -> None:
        """So many bytes of it were sent."""

    def uploaded(self, file: File) -> None:
        """It is there, with the right digest."""


@dataclass(frozen=True)
class Patience:
    """attempts: of one step; pace: seconds, the first wait after a failure; most: seconds of waiting for rate limits.

    A wait doubles with each failure, to at most 60 times `pace`, and is shortened at random by up to half.
    """

    attempts: int = 8
    pace: float = 1.0
    most: float = 7200.0

    def after_failure(self, failures: int, jitter: float) -> float:
        """Seconds to wait after so many failures; jitter: from 0 to 1."""
        return min(60 * self.pace, self.pace * 2.0 ** (failures - 1)) * (1 - jitter / 2)

    def after_limit(self, times: int) -> float:
        """Seconds to wait after a rate limit that names none, for the `times`th time in a row."""
        return 60 * self.pace * 2.0 ** (min(times, 6) - 1)


@dataclass
class Result:
    """What a run did. uploaded: names; sent: bytes of them."""

    release: Release
    uploaded: list[str] = field(default_factory=list)
    sent: int = 0


class Publisher:
    """One run. `sleep` and `jitter` are replaced by tests."""

    def __init__(
        self,
        github: Github,
        tag: str,
        files: Sequence[File],
        progress: Progress,
        patience: Patience,
        *,
        replace: bool = False,
        prerelease: bool = False,
        notes: str = "",
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._github, self._tag, self._progress, self._patience = github, tag, progress, patience
        self._files = {file.name: file for file in files}
        self._replace, self._prerelease, self._sleep, self._jitter = replace, prerelease, sleep, jitter
        self._body = f"{notes or f'{SUMS} has the digest of every file.'}\n\n{MARKER}\n"
        self._known: Release | None = None
        self._tries: Counter[object] = Counter()
        self._waited = 0.0
        self._limits = 0

    def look(self) -> Seen:
        """What the repository has of the tag now. Raises GaveUpError."""
        self._persist("look for the repository", self._github.check_repository)
        seen = self._persist("look what is there", self._look)
        if not seen.published and not self._persist("look for the tag", lambda: self._github.tag_exists(self._tag)):
            raise ConflictError(
                f"{self._github.repository} has no tag {self._tag}.",
                "the tag, on the commit that the wheels were built from: publishing would create it elsewhere",
                "none",
                f"git push origin {self._tag}",
            )
        return seen

    def plan(self, seen: Seen) -> list[Action]:
        """What is left to do. Raises ConflictError."""
        return plan(self._tag, self._files, seen, self._replace)

    def run(self) -> Result:
        """Publishes; returns when the published release was seen to be right. Raises SmwheelError."""
        uploaded: dict[str, int] = {}
        while True:
            seen = self.look()
            actions = self.plan(seen)
            if not actions:
                assert seen.published
                return Result(seen.published.release, list(uploaded), sum(uploaded.values()))
            draft = draft_to_use([d for d in seen.drafts if MARKER in d.release.body], self._files)
            for action in actions:
                self._tries[action] += 1
                try:
                    self._do(action, draft.release if draft else None)
                except TransientError as problem:
                    self._wait(str(action), problem, action)
                    break
                self._limits = 0
                if isinstance(action, Upload):
                    uploaded[action.file.name] = action.file.size
                # What comes after is done on the draft that is there then.
                if isinstance(action, CreateDraft):
                    break

    def _look(self) -> Seen:
        published = self._github.by_tag(self._tag)
        drafts = {release.id: release for release in self._github.drafts(self._tag)}
        # Lists may lag behind what was just created or published.
        if self._known and (known := self._github.release(self._known.id)):
            if known.draft:
                drafts[known.id] = known
            else:
                published = published or known
                drafts.pop(known.id, None)
        return Seen(
            Remote(published, self._github.assets(published)) if published else None,
            tuple(Remote(release, self._github.assets(release)) for _, release in sorted(drafts.items())),
        )

    def _do(self, action: Action, draft: Release | None) -> None:
        if not isinstance(action, Upload):
            self._progress.note(str(action))
        if isinstance(action, CreateDraft):
            self._known = self._github.create_draft(self._tag, self._body, self._prerelease)
        elif isinstance(action, DeleteDraft):
            self._github.delete_draft(action.release)
        elif isinstance(action, DeleteAsset):
            self._github.delete_asset(action.asset)
        elif isinstance(action, AwaitDigest):
            raise TransientError("GitHub gives no digest of it")
        elif isinstance(action, Publish):
            self._known = action.release
            self._github.publish(action.release, self._prerelease)
        else:
            assert draft
            self._upload(draft, action.file)

    def _upload(self, draft: Release, file: File) -> None:
        self._progress.uploading(file)
        asset = self._github.upload(draft, file, self._progress.advanced)
        if asset.name != file.name:
            self._github.delete_asset(asset)
            raise ConflictError(f"GitHub renamed {file.name}.", file.name, asset.name, "give the file such a name.")
        if asset.state == "uploaded" and asset.digest and not is_equal(asset, file):
            # This run has sent it just now: it is nobody else's, and the transfer damaged it.
            self._github.delete_asset(asset)
            raise TransientError(f"it arrived as {asset.size} bytes, {asset.digest}, not {file.size}, {file.digest}")
        self._progress.uploaded(file)

    def _persist(self, what: str, function: Callable[[], T]) -> T:
        """Calls a function that changes nothing until it succeeds."""
        key = (what, "now")
        while True:
            self._tries[key] += 1
            try:
                result = function()
            except TransientError as problem:
                self._wait(what, problem, key)
            else:
                del self._tries[key]
                self._limits = 0
                return result

    def _wait(self, what: str, problem: TransientError, key: object) -> None:
        """Waits before the next try, or raises GaveUpError."""
        tries = self._tries[key]
        if problem.limited:
            self._tries[key] -= 1
            self._limits += 1
            unstated = problem.wait is None or problem.wait == UNSTATED
            # At a reset all clients come at once.
            wait = self._patience.after_limit(self._limits) if unstated else (problem.wait or 0.0)
            wait += self._patience.pace * self._jitter()
            if self._waited + wait > self._patience.most or self._limits > 10 * self._patience.attempts:
                self._give_up(what, f"GitHub's rate limit asks for {wait:.0f} more seconds", problem)
            self._waited += wait
        else:
            if tries >= self._patience.attempts:
                self._give_up(what, f"{tries} failures", problem)
            wait = self._patience.after_failure(tries, self._jitter())
            if problem.wait is not None and problem.wait > wait:
                wait = min(problem.wait, self._patience.most)
        self._progress.note(f"{what}: {problem}; again in {wait:.1f} s")
        self._sleep(wait)

    def _give_up(self, what: str, found: str, problem: TransientError) -> None:
        raise GaveUpError(
            f"{self._tag} of {self._github.repository}: could not {what}.",
            f"success within {self._patience.attempts} attempts and {self._patience.most:.0f} s of waiting",
            f"{found}; the last: {problem}",
            "run the same command again: it goes on where this one ended. Nobody sees an unfinished release.",
        )
