"""The reference's messages in Kafka: partition 0 of `PROJECT_UUID.TOPIC`, whose offsets are the ids of messages."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from ams.core.errors import Unavailable
from ams.migrate.converting import NO_MESSAGES, Bounds, milliseconds
from ams.storage.export_format import Message

AT_ONCE = 2_000
"""Records asked for at once."""
QUIET_SECONDS = 30.0
"""Without a record before the end, until reading is given up."""
FETCH_BYTES = 16 * 2**20
_decode = msgspec.json.Decoder().decode


class Kafka:
    """The brokers that the reference writes to; nothing there is changed, no group is made and nothing committed."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        self._bounds: dict[str, Bounds] = {}
        self.other_partitions: dict[str, int] = {}
        """Messages outside partition 0, which nobody could ever read, by topic."""

    async def __aenter__(self) -> "Kafka":
        try:
            await self._consumer.start()
            await self._look()
        except KafkaError as error:
            await self._consumer.stop()
            raise Unavailable(f"Kafka cannot be read: {error}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(KafkaError):
            await self._consumer.stop()

    def bounds(self, topic: str) -> Bounds:
        """Return what a topic has; one that nobody ever published to is not there."""
        return self._bounds.get(topic, NO_MESSAGES)

    async def _look(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
        await admin.start()
        try:
            described = [each for each in await admin.describe_topics() if "." in each["topic"]]
            ages = await _ages(admin, [each["topic"] for each in described])
        finally:
            await admin.close()
        partitions = [
            TopicPartition(each["topic"], one["partition"]) for each in described for one in each["partitions"]
        ]
        firsts = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        for each in partitions:
            first, end = firsts[each], ends[each]
            if each.partition == 0:
                self._bounds[each.topic] = Bounds(first, end, ages.get(each.topic))
            elif end > first:
                self.other_partitions[each.topic] = self.other_partitions.get(each.topic, 0) + end - first

    async def _next(self, place: TopicPartition) -> Mapping[TopicPartition, Sequence[Any]]:
        try:
            wait = int(QUIET_SECONDS * 1000)
            found: Mapping[TopicPartition, Sequence[Any]]
            found = await self._consumer.getmany(place, timeout_ms=wait, max_records=AT_ONCE)
        except KafkaError as error:  # it went away, or retention took what was to be read next
            raise Unavailable(f"Kafka cannot be read on: {error}") from None
        return found

    async def messages(self, topic: str, bounds: Bounds) -> AsyncIterator[Message | int]:
        """Yield what is kept of a topic up to the end of `bounds`, in order; the offset of what cannot be read."""
        place = TopicPartition(topic, 0)
        self._consumer.assign([place])
        self._consumer.seek(place, bounds.first)
        following, time = bounds.first, 0
        while following < bounds.end:
            found = await self._next(place)
            records = found.get(place, [])
            if not records:
                raise Unavailable(f"Kafka gives no record of {topic} after {following}, and it ends at {bounds.end}")
            for record in records:
                if record.offset >= bounds.end:
                    return
                following = record.offset + 1
                read = message_of(record.offset, record.value, record.timestamp, time)
                if read is not None:
                    time = read.time
                yield record.offset if read is None else read


async def _ages(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> Mapping[str, int]:
    """Return how long Kafka keeps the messages of topics: the brokers' setting, or one of their own."""
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    answers = await admin.describe_configs(asked) if asked else []
    return {
        name: int(value)
        for answer in answers
        for _, _, _, name, settings in answer.resources
        for setting, value, *_ in settings
        if setting == "retention.ms" and value is not None
    }


def message_of(offset: int, value: bytes | None, written: int, earliest: int) -> Message | None:
    """Return the message of a record; None for one that cannot be read.

    The id inside is not looked at: it is what the publisher was told, and wrong where several published at once. Times
    are cut to milliseconds and never go back, as clocks of several nodes did. `written` is the broker's time.
    """
    try:
        said = _decode(value or b"")
        if isinstance(said, str):  # JSON text within JSON, by the reference's own tool for moving
            said = _decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(said, Mapping):
        return None
    data, attributes = said.get("data", ""), _attributes(said.get("attributes"))
    if not isinstance(data, str) or attributes is None:
        return None
    return Message(
        offset=offset, time=max(_time(said.get("publishTime"), written), earliest), data=data, attributes=attributes
    )


def _attributes(said: Any) -> Mapping[str, str] | None:
    """Return attributes; before 2017 they were a list of keys and values."""
    if said is None:
        return {}
    if isinstance(said, list):
        try:
            said = {each["key"]: each["value"] for each in said}
        except (KeyError, TypeError):
            return None
    if not isinstance(said, dict) or not all(isinstance(each, str) for pair in said.items() for each in pair):
        return None
    return said


def _time(said: Any, otherwise: int) -> int:
    try:
        moment = datetime.fromisoformat(said)
    except (ValueError, TypeError):
        return max(otherwise, 0)
    return max(milliseconds(moment), 0)
