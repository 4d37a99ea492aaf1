"""Links to brokers: who they are, and requests to one of them.

This stands on aiokafka's connections and its request objects, not on its client class: that class opens one
connection at a time, so a broker that is stopped holds up the way to all the others, and it keeps the metadata of
every topic it was asked about before.

A broker answers the requests of a connection one after another, so what may wait long at a broker has a lane of its
own: a connection of its own to each broker. All trouble with a connection is `KafkaConnectionError`.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, NewType

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, NoError, for_code

from ams.storage.log.kafka.options import KafkaOptions, access, addresses

NodeId = NewType("NodeId", int)
"""A broker; below 0 for an address we began with, whose number is not known."""
Lane = NewType("Lane", str)
"""Requests of one lane wait for each other at a broker, those of different lanes do not."""
ASK = Lane("ask")
"""The lane of what is answered at once."""
ADMIN = Lane("admin")
"""The lane of what the controller is asked through a broker: making a topic takes it a while."""
META = Lane("meta")
"""The lane of questions about the brokers and topics themselves."""
Address = tuple[str, int]
IDLE_MS = 300_000
"""Unused connections are closed sooner than the brokers do it (10 minutes), so that none is closed under a request."""
CONNECT = 1.5
"""Seconds a connection may take to be made: less than an answer, as a stopped broker's system takes connections."""
AFTER_FAILURE = 0.1
"""Seconds in which a broker that could not be reached is not tried again."""


logging.getLogger("aiokafka").setLevel(logging.WARNING)  # below that it writes requests out, payloads and all


class Links:
    """Connections to the brokers, opened when needed and again after they broke."""

    def __init__(self, options: KafkaOptions, client_id: str) -> None:
        self._timeout = options.request_timeout
        self._access = access(options) | {
            "client_id": client_id,
            "request_timeout_ms": int(options.request_timeout * 1000),
            "max_idle_ms": IDLE_MS,
        }
        self._first: dict[NodeId, Address] = {
            NodeId(-1 - index): address for index, address in enumerate(addresses(options))
        }
        self._brokers: dict[NodeId, Address] = {}
        self._open: dict[tuple[NodeId, Lane], AIOKafkaConnection] = {}
        self._opening: dict[tuple[NodeId, Lane], asyncio.Task[AIOKafkaConnection]] = {}
        self._failed: dict[tuple[NodeId, Lane], tuple[float, str]] = {}
        self._slow: dict[NodeId, float] = {}
        self._unanswered: dict[tuple[NodeId, Lane], float] = {}
        """Since when a connection has answered nothing that was asked, whether or not who asked still waits."""

    def learn(self, brokers: Iterable[tuple[int, str, int]]) -> None:
        """Note the brokers there are: number, host, port."""
        self._brokers = {NodeId(number): (host, port) for number, host, port in brokers}

    def nodes(self) -> list[NodeId]:
        """Return everyone who can be asked, best first: known brokers, those that were slow of late last."""
        known = sorted(self._brokers, key=lambda node: self._slow.get(node, 0.0))
        learned = set(self._brokers.values())
        return known + [node for node, address in self._first.items() if address not in learned]

    def slow(self, node: NodeId) -> None:
        """Note that a broker keeps callers waiting, so that others are asked before it."""
        self._slow[node] = asyncio.get_running_loop().time()

    async def send(self, node: NodeId, request: Any, lane: Lane = ASK) -> Any:
        """Send a request and return the response, without a look at the error codes in it.

        Raises `KafkaConnectionError` when the broker cannot be reached or does not answer in time; whether it did
        what it was asked to is not known then.
        """
        link = await self._link(node, lane)
        try:
            self._check_answers(node, lane)
            answer = await link.send(request)
        except (OSError, TimeoutError) as error:
            self.slow(node)
            self._drop(node, lane, link)
            raise KafkaConnectionError(f"{_where(link)} does not answer") from error
        except KafkaConnectionError:
            self._drop(node, lane, link)
            raise
        self._slow.pop(node, None)
        self._unanswered.pop((node, lane), None)
        return answer

    def _check_answers(self, node: NodeId, lane: Lane) -> None:
        now = asyncio.get_running_loop().time()
        if now > self._unanswered.setdefault((node, lane), now) + self._timeout:
            raise TimeoutError

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        closing = [future for link in self._open.values() if (future := link.close()) is not None]
        self._open.clear()
        if closing:  # one with bytes for a broker that is stopped would never end
            await asyncio.wait(closing, timeout=1)

    async def _link(self, node: NodeId, lane: Lane) -> AIOKafkaConnection:
        link = self._open.get((node, lane))
        if link is not None and link.connected():
            return link
        self._refuse_too_soon(node, lane)
        task = self._opening.get((node, lane))
        if task is None:
            task = self._opening[node, lane] = asyncio.create_task(self._connect(node, lane))
            task.add_done_callback(lambda done: self._opened(node, lane, done))
        return await asyncio.shield(task)

    def _refuse_too_soon(self, node: NodeId, lane: Lane) -> None:
        when, why = self._failed.get((node, lane), (0.0, ""))
        if why and asyncio.get_running_loop().time() < when + AFTER_FAILURE:
            raise KafkaConnectionError(why)

    async def _connect(self, node: NodeId, lane: Lane) -> AIOKafkaConnection:
        address = self._brokers.get(node) or self._first.get(node)
        if address is None:
            raise KafkaConnectionError(f"broker {node} is not known")
        try:
            async with asyncio.timeout(min(CONNECT, self._timeout)):
                return await create_conn(*address, **self._access)
        except (OSError, TimeoutError, KafkaError) as error:
            why = error_text(error) or type(error).__name__
            raise KafkaConnectionError(f"{address[0]}:{address[1]}: {why}") from error

    def _opened(self, node: NodeId, lane: Lane, task: "asyncio.Task[AIOKafkaConnection]") -> None:
        del self._opening[node, lane]
        if task.cancelled():
            return
        if error := task.exception():
            self.slow(node)
            self._failed[node, lane] = (asyncio.get_running_loop().time(), error_text(error))
            return
        self._failed.pop((node, lane), None)
        self._open[node, lane] = task.result()

    def _drop(self, node: NodeId, lane: Lane, link: AIOKafkaConnection) -> None:
        link.close()
        if self._open.get((node, lane)) is link:
            del self._open[node, lane]
            self._unanswered.pop((node, lane), None)


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Return the error that a code of Kafka's protocol stands for; None for 0."""
    kind: type[KafkaError] = for_code(code)
    return None if kind is NoError else kind(message or "")


def check(code: int, message: str | None = None) -> None:
    """Raise the error that a code of Kafka's protocol stands for, if any."""
    if error := error_of(code, message):
        raise error


def error_text(error: BaseException) -> str:
    """Return what an error says, without the name of its class, which aiokafka puts before it at every raise."""
    return str(error.args[0]) if isinstance(error, KafkaConnectionError) and error.args else str(error)


def _where(link: AIOKafkaConnection) -> str:
    return f"{link.host}:{link.port}"
