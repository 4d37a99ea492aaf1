"""Asking over HTTP/1.1: connections to services that are kept, for one request at a time each.

A login costs one request to a service, and may cost little more than its TLS handshake. A general client takes four
times the processor time of this one, which knows only what is needed: whole requests out, bounded answers in.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Sequence
from typing import NamedTuple, cast

import httptools

from ams.outgoing.lookups import Lookups
from ams.push.failing import Unreachable, of_socket
from ams.push.streams import connected

MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer with its head. An AMS user comes with the topics and subscriptions of all projects of theirs."""
IDLE_SECONDS = 30.0
"""After which a connection nobody used is closed."""
AT_ONCE = 64
"""Requests to one place; more wait, within their own time."""

Place = tuple[str, int]
"""Host and port."""


class Answer(NamedTuple):
    """What a service said."""

    status: int
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection; whoever asks has it alone until the answer is whole."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether it ended, or is in no state to be asked again."""
        self.was_heard = False
        """Whether anything came since the request went out."""
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._answer: asyncio.Future[Answer] | None = None
        self._body = bytearray()
        self._received = 0
        self._has_length = False
        self._is_begun = False
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes) -> Answer:
        """Send a whole request and return the answer; raise `Unreachable`. Times are the caller's."""
        self._parser = httptools.HttpResponseParser(self)
        self._received = 0
        self.was_heard = self._is_begun = False
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.is_over = True
            raise
        finally:
            self._answer = None

    def rest(self) -> None:
        """Keep it for a while for whoever asks next."""
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.close)

    def wake(self) -> None:
        """It is used again."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def close(self) -> None:
        """End it in order."""
        self.wake()
        self.is_over = True
        self._transport.close()

    def abort(self) -> None:
        """End it at once: what is left of an answer is of no use."""
        self.wake()
        self.is_over = True
        self._transport.abort()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of it

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked for this
            self.abort()
            return
        self.was_heard = True
        self._received += len(data)
        if self._received > MAX_ANSWER:
            self._fail("The answer is too long")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("The service wants to speak another protocol")
        except httptools.HttpParserError:
            self._fail("The answer is not HTTP/1.1")

    def eof_received(self) -> None:
        self.is_over = True
        if self._is_begun and not self._has_length:  # an answer may end with its connection
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.wake()
        self.eof_received()
        self._fail(of_socket(exc) if isinstance(exc, OSError) else "The connection was closed")

    # What the parser tells.

    def on_message_begin(self) -> None:
        self._body.clear()
        self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._is_begun = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._is_begun:  # else it was one of status 1xx, and the answer is still to come
            self._finish()

    def _finish(self) -> None:
        if self._answer is None or self._answer.done():
            return
        self.is_over = self.is_over or not self._parser.should_keep_alive()
        self._answer.set_result(Answer(self._parser.get_status_code(), bytes(self._body)))

    def _fail(self, reason: str) -> None:
        self.is_over = True
        self._transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unreachable(reason))


class Connections:
    """Connections to all services, made when they are needed and kept for a while."""

    def __init__(self, trust: ssl.SSLContext, lookups: Lookups | None = None) -> None:
        self._trust = trust
        self._lookups = lookups or Lookups()
        self._idle: dict[Place, list[_Connection]] = {}
        self._places: dict[Place, asyncio.Semaphore] = {}

    async def ask(self, place: Place, request: bytes, *, seconds: float) -> Answer:
        """Send a request to a place and return the answer; raise `Unreachable`, or `TimeoutError` after `seconds`.

        A connection that was kept may have been closed by the other side just now. Then the request goes out once more
        on a fresh one, if nothing of an answer came: so requests must be such as may be repeated.
        """
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout_at(until), self._places.setdefault(place, asyncio.Semaphore(AT_ONCE)):
            kept = self._take(place)
            if kept is not None:
                try:
                    return await self._on(kept, place, request)
                except Unreachable:
                    if kept.was_heard:
                        raise
            return await self._on(await self._connect(place, until), place, request)

    async def close(self) -> None:
        """End all that are idle."""
        for idle in self._idle.values():
            for each in idle:
                each.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop lets go of them in its next round

    async def _on(self, connection: _Connection, place: Place, request: bytes) -> Answer:
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.abort()
            raise
        if connection.is_over:
            connection.close()
        else:
            connection.rest()
            self._idle.setdefault(place, []).append(connection)
        return answer

    def _take(self, place: Place) -> _Connection | None:
        """Return the connection used last that still stands."""
        idle = self._idle.get(place, [])
        while idle:
            connection = idle.pop()
            connection.wake()
            if not connection.is_over:
                return connection
        return None

    async def _connect(self, place: Place, until: float) -> _Connection:
        host, port = place
        loop = asyncio.get_running_loop()
        *others, last = await self._addresses(place)
        for address in others:
            try:
                async with asyncio.timeout((until - loop.time()) / 2):
                    return await self._connected(address, host, port)
            except (TimeoutError, Unreachable):
                continue
        return await self._connected(last, host, port)

    async def _connected(self, address: str, host: str, port: int) -> _Connection:
        plain = await connected(ipaddress.ip_address(address), port)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, sock=plain, ssl=self._trust, server_hostname=host
            )
        except OSError as error:
            raise Unreachable(of_socket(error)) from error
        except ValueError as error:
            raise Unreachable("It has no host name that TLS could check") from error
        return connection

    async def _addresses(self, place: Place) -> Sequence[str]:
        try:
            return await self._lookups(*place)
        except (OSError, UnicodeError) as error:  # the latter for what can be no name
            raise Unreachable("Its host has no address") from error
