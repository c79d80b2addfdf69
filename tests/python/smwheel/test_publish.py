"""`smwheel publish`: what is checked, what is done, what each failure says."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_github import FAULTS, TOKEN, UPLOAD_FAULTS, FakeGithub
from made_wheels import make_matrix, make_wheel, wheel_name
from smwheel import cli, release_set
from smwheel.commands.publish import Lines
from smwheel.github import UNSTATED, Asset, Github, Limits, Release, TransientError, rate_limit_wait
from smwheel.publish import (
    MARKER,
    AwaitDigest,
    ConflictError,
    CreateDraft,
    DeleteAsset,
    DeleteDraft,
    GaveUpError,
    Patience,
    Publish,
    Publisher,
    Remote,
    Seen,
    Upload,
    plan,
)
from smwheel.release_set import File

TAG = "v0.7.4"
SIZES = {"norm": {"host": 300, "12.0f": 900}, "page": {"host": 200}}
FAMILIES = ["sm9x", "sm10x", "sm12x"]


@dataclass
class Outcome:
    """What a run of the command line did."""

    code: int
    out: str
    err: str


class Setting:
    """A directory of wheels, a server, and the command line between them."""

    def __init__(self, root: Path, github: FakeGithub, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.root, self.github, self.capsys = root / "dist", root, github, capsys
        for family in FAMILIES:
            make_wheel(self.directory, family, SIZES)
        github.expected[TAG] = self.expected = self.files()

    def files(self) -> dict[str, bytes]:
        """What must be published."""
        files = {path.name: path.read_bytes() for path in sorted(self.directory.rglob("*")) if path.is_file()}
        files.pop("SHA256SUMS", None)
        text = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
        return {**files, "SHA256SUMS": text.encode()}

    def run(self, *options: str, code: int = 0, pace: str = "0.001") -> Outcome:
        """Runs `smwheel publish`, and checks that the token is nowhere in what it says."""
        arguments = ["publish", str(self.directory), "--repository", self.github.repository, "--tag", TAG]
        arguments += ["--api-url", self.github.api_url, "--pace", pace, "--deadline", "2", *options]
        with pytest.raises(SystemExit) as exited:
            cli.main(arguments)
        out, err = self.capsys.readouterr()
        assert "must-not-be-seen" not in out + err
        status = exited.value.code
        outcome = Outcome(status if isinstance(status, int) else 0, out, err)
        assert outcome.code == code, err
        assert not self.github.violations
        return outcome

    def says(self, code: int, *words: str, options: tuple[str, ...] = ()) -> None:
        """It fails with a message that has these words, and publishes nothing."""
        before = self.github.public()
        outcome = self.run(*options, code=code)
        for word in (*words, "error: ", "expected: ", "found: ", "To do: "):
            assert word in outcome.err
        assert self.github.public() == before

    def published(self) -> bool:
        """Whether everybody sees the right set."""
        return self.github.public().get(TAG) == self.expected


@pytest.fixture
def setting(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    monkeypatch.delenv("GITHUB_API_URL", raising=False)
    with FakeGithub() as github:
        yield Setting(tmp_path, github, capsys)


def one_fault(github: FakeGithub, fault: str, method: str, part: str, times: int = 1) -> None:
    """Lets the next requests of a kind fail."""
    left = itertools.repeat(fault, times)
    github.fault = lambda m, path: next(left, None) if m == method and part in path else None


class TestPublishing:
    def test_all_files_are_there_and_public(self, setting: Setting) -> None:
        outcome = setting.run()
        assert setting.published()
        assert "4 of 4 files were uploaded now" in outcome.out
        assert "smwheel index" in outcome.out
        assert f"uploaded {wheel_name('sm9x')}, sha256:" in outcome.err
        # Not one request that changes something after the draft is public.
        changes = [line for line in setting.github.log if not line.startswith("GET")]
        assert changes[0].startswith("POST") and changes[-1].startswith("PATCH")

    def test_again_does_nothing(self, setting: Setting) -> None:
        setting.run()
        setting.github.log.clear()
        assert "0 of 4 files were uploaded now" in setting.run().out
        assert all(line.startswith("GET") for line in setting.github.log)

    def test_json(self, setting: Setting) -> None:
        said = json.loads(setting.run("--json").out)
        assert said["url"].endswith("/releases/tag/v0.7.4")
        assert said["sent_bytes"] == sum(map(len, setting.expected.values()))
        assert {entry["name"]: entry["sha256"] for entry in said["files"]} == {
            name: hashlib.sha256(data).hexdigest() for name, data in setting.expected.items()
        }
        assert not said["prerelease"]

    def test_dry_run_changes_nothing(self, setting: Setting) -> None:
        outcome = setting.run("--dry-run")
        assert outcome.out.splitlines()[0] == "would create a draft"
        assert outcome.out.splitlines()[-1] == "would publish the draft"
        assert all(line.startswith("GET") for line in setting.github.log)
        setting.run()
        assert setting.run("--dry-run").out == "nothing to do\n"

    def test_dry_run_without_a_token(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GH_TOKEN")
        monkeypatch.delenv("GITHUB_TOKEN", raising=False)
        assert "not known what is there" in setting.run("--dry-run").out
        assert not setting.github.log

    def test_a_prerelease_and_notes(self, setting: Setting) -> None:
        shutil.rmtree(setting.directory)
        make_wheel(setting.directory, "sm9x", SIZES, version="0.7.4.dev20261130")
        setting.github.expected[TAG] = setting.files()
        notes = setting.root / "notes.md"
        notes.write_text("What is new: nothing.")
        setting.run("--notes", str(notes))
        [release] = setting.github.releases.values()
        assert release.prerelease and release.body.startswith("What is new: nothing.")

    def test_wheels_in_directories_below_and_their_metadata(self, setting: Setting) -> None:
        for path in list(setting.directory.iterdir()):
            below = setting.directory / f"jit-cache-{path.stem}"
            below.mkdir()
            path.rename(below / path.name)
            text = f"Metadata-Version: 2.4\nName: flashinfer-jit-cache\nVersion: {path.name.split('-')[1]}\n"
            (below / f"{path.name}.metadata").write_text(text)
        setting.github.expected[TAG] = setting.files()
        setting.run()
        assert len(setting.github.public()[TAG]) == 7

    def test_many_releases(self, setting: Setting) -> None:
        """The draft is found on a later page, among drafts and releases of other tags."""
        github = setting.github
        github.page = 3
        wheel = wheel_name("sm10x")
        github.add_release(TAG, True, {wheel: setting.expected[wheel]}, body=MARKER)
        for number in range(10):
            github.add_release(f"v0.6.{number}", number % 3 == 0, {"a.whl": b"old"})
        assert "3 of 4 files were uploaded now" in setting.run().out
        assert len([r for r in github.releases.values() if r.tag == TAG]) == 1
        assert len(github.releases) == 11

    def test_two_drafts_of_ours(self, setting: Setting) -> None:
        wheel = wheel_name("sm9x")
        setting.github.add_release(TAG, True, {}, body=MARKER)
        kept = setting.github.add_release(
            TAG, True, {wheel: setting.expected[wheel]}, body=MARKER, starter="SHA256SUMS"
        )
        setting.run()
        assert list(setting.github.releases) == [kept.id]
        assert setting.published()

    def test_a_draft_beside_what_is_published(self, setting: Setting) -> None:
        setting.run()
        setting.github.add_release(TAG, True, {}, body=MARKER)
        setting.run()
        assert len(setting.github.releases) == 1 and setting.published()

    def test_digests_that_come_late(self, setting: Setting) -> None:
        setting.github.without_digest = 2
        outcome = setting.run()
        assert "GitHub gives no digest of it; again in" in outcome.err
        assert setting.published()

    def test_a_transfer_that_damages_a_file(self, setting: Setting) -> None:
        setting.github.corrupt = 1
        assert "it arrived as" in setting.run().err
        assert setting.published()

    def test_through_its_entry_point(self, setting: Setting) -> None:
        """A process of its own, with plain lines where there is no terminal."""
        python = Path(cli.__file__).parents[1]
        arguments = ["publish", str(setting.directory), "--repository", "owner/name", "--tag", TAG]
        arguments += ["--api-url", setting.github.api_url, "--pace", "0"]
        done = subprocess.run(
            [sys.executable, "-c", "from smwheel.cli import main; main()", *arguments],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(python), "GITHUB_TOKEN": TOKEN},
        )
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert setting.published()

    def test_bars_on_a_terminal(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        one_fault(setting.github, "reset mid-body", "POST", "/assets")
        outcome = setting.run()
        assert "all files" in outcome.err
        assert setting.published()


class TestFaults:
    @pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.startswith(("kill", "limit"))])
    @pytest.mark.parametrize(
        ("method", "part"),
        [("GET", "/releases"), ("POST", "/releases"), ("POST", "/assets"), ("PATCH", "/releases"), ("GET", "/tags/")],
    )
    def test_one_failure(self, setting: Setting, fault: str, method: str, part: str) -> None:
        setting.github.hang = 0.3
        one_fault(setting.github, fault, method, part)
        outcome = setting.run("--deadline", "0.2")
        assert "; again in 0.0 s" in outcome.err
        assert setting.published()
        assert len(setting.github.releases) == 1

    @pytest.mark.parametrize("fault", [fault for fault in UPLOAD_FAULTS if not fault.startswith(("kill", "corrupt"))])
    def test_an_upload_that_breaks_off(self, setting: Setting, fault: str) -> None:
        setting.github.hang = 0.3
        one_fault(setting.github, fault, "POST", "/assets")
        outcome = setting.run("--deadline", "0.2")
        assert "an upload that broke off left it (starter)" in outcome.err
        assert setting.published()

    @pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.startswith("limit")])
    def test_a_rate_limit(self, setting: Setting, fault: str) -> None:
        one_fault(setting.github, fault, "POST", "/assets", times=12)
        outcome = setting.run("--attempts", "2", pace="0.00001")
        assert outcome.err.count("rate limit") == 12
        assert setting.published()

    def test_it_gives_up(self, setting: Setting) -> None:
        one_fault(setting.github, "500 before", "POST", "/assets", times=99)
        setting.says(
            5, f"{TAG} of owner/name: could not upload {wheel_name('sm10x')}", "3 failures", "500 Internal Server Error",
            "Nobody sees an unfinished release", options=("--attempts", "3"),
        )  # fmt: skip
        setting.github.fault = lambda method, path: None
        setting.run()
        assert setting.published()

    def test_it_gives_up_looking(self, setting: Setting) -> None:
        one_fault(setting.github, "reset before", "GET", "/releases", times=99)
        setting.says(5, "could not look what is there", options=("--attempts", "2"))

    def test_an_upload_that_is_too_slow(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        """A deadline for the whole, though each piece is in time."""
        monkeypatch.setattr("smwheel.github.time.monotonic", itertools.count(0, 50.0).__next__)
        monkeypatch.setattr("smwheel.github.time.sleep", lambda seconds: None)
        setting.says(5, "the upload took longer than it may", options=("--attempts", "2"))


class TestRefusals:
    def test_published_files_that_differ(self, setting: Setting) -> None:
        wheel = wheel_name("sm9x")
        files = {**setting.expected, wheel: b"other"}
        setting.github.expected[TAG] = files
        setting.github.add_release(TAG, False, files)
        for options in ((), ("--replace",)):
            setting.says(
                4, f"{TAG} is published, and is not this set", f"{wheel} is uploaded, 5 bytes, sha256:",
                "published files are never changed: release these under another version", options=options,
            )  # fmt: skip

    def test_half_a_release_of_somebody(self, setting: Setting) -> None:
        files = dict(list(setting.expected.items())[:2])
        setting.github.expected[TAG] = files
        release = setting.github.add_release(TAG, False, files)
        release.immutable = True
        setting.says(4, "is published, which is immutable, and is not this set", "SHA256SUMS is missing")

    def test_a_tag_that_is_burned(self, setting: Setting) -> None:
        setting.github.burned.add(TAG)
        setting.says(4, "422", "tag_name was used by an immutable release")

    def test_immutable_releases(self, setting: Setting) -> None:
        setting.github.immutable = True
        setting.run()
        setting.run()
        assert setting.published()

    def test_somebody_elses_draft(self, setting: Setting) -> None:
        setting.github.add_release(TAG, True, {"notes.txt": b"x"})
        setting.says(4, f"a draft of {TAG} that `smwheel publish` did not make", "untagged-", "delete that draft")

    def test_other_bytes_in_our_draft(self, setting: Setting) -> None:
        wheel = wheel_name("sm12x")
        setting.github.add_release(TAG, True, {wheel: b"older", "surplus.whl": b"x"}, body=MARKER)
        setting.says(4, "has files that are not of this set", f"{wheel}, surplus.whl", "add --replace")
        outcome = setting.run("--replace")
        assert f"delete {wheel}: it has other bytes" in outcome.err
        assert "delete surplus.whl: it is not of this set" in outcome.err
        assert setting.published()

    def test_other_bytes_in_a_surplus_draft(self, setting: Setting) -> None:
        for _ in range(2):
            setting.github.add_release(TAG, True, {"surplus.whl": b"x"}, body=MARKER)
        setting.says(4, f"There is more than one draft of {TAG}", "surplus.whl", "add --replace")
        setting.run("--replace")
        assert setting.published() and len(setting.github.releases) == 1

    def test_no_tag(self, setting: Setting) -> None:
        setting.github.tags.clear()
        setting.says(4, f"owner/name has no tag {TAG}", f"git push origin {TAG}")

    def test_a_name_that_github_changes(self, setting: Setting) -> None:
        setting.github.rename = "renamed.whl"
        setting.says(4, f"GitHub renamed {wheel_name('sm10x')}", "renamed.whl")

    def test_a_repository_that_moved(self, setting: Setting) -> None:
        setting.github.moved = True
        setting.says(4, "the repository's present name", "301 Moved Permanently")

    def test_a_repository_that_is_not_there(self, setting: Setting) -> None:
        setting.says(6, "404 Not Found", "--repository", options=("--repository", "owner/nmae"))

    def test_an_asset_that_github_finds_too_large(self, setting: Setting) -> None:
        setting.github.asset_limit = 100
        setting.says(4, "422", "size must be less than 100")


class TestToken:
    def test_none(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GH_TOKEN", "")
        monkeypatch.delenv("GITHUB_TOKEN", raising=False)
        setting.says(6, "There is no token", "GH_TOKEN or GITHUB_TOKEN", "neither is set")

    def test_one_that_no_header_can_carry(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GH_TOKEN", f"{TOKEN}\nx: y")
        setting.says(6, "GH_TOKEN holds no token", "printable ASCII")
        assert not setting.github.log

    def test_a_wrong_one(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GH_TOKEN", "wrong-must-not-be-seen")
        setting.says(6, "401 Unauthorized: Bad credentials", "give a token")

    def test_a_line_feed_at_its_end(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GH_TOKEN", f"{TOKEN}\n")
        setting.run()

    def test_none_of_netrc(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        """requests would prefer ~/.netrc to a header."""
        netrc = setting.root / "netrc"
        netrc.write_text("machine 127.0.0.1 login a password b\n")
        monkeypatch.setenv("NETRC", str(netrc))
        setting.run()
        assert setting.github.authorizations == {f"Bearer {TOKEN}"}

    @pytest.mark.parametrize("times", [1, 99])
    def test_a_server_that_repeats_it(self, setting: Setting, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        def echo(handler: Any, content: Any, headers: Any = None) -> tuple[int, Any, dict[str, str]]:
            return (500 if times > 1 else 401), {"message": f"Bad token {handler.authorization}"}, {}

        monkeypatch.setattr("fake_github._Handler._api", echo)
        setting.says(5 if times > 1 else 6, "Bad token Bearer ***", options=("--attempts", "2"))

    @pytest.mark.parametrize(
        "url", ["http://example.invalid", "ftp://127.0.0.1", "nonsense", "https://a:b@example.invalid"]
    )
    def test_it_goes_over_https_only(self, setting: Setting, url: str) -> None:
        setting.says(1, "--api-url is not the address of an API", "https://HOST", options=("--api-url", url))

    def test_the_upload_address_is_of_the_same_kind(self, setting: Setting) -> None:
        setting.github.upload_url = "gopher://example.invalid"
        setting.says(4, "the upload address is of another kind than the API's", "gopher://example.invalid")


class TestPreflight:
    """Nothing is asked of the server before the set is fit."""

    def says(self, setting: Setting, *words: str, options: tuple[str, ...] = (), problems: int = 1) -> None:
        count = "1 problem" if problems == 1 else f"{problems} problems"
        setting.says(3, *words, f"{count}: nothing was uploaded.", options=options)
        assert not setting.github.log

    def test_no_directory(self, setting: Setting) -> None:
        shutil.rmtree(setting.directory)
        self.says(setting, "dist is no directory", "build the wheels first")

    def test_no_wheels(self, setting: Setting) -> None:
        for path in setting.directory.iterdir():
            path.unlink()
        self.says(setting, "dist has no wheel")

    def test_too_large(self, setting: Setting) -> None:
        """The limit itself is too large. The file is sparse."""
        with open(setting.directory / wheel_name("sm9x"), "r+b") as file:
            file.truncate(2147483648)
        self.says(setting, "too large for a release asset", "under 2147483648 bytes", "2147483648 bytes, 1 too many")

    def test_a_damaged_wheel(self, setting: Setting) -> None:
        path = setting.directory / wheel_name("sm9x")
        data = bytearray(path.read_bytes())
        data[120] ^= 1
        path.write_bytes(data)
        self.says(setting, path.name, "build the wheel again")

    def test_a_truncated_wheel_and_a_renamed_one(self, setting: Setting) -> None:
        path = setting.directory / wheel_name("sm9x")
        path.write_bytes(path.read_bytes()[:-30])
        other = setting.directory / wheel_name("sm10x")
        other.rename(setting.directory / wheel_name("sm10x", cpu="aarch64"))
        self.says(setting, "sm9x", "tags in WHEEL", problems=2)

    def test_two_versions(self, setting: Setting) -> None:
        make_wheel(setting.directory, "sm9x", SIZES, version="0.7.5")
        self.says(
            setting, "The wheels are not of one release", "flashinfer-jit-cache 0.7.4, flashinfer-jit-cache 0.7.5",
            "The tag v0.7.4 is of another version", problems=2,
        )  # fmt: skip

    def test_a_tag_of_another_version(self, setting: Setting) -> None:
        self.says(
            setting, "The tag v0.7.3 is of another version than the wheels", "flashinfer-jit-cache 0.7.4",
            options=("--tag", "v0.7.3"), problems=1,
        )  # fmt: skip

    @pytest.mark.parametrize("tag", ["nightly-20261130", "v0.7.4.post1", "0.7.4", "v0.7.4.0"])
    def test_a_tag_that_fits(self, setting: Setting, tag: str) -> None:
        setting.github.tags.add(tag)
        setting.run("--tag", tag)

    def test_other_files(self, setting: Setting) -> None:
        (setting.directory / "notes.txt").touch()
        (setting.directory / "a b.whl").touch()
        (setting.directory / "link.whl").symlink_to("nowhere")
        (setting.directory / "b-1-py3-none-any.whl.metadata").touch()
        self.says(
            setting, "notes.txt is no file of a release", "'a b.whl' can't be an asset's name",
            "link.whl is no file of a release", "a link to nothing", "metadata of a wheel that is there too",
            problems=6,
        )  # fmt: skip

    def test_metadata_of_another_wheel(self, setting: Setting) -> None:
        name = f"{wheel_name('sm9x')}.metadata"
        (setting.directory / name).write_text("Name: other\n")
        self.says(setting, f"{name} is not the wheel's METADATA")

    def test_a_file_that_is_there_twice(self, setting: Setting) -> None:
        (setting.directory / "again").mkdir()
        shutil.copy(setting.directory / wheel_name("sm9x"), setting.directory / "again")
        self.says(setting, f"{wheel_name('sm9x')} is there more than once", f"again/{wheel_name('sm9x')}")

    def test_the_matrix(self, setting: Setting) -> None:
        matrix = make_matrix(setting.root / "matrix.json", FAMILIES, ["x86_64"])
        setting.run("--dry-run", "--matrix", str(matrix))
        setting.github.log.clear()
        (setting.directory / wheel_name("sm9x")).unlink()
        make_wheel(setting.directory, "sm11x", SIZES)
        self.says(
            setting, "cu130_x86_64_sm9x is missing", "./bazelw build //wheels:cu130_x86_64_sm9x",
            f"{wheel_name('sm11x')} is not of the matrix", "the 3 wheels of the matrix",
            options=("--matrix", str(matrix)), problems=2,
        )  # fmt: skip

    def test_no_matrix(self, setting: Setting) -> None:
        path = setting.root / "matrix.json"
        for text in ("{}", "[]", '{"asset_limit": 1, "wheels": []}', "nonsense"):
            path.write_text(text)
            setting.says(
                1, "matrix.json is not the resolved matrix", "//wheels:matrix.json", options=("--matrix", str(path))
            )

    def test_a_file_that_changes_while_it_is_uploaded(self, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        checked = release_set.sha256
        monkeypatch.setattr(release_set, "sha256", lambda path: checked(path)[::-1])
        setting.says(3, f"{wheel_name('sm10x')} changed while it was uploaded", "let nothing write there")

    @pytest.mark.parametrize(
        ("option", "value"),
        [("--repository", "name"), ("--repository", "a/b/c"), ("--tag", "../v1"), ("--tag", "v1?x"), ("--pace", "-1")],
    )
    def test_usage(self, setting: Setting, option: str, value: str) -> None:
        assert value in setting.run(option, value, code=2).err


class TestPlan:
    files = {
        name: File(name, 3, hashlib.sha256(name.encode()).hexdigest(), name.encode()) for name in ("a.whl", "b.whl")
    }

    def release(self, number: int = 1, draft: bool = True, body: str = MARKER) -> Release:
        return Release(number, TAG, draft, body, "https://x", "https://y", False)

    def asset(self, name: str, **fields: Any) -> Asset:
        file = self.files[name]
        return Asset(**{"id": 7, "name": name, "state": "uploaded", "size": 3, "digest": file.digest, **fields})

    def plan(self, *drafts: Remote, replace: bool = False) -> list[Any]:
        return plan(TAG, self.files, Seen(None, drafts), replace)

    def test_from_nothing(self) -> None:
        assert self.plan() == [CreateDraft(), *map(Upload, self.files.values())]

    def test_publish_is_always_alone(self) -> None:
        """It is only done to what was seen to be whole."""
        whole = Remote(self.release(), (self.asset("a.whl"), self.asset("b.whl")))
        assert self.plan(whole) == [Publish(self.release())]
        other = self.release(2)
        assert self.plan(whole, Remote(other, ())) == [DeleteDraft(other)]
        late = Remote(self.release(), (self.asset("a.whl"), self.asset("b.whl", digest=None)))
        assert self.plan(late) == [AwaitDigest(late.assets[1])]

    @pytest.mark.parametrize("state", ["starter", "new", "open"])
    def test_wreckage(self, state: str) -> None:
        wreck = self.asset("a.whl", state=state, size=0, digest=None)
        [delete, upload_a, upload_b] = self.plan(Remote(self.release(), (wreck,)))
        assert isinstance(delete, DeleteAsset) and delete.asset == wreck
        assert [upload_a, upload_b] == list(map(Upload, self.files.values()))

    @pytest.mark.parametrize("fields", [{"size": 4}, {"digest": "sha256:0"}, {"size": 4, "digest": None}])
    def test_other_bytes(self, fields: dict[str, Any]) -> None:
        draft = Remote(self.release(), (self.asset("a.whl", **fields), self.asset("b.whl")))
        with pytest.raises(ConflictError):
            self.plan(draft)
        [delete, upload] = self.plan(draft, replace=True)
        assert isinstance(delete, DeleteAsset) and upload == Upload(self.files["a.whl"])


class TestWaits:
    @pytest.mark.parametrize(
        ("status", "headers", "message", "wait"),
        [
            (403, {"retry-after": "30", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9000"}, "", 30),
            (429, {"retry-after": "soon"}, "", UNSTATED),
            (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1600"}, "API rate limit exceeded", 600),
            (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, "", 0),
            (403, {"x-ratelimit-remaining": "0"}, "", UNSTATED),
            (403, {"x-ratelimit-remaining": "12"}, "You have exceeded a secondary rate limit.", UNSTATED),
            (429, {}, "", UNSTATED),
            (403, {"x-ratelimit-remaining": "12"}, "Resource not accessible by integration", None),
            (500, {"retry-after": "30"}, "", None),
        ],
    )
    def test_what_a_rate_limit_asks_for(self, status: int, headers: Any, message: str, wait: float | None) -> None:
        assert rate_limit_wait(status, headers, message, now=1000) == wait

    def test_backoff(self) -> None:
        patience = Patience()
        assert [patience.after_failure(n, 0) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert patience.after_failure(3, 1) == 2
        assert [patience.after_limit(n) for n in (1, 2, 3, 9)] == [60, 120, 240, 1920]

    def waits(self, *problems: TransientError) -> list[float]:
        """What a run sleeps if looking fails so."""
        slept: list[float] = []
        left = iter(problems)

        class Failing(Github):
            def check_repository(self) -> None:
                if problem := next(left, None):
                    raise problem
                raise ConflictError("the end", "", "", "")

        github = Failing("http://127.0.0.1", "owner/name", TOKEN, Limits())
        publisher = Publisher(github, TAG, (), Lines(), Patience(), sleep=slept.append, jitter=lambda: 0.0)
        with pytest.raises(ConflictError):
            publisher.look()
        return slept

    def test_what_is_slept(self) -> None:
        limit = TransientError("limit", 30, limited=True)
        secondary = TransientError("limit", UNSTATED, limited=True)
        assert self.waits(limit, limit) == [30, 30]
        assert self.waits(secondary, secondary) == [60, 120]
        assert self.waits(TransientError("x"), limit, TransientError("x")) == [1, 30, 2]
        assert self.waits(TransientError("x", 20.0)) == [20]

    def test_a_limit_that_asks_for_too_much(self) -> None:
        with pytest.raises(GaveUpError, match=r"(?s)rate limit asks for 9000 more seconds.*run the same command again"):
            self.waits(TransientError("limit", 9000, limited=True))
