"""Limits of clients: size and time of bodies, and memory budgets of bodies and answers.

One project or user cannot use up a budget. If arriving bodies need too much memory, the largest holder's are ended
first. A project's unread answers may take as much memory as they leave free. Work on large bodies starts one at a time,
round robin by project. After many refused bodies, a project's next ones are delayed (`RefusedBytes`).
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
from ams.core.fair_share import MAX_UNCOUNTED_BYTES, FairShare
from ams.core.supervisor import FairQueue
from ams.http.asgi import Receive

UNPACED_BYTES = 16 * 1024  # smaller bodies never wait and are not counted: they cost no more than any request
REFUSED_BYTES_PER_SECOND = 4 * 2**20  # of debt paid off: about 2 % of a processor, for refused schemas of 240 kB
FREE_REFUSED_BYTES = 16 * 2**20  # of debt without delays: the largest body may be corrected and sent again
MAX_DELAY_SECONDS = 30.0
REPORT_SECONDS = 60.0  # between two log lines about one sender
_UNKNOWN_BYTES = 64 * 1024  # assumed length of a waiting body without one
_MIN_DEBTS_BEFORE_CLEANUP = 1024  # debts kept before paid ones are looked for and dropped
_NO_HOLD = contextlib.nullcontext()
_TOO_MANY, _NOT_GZIP = "Too many large requests at once", "Request body is not gzip"

logger = structlog.get_logger("ams.http")


@dataclass(slots=True)
class _Debt:
    """Times of the event loop's clock."""

    free_at: float  # when enough of it is paid to end all delays
    next_at: float = 0.0  # when the next body in the queue may be read
    next_report_at: float = 0.0


class RefusedBytes:
    """Back-pressure for senders of refused bodies, by project, or by user without one. Used from one event loop.

    Refused bytes are a debt, paid off by time (decision 0038). While it is large, the next large bodies of the project
    are delayed, one after the other, before they are read. Nobody else waits.
    """

    def __init__(self) -> None:
        self._debts: dict[Hashable, _Debt] = {}
        self._most = _MIN_DEBTS_BEFORE_CLEANUP

    def note(self, who: Hashable, size: int) -> None:
        """Count a body that was refused after it was read; without a sender none is counted."""
        if size <= UNPACED_BYTES or not who:
            return
        without_debt = asyncio.get_running_loop().time() - FREE_REFUSED_BYTES / REFUSED_BYTES_PER_SECOND
        debt = self._debts.setdefault(who, _Debt(without_debt))
        debt.free_at = max(debt.free_at, without_debt) + size / REFUSED_BYTES_PER_SECOND
        if len(self._debts) > self._most:
            self._debts = {each: debt for each, debt in self._debts.items() if debt.free_at > without_debt}
            self._most = max(2 * len(self._debts), _MIN_DEBTS_BEFORE_CLEANUP)

    def must_wait(self, who: Hashable) -> bool:
        """Return whether a large body would be delayed now."""
        debt = self._debts.get(who)
        return debt is not None and debt.free_at > asyncio.get_running_loop().time()

    async def wait(self, who: Hashable, size: int | None) -> None:
        """Wait until a body of `size` bytes may be read; no delay without a large debt. None: unknown size.

        Raises `Overloaded` if the delay would exceed `MAX_DELAY_SECONDS`, after that time.
        """
        if not self.must_wait(who):
            return
        debt, now = self._debts[who], asyncio.get_running_loop().time()
        begins = max(debt.free_at, debt.next_at)
        if now >= debt.next_report_at:
            debt.next_report_at = now + REPORT_SECONDS
            logger.warning("bodies.waiting", of=str(who), reason="too many large bodies of it were refused")
        if begins - now > MAX_DELAY_SECONDS:  # without the delay it would be sent again at once
            await asyncio.sleep(MAX_DELAY_SECONDS)
            raise Overloaded(_TOO_MANY)
        debt.next_at = begins + (_UNKNOWN_BYTES if size is None else size) / REFUSED_BYTES_PER_SECOND
        await asyncio.sleep(begins - now)


T = TypeVar("T")

Headers = Iterable[tuple[bytes, bytes]]
Holders = Sequence[Hashable]  # of memory: a project and a user; each is counted

