"""The index: its pages as functions of its entries, and what an update refuses, keeps and leaves when it is killed."""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from indexed_wheels import FAMILIES, make_wheel
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from smwheel import cli, directory_swap, package_index
from smwheel.errors import SmwheelError
from smwheel.package_index import Entry, RefusedError, dump, load, merge, pages, timestamp, update, yank

BASE = "http://index/"
Tree = dict[str, bytes]


def entry(
    family: str = "sm9x", cpu: str = "x86_64", label: str = "cu130", version: str = "0.7.4", **changes: Any
) -> Entry:
    name = f"flashinfer_jit_cache-{version}+{label}.{family}-cp39-abi3-manylinux_2_28_{cpu}.whl"
    given = Entry(
        filename=name,
        url="files/" + name.replace("+", "%2B"),
        sha256=hashlib.sha256(name.encode()).hexdigest(),
        size=len(name),
        distribution="flashinfer-jit-cache",
        version=f"{version}+{label}.{family}",
        tag=f"cp39-abi3-manylinux_2_28_{cpu}",
        cuda_version=f"{label[2:-1]}.{label[-1]}",
        cuda_label=label,
        cpu=cpu,
        sm_family=family,
        sm_targets=("8.0", "9.0a"),
        devices=("8.0", "9.0"),
        minimum_driver="580",
        requires_python=">=3.9",
        metadata_sha256=hashlib.sha256(b"metadata").hexdigest(),
    )
    return replace(given, **changes)


class _Links(HTMLParser):
    """The anchors of a page: attributes and text. Written apart from what makes the pages."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[dict[str, str | None], str]] = []
        self.meta: dict[str | None, str | None] = {}
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._open = True
            self.links.append((dict(attrs), ""))
        elif tag == "meta":
            self.meta[dict(attrs).get("name")] = dict(attrs).get("content")

    def handle_endtag(self, tag: str) -> None:
        self._open &= tag != "a"

    def handle_data(self, data: str) -> None:
        if self._open:
            attributes, text = self.links[-1]
            self.links[-1] = (attributes, text + data)


def parsed(html: str) -> _Links:
    parser = _Links()
    parser.feed(html)
    parser.close()
    return parser


def from_html(html: str, url: str) -> list[Any]:
    """What a page says of each file: name, address, sha256, Python, metadata's sha256, yanked."""
    found = []
    for attributes, text in parsed(html).links:
        address, fragment = urldefrag(urljoin(url, attributes["href"] or ""))
        metadata = attributes.get("data-core-metadata")
        yanked = attributes.get("data-yanked", False)
        found.append(
            (
                text,
                address,
                fragment.removeprefix("sha256="),
                attributes.get("data-requires-python"),
                metadata.removeprefix("sha256=") if metadata else None,
                True if yanked == "" else yanked,
            )
        )
    return found


def from_json(text: str, url: str) -> list[Any]:
    return [
        (
            file["filename"],
            urljoin(url, file["url"]),
            file["hashes"]["sha256"],
            file.get("requires-python"),
            file["core-metadata"]["sha256"] if file["core-metadata"] else None,
            file["yanked"],
        )
        for file in json.loads(text)["files"]
    ]


# ---- Pages ------------------------------------------------------------------------------------------------------

WORDS = ["<b>\"broken\" & 'sharp'</b>", "&amp;", "Ω ≠ ω", "", "a]]>b", "--><script>", "x" * 300]


def random_entries(rng: random.Random) -> list[Entry]:
    found = {}
    for _ in range(rng.randrange(1, 25)):
        version = rng.choice(["0.7.4", "0.7.10", "0.7.4.post1", "0.8.0rc1", "0.8.0.dev20261130", "1.0"])
        one = entry(
            rng.choice(list(FAMILIES)),
            rng.choice(["x86_64", "aarch64"]),
            rng.choice(["cu128", "cu130", "cu134"]),
            version,
            requires_python=rng.choice([None, ">=3.9", "<4,>=3.9", "!=3.10.*"]),
            metadata_sha256=rng.choice([None, "0" * 64]),
            upload_time=rng.choice([None, "2026-11-30T12:00:00.000000Z"]),
            yanked=rng.choice([None, *WORDS]),
        )
        if rng.random() < 0.3:
            one = replace(one, url=f"https://host.example/a/{one.url.rpartition('/')[2]}")
        found[one.filename] = one
    return list(found.values())


