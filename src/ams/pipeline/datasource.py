"""`format("ams")`: the Spark data source and its readers.

Planning runs on the driver or in a process beside it; `read` runs on executors with a copy of the reader.

Spark's checkpoint has the end of each batch, but not the start of the first. If the first batch is retried after a
kill, Spark asks for the initial offset again. With `latest` that would be a later one, and messages would be skipped.
So a query that begins at the end has an empty first batch, whose end is in the checkpoint.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ams.client import wire
from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import WrongOption
from ams.pipeline.options import EARLIEST, LATEST, Positions, Reading, ResourceName
from ams.pipeline.range_reader import Fetch, OffsetRange, Offsets, limit_ends, parts, remade, report_data_loss
from ams.pipeline.service_calls import ReadBounds, Service
from ams.pipeline.sink.writer import BatchWriter, StreamWriter


class Places:
    """Offsets of the topics to read."""

    def __init__(self, service: Service, reading: Reading) -> None:
        self._service, self._reading = service, reading
        self.topics: Sequence[ResourceName] = reading.topics
        self.ids: dict[str, str] = {}  # topic ids by name, as last seen; names without an id are absent
        if not reading.topics:
            self.look_again()

    def look_again(self) -> None:
        """Look up the topics that match the patterns now."""
        if self._reading.patterns:
            self.topics = self._service.topics(self._reading.project, self._reading.patterns)
        elif not self.topics:
            assert self._reading.subscription is not None, "topics or a subscription"
            self.topics = (self._service.topic_of(self._reading.subscription),)

    def bounds(self) -> dict[ResourceName, ReadBounds]:
        found = {topic: self._service.bounds(topic, self._reading.through) for topic in self.topics}
        self.ids = {str(topic): bounds.id for topic, bounds in found.items() if bounds.id}
        return found

    def starts(self, default: int) -> Offsets:
        """Return the start offsets; `default` (`EARLIEST` or `LATEST`) is for topics without an option."""
        if self._reading.starting is None and self._reading.subscription is not None:
            current = self._service.call(wire.get_offsets(*self._reading.subscription)).current
            return {str(topic): current for topic in self.bounds()}
        return self._offsets("startingOffsets", self._reading.starting, default)

    def ends(self) -> Offsets:
        return self._offsets("endingOffsets", self._reading.ending, LATEST)

    def _offsets(self, option: str, said: Positions | datetime | None, default: int) -> Offsets:
        bounds = self.bounds()
        if isinstance(said, datetime):
            return {str(topic): self._service.offset_at(topic, said, self._reading.through) for topic in bounds}
        positions = {"": default} if said is None else said
        found: Offsets = {}
        for topic, there in bounds.items():
            offset = positions.get(str(topic), positions.get(""))
            if offset is None:
                raise WrongOption(option, f"nothing is said of {topic}")
            if offset > there.end:
                raise WrongOption(option, f"{offset} is beyond the end of topic {topic}, which is {there.end}")
            if LATEST < offset < there.first:
                report_data_loss(topic, offset, there.first, fail=self._reading.fail_on_data_loss)
            found[str(topic)] = there.end if offset == LATEST else max(offset, there.first)
        return found


class _PartitionReader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        if not isinstance(part, OffsetRange):  # Spark plans an empty read as one partition without a value
            return
        with Service(self.reading.access) as service:
            yield from Fetch(service, part, self.reading.through, self.reading.fail_on_data_loss).batches()


class _BatchReader(_PartitionReader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        """Resolve start and end offsets once, so that all tasks agree."""
        with Service(self.reading.access) as service:
            places = Places(service, self.reading)
            starts, ends = places.starts(EARLIEST), places.ends()
            ranges = parts(starts, ends, places.topics, self.reading.min_partitions, places.ids)
        return [InputPartition(each) for each in ranges]


IDS = "topics"  # key beside the offsets in the checkpoint: topic ids by `PROJECT/TOPIC`
CheckpointOffsets = dict[str, Any]
"""Offsets in Spark's checkpoint: `{"PROJECT/TOPIC": next offset, ..., "topics": {"PROJECT/TOPIC": id, ...}}`."""


def plain(told: Mapping[str, Any]) -> Offsets:
    """Return the offsets alone."""
    return {name: at for name, at in told.items() if name != IDS}


