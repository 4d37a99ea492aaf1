"""The reference's HTTP API, asked as a service_admin: again where it fails for a while, and only a few at a time."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ams.client import AsyncClient, Retry
from ams.client.errors import AlreadyExists, ClientError, InvalidInput, NotAllowed, NotAuthenticated, NotFound, Refused
from ams.client.wire.call import Call, reader
from ams.core.errors import Unavailable

S = TypeVar("S")
T = TypeVar("T")
Json = dict[str, Any]
"""An object as it came."""

AT_A_TIME = 4
"""Requests under way: its clients are to notice nothing."""
AT_ONCE = 3
"""Things that are worked on at the same time: while one waits for a disk or an answer, another goes on."""
SECONDS = 60.0
"""An answer may take: pages of users with details take long there."""
PATIENCE = Retry(attempts=8, total=60.0)
"""How long it may be away."""
PAGE = 200
_FOR_EVER = re.compile("invalid JSON|exporting data to JSON|Could not load the schema")
"""Its words for what it cannot read again, or cannot write as JSON."""


class OldService:
    """The service at an endpoint. No error of it holds the token. Raises `Unavailable` where it cannot be asked."""

    def __init__(self, endpoint: str, token: str, ca: str | None, patience: Retry = PATIENCE) -> None:
        if not token:
            raise Unavailable("the old service takes a service_admin's token: set AMS_MIGRATE_TOKEN")
        try:
            self._client = AsyncClient(endpoint, token, ca=ca, timeout=SECONDS, retry=patience)
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

        Raises `NotFound`, `AlreadyExists`, `InvalidInput`, or `Failed`; where asking again is of no use, `Unavailable`.
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
            raise Failed(where, error) from None

    async def answerable(self, call: Call[T]) -> T | None:
        """Return an answer as `ask` does; None where what is there can be put in none, now and later."""
        try:
            return await self.once(call)
        except Failed as error:
            if error.is_for_ever():
                return None
        try:
            return await self.ask(call)
        except Failed as error:
            if error.is_for_ever():
                return None
            raise

    async def get(self, path: str, **query: str) -> Json:
        """Return an object as it came."""
        return await self.ask(Call("GET", path, reader(Json), query=query))

    async def get_answerable(self, path: str) -> Json | None:
        """Return an object as it came; None as `answerable` does."""
        return await self.answerable(Call("GET", path, reader(Json)))

    async def pages(self, path: str, name: str, **query: str) -> list[Json]:
        """Return all items of a list, in the order in which they were made: pages begin with the newest."""
        found: list[Json] = []
        token, tokens = "", set[str]()
        while True:
            page = await self.get(path, pageSize=str(PAGE), **query, **({"pageToken": token} if token else {}))
            found += objects(page, name)
            token = text(page, "nextPageToken")
            if not token:
                return found[::-1]
            if token in tokens:
                raise Unavailable(f"the old service gives the same page of {path} again")
            tokens.add(token)


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


class Failed(Unavailable):
    """It has no answer, or a failure of its own is the answer."""

    def __init__(self, message: str, reason: ClientError) -> None:
        super().__init__(message)
        self._reason = reason

    def is_for_ever(self) -> bool:
        """Whether the answer is 500 because of what it has stored: a record, a rate, a schema."""
        reason = self._reason
        return isinstance(reason, Refused) and reason.code == 500 and bool(_FOR_EVER.search(reason.message))


def text(item: Mapping[str, Any], name: str) -> str:
    """Return a text of an object; empty where there is none."""
    found = item.get(name)
    return found if isinstance(found, str) else ""


def objects(item: Mapping[str, Any], name: str) -> list[Json]:
    """Return a list of objects, which may be null or left out."""
    found = item.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(item: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts, which may be null or left out."""
    found = item.get(name)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def integer(item: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number."""
    found = item.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