@pytest.mark.parametrize("seed", range(40))
def test_pages_of_random_entries(seed: int) -> None:
    rng = random.Random(seed)
    entries = random_entries(rng)
    found = pages(entries)
    shuffled = rng.sample(entries, len(entries))
    assert pages(shuffled) == found, "the order in which entries come makes no difference"
    listed = load(found["index.json"], "index.json")
    assert not [one for one in listed if Version(one.version).is_prerelease]
    if "nightly/index.json" in found:
        listed += load(found["nightly/index.json"], "index.json")
    assert package_index.in_order(listed) == package_index.in_order(entries)
    seen = []
    for path, text in found.items():
        directory = path.rpartition("/")[0]
        if not path.endswith("/flashinfer-jit-cache/index.html"):
            continue
        url = urljoin(BASE, path)
        json_page = json.loads(found[f"{directory}/simple.json"])
        files = from_html(text, url)
        assert files == from_json(found[f"{directory}/simple.json"], url), "HTML and JSON say the same"
        assert parsed(text).meta["pypi:repository-version"] == json_page["meta"]["api-version"] == "1.4"
        versions = {parse_wheel_filename(name)[1] for name, *_ in files}
        assert sorted(versions) == [Version(version) for version in json_page["versions"]]
        # One CUDA version and one SM family, stable or nightly, and of each version one wheel for a CPU.
        assert len({str(version.local) for version in versions}) == 1
        [local] = {version.local for version in versions}
        assert {version.is_prerelease for version in versions} == {path.startswith("nightly/")}
        assert directory == ("nightly/" if path.startswith("nightly/") else "") + f"{local}".replace(".", "/") + (
            "/flashinfer-jit-cache"
        )
        for file in json_page["files"]:
            assert isinstance(file["size"], int) and file["size"] > 0
        seen += files
    assert sorted(name for name, *_ in seen) == sorted(one.filename for one in entries)
    for name, address, digest, *_ in seen:
        [one] = [one for one in entries if one.filename == name]
        assert digest == one.sha256
        assert "+" not in address and unquote(address).endswith("/" + name)
        assert address == urljoin(BASE + one.subtree, one.url), "the page's link and index.json lead to the same file"


@pytest.mark.parametrize("word", WORDS)
def test_text_comes_back_as_it_was(word: str) -> None:
    found = pages([entry(yanked=word, requires_python="<4,>=3.9")])
    page = found["cu130/sm9x/flashinfer-jit-cache/index.html"]
    [(_, _, _, python, _, yanked)] = from_html(page, BASE)
    assert (python, yanked) == ("<4,>=3.9", word or True)
    assert 'data-requires-python="&lt;4,&gt;=3.9"' in page
    assert "<script" not in page and "<b>" not in page


def test_a_level_above_lists_the_projects() -> None:
    found = pages([entry(), entry(distribution="another")])
    links = parsed(found["cu130/sm9x/index.html"]).links
    assert [(attributes["href"], text) for attributes, text in links] == [
        ("another/", "another"),
        ("flashinfer-jit-cache/", "flashinfer-jit-cache"),
    ]
    assert json.loads(found["cu130/sm9x/simple.json"]) == {
        "meta": {"api-version": "1.4"},
        "projects": [{"name": "another"}, {"name": "flashinfer-jit-cache"}],
    }
    assert canonicalize_name("another") in found["cu130/sm9x/another/index.html"]