def _remade(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    return frozenset(topic for topic, known in before.items() if now.get(topic, known) != known)


class StreamReader(_PartitionReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. `latestOffset` learns that a batch is done; Spark calls `commit` only one batch later."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._initial: Offsets | None = None  # start of the query, until the checkpoint has it
        self._begun = False
        self._target: Offsets | None = None
        self._ends: Offsets | None = None  # ends of the topics when the last batch was planned
        self._followed: int | None = None  # last position of the subscription's cursor

    def __reduce__(self) -> tuple[type["StreamReader"], tuple[Reading]]:
        return StreamReader, (self.reading,)

    def initialOffset(self) -> CheckpointOffsets:  # noqa: N802  # Spark's name
        """Return the start of a query without a checkpoint: the end, as in Spark's Kafka source."""
        self._initial = self._places.starts(LATEST)
        return self._offsets_with_ids(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        most = self.reading.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Note the current ends of the topics; later messages are for the next run."""
        self._target = self._ends_now()

    def latestOffset(self, start: CheckpointOffsets, limit: ReadLimit) -> CheckpointOffsets:  # noqa: N802  # Spark's name
        """Return the end of the next batch.

        All batches up to `start` are in the checkpoint then, except the query's start at the first call.
        """
        self._ends = ends = self._target or self._ends_now()
        begin, others = plain(start), _remade(start[IDS], self._places.ids)
        if not self.reading.patterns:  # topics of a pattern come and go
            for topic in begin.keys() - set(map(str, self._places.topics)):
                raise WrongOption("topic", f"the checkpoint stands in {topic} too; read it as well, or begin another")
        if begin == self._initial and not self._begun:
            self._begun = True
            if self.reading.begins_at_end:
                return start
        else:
            self._initial = None
            if not others:  # else the cursor would skip unread messages of the new topic
                self._follow(begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._offsets_with_ids(limit_ends(self._from(begin, ends, others), ends, most))

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  # Spark's name
        """Return the ends of the topics when the batch was planned, for the lag in the query's progress."""
        return self._ends

    def partitions(self, start: CheckpointOffsets, end: CheckpointOffsets) -> Sequence[InputPartition]:
        self._begun = True
        ends, ids = plain(end), end[IDS]
        topics = [ResourceName(*topic.split("/")) for topic in ends]  # a retried batch has the topics of its first try
        starts = self._from(plain(start), ends, _remade(start[IDS], ids))
        return [InputPartition(each) for each in parts(starts, ends, topics, self.reading.min_partitions, ids)]

    def stop(self) -> None:
        self._service.close()

    @cached_property
    def _service(self) -> Service:
        return Service(self.reading.access)

    @cached_property
    def _places(self) -> Places:
        return Places(self._service, self.reading)

    def _ends_now(self) -> Offsets:
        self._places.look_again()
        return {str(topic): bounds.end for topic, bounds in self._places.bounds().items()}

    def _offsets_with_ids(self, offsets: Offsets) -> CheckpointOffsets:
        ids = {topic: known for topic, known in self._places.ids.items() if topic in offsets}
        return {**offsets, IDS: ids}

    def _follow(self, start: Offsets) -> None:
        """Commit the subscription's offset: everything before it is in the checkpoint. It only goes forward."""
        subscription = self.reading.subscription
        if subscription is None:
            return
        [offset] = start.values()
        if offset == self._followed:
            return
        found = self._service.call(wire.get_offsets(*subscription))
        if found.current < offset <= found.max:
            self._service.move(subscription, offset)
        self._followed = offset

    def _from(self, start: Mapping[str, int], ends: Mapping[str, int], others: frozenset[str]) -> Offsets:
        new_or_remade = {topic for topic, end in ends.items() if topic in others or start.get(topic, end + 1) > end}
        if not new_or_remade:
            return {topic: start[topic] for topic in ends}
        oldest = {str(topic): bounds.first for topic, bounds in self._places.bounds().items()}
        found = {topic: start.get(topic, end) for topic, end in ends.items()}
        for topic in new_or_remade:
            if topic in start and start == self._initial:  # a retried first batch, and the topic has grown meanwhile
                found[topic] = ends[topic]
                continue
            if topic in others:
                remade(topic, fail=self.reading.fail_on_data_loss)
            elif topic in start:
                report_data_loss(topic, ends[topic], start[topic], fail=self.reading.fail_on_data_loss)
            found[topic] = min(oldest.get(topic, ends[topic]), ends[topic])
        return found


class AmsDataSource(spark.DataSource):
    """Topics of AMS as DataFrames; options are in `docs/reference/spark.md`."""

    @classmethod
    def name(cls) -> str:
        return "ams"

    def schema(self) -> StructType:
        """Return the columns of a message. Also validates the options, when `load` is called."""
        Reading(self.options)
        return MESSAGES

    def reader(self, schema: StructType) -> spark.DataSourceReader:
        self._require_ours(schema)
        return _BatchReader(Reading(self.options))

    def streamReader(self, schema: StructType) -> spark.DataSourceStreamReader:  # noqa: N802  # Spark's name
        self._require_ours(schema)
        asked = Reading(self.options)
        if asked.ending is not None:
            given = "endingTimestamp" if isinstance(asked.ending, datetime) else "endingOffsets"
            raise WrongOption(given, "is for a batch; a stream has no end")
        if isinstance(asked.starting, datetime) and asked.starting > datetime.now(UTC):
            # It would begin at the end, and read messages published before that time.
            raise WrongOption("startingTimestamp", "lies in the future; startingOffsets=latest begins with what comes")
        return StreamReader(asked)

    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> spark.DataSourceStreamWriter:  # noqa: N802  # Spark's name
        return StreamWriter(self.options, schema, overwrite)

    @staticmethod
    def _require_ours(schema: StructType) -> None:
        if schema != MESSAGES:
            raise WrongOption("schema", "the columns of a message are fixed; leave it out")