RECHECK_AFTER_SECONDS = 0.05
"""After a body that took longer to arrive, the rights of its sender are checked again. Otherwise a client could send
its head, have its token revoked, and send its body half a minute later."""
GZIP_PORTION_BYTES = 64 * 1024  # decoded at once
MAX_GZIP_MEMBERS = 100  # in a body: each may be empty, but still costs work
_GZIP_WBITS = 31  # `wbits` for gzip only
SHARE_OF_MEMORY = 8  # part of the process's free memory for a budget: a body is held in several forms


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(slots=True, eq=False)
class ArrivingBody:
    """A body that is being received."""

    holders: Holders
    on_end: Callable[[], None]  # called when it is ended to free memory
    size: int = 0  # counted bytes
    is_ended: bool = False


class Bodies:
    """Reads request bodies. Together, all but small ones stay under `max_buffered`."""

    def __init__(self, max_body: int, max_buffered: int, seconds: float) -> None:
        self.most = max_body  # bytes of any body
        self._seconds = seconds
        self._share = FairShare[Hashable](max_buffered)
        self._arriving: set[ArrivingBody] = set()
        self._refused = RefusedBytes()
        self._turns = FairQueue()

    async def read(
        self, headers: Headers, receive: Receive, limit: int | None = None, holders: Holders = ("",)
    ) -> bytes:
        """Return the whole body, decoded if it is gzip. A large one waits for its turn.

        `limit` is in bytes; absent: the limit of all requests. Raises `UnknownCoding` for other codings, `TooLarge`
        over the limit, `Overloaded` if memory is short and no holder uses more, or if its holder has too many refused
        bytes, `BadRequest` if it takes too long, `ClientLeft` if the client has left.
        """
        limit = self.most if limit is None else min(limit, self.most)
        is_coded, announced = is_gzip(headers), _content_length(headers)
        if announced is not None and announced > limit:
            raise TooLarge
        size = None if is_coded else announced
        if size is None or size > UNPACED_BYTES:
            await self._refused.wait(_sender(holders), size)
        body = await self._receive(receive, limit, holders)
        if is_coded and body:
            body = await self._decode_gzip(body, limit, holders)
        if len(body) > MAX_UNCOUNTED_BYTES:
            with self.hold_body(len(body), holders):
                await self._turns(_sender(holders))
        return body

    def must_wait(self, holders: Holders) -> bool:
        """Return whether the next large body of these holders is delayed, after many refused ones."""
        return self._refused.must_wait(_sender(holders))

    async def wait_turn(self, size: int, holders: Holders) -> bool:
        """Wait until work on a whole request may start; return whether to admit its sender again. Raises as `read`."""
        if size <= UNPACED_BYTES:
            return False
        began = asyncio.get_running_loop().time()
        await self._refused.wait(_sender(holders), size)
        if size > MAX_UNCOUNTED_BYTES:
            await self._turns(_sender(holders))
        return asyncio.get_running_loop().time() - began > RECHECK_AFTER_SECONDS

    async def _decode_gzip(self, body: bytes, limit: int, holders: Holders) -> bytes:
        arriving = ArrivingBody(holders, lambda: None)
        portions, size = [], 0
        try:
            for portion in decode_gzip(body):
                portions.append(portion)
                size += len(portion)
                if size > limit:
                    self._refused.note(_sender(holders), size)
                    raise TooLarge
                self.grow(arriving, size)
                if arriving.is_ended:
                    raise Overloaded(_TOO_MANY)
                await asyncio.sleep(0)  # yield to other requests
            return b"".join(portions)
        finally:
            self.release(arriving)

    async def _receive(self, receive: Receive, limit: int, holders: Holders) -> bytes:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientLeft
        body: bytes = event.get("body", b"")
        if not event.get("more_body", False):
            if len(body) > limit:
                raise TooLarge
            return body
        now = asyncio.get_running_loop().time
        arriving = ArrivingBody(holders, lambda: timeout.reschedule(now()))
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                return await self._read_on(body, receive, limit, arriving)
        except TimeoutError:
            late = BadRequest("Request took too long to arrive")
            raise (Overloaded(_TOO_MANY) if arriving.is_ended else late) from None

    def hold_body(self, size: int, holders: Holders = ("",)) -> contextlib.AbstractContextManager[None]:
        """Count a body during its work, because waiting for the disk takes memory too. Notes a refusal."""
        return self._hold_large(size, holders) if size > UNPACED_BYTES else _NO_HOLD

    def count_request(self, size: int, holders: Holders = ("",)) -> contextlib.AbstractContextManager[None]:
        """Count a request during its work. Raises `Overloaded` if it would leave less memory than it takes."""
        if size > MAX_UNCOUNTED_BYTES and size > self._share.room(*holders):
            raise Overloaded(_TOO_MANY)
        return self.hold_body(size, holders)

    @contextlib.contextmanager
    def _hold_large(self, size: int, holders: Holders) -> Iterator[None]:
        try:
            with self._share.hold_bytes(size, *holders):
                yield
        except AmsError as error:
            if not error.retriable:  # the sender is not to blame for retriable errors
                self._refused.note(_sender(holders), size)
            raise

    async def _read_on(self, first: bytes, receive: Receive, limit: int, arriving: ArrivingBody) -> bytes:
        chunks, size, more = [first], len(first), True
        try:
            self.grow(arriving, size)  # may be all that has come and ever comes
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

    def grow(self, arriving: ArrivingBody, size: int) -> None:
        """Count the present size of a body. While memory is short, end the largest body of the largest holder.

        Raises `Overloaded` if that is this body, or if the holder's bodies are being stored already.
        """
        if size <= MAX_UNCOUNTED_BYTES or arriving.is_ended:
            return
        self._arriving.add(arriving)
        self._share.add(size - arriving.size, *arriving.holders)
        arriving.size = size
        while self._share.used > self._share.capacity:
            largest = self._share.largest_holder()
            of_largest = [each for each in self._arriving if largest in each.holders]
            ended = max(of_largest, key=lambda each: (each.size, each is arriving), default=arriving)
            if ended is arriving:
                raise Overloaded(_TOO_MANY)
            ended.is_ended = True
            ended.on_end()
            self.release(ended)

    def keep(self, arriving: ArrivingBody) -> None:
        """Count a complete body until `release`; it is not ended any more."""
        self._arriving.discard(arriving)

    def release(self, arriving: ArrivingBody) -> None:
        """Stop counting a body."""
        self._arriving.discard(arriving)
        self._share.add(-arriving.size, *arriving.holders)
        arriving.size = 0


