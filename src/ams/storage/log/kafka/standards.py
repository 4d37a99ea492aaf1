"""What is promised of every topic on the brokers, and which topics keep less than that.

A topic may be changed by another program, or made by hand; a topic that keeps less than was promised takes no
messages, since an answered publish would be worth less than it says. Settings are looked at when a topic is first met
and now and then after that, many topics in one question.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable
from ams.core.names import TopicId
from ams.storage.log.kafka.administration import Configs, describe
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Listed

TIMES = "message.timestamp.type"
GIVEN, BROKER = "CreateTime", "LogAppendTime"
"""Whose times a topic's are: those its messages are given, or those of the broker."""
SEGMENT_BYTES = 256 * 2**20
_INDEX_BYTES = 2**20
"""Space for the indexes of such a segment; the brokers' 10 MiB are set aside for each topic."""
_LEAST_SEGMENT_MS = 600_000
_OWN_AGE = "delete.retention.ms"
"""Means nothing where nothing is compacted: it remembers that a topic's age is its own, not the log's default."""
_NAMES = (
    "min.insync.replicas", TIMES, "cleanup.policy", "max.message.bytes",
    "unclean.leader.election.enable", "retention.ms", _OWN_AGE,
)  # fmt: skip
_AT_ONCE = 100
"""Topics in one question: reading the answer must not hold up the event loop."""
_DEFAULT_S = 86_400_000
"""The brokers' default of `delete.retention.ms`, for a topic it was not set for."""


class TopicSettings(NamedTuple):
    """What the brokers keep to for a topic."""

    weakness: str | None
    """What is less than promised, for people; None: nothing."""
    own_age: Milliseconds | None
    """Its own age limit; None: it goes by the log's default."""
    age: Milliseconds
    """The age limit the brokers go by."""


def age_configs(own: Milliseconds | None, default: Milliseconds) -> dict[str, str | None]:
    """Return the settings of a topic's age; None stands for the brokers' default."""
    age = own or default
    return {
        "retention.ms": str(age),
        "segment.ms": str(max(age // 8, _LEAST_SEGMENT_MS)),
        _OWN_AGE: None if own is None else str(own + _DEFAULT_S),
    }


def new_configs(options: KafkaOptions, own: Milliseconds | None) -> dict[str, str]:
    """Return the settings a topic is made with."""
    ages = {name: value for name, value in age_configs(own, options.retention).items() if value is not None}
    return ages | {
        "min.insync.replicas": str(options.min_isr),
        TIMES: BROKER,
        "cleanup.policy": "delete",
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(options.max_batch_bytes),
        "segment.bytes": str(SEGMENT_BYTES),
        "segment.index.bytes": str(_INDEX_BYTES),
    }


def settings_of(options: KafkaOptions, listed: Listed, configs: Configs) -> TopicSettings:
    """Return what a topic's settings come to."""
    own = int(configs[_OWN_AGE]) - _DEFAULT_S
    return TopicSettings(
        "; ".join(_weaknesses(options, listed, configs)) or None,
        Milliseconds(own) if own > 0 else None,
        Milliseconds(int(configs["retention.ms"])),
    )


def _weaknesses(options: KafkaOptions, listed: Listed, configs: Configs) -> Iterable[str]:
    if listed.partition_count != 1:
        yield f"{listed.partition_count} partitions, not 1"
    if listed.replication < options.replication:
        yield f"kept by {listed.replication} brokers, not {options.replication}"
    if int(configs["min.insync.replicas"]) < options.min_isr:
        yield f"min.insync.replicas is {configs['min.insync.replicas']}, not {options.min_isr}"
    if int(configs["max.message.bytes"]) < options.max_batch_bytes:
        yield f"max.message.bytes is {configs['max.message.bytes']}, not {options.max_batch_bytes}"
    fixed = {TIMES: BROKER, "cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
    for name, value in fixed.items():
        if configs[name] != value:
            yield f"{name} is {configs[name]}, not {value}"


class Standards:
    """What each topic keeps to, as far as it was looked at."""

    def __init__(self, connection: Connection, options: KafkaOptions) -> None:
        self._connection = connection
        self._options = options
        self._kept: dict[TopicId, TopicSettings] = {}

    def known(self, topic: TopicId) -> TopicSettings | None:
        """Return what a topic kept to when it was last looked at; None: it never was."""
        return self._kept.get(topic)

    def note(self, topic: TopicId, own: Milliseconds | None) -> None:
        """Note a topic as we have just made it, or given it an age."""
        weakness = self._kept[topic].weakness if topic in self._kept else None
        self._kept[topic] = TopicSettings(weakness, own, own or self._options.retention)

    def forget(self, topic: TopicId) -> None:
        """Remove a topic that is gone."""
        self._kept.pop(topic, None)

    def check(self, topic: TopicId) -> None:
        """Raise `LogUnavailable` for a topic known to keep less than was promised."""
        found = self._kept.get(topic)
        if found is not None and found.weakness is not None:
            raise LogUnavailable("Backend Error: the topic is kept with weaker settings than promised")

    def weak(self) -> dict[TopicId, str]:
        """Return what is less than promised, of topics that were looked at."""
        return {topic: found.weakness for topic, found in self._kept.items() if found.weakness is not None}

    def ages(self) -> dict[TopicId, Milliseconds]:
        """Return the age limits of topics that were looked at."""
        return {topic: found.age for topic, found in self._kept.items()}

    async def look(self, topics: Mapping[TopicId, Listed], until: float) -> None:
        """Look at topics now; those that are gone by now are forgotten."""
        remaining = list(topics.values())
        while remaining:
            part, remaining = remaining[:_AT_ONCE], remaining[_AT_ONCE:]
            configs = await describe(self._connection, [each.partition.name for each in part], _NAMES, until)
            for each in part:
                self._take(each, configs.get(each.partition.name))
            await asyncio.sleep(0)

    def _take(self, listed: Listed, configs: Configs | None) -> None:
        if configs is None:
            self.forget(listed.partition.topic)
            return
        self._kept[listed.partition.topic] = settings_of(self._options, listed, configs)
