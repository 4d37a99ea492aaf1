"""A receiver's connection: minimal HTTP/1.1 with keep-alive, fast enough for thousands of requests a second."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import cast

from tests.support.receiving.requests import Memory, Received

Behaviour = Callable[["Conversation", Received], Awaitable[None] | None]
"""Answers a request at once, or returns an awaitable that answers later."""
_END = b"\r\n\r\n"
_HANDSHAKE = b"\x16\x03"  # how TLS begins


class Conversation(asyncio.Protocol):
    """One connection; it calls `behaviour` for one request after the other."""

    def __init__(self, memory: Memory, behaviour: Behaviour) -> None:
        self.memory = memory
        self.number = 0
        self.port = 0
        self._behaviour = behaviour
        self._buffer = bytearray()
        self._head: tuple[str, str, dict[str, str], int] | None = None
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._writable = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.memory.connections += 1
        self.number = self.memory.connections
        self.port = transport.get_extra_info("sockname")[1]
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if data.startswith(_HANDSHAKE):
            self.answer(400, b"this is no https")
            self.close()
            return
        self._buffer += data
        self._go_on()

    @property
    def is_over(self) -> bool:
        return self._transport.is_closing()

    def send(self, raw: bytes) -> None:
        self._transport.write(raw)

    async def drain(self) -> None:
        """Wait until the other side has taken most of what was sent."""
        await self._writable.wait()

    def close(self) -> None:
        self._transport.close()

    def answer(self, status: int, body: bytes = b"", *headers: str, reason: str = "Status") -> None:
        length = () if status == 204 else (f"Content-Length: {len(body)}",)
        lines = [f"HTTP/1.1 {status} {reason}", *length, *headers, "", ""]
        self.send("\r\n".join(lines).encode("latin-1") + body)

    def _go_on(self) -> None:
        while self._answering is None and (request := self._next()) is not None:
            doing = self._behaviour(self, request)
            if doing is not None:
                self._answering = asyncio.ensure_future(self._finish_answer(doing))

    async def _finish_answer(self, doing: Awaitable[None]) -> None:
        await doing
        self._answering = None
        if not self.is_over:
            self._go_on()

    def _next(self) -> Received | None:
        if self._head is None:
            end = self._buffer.find(_END)
            if end < 0:
                return None
            self._head = _head(self._buffer[:end].decode("latin-1"))
            del self._buffer[: end + len(_END)]
        method, target, headers, length = self._head
        if len(self._buffer) < length:
            return None
        body = self._buffer[:length].decode(errors="replace")
        del self._buffer[:length]
        self._head = None
        return Received(method, target, headers, body, time.time(), self.number, self.port)


def _head(text: str) -> tuple[str, str, dict[str, str], int]:
    first, *lines = text.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return method, target, headers, int(headers.get("content-length", 0))
