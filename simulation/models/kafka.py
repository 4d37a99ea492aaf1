"""Kafka brokers as far as AMS uses them: topics of one partition, produce with acks=all, fetches, offsets, settings.

A generator answers a request: it yields the moment until which it waits, and resumes then or after any change. It
returns the fields of the response. An append is in the leader's log at once, and visible once all in-sync replicas have
it; records that only the leader had are lost with it. A topic's leader is the first of its replicas that is up and in
sync. A replica that comes back is in sync a moment later.
"""

import io
import itertools
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

Fields = tuple[Any, ...]
Answering = Generator[float, None, Fields]  # yields moments in seconds

VERSIONS = {
    0: (5, 5), 1: (11, 11), 2: (2, 2), 3: (5, 5), 19: (2, 2), 20: (1, 1), 21: (2, 2), 22: (0, 0), 32: (0, 0),
    44: (0, 0),
}  # fmt: skip
"""Supported versions by the number of a request."""
OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT, TOO_LARGE = 1, 3, 6, 7, 10
TOO_FEW_REPLICAS, TOPIC_EXISTS, WRONG_REPLICATION, OUT_OF_ORDER, OLD_EPOCH = 19, 36, 38, 45, 47
NO_LEADER, NO_SESSION, WRONG_SESSION_EPOCH = 5, 70, 71
LATEST, EARLIEST, CONSUMER = -1, -2, -1
REMEMBERED_BATCHES = 5  # batches of a producer kept to detect repeats
_HEAD = struct.Struct(">qiibIhiqqqhii")  # of a batch
_CHECKSUMMED_FROM = 21  # bytes of a batch before the checksummed part
_BROKER_TIME_FLAG = 0x08
_DEFAULTS = {
    "message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "unclean.leader.election.enable": "false",
    "min.insync.replicas": "1", "max.message.bytes": "1048588", "retention.ms": "604800000",
    "delete.retention.ms": "86400000",
}  # fmt: skip


class Batch(NamedTuple):
    """A batch in a log, in the form for consumers."""

    base: int
    end: int
    time: int  # of its newest record
    data: bytes


@dataclass(slots=True)
class Producer:
    """A log's state of a producer."""

    epoch: int
    batches: list[tuple[int, int, Batch]] = field(default_factory=list)  # first and last sequence number of the last


@dataclass(slots=True, eq=False)
class Topic:
    """A topic with one partition."""

    name: str
    partitions: int
    replicas: list[int]
    configs: dict[str, str]
    known_from: Mapping[int, float]  # by broker: when it learns of the topic
    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    seen: int = 0  # end of records that all in-sync replicas have (high watermark)
    producers: dict[int, Producer] = field(default_factory=dict)
    in_sync: list[int] = field(default_factory=list)
    leader: int = -1
    is_deleted: bool = False

    @property
    def end(self) -> int:
        """End of the leader's log."""
        return self.batches[-1].end if self.batches else self.start

    def config(self, name: str) -> str:
        """Return a setting."""
        return self.configs.get(name, _DEFAULTS[name])


