"""Limits of what clients may cost: bodies are read with a limit and in time, bodies and answers within memory budgets.

One project or user cannot use up a budget for the others. Of bodies that arrive, the largest holder's are ended first;
of answers that are not read, a project may hold as much as it leaves free. Work on large bodies begins one at a time,
and projects take turns. A project of which many were refused waits before the next (`RefusedBytes`).
"""

import asyncio
import contextlib
import resource
import zlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from ams.core.errors import AmsError, BadRequest, Overloaded, TooLarge, UnknownCoding
from ams.core.fair_share import SMALL, FairShare
from ams.core.supervisor import Turns
from ams.http.asgi import Receive
from ams.wire.actions import SMALL_BODY as SMALL_BODY

PACED_BYTES = 16 * 1024  # bodies up to this size never wait and are not counted: they cost what any request costs
REFUSED_BYTES_PER_SECOND = 4 * 2**20  # of debt that time pays: some 2 % of a processor, of refused schemas of 240 kB
FREE_REFUSED_BYTES = 16 * 2**20  # of debt with which nothing waits: the largest body may be sent again, mended
LONGEST_WAIT_SECONDS = 30.0
REPORT_SECONDS = 60.0  # between two lines of the log about one sender
_UNKNOWN_BYTES = 64 * 1024  # what a body counts for, while it waits, that does not say its length
_FEWEST = 1024  # debts that are kept without looking for those that are paid

logger = structlog.get_logger("ams.http")


@dataclass(slots=True)
class _Debt:
    """Times of the event loop's clock."""

    paid_at: float
    next_at: float = 0.0  # when a body may be read that comes behind those that wait
    next_report_at: float = 0.0


class RefusedBytes:
    """Debts by who sent the bodies: a project, or a user where there is none. Used from one event loop.

    A refused body is received, decoded and looked at as one that is stored, but waits for no disk and counts for no
    quota. So refused bytes are a debt, which time pays. While it is large, the next large bodies of the project wait,
    one behind the other, before they are read. Nobody else waits.
    """

    def __init__(self) -> None:
        self._debts: dict[Hashable, _Debt] = {}
        self._most = _FEWEST

    def note(self, who: Hashable, size: int) -> None:
        """Count a body that was refused after it was read; of nobody none is counted."""
        if size <= PACED_BYTES or not who:
            return
        now = asyncio.get_running_loop().time()
        debt = self._debts.get(who)
        if debt is None:
            debt = self._debts[who] = _Debt(now)
        debt.paid_at = max(debt.paid_at, now) + size / REFUSED_BYTES_PER_SECOND
        if len(self._debts) > self._most:
            self._debts = {each: debt for each, debt in self._debts.items() if debt.paid_at > now}
            self._most = max(2 * len(self._debts), _FEWEST)

    def must_wait(self, who: Hashable) -> bool:
        """Return whether a large body would have to wait now."""
        debt = self._debts.get(who)
        return debt is not None and _free_at(debt) > asyncio.get_running_loop().time()

    async def wait(self, who: Hashable, size: int | None) -> None:
        """Return when a body of so many bytes may be read, at once without a large debt. None: its size is not known.

        Raises `Overloaded` after `LONGEST_WAIT_SECONDS`, when that is not enough.
        """
        if not self.must_wait(who):
            return
        debt, now = self._debts[who], asyncio.get_running_loop().time()
        begins = max(_free_at(debt), debt.next_at)
        if now >= debt.next_report_at:
            debt.next_report_at = now + REPORT_SECONDS
            logger.warning("bodies.waiting", of=str(who), reason="too many large bodies of it were refused")
        if begins - now > LONGEST_WAIT_SECONDS:  # refused at once, it would be sent again at once
            await asyncio.sleep(LONGEST_WAIT_SECONDS)
            raise Overloaded("Too many large requests at once")
        debt.next_at = begins + (_UNKNOWN_BYTES if size is None else size) / REFUSED_BYTES_PER_SECOND
        await asyncio.sleep(begins - now)


def _free_at(debt: _Debt) -> float:
    """Return when so much of a debt is paid that nothing has to wait for it."""
    return debt.paid_at - FREE_REFUSED_BYTES / REFUSED_BYTES_PER_SECOND


T = TypeVar("T")

Headers = Iterable[tuple[bytes, bytes]]
Holders = Sequence[Hashable]  # whose memory it is: a project and a user; each of them is counted

LATE_SECONDS = 0.05
"""After a body that took longer than this to come the rights of its sender are looked at again.

A client can send its head, have its token revoked, and send its body half a minute later.
"""
GZIP_PORTION_BYTES = 64 * 1024  # decoded at once
MAX_GZIP_MEMBERS = 100  # in a body: each may be empty, and costs work all the same
_GZIP = 31  # of `wbits`: gzip, and nothing else
SHARE_OF_MEMORY = 8  # of the memory that the process may still take, for a budget: a body is held in several forms


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class Arriving:
    """A body that is being received; `on_end` is called when it is ended to free memory for another's."""

    __slots__ = ("_on_end", "holders", "is_ended", "size")

    def __init__(self, holders: Holders, on_end: Callable[[], None]) -> None:
        self.holders, self._on_end = holders, on_end
        self.size = 0  # bytes counted of it
        self.is_ended = False

    def end(self) -> None:
        """Give it up."""
        self.is_ended = True
        self._on_end()


