"""The part of GitHub's REST API that makes releases (docs.github.com/rest/releases), one request a call.

A call succeeds, or raises TransientError (the same request may succeed later; its effect may or may not have taken
place) or an error that says what to do. Nothing here retries. The token goes into one header and nowhere else.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter

from smwheel import __version__
from smwheel.errors import SmwheelError
from smwheel.release_set import File

Json = dict[str, Any]

_API_VERSION = "2022-11-28"  # of the REST API
_PAGE = 100  # the most items that one page may have (REST API, "Using pagination")
_BLOCK = 1 << 18  # bytes that are sent at once

# A rate limit that does not say when to come back: "wait for at least one minute" (REST API, "Best practices").
UNSTATED = -1.0


class ApiError(SmwheelError):
    """GitHub refuses a request, and would again."""

    exit_code = 4


class TokenError(SmwheelError):
    """There is no token, or it may not do this."""

    exit_code = 6


class TransientError(Exception):
    """A request failed that may succeed later.

    wait: seconds that the server asks for, UNSTATED, or None. limited: by a rate limit.
    """

    def __init__(self, reason: str, wait: float | None = None, limited: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.limited = limited


@dataclass(frozen=True)
class Asset:
    """A release asset. state: `uploaded`, or `starter` and the like for what an upload that broke off left."""

    id: int
    name: str
    state: str
    size: int
    digest: str | None


@dataclass(frozen=True)
class Release:
    """A release, or a draft of one."""

    id: int
    tag: str
    draft: bool
    body: str
    html_url: str
    upload_url: str
    immutable: bool


@dataclass(frozen=True)
class Limits:
    """Seconds. request: for one answer; upload: for one asset; pace: between two requests that change something."""

    request: float = 30.0
    upload: float = 1800.0
    pace: float = 1.0


def clean_token(environment: Mapping[str, str]) -> str | None:
    """The token of GH_TOKEN, else of GITHUB_TOKEN. Raises TokenError for one that no header can carry."""
    for name in ("GH_TOKEN", "GITHUB_TOKEN"):
        if token := environment.get(name, "").strip():
            # What requests says of a bad header would contain it.
            if not re.fullmatch(r"[\x21-\x7e]+", token):
                raise TokenError(
                    f"{name} holds no token.", "printable ASCII without spaces", "something else", f"set {name} anew."
                )
            return token
    return None


def check_api_url(url: str) -> str:
    """The base of the API, without a slash at its end. Raises SmwheelError unless https, or http on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")):
        if parts.hostname and not parts.username and not parts.query:
            return url.rstrip("/")
    raise SmwheelError(
        "--api-url is not the address of an API.",
        "https://HOST, since a token is sent there (http on this machine only)",
        f"{parts.scheme or 'no scheme'}://{parts.hostname or ''}",
        "leave it out for github.com.",
    )


def rate_limit_wait(status: int, headers: Mapping[str, str], message: str, now: float) -> float | None:
    """Seconds that a rate limit asks for, UNSTATED, or None if the answer is about none.

    The order is that of the REST API's "Rate limits": retry-after, then x-ratelimit-reset (seconds since 1970), then
    a minute or more. Both limits answer 403 or 429; a 403 without their signs is a permission.
    """
    if status not in (403, 429):
        return None
    if "retry-after" in headers:
        return _seconds(headers["retry-after"])
    if headers.get("x-ratelimit-remaining") == "0":
        reset = headers.get("x-ratelimit-reset", "")
        return max(float(reset) - now, 0.0) if reset.isdecimal() else UNSTATED
    return UNSTATED if status == 429 or "rate limit" in message.lower() else None


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}", text) else UNSTATED