def _sender(holders: Holders) -> Hashable:
    """Return who is charged for a refused body: its project, or its user without one; empty or None: nobody."""
    return holders[0] or holders[-1]


def _content_length(headers: Headers) -> int | None:
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def affordable_bytes(budget: int, most: int | None = None) -> int:
    """Return a budget within the limit of the process's address space (`ulimit -v`), if there is one.

    Beyond that limit allocations fail inside native code, which may kill the process instead of failing the request.
    `most`: bytes that the process may still allocate; absent: read from the system.
    """
    if most is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return budget
        with open("/proc/self/statm", "rb") as file:
            most = limit - int(file.read().split()[0]) * resource.getpagesize()
    return min(budget, max(most, 0) // SHARE_OF_MEMORY)


def watch_disconnect(receive: Receive) -> asyncio.Future[None]:
    """Watch for the client's disconnect, after its request was read. The caller cancels the future."""

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return asyncio.ensure_future(disconnect())


async def cancel_if_left(work: Awaitable[T], left: "asyncio.Future[None]") -> T:
    """Return the result of some work. If the client leaves first, cancel it and raise `ClientLeft`."""
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
    """Return whether a body is gzip. Raises `UnknownCoding` for any other coding, or several."""
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    found = [each for each in codings if each not in (b"", b"identity")]
    if found and found not in ([b"gzip"], [b"x-gzip"]):
        raise UnknownCoding
    return bool(found)


def decode_gzip(body: bytes) -> Iterator[bytes]:
    """Yield the decoded portions of a gzip body. Raises `BadRequest` for invalid or incomplete gzip."""
    members, member = 1, zlib.decompressobj(wbits=_GZIP_WBITS)
    for at in range(0, len(body), GZIP_PORTION_BYTES):
        data, portion = body[at : at + GZIP_PORTION_BYTES], b""
        while data or (len(portion) == GZIP_PORTION_BYTES and not member.eof):  # a full portion may leave more inside
            if member.eof:
                members, member = members + 1, zlib.decompressobj(wbits=_GZIP_WBITS)
            try:
                portion = member.decompress(data, GZIP_PORTION_BYTES)
            except zlib.error:
                raise BadRequest(_NOT_GZIP) from None
            yield portion
            data = member.unused_data if member.eof else member.unconsumed_tail
            if members > MAX_GZIP_MEMBERS:
                raise BadRequest(_NOT_GZIP)
    if not member.eof:
        raise BadRequest(_NOT_GZIP)