class Bodies:
    """Reads request bodies. Those being received or held, the small ones aside, stay under `max_buffered` together."""

    def __init__(self, max_body: int, max_buffered: int, seconds: float) -> None:
        self.most = max_body  # bytes that any body may have
        self._seconds = seconds
        self._share = FairShare[Hashable](max_buffered)
        self._arriving: set[Arriving] = set()
        self._refused = RefusedBytes()
        self._turns = Turns()

    async def read(
        self, headers: Headers, receive: Receive, limit: int | None = None, holders: Holders = ("",)
    ) -> bytes:
        """Return the whole body, of at most `limit` bytes (absent: the most any request may have).

        One in gzip is decoded. Returns a large one when it is its turn. Raises `UnknownCoding` for other codings,
        `TooLarge` over the limit, `Overloaded` when all bodies together need too much memory and no other holder has
        more of it, or when too much of its holder was refused, `BadRequest` when it takes too long, `ClientLeft` when
        the client has left.
        """
        limit = self.most if limit is None else min(limit, self.most)
        is_coded, announced = is_gzip(headers), _announced(headers)
        if announced is not None and announced > limit:
            raise TooLarge
        if self.must_wait(holders):
            size = None if is_coded else announced
            if size is None or size > PACED_BYTES:
                await self._refused.wait(_sender(holders), size)
        body = await self._received(headers, receive, limit, holders)
        if is_coded and body:
            body = await self._decoded(body, limit, holders)
        if len(body) > SMALL:
            with self.held(body, holders):
                await self._turns(_sender(holders))
        return body

    def must_wait(self, holders: Holders) -> bool:
        """Return whether so much of these holders was refused that their next large body has to wait."""
        return self._refused.must_wait(_sender(holders))

    async def wait_turn(self, size: int, holders: Holders) -> bool:
        """Wait until work may begin on a request that came as a whole; raise `Overloaded` as `read`.

        Returns whether that took so long that the rights of its sender are to be looked at again.
        """
        if size <= PACED_BYTES:
            return False
        began = asyncio.get_running_loop().time()
        await self._refused.wait(_sender(holders), size)
        if size > SMALL:
            await self._turns(_sender(holders))
        return asyncio.get_running_loop().time() - began > LATE_SECONDS

    async def _decoded(self, body: bytes, limit: int, holders: Holders) -> bytes:
        """Undo gzip, a portion at a time; what comes of it counts as if it had been sent."""
        arriving = Arriving(holders, lambda: None)
        portions, size = [], 0
        try:
            for portion in gunzipped(body):
                portions.append(portion)
                size += len(portion)
                if size > limit:
                    self._refused.note(_sender(holders), size)
                    raise TooLarge
                self.grow(arriving, size)
                if arriving.is_ended:
                    raise _too_many()
                await asyncio.sleep(0)  # others have their turn
            return b"".join(portions)
        finally:
            self.release(arriving)

    async def _received(self, headers: Headers, receive: Receive, limit: int, holders: Holders) -> bytes:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientLeft
        body: bytes = event.get("body", b"")
        if not event.get("more_body", False):
            if len(body) > limit:
                raise TooLarge
            return body
        arriving: Arriving | None = None
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                now = asyncio.get_running_loop().time
                arriving = Arriving(holders, lambda: timeout.reschedule(now()))
                return await self._read_on(body, receive, limit, arriving)
        except TimeoutError:
            if arriving is not None and arriving.is_ended:
                raise _too_many() from None
            raise BadRequest("Request took too long to arrive") from None

    def held(self, body: bytes, holders: Holders = ("",)) -> contextlib.AbstractContextManager[None]:
        """Count a body while it is worked on: what waits to be stored takes memory too. Notes when it is refused."""
        return self._hold_bytes(holders, len(body))

    def counted(self, size: int, holders: Holders = ("",)) -> contextlib.AbstractContextManager[None]:
        """Count a whole request while it is worked on; raise `Overloaded` when it would take more than is left free."""
        if size > SMALL and size > self._share.room(*holders):
            raise _too_many()
        return self._hold_bytes(holders, size)

    def _hold_bytes(self, holders: Holders, size: int) -> contextlib.AbstractContextManager[None]:
        return _HeldBody(self._share, self._refused, holders, size) if size > PACED_BYTES else _NOT_HELD

    async def _read_on(self, first: bytes, receive: Receive, limit: int, arriving: Arriving) -> bytes:
        chunks, size, more = [first], len(first), True
        try:
            self.grow(arriving, size)  # the first part can be all that came, and what more there is may never come
            while more:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise ClientLeft
                chunk: bytes = event.get("body", b"")
                more = event.get("more_body", False)
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    self._refused.note(_sender(arriving.holders), size)
                    raise TooLarge
                self.grow(arriving, size)
            return b"".join(chunks)
        finally:
            self.release(arriving)

    def grow(self, arriving: Arriving, size: int) -> None:
        """Count a body that has so many bytes by now, freeing memory; raise `Overloaded` when this body has to go."""
        if size <= SMALL or arriving.is_ended:
            return
        self._arriving.add(arriving)
        self._count(arriving.holders, size - arriving.size)
        arriving.size = size
        self._free_memory(arriving)

    def keep(self, arriving: Arriving) -> None:
        """Let a body that arrived count until `release`; it is not ended any more for another's."""
        self._arriving.discard(arriving)

    def release(self, arriving: Arriving) -> None:
        """Count a body no more."""
        self._arriving.discard(arriving)
        self._uncount(arriving)

    def _free_memory(self, arriving: Arriving) -> None:
        """While there is too little memory, end the largest body of the largest holder.

        Raises `Overloaded` when that is the body that arrives now, or when what the holder has is being stored already.
        """
        while self._share.used > self._share.capacity:
            largest = self._share.largest_holder()
            of_largest = [each for each in self._arriving if largest in each.holders and each.size]
            ended = max(of_largest, key=lambda each: (each.size, each is arriving), default=arriving)
            if ended is arriving:
                raise _too_many()
            ended.end()
            self._uncount(ended)

    def _uncount(self, arriving: Arriving) -> None:
        self._count(arriving.holders, -arriving.size)
        arriving.size = 0

    def _count(self, holders: Holders, size: int) -> None:
        self._share.add(size, *holders)