def test_there_is_no_page_with_two_families() -> None:
    """Of one version, installers take the local version that sorts last: it would be sm9x, on any GPU."""
    assert max(FAMILIES, key=lambda family: Version(f"1+cu130.{family}")) == "sm9x"
    found = pages([entry(family) for family in FAMILIES])
    for path in found:
        if path.endswith("/index.html"):
            names = [text for _, text in parsed(found[path]).links if text.endswith(".whl")]
            assert len(names) <= 1
    # An installer that is given the root finds no project, and no links to wheels.
    assert not [path for path in found if path.startswith("flashinfer-jit-cache/")]
    assert ".whl" not in found["index.html"]
    assert [text for _, text in parsed(found["index.html"]).links] == [
        f"cu130/{family}: compute capability 8.0, 9.0" for family in ("sm10x", "sm12x", "sm9x")
    ]


def test_time_is_written_as_the_pep_says() -> None:
    assert timestamp("2026-11-30T12:00:00Z") == "2026-11-30T12:00:00.000000Z"
    assert timestamp("2026-11-30T13:00:00.500+01:00") == "2026-11-30T12:00:00.500000Z"
    for wrong in ("2026-11-30T12:00:00", "yesterday"):
        with pytest.raises(ValueError, match=r"2026-11-30|yesterday"):
            timestamp(wrong)
    [file] = json.loads(
        pages([entry(upload_time="2026-11-30T12:00:00.000000Z")])["cu130/sm9x/flashinfer-jit-cache/simple.json"]
    )["files"]
    assert file["upload-time"] == "2026-11-30T12:00:00.000000Z"


# ---- Entries ----------------------------------------------------------------------------------------------------


def test_the_same_name_with_other_bytes_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        merge([entry()], [entry(sha256="0" * 64)])
    for words in (entry().filename, "with other bytes", entry().sha256, "0" * 64, "give the new wheel a new version"):
        assert words in str(caught.value)


def test_two_wheels_of_one_version_and_tag_are_refused() -> None:
    other = entry().filename.replace("-cp39", "-1-cp39")
    with pytest.raises(RefusedError) as caught:
        merge([entry()], [entry(filename=other)])
    for words in (f"{other}: there is another wheel of this version and tag", entry().filename, "To do: keep one"):
        assert words in str(caught.value)


def test_what_was_said_stays() -> None:
    old = entry(upload_time="2026-01-01T00:00:00.000000Z", yanked="broken")
    moved = entry(url="https://host.example/x.whl", upload_time="2026-12-01T00:00:00.000000Z")
    [merged] = merge([old], [moved])
    assert merged == replace(old, url=moved.url)


def test_yanking() -> None:
    entries = [entry(family, cpu) for family in FAMILIES for cpu in ("x86_64", "aarch64")]
    by_version = yank(entries, "0.7.4", "broken")
    assert {one.yanked for one in by_version} == {"broken"}
    assert len([one for one in yank(entries, "0.7.4+cu130.sm9x", "") if one.yanked == ""]) == 2
    assert len([one for one in yank(entries, entries[0].filename, "") if one.yanked == ""]) == 1
    assert yank(by_version, "0.7.4", None) == entries
    with pytest.raises(RefusedError) as caught:
        yank(entries, "0.7.5", "")
    for words in ("0.7.5: no wheel of the index is called so", "0.7.4+cu130.sm12x", "To do:"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c: "no JSON", "JSONDecodeError"),
        (lambda c: "[]", "TypeError"),
        (lambda c: c.replace('"schema_version": 1', '"schema_version": 9'), "schema_version 9"),
        (lambda c: c.replace('"cu130"', '"../cu130"'), "../cu130"),
        (lambda c: c.replace('"sm9x"', '"sm9x/.."'), "sm9x/.."),
        (lambda c: c.replace('"flashinfer-jit-cache"', '".."'), "'..'"),
        (lambda c: c.replace(entry().sha256, "0"), "'0'"),
        (lambda c: c.replace('"cpu"', '"CPU"'), "KeyError('cpu')"),
        (lambda c: c.replace('"version": "0.7.4', '"version": "x.7.4'), "InvalidVersion"),
    ],
)
def test_what_is_no_index(edit: Callable[[str], str], words: str) -> None:
    with pytest.raises(SmwheelError) as caught:
        load(edit(dump([entry()])), "/some/index.json")
    assert "/some/index.json is not an index that smwheel wrote" in str(caught.value)
    assert words in str(caught.value) and "restore the file" in str(caught.value)


