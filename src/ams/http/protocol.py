"""The connection: uvicorn's HTTP parser with limits on heads and slow senders, and errors in our envelope.

Without them a client could send headers for ever, and a request that is no HTTP would be answered in plain text, which
the official library cannot read (clients.md A2). How many connections there may be is the listener's (`ams.web`).

Where a head or a body ends is decided by the parser alone: no byte is searched for, and none is changed, before it.
"""

import asyncio
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ams.access.quota_slots import ConnectionSlot
from ams.core.errors import AmsError, BadRequest, Overloaded
from ams.http.asgi import CONNECTION, JSON, Header
from ams.http.errors import Refusal, refusal
from ams.http.rounds import Rounds

GOODBYE_SECONDS = 0.5
"""How long a peer has to close its side at a stop."""
LINGER_SECONDS = 2.0
"""How long a client whose request was refused may go on sending it."""
PORTION = 64 * 1024
"""Bytes of an answer that are written at once, and about what a connection holds that its client has not read."""
ONE_WRITE = 4 * PORTION
"""The same, of a connection without TLS, which tells at once what the client does not read."""
MAX_PIPELINED = 100
"""Requests of a connection that wait for the answers before."""
MAX_TRAILER_BYTES = 8 * 1024
"""Received behind the head without being part of the body: sizes of chunks, and trailers, which are passed over."""
MAX_FRAMING_BYTES = 16 * 1024
"""Received of a body in chunks without being data, such as sizes of chunks, beside twice as much as there is data."""
SLICE_BYTES = 4 * 1024
"""Fed to the parser at once, of a packet in which there may be many chunks, or many requests."""
MAX_PARTS_PER_TURN = 256
"""Parts of bodies taken in one turn of a connection, about: chunks of one byte are 40,000 in a packet."""
_PARTS_OF_REQUEST = 16
"""A request counts as so many parts."""
MAX_HEADER_FIELDS = 100
"""In a request; what common servers take."""
_LOOKED_AT = frozenset({b"host", b"expect", b"transfer-encoding", b"content-length"})
"""Header fields that the connection itself goes by."""
_VERSIONS = frozenset({"1.0", "1.1"})
MAX_LENGTH_DIGITS = 20
"""Of a `Content-Length`. The parser takes any number of zeros before, which Python does not read."""
_PROJECT = re.compile(rb"(?:[A-Z]{1,8} )?/v1/projects/([^/?: ]{1,256})")
MAX_QUERY_BYTES = 8 * 1024
MAX_QUERY_FIELDS = 100