class _HeldBody(contextlib.AbstractContextManager[None]):
    __slots__ = ("_holders", "_refused", "_share", "_size")

    def __init__(self, share: FairShare[Hashable], refused: RefusedBytes, holders: Holders, size: int) -> None:
        self._share, self._refused, self._holders, self._size = share, refused, holders, size

    def __enter__(self) -> None:
        if self._size > SMALL:
            self._share.add(self._size, *self._holders)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._size > SMALL:
            self._share.add(-self._size, *self._holders)
        if isinstance(error, AmsError) and not error.retriable:  # of those the sender is not to blame
            self._refused.note(_sender(self._holders), self._size)


_NOT_HELD = contextlib.nullcontext()


def _sender(holders: Holders) -> Hashable:
    """Return who pays for a refused body: its project, or its user where there is none. Nobody is empty or None."""
    return holders[0] or holders[-1]


def _announced(headers: Headers) -> int | None:
    """Return how many bytes a body has by its head, 0 for none; None: it comes in chunks."""
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_many() -> Overloaded:
    return Overloaded("Too many large requests at once")


def affordable(budget: int, most: int | None = None) -> int:
    """Return a budget that fits the limit on the process's address space (`ulimit -v`), where there is one.

    Beyond that limit allocations fail inside native code, which may end the process instead of the request. `most` is
    what the process may still take, in bytes; absent: what the system says.
    """
    if most is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return budget
        with open("/proc/self/statm", "rb") as file:
            most = limit - int(file.read().split()[0]) * resource.getpagesize()
    return min(budget, max(most, 0) // SHARE_OF_MEMORY)


def gone(receive: Receive) -> asyncio.Future[None]:
    """Watch for the client to leave, after its request was read; to be cancelled when that is not needed any more."""

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return asyncio.ensure_future(disconnect())


async def unless_left(work: Awaitable[T], left: "asyncio.Future[None]") -> T:
    """Return what comes of some work; raise `ClientLeft`, and cancel the work, when the client leaves before."""
    task = asyncio.ensure_future(work)
    either: set[asyncio.Future[Any]] = {task, left}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def is_gzip(headers: Headers) -> bool:
    """Return whether a body comes in gzip; raises `UnknownCoding` for any other coding, or several."""
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    found = [each for each in codings if each not in (b"", b"identity")]
    if found and found not in ([b"gzip"], [b"x-gzip"]):
        raise UnknownCoding
    return bool(found)


def gunzipped(body: bytes) -> Iterator[bytes]:
    """Yield what a body in gzip holds, in portions. Raises `BadRequest` for what is not gzip, or not all of it."""
    members, member = 1, zlib.decompressobj(wbits=_GZIP)
    for at in range(0, len(body), GZIP_PORTION_BYTES):
        data, portion = body[at : at + GZIP_PORTION_BYTES], b""
        while data or (len(portion) == GZIP_PORTION_BYTES and not member.eof):  # a full one may leave more inside
            if member.eof:
                members, member = members + 1, zlib.decompressobj(wbits=_GZIP)
            try:
                portion = member.decompress(data, GZIP_PORTION_BYTES)
            except zlib.error:
                raise _not_gzip() from None
            yield portion
            data = member.unused_data if member.eof else member.unconsumed_tail
            if members > MAX_GZIP_MEMBERS:
                raise _not_gzip()
    if not member.eof:
        raise _not_gzip()


def _not_gzip() -> BadRequest:
    return BadRequest("Request body is not gzip")
