"""Bearer tokens: sent as `Authorization: Bearer` (RFC 6750, 2.1); short-lived, so that each request asks for it."""

import os
from collections.abc import Callable, Generator
from typing import TypeAlias

import httpx

from ams.client.errors import BadConnection, InvalidInput

Bearer: TypeAlias = str | Callable[[], str]
"""A token, or what returns the one to be sent now: cheaply, as each request asks for it."""

MAX_BYTES = 1 << 16
"""Of a file with a token; those of issuers are far shorter."""


class BearerFile:
    """The token that a file holds now: read again whenever the file was written by what renews the token."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], str] | None = None
        """What the file was like when it was read, and the token."""

    def __call__(self) -> str:
        """Return the token; raise `BadConnection` for a file that holds none."""
        try:
            found = os.stat(self.path)
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            read = self._read
            if read is None or read[0] != state:
                # Looked at before it is read: what is written meanwhile is read the next time.
                read = self._read = (state, self._token())
        except OSError as error:
            raise BadConnection(f"bearer token file {self.path}: {error.strerror}") from error
        return read[1]

    def _token(self) -> str:
        with open(self.path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
        token = text.decode("ascii", errors="replace").strip()
        if len(text) > MAX_BYTES or not is_token(token):
            raise BadConnection(f"bearer token file {self.path} does not hold a token")
        return token


class BearerAuth(httpx.Auth):
    """Shows a bearer token with each request of an httpx client, of either kind."""

    def __init__(self, bearer: Bearer) -> None:
        if isinstance(bearer, str):
            _checked(bearer)
        self._bearer = bearer

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request once, with the token of now; raise `InvalidInput` for what is none."""
        token = self._bearer if isinstance(self._bearer, str) else _checked(self._bearer())
        request.headers["authorization"] = f"Bearer {token}"
        yield request


def is_token(text: str) -> bool:
    """Whether a text may be sent as a token: visible ASCII without spaces."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _checked(token: str) -> str:
    # Checked here because an error from deeper down would quote the token.
    if not is_token(token):
        raise InvalidInput("the bearer token is empty, or holds characters that no token has")
    return token
