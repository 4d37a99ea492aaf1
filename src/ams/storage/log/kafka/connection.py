"""Requests to Kafka: connections to brokers, leaders of topics, retries.

`BrokerConnections` uses aiokafka's connections and request objects, but not its client class: that opens one connection
at a time, so one stopped broker delays all others. A broker answers the requests of a connection in order. So requests
that may wait long have a separate lane: another connection to each broker.

Our topics have one partition. Its leader is looked up on demand, many topics in one request, and dropped from the cache
after an error. There is no periodic refresh, so thousands of idle topics cost nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, NewType, Self, TypeVar

from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, LeaderNotAvailableError, NoError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from ams.core.backoff import Backoff, Pauses
from ams.core.coalescing import BatchedRequest, SingleFlight
from ams.core.errors import LogUnavailable, TopicGone
from ams.storage.log.kafka.options import KafkaOptions, access, addresses
from ams.storage.log.kafka.partition import Partition

NodeId = NewType("NodeId", int)  # a broker; below 0: a bootstrap address, number unknown
Lane = NewType("Lane", str)  # requests in one lane are answered in order; lanes are independent
ASK = Lane("ask")  # fast requests
ADMIN = Lane("admin")  # requests for the controller, which may be slow
META = Lane("meta")  # metadata requests
IDLE_MS = 300_000  # less than the brokers' 10 minutes, so that no connection is closed under a request
CONNECT_SECONDS = 1.5  # shorter than `request_timeout`, because a stopped broker's system still accepts connections
RECONNECT_SECONDS = 0.1  # pause after a failed connection attempt
TOPICS_PER_QUESTION = 1000
Answer = TypeVar("Answer")
UNKNOWN_TOPIC_SECONDS = 1.0  # until an unknown topic counts as deleted: some brokers learn late of a new one
AWAY_SECONDS = 0.5  # without an answer of any broker, after which calls are refused at once
RETRY_PAUSES = (0.02, 0.05, 0.1, 0.2)  # seconds between attempts; the last one repeats
_PROBES = Backoff(0.1, 1.0, factor=1.5)  # seconds between checks whether a broker is back
HEDGE_SECONDS = 0.5  # wait for one broker before the same request goes to another
TRANSIENT_ERRORS = (errors.UnknownError, errors.BrokerNotAvailableError, errors.ReplicaNotAvailableError)
"""Transient errors that aiokafka does not mark as retriable; unknown codes become `UnknownError`."""
logging.getLogger("aiokafka").setLevel(logging.WARNING)  # lower levels log requests with payloads


class BrokerConnections:
    """Connections to the brokers, opened on demand and after failures."""

    def __init__(self, options: KafkaOptions) -> None:
        self._timeout = options.request_timeout
        limits = {"request_timeout_ms": int(options.request_timeout * 1000), "max_idle_ms": IDLE_MS}
        self._access = {**access(options), "client_id": "ams", **limits}
        begin = enumerate(addresses(options))
        self._first: dict[NodeId, tuple[str, int]] = {NodeId(-1 - index): address for index, address in begin}
        self._brokers: dict[NodeId, tuple[str, int]] = {}
        self._open: dict[tuple[NodeId, Lane], AIOKafkaConnection] = {}
        self._opening: SingleFlight[tuple[NodeId, Lane], AIOKafkaConnection] = SingleFlight()
        self._failed: dict[tuple[NodeId, Lane], tuple[float, str]] = {}
        self._slow: dict[NodeId, float] = {}
        self._unanswered: dict[tuple[NodeId, Lane], float] = {}  # time of the oldest request, cancelled ones too

    def learn(self, brokers: Iterable[tuple[int, str, int]]) -> None:
        """Replace the known brokers: number, host, port."""
        self._brokers = {NodeId(number): (host, port) for number, host, port in brokers}

    def nodes(self) -> list[NodeId]:
        """Return all brokers, best first: recently slow ones last, then bootstrap addresses."""
        known = sorted(self._brokers, key=lambda node: self._slow.get(node, 0.0))
        learned = set(self._brokers.values())
        return known + [node for node, address in self._first.items() if address not in learned]

    def slow(self, node: NodeId) -> None:
        """Note that a broker is slow, so that others are asked first."""
        self._slow[node] = asyncio.get_running_loop().time()

    async def send(self, node: NodeId, request: Any, lane: Lane = ASK) -> Any:
        """Send a request; return the response unchecked. Raises `KafkaConnectionError`: the outcome is unknown."""
        link = await self._link(node, lane)
        try:
            now = asyncio.get_running_loop().time()
            if now > self._unanswered.setdefault((node, lane), now) + self._timeout:
                raise TimeoutError
            answer = await link.send(request)
        except (OSError, TimeoutError) as error:
            self.slow(node)
            self._drop(node, lane, link)
            raise KafkaConnectionError(f"{link.host}:{link.port} does not answer") from error
        except KafkaConnectionError:
            self._drop(node, lane, link)
            raise
        self._slow.pop(node, None)
        self._unanswered.pop((node, lane), None)
        return answer

    async def close(self) -> None:
        """Close all connections; pending requests fail."""
        await self._opening.close()
        closing = [future for link in self._open.values() if (future := link.close()) is not None]
        self._open.clear()
        if closing:  # one with unsent bytes for a stopped broker would never end
            await asyncio.wait(closing, timeout=1)

    async def _link(self, node: NodeId, lane: Lane) -> AIOKafkaConnection:
        link = self._open.get((node, lane))
        if link is not None and link.connected():
            return link
        when, why = self._failed.get((node, lane), (0.0, ""))
        if why and asyncio.get_running_loop().time() < when + RECONNECT_SECONDS:
            raise KafkaConnectionError(why)
        return await self._opening.result((node, lane), lambda: self._open_link(node, lane))

    async def _open_link(self, node: NodeId, lane: Lane) -> AIOKafkaConnection:
        address = self._brokers.get(node) or self._first.get(node)
        try:
            if address is None:
                raise KafkaConnectionError(f"broker {node} is not known")
            async with asyncio.timeout(min(CONNECT_SECONDS, self._timeout)):
                link = await create_conn(*address, **self._access)
        except (OSError, TimeoutError, KafkaError) as error:
            why = error_text(error) or type(error).__name__
            self.slow(node)
            why = f"{address[0]}:{address[1]}: {why}" if address else why
            self._failed[node, lane] = (asyncio.get_running_loop().time(), why)
            raise KafkaConnectionError(why) from error
        self._failed.pop((node, lane), None)
        self._open[node, lane] = link
        return link

    def _drop(self, node: NodeId, lane: Lane, link: AIOKafkaConnection) -> None:
        link.close()
        if self._open.get((node, lane)) is link:
            del self._open[node, lane]
            self._unanswered.pop((node, lane), None)


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Return the error of a Kafka error code; None for 0."""
    kind: type[KafkaError] = for_code(code)
    return None if kind is NoError else kind(message or "")


