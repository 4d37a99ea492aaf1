"""When to look for messages: as soon as the service says that there are some, or, where it cannot say, now and then.

One request waits for up to `SHARD` subscriptions at once, so that a thousand idle ones cost a few requests every few
seconds. Those that have just been delivered wait in small requests of their own; the idle ones stay together.
A reference service knows no such request: each subscription is then pulled now and then, the more seldom the longer
it is idle, and all together at most `POLLS` times a second.
"""

import asyncio
import random
from collections.abc import Collection
from typing import Protocol

import msgspec
import structlog

from ams.client import AsyncClient
from ams.client import errors as client_errors
from ams.client.wire.call import Call, json_body, reader
from ams.core.backoff import Backoff
from ams.push.upstream import Target

SHARD = 128
"""Subscriptions that one request waits for."""
WAIT_SECONDS = 8.0
"""How long the service is to wait when nothing comes."""
_GATHER_SECONDS = 0.003
"""For subscriptions that begin to wait at the same time to come together."""
_SPARE = 8
"""Requests beyond the fewest there could be, before small ones are put together."""

POLLS_OF_ONE = Backoff(0.25, 5.0)
"""Seconds from one look to the next: at first, and when nothing came for long."""
POLLS = 100.0
"""A second, of all subscriptions together."""

logger = structlog.get_logger("ams.push_server")


class Waiting(Protocol):
    """Tells when a pull may bring something. Raises a `ClientError` when the service cannot be asked."""

    async def until_due(self, target: Target) -> bool:
        """Return True when a pull may bring something, False after a while in which there was nothing."""
        ...

    def came(self, path: str) -> None:
        """Note that a pull brought something."""
        ...

    def forget(self, path: str) -> None:
        """Forget a subscription."""
        ...


class Polling:
    """Looks now and then."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._idle: dict[str, int] = {}

    async def until_due(self, target: Target) -> bool:
        """Return True after a pause that grows."""
        idle = self._idle.get(target.path, 0)
        self._idle[target.path] = idle + 1
        shared = len(self._idle) / POLLS
        await asyncio.sleep(max(POLLS_OF_ONE.nominal(idle), shared) * self._random.uniform(0.85, 1.15))
        return True

    def came(self, path: str) -> None:
        """Look soon again: where one message came there may be another."""
        self._idle[path] = 0

    def forget(self, path: str) -> None:
        """Forget a subscription."""
        self._idle.pop(path, None)


class Ready(msgspec.Struct):
    """Which of the subscriptions that were asked for have something to pull."""

    ready: list[str]


_ready = reader(Ready)


def wait_push(subscriptions: Collection[str], seconds: float) -> Call[Ready]:
    """Ask which subscriptions, by identity, have something to pull, as soon as one has or after so many seconds."""
    body = json_body({"subscriptions": sorted(subscriptions), "seconds": round(seconds)})
    return Call("POST", "/v1/push:wait", _ready, body, repeatable=True)


class _Request:
    """A request under way, and who waits for it."""

    def __init__(self, waiters: "dict[str, asyncio.Future[bool]]") -> None:
        self.waiters = waiters
        self.task: asyncio.Task[None] | None = None


class Waking:
    """Lets the service wake whoever waits; `fallback` looks where it cannot."""

    def __init__(self, client: AsyncClient, fallback: Polling, seconds: float = WAIT_SECONDS) -> None:
        self._client = client
        self._fallback = fallback
        self._seconds = seconds
        self._knows = True
        """Whether the service knows the request, as far as is known."""
        self._new: dict[str, asyncio.Future[bool]] = {}
        self._requests: list[_Request] = []
        self._gathering: asyncio.Task[None] | None = None

    async def until_due(self, target: Target) -> bool:
        """Return True when the service says that there is something, False after a while."""
        if not self._knows or not target.id:
            return await self._fallback.until_due(target)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._new[target.id] = future
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())
        return await future

    def came(self, path: str) -> None:
        """Pass it on."""
        self._fallback.came(path)

    def forget(self, path: str) -> None:
        """Pass it on."""
        self._fallback.forget(path)

    async def close(self) -> None:
        """End all requests."""
        tasks = [each.task for each in self._requests if each.task] + ([self._gathering] if self._gathering else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _gather(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        self._merge()
        waiting = [(key, future) for key, future in self._new.items() if not future.done()]
        self._new = {}
        for begin in range(0, len(waiting), SHARD):
            request = _Request(dict(waiting[begin : begin + SHARD]))
            self._requests.append(request)
            request.task = asyncio.create_task(self._ask(request))

    def _merge(self) -> None:
        """Put the smallest requests together when there are many more than there need be."""
        waiting = sum(len(each.waiters) for each in self._requests) + len(self._new)
        if len(self._requests) <= waiting // SHARD + _SPARE:
            return
        smallest = sorted(self._requests, key=lambda each: len(each.waiters))[:_SPARE]
        for request in smallest:
            assert request.task is not None
            request.task.cancel()
            self._requests.remove(request)
            self._new = request.waiters | self._new

    async def _ask(self, request: _Request) -> None:
        for key in [key for key, future in request.waiters.items() if future.done()]:
            del request.waiters[key]
        try:
            ready = frozenset((await self._client.call(wait_push(request.waiters, self._seconds))).ready)
        except Exception as error:  # also a defect: who waits must not wait for ever
            self._requests.remove(request)
            self._failed(request.waiters, error)
            return
        self._requests.remove(request)
        if not ready:
            self._settle(request.waiters, False)
            return
        self._settle({key: future for key, future in request.waiters.items() if key in ready}, True)
        self._again({key: future for key, future in request.waiters.items() if key not in ready})

    def _again(self, waiters: "dict[str, asyncio.Future[bool]]") -> None:
        """Let those wait on for whom there was nothing."""
        self._new = waiters | self._new
        if waiters and (self._gathering is None or self._gathering.done()):
            self._gathering = asyncio.create_task(self._gather())

    def _failed(self, waiters: "dict[str, asyncio.Future[bool]]", error: Exception) -> None:
        if unknown_route(error) or isinstance(error, client_errors.NotAllowed):
            logger.info("waiting.polled", reason="the service cannot say when there are messages")
            self._knows = False
            self._settle(waiters, True)
            return
        for future in waiters.values():
            if not future.done():
                future.set_exception(error)

    def _settle(self, waiters: "dict[str, asyncio.Future[bool]]", due: bool) -> None:
        for future in waiters.values():
            if not future.done():
                future.set_result(due)


def unknown_route(error: Exception) -> bool:
    """Whether this is how a service answers what it does not know: 404 or 405, with or without its envelope."""
    if isinstance(error, client_errors.NotAms):
        return "404" in error.message or "405" in error.message
    return isinstance(error, client_errors.Refused) and error.code in (404, 405)
