"""The service's end of a connection for tests: it keeps all output, without a network."""

import asyncio
from typing import Any

from ams.http.errors import refusal
from ams.web.asgi_exchange import Application, AsgiExchange
from ams.web.connection import HttpConnection, Port
from ams.web.fair_scheduler import FairScheduler


class Line(asyncio.Transport):
    """A client that reads everything at once, unless it `is_deaf`."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.is_paused = self.is_closed = self.is_aborted = False
        self.is_deaf = False  # whether the client reads nothing from now on: what is written is kept in `unread`
        self.unread = 0
        self.protocol: Any = None  # notified when too much is unread, and when the client reads again

    def write(self, data: Any) -> None:
        if self.is_closed:
            return
        self.written += bytes(data)
        if self.is_deaf:
            was_over, self.unread = self.unread > self.high, self.unread + len(data)
            if self.protocol is not None and self.unread > self.high and not was_over:
                self.protocol.pause_writing()

    def read_output(self) -> None:
        was_over, self.unread, self.is_deaf = self.unread > self.high, 0, False
        if self.protocol is not None and was_over:
            self.protocol.resume_writing()

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    high = 2**16

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high if high is not None else 2**16

    def get_write_buffer_size(self) -> int:
        return self.unread


def awaits_body(connection: HttpConnection) -> bool:
    """Return whether the current request has not arrived completely."""
    return connection._arriving is not None and connection._arriving is connection._current


class LineServer:
    """A port of an ASGI application whose connections are all lines."""

    def __init__(
        self, application: Application, scheduler: FairScheduler | None = None, *, request_seconds: float = 30.0,
        connection: type[HttpConnection] = HttpConnection,
    ) -> None:  # fmt: skip
        self.port = Port(
            lambda connection, request: AsgiExchange(connection, application, request), refusal,
            max_header_bytes=4096, head_seconds=request_seconds, body_seconds=request_seconds,
            scheduler=scheduler or FairScheduler(),
        )  # fmt: skip
        self._connection = connection

    def connect(self) -> tuple[Line, Any]:
        """Return both ends of a new connection."""
        line = Line()
        connection = self._connection(self.port, lambda: None)
        connection.connection_made(line)
        return line, connection