def check(code: int, message: str | None = None) -> None:
    """Raise the error of a Kafka error code, if any."""
    if error := error_of(code, message):
        raise error


def error_text(error: BaseException) -> str:
    """Return the text of an error without the class name that aiokafka adds at every raise."""
    return str(error.args[0]) if isinstance(error, KafkaConnectionError) and error.args else str(error)


def _leader_in(code: int, partitions: Any) -> NodeId | Exception:
    problem, leader = next(((problem, leader) for problem, number, leader, *_ in partitions if number == 0), (0, -1))
    if not code and leader >= 0:
        return NodeId(leader)
    error: Exception = error_of(code or problem) or LeaderNotAvailableError()
    return error


class KafkaConnection:
    """Requests to Kafka that follow leaders, with retries while brokers die, stop or restart."""

    def __init__(self, options: KafkaOptions) -> None:
        self._patience = options.patience
        self.links = BrokerConnections(options)
        self._leaders: dict[str, NodeId] = {}  # by name of a topic
        self._look_up: BatchedRequest[str, NodeId] = BatchedRequest(self._look_up_leaders, TOPICS_PER_QUESTION)
        self._away_since: float | None = None
        self._probing: asyncio.Task[None] | None = None
        self.trouble = ""  # error text of the last failed connection; for people

    @classmethod
    async def open(cls, options: KafkaOptions) -> Self:
        """Connect, or retry in the background if no broker answers."""
        connection = cls(options)
        try:
            await connection._ask_metadata([])
        except KafkaError:
            connection._away_since = asyncio.get_running_loop().time() - AWAY_SECONDS
        return connection

    @property
    def reachable(self) -> bool:
        """True if brokers answered within `AWAY_SECONDS`; else requests are refused at once."""
        return self._away_since is None or asyncio.get_running_loop().time() < self._away_since + AWAY_SECONDS

    def deadline(self) -> float:
        """Return the loop time of the timeout for a call that begins now."""
        return asyncio.get_running_loop().time() + self._patience

    async def leader(self, partition: Partition, *, until: float) -> NodeId:
        """Return the leader of a topic, by loop time `until`; raises the errors of `ask`."""
        return await self._patiently(lambda: self._leader(partition.name), until)

    def cached_leader(self, partition: Partition) -> NodeId | None:
        """Return the cached leader of a topic, or None."""
        return self._leaders.get(partition.name)

    def forget_leader(self, partition: Partition) -> None:
        """Drop a topic's leader from the cache."""
        self._leaders.pop(partition.name, None)

    async def send(self, node: NodeId, request: Any, lane: Lane = ASK) -> Any:
        """Send a request to a broker once; raises `KafkaConnectionError` without a response."""
        try:
            response = await self.links.send(node, request, lane)
        except KafkaConnectionError as error:
            self.trouble = error_text(error)
            self._leaders = {name: leader for name, leader in self._leaders.items() if leader != node}
            raise
        self._away_since = None
        return response

    async def ask(
        self, partition: Partition, request: Any, answer: Callable[[Any], Answer], *, until: float, lane: Lane = ASK
    ) -> Answer:
        """Send a request to the leader of a topic, and return the result of `answer`. Retries transient errors.

        Raises:
            KafkaError: not transient, raised by `answer`.
            LogUnavailable: the time is over, or no broker answers.
            TopicGone: the brokers do not know the topic.
        """

        async def attempt() -> Answer:
            try:
                return answer(await self.send(await self._leader(partition.name), request, lane))
            except KafkaError as error:
                if error.invalid_metadata:
                    self.forget_leader(partition)
                raise

        return await self._patiently(attempt, until)

    async def ask_any(self, request: Any, answer: Callable[[Any], Answer], *, until: float) -> Answer:
        """Send a request to any broker, as `ask` does. Every broker forwards to the controller."""

        async def attempt() -> Answer:
            trouble: KafkaError = KafkaConnectionError("no brokers are known")
            for node in self.links.nodes():
                try:
                    return answer(await self.send(node, request, ADMIN))
                except KafkaConnectionError as error:
                    trouble = error
            await self._ask_metadata([])  # notes it when no broker answers at all
            raise trouble

        return await self._patiently(attempt, until)

    async def close(self) -> None:
        """Close all connections; pending requests fail."""
        if self._probing:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        await self._look_up.close()
        await self.links.close()

    async def _patiently(self, attempt: Callable[[], Awaitable[Answer]], until: float) -> Answer:
        """Retry until `until`. Raises `LogUnavailable`, `TopicGone`, and errors that no retry repairs."""
        loop = asyncio.get_running_loop()
        unknown_since, pauses = None, chain(RETRY_PAUSES, repeat(RETRY_PAUSES[-1]))
        while True:
            if not self.reachable:
                raise LogUnavailable from ConnectionError(f"no broker answers: {self.trouble}")
            try:
                async with asyncio.timeout_at(until):
                    return await attempt()
            except errors.UnknownTopicOrPartitionError as error:
                unknown_since = unknown_since or loop.time()
                if loop.time() > unknown_since + UNKNOWN_TOPIC_SECONDS:
                    raise TopicGone from error
                trouble: Exception = error
            except (KafkaError, TimeoutError) as error:
                if isinstance(error, KafkaError) and not (error.retriable or type(error) in TRANSIENT_ERRORS):
                    raise
                unknown_since, trouble = None, error
            pause = next(pauses)
            if loop.time() + pause > until:
                raise LogUnavailable from trouble
            await asyncio.sleep(pause)

    async def _leader(self, name: str) -> NodeId:
        known = self._leaders.get(name)
        return known if known is not None else await self._look_up(name)

    async def _look_up_leaders(self, names: Sequence[str]) -> list[NodeId | Exception]:
        replies: dict[str, NodeId | Exception] = {}
        unknown = list(dict.fromkeys(name for name in names if name not in self._leaders))
        if unknown:
            response = await self._ask_metadata(unknown)
            replies = {name: _leader_in(code, partitions) for code, name, _, partitions in response.topics}
        self._leaders |= {name: reply for name, reply in replies.items() if not isinstance(reply, Exception)}
        return [replies.get(name) or self._leaders.get(name, LeaderNotAvailableError(name)) for name in names]

    async def _ask_metadata(self, names: list[str]) -> Any:
        """Return metadata of brokers and topics. Hedged: asks more brokers while the first is slow."""
        request = MetadataRequest(names, allow_auto_topic_creation=False)
        try:
            response = await self._first_answer(request)
        except KafkaConnectionError:
            if self._away_since is None:
                self._away_since = asyncio.get_running_loop().time()
            if self._probing is None or self._probing.done():
                self._probing = asyncio.create_task(self._probe())
            raise
        self.links.learn([(node, host, port) for node, host, port, _ in response.brokers])
        return response

    async def _first_answer(self, request: Any) -> Any:
        """Ask the next broker when one is slow or fails. Raises `KafkaConnectionError` if all fail."""
        waiting: set[asyncio.Task[Any]] = set()
        trouble: KafkaError = KafkaConnectionError("no brokers are known")
        nodes = self.links.nodes()
        try:
            while nodes or waiting:
                if nodes:
                    waiting.add(asyncio.create_task(self.send(node := nodes.pop(0), request, META)))
                seconds = HEDGE_SECONDS if nodes else None
                done, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    self.links.slow(node)
                for task in done:
                    try:
                        return task.result()
                    except KafkaError as error:
                        trouble = error
        finally:
            for task in waiting:
                task.cancel()
        raise KafkaConnectionError(error_text(trouble)) from trouble

    async def _probe(self) -> None:
        pauses = Pauses(_PROBES)
        while self._away_since is not None:
            await asyncio.sleep(pauses.next())
            try:
                await self._ask_metadata([])
            except KafkaError as error:
                self.trouble = error_text(error)
