"""The way to Kafka: which broker to ask about a topic, again until one answers, and whether any does.

A topic of ours has one partition, so "the leader of a topic" is the leader of its partition 0. Leaders are looked up
when they are asked for, many topics at once, and forgotten when one turns out to be wrong; nothing is refreshed by
time, so thousands of topics cost nothing while they are not used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

from aiokafka import errors
from aiokafka.errors import KafkaConnectionError, KafkaError, LeaderNotAvailableError
from aiokafka.protocol.metadata import MetadataRequest

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import LogUnavailable, TopicGone
from ams.storage.coalescing import BatchedRequest
from ams.storage.log.kafka.links import ADMIN, ASK, META, Lane, Links, NodeId, error_of, error_text
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition

AT_ONCE = 1000
"""Topics in one question."""
Answer = TypeVar("Answer")
UNKNOWN_FOR = 1.0
"""Seconds for which brokers must report a topic as unknown before it counts as gone: some see a new topic late."""
AWAY_FOR = 0.5
"""Seconds no broker has answered after which callers are refused at once."""
PAUSES = (0.02, 0.05, 0.1, 0.2)
"""Seconds between tries; the last one goes on."""
_PROBES = Backoff(0.1, 1.0, factor=1.5)
"""Seconds between questions whether a broker is back."""
HEDGE = 0.5
"""Seconds a broker is waited for before another is asked the same."""
PASSING = (errors.UnknownError, errors.BrokerNotAvailableError, errors.ReplicaNotAvailableError)
"""Errors that pass, beside those that aiokafka calls retriable; codes it does not know are `UnknownError`."""


class Leaders:
    """Leaders as brokers last named them; `ask` is given names of topics and returns a metadata response."""

    def __init__(self, ask: Callable[[list[str]], Awaitable[Any]]) -> None:
        self._ask = ask
        self._known: dict[str, NodeId] = {}
        self._look_up: BatchedRequest[str, NodeId] = BatchedRequest(self._look_up_all, AT_ONCE)

    async def of(self, name: str) -> NodeId:
        """Return the leader of a topic; `KafkaError` when it is not known now."""
        known = self._known.get(name)
        return known if known is not None else await self._look_up(name)

    def known(self, name: str) -> NodeId | None:
        """Return the leader of a topic without asking."""
        return self._known.get(name)

    def forget(self, name: str) -> None:
        """Look a topic's leader up again when it is next asked for."""
        self._known.pop(name, None)

    def forget_node(self, node: NodeId) -> None:
        """Look the leaders up again of all topics that a broker led."""
        self._known = {name: leader for name, leader in self._known.items() if leader != node}

    async def close(self) -> None:
        """Ask no more; callers that wait get `LogUnavailable`."""
        await self._look_up.close()

    async def _look_up_all(self, names: Sequence[str]) -> list[NodeId | Exception]:
        replies: dict[str, NodeId | Exception] = {}
        unknown = list(dict.fromkeys(name for name in names if name not in self._known))
        if unknown:
            response = await self._ask(unknown)
            replies = {name: _leader(code, partitions) for code, name, _, partitions in response.topics}
        self._known |= {name: reply for name, reply in replies.items() if not isinstance(reply, Exception)}
        return [
            replies[name] if name in replies else self._known.get(name, LeaderNotAvailableError(name)) for name in names
        ]


def _leader(code: int, partitions: Any) -> NodeId | Exception:
    """Return the leader of a topic, or the `KafkaError` that says why there is none."""
    if code:
        return _error(code)
    for problem, number, leader, *_ in partitions:
        if number == 0:
            return NodeId(leader) if leader >= 0 else _error(problem)
    return _error(0)


def _error(code: int) -> Exception:
    error: Exception = error_of(code) or LeaderNotAvailableError()
    return error