class Cluster:
    """Brokers and their logs. Not thread-safe."""

    def __init__(
        self,
        brokers: Sequence[int],
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object] = lambda _, work: work(),
        draw: Callable[[float, float], float] = lambda least, _: least,
    ) -> None:
        """`now`: seconds since the epoch; `later` runs work after a delay in seconds; `draw`: a number in bounds."""
        self.brokers = dict.fromkeys(brokers, True)  # True while a broker is up
        self.topics: dict[str, Topic] = {}
        self.address: Callable[[int], tuple[str, int]] = lambda number: (f"kafka{number}", 9092)
        self.waiting: dict[object, Callable[[], None]] = {}  # called after each change
        self.now, self._later, self._draw = now, later, draw
        self._producers = itertools.count(1)
        self._sessions: dict[int, tuple[int, int, dict[str, tuple[int, int]]]] = {}  # broker, epoch, wanted
        self._session_numbers = itertools.count(1)

    # Faults of brokers

    def stop(self, number: int) -> None:
        """Stop a broker; others lead its topics soon."""
        self.brokers[number] = False
        self._sessions = {each: held for each, held in self._sessions.items() if held[0] != number}
        for topic in self.topics.values():
            if topic.leader == number:
                self._later(self._draw(0.0, 1.0), lambda topic=topic: self._elect(topic))  # type: ignore[misc]
            elif number in topic.in_sync:
                topic.in_sync.remove(number)
                self._replicate(topic)
        self._wake_waiters()

    def start(self, number: int) -> None:
        """Start a broker, with all committed records."""
        self.brokers[number] = True
        for topic in self.topics.values():
            if number in topic.replicas:
                self._later(self._draw(0.0, 0.5), lambda topic=topic: self._catch_up(topic, number))  # type: ignore[misc]

    def move(self, topic: Topic) -> None:
        """Move the leader of a topic to another replica, without loss."""
        others = [each for each in topic.in_sync if each != topic.leader and self.brokers[each]]
        if others:
            topic.leader = others[0]
            self._wake_waiters()

    def _elect(self, topic: Topic) -> None:
        if topic.leader >= 0 and self.brokers[topic.leader]:
            return
        there = [each for each in topic.in_sync if self.brokers[each]]
        if not there:
            return
        topic.leader = there[0]
        topic.in_sync = there
        self._truncate(topic)
        self._wake_waiters()

    def _catch_up(self, topic: Topic, number: int) -> None:
        if not self.brokers[number]:
            return
        if number not in topic.in_sync and topic.leader >= 0 and self.brokers[topic.leader]:
            topic.in_sync.append(number)
        self._elect(topic)

    def _truncate(self, topic: Topic) -> None:
        """Drop records that only the former leader had."""
        topic.batches = [each for each in topic.batches if each.end <= topic.seen]
        for producer in topic.producers.values():
            producer.batches = [each for each in producer.batches if each[2].end <= topic.seen]

    def _wake_waiters(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for go_on in waiting.values():
            go_on()

    # Requests

    def answer(self, broker: int, request: Any) -> Answering:
        """Return the generator that answers a request made by `Request.prepare` with `VERSIONS`."""
        said = request.to_object()
        handlers: dict[int, Callable[[int, Mapping[str, Any]], Answering]] = {
            0: self._produce, 1: self._fetch, 2: self._offsets, 3: self._metadata, 19: self._create, 20: self._delete,
            21: self._delete_records, 22: self._identify, 32: self._describe, 44: self._alter,
        }  # fmt: skip
        return handlers[request.API_KEY](broker, said)

    def _knows(self, broker: int, topic: Topic) -> bool:
        return self.now() >= topic.known_from.get(broker, 0.0)

    def _led_topic(self, broker: int, name: str) -> tuple[Topic | None, int]:
        """Return a topic that a broker leads, or the error code."""
        topic = self.topics.get(name)
        if topic is None or not self._knows(broker, topic):
            return None, UNKNOWN_TOPIC
        return (topic, 0) if topic.leader == broker else (None, NOT_LEADER)

    def _metadata(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        names = said["topics"]
        found: list[Any] = []
        for name in self.topics if names is None else names:
            topic = self.topics.get(name)
            if topic is None or not self._knows(broker, topic):
                found.append((UNKNOWN_TOPIC, name, False, []))
                continue
            leader = topic.leader if self.brokers.get(topic.leader) else -1
            code = 0 if leader >= 0 else NO_LEADER
            parts: Any = [(code, part, leader, topic.replicas, topic.in_sync, []) for part in range(topic.partitions)]
            found.append((0, name, False, parts))
        brokers = [(each, *self.address(each), None) for each, is_there in self.brokers.items() if is_there]
        return (0, brokers, "model", broker, found)

    def _create(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        answers: list[Any] = []
        for each in said["create_topic_requests"]:
            name, replication = each["topic"], each["replication_factor"]
            there = [number for number, is_there in self.brokers.items() if is_there]
            if name in self.topics:
                answers.append((name, TOPIC_EXISTS, "the topic is there"))
            elif replication > len(there):
                answers.append((name, WRONG_REPLICATION, "too few brokers"))
            else:
                place = len(self.topics) % len(there)
                replicas = (there[place:] + there[:place])[:replication]
                configs = {entry["config_key"]: entry["config_value"] for entry in each["configs"]}
                known = {number: self.now() + self._draw(0.0, 0.2) for number in there if number != broker}
                made = Topic(name, each["num_partitions"], replicas, configs, known)
                made.in_sync, made.leader = list(replicas), replicas[0]
                self.topics[name] = made
                answers.append((name, 0, None))
        self._wake_waiters()
        return (0, answers)

    def _delete(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        answers: list[Any] = []
        for name in said["topics"]:
            topic = self.topics.pop(name, None)
            if topic is not None:
                topic.is_deleted = True
            answers.append((name, UNKNOWN_TOPIC if topic is None else 0))
        self._wake_waiters()
        return (0, answers)

    def _describe(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        answers: list[Any] = []
        for resource in said["resources"]:
            kind, name = resource["resource_type"], resource["resource_name"]
            topic, wanted = self.topics.get(name), resource["config_names"]
            if topic is None:
                answers.append((UNKNOWN_TOPIC, "unknown", kind, name, []))
            else:
                entries = [(each, topic.config(each), False, each not in topic.configs, False) for each in wanted]
                answers.append((0, None, kind, name, entries))
        return (0, answers)

    def _alter(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        answers: list[Any] = []
        for resource in said["resources"]:
            topic = self.topics.get(resource["name"])
            for change in resource["configs"]:
                if topic is None:
                    break
                if change["operation"]:
                    topic.configs.pop(change["name"], None)
                else:
                    topic.configs[change["name"]] = change["value"]
            code = UNKNOWN_TOPIC if topic is None else 0
            answers.append((code, "unknown" if code else None, resource["type"], resource["name"]))
        return (0, answers)

    def _identify(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        return (0, 0, next(self._producers), 0)

    def _delete_records(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        answers: list[Any] = []
        for each in said["topics"]:
            topic, code = self._led_topic(broker, each["name"])
            for part in each["partitions"]:
                if topic is not None and part["offset"] > topic.seen:
                    code = OUT_OF_RANGE
                elif topic is not None:
                    topic.start = max(topic.start, part["offset"])
                    topic.batches = [batch for batch in topic.batches if batch.end > topic.start]
                    topic.seen = max(topic.seen, topic.start)
                answers.append((each["name"], [(0, topic.start if topic else -1, code, {})], {}))
        return (0, answers, {})

    def _offsets(self, broker: int, said: Mapping[str, Any]) -> Answering:
        yield from ()
        answers: list[Any] = []
        for each in said["topics"]:
            topic, code = self._led_topic(broker, each["topic"])
            for part in each["partitions"]:
                time = part["timestamp"]
                offset, found = -1, -1
                if topic is not None and time == LATEST:
                    offset = topic.seen if said["replica_id"] == CONSUMER else topic.end
                elif topic is not None and time == EARLIEST:
                    offset = topic.start
                elif topic is not None:
                    offset, found = self._first_since(topic, time)
                answers.append((each["topic"], [(0, code, found, offset)]))
        return (0, answers)

    @staticmethod
    def _first_since(topic: Topic, time: int) -> tuple[int, int]:
        for batch in topic.batches:
            if batch.time < time or batch.end > topic.seen:
                continue
            records: Any = MemoryRecords(batch.data).next_batch()
            for record in records:
                if record.timestamp >= time and record.offset >= topic.start:
                    return record.offset, record.timestamp
        return -1, -1

    # Produce

    def _produce(self, broker: int, said: Mapping[str, Any]) -> Answering:
        until = self.now() + said["timeout"] / 1000
        waiting: list[tuple[str, Topic | None, int, Batch | None]] = []
        for each in said["topics"]:
            for part in each["partitions"]:
                topic, code = self._led_topic(broker, each["topic"])
                batch = None
                if topic is not None:
                    code, batch = self._append(topic, part["messages"])
                waiting.append((each["topic"], topic, code, batch))
        while self.now() < until and any(
            topic is not None and batch is not None and self._fate(broker, topic, batch) is None
            for _, topic, _, batch in waiting
        ):
            yield until
        answers: list[Any] = []
        for name, topic, code, batch in waiting:
            offset, time = -1, -1
            if topic is not None and batch is not None:
                fate = self._fate(broker, topic, batch)
                code = TIMED_OUT if fate is None else fate
                if not code:
                    offset = batch.base
                    time = batch.time if topic.config("message.timestamp.type") == "LogAppendTime" else -1
            answers.append((name, [(0, code, offset, time, topic.start if topic else -1)]))
        return (answers, 0)

    def _fate(self, broker: int, topic: Topic, batch: Batch) -> int | None:
        """Return the result code of an append; None while it is open."""
        if topic.is_deleted:
            return UNKNOWN_TOPIC
        if topic.leader != broker or not self.brokers[broker]:
            return NOT_LEADER
        return 0 if topic.seen >= batch.end else None

    def _append(self, topic: Topic, data: bytes) -> tuple[int, Batch | None]:
        head = _HEAD.unpack_from(data)
        attributes, last, newest = head[5], head[6], head[8]
        producer_id, epoch, sequence, count = head[9:]
        if len(data) > int(topic.config("max.message.bytes")):
            return TOO_LARGE, None
        if len(self._there(topic)) < int(topic.config("min.insync.replicas")):
            return TOO_FEW_REPLICAS, None
        known = topic.producers.get(producer_id)
        if known is not None:
            if epoch < known.epoch:
                return OLD_EPOCH, None
            if epoch == known.epoch:
                for first, last_sequence, batch in known.batches:
                    if (first, last_sequence) == (sequence, sequence + count - 1):
                        return 0, batch
                if known.batches and sequence != known.batches[-1][1] + 1:
                    return OUT_OF_ORDER, None
            elif sequence:
                return OUT_OF_ORDER, None
        base, time = topic.end, newest
        if topic.config("message.timestamp.type") == "LogAppendTime":
            before = topic.batches[-1].time if topic.batches else 0
            time, attributes = max(int(self.now() * 1000), before), attributes | _BROKER_TIME_FLAG
        batch = Batch(base, base + last + 1, time, _with_offsets(data, base, attributes, time))
        topic.batches.append(batch)
        if known is None or epoch > known.epoch:
            known = topic.producers[producer_id] = Producer(epoch)
        known.batches = [*known.batches, (sequence, sequence + count - 1, batch)][-REMEMBERED_BATCHES:]
        end = batch.end
        self._later(self._draw(0.0002, 0.01), lambda: self._replicate(topic, end))
        return 0, batch

    def _there(self, topic: Topic) -> list[int]:
        return [each for each in topic.in_sync if self.brokers[each]]

    def _replicate(self, topic: Topic, end: int | None = None) -> None:
        """Replicate the log up to an offset to in-sync replicas; records with too few copies stay invisible."""
        if topic.leader < 0 or not self.brokers[topic.leader]:
            return
        if len(self._there(topic)) < int(topic.config("min.insync.replicas")):
            return
        end = topic.end if end is None else min(end, topic.end)
        if end > topic.seen:
            topic.seen = end
            self._wake_waiters()

    # Fetch

    def _fetch(self, broker: int, said: Mapping[str, Any]) -> Answering:
        until = self.now() + said["max_wait_time"] / 1000
        code, session, wanted = self._session(broker, said)
        if code:
            return (0, code, 0, [])
        is_whole = said["session_epoch"] <= 0
        while True:
            found = [(name, *self._part(broker, name, offset, size)) for name, (offset, size) in wanted.items()]
            news = [each for each in found if each[1] or each[3]]
            if news or self.now() >= until:
                break
            yield until
        answers: list[Any] = []
        size = 0
        for name, part_code, seen, data in found if is_whole else news:
            data = data if not size or size + len(data) <= said["max_bytes"] else b""
            size += len(data)
            answers.append((name, [(0, part_code, seen, seen, 0, None, -1, data)]))
        return (0, 0, session, answers)

    def _session(self, broker: int, said: Mapping[str, Any]) -> tuple[int, int, dict[str, tuple[int, int]]]:
        """Return an error code, the number of the fetch session, and the requested offset and bytes by topic."""
        new = {
            each["topic"]: (part["fetch_offset"], part["max_bytes"])
            for each in said["topics"]
            for part in each["partitions"]
        }
        number, epoch = said["session_id"], said["session_epoch"]
        if epoch < 0:
            return 0, 0, new
        if epoch == 0:
            self._sessions.pop(number, None)
            number = next(self._session_numbers)
            self._sessions[number] = (broker, 1, new)
            return 0, number, new
        held = self._sessions.get(number)
        if held is None or held[0] != broker:
            return NO_SESSION, 0, {}
        if held[1] != epoch:
            return WRONG_SESSION_EPOCH, 0, {}
        gone = {each["topic"] for each in said["forgotten_topics_data"]}
        wanted = {name: place for name, place in held[2].items() if name not in gone} | new
        self._sessions[number] = (broker, epoch + 1, wanted)
        return 0, number, wanted

    def _part(self, broker: int, name: str, offset: int, size: int) -> tuple[int, int, bytes]:
        """Return an error code, the end of visible records, and at least one whole batch."""
        topic, code = self._led_topic(broker, name)
        if topic is None:
            return code, -1, b""
        if not topic.start <= offset <= topic.end:
            return OUT_OF_RANGE, -1, b""
        found: list[bytes] = []
        for batch in topic.batches:
            if batch.end <= offset or batch.end > topic.seen:
                continue
            if found and sum(map(len, found)) + len(batch.data) > size:
                break
            found.append(batch.data)
        return 0, topic.seen, b"".join(found)


def encode_response(request: Any, fields: Fields) -> Any:
    """Return a response as a client decodes it from a broker's bytes."""
    kind = request.RESPONSE_TYPE
    made = MetadataResponse_v5(*fields) if issubclass(kind, MetadataResponse_v5) else kind(*fields)
    return kind.decode(io.BytesIO(made.encode()))


def _with_offsets(data: bytes, base: int, attributes: int, time: int) -> bytes:
    """Return a batch with its offset and the time of its newest record, as a leader writes it."""
    made = bytearray(data)
    struct.pack_into(">q", made, 0, base)
    struct.pack_into(">h", made, _CHECKSUMMED_FROM, attributes)
    struct.pack_into(">q", made, 35, time)
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[_CHECKSUMMED_FROM:])))
    return bytes(made)
