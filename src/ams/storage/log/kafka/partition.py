"""Name of a topic's Kafka topic, and the shift between its offsets and ours.

A name is `PREFIX.LABEL.IDENTITY[-FIRST]` (`docs/decisions/0009-kafka-requests-over-aiokafka.md`). `FIRST`
is our first offset if it is not 0, as in a topic that was moved here after its oldest messages had expired.

aiokafka decodes a list of topics field by field: it blocks the event loop 0.4 s for 10,000 topics. `read_topic_list`
takes a tenth of that.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ams.core.names import Offset, TopicId, topic_id

MAX_NAME = 249  # characters of a Kafka topic's name
PREFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME = re.compile(r"(?P<prefix>[a-zA-Z0-9_-]+)\.(?:.*\.)?(?P<identity>[0-9a-f]{32})(?:-(?P<first>\d{1,18}))?")
_REFUSED = re.compile(r"[^a-zA-Z0-9._-]")  # characters that Kafka does not allow in names
FIRST = Offset(0)
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_PARTITION = 2 + 4 + 4  # error, number and leader of a partition


class Partition(NamedTuple):
    """The Kafka topic of a topic. Offset `n` of the broker is our offset `n + first`."""

    topic: TopicId
    name: str
    first: Offset = FIRST


def partition_of(prefix: str, topic: TopicId, label: str = "", first: Offset = FIRST) -> Partition:
    """Return the partition for a new topic; `label` is escaped for Kafka, and cut to the maximum length."""
    end = f".{bytes(topic).hex()}" + (f"-{first}" if first else "")
    written = _REFUSED.sub(lambda found: f"_{ord(found[0]):02X}", label)
    cut = written[: MAX_NAME - len(prefix) - len(end) - 1]
    return Partition(topic, f"{prefix}.{cut}{end}" if cut else f"{prefix}{end}", first)


def partition_in(prefix: str, name: str) -> Partition | None:
    """Parse the name of a Kafka topic; None if it is not of this installation."""
    found = _NAME.fullmatch(name)
    if found is None or found["prefix"] != prefix:
        return None
    return Partition(topic_id(found["identity"]), name, Offset(int(found["first"] or 0)))


class Listed(NamedTuple):
    """One of our topics as the brokers list it."""

    partition: Partition
    partition_count: int
    replication: int


def read_topic_list(prefix: str, answer: bytes) -> dict[TopicId, Listed]:
    """Decode a Metadata response (version 5) of all topics; return ours by topic id.

    If two have the same id, the first by name counts. Topics with an error are left out, as during deletion.
    """
    found: dict[TopicId, Listed] = {}
    for name, count, replication in sorted(_topics(answer)):
        partition = partition_in(prefix, name)
        if partition is not None:
            found.setdefault(partition.topic, Listed(partition, count, replication))
    return found


def _topics(data: bytes) -> Iterator[tuple[str, int, int]]:
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
