"""The reference's HTTP API, asked as a service_admin: again where it fails for a while, and only a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from ams.client import AsyncClient, Retry
from ams.client.errors import AlreadyExists, ClientError, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from ams.client.wire.call import Call
from ams.core.errors import Unavailable

S = TypeVar("S")
T = TypeVar("T")
AT_A_TIME = 4
"""Requests under way: its clients are to notice nothing."""
AT_ONCE = 3
"""Things that are worked on at the same time: while one waits for a disk or an answer, another goes on."""
SECONDS = 60.0
"""An answer may take."""
PATIENCE = Retry(attempts=8, total=60.0)
"""How long it may be away."""


class OldService:
    """The service at an endpoint. No error of it holds the token. Raises `Unavailable` where it cannot be asked."""

    def __init__(self, endpoint: str, token: str, ca: str | None) -> None:
        if not token:
            raise Unavailable("the old service takes a service_admin's token: set AMS_MIGRATE_TOKEN")
        try:
            self._client = AsyncClient(endpoint, token, ca=ca, timeout=SECONDS, retry=PATIENCE)
        except ClientError as error:
            raise Unavailable(f"the old service cannot be asked: {error.message}") from None
        self._once = self._client.with_retry(None)
        self._turn = asyncio.Semaphore(AT_A_TIME)

    async def close(self) -> None:
        """Ask nothing more."""
        await self._client.close()

    async def ask(self, call: Call[T]) -> T:
        """Return an answer, also of a call that it may have done already; raise what `once` raises."""
        return await self._asked(self._client, replace(call, repeatable=True))

    async def once(self, call: Call[T]) -> T:
        """Return an answer to a call that is sent once.

        Raises `NotFound`, `AlreadyExists`, `InvalidInput`, or else `Unavailable`.
        """
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


async def each_of(items: Iterable[S], work: Callable[[S], Awaitable[T]], at_once: int = AT_ONCE) -> list[T]:
    """Return what `work` makes of each item, in their order; the first that fails ends the others and is raised.

    `at_once` of them are worked on at the same time.
    """
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
