"""Brief answers: connections that give up on whoever says more than a little.

What is received costs time to be looked through, also what says nothing, as heads of status 1xx do (contract 13.4).
"""

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

MAX_BYTES = 16 * 1024
"""Of a whole answer, head and body, after TLS."""
_PIECE = 2048
"""What is received at once; others go on between two pieces."""


class BriefNetwork(httpcore.AsyncNetworkBackend):
    """A network whose connections end, with an `httpcore.ReadError`, when more than `MAX_BYTES` came."""

    def __init__(self, network: httpcore.AsyncNetworkBackend) -> None:
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect as the network does."""
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return _BriefStream(stream)


class _BriefStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._received = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._received > MAX_BYTES:
            raise httpcore.ReadError("The answer is too long")
        part = await self._stream.read(min(max_bytes, _PIECE), timeout)
        self._received += len(part)
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _BriefStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
