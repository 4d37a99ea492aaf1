"""Requests to topic leaders: fetches, ends, oldest offsets, offsets by time, and fetch sessions.

There is no subscription and no state on the broker, so a read at any offset costs the same. Only messages below the
high watermark are seen. Offsets are ours, not the broker's.

A fetch session (KIP-227) is a long poll on many topics that sends only changes over the wire. Without a session, or
after the broker has dropped it, the request lists all topics again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from ams.core.errors import AmsError
from ams.core.names import Offset
from ams.core.runs import Run
from ams.core.supervisor import FairQueue
from ams.storage.log.base import Bounds, PendingRead
from ams.storage.log.kafka.connection import KafkaConnection, Lane, NodeId, check, error_of
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.records import batches, pieces

SCAN = Lane("scan")  # large fetches, so that small ones need not wait for their bytes
READ = Lane("read")  # fetches of whole batches, which may be large; pulls at a tail use other lanes
MESSAGES_PER_TURN = 100  # messages decoded in one turn of the event loop, some 0.1 ms
UNCOMMITTED, CONSUMER = 0, -1
FOLLOWER = 0  # any id of a replica: offsets include messages that are not replicated yet
LATEST, EARLIEST = -1, -2
AT_ONCE = 1000  # topics in one request
NO_VALUE = -1  # placeholder for leader epoch and log start, which only replicas send
NO_SESSION, NEW_SESSION_EPOCH = 0, 0  # session id of a client without one, and the epoch that requests one
LAST_EPOCH = 2**31 - 1


class Fetched(NamedTuple):
    """Result of a fetch: all messages from its start to before `next`."""

    runs: Sequence[Run]
    next: Offset
    end: Offset  # end of the topic on the leader; may lag for a moment after a change of the leader


class FetchedPart(NamedTuple):
    """The answer to a fetch of one topic, not yet decoded."""

    high: int  # the broker's offset after the last message that may be seen
    data: bytes


class Fetcher:
    """Sends fetch requests, and decodes the responses."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._turns = FairQueue()

    async def fetch(
        self, partition: Partition, start: Offset, size: int, *, until: float, enough: PendingRead | None = None
    ) -> Fetched:
        """Return messages from `start` on: at least one batch, about `size` bytes, not more than `enough` takes.

        Raises `OffsetOutOfRangeError`, and the errors of `KafkaConnection.ask`.
        """
        part = await fetch_part(self._connection, partition, start, size, READ if enough else SCAN, until=until)
        runs, next_ = await self.decode(partition, part, start, enough)
        return Fetched(runs, next_, Offset(part.high + partition.first))

    async def decode(
        self, partition: Partition, part: FetchedPart, start: Offset, enough: PendingRead | None = None
    ) -> tuple[Sequence[Run], Offset]:
        """Return the messages in an answer, and the next offset to fetch."""
        found: list[Run] = []
        count = enough.messages_left if enough else len(part.data)
        space = enough.bytes_left if enough else len(part.data) * 2
        next_ = start
        for batch in batches(part.data):
            for made in pieces(partition, batch, start, MESSAGES_PER_TURN):
                found += made
                count -= sum([len(run.fragments) for run in made])
                space -= sum([run.size for run in made])
                if count <= 0 or space < 0:
                    return found, found[-1].end
                await self._turns()
            next_ = Offset(max(next_, batch.next_offset + partition.first))
        return found, next_

    async def offset(self, partition: Partition, time: int, until: float, replica: int = CONSUMER) -> Offset:
        """Return the first offset since a time, or the oldest (`EARLIEST`), or the end (`LATEST`).

        For a `FOLLOWER` the end includes messages that are not replicated, and so not visible yet. If no message is as
        new as `time`, the result is below the partition's first offset.
        """

        def answer(response: Any) -> Offset:
            (_, [(_, code, _, offset)]), *_ = response.topics
            check(code)
            return Offset(offset + partition.first)

        request = OffsetRequest(replica, UNCOMMITTED, [(partition.name, [(0, time)])])
        return await self._connection.ask(partition, request, answer, until=until)