def test_fields_that_nobody_knows_are_passed_over() -> None:
    assert load(dump([entry()]).replace('"cpu"', '"new": {}, "cpu"'), "index.json") == [entry()]


# ---- The directory ----------------------------------------------------------------------------------------------


def tree(root: Path) -> Tree:
    """Every file below a directory, by path; a directory is no content."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    return [make_wheel(tmp_path / "wheels", family, cpu) for family in FAMILIES for cpu in ("x86_64", "aarch64")]


def test_an_index_is_written_and_hosts_its_wheels(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "a/b/index"
    outcome = update(root, wheels)
    assert outcome.written and outcome.wheels == 6 and sorted(outcome.added) == sorted(w.name for w in wheels)
    found = tree(root)
    for wheel in wheels:
        assert found[f"files/{wheel.name}"] == wheel.read_bytes()
    for one in load(found["index.json"].decode(), ""):
        metadata = found[f"files/{one.filename}.metadata"]
        assert hashlib.sha256(metadata).hexdigest() == one.metadata_sha256
        assert f"Version: {one.version}\n".encode() in metadata
        assert hashlib.sha256(found[f"files/{one.filename}"]).hexdigest() == one.sha256
        assert one.size == len(found[f"files/{one.filename}"])
    assert sorted(p.name for p in root.parent.iterdir()) == ["index"], "nothing is left beside it"
    assert root.stat().st_mode & 0o777 == root.parent.stat().st_mode & 0o777


def test_index_json_is_what_install_reads(wheels: list[Path], tmp_path: Path) -> None:
    update(tmp_path / "index", wheels[:1])
    [found] = json.loads((tmp_path / "index/index.json").read_text())["wheels"]
    assert found == {
        "filename": wheels[0].name,
        "url": "files/" + wheels[0].name.replace("+", "%2B"),
        "sha256": hashlib.sha256(wheels[0].read_bytes()).hexdigest(),
        "size": wheels[0].stat().st_size,
        "distribution": "flashinfer-jit-cache",
        "version": "0.7.4+cu130.sm9x",
        "tag": "cp39-abi3-manylinux_2_28_x86_64",
        "cuda_version": "13.0",
        "cuda_label": "cu130",
        "cpu": "x86_64",
        "sm_family": "sm9x",
        "sm_targets": ["8.0", "9.0a"],
        "devices": ["8.0", "8.6", "8.9", "9.0"],
        "minimum_driver": "580",
        "requires_python": ">=3.9",
        "metadata_sha256": found["metadata_sha256"],
        "upload_time": None,
        "yanked": None,
    }


def test_the_same_again_writes_nothing(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    update(root, wheels)
    before, times = tree(root), {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    time.sleep(0.01)
    outcome = update(root, wheels[::-1])
    assert (outcome.added, outcome.wheels, outcome.written) == ((), 6, False)
    assert tree(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times
    assert update(tmp_path / "another", wheels).written
    assert tree(tmp_path / "another") == before, "same wheels, same bytes, wherever it lies"


@pytest.mark.parametrize("seed", range(6))
def test_in_steps_or_at_once_it_is_the_same(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    wheels = [
        make_wheel(tmp_path / "wheels", family, rng.choice(["x86_64", "aarch64"]), version=version, size=50)
        for family in rng.sample(list(FAMILIES), 2)
        for version in ("0.7.4", "0.7.10", "0.8.0.dev20261130")
    ]
    update(tmp_path / "once", wheels)
    rng.shuffle(wheels)
    cut = rng.randrange(1, len(wheels))
    for part in (wheels[:cut], wheels[cut:], wheels[: cut // 2]):
        update(tmp_path / "steps", part)
    assert tree(tmp_path / "steps") == tree(tmp_path / "once")


def test_old_releases_stay_without_their_wheels_being_given(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    update(root, wheels, upload_time="2026-11-30T12:00:00.000000Z")
    before = tree(root)
    for wheel in wheels:
        wheel.unlink()
    new = make_wheel(tmp_path / "new", "sm9x", version="0.7.5")
    outcome = update(root, [new], upload_time="2026-12-01T00:00:00.000000Z")
    assert outcome.added == (new.name,) and outcome.wheels == 7
    after = tree(root)
    assert {path for path, data in before.items() if after[path] != data} == {
        "index.json",
        "cu130/sm9x/flashinfer-jit-cache/index.html",
        "cu130/sm9x/flashinfer-jit-cache/simple.json",
    }
    page = json.loads(after["cu130/sm9x/flashinfer-jit-cache/simple.json"])
    assert page["versions"] == ["0.7.4+cu130.sm9x", "0.7.5+cu130.sm9x"]
    assert [file["upload-time"][:10] for file in page["files"]] == ["2026-11-30", "2026-11-30", "2026-12-01"]


def test_nightly_is_beside_stable(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    update(root, wheels)
    before = tree(root)
    nightly = make_wheel(tmp_path / "nightly", "sm9x", version="0.7.5.dev20261130")
    update(root, [nightly])
    after = tree(root)
    changed = {path for path in after if before.get(path) != after[path]}
    assert changed == {
        "nightly/index.json",
        "nightly/index.html",
        f"nightly/files/{nightly.name}",
        f"nightly/files/{nightly.name}.metadata",
        *(f"nightly/cu130/sm9x/{name}" for name in ("index.html", "simple.json")),
        *(f"nightly/cu130/sm9x/flashinfer-jit-cache/{name}" for name in ("index.html", "simple.json")),
    }
    page = after["nightly/cu130/sm9x/flashinfer-jit-cache/index.html"].decode()
    assert f'href="../../../files/{nightly.name.replace("+", "%2B")}#' in page


def test_wheels_that_are_hosted_elsewhere(wheels: list[Path], tmp_path: Path) -> None:
    root, metadata = tmp_path / "index", tmp_path / "metadata"
    update(root, wheels, base_url="https://host.example/download/v0.7.4/")
    assert not (root / "files").exists()
    page = (root / "cu130/sm9x/flashinfer-jit-cache/index.html").read_text()
    name = wheels[0].name.replace("+", "%2B")
    assert f'href="https://host.example/download/v0.7.4/{name}#sha256=' in page
    assert "data-core-metadata" not in page, "pip fails if it is advertised and missing"
    update(root, wheels, base_url="https://host.example/download/v0.7.4", metadata_directory=metadata)
    page = (root / "cu130/sm9x/flashinfer-jit-cache/index.html").read_text()
    assert page.count("data-core-metadata") == 2
    assert sorted(path.name for path in metadata.iterdir()) == sorted(f"{wheel.name}.metadata" for wheel in wheels)
    one = load((root / "index.json").read_text(), "")[0]
    assert hashlib.sha256((metadata / f"{one.filename}.metadata").read_bytes()).hexdigest() == one.metadata_sha256


def test_other_files_in_the_directory_stay(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    (root / ".git/objects").mkdir(parents=True)
    (root / ".git/HEAD").write_text("ref")
    (root / "CNAME").write_text("host.example")
    (root / "link").symlink_to("CNAME")
    update(root, wheels)
    assert ((root / ".git/HEAD").read_text(), (root / "CNAME").read_text()) == ("ref", "host.example")
    assert (root / "link").is_symlink() and (root / ".git/objects").is_dir()


def test_the_wheels_given_are_not_tied_to_the_index(wheels: list[Path], tmp_path: Path) -> None:
    update(tmp_path / "index", wheels[:1])
    before = tree(tmp_path / "index")
    wheels[0].write_bytes(b"rebuilt in place")
    assert tree(tmp_path / "index") == before


def refused(root: Path, wheels: list[Path], **options: Any) -> str:
    """Why an update is refused. It left all as it was."""
    before = tree(root) if root.exists() else None
    with pytest.raises(SmwheelError) as caught:
        update(root, wheels, **options)
    assert caught.value.exit_code == 3 or not isinstance(caught.value, RefusedError)
    assert (tree(root) if root.exists() else None) == before
    assert not [path for path in root.parent.iterdir() if path.name.startswith(".")]
    text = str(caught.value)
    for words in ("expected:", "found:", "To do:"):
        assert words in text
    return text


def test_damaged_and_lying_wheels_are_refused_all_at_once(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    update(root, wheels[:2])
    bad = tmp_path / "bad"
    cut = make_wheel(bad, "sm9x", version="1.0")
    cut.write_bytes(cut.read_bytes()[:-30])
    flipped = make_wheel(bad, "sm10x", version="1.0")
    data = bytearray(flipped.read_bytes())
    data[-1500] ^= 1
    flipped.write_bytes(data)
    renamed = make_wheel(bad, "sm12x", version="1.0")
    renamed = renamed.rename(renamed.with_name(renamed.name.replace("1.0+", "1.1+")))
    text = refused(root, [cut, flipped, renamed, wheels[3]])
    assert text.count("To do:") == 3
    assert f"{cut.name}: the end of the file" in text
    assert flipped.name in text
    assert f"{renamed.name}: dist-info directory" in text


def edit(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda manifest: manifest.update(values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"edit_metadata": lambda text: text.replace("0.7.4+cu130.sm9x", "0.7.5")}, "Version in METADATA"),
        ({"edit_metadata": lambda text: text.replace(">=3.9", ">=?")}, "its METADATA is not valid"),
        ({"edit_manifest": edit(version="0.7.5+cu130.sm9x")}, "version in the manifest"),
        ({"edit_manifest": edit(sm_family="sm12x")}, "local version"),
        ({"edit_manifest": edit(cuda_version="12.9")}, "local version"),
        ({"edit_manifest": edit(cpu="aarch64")}, "the CPU in the manifest"),
        ({"edit_manifest": edit(tag="cp39-abi3-manylinux_2_28_aarch64")}, "tag in the manifest"),
        ({"edit_manifest": edit(distribution="another")}, "distribution in the manifest"),
        ({"edit_manifest": edit(sm_targets=None)}, "docs/manifest.md"),
        ({"edit_manifest": lambda m: m.pop("devices")}, "KeyError('devices')"),
        ({"edit_manifest": lambda m: m["modules"]["norm"].update(sha256="00")}, "module norm is not the one"),
        ({"edit_manifest": edit(schema_version=1)}, "schema_version 1"),
        ({"edit_manifest": lambda m: m["modules"].pop("norm")}, "module norm is not the one"),
    ],
)
def test_a_wheel_that_says_two_things_is_refused(options: Any, words: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels", **options)
    text = refused(tmp_path / "index", [wheel])
    assert wheel.name in text and words in text


def test_other_bytes_under_a_name_are_refused(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    other = make_wheel(tmp_path / "other", seed=1)
    assert "with other bytes" in refused(root, [wheels[0], other])
    update(root, wheels)
    assert other.name in refused(root, [other])
    built = make_wheel(tmp_path / "other", build="1")
    assert "another wheel of this version and tag" in refused(root, [built])


def test_a_file_that_is_gone_is_noticed(wheels: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "index"
    update(root, wheels)
    before = tree(root)
    gone, new = root / "files" / wheels[0].name, make_wheel(tmp_path / "new", version="0.7.5")
    gone.unlink()
    text = refused(root, [new])
    for words in (wheels[0].name, "has not got it", "no such file", "put the file back"):
        assert words in text
    gone.write_bytes(b"cut")
    assert "found:    3 bytes" in refused(root, [new])
    assert update(root, wheels[:1]).written
    assert tree(root) == before


def test_a_wheel_that_changes_while_it_is_copied(wheels: list[Path], tmp_path: Path, monkeypatch: Any) -> None:
    real = package_index._copy

    def late(wheel: Path, to: Path, digest: str) -> None:
        with open(wheel, "r+b") as file:
            file.write(b"X")
        real(wheel, to, digest)

    monkeypatch.setattr(package_index, "_copy", late)
    assert f"{wheels[0].name}: it changed while it was copied" in refused(tmp_path / "index", wheels[:1])


# ---- Interrupted ------------------------------------------------------------------------------------------------

# What changes a file system, or opens a file, as audit hooks are told of it (Python's "Audit events table").
EVENTS = ("open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.", "os.chmod", "os.utime")


def killed(work: Callable[[], Any], below: Path, stop_at: int) -> bool:
    """Runs `work` in a process that is killed at event number `stop_at` below a directory; whether it came so far."""
    if (child := os.fork()) == 0:
        count = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event.startswith(EVENTS) and any(str(below) in str(argument) for argument in arguments):
                if count == stop_at:
                    os._exit(77)
                count += 1

        try:
            sys.addaudithook(hook)
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 77)
    return status == 77


@pytest.mark.parametrize("exchange", [True, False])
def test_killed_at_any_point_it_is_the_old_one_or_the_new_one(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(directory_swap, "_exchange", lambda one, other: False)
    old = make_wheel(tmp_path / "wheels", "sm9x", size=20)
    new = [make_wheel(tmp_path / "wheels", family, version="0.7.5", size=20) for family in ("sm9x", "sm12x")]
    site = tmp_path / "site"

    def fresh() -> Path:
        root = site / "index"
        update(root, [old])
        return root

    update(site / "wanted", [old, *new])
    wanted = tree(site / "wanted")
    before = tree(fresh())
    shutil.rmtree(site / "index")
    outcomes = []
    for stop_at in range(0, 1000):
        root = fresh()
        more = killed(lambda root=root: update(root, new), site, stop_at)  # type: ignore[misc]
        if root.exists():
            outcomes.append(tree(root) == wanted)
            assert tree(root) in (before, wanted), stop_at
        else:
            # Only where two directories can't be exchanged: the moment between two renames.
            assert not exchange and tree(site / ".index.old") == before
        update(root, new)
        assert tree(root) == wanted, "the next run ends what this one began"
        assert sorted(path.name for path in site.iterdir()) == ["index", "wanted"]
        shutil.rmtree(root)
        if not more:
            break
    assert outcomes == sorted(outcomes), "old, and from one moment on new"
    assert len(outcomes) > 40 and outcomes.count(False) > 10


@pytest.mark.parametrize("what", ["os.replace", "os.rename", "os.link", "_exchange", "write_bytes", "_copy"])
def test_an_error_leaves_the_old_one(what: str, wheels: list[Path], tmp_path: Path, monkeypatch: Any) -> None:
    root = tmp_path / "index"
    update(root, wheels[:2])
    before = tree(root)

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if what.startswith("os."):
        monkeypatch.setattr(os, what[3:], fail)
    else:
        owner: Any = {"_exchange": directory_swap, "write_bytes": Path, "_copy": package_index}[what]
        monkeypatch.setattr(owner, what, fail)
    if what in ("os.replace", "os.rename", "os.link"):
        # None of these is needed where directories can be exchanged; links become copies.
        update(root, wheels)
        monkeypatch.undo()
        update(tmp_path / "wanted", wheels)
        assert tree(root) == tree(tmp_path / "wanted")
        return
    with pytest.raises(OSError, match="No space left"):
        update(root, wheels)
    assert tree(root) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "site/index"
    wheels = [make_wheel(tmp_path / "wheels", family, version=v, size=20) for family in FAMILIES for v in ("1", "2")]
    children = []
    for wheel in wheels:
        if (child := os.fork()) == 0:
            try:
                update(root, [wheel])
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(wheels)
    update(tmp_path / "site/wanted", wheels)
    assert tree(root) == tree(tmp_path / "site/wanted")


def test_readers_never_see_a_half(tmp_path: Path) -> None:
    """While one process changes the index over and over, another reads it: every link that it finds leads to a file."""
    root = tmp_path / "index"
    wheels = [make_wheel(tmp_path / "wheels", version=f"1.{n}", size=20) for n in range(15)]
    update(root, wheels[:1])
    if (child := os.fork()) == 0:
        try:
            for wheel in wheels[1:]:
                update(root, [wheel])
            os._exit(0)
        except BaseException:
            os._exit(1)
    seen = set()
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        page = (root / "cu130/sm9x/flashinfer-jit-cache/index.html").read_text()
        names = [text for _, text in parsed(page).links]
        seen.add(len(names))
        for name in names:
            assert (root / "files" / name).is_file()
    assert len(seen) > 1


# ---- The command ------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main([*map(str, words)])
    said = capsys.readouterr()
    return int(caught.value.code or 0), said.out, said.err


def test_the_command(wheels: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "index"
    status, out, _ = run(capsys, "index", tmp_path / "wheels", "--output", root)
    assert status == 0 and out.count("added ") == 6 and "6 wheels; written." in out
    assert "nothing changed" in run(capsys, "index", tmp_path / "wheels", "--output", root)[1]
    status, out, _ = run(capsys, "index", "--output", root, "--yank", "0.7.4", "--reason", "wrong <bytes>", "--json")
    assert json.loads(out) == {"added": [], "wheels": 6, "written": True}
    assert 'data-yanked="wrong &lt;bytes&gt;"' in (root / "cu130/sm9x/flashinfer-jit-cache/index.html").read_text()
    run(capsys, "index", "--output", root, "--unyank", "0.7.4")
    assert "data-yanked" not in (root / "cu130/sm9x/flashinfer-jit-cache/index.html").read_text()


def test_the_commands_errors(wheels: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, empty = tmp_path / "index", tmp_path / "empty"
    empty.mkdir()
    status, _, err = run(capsys, "index", empty, "--output", root)
    assert status == 1 and f"error: {empty} has no wheels." in err
    status, _, err = run(capsys, "index", tmp_path / "wheels", "--output", root, "--base-url", "host.example")
    assert status == 2 and "found 'host.example'" in err
    status, _, err = run(capsys, "index", tmp_path / "wheels", "--output", root, "--upload-time", "now")
    assert status == 2 and "a time with its zone" in err
    status, _, err = run(capsys, "index", tmp_path / "wheels", "--output", root, "--metadata-dir", empty)
    assert status == 2 and "--metadata-dir needs --base-url" in err
    status, _, err = run(capsys, "index", "--output", root, "--yank", "1", "--reason", "a\nb")
    assert status == 2 and "one line of text" in err
    make_wheel(tmp_path / "other", seed=1)
    status, _, err = run(capsys, "index", tmp_path / "wheels", tmp_path / "other", "--output", root)
    assert status == 3 and "error: flashinfer_jit_cache-0.7.4+cu130.sm9x" in err and "with other bytes" in err
    (tmp_path / "file").touch()
    status, _, err = run(capsys, "index", tmp_path / "wheels", "--output", tmp_path / "file/index")
    assert status == 1 and "can't be written" in err and "nothing was changed" in err
    assert not root.exists()


def test_the_document_has_every_option_and_field() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/index.md").read_text()
    command = importlib.import_module("smwheel.commands.index").command
    for option in (option for parameter in command.params for option in parameter.opts if option.startswith("--")):
        assert option in text or option == "--json"
    for name in asdict(entry()):
        assert f"`{name}`" in text
