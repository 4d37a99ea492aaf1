"""One of two services that are asked the same, and how it is asked: as it came, and answered as it is."""

from collections.abc import Mapping
from urllib.parse import quote

import httpx

from ams.client.errors import NotAuthenticated
from ams.client.transport import base, failure, fits_header, httpx_arguments, trust
from ams.migrate.comparing import Answer

AT_ONCE = 4
"""Requests under way to each side."""
MOST_BYTES = 16 * 2**20
"""Of an answer that is compared."""
_SAFE = "".join(map(chr, range(33, 127))).replace("#", "")
"""What is sent as it stands: the reference is to get what it got before."""


class TooLarge(Exception):
    """An answer that is not compared."""


class Side:
    """One of the services, and the token of a service_admin there."""

    def __init__(self, endpoint: str, token: str, ca: str | None = None, timeout: float = 30.0) -> None:
        """Raise `InvalidInput` for what cannot be an endpoint or a token, and `Unusable` for a file of no use."""
        self.endpoint = base(endpoint)
        self.token = token
        trusted = trust(self.endpoint, ca, None, None)
        arguments = httpx_arguments(self.endpoint, token, trusted, timeout)
        arguments["headers"] = {}
        arguments["limits"] = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        self._http = httpx.AsyncClient(**arguments)
        self._in_query = False

    async def __aenter__(self) -> "Side":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def reach(self) -> None:
        """See that it answers, and find out where it reads tokens.

        Raises `Unreachable`, and `NotAuthenticated` for a token that it does not know.
        """
        if not self.token:
            await self.ask("/v1/version", {})
            return
        for self._in_query in (False, True):
            if (await self.ask("/v1/projects", None)).status != 401:
                return
        raise NotAuthenticated(f"{self.endpoint} does not know the token it is asked with", 401, "UNAUTHORIZED")

    async def ask(self, target: str, headers: Mapping[str, str] | None) -> Answer:
        """Ask, by headers of a client, or by our token where there are none. Raises `Unreachable`, `TooLarge`."""
        return await (self.ask_as(target, self.token) if headers is None else self._get(target, headers))

    async def ask_as(self, target: str, token: str) -> Answer:
        """Ask with a token, where the service reads it. Raises `Unreachable`, `TooLarge`."""
        if self._in_query or not fits_header(token):
            return await self._get(f"{target}{'&' if '?' in target else '?'}key={quote(token, safe='')}", {})
        return await self._get(target, {"x-api-key": token})

    async def _get(self, target: str, headers: Mapping[str, str]) -> Answer:
        url = self._http.base_url.copy_with(raw_path=quote(target, safe=_SAFE).encode())
        try:
            async with self._http.stream("GET", url, headers=headers) as came:
                body = bytearray()
                async for part in came.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise TooLarge
                return Answer(came.status_code, came.headers.get("content-type", ""), bytes(body))
        except httpx.HTTPError as error:
            raise failure(error, self.endpoint) from None