class LimitedProtocol(HttpToolsProtocol):
    """One client connection. The limits are set on a subclass by `limited`."""

    max_header_bytes: int
    request_seconds: float
    rounds: Rounds
    """What waits for its turn, of all connections of a server."""
    refusal: Callable[[Exception], Refusal] = staticmethod(refusal)
    """What is answered before there is a request that an application could answer."""

    when_lost: Callable[[], None] = staticmethod(lambda: None)
    """Called when the connection is lost."""
    slot: ConnectionSlot | None = None
    """Its place among the connections of a project."""
    is_lost = False
    """Whether nothing more is counted for it: a request may be let in after its client has left."""
    _in_request = False
    """Whether a request has begun to arrive that is not complete."""
    _in_head = False
    """Whether its head is not complete either."""
    _head_bytes = 0
    """Received of that head in earlier packets."""
    _packet_bytes = 0
    """In the packet that the parser reads now."""
    _heads_begun = 0
    """In that packet."""
    _packet_body_bytes = 0
    """Of bodies, in that packet."""
    _parts = 0
    """Taken in this turn of the connection."""
    _body_bytes = 0
    """Received of the body of that request."""
    _body_left = 0
    """To come of a body whose length was said."""
    _framing_bytes = 0
    """Received of a body in chunks without being data."""
    _is_chunked = False
    """Whether the body of that request comes in chunks."""
    _hosts = 0
    """Header fields `Host` in that head."""
    _trailer_bytes = 0
    """Received behind the head in packets without a part of the body."""
    _trailers = 0
    """Fields behind the body."""
    _wrong: AmsError | None = None
    """Why a callback of the parser stopped it."""
    _stays_open = True
    """True if the head of that request lets the connection stay open after its answer."""
    _body_after_offer = b""
    """The header field that says how long the body is, of a request that offers to upgrade."""
    _last_answer: Refusal | None = None
    """What the connection ends with, once the requests before are answered."""
    _is_over = False
    """Whether what still comes is dropped: the connection ends with an answer that is made."""
    _start_of_head = b""
    """Of a head that did not come in one packet: its earlier packets."""
    _packet = b""
    """What the parser reads now."""
    _running: RequestResponseCycle | None = None
    """The request that is worked on; those behind it wait in `pipeline`."""
    _idle_since = 0.0
    """When the last answer was complete, by the clock of the event loop."""
    _held: list[bytes] | None = None
    """Packets that wait for their turn, not looked at yet."""
    _held_bytes = 0
    _has_rest = False
    """Whether the first of them is the rest of a packet that would have taken long."""
    _project = ""
    """To which a request of this connection was last let in."""
    _patience: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Take the connection.

        As uvicorn does, which however asks the system for both addresses anew, by sockets that it makes for it: a
        twentieth of all work for a call that has a TLS connection of its own.
        """
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server, self.client = _address(transport, "sockname"), _address(transport, "peername")
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        transport.set_write_buffer_limits(high=PORTION)
        self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.when_lost()
        self.is_lost = True
        if self.slot is not None:
            self.slot.give_back()
        self._drop_held()
        self._stop_waiting()
        self._unset_keepalive_if_required()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn says so to the last request only, which may wait in the queue
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a packet, or hold it until it is its project's turn."""
        rounds = self.rounds
        if rounds.free > 0 and self._held is None:
            rounds.free -= 1
        elif (self._held or rounds.is_over(self.loop)) and rounds.hold(len(data)):
            self._hold(data)
            return
        elif self._has_rest:
            self._refuse_slow()
            return
        else:
            self._read_held()
        self._read(data)

    def _hold(self, data: bytes) -> None:
        if self._held is None:
            self._held = []
            who, name = self._asker(data)
            self.rounds.put(who, self._read_held, name)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > PORTION:
            self.flow.pause_reading()

    def _hold_rest(self, rest: bytes) -> None:
        """Hold what is left of a packet until this connection's next turn; nothing more is received before it."""
        rounds = self.rounds
        if not rounds.hold(len(rest)):
            self._refuse_slow()
            return
        rounds.is_over(self.loop)  # so that there is a next turn
        self._hold(rest)
        self._has_rest = True
        self.flow.pause_reading()

    def _refuse_slow(self) -> None:
        """Refuse a request that takes long to read, as too much of others waits already."""
        self._drop_held()
        self._refuse(Overloaded("Too many large requests at once"))

    def _read_held(self) -> None:
        """Read what waits for its turn, if that is not done yet and the connection not lost."""
        if self._held is None:
            return
        if self._has_rest or self._held_bytes > PORTION:
            self.flow.resume_reading()
        held = iter(self._drop_held())
        try:
            for data in held:
                self._read(data)
                if self._has_rest:
                    break
        except Exception:
            self.transport.abort()  # as for a packet that is read as it comes
            raise
        for data in held:  # behind the rest of that before
            if self._held is None or not self.rounds.hold(len(data)):
                self._refuse_slow()
                return
            self._hold(data)

    def _drop_held(self) -> Sequence[bytes]:
        """Return what waits for its turn; it does so no more."""
        held, size = self._held or (), self._held_bytes
        self._held, self._held_bytes, self._has_rest = None, 0, False
        self.rounds.let_go(size)
        return held

    def _asker(self, data: bytes) -> tuple[Hashable, Hashable]:
        """Return who takes turns with others, and the name by which what waits for that turn is told apart.

        That is the project in the path, if this connection was let in to it before. Anybody can write a path, so
        others take the turns of the client's address. It decides nothing else: what is asked the parser says, which has
        not seen the packet.
        """
        found = _PROJECT.match(self.url if self._in_request else data)
        project = found[1].decode("latin-1") if found else None
        if project is not None and project == self._project:
            return project, None
        return self.client and (self.client[0],), project

    def _read(self, data: bytes) -> None:
        """Read a packet; what would take long of it waits for the next turn of this connection.

        A body whose length was said is one part, however large. Chunks and requests may be tiny, so they are counted.
        """
        self._parts = 0
        if len(data) <= SLICE_BYTES:
            self._read_slice(data)
            return
        at, size = 0, len(data)
        while at < size:
            if self._parts >= MAX_PARTS_PER_TURN:
                self._hold_rest(data[at:])
                return
            end = at + max(SLICE_BYTES, self._body_left)
            self._read_slice(data[at:end])
            at = end

    def _read_slice(self, data: bytes) -> None:
        """Feed the parser, counting what belongs to a head."""
        if self._is_over or self.transport.is_closing():
            return
        was_in_request, was_in_head = self._in_request, self._in_head
        self._packet, self._packet_bytes, self._heads_begun, self._packet_body_bytes = data, len(data), 0, 0
        self._feed(data)
        self._packet = b""
        if self._is_over or self.transport.is_closing():
            return
        if not self._in_request:
            is_nothing = not (was_in_request or self._heads_begun)  # an empty line, which begins no request
            if is_nothing and self._patience is None and self._is_idle():
                self._be_patient()
            return
        if self._in_head:
            is_all_head = self._heads_begun == 0 if was_in_head else not was_in_request and self._heads_begun == 1
            self._head_bytes += len(data) if is_all_head else self._size_of_head()
            if self._head_bytes > self.max_header_bytes:
                self._refuse(_too_large())
                return
            self._start_of_head += data
        elif was_in_request and not (was_in_head or self._heads_begun):
            if not self._packet_body_bytes:
                self._trailer_bytes += len(data)
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                self._refuse(BadRequest("Request trailer is too large"))
                return
            self._framing_bytes += len(data) - self._packet_body_bytes
            if self._is_chunked and self._framing_bytes > MAX_FRAMING_BYTES + 2 * self._body_bytes:
                self._refuse(BadRequest("Request body has more framing than data: send larger chunks"))
                return
        if self._patience is None:
            self._be_patient()

    def _feed(self, data: bytes) -> None:
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                except httptools.HttpParserUpgrade as offer:
                    data = data[offer.args[0] :]
                    if self._body_after_offer:
                        self._read_body_after_offer()
                else:
                    return
        except httptools.HttpParserError:
            self._refuse(self._wrong or BadRequest("Invalid HTTP request"))

    def _read_body_after_offer(self) -> None:
        """Let another parser read the body of a request that offers to speak another protocol.

        A server may pass such an offer by (RFC 9110, 7.8), but the parser takes what follows it for the other protocol.
        It has said exactly where the head ends; the other parser gets a head that says how long the body is.
        """
        known = _KnownHead(self)
        self.parser = httptools.HttpRequestParser(known)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % self._body_after_offer)
        self._body_after_offer = b""

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._in_request = self._in_head = True
        self._head_bytes = self._trailer_bytes = self._trailers = self._hosts = 0
        self._body_left = 0
        self._is_chunked = False
        self._heads_begun += 1
        self._parts += _PARTS_OF_REQUEST
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field, as uvicorn does, but not any number of them.

        A field behind the body is none of the head: a proxy that checked the head never saw it (RFC 9110, 6.5.1).
        """
        if not self._in_head:
            self._trailers += 1
            if self._trailers > MAX_HEADER_FIELDS:
                raise self._stop(BadRequest("Request trailer is too large"))
            return
        if len(self.headers) >= MAX_HEADER_FIELDS:
            raise self._stop(_too_large())
        name = name.lower()
        if name in _LOOKED_AT:
            self._look_at(name, value)
        self.headers.append((name, value))

    def _look_at(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"expect":
            self.expect_100_continue = self.expect_100_continue or value.lower() == b"100-continue"
        elif name == b"content-length":
            if len(value) > MAX_LENGTH_DIGITS:
                raise self._stop(BadRequest("Invalid HTTP request"))
            self._body_left = int(value)  # digits: the parser checked that
        elif value.lower() != b"chunked":  # the body would reach us as it was coded
            raise self._stop(BadRequest("Transfer-Encoding can only be chunked"))
        else:
            self._is_chunked = True
            self._body_bytes = self._framing_bytes = 0

    def on_headers_complete(self) -> None:
        """Start the request."""
        head = self._start_of_head + self._packet if self._start_of_head else self._packet
        may_be_other = b" RTSP/" in head or b" ICE/" in head
        if self.parser.get_http_version() not in _VERSIONS or (may_be_other and self._is_other_protocol()):
            raise self._stop(BadRequest("Only HTTP/1.0 and HTTP/1.1 are served here"))
        self._start_of_head = b""
        if self._head_bytes + self._packet_bytes > self.max_header_bytes < self._size_of_head():
            raise self._stop(_too_large())
        _, _, query = self.url.partition(b"?")
        if query:
            self._check_query(query)
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() != "1.0"):  # RFC 9112, 3.2
            raise self._stop(BadRequest("Host must be given once"))
        if len(self.pipeline) >= MAX_PIPELINED:
            raise self._stop(Overloaded("Too many requests before the answers to those before"))
        if self.parser.should_upgrade():
            self._body_after_offer = self._body_of_offer()
        self._stop_waiting()
        self._stays_open = self.parser.should_keep_alive()
        self._begin()
        self._in_head = False

    def _is_other_protocol(self) -> bool:
        """Whether the request is of RTSP or ICE, which the parser reads as well but does not tell apart."""
        head, line = self._start_of_head + self._packet, self.parser.get_method() + b" " + self.url
        return line + b" RTSP/" in head or line + b" ICE/" in head

    def _begin(self) -> None:
        """Hand the request whose head is complete to the application, or put it behind those that are not answered."""
        self._make_scope()
        cast("Any", self.scope)["state"][CONNECTION] = self
        super().on_headers_complete()
        # Uvicorn names the class of its cycles itself; a wrapper around one would be garbage that only the collector
        # finds, thousands a second.
        self.cycle.__class__ = _OneWriteCycle
        if self._is_chunked:
            cast("_OneWriteCycle", self.cycle).leave_body = self._leave_body

    def _make_scope(self) -> None:
        """Have uvicorn make what an application is told of the request, when there is a head and one is asked."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        size = len(body)
        self._parts += 1
        self._packet_body_bytes += size
        self._body_bytes += size
        self._body_left -= size
        self._trailer_bytes = 0
        self._take_body(body)

    def _take_body(self, body: bytes) -> None:
        """Hand a part of the body to the application."""
        super().on_body(body)

    def _leave_body(self) -> None:
        """Read no more: the answer is made without the rest of the body, and says that the connection closes."""
        self._is_over = True
        self._stop_waiting()
        self._drop_held()

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _check_query(self, query: bytes) -> None:
        if len(query) > MAX_QUERY_BYTES:
            raise self._stop(BadRequest(f"Query is too long: at most {MAX_QUERY_BYTES} bytes"))
        if query.count(b"&") >= MAX_QUERY_FIELDS:
            raise self._stop(BadRequest(f"Query has too many fields: at most {MAX_QUERY_FIELDS}"))

    def _body_of_offer(self) -> bytes:
        """Return the header field by which the body of a request that offers to upgrade is found; empty without one."""
        if self.parser.get_method() == b"CONNECT":
            raise self._stop(BadRequest("CONNECT is not served here"))
        found = [each for each in self.headers if each[0] in (b"content-length", b"transfer-encoding")]
        if not found:
            return b""
        name, value = found[0]
        is_plain = value.isdigit() if name == b"content-length" else value.lower() == b"chunked"
        if len(found) > 1 or not is_plain:
            raise self._stop(BadRequest("Invalid HTTP request"))
        return b"" if name == b"content-length" and not int(value) else name + b": " + value

    def _stop(self, error: AmsError) -> AmsError:
        """Return an error for a callback to raise, which stops the parser."""
        self._wrong = error
        return error

    def on_message_complete(self) -> None:
        """Be ready for the next head."""
        if self._body_after_offer:  # the parser gave up at the offer, and the body is still to come
            return
        self._stop_waiting()
        self._in_request = False
        closes = self._stays_open and not self.parser.should_keep_alive()
        self._take_message()
        if closes:
            # A trailer such as `Connection: close` ends the connection for the parser, which reads no byte after it.
            self._close_after_answer()

    def _take_message(self) -> None:
        """Hand the end of the body to the application."""
        super().on_message_complete()

    def _close_after_answer(self) -> None:
        """Close the connection when the last request is answered, and say so unless its answer has begun."""
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self._close()

    def eof_received(self) -> bool:  # type: ignore[override]  # as of asyncio
        """Answer what was asked, and close then: the client sends nothing more, and may still read.

        Returns whether the connection stays open for that. A request that waits for a message, or streams, ends: a
        client that is gone looks the same. With TLS the connection is closed at once: the event loop knows no half.
        """
        self._read_held()
        if self.scheme == "https" or self._in_request or self._is_over or self._is_idle():
            return False
        for request in (self._running, *(cycle for cycle, _ in self.pipeline)):
            cast("_OneWriteCycle", request).has_input_ended = True
            cast("_OneWriteCycle", request).message_event.set()
        self._close_after_answer()
        return True

    def pause_writing(self) -> None:
        """Give the client time to read a portion of its answer, or drop it: what it does not read takes memory."""
        super().pause_writing()
        self._reader = self.loop.call_later(self.request_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads."""
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def write_first(self, start: bytes, body: bytes) -> int:
        """Write the head of an answer and the first portion of its body; return how much of the body that was.

        Portions are what makes TLS tell that a client does not read: it takes any amount at once.
        """
        if self.scheme == "https":
            self.transport.write(start + body[:PORTION])
            return PORTION
        self.transport.write(start)
        self.transport.write(body if len(body) <= ONE_WRITE else body[:ONE_WRITE])
        return ONE_WRITE

    async def write_rest(self, body: bytes, request: Any) -> None:
        """Write what follows the first portion, each when the client has read the one before.

        Returns when little of the answer is left to be read, or when the client of the `request` has left.
        """
        portion = PORTION if self.scheme == "https" else ONE_WRITE
        await _write_portions(self.transport, self.flow, body, portion, request)

    def shutdown(self) -> None:
        """Close when the answer is out; a peer that does not say goodbye is not waited for."""
        self._read_held()
        super().shutdown()
        self.loop.call_later(GOODBYE_SECONDS, self._abort_if_closing)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self.rounds.begin_task()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Be ready for the next request, or close as `shutdown` does.

        In the place of what uvicorn does, which sets and cancels a timer for each request.
        """
        self.server_state.total_requests += 1
        self._note_project()
        if self._is_over and self._last_answer is None and not self.transport.is_closing():
            self._linger(self.request_seconds)
            return
        if self.transport.is_closing():
            self.loop.call_later(GOODBYE_SECONDS, self._abort_if_closing)
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait_for_a_request(self.timeout_keep_alive)
        if self._last_answer is not None and self._is_idle():
            self._write_last_answer(self._last_answer)

    def _note_project(self) -> None:
        """Take note of the project of a request over ASGI that was let in, as its answer tells."""
        running: Any = self._running
        if not isinstance(running, _OneWriteCycle) or running.status >= HTTPStatus.BAD_REQUEST:
            return
        found = _PROJECT.match(running.scope["raw_path"])
        if found and running.scope["method"] != "OPTIONS":  # that is answered to everybody
            self._project = found[1].decode("latin-1")

    def _wait_for_a_request(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _has_begun(self) -> bool:
        """Whether the request whose head is complete was handed over by `_begin`."""
        return True

    def _is_idle(self) -> bool:
        """Whether every request is answered that was taken."""
        return not self.pipeline and (self._running is None or self._running.response_complete)

    def _abort_if_closing(self) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing has come since the last answer; wait on when that is not long ago."""
        self.timeout_keep_alive_task = None
        if self._in_request or self._held or not self._is_idle():  # its answer begins the wait again
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wait_for_a_request(left)
        else:
            self._close()

    def _close(self) -> None:
        """Close when the client has read what is left, or drop it when it does not; nothing if that was done."""
        if self.transport.is_closing():
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.request_seconds, self.transport.abort)

    def _be_patient(self) -> None:
        self._patience = self.loop.call_later(self.request_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """End a connection whose request is not complete in time; one that is answered already is only closed."""
        self._patience = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused or self._held:  # by us, while a request before is answered, or others have their turn
            self._be_patient()
        elif self._in_request:
            self._refuse(BadRequest("Request took too long to arrive"))
        else:
            self._close()

    def _refuse(self, error: Exception) -> None:
        """Answer the request that arrives with an error and close, after the answers to those before it."""
        if self._last_answer is not None:
            return
        self._stop_waiting()
        self._last_answer, self._is_over = self.refusal(error), True
        is_known = self._in_request and not self._in_head and self._has_begun()
        if is_known and self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()  # it waited for those before; its body will not come
        elif is_known and self.cycle.response_started:
            self._close()
            return
        elif is_known:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._write_last_answer(self._last_answer)
            return
        if self._is_idle():
            self._write_last_answer(self._last_answer)

    def _write_last_answer(self, last: Refusal) -> None:
        self.transport.write(closing_answer(last))
        if self._in_request:
            self._linger(LINGER_SECONDS)
        else:
            self._close()

    def _linger(self, seconds: float) -> None:
        """Close; first let the client send what it still has.

        That is read and dropped: closed with it unread, TCP would take the answers back. TLS drops it by itself.
        """
        if not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(seconds, self._close)


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    """Return the host and port of one end of a connection."""
    found = transport.get_extra_info(name)
    return (found[0], found[1]) if found else None


def _too_large() -> BadRequest:
    return BadRequest("Request header is too large")


class _KnownHead:
    """Stands between a parser and a connection that has the first head already."""

    def __init__(self, connection: LimitedProtocol) -> None:
        self._connection = connection
        self._is_known = True
        self.on_body = connection.on_body

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._connection.on_headers_complete()
        self._is_known = False

    def on_message_complete(self) -> None:
        self._connection.on_message_complete()


class _OneWriteCycle(RequestResponseCycle):
    """Sends the head of an answer together with its body, in portions, each when the client has read the one before.

    Uvicorn writes head and body apart, which is two system calls and often two packets: a fifth of all work on a hot
    route. Whatever is not one whole answer on a connection that stays goes uvicorn's way. Portions are what makes TLS
    tell that a client does not read: it takes any amount at once.
    """

    _start: Any = None
    has_input_ended = False
    """Whether its client sends nothing more."""
    _is_body_given = False
    """Whether the application has all of the body."""
    leave_body: Callable[[], None] | None = None
    """Makes the connection read no more of the body, where what is left of it costs work: it comes in chunks."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR.value
    """Of its answer, once that has begun."""

    async def send(self, message: Any) -> None:
        """Take an ASGI event; the head waits for the body. Returns when little of the answer is left to be read."""
        if message["type"] == "http.response.start" and not self.response_started:
            self._start, self.status = message, message["status"]
            return
        start, self._start = self._start, None
        if start is not None and self._is_plain(message):
            body = message["body"]
            self._write(start, body[:PORTION])
            if len(body) > PORTION or self.flow.write_paused:
                await _write_portions(self.transport, self.flow, body, PORTION, self)
            self._complete()
            return
        if start is not None:
            await super().send(start)
        await self._send_body(message)
        if self.response_complete and self.flow.write_paused:
            await self.flow.drain()

    async def receive(self) -> Any:
        """Return an ASGI event, as uvicorn does; after the body, that the client left if it sends nothing more."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not (self.disconnected or self.response_complete or self.has_input_ended):
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.has_input_ended and self._is_body_given and not self.disconnected:
            self.disconnected = True
            self.transport.close()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        self._is_body_given = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _send_body(self, message: Any) -> None:
        body = message.get("body", b"")
        last = max(len(body) - 1, 0) // PORTION * PORTION
        for at in range(0, last, PORTION):
            portion: Any = {**message, "body": body[at : at + PORTION], "more_body": True}
            await super().send(portion)
        if last:
            message = {**message, "body": body[last:]}
        await super().send(message)

    def _is_plain(self, message: Any) -> bool:
        goes_on = self.keep_alive and not self.disconnected and not self.flow.write_paused
        return goes_on and not message.get("more_body", False) and self.scope["method"] != "HEAD"

    def _write(self, start: Any, portion: bytes) -> None:
        fields = (*self.default_headers, *start["headers"])
        if self.leave_body is not None:
            if self.more_body:
                fields += ((b"connection", b"close"),)
                self.leave_body()
            self.leave_body = None  # it knows the connection, which knows its last request
        head = head_of_answer(start["status"], fields)
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(head + portion)

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:  # a stop began while the client read
            self.transport.close()
        self.on_response()


def head_of_answer(status: int, fields: Iterable[Header]) -> bytes:
    """Return the head of an answer, the empty line behind it included."""
    parts = [STATUS_LINE[status]]
    for name, value in fields:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def closing_answer(last: Refusal) -> bytes:
    """Return an answer after which the connection is closed."""
    fields = [JSON, (b"content-length", b"%d" % len(last.body)), (b"connection", b"close"), *last.headers]
    return head_of_answer(last.code, fields) + last.body


async def _write_portions(
    transport: asyncio.Transport, flow: FlowControl, body: bytes, size: int, request: Any
) -> None:
    """Write what follows the first portion; return when little is left to be read, or when the client has left."""
    for at in range(size, len(body), size):
        if flow.write_paused:
            await flow.drain()
        if request.disconnected:
            return
        transport.write(body[at : at + size])
    if flow.write_paused:
        await flow.drain()


def limited(
    max_header_bytes: int,
    request_seconds: float,
    *,
    base: type[LimitedProtocol] = LimitedProtocol,
    refusal: Callable[[Exception], Refusal] = refusal,
) -> type[LimitedProtocol]:
    """Return the protocol class with these limits, for uvicorn's `http`; `refusal` words what it answers itself."""
    limits = {
        "max_header_bytes": max_header_bytes,
        "request_seconds": request_seconds,
        "refusal": staticmethod(refusal),
        "rounds": Rounds(),
    }
    return type(base.__name__, (base,), limits)