async def fetch_part(
    connection: KafkaConnection, partition: Partition, start: Offset, size: int, lane: Lane, *, until: float
) -> FetchedPart:
    """Return encoded batches; the first one contains `start`."""
    request = FetchRequest(0, 1, size, UNCOMMITTED, [(partition.name, [(0, max(start - partition.first, 0), size)])])
    return await connection.ask(partition, request, lambda it: part_of(it.topics[0][1][0]), until=until, lane=lane)


def part_of(answer: Any) -> FetchedPart:
    """Return one partition of a fetch response; raises its `KafkaError`."""
    check(answer[1])
    return FetchedPart(answer[2], answer[-1] or b"")


async def bounds_of_all(
    connection: KafkaConnection, partitions: Sequence[Partition], until: float
) -> dict[Partition, Bounds]:
    """Return the bounds of topics by loop time `until`; topics without an answer are left out."""
    found: dict[Partition, Bounds] = {}
    for start in range(0, len(partitions), AT_ONCE):
        part = partitions[start : start + AT_ONCE]
        leaders = await asyncio.gather(*(connection.leader(each, until=until) for each in part), return_exceptions=True)
        led: defaultdict[NodeId, list[Partition]] = defaultdict(list)
        for partition, leader in zip(part, leaders, strict=True):
            if not isinstance(leader, BaseException):
                led[leader].append(partition)
            elif not isinstance(leader, AmsError | KafkaError):
                raise leader
        for bounds in await asyncio.gather(*(_bounds(connection, node, own) for node, own in led.items())):
            found |= bounds
    return found


async def _bounds(
    connection: KafkaConnection, node: NodeId, partitions: Sequence[Partition]
) -> dict[Partition, Bounds]:
    async def offsets(which: int) -> dict[str, int]:
        asked: Any = [(partition.name, [(0, which)]) for partition in partitions]
        response = await connection.send(node, OffsetRequest(CONSUMER, UNCOMMITTED, asked))
        return {name: offset for name, [(_, code, _, offset)] in response.topics if not code}

    try:
        oldest = await offsets(EARLIEST)
        ends = await offsets(LATEST)  # second, so that no end is below its oldest
    except KafkaError:
        return {}
    return {
        each: Bounds(Offset(oldest[each.name] + each.first), Offset(ends[each.name] + each.first))
        for each in partitions
        if each.name in oldest and each.name in ends
    }


class FetchSession:
    """Client state of a fetch session on one connection."""

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, NEW_SESSION_EPOCH
        self._sent: dict[str, int] = {}

    def request(self, wanted: Mapping[str, int], *, wait_ms: int, topic_bytes: int, max_bytes: int) -> Any:
        """Return a request for topics by name, each from the given offset of the broker on."""
        if self._epoch == NEW_SESSION_EPOCH:
            self._sent = {}
        new = {name: offset for name, offset in wanted.items() if self._sent.get(name) != offset}
        topics: Any = [(name, [(0, NO_VALUE, offset, NO_VALUE, topic_bytes)]) for name, offset in new.items()]
        gone = [(name, [0]) for name in self._sent if name not in wanted]
        self._sent = dict(wanted)
        return _SessionFetchRequest((self._id, self._epoch), gone, wait_ms, 1, max_bytes, UNCOMMITTED, topics)

    def accept_answer(self, response: Any) -> bool:
        """Update the session by a response. Returns False if the broker has dropped the session."""
        error = error_of(response.error_code)
        if isinstance(error, FetchSessionIdNotFound | InvalidFetchSessionEpoch):
            self.reset()
            return False
        if error is not None:
            raise error
        self._id = response.session_id
        self._epoch = NEW_SESSION_EPOCH if self._id == NO_SESSION or self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def reset(self) -> None:
        """Begin a new session, as the state on the broker is unknown."""
        self._id, self._epoch = NO_SESSION, NEW_SESSION_EPOCH


class _SessionFetchRequest(FetchRequest):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's request has no sessions; this one adds them."""

    def __init__(self, session: tuple[int, int], gone: list[tuple[str, list[int]]], *rest: Any) -> None:
        super().__init__(*rest)
        self._session, self._gone = session, gone

    def build(self, request_struct_class: Any) -> Any:
        head = (CONSUMER, self._max_wait_ms, self._min_bytes, self._max_bytes, self._isolation_level)
        return request_struct_class(*head, *self._session, self._topics, self._gone, "")
