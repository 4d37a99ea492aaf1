"""Look-ups: the addresses of names, found in threads of their own.

Those who configure push also say which names are looked up, and a name server of theirs may take its time. So a name is
looked up once for all who ask, waits for its answer are bounded, and names that were slow have threads apart: they cost
each other time, and no other names.
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ams.core.cache import ExpiringCache, LruCache
from ams.outgoing.sharing import Shared

T = TypeVar("T")

THREADS, SLOW_THREADS = 32, 8
"""At most, for names, and for those that were slow the last time."""
SLOW_SECONDS = 1.0
"""From here on a name counts as slow."""
WAIT_SECONDS = 5.0
"""Most that is waited for a name."""
KEEP_SECONDS = 3.0
"""How long an answer is used again."""
REMEMBERED = 10_000
"""Most names of which anything is remembered."""

Find = Callable[[str, int], Sequence[str]]
"""Finds the addresses of a name, in a thread; raises `OSError` or `UnicodeError`."""


def system_find(host: str, port: int) -> Sequence[str]:
    """Find addresses as the machine does."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def in_thread(work: Callable[[], T], name: str, ended: Callable[[], None] = lambda: None) -> "asyncio.Future[T]":
    """Begin to work in a thread that keeps no process from ending, as those of an executor would.

    `ended` is called in the loop when the thread has ended, which may be long after its result is waited for. Raises
    `RuntimeError` when the machine gives no more threads; `ended` is called then too.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            end(found.set_exception, error)
        else:
            end(found.set_result, result)

    def end(how: Callable[[Any], None], what: object) -> None:
        def settle() -> None:
            ended()
            if not found.done():
                how(what)

        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        ended()
        raise
    return found


class Lookups:
    """Looks names up; a `Resolver` for the guard."""

    def __init__(self, find: Find = system_find, wait_seconds: float = WAIT_SECONDS) -> None:
        self._find = find
        self._wait_seconds = wait_seconds
        self._places = asyncio.Semaphore(THREADS)
        self._slow_places = asyncio.Semaphore(SLOW_THREADS)
        self._answers: ExpiringCache[str, Sequence[str]] = ExpiringCache(REMEMBERED, KEEP_SECONDS, time.monotonic)
        self._slow: LruCache[str, bool] = LruCache(REMEMBERED)
        self._going_on: Shared[str, Sequence[str]] = Shared()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; raise `OSError` when there are none, or none in time."""
        if _is_address(host):
            return [host]
        known = self._answers.get(host)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await self._going_on.result(host, lambda: self._look_up(host, port))
        except TimeoutError:
            self._slow.put(host, True)
            raise socket.gaierror(socket.EAI_AGAIN, "its name servers do not answer") from None

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        async with self._slow_places if self._slow.peek(host) else self._places:
            began = time.monotonic()
            addresses = await self._in_thread(host, port)
        if time.monotonic() - began < SLOW_SECONDS:
            self._slow.discard(host)
        else:
            self._slow.put(host, True)
        self._answers.put(host, addresses)
        return addresses

    async def _in_thread(self, host: str, port: int) -> Sequence[str]:
        try:
            return await in_thread(lambda: self._find(host, port), "ams-lookup")
        except RuntimeError as error:
            raise socket.gaierror(socket.EAI_AGAIN, f"names cannot be looked up: {error}") from error


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:  # a name, or an address in an odd notation: the machine says which
        return False
    return True