class Connection:
    """Requests to Kafka that follow leaders, and survive brokers that die, stop or restart."""

    def __init__(self, options: KafkaOptions, client_id: str) -> None:
        self._patience = options.patience
        self.links = Links(options, client_id)
        self._leaders = Leaders(self._about)
        self._away_since: float | None = None
        self._probing: asyncio.Task[None] | None = None
        self.trouble = ""
        """What the last broker that could not be asked said; for people."""

    @classmethod
    async def open(cls, options: KafkaOptions, client_id: str = "ams") -> Self:
        """Connect, or go on trying in the background when no broker answers."""
        connection = cls(options, client_id)
        try:
            await connection._about([])
        except KafkaError:
            connection._away_since = asyncio.get_running_loop().time() - AWAY_FOR
        return connection

    @property
    def reachable(self) -> bool:
        """Whether brokers answer, or did half a second ago; until they do again, requests are refused at once."""
        return self._away_since is None or asyncio.get_running_loop().time() < self._away_since + AWAY_FOR

    def deadline(self) -> float:
        """Return the loop time until which a call that begins now waits for Kafka."""
        return asyncio.get_running_loop().time() + self._patience

    async def leader(self, partition: Partition, *, until: float) -> NodeId:
        """Return the broker that leads a topic, by loop time `until`; raises what `ask` raises."""
        return await self._patiently(lambda: self._leaders.of(partition.name), until)

    def known_leader(self, partition: Partition) -> NodeId | None:
        """Return the broker that was last said to lead a topic; None when it must be asked for."""
        return self._leaders.known(partition.name)

    def moved(self, partition: Partition) -> None:
        """Note that a topic's leader is not the one that was named last."""
        self._leaders.forget(partition.name)

    async def send(self, node: NodeId, request: Any, lane: Lane = ASK) -> Any:
        """Send one request to one broker, once; raises `KafkaConnectionError` when no response came."""
        try:
            response = await self.links.send(node, request, lane)
        except KafkaConnectionError as error:
            self.trouble = error_text(error)
            self._leaders.forget_node(node)
            raise
        self._away_since = None
        return response

    async def ask(
        self, partition: Partition, request: Any, answer: Callable[[Any], Answer], *, until: float, lane: Lane = ASK
    ) -> Answer:
        """Send a request to the leader of a topic until `answer` makes something of the response.

        `answer` raises the `KafkaError` that the response holds; what may pass is tried again until loop time `until`,
        then it is `LogUnavailable`, also at once while no broker answers at all. `TopicGone` when the brokers do not
        know the topic. Other errors of `answer` go up as they are.
        """

        async def attempt() -> Answer:
            try:
                return answer(await self.send(await self._leaders.of(partition.name), request, lane))
            except KafkaError as error:
                if error.invalid_metadata:
                    self.moved(partition)
                raise

        return await self._patiently(attempt, until)

    async def ask_any(self, request: Any, answer: Callable[[Any], Answer], *, until: float) -> Answer:
        """Send a request to any broker, as `ask` does; what is the controller's is passed on to it by every broker."""

        async def attempt() -> Answer:
            trouble: KafkaError = KafkaConnectionError("no brokers are known")
            for node in self.links.nodes():
                try:
                    return answer(await self.send(node, request, ADMIN))
                except KafkaConnectionError as error:
                    trouble = error
            await self._about([])  # notes it when no broker answers at all
            raise trouble

        return await self._patiently(attempt, until)

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        if self._probing:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        await self._leaders.close()
        await self.links.close()

    async def _patiently(self, attempt: Callable[[], Awaitable[Answer]], until: float) -> Answer:
        loop = asyncio.get_running_loop()
        unknown_since = None
        for number in range(10**9):
            if not self.reachable:
                raise LogUnavailable from ConnectionError(f"no broker answers: {self.trouble}")
            try:
                async with asyncio.timeout_at(until):
                    return await attempt()
            except errors.UnknownTopicOrPartitionError as error:
                unknown_since = unknown_since or loop.time()
                if loop.time() > unknown_since + UNKNOWN_FOR:
                    raise TopicGone from error
                trouble: Exception = error
            except (KafkaError, TimeoutError) as error:
                if isinstance(error, KafkaError) and not (error.retriable or type(error) in PASSING):
                    raise
                unknown_since, trouble = None, error
            pause = PAUSES[min(number, len(PAUSES) - 1)]
            if loop.time() + pause > until:
                raise LogUnavailable from trouble
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _about(self, names: list[str]) -> Any:
        """Ask about brokers and topics, several brokers when the first keeps us waiting; the first answer counts."""
        request = MetadataRequest(names, allow_auto_topic_creation=False)
        try:
            response = await self._first_answer(request)
        except KafkaConnectionError:
            self._no_answer()
            raise
        self.links.learn([(node, host, port) for node, host, port, _ in response.brokers])
        return response

    async def _first_answer(self, request: Any) -> Any:
        waiting: set[asyncio.Task[Any]] = set()
        trouble: KafkaError = KafkaConnectionError("no brokers are known")
        nodes = self.links.nodes()
        try:
            while nodes or waiting:
                if nodes:
                    waiting.add(asyncio.create_task(self.send(node := nodes.pop(0), request, META)))
                done, waiting = await asyncio.wait(
                    waiting, timeout=HEDGE if nodes else None, return_when=asyncio.FIRST_COMPLETED
                )
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

    def _no_answer(self) -> None:
        if self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Ask until a broker answers."""
        pauses = Pauses(_PROBES)
        while self._away_since is not None:
            await asyncio.sleep(pauses.next())
            try:
                await self._about([])
            except KafkaError as error:
                self.trouble = error_text(error)
