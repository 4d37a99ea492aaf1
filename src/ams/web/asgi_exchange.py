"""ASGI exchange: answers one request by an ASGI application, in a task of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

import httptools
import structlog

from ams.core.errors import BadRequest
from ams.web.answers import CLOSE_HEADER, Header, answer_head
from ams.web.connection import PORTION_BYTES, HttpConnection
from ams.web.request_reader import RequestHead

CONNECTION = "ams.connection"  # member of the state of an ASGI scope: the connection of the request
MAX_UNREAD_BODY_BYTES = 64 * 1024  # of a body the application has not consumed; then receiving pauses

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

logger = structlog.get_logger("ams.web")


class AsgiExchange:
    """One request, answered over ASGI.

    The head of an answer waits for the first part of its body, so both are one write. A body is written in portions,
    the next one when the client has read the last.
    """

    def __init__(
        self, connection: HttpConnection, app: Application, request: RequestHead,
        state: Mapping[str, Any] | None = None, extensions: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """`state` and `extensions` extend the ASGI scope. Raises `BadRequest` if the target has no path."""
        self.keep_alive = request.keep_alive
        self.has_answer_begun = self.is_answered = False
        self.scope = _scope(connection, request)
        self.scope["state"] |= state or {}
        self.scope.update(extensions or {})
        self._connection, self._app, self._request = connection, app, request
        self._expects_continue = request.expects_continue
        self._task: asyncio.Task[None] | None = None
        self._is_left = False  # True: the client reads no more
        self._has_input_ended = False  # True: the client sends no more
        self._changed = asyncio.Event()
        self._body = bytearray()
        self._is_body_complete = self._is_body_taken = False
        self._start: Event | None = None  # head of the answer, until it has a body
        self._status = 0
        self._is_chunked = False
        self._body_left: int | None = None  # bytes of the answer's body left to send, if it announced its length

    # Called by the connection

    def begin(self) -> None:
        """Start the application's task."""
        port = self._connection.port
        port.scheduler.count_task()
        port.exchanges.add(self)
        work: Any = self._app(self.scope, self.receive, self.send)
        self._task = self._connection.loop.create_task(work)
        self._task.add_done_callback(self._end_task)

    def take_body(self, body: bytes) -> None:
        """Store a part of the body for the application; dropped if the request is answered."""
        if self.is_answered:
            return
        self._body += body
        if len(self._body) > MAX_UNREAD_BODY_BYTES:
            self._connection.pause_reading()
        self._changed.set()

    def end_body(self) -> None:
        self._is_body_complete = True
        self._changed.set()

    def end_input(self) -> None:
        self._has_input_ended = True
        self._changed.set()

    def leave(self) -> None:
        self._is_left = True
        self._expects_continue = False
        self._changed.set()

    def prepare_stop(self) -> None:
        self.keep_alive = False

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Called by the application

    async def receive(self) -> Event:
        """Return an ASGI event. After the body: a disconnect if the client sends no more."""
        connection = self._connection
        if self._expects_continue and not connection.transport.is_closing():
            self._expects_continue = False
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not (self._is_left or self.is_answered or self._has_input_ended):
            connection.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self._has_input_ended and self._is_body_taken and not self._is_left:
            self._is_left = True
            connection.close()
        if self._is_left or self.is_answered:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._is_body_taken = self._is_body_complete
        return {"type": "http.request", "body": body, "more_body": not self._is_body_complete}

    async def send(self, event: Event) -> None:
        """Handle an ASGI event. Returns when little of the answer is unread. Raises `RuntimeError` for a bad event."""
        if event["type"] == "http.response.start":
            if self._start is not None or self.has_answer_begun:
                raise RuntimeError("an answer has one head")
            self._start, self._status = event, event["status"]
            return
        if self.is_answered or not (self._start or self.has_answer_begun):
            raise RuntimeError("a body belongs between the head of an answer and its end")
        body, is_last = event.get("body", b""), not event.get("more_body", False)
        if not await self._drain():
            return
        head = b"" if self.has_answer_begun else self._head(len(body) if is_last else None)
        if self._request.method == b"HEAD":
            body, self._body_left, self._is_chunked = b"", None, False
        if head or body:
            self._write(head, body[:PORTION_BYTES])
        for start in range(PORTION_BYTES, len(body), PORTION_BYTES):
            if not await self._drain():
                return
            self._write(b"", body[start : start + PORTION_BYTES])
        if is_last:
            await self._end_answer()

    def _head(self, size: int | None) -> bytes:
        """Return the head of an answer whose body has this size; None: it comes in several parts."""
        assert self._start is not None
        fields = [*self._connection.port.default_headers, *self._start["headers"]]
        self._start = None
        fields += self._frame(fields, size)
        head = answer_head(self._status, fields)
        lines = len(fields) + 2
        if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
            raise RuntimeError("a header field has a byte that may not be in one")
        self.has_answer_begun = True
        self._expects_continue = False
        return head

    def _frame(self, fields: list[Header], size: int | None) -> list[Header]:
        """Return the fields that mark the end of the answer and of the connection."""
        added: list[Header] = []
        names = dict(fields)
        if self._status in (204, 304):  # they have no body
            self._body_left = 0
        elif b"content-length" in names:
            self._body_left = int(names[b"content-length"])
        elif size is not None:
            self._body_left = size
            added.append((b"content-length", b"%d" % size))
        elif self._request.version == "1.1":
            self._is_chunked = True
            added.append((b"transfer-encoding", b"chunked"))
        else:
            self.keep_alive = False  # the end of the connection marks the end of the answer
        leaves_body = size is not None and self._request.is_chunked and not self._is_body_complete
        if leaves_body:
            self._connection.leave_body()  # reading the rest would cost work
        if b"close" in names.get(b"connection", b"").lower():
            self.keep_alive = False
        elif leaves_body or not self.keep_alive:
            added.append(CLOSE_HEADER)
        return added

    def _write(self, head: bytes, portion: bytes) -> None:
        if self._body_left is not None:
            self._body_left -= len(portion)
            if self._body_left < 0:
                raise RuntimeError("an answer is longer than its content-length")
        if self._is_chunked and portion:  # an empty chunk would end the body
            portion = b"%x\r\n%b\r\n" % (len(portion), portion)
        self._connection.transport.write(head + portion)

    async def _drain(self) -> bool:
        """Wait until the client has read most of the output. Returns whether it still reads."""
        await self._connection.drain()
        return not self._is_left

    async def _end_answer(self) -> None:
        connection = self._connection
        if self._is_chunked:
            connection.transport.write(b"0\r\n\r\n")
        elif self._body_left:
            raise RuntimeError("an answer is shorter than its content-length")
        if not await self._drain():
            return
        self.is_answered = True
        self._changed.set()
        if self._status < 400 and self._request.method != b"OPTIONS":  # answered to everybody
            connection.note_project_of(self.scope["raw_path"])
        connection.end_answer(self)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        """Abort the request if its task ended without an answer: by a defect, or cancelled before its first step."""
        connection = self._connection
        defect = None if task.cancelled() else task.exception()
        if defect is not None:
            logger.error("request.failed", error=type(defect).__name__, exc_info=defect)
        if not (self.is_answered or self._is_left):
            if self.has_answer_begun or task.cancelled():
                connection.close()
            else:
                error = defect if isinstance(defect, Exception) else RuntimeError("no answer")
                connection.answer_defect(error, is_to_head=self._request.method == b"HEAD")
            connection.end_answer(self)
        connection.port.end_exchange(self)


def _scope(connection: HttpConnection, request: RequestHead) -> dict[str, Any]:
    try:
        url = httptools.parse_url(request.target)
        path = url.path.decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError, AttributeError):  # not a URL, or without a path
        raise BadRequest("Invalid HTTP request") from None
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.version,
        "server": connection.server,
        "client": connection.client,
        "scheme": "https" if connection.is_secure else "http",
        "root_path": "",
        "method": request.method.decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": request.headers,
        "state": {CONNECTION: connection},
    }
