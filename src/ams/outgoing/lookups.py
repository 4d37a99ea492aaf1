"""Look-ups: the addresses of names, found in threads of their own.

Whoever configures push also says which names are looked up, and a name server of theirs may take its time. So a name is
looked up once for all who ask, waits for its answer are bounded, and names that were slow have threads apart: they cost
each other time, and nobody else.
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

THREADS, SLOW_THREADS = 32, 8
"""At most, for names, and for those that were slow the last time."""
SLOW_SECONDS = 1.0
"""From here on a name counts as slow."""
WAIT_SECONDS = 5.0
"""Most that anybody waits for a name."""
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


class _Answer(NamedTuple):
    addresses: Sequence[str]
    until: float


class Lookups:
    """Looks names up; a `Resolver` for the guard."""

    def __init__(self, find: Find = system_find, wait_seconds: float = WAIT_SECONDS) -> None:
        self._find = find
        self._wait_seconds = wait_seconds
        self._places = asyncio.Semaphore(THREADS)
        self._slow_places = asyncio.Semaphore(SLOW_THREADS)
        self._answers: dict[str, _Answer] = {}
        self._slow: set[str] = set()
        self._going_on: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; raise `OSError` when there are none, or none in time."""
        if _is_address(host):
            return [host]
        answer = self._answers.get(host)
        if answer is not None and time.monotonic() < answer.until:
            return answer.addresses
        looking = self._going_on.get(host)
        if looking is None:
            looking = self._going_on[host] = asyncio.create_task(self._look_up(host, port))
            looking.add_done_callback(_seen)
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asyncio.shield(looking)
        except TimeoutError:
            self._note_slow(host)
            raise socket.gaierror(socket.EAI_AGAIN, "its name servers do not answer") from None

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        try:
            async with self._slow_places if host in self._slow else self._places:
                began = time.monotonic()
                addresses = await self._in_thread(host, port)
            if time.monotonic() - began < SLOW_SECONDS:
                self._slow.discard(host)
            else:
                self._note_slow(host)
            self._keep(host, addresses)
            return addresses
        finally:
            del self._going_on[host]

    async def _in_thread(self, host: str, port: int) -> Sequence[str]:
        """Look up in a thread that keeps nobody from ending the process, as those of an executor would."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[str]] = loop.create_future()

        def find() -> None:
            try:
                addresses = self._find(host, port)
            except Exception as error:
                tell(found.set_exception, error)
            else:
                tell(found.set_result, addresses)

        def tell(how: Callable[..., None], what: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(lambda: None if found.done() else how(what))

        try:
            threading.Thread(target=find, name="ams-lookup", daemon=True).start()
        except RuntimeError as error:  # the machine gives no more threads
            raise socket.gaierror(socket.EAI_AGAIN, f"names cannot be looked up: {error}") from error
        return await found

    def _keep(self, host: str, addresses: Sequence[str]) -> None:
        now = time.monotonic()
        if len(self._answers) >= REMEMBERED:
            self._answers = {name: answer for name, answer in self._answers.items() if now < answer.until}
        self._answers[host] = _Answer(addresses, now + KEEP_SECONDS)

    def _note_slow(self, host: str) -> None:
        if len(self._slow) >= REMEMBERED:
            self._slow.clear()
        self._slow.add(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:  # a name, or an address in an odd notation: the machine says which
        return False
    return True


def _seen(task: "asyncio.Task[Sequence[str]]") -> None:
    """Look at an error that nobody waits for any more, so that it is not complained about."""
    if not task.cancelled():
        task.exception()