class _Token(requests.auth.AuthBase):
    """Sets the header; an auth object also keeps requests from taking another one from ~/.netrc."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def __repr__(self) -> str:
        return "_Token(…)"


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, blocksize=_BLOCK, **kwargs)


class ChangedError(SmwheelError):
    """A file is not what was checked."""

    exit_code = 3


class _Body:
    """A file as the body of a request: read in pieces until a deadline, hashed on its way."""

    def __init__(self, file: File, stream: BinaryIO, deadline: float, advanced: Callable[[int], None]) -> None:
        self._file, self._stream, self._deadline, self._advanced = file, stream, deadline, advanced
        self._digest, self._left = hashlib.sha256(), file.size

    def __len__(self) -> int:
        return self._file.size

    def __iter__(self) -> Iterator[bytes]:  # requests takes for a stream what can be iterated
        while data := self.read(_BLOCK):
            yield data

    def read(self, size: int = -1) -> bytes:
        if time.monotonic() > self._deadline:
            raise TimeoutError("the upload took longer than it may")
        data = self._stream.read(min(size, self._left) if size >= 0 else self._left)
        self._digest.update(data)
        self._left -= len(data)
        self._advanced(len(data))
        # Before the last byte is sent, so that a changed file never becomes a whole asset.
        if (not data and self._left) or (data and not self._left and self._digest.hexdigest() != self._file.sha256):
            raise ChangedError(
                f"{self._file.name} changed while it was uploaded.",
                f"{self._file.size} bytes of sha256 {self._file.sha256}",
                "other bytes",
                "let nothing write there, and run the command again.",
            )
        return data


class Github:
    """The releases of one repository."""

    def __init__(self, api_url: str, repository: str, token: str, limits: Limits) -> None:
        """api_url: checked by `check_api_url`; repository: owner/name; token: from `clean_token`."""
        self._api_url, self.repository, self._secret, self._limits = api_url, repository, token, limits
        self._base = f"{api_url}/repos/{repository}"
        self._session = requests.Session()
        self._session.auth = _Token(token)
        self._session.headers.update(
            {
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": _API_VERSION,
                "User-Agent": f"smwheel/{__version__}",
            }
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter())
        self._next_change = 0.0

    def _say(self, text: object) -> str:
        """A text of the server or of a library, on one line, that surely has no token in it."""
        return " ".join(str(text).replace(self._secret, "***").split())[:500]

    def _request(
        self, method: str, url: str, missing_ok: bool = False, timeout: float | None = None, **kwargs: Any
    ) -> requests.Response:
        """One request. A 404 is an answer if `missing_ok`; all other failures are raised."""
        if method != "GET":
            time.sleep(max(0.0, self._next_change - time.monotonic()))
        what = f"{method} {urlsplit(url).path}"
        limit = self._limits.request
        try:
            # A redirect would carry the request, and maybe the token, elsewhere.
            response = self._session.request(
                method, url, timeout=(limit, timeout or limit), allow_redirects=False, **kwargs
            )
        except requests.RequestException as error:
            raise TransientError(f"{what}: {self._say(error)}") from None
        finally:
            if method != "GET":
                self._next_change = time.monotonic() + self._limits.pace
        if (response.ok and response.status_code < 300) or (missing_ok and response.status_code == 404):
            return response
        raise self._failure(what, response)

    def _failure(self, what: str, response: requests.Response) -> Exception:
        status = response.status_code
        try:
            body = response.json()
            errors = [error.get("message") or error.get("code") for error in body.get("errors", [])]
            message = self._say("; ".join(filter(None, [body.get("message"), *errors])))
        except (ValueError, AttributeError, TypeError):
            message = self._say(response.text)
        found = f"{status} {response.reason}: {message}"
        wait = rate_limit_wait(status, response.headers, message, time.time())
        if wait is not None:
            return TransientError(f"{what}: {found}", wait, limited=True)
        if status >= 500 or status in (408, 409):
            after = response.headers.get("retry-after")
            return TransientError(f"{what}: {found}", _seconds(after) if after else None)
        if status == 422 and "already_exists" in message:
            return TransientError(f"{what}: {found}")
        what = f"{self.repository}: {what} was refused."
        if status in (401, 403):
            todo = "give a token with permission to write the repository's contents in GH_TOKEN or GITHUB_TOKEN."
            return TokenError(what, "a token that may do this", found, todo)
        if status == 404:
            todo = "see to the spelling of --repository, and that the token may write its contents."
            return TokenError(what, "a repository that the token may see and write", found, todo)
        if 300 <= status < 400:
            return ApiError(what, "the repository's present name", found, "give the name that it has now.")
        return ApiError(what, "success", found, "mend what GitHub's answer names, and run the command again.")

    def _json(self, response: requests.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise TransientError(f"an answer that is no JSON: {self._say(error)}") from None

    def _pages(self, url: str) -> Iterator[Json]:
        """All items of a list."""
        following: str | None = f"{url}?per_page={_PAGE}"
        while following:
            response = self._request("GET", following)
            found = self._json(response)
            if not isinstance(found, list):
                raise TransientError(f"GET {urlsplit(url).path}: an answer that is no list")
            yield from found
            following = response.links.get("next", {}).get("url")
            if following and not following.startswith(f"{self._api_url}/"):
                raise ApiError(
                    f"{self.repository}: a list goes on elsewhere.",
                    f"a page at {self._api_url}",
                    self._say(following),
                    "give that as --api-url if it is right.",
                )

    def check_repository(self) -> None:
        """Raises TokenError for a repository that is not there, or that the token may not see."""
        self._request("GET", self._base)

    def tag_exists(self, tag: str) -> bool:
        """Whether the repository has the tag. Publishing a release of one that it has not would create it."""
        response = self._request("GET", f"{self._base}/git/ref/tags/{quote(tag)}", missing_ok=True)
        return response.status_code != 404

    def by_tag(self, tag: str) -> Release | None:
        """The published release of a tag."""
        response = self._request("GET", f"{self._base}/releases/tags/{quote(tag)}", missing_ok=True)
        return None if response.status_code == 404 else _release(self._json(response))

    def drafts(self, tag: str) -> list[Release]:
        """All drafts of a tag: there may be several."""
        return [
            found for found in map(_release, self._pages(f"{self._base}/releases")) if found.draft and found.tag == tag
        ]

    def release(self, number: int) -> Release | None:
        """The release of an id."""
        response = self._request("GET", f"{self._base}/releases/{number}", missing_ok=True)
        return None if response.status_code == 404 else _release(self._json(response))

    def assets(self, release: Release) -> tuple[Asset, ...]:
        """All assets of a release, whatever their state."""
        return tuple(map(_asset, self._pages(f"{self._base}/releases/{release.id}/assets")))

    def create_draft(self, tag: str, body: str, prerelease: bool) -> Release:
        """Creates a draft, which only those who may write the repository can see."""
        fields = {"tag_name": tag, "name": tag, "body": body, "draft": True, "prerelease": prerelease}
        return _release(self._json(self._request("POST", f"{self._base}/releases", json=fields)))

    def delete_draft(self, release: Release) -> None:
        """Deletes a draft; nothing if it is gone. Never deletes what is published by now."""
        found = self.release(release.id)
        if found and found.draft:
            self._request("DELETE", f"{self._base}/releases/{release.id}", missing_ok=True)

    def delete_asset(self, asset: Asset) -> None:
        """Deletes an asset; nothing if it is gone."""
        self._request("DELETE", f"{self._base}/releases/assets/{asset.id}", missing_ok=True)

    def upload(self, release: Release, file: File, advanced: Callable[[int], None]) -> Asset:
        """Uploads a file under its name. advanced: called with the bytes of each piece that was sent."""
        url = release.upload_url.partition("{")[0]  # a URI template: …/assets{?name,label}
        if urlsplit(url).scheme != urlsplit(self._api_url).scheme:
            raise ApiError(
                f"{self.repository}: the upload address is of another kind than the API's.",
                urlsplit(self._api_url).scheme,
                self._say(url),
                "see to --api-url: a token is sent there.",
            )
        limit = self._limits.upload
        with file.open() as stream:
            body = _Body(file, stream, time.monotonic() + limit, advanced)
            headers = {"Content-Type": "application/octet-stream"}
            params = {"name": file.name}
            response = self._request("POST", url, params=params, headers=headers, data=body, timeout=limit)
        return _asset(self._json(response))

    def publish(self, release: Release, prerelease: bool) -> None:
        """Makes a draft visible, with all its assets at once."""
        fields = {"draft": False, "prerelease": prerelease}
        self._request("PATCH", f"{self._base}/releases/{release.id}", json=fields)


def _release(found: Json) -> Release:
    try:
        return Release(
            int(found["id"]),
            str(found["tag_name"]),
            bool(found["draft"]),
            found.get("body") or "",
            str(found["html_url"]),
            str(found["upload_url"]),
            bool(found.get("immutable")),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TransientError("an answer that is no release") from None


def _asset(found: Json) -> Asset:
    try:
        digest = found.get("digest")
        size = int(found["size"])
        return Asset(int(found["id"]), str(found["name"]), str(found["state"]), size, str(digest) if digest else None)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TransientError("an answer that is no asset") from None
