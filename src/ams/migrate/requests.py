"""Requests to the old and the new service: client calls, or raw requests with raw answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

import httpx

from ams.client import AsyncClient, Retry
from ams.client.errors import AlreadyExists, ClientError, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from ams.client.transport import base, failure, fits_header, httpx_arguments, trust
from ams.client.wire.call import Call
from ams.core.errors import Unavailable
from ams.migrate.comparison import ServiceAnswer

S = TypeVar("S")
T = TypeVar("T")
MAX_REQUESTS = 4  # parallel requests to a service: few, so that its clients notice nothing
_CONCURRENT_ITEMS = 3  # items in parallel: while one waits for I/O, another goes on
_TIMEOUT_SECONDS = 60.0
_RETRY = Retry(attempts=8, total=60.0)
MAX_COMPARED_BYTES = 16 * 2**20
_SAFE = "".join(map(chr, range(33, 127))).replace("#", "")  # sent unescaped, as the reference got them before


class OldService(AbstractAsyncContextManager["OldService"]):
    """The old service, with retries. No error holds the token. Raises `Unavailable`."""

    def __init__(self, endpoint: str, token: str, ca: str | None) -> None:
        if not token:
            raise Unavailable("the old service takes a service_admin's token: set AMS_MIGRATE_TOKEN")
        try:
            self._client = AsyncClient(endpoint, token, ca=ca, timeout=_TIMEOUT_SECONDS, retry=_RETRY)
        except ClientError as error:
            raise Unavailable(f"the old service cannot be asked: {error.message}") from None
        self._once = self._client.with_retry(None)
        self._turn = asyncio.Semaphore(MAX_REQUESTS)

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, call: Call[T], *, retries: bool) -> T:
        """Send a call once, or with retries even if it may have been carried out.

        Raises `NotFound`, `AlreadyExists`, `InvalidInput`, `Unavailable`.
        """
        try:
            async with self._turn:
                return await (self._client.call(replace(call, repeatable=True)) if retries else self._once.call(call))
        except (NotFound, AlreadyExists, InvalidInput):
            raise
        except (NotAuthenticated, NotAllowed) as error:
            raise Unavailable(
                f"the old service answers {call.method} {call.path} with {error.message!r}: "
                "the token of AMS_MIGRATE_TOKEN must be a service_admin's"
            ) from None
        except ClientError as error:
            raise Unavailable(f"the old service cannot be read: {call.method} {call.path}: {error.message}") from None


async def each_of(items: Iterable[S], work: Callable[[S], Awaitable[T]], at_once: int = _CONCURRENT_ITEMS) -> list[T]:
    """Run `work` on all items in parallel; return the results in order. The first error cancels the rest."""
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


class AnswerTooLarge(Exception):
    """The answer is too large to compare."""


class Side(AbstractAsyncContextManager["Side"]):
    """One of the services, and the token of a service_admin there."""

    def __init__(self, endpoint: str, token: str, ca: str | None = None) -> None:
        """Raise `InvalidInput` for an invalid endpoint or token, `Unusable` for an invalid CA file."""
        self.endpoint, self.token = base(endpoint), token
        arguments = httpx_arguments(self.endpoint, token, trust(self.endpoint, ca, None, None), 30.0)
        arguments["headers"] = {}
        arguments["limits"] = httpx.Limits(max_connections=MAX_REQUESTS, max_keepalive_connections=MAX_REQUESTS)
        self._http = httpx.AsyncClient(**arguments)
        self._in_query = False

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def reach(self) -> None:
        """Find out whether it reads tokens from the header or the query. Raises `Unreachable`, `NotAuthenticated`."""
        if not self.token:
            await self.ask("/v1/version", {})
            return
        for self._in_query in (False, True):
            if (await self.ask("/v1/projects", None)).status != 401:
                return
        raise NotAuthenticated(f"{self.endpoint} does not know the token it is asked with", 401, "UNAUTHORIZED")

    async def ask(self, target: str, headers: Mapping[str, str] | None, token: str = "") -> ServiceAnswer:
        """Send a GET with a client's headers, or with a token or ours. Raises `Unreachable`, `AnswerTooLarge`."""
        token = token or self.token
        if headers is None and (self._in_query or not fits_header(token)):
            target, headers = f"{target}{'&' if '?' in target else '?'}key={quote(token, safe='')}", {}
        elif headers is None:
            headers = {"x-api-key": token}
        url = self._http.base_url.copy_with(raw_path=quote(target, safe=_SAFE).encode())
        try:
            async with self._http.stream("GET", url, headers=headers) as came:
                body = bytearray()
                async for part in came.aiter_bytes():
                    body += part
                    if len(body) > MAX_COMPARED_BYTES:
                        raise AnswerTooLarge
                return ServiceAnswer(came.status_code, came.headers.get("content-type", ""), bytes(body))
        except httpx.HTTPError as error:
            raise failure(error, self.endpoint) from None
