"""HTTP connection: the requests of one client and their answers, in order, within limits.

Bytes go to a `RequestReader`. Each request becomes an `Exchange`, which answers it: over ASGI, or by a handler of hot
requests. Pipelined requests wait for the answers before them. A request refused before it reaches an exchange is
answered here and ends the connection. The listener limits the number of connections.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ams.core.errors import AmsError, BadRequest, Overloaded
from ams.web.answers import Header, Refusal, closing_answer
from ams.web.fair_scheduler import COUNTED_BYTES, FairScheduler
from ams.web.request_reader import RequestHead, RequestReader

GOODBYE_SECONDS = 0.5  # for a peer to close its side at a stop
LINGER_SECONDS = 2.0  # for a client to finish sending a request that was refused
PORTION_BYTES = 64 * 1024  # portion of an answer for one write; roughly the unread output of a connection
PLAIN_PORTION_BYTES = 4 * PORTION_BYTES  # without TLS, where the transport reports back-pressure at once
_MAX_JOINED_BYTES = 16 * 1024  # bodies up to this size are joined to their heads, for one write
MAX_PIPELINED_REQUESTS = 100  # requests of a connection that wait for earlier answers
_PROJECT_PATH = re.compile(rb"(?:[A-Z]{1,8} )?/v1/projects/([^/?: ]{1,256})")


class Exchange(Protocol):
    """One request and its answer."""

    keep_alive: bool  # False: the connection closes after the answer, whose head then says so
    has_answer_begun: bool
    is_answered: bool

    def begin(self) -> None:
        """Start work on the request; all earlier ones are answered."""

    def take_body(self, body: bytes) -> None:
        """Take a part of the body."""

    def end_body(self) -> None:
        """Take note that the body is complete."""

    def end_input(self) -> None:
        """Take note that the client sends no more; it may still read."""

    def leave(self) -> None:
        """Take note that the client reads no more: the connection is lost, or ends with another answer."""

    def prepare_stop(self) -> None:
        """Close the connection after the answer: the server stops."""

    def cancel(self) -> None:
        """Cancel the work: the stop timed out."""


@dataclass(slots=True)
class Port:
    """State shared by the connections of one port."""

    open_exchange: Callable[["HttpConnection", RequestHead], Exchange]
    """Creates the exchange of a request. An `AmsError` refuses the request and closes the connection."""
    refusal: Callable[[Exception], Refusal]  # formats an error that the connection answers itself
    max_header_bytes: int = 64 * 1024  # of the request line and the header fields
    head_seconds: float = 30.0  # for a head, from its first byte; on a new connection from accept
    body_seconds: float = 30.0
    idle_seconds: float = 5.0  # from an answer to the next request
    scheduler: FairScheduler = field(default_factory=FairScheduler)
    connections: set["HttpConnection"] = field(default_factory=set)  # open connections
    exchanges: set[Exchange] = field(default_factory=set)  # in progress, even if their connections are lost
    default_headers: list[Header] = field(default_factory=list)  # of every answer; a new list at each change
    when_empty: Callable[[], None] = lambda: None  # called when the last connection and exchange have ended

    def end_exchange(self, exchange: Exchange) -> None:
        """Remove a finished exchange."""
        self.exchanges.discard(exchange)
        self._check_empty()

    def end_connection(self, connection: "HttpConnection") -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self._check_empty()

    def _check_empty(self) -> None:
        if not self.connections and not self.exchanges:
            self.when_empty()


class HttpConnection(asyncio.Protocol):
    """One client connection. Every method runs on the event loop."""

    slot: Any = None  # slot in the project's quota of connections, returned at close
    is_lost = False  # True: count nothing more; a request may be admitted after its client has left

    def __init__(self, port: Port, when_lost: Callable[[], None]) -> None:
        self.port, self._when_lost = port, when_lost
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # until `connection_made`
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self.is_secure = False
        self.is_write_paused = False  # flow control: too much output is unread, so write nothing more
        self._reader = RequestReader(self, port.max_header_bytes)
        self._arriving: Exchange | None = None  # the exchange whose body is incomplete
        self._current: Exchange | None = None  # the exchange in progress
        self._waiting: deque[Exchange] = deque()  # pipelined exchanges
        self._last_answer: Refusal | None = None  # closes the connection after the earlier requests are answered
        self.project = ""  # of the last admitted request on this connection: later packets take its turns
        self._held: list[bytes] | None = None  # unread packets, waiting for their turn
        self._held_bytes = 0
        self._has_rest = False  # True: the first of them is the rest of a slow packet
        self._is_read_paused = False
        self._has_input_ended = False  # True: the client sends no more, but may still read
        self._drained: asyncio.Future[None] | None = None
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._unread_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._end_timers: list[asyncio.TimerHandle] = []

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as of every stream
        """Register the connection and start the timer of its first request."""
        self.transport = transport
        self.server, self.client = _address(transport, "sockname"), _address(transport, "peername")
        self.is_secure = bool(transport.get_extra_info("sslcontext"))
        transport.set_write_buffer_limits(high=PORTION_BYTES)
        self.port.connections.add(self)
        self._start_arrival_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection; its requests still complete their writes."""
        self._when_lost()
        self.is_lost = True
        if self.slot is not None:
            self.slot.give_back()
        self._drop_held()
        for timer in (self._arrival_timer, self._idle_timer, self._unread_timer, self._look_timer, *self._end_timers):
            if timer is not None:
                timer.cancel()
        self._reader.forget()
        exchanges = [self._current, *self._waiting]
        self._current = self._arriving = None
        self._waiting.clear()
        for exchange in exchanges:
            if exchange is not None:
                exchange.leave()
        self._wake_writers()
        self.port.end_connection(self)

    def data_received(self, data: bytes) -> None:
        """Read a packet, or queue it until its project's turn."""
        if self._reader.is_stopped:
            return
        scheduler = self.port.scheduler
        if scheduler.free > 0 and self._held is None:
            scheduler.free -= 1 + len(data) // COUNTED_BYTES
        elif (self._held or scheduler.must_wait(self.loop)) and scheduler.hold_bytes(len(data)):
            self._hold(data)
            return
        elif self._has_rest:
            self._refuse_slow()
            return
        elif not self._read_held():
            self._hold_behind_rest(data)
            return
        self._feed_reader(data)

    def eof_received(self) -> bool:
        """Answer what has arrived, then close: the client sends no more, but may still read.

        Returns whether the connection stays open for that. Long polls and streams end, because a client that has left
        looks the same. With TLS the connection closes at once: asyncio has no half-closed TLS.
        """
        self._read_held()
        if self.is_secure or self._reader.is_in_request or self._reader.is_stopped or self._current is None:
            self.close()
            return False
        self._has_input_ended = True
        exchanges = [self._current, *self._waiting]
        for exchange in exchanges:
            exchange.end_input()
        exchanges[-1].keep_alive = False
        return True

    def pause_writing(self) -> None:
        """Back-pressure: give the client time to read a portion of its answer, then drop it, to free the memory."""
        self.is_write_paused = True
        self._unread_timer = self.loop.call_later(self.port.head_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Resume writing: the client reads again."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        self._wake_writers()

    # Called by the reader

    def begin_request(self, head: RequestHead) -> None:
        """Start a request, or queue it behind unanswered ones. An `AmsError` refuses it and stops the reader."""
        if self.transport.is_closing():
            raise BadRequest("The connection is closed")
        if len(self._waiting) >= MAX_PIPELINED_REQUESTS:
            raise Overloaded("Too many requests before the answers to those before")
        self._stop_arrival_timer()
        exchange = self._arriving = self.port.open_exchange(self, head)
        if self._current is None:
            self._current = exchange
            exchange.begin()
        else:
            self.pause_reading()
            self._waiting.append(exchange)
            if self.is_secure and self._look_timer is None:  # TLS does not report an end while reading is paused
                self._look_timer = self.loop.call_later(self.port.head_seconds, self._look_for_end)

    def take_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        if self._arriving is not None:
            self._arriving.take_body(body)

    def end_request(self, *, is_last: bool) -> None:
        """Pass on the end of a body. After the last request the connection closes, and its answer says so."""
        exchange, self._arriving = self._arriving, None
        self._stop_arrival_timer()
        if exchange is None:
            return
        if is_last:
            exchange.keep_alive = False
        exchange.end_body()
        if is_last and exchange.is_answered:
            self.close()

    # Called by exchanges

    @property
    def is_free(self) -> bool:
        """True if every received request is answered."""
        return self._current is None and not self._waiting

    def note_project_of(self, path: bytes) -> None:
        """Remember the project in the path of an admitted request."""
        found = _PROJECT_PATH.match(path)
        if found:
            self.project = found[1].decode("latin-1")

    def hand_over(self, successor: Exchange, keep_alive: bool) -> None:
        """Replace the exchange of the current request."""
        if self._arriving is self._current:
            self._arriving = successor
        self._current = successor
        successor.keep_alive = successor.keep_alive and keep_alive
        successor.begin()
        if self._has_input_ended:
            successor.end_input()

    def end_answer(self, exchange: Exchange) -> None:
        """Continue with the next request after an answer, or close."""
        if exchange is not self._current:  # the connection was lost
            return
        self._current = None
        if not exchange.keep_alive:
            self.close()
        if self.transport.is_closing():
            self._end_later(GOODBYE_SECONDS, self._abort_if_closing)
        elif self._reader.is_stopped and self._last_answer is None:
            self._linger(self.port.head_seconds)
        elif self._waiting:
            self._current = self._waiting.popleft()
            self.resume_reading()
            self._current.begin()
        else:
            self.resume_reading()
            self._idle_since = self.loop.time()
            if self._idle_timer is None:
                self._idle_timer = self.loop.call_later(self.port.idle_seconds, self._close_idle)
            if self._last_answer is not None:
                self._write_last_answer(self._last_answer)

    def leave_body(self) -> None:
        """Stop reading: the answer does not need the rest of the body, and announces the close."""
        self._reader.stop()
        self._stop_arrival_timer()
        self._drop_held()

    def write_first(self, head: bytes, body: bytes) -> int:
        """Write the head and first portion of an answer: TLS would buffer without limit. Returns its bytes."""
        if len(body) <= _MAX_JOINED_BYTES:
            self.transport.write(head + body)
            return len(body)
        portion = self._portion_bytes
        self.transport.write(head)
        self.transport.write(body if len(body) <= portion else body[:portion])
        return portion

    async def write_rest(self, body: bytes, at: int) -> None:
        """Write a body from an offset, each portion when the last is read, until little is unread, or to the loss."""
        portion = self._portion_bytes
        for start in range(at, len(body), portion):
            await self.drain()
            if self.is_lost:
                return
            self.transport.write(body[start : start + portion])
        await self.drain()

    async def drain(self) -> None:
        """Wait until writing is possible, or the connection is lost."""
        while self.is_write_paused:
            if self._drained is None:
                self._drained = self.loop.create_future()
            await asyncio.shield(self._drained)

    def answer_defect(self, error: Exception, *, is_to_head: bool) -> None:
        """Answer a request that the application failed to answer, and close."""
        self._reader.stop()
        if not self.transport.is_closing():
            self.transport.write(closing_answer(self.port.refusal(error), is_to_head=is_to_head))
            self.close()

    def close(self) -> None:
        """Close when the client has read the output, or drop it on timeout. Idempotent."""
        self._reader.stop()
        if self.transport.is_closing():
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._end_later(self.port.head_seconds, self.transport.abort)

    def pause_reading(self) -> None:
        """Stop receiving until `resume_reading`."""
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again, unless requests are queued: their heads take memory, so only those of one packet may wait."""
        if self._is_read_paused and not self._waiting:
            self._is_read_paused = False
            self.transport.resume_reading()

    # Called by the server

    def prepare_stop(self) -> None:
        """Close when everything that has arrived is answered, without waiting long for the peer to close."""
        self._read_held()
        if self._current is None:
            self.close()
        else:
            (self._waiting[-1] if self._waiting else self._current).prepare_stop()
        self._end_later(GOODBYE_SECONDS, self._abort_if_closing)

    # Packets and turns

    def _hold(self, data: bytes) -> None:
        if self._held is None:
            self._held = []
            # It takes a turn of the project in the path, if this connection was admitted to it before. Anyone can send
            # a path, so all others take turns of the client's address. For scheduling only: it is not parsed yet.
            found = _PROJECT_PATH.match(self._reader.target if self._reader.is_in_request else data)
            project = found[1].decode("latin-1") if found else None
            if project is not None and project == self.project:
                self.port.scheduler.enqueue(project, self._read_held)
            else:
                self.port.scheduler.enqueue(self.client and (self.client[0],), self._read_held, project)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > PORTION_BYTES:
            self.pause_reading()

    def _hold_rest(self, rest: bytes) -> None:
        scheduler = self.port.scheduler
        if not scheduler.hold_bytes(len(rest)):
            self._refuse_slow()
            return
        scheduler.must_wait(self.loop)  # ensures a next turn
        self._hold(rest)
        self._has_rest = True
        self.pause_reading()

    def _refuse_slow(self) -> None:
        self._drop_held()
        self._refuse(Overloaded("Too many large requests at once"))

    def _read_held(self) -> bool:
        """Read the queued packets. Returns whether none is left for the next turn."""
        if self._held is None:
            return True
        if self._has_rest or self._held_bytes > PORTION_BYTES:
            self.resume_reading()
        held = iter(self._drop_held())
        try:
            for data in held:
                self._feed_reader(data)
                if self._has_rest:
                    break
        except Exception:
            self.transport.abort()  # as for a packet that is read on arrival
            raise
        for data in held:
            self._hold_behind_rest(data)
        return self._held is None

    def _hold_behind_rest(self, data: bytes) -> None:
        """Queue a packet behind the rest of the last one, to keep the order; or refuse it."""
        if self._held is not None and self.port.scheduler.hold_bytes(len(data)):
            self._hold(data)
        else:
            self._refuse_slow()

    def _drop_held(self) -> Sequence[bytes]:
        held, size = self._held or (), self._held_bytes
        self._held, self._held_bytes, self._has_rest = None, 0, False
        self.port.scheduler.release_bytes(size)
        return held

    def _feed_reader(self, data: bytes) -> None:
        reader = self._reader
        was_in_request = reader.is_in_request
        try:
            rest = reader.feed(data)
        except AmsError as error:
            self._refuse(error)
            return
        if reader.is_stopped:
            return
        if rest:
            self._hold_rest(rest)
        if self._arrival_timer is not None:
            return
        if reader.is_in_request or (not (was_in_request or reader.packet_heads) and self.is_free):
            self._start_arrival_timer()

    # Timers and ends

    def _start_arrival_timer(self) -> None:
        is_in_body = self._reader.is_in_request and not self._reader.is_in_head
        seconds = self.port.body_seconds if is_in_body else self.port.head_seconds
        self._arrival_timer = self.loop.call_later(seconds, self._end_arrival)

    def _stop_arrival_timer(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _end_arrival(self) -> None:
        """End a connection whose request is late; if it is answered already, only close."""
        self._arrival_timer = None
        if self.transport.is_closing():
            return
        if self._is_read_paused or self._held:  # paused by us, for an earlier request or other projects' turns
            self._start_arrival_timer()
        elif self._reader.is_in_request:
            self._refuse(BadRequest("Request took too long to arrive"))
        else:
            self.close()

    def _close_idle(self) -> None:
        """Close a connection idle since its last answer; wait again if that was recent."""
        self._idle_timer = None
        if not self.is_free:  # the end of its answer restarts the timer
            return
        if self._reader.is_in_request or self._held:  # may be the rest of an answered request
            self._idle_since = self.loop.time()
        left = self._idle_since + self.port.idle_seconds - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._close_idle)
        else:
            self.close()

    def _look_for_end(self) -> None:
        """Read once more although a request waits: gets another packet, or the end of the connection."""
        self._look_timer = None
        if self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = False
            self.transport.resume_reading()

    def _refuse(self, error: Exception) -> None:
        """Refuse the arriving request and close, after all earlier answers."""
        if self._last_answer is not None or self.transport.is_closing():
            return
        self._reader.stop()
        self._stop_arrival_timer()
        self._last_answer = self.port.refusal(error)
        arriving, self._arriving = self._arriving, None
        if arriving is None:
            if self.is_free:
                self._write_last_answer(self._last_answer)
        elif arriving is not self._current and not arriving.is_answered:
            self._waiting.pop()  # it was queued; its body will not come
        elif arriving.has_answer_begun:
            self.close()
        else:
            self._current = None
            arriving.leave()
            self._write_last_answer(self._last_answer)

    def _write_last_answer(self, last: Refusal) -> None:
        self.transport.write(closing_answer(last, is_to_head=self._reader.is_in_head_request))
        if self._reader.is_in_request:
            self._linger(LINGER_SECONDS)
        else:
            self.close()

    def _linger(self, seconds: float) -> None:
        """Close, but first let the client finish sending.

        The rest is read and dropped: if TCP closed with it unread, the client might lose the answers. TLS drops it by
        itself.
        """
        self._reader.stop()
        if not self.transport.can_write_eof():
            self.close()
            return
        self.transport.write_eof()
        self.resume_reading()
        self._end_later(seconds, self.close)

    def _end_later(self, seconds: float, end: Callable[[], None]) -> None:
        self._end_timers.append(self.loop.call_later(seconds, end))

    def _abort_if_closing(self) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.transport.abort()

    def _wake_writers(self) -> None:
        self.is_write_paused = False
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    @property
    def _portion_bytes(self) -> int:
        return PORTION_BYTES if self.is_secure else PLAIN_PORTION_BYTES


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    found: Any = transport.get_extra_info(name)
    return (found[0], found[1]) if found else None
