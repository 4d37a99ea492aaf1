"""Which topics the brokers have, in one question.

aiokafka reads an answer field by field: 0.4 s for 10,000 topics, in which the event loop does nothing else. This reads
the same bytes in a tenth of that.
"""

import struct
from typing import NamedTuple

from ams.core.names import TopicId
from ams.storage.log.kafka.place import Place, place_in


class Listed(NamedTuple):
    """A topic of ours as the brokers have it."""

    place: Place
    partitions: int
    replication: int
    """Brokers that are to keep each message."""


def listed(prefix: str, answer: bytes) -> dict[TopicId, Listed]:
    """Read an answer (Metadata, version 5) about all topics: those of ours by identity.

    Of two with the same identity the first by name counts; one in error, as while it is being deleted, is left out.
    """
    found: dict[TopicId, Listed] = {}
    for name, partitions, replication in sorted(_topics(answer)):
        place = place_in(prefix, name)
        if place is not None:
            found.setdefault(place.topic, Listed(place, partitions, replication))
    return found


_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_PARTITION = 2 + 4 + 4
"""Error, number and leader of a partition."""


def _topics(data: bytes) -> list[tuple[str, int, int]]:
    at = _after_brokers(data)
    (count,) = _COUNT.unpack_from(data, at)
    at += 4
    topics = []
    for _ in range(count):
        (error,) = _LENGTH.unpack_from(data, at)
        name, at = _text(data, at + 2)
        partitions, replication, at = _partitions(data, at + 1)
        if not error:
            topics.append((name, partitions, replication))
    return topics


def _after_brokers(data: bytes) -> int:
    (brokers,) = _COUNT.unpack_from(data, 4)
    at = 8
    for _ in range(brokers):
        _, at = _text(data, at + 4)
        _, at = _text(data, at + 4)
    _, at = _text(data, at)
    return at + 4


def _partitions(data: bytes, at: int) -> tuple[int, int, int]:
    """Return how many there are, the least replication of any, and where they end."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 4
    least = 0
    for _ in range(count):
        (replicas,) = _COUNT.unpack_from(data, at + _PARTITION)
        least = min(least or replicas, replicas)
        at += _PARTITION
        for _ in range(3):
            at += 4 + 4 * _COUNT.unpack_from(data, at)[0]
    return count, least, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + 2 + max(length, 0)
    return data[at + 2 : end].decode(), end
