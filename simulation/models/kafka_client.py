"""Connections of aiokafka to modelled brokers: requests and responses as they are, encoded and decoded."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from unittest import mock

from aiokafka.conn import AIOKafkaConnection
from aiokafka.conn import create_conn as real_create_conn
from aiokafka.errors import KafkaConnectionError

from ams.storage.log.kafka import connection as client
from simulation.models.kafka import VERSIONS, Cluster, encode_response

WAIT_SECONDS = 0.002  # interval of checks for changes


class Broker(Protocol):
    """An address of a broker."""

    async def connect(self, host: str, port: int, seconds: float) -> Any:
        """Return a connection with a timeout in seconds for each answer. Raises `OSError`."""


class DirectBroker:
    """A broker without a network in between, in real time."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number

    async def connect(self, host: str, port: int, seconds: float) -> "DirectConnection":
        if not self.cluster.brokers[self.number]:
            raise ConnectionRefusedError
        return DirectConnection(self, host, port, seconds)


class DirectConnection:
    """A connection without a network. The broker answers one request after another."""

    def __init__(self, broker: DirectBroker, host: str, port: int, seconds: float) -> None:
        self.host, self.port = host, port
        self._broker, self._seconds = broker, seconds
        self._is_open = True
        self._turn = asyncio.Lock()

    def connected(self) -> bool:
        """Return whether the connection is open."""
        return self._is_open and self._broker.cluster.brokers[self._broker.number]

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False

    async def send(self, request: Any) -> Any:
        """Return the response. Raises `KafkaConnectionError`, `TimeoutError`."""
        made = request.prepare(VERSIONS)
        async with asyncio.timeout(self._seconds), self._turn:
            answering = self._broker.cluster.answer(self._broker.number, made)
            while True:
                try:
                    until = next(answering)
                except StopIteration as done:
                    return encode_response(made, done.value)
                while time.time() < until:
                    await asyncio.sleep(WAIT_SECONDS)
                    if not self.connected():
                        raise KafkaConnectionError(f"Connection at {self.host}:{self.port} closed")
                    break


@contextlib.contextmanager
def install(brokers: Mapping[tuple[str, int], Broker]) -> Iterator[None]:
    """Redirect AMS's connections to these brokers, by host and port; others stay as before."""

    async def create_conn(
        host: str, port: int, *, request_timeout_ms: int = 40_000, **given: Any
    ) -> AIOKafkaConnection:
        broker = brokers.get((host, port))
        if broker is None:
            return await real_create_conn(host, port, request_timeout_ms=request_timeout_ms, **given)
        connection: AIOKafkaConnection = await broker.connect(host, port, request_timeout_ms / 1000)
        return connection

    with mock.patch.object(client, "create_conn", create_conn):
        yield
