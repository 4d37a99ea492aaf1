"""The console: pages for a browser at `/console/`, which use only the public API.

Building a wheel or setting up a clone generates the files from the folder `console/` of the repository. They are the
same for everybody, so they need no token. A content security policy restricts pages: scripts and styles of this service
only, requests to this service and to the issuers for logins, no frames around it.
"""

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ams import __version__

FILES = Path(__file__).parent / "console_files"
PAGE = "index.html"
NOT_BUILT_TEXT = "The console is not in this installation. In a clone of the repository, `make console` builds it.\n"

_HASHED_NAME = re.compile(r"[.-][0-9A-Za-z]{8,}\.[a-z0-9]+$")  # has a hash: browsers may cache it for ever
_CACHE_FOREVER, _REVALIDATE = "public, max-age=31536000, immutable", "no-cache"
_MIN_GZIP_BYTES = 256  # bytes


class ConsoleLogin(msgspec.Struct, frozen=True, omit_defaults=True):
    """An issuer for logins to the console, by the authorization code flow with PKCE (RFC 7636)."""

    name: str
    issuer: str
    client_id: str
    scope: str = "openid"
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    error: str = ""  # why logins fail there now; then there are no endpoints


class File:
    """A file with its HTTP headers."""

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        gzipped = gzip.compress(self.body, 9, mtime=0) if len(self.body) >= _MIN_GZIP_BYTES else b""
        self.gzipped = gzipped if len(gzipped) < len(self.body) else b""  # empty: not smaller
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
        self.media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.caching = _CACHE_FOREVER if _HASHED_NAME.search(path.name) else _REVALIDATE


class Console:
    """Serves the console's files, read once at the first request."""

    def __init__(self, logins: Callable[[], Awaitable[Sequence[ConsoleLogin]]], folder: Path = FILES) -> None:
        self._logins, self._folder = logins, folder

    def routes(self) -> list[Route]:
        """Return the routes below the root of the service."""
        return [
            Route("/", self._to_page),
            Route("/console", self._to_page),
            Route("/console/config.json", self._config),
            Route("/console/{name:path}", self._file),
        ]

    @cached_property
    def _files(self) -> Mapping[str, File]:
        paths = sorted(path for path in self._folder.rglob("*") if path.is_file())
        return {path.relative_to(self._folder).as_posix(): File(path) for path in paths}

    async def _to_page(self, _request: Request) -> Response:
        return RedirectResponse("console/", 308)  # relative: a proxy may serve it below another path

    async def _config(self, _request: Request) -> Response:
        config = {"version": __version__, "issuers": await self._logins()}  # the page requests it first
        return Response(msgspec.json.encode(config), headers=_headers(_REVALIDATE), media_type="application/json")

    async def _file(self, request: Request) -> Response:
        if (file := self._files.get(request.path_params["name"] or PAGE)) is None:
            text = "There is no such file of the console.\n" if self._files else NOT_BUILT_TEXT
            return Response(text, 404, _headers(_REVALIDATE), "text/plain")
        headers = _headers(file.caching) | {"ETag": file.etag, "Vary": "Accept-Encoding"}
        if file.media_type == "text/html":
            headers["Content-Security-Policy"] = policy(await self._logins())
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        body = file.body
        if file.gzipped and "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["Content-Encoding"] = file.gzipped, "gzip"
        return Response(body, headers=headers, media_type=file.media_type)


def policy(logins: Iterable[ConsoleLogin]) -> str:
    """Return the content security policy: requests to this service, and to token endpoints."""
    urls = [urlsplit(each.token_endpoint) for each in logins if each.token_endpoint]
    origins = sorted({f"{url.scheme}://{url.netloc}" for url in urls})
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        + " ".join(["connect-src 'self'", *origins])
        + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )


def _headers(caching: str) -> dict[str, str]:
    return {
        "Cache-Control": caching,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    }
