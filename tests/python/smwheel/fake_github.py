"""A server that speaks the part of GitHub's releases API that publishing uses, and fails when it is told to.

It follows docs.github.com/rest/releases and what is known of it: drafts are invisible without a token and have no tag
of their own, an upload that breaks off leaves an asset of state `starter` that holds the name, uploads go to another
host (here: another port), lists come in pages, published releases can be immutable and then burn their tag.

After every change the public view is checked; `violations` has what was wrong.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]

TOKEN = "ghp_a-token-that-must-not-be-seen"

# What can be done to a request. Those with `after` let it take effect first.
FAULTS = (
    "limit retry-after", "limit reset", "limit secondary", "limit 429",
    "500 before", "502 after", "503 before",
    "reset before", "reset after", "hang before", "hang after",
    "kill before", "kill after",
)  # fmt: skip
UPLOAD_FAULTS = ("reset mid-body", "hang mid-body", "kill mid-body", "starter", "starter reset", "corrupt")


@dataclass
class Asset:
    """An asset as the server keeps it."""

    id: int
    name: str
    data: bytes
    state: str = "uploaded"

    def view(self) -> Json:
        """What the API says of it."""
        whole = self.state == "uploaded"
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "size": len(self.data) if whole else 0,
            "digest": f"sha256:{hashlib.sha256(self.data).hexdigest()}" if whole else None,
        }


@dataclass
class Release:
    """A release as the server keeps it."""

    id: int
    tag: str
    draft: bool
    body: str = ""
    prerelease: bool = False
    immutable: bool = False
    assets: dict[int, Asset] = field(default_factory=dict)

    def files(self) -> dict[str, bytes]:
        """The bytes of its assets, whatever their state."""
        return {
            f"{asset.name}" + ("" if asset.state == "uploaded" else f" ({asset.state})"): asset.data
            for asset in self.assets.values()
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed is no error of the server; anything else is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class FakeGithub:
    """The server. `fault` is asked for each request: method, path -> a fault or None."""

    def __init__(self, repository: str = "owner/name", tags: tuple[str, ...] = ("v0.7.4",)) -> None:
        self.repository, self.tags = repository, set(tags)
        self.releases: dict[int, Release] = {}
        self.burned: set[str] = set()
        self.immutable = False
        self.page = 100
        self.asset_limit = 2147483648
        self.hang = 1.0
        self.without_digest = 0
        self.corrupt = 0
        self.rename: str | None = None
        self.moved = False
        self.fault: Callable[[str, str], str | None] = lambda method, path: None
        self.kill: Callable[[], None] = lambda: None
        self.expected: dict[str, dict[str, bytes]] = {}
        self.violations: list[str] = []
        self.log: list[str] = []
        self.authorizations: set[str] = set()
        self._published: dict[int, dict[str, bytes]] = {}
        self._ids = itertools.count(1000)
        self.lock = threading.RLock()
        self._servers = [self._serve("api"), self._serve("uploads")]
        self.api_url, self.upload_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)

    def _serve(self, kind: str) -> ThreadingHTTPServer:
        handler = type("Handler", (_Handler,), {"github": self, "kind": kind})
        server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def __enter__(self) -> FakeGithub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add_release(self, tag: str, draft: bool, files: dict[str, bytes], body: str = "", starter: str = "") -> Release:
        """Puts a release there, without a request. starter: the name of a broken upload."""
        release = Release(next(self._ids), tag, draft, body)
        for name, data in files.items():
            asset = Asset(next(self._ids), name, data)
            release.assets[asset.id] = asset
        if starter:
            asset = Asset(next(self._ids), starter, b"", "starter")
            release.assets[asset.id] = asset
        self.releases[release.id] = release
        self.check()
        return release

    def public(self) -> dict[str, dict[str, bytes]]:
        """Tag -> files by name: what everybody sees."""
        with self.lock:
            return {release.tag: release.files() for release in self.releases.values() if not release.draft}

    def check(self) -> None:
        """Notes what is wrong with the public view: half a release, other bytes, published bytes that changed."""
        with self.lock:
            for tag, files in self.public().items():
                if tag in self.expected and files != self.expected[tag]:
                    self.violations.append(f"{tag} is public with {sorted(files)}, which is not the set")
            for release in self.releases.values():
                if not release.draft:
                    before = self._published.setdefault(release.id, release.files())
                    if before != release.files():
                        self.violations.append(f"{release.tag} changed after it was published")
            for number in self._published:
                if number not in self.releases:
                    self.violations.append(f"the published release {number} is gone")

    def new_id(self) -> int:
        """An id of a release or an asset."""
        return next(self._ids)


class _AbortError(Exception):
    """The connection ends here, without an answer."""


class _QuietError(Exception):
    """The connection ends after the answer that was sent."""


class _Handler(BaseHTTPRequestHandler):
    github: FakeGithub
    kind: str
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._any
        raise AttributeError(name)

    def _any(self) -> None:
        try:
            self._handle()
        except _QuietError:
            self.close_connection = True
        except (_AbortError, OSError):
            self.close_connection = True
            try:
                # Reset, not closed: what was sent is thrown away.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            except OSError:
                pass

    def _handle(self) -> None:
        github = self.github
        self.url = urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(self.url.query).items()}
        path = unquote(self.url.path)
        self.authorization = self.headers.get("Authorization", "")
        github.authorizations.add(self.authorization)
        github.log.append(f"{self.command} {path}")
        fault = github.fault(self.command, path) or ""
        length = int(self.headers.get("Content-Length", 0))
        upload = self.kind == "uploads"
        if fault.endswith("before"):
            self._fail(fault)
        if fault.startswith("limit"):
            # The body is not read, as by a proxy that answers for the server.
            self.close_connection = True
            return self._limit(fault)
        if fault.endswith("mid-body") and length:
            self.rfile.read(length // 2)
            if upload:
                self._wreck()
            self._fail(fault)
        body = self.rfile.read(length)
        if len(body) < length:
            if upload:
                self._wreck()
            raise _AbortError
        if fault.startswith("starter") and upload:
            self._wreck()
            if fault == "starter reset":
                raise _AbortError
            return self._answer(502, {"message": "Bad Gateway"})
        with github.lock:
            github.corrupt += fault == "corrupt"
            status, answer, headers = self._upload(body) if upload else self._api(path, body)
            github.check()
        if fault.endswith("after"):
            self._fail(fault)
        self._answer(status, answer, headers)

    def _fail(self, fault: str) -> None:
        kind = fault.split()[0]
        if kind == "kill":
            self.github.kill()
        elif kind == "hang":
            time.sleep(self.github.hang)
        elif kind.isdecimal():
            self.close_connection = True
            self._answer(int(kind), {"message": "Server Error"})
            self.wfile.flush()
            raise _QuietError
        raise _AbortError

    def _limit(self, fault: str) -> None:
        if fault == "limit retry-after":
            headers = {"Retry-After": "0"}
        elif fault == "limit reset":
            headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()))}
        else:
            headers = {}
        message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        self._answer(429 if fault == "limit 429" else 403, {"message": message}, headers)

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = b"" if status == 204 else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json; charset=utf-8")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    @property
    def _writer(self) -> bool:
        return self.authorization == f"Bearer {TOKEN}"

    def _view(self, release: Release) -> Json:
        base = f"{self.github.api_url}/repos/{self.github.repository}/releases/{release.id}"
        name = f"untagged-{release.id}" if release.draft else release.tag
        return {
            "id": release.id,
            "tag_name": release.tag,
            "name": release.tag,
            "draft": release.draft,
            "prerelease": release.prerelease,
            "immutable": release.immutable,
            "body": release.body,
            "html_url": f"https://github.invalid/{self.github.repository}/releases/tag/{name}",
            "url": base,
            "upload_url": f"{self.github.upload_url}/repos/{self.github.repository}/releases/{release.id}/assets{{?name,label}}",
            "assets": [asset.view() for asset in release.assets.values()],
        }

    def _list(self, path: str, items: list[Json]) -> tuple[int, Any, dict[str, str]]:
        size = min(int(self.query.get("per_page", 30)), self.github.page)
        page = int(self.query.get("page", 1))
        found = items[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(items):
            headers["Link"] = f'<{self.github.api_url}{path}?per_page={size}&page={page + 1}>; rel="next"'
        return 200, found, headers

    def _api(self, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        github = self.github
        missing: tuple[int, Any, dict[str, str]] = (404, {"message": "Not Found"}, {})
        if self.authorization and not self._writer:
            return 401, {"message": "Bad credentials"}, {}
        if github.moved:
            return 301, {"message": "Moved Permanently"}, {"Location": f"{github.api_url}/repositories/1"}
        base = f"/repos/{github.repository}"
        if not path.startswith(base):
            return missing
        parts = path.removeprefix(base).strip("/").split("/")
        fields = json.loads(body) if body else {}
        visible = {n: r for n, r in github.releases.items() if self._writer or not r.draft}
        if self.command != "GET" and not self._writer:
            return 403, {"message": "Resource not accessible by integration"}, {}
        if self.command == "GET" and parts == [""]:
            return 200, {"full_name": github.repository}, {}
        if self.command == "GET" and parts[:3] == ["git", "ref", "tags"]:
            tag = "/".join(parts[3:])
            return (200, {"ref": f"refs/tags/{tag}"}, {}) if tag in github.tags else missing
        if parts == ["releases"] and self.command == "GET":
            return self._list(path, [self._view(r) for _, r in sorted(visible.items(), reverse=True)])
        if parts == ["releases"] and self.command == "POST":
            release = Release(github.new_id(), fields["tag_name"], bool(fields["draft"]), fields.get("body", ""))
            release.prerelease = bool(fields.get("prerelease"))
            if not release.draft:
                raise AssertionError("a release was created that is no draft")
            github.releases[release.id] = release
            return 201, self._view(release), {}
        if parts[:2] == ["releases", "tags"]:
            found = [r for r in visible.values() if not r.draft and r.tag == "/".join(parts[2:])]
            return (200, self._view(found[0]), {}) if found else missing
        if parts[:2] == ["releases", "assets"] and self.command == "DELETE":
            return self._delete_asset(int(parts[2])) or missing
        if len(parts) < 2 or parts[0] != "releases" or not parts[1].isdecimal():
            return missing
        release_found = visible.get(int(parts[1]))
        if not release_found:
            return missing
        if parts[2:] == ["assets"]:
            return self._list(path, self._assets(release_found))
        if self.command == "GET":
            return 200, self._view(release_found), {}
        if self.command == "DELETE":
            if not release_found.draft:
                github.violations.append("a published release was deleted")
            del github.releases[release_found.id]
            return 204, None, {}
        if self.command == "PATCH":
            return self._patch(release_found, fields)
        return missing

    def _assets(self, release: Release) -> list[Json]:
        views = [asset.view() for asset in release.assets.values()]
        if views and self.github.without_digest:
            self.github.without_digest -= 1
            views = [{**view, "digest": None} for view in views]
        return views

    def _delete_asset(self, number: int) -> tuple[int, Any, dict[str, str]] | None:
        for release in self.github.releases.values():
            if number in release.assets:
                if release.immutable:
                    return 422, {"message": "Cannot delete asset from an immutable release."}, {}
                if not release.draft:
                    self.github.violations.append("a published asset was deleted")
                del release.assets[number]
                return 204, None, {}
        return None

    def _patch(self, release: Release, fields: Json) -> tuple[int, Any, dict[str, str]]:
        github = self.github
        if release.draft and fields.get("draft") is False:
            if release.tag in github.burned:
                errors = [
                    {"resource": "Release", "code": "custom", "message": "tag_name was used by an immutable release"}
                ]
                return 422, {"message": "Validation Failed", "errors": errors}, {}
            if any(r.tag == release.tag and not r.draft for r in github.releases.values()):
                errors = [{"resource": "Release", "code": "already_exists", "field": "tag_name"}]
                return 422, {"message": "Validation Failed", "errors": errors}, {}
            github.tags.add(release.tag)
            release.draft = False
            release.immutable = github.immutable
        release.prerelease = bool(fields.get("prerelease", release.prerelease))
        return 200, self._view(release), {}

    def _target(self) -> Release | None:
        parts = self.url.path.strip("/").split("/")
        return self.github.releases.get(int(parts[4])) if len(parts) == 6 and parts[4].isdecimal() else None

    def _wreck(self) -> None:
        """An upload broke off: its name is taken from now on."""
        with self.github.lock:
            release = self._target()
            if release and self._writer and not any(a.name == self.query["name"] for a in release.assets.values()):
                asset = Asset(self.github.new_id(), self.query["name"], b"", "starter")
                release.assets[asset.id] = asset
            self.github.check()

    def _upload(self, body: bytes) -> tuple[int, Any, dict[str, str]]:
        github, release = self.github, self._target()
        if not self._writer:
            return 401, {"message": "Bad credentials"}, {}
        if not release or self.command != "POST":
            return 404, {"message": "Not Found"}, {}
        if release.immutable:
            return 422, {"message": "Cannot upload assets to an immutable release."}, {}
        name = self.query["name"]
        if any(asset.name == name for asset in release.assets.values()):
            errors = [{"resource": "ReleaseAsset", "code": "already_exists", "field": "name"}]
            return 422, {"message": "Validation Failed", "errors": errors}, {}
        if len(body) >= github.asset_limit:
            errors = [
                {
                    "resource": "ReleaseAsset",
                    "code": "custom",
                    "message": f"size must be less than {github.asset_limit}",
                }
            ]
            return 422, {"message": "Validation Failed", "errors": errors}, {}
        if github.corrupt:
            github.corrupt -= 1
            body = bytes([body[0] ^ 1]) + body[1:]
        asset = Asset(github.new_id(), github.rename or name, body)
        release.assets[asset.id] = asset
        return 201, asset.view(), {}
