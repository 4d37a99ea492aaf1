"""Bearer tokens, sent as `Authorization: Bearer` (RFC 6750, 2.1); read again for each request: they are short-lived."""

import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TypeAlias

import httpx

from ams.client.errors import BadConnection, InvalidInput

Bearer: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns the current one. It must be cheap: it is called for each request."""

AsyncBearer: TypeAlias = Bearer | Callable[[], Awaitable[str]]
"""The same for asyncio; the function may be a coroutine function."""

MAX_BYTES = 1 << 16  # of a token file; real tokens are far shorter


class BearerFile:
    """The current token in a file; read again whenever the file changes.

    Many scripts renew it by `>` of a shell, which empties the file before the issuer answers. While the file is empty,
    the previous token is used; the service says whether it is still valid.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], str] | None = None  # state of the file when it was read, and its token

    def __call__(self) -> str:
        """Return the token; raise `BadConnection` for a file that holds none."""
        read = self._read
        try:
            found = os.stat(self.path)
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            if read is None or read[0] != state:
                # Stat before reading: a write in between is read the next time.
                with open(self.path, "rb") as file:
                    text = file.read(MAX_BYTES + 1)
                token = text.decode("ascii", errors="replace").strip()
                if len(text) > MAX_BYTES or not (is_token(token) or not token):
                    raise BadConnection(f"bearer token file {self.path} does not hold a token")
                read = self._read = (state, token or (read[1] if read else ""))
        except OSError as error:
            if read is None or not isinstance(error, FileNotFoundError):
                raise BadConnection(f"bearer token file {self.path}: {error.strerror}") from error
        if not read[1]:
            raise BadConnection(f"bearer token file {self.path} does not hold a token")
        return read[1]


class BearerAuth(httpx.Auth):
    """Adds a bearer token to each request of an httpx client, sync or async."""

    def __init__(self, bearer: AsyncBearer) -> None:
        if not callable(bearer):
            _check_token(bearer)
        self._bearer = bearer

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request once, with the current token. Raises `InvalidInput` for an invalid token."""
        token: object = self._bearer() if callable(self._bearer) else self._bearer
        if inspect.iscoroutine(token):
            token.close()
            raise InvalidInput("the function for the bearer token is a coroutine function, which AsyncClient awaits")
        request.headers["authorization"] = f"Bearer {_check_token(token)}"
        yield request

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Do the same on asyncio; the function may be a coroutine function."""
        token: object = self._bearer() if callable(self._bearer) else self._bearer
        token = await token if inspect.isawaitable(token) else token
        request.headers["authorization"] = f"Bearer {_check_token(token)}"
        yield request


def is_token(text: str) -> bool:
    """Return whether a text may be sent as a token: visible ASCII without spaces."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _check_token(token: object) -> str:
    # Checked here because an error from deeper down would quote the token.
    if not isinstance(token, str):
        raise InvalidInput("a bearer token is a text, or a function that returns it")
    if not is_token(token):
        raise InvalidInput("the bearer token is empty, or holds characters that no token has")
    return token
