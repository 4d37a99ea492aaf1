"""Where a topic is on Kafka: the name of its one partition there, and what its first offset is called here.

A name is `PREFIX.LABEL.IDENTITY[-FIRST]` (`docs/decisions/0010-topics-on-kafka-are-found-by-their-names.md`). `FIRST`
is there when the offsets do not start at 0, as in a topic that was moved here after its oldest messages were gone.

aiokafka reads a list of topics field by field: 0.4 s for 10,000, in which the event loop does nothing else. `listed`
reads the same bytes in a tenth of that.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ams.core.names import Offset, TopicId, topic_id

MAX_NAME = 249  # characters of a Kafka topic's name
PREFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME = re.compile(r"(?P<prefix>[a-zA-Z0-9_-]+)\.(?:.*\.)?(?P<identity>[0-9a-f]{32})(?:-(?P<first>\d{1,18}))?")
_REFUSED = re.compile(r"[^a-zA-Z0-9._-]")  # characters of our names that Kafka's cannot have
FIRST = Offset(0)
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_PARTITION = 2 + 4 + 4  # error, number and leader of a partition


class Partition(NamedTuple):
    """A topic and where it is: offset `n` of the broker is `n + first` here."""

    topic: TopicId
    name: str
    first: Offset = FIRST


def partition_of(prefix: str, topic: TopicId, label: str = "", first: Offset = FIRST) -> Partition:
    """Return where a new topic goes; `label` is written in the characters that Kafka allows, and cut to what fits."""
    end = f".{bytes(topic).hex()}" + (f"-{first}" if first else "")
    written = _REFUSED.sub(lambda found: f"_{ord(found[0]):02X}", label)
    cut = written[: MAX_NAME - len(prefix) - len(end) - 1]
    return Partition(topic, f"{prefix}.{cut}{end}" if cut else f"{prefix}{end}", first)


def partition_in(prefix: str, name: str) -> Partition | None:
    """Return what a Kafka topic's name says; None for one that is not this installation's."""
    found = _NAME.fullmatch(name)
    if found is None or found["prefix"] != prefix:
        return None
    return Partition(topic_id(found["identity"]), name, Offset(int(found["first"] or 0)))


class Listed(NamedTuple):
    """A topic of ours as the brokers have it."""

    partition: Partition
    partition_count: int
    replication: int


def listed(prefix: str, answer: bytes) -> dict[TopicId, Listed]:
    """Read an answer (Metadata, version 5) about all topics: those of ours by identity.

    Of two with one identity the first by name counts. One in error is left out, as while it is being deleted.
    """
    found: dict[TopicId, Listed] = {}
    for name, count, replication in sorted(_topics(answer)):
        partition = partition_in(prefix, name)
        if partition is not None:
            found.setdefault(partition.topic, Listed(partition, count, replication))
    return found


def _topics(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each topic, how many partitions it has, and the least replication of any."""
    (brokers,) = _COUNT.unpack_from(data, 4)
    at = 8
    for _ in range(brokers):
        _, at = _text(data, at + 4)
        _, at = _text(data, at + 4)
    _, at = _text(data, at)
    (topics,) = _COUNT.unpack_from(data, at + 4)
    at += 8
    for _ in range(topics):
        (error,) = _LENGTH.unpack_from(data, at)
        name, at = _text(data, at + 2)
        (partitions,) = _COUNT.unpack_from(data, at + 1)
        at += 5
        least = 0
        for _ in range(partitions):
            (replicas,) = _COUNT.unpack_from(data, at + _PARTITION)
            least = min(least or replicas, replicas)
            at += _PARTITION
            for _ in range(3):
                at += 4 + 4 * _COUNT.unpack_from(data, at)[0]
        if not error:
            yield name, partitions, least


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + 2 + max(length, 0)
    return data[at + 2 : end].decode(), end
