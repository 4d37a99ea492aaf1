"""How the old service and the new one are asked: by the client's calls, or as a request came, answered as it is."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

import httpx

from ams.client import AsyncClient, Retry
from ams.client.errors import AlreadyExists, ClientError, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from ams.client.transport import base, failure, fits_header, httpx_arguments, trust
from ams.client.wire.call import Call
from ams.core.errors import Unavailable
from ams.migrate.comparing import Answer

S = TypeVar("S")
T = TypeVar("T")
AT_ONCE = 4  # requests under way to a service: its clients are to notice nothing
_ITEMS_AT_ONCE = 3  # while one item waits for a disk or an answer, another goes on
_TIMEOUT_SECONDS = 60.0
_RETRY = Retry(attempts=8, total=60.0)
MAX_COMPARED_BYTES = 16 * 2**20
_SAFE = "".join(map(chr, range(33, 127))).replace("#", "")
"""Characters that are sent as they stand: the reference is to get what it got before."""


class OldService:
    """The old service, asked again where it fails for a while. No error holds the token. Raises `Unavailable`."""

    def __init__(self, endpoint: str, token: str, ca: str | None) -> None:
        if not token:
            raise Unavailable("the old service takes a service_admin's token: set AMS_MIGRATE_TOKEN")
        try:
            self._client = AsyncClient(endpoint, token, ca=ca, timeout=_TIMEOUT_SECONDS, retry=_RETRY)
        except ClientError as error:
            raise Unavailable(f"the old service cannot be asked: {error.message}") from None
        self._once = self._client.with_retry(None)
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """Ask nothing more."""
        await self._client.close()

    async def ask(self, call: Call[T]) -> T:
        """Return an answer, also of a call that it may have done already; raise what `once` raises."""
        return await self._asked(self._client, replace(call, repeatable=True))

    async def once(self, call: Call[T]) -> T:
        """Return an answer to a call sent once. Raises `NotFound`, `AlreadyExists`, `InvalidInput`, `Unavailable`."""
        return await self._asked(self._once, call)

    async def _asked(self, client: AsyncClient, call: Call[T]) -> T:
        try:
            async with self._turn:
                return await client.call(call)
        except (NotFound, AlreadyExists, InvalidInput):
            raise
        except (NotAuthenticated, NotAllowed) as error:
            raise Unavailable(
                f"the old service answers {call.method} {call.path} with {error.message!r}: "
                "the token of AMS_MIGRATE_TOKEN must be a service_admin's"
            ) from None
        except ClientError as error:
            where = f"the old service cannot be read: {call.method} {call.path}: {error.message}"
            raise Unavailable(where) from None


async def each_of(items: Iterable[S], work: Callable[[S], Awaitable[T]], at_once: int = _ITEMS_AT_ONCE) -> list[T]:
    """Return what `work` makes of each item, in their order; the first error ends the others and is raised."""
    remaining, done = iter(enumerate(items)), dict[int, T]()

    async def worker() -> None:
        for number, item in remaining:
            done[number] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(worker())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [done[number] for number in sorted(done)]


class TooLarge(Exception):
    """An answer that is not compared."""


class Side:
    """One of the services, and the token of a service_admin there."""

    def __init__(self, endpoint: str, token: str, ca: str | None = None) -> None:
        """Raise `InvalidInput` for what cannot be an endpoint or a token, and `Unusable` for a file of no use."""
        self.endpoint = base(endpoint)
        self.token = token
        trusted = trust(self.endpoint, ca, None, None)
        arguments = httpx_arguments(self.endpoint, token, trusted, 30.0)
        arguments["headers"] = {}
        arguments["limits"] = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        self._http = httpx.AsyncClient(**arguments)
        self._in_query = False

    async def __aenter__(self) -> "Side":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def reach(self) -> None:
        """Find out where it reads tokens. Raises `Unreachable`, or `NotAuthenticated` for a token it does not know."""
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
                    if len(body) > MAX_COMPARED_BYTES:
                        raise TooLarge
                return Answer(came.status_code, came.headers.get("content-type", ""), bytes(body))
        except httpx.HTTPError as error:
            raise failure(error, self.endpoint) from None
