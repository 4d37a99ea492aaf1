"""The connection: uvicorn's HTTP parser with limits on heads, connections and slow senders, and errors in our envelope.

Without them a client could send headers for ever, or open connections and say nothing, and a request that is no HTTP
would be answered in plain text, which the official library cannot read (clients.md A2).
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ams.errors import BadRequest, Overloaded
from ams.http.errors import Refusal, refusal

GOODBYE_SECONDS = 0.5
"""How long a peer has to close its side at a stop."""
# An offer to speak another protocol is hidden, as a server may pass it by (RFC 9110, 7.8): the parser would stop at it.
_MAY_OFFER = re.compile(rb"\n[uU][pP]")
"""Almost no head has it, and looking for it copies none."""
_UPGRADE = re.compile(rb"(?<=\n)upgrade[ \t]*:", re.IGNORECASE)
_UPGRADE_BEGUN = re.compile(rb"(?<=\n)u(?:p(?:g(?:r(?:a(?:d(?:e[ \t]*)?)?)?)?)?)?\Z", re.IGNORECASE)
"""A line at the end of a packet that may become an offer."""


class LimitedProtocol(HttpToolsProtocol):
    """One client connection. The limits are set on a subclass by `limited`."""

    max_header_bytes: int
    max_connections: int
    request_seconds: float
    refusal: Callable[[Exception], Refusal] = staticmethod(refusal)
    """What is answered before there is a request that an application could answer."""

    _head_bytes = 0
    """Received of a head whose request is not complete yet."""
    _head_complete = False
    _held = b""
    """The end of a packet that may be the beginning of an offer to upgrade."""
    _line_begins = False
    """Whether the packet before ended with a line of a head."""
    _patience: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Take the connection, or refuse it when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._end(self.refusal(Overloaded("Too many connections")))
            return
        self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, counting what belongs to a head."""
        if self.transport.is_closing():
            return
        if not self._head_complete:
            self._head_bytes += len(data)
            data = self._without_offers(data)
        super().data_received(data)
        if self.parser is None or not self._head_bytes:
            return
        if not self._head_complete and self._head_bytes > self.max_header_bytes:
            self._end(self.refusal(BadRequest("Request header is too large")))
        elif self._patience is None:
            self._be_patient()

    def _without_offers(self, data: bytes) -> bytes:
        """Hide an offer in the head that begins or goes on with `data`, also one that comes in two packets."""
        end_of_head = data.find(b"\r\n\r\n")
        is_whole = end_of_head >= 0 and not self._held and not self._line_begins
        if is_whole and _MAY_OFFER.search(data, 0, end_of_head) is None:
            return data
        lead = b"\n" if self._line_begins else b""
        data, self._held = self._held + data, b""
        head, end, body = data.partition(b"\r\n\r\n")
        if not end:
            begun = _UPGRADE_BEGUN.search(lead + head)
            if begun is not None:
                head, self._held = head[: begun.start() - len(lead)], head[begun.start() - len(lead) :]
            self._line_begins = head.endswith(b"\n") or (not head and bool(lead))
        if b"upgrade" in head.lower():
            head = _UPGRADE.sub(b"x-upgrade:", lead + head).removeprefix(lead)
        return head + end + body

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._head_complete = True
        self._line_begins = False
        self._stop_waiting()
        if self.parser.should_upgrade():
            # An offer that came in an odd way. The parser takes what follows for another protocol, so that a body would
            # be lost, or be read as a request.
            self._refuse_upgrade()
            return
        super().on_headers_complete()
        if self.cycle is not None:
            # Uvicorn names the class of its cycles itself; a wrapper around one would be garbage that only the
            # collector finds, thousands a second.
            self.cycle.__class__ = _OneWriteCycle

    def _refuse_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer now would be taken for that of the request before
        else:
            self._end(self.refusal(BadRequest("Another protocol is not spoken here: leave out Upgrade")))

    def on_message_complete(self) -> None:
        """Be ready for the next head."""
        self._stop_waiting()
        self._head_complete = False
        self._head_bytes = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Watch a client that does not read its answer."""
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads."""
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def shutdown(self) -> None:
        """Close when the answer is out; a peer that does not say goodbye is not waited for."""
        super().shutdown()
        self.loop.call_later(GOODBYE_SECONDS, self._abort_if_closing)

    def on_response_complete(self) -> None:
        """Be ready for the next request, or close as `shutdown` does."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(GOODBYE_SECONDS, self._abort_if_closing)

    def _abort_if_closing(self) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.transport.abort()

    def _watch_reader(self, unread: int) -> None:
        self._reader = self.loop.call_later(self.request_seconds, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        """Drop a client that read nothing of its answer for a while: what it does not read takes memory."""
        unread = self.transport.get_write_buffer_size()
        if unread >= before:
            self.transport.abort()
        else:
            self._watch_reader(unread)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._end(self.refusal(BadRequest("Invalid HTTP request")))

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
        is_answered = self._head_complete and self.cycle is not None and self.cycle.response_started
        if self._head_bytes and not is_answered:
            self._end(self.refusal(BadRequest("Request took too long to arrive")))
        else:
            self.transport.close()

    def _end(self, answer: Refusal) -> None:
        self._stop_waiting()
        head = [
            STATUS_LINE[answer.code],
            b"content-type: application/json; charset=utf-8\r\n",
            b"content-length: %d\r\n" % len(answer.body),
            b"connection: close\r\n",
        ]
        if answer.retry_after is not None:
            head.append(b"retry-after: %d\r\n" % answer.retry_after)
        self.transport.write(b"".join(head) + b"\r\n" + answer.body)
        self.transport.close()


class _OneWriteCycle(RequestResponseCycle):
    """Sends the head of an answer together with its body.

    Uvicorn writes them apart, which is two system calls and often two packets: a fifth of all work on a hot route.
    Whatever is not one whole answer on a connection that stays goes uvicorn's way.
    """

    _start: Any = None

    async def send(self, message: Any) -> None:
        """Take an ASGI event; the head waits for the body."""
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None and self._is_plain(message):
            self._write(start, message["body"])
            return
        if start is not None:
            await super().send(start)
        await super().send(message)

    def _is_plain(self, message: Any) -> bool:
        goes_on = self.keep_alive and not self.disconnected and not self.flow.write_paused
        return goes_on and not message.get("more_body", False) and self.scope["method"] != "HEAD"

    def _write(self, start: Any, body: bytes) -> None:
        parts = [STATUS_LINE[start["status"]]]
        for name, value in (*self.default_headers, *start["headers"]):
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n", body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        self.message_event.set()
        self.on_response()


def limited(
    max_header_bytes: int,
    max_connections: int,
    request_seconds: float,
    *,
    base: type[LimitedProtocol] = LimitedProtocol,
    refusal: Callable[[Exception], Refusal] = refusal,
) -> type[LimitedProtocol]:
    """Return the protocol class with these limits, for uvicorn's `http`; `refusal` words what it answers itself."""
    limits = {
        "max_header_bytes": max_header_bytes,
        "max_connections": max_connections,
        "request_seconds": request_seconds,
        "refusal": staticmethod(refusal),
    }
    return type(base.__name__, (base,), limits)
