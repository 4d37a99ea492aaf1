"""`format("ams")`: the data source that Spark is given, and its readers.

Planning runs on the driver or in one process beside it, `read` on executors with a copy of the reader.

Spark remembers the end of each batch, but not where the first one began: when that is repeated after a kill, it asks
for the first offset again. At `latest` that would be another one by then, and messages would be passed over. So a query
that begins at the end has an empty first batch, whose end is remembered.
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
from ams.pipeline.fetching import Fetch, Part, limited, lost, parts, remade
from ams.pipeline.options import EARLIEST, LATEST, Name, Positions, Reading, reading
from ams.pipeline.service import Bounds, Service
from ams.pipeline.sink.writer import BatchWriter, StreamWriter

Offsets = dict[str, int]  # offsets by `PROJECT/TOPIC`, as they stand in checkpoints and in the progress of queries


class Places:
    """The offsets of what is to be read."""

    def __init__(self, service: Service, reading: Reading) -> None:
        self._service, self._reading = service, reading
        self.topics: Sequence[Name] = reading.topics
        self.ids: dict[str, str] = {}
        """Which topic each name stands for, as it was seen last; without those of which the service does not tell."""
        if not reading.topics:
            self.look_again()

    def look_again(self) -> None:
        """Find out which topics there are now, where they are not named."""
        if self._reading.patterns:
            self.topics = self._service.topics(self._reading.project, self._reading.patterns)
        elif not self.topics:
            assert self._reading.subscription is not None, "topics or a subscription"
            self.topics = (self._service.topic_of(self._reading.subscription),)

    def bounds(self) -> dict[Name, Bounds]:
        """Ask what there is of each topic."""
        found = {topic: self._service.bounds(topic, self._reading.through) for topic in self.topics}
        self.ids = {str(topic): bounds.id for topic, bounds in found.items() if bounds.id}
        return found

    def starts(self, default: int) -> Offsets:
        """Return where reading begins; `default`, `EARLIEST` or `LATEST`, is for topics of which nothing is said."""
        if self._reading.starting is None and self._reading.subscription is not None:
            current = self._service.call(wire.get_offsets(*self._reading.subscription)).current
            return {str(topic): current for topic in self.bounds()}
        return self._offsets("startingOffsets", self._reading.starting, default)

    def ends(self) -> Offsets:
        """Return where a batch ends."""
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
                lost(f"messages {offset} to {there.first - 1} of topic {topic}", fail=self._reading.fail_on_data_loss)
            found[str(topic)] = there.end if offset == LATEST else max(offset, there.first)
        return found


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        if not isinstance(part, Part):  # Spark reads nothing by asking for one partition without a value
            return
        with Service(self.reading.access) as service:
            yield from Fetch(service, part, self.reading.through, self.reading.fail_on_data_loss).batches()


class BatchReader(_Reader, DataSourceReader):
    """Reads once."""

    def partitions(self) -> Sequence[InputPartition]:
        """Find where reading begins and ends, once, so that all tasks agree."""
        with Service(self.reading.access) as service:
            places = Places(service, self.reading)
            starts, ends = places.starts(EARLIEST), places.ends()
            ranges = parts(starts, ends, places.topics, self.reading.min_partitions, places.ids)
        return [InputPartition(each) for each in ranges]


IDS = "topics"  # beside the offsets in what Spark remembers: the ids of the topics they are of, by `PROJECT/TOPIC`
Told = dict[str, Any]
"""Offsets as Spark remembers them: `{"PROJECT/TOPIC": next offset, ..., "topics": {"PROJECT/TOPIC": id, ...}}`."""


def plain(told: Mapping[str, Any]) -> Offsets:
    """Return the offsets alone."""
    return {name: at for name, at in told.items() if name != IDS}


def _remade(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    return frozenset(topic for topic, known in before.items() if now.get(topic, known) != known)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. That a batch is done, `commit` would tell a batch late; `latestOffset` has known it by then."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._initial: Offsets | None = None
        """Where the query begins, as long as that is not in the checkpoint."""
        self._begun = False
        self._target: Offsets | None = None
        self._ends: Offsets | None = None  # where the topics ended when the last batch was planned
        self._followed: int | None = None  # where the cursor of the subscription was moved

    def __reduce__(self) -> tuple[type["StreamReader"], tuple[Reading]]:
        return StreamReader, (self.reading,)

    def initialOffset(self) -> Told:  # noqa: N802  # Spark's name
        """Return where a query begins that has no checkpoint: as with Spark's Kafka source, at the end."""
        self._initial = self._places.starts(LATEST)
        return self._told(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return how much a batch may have."""
        most = self.reading.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Note where the topics end now; what comes later is for the next run."""
        self._target = self._ends_now()

    def latestOffset(self, start: Told, limit: ReadLimit) -> Told:  # noqa: N802  # Spark's name
        """Return where the next batch ends.

        All batches up to `start` are in the checkpoint then, but for where the query begins at the first call.
        """
        self._ends = ends = self._target or self._ends_now()
        begin, others = plain(start), _remade(start[IDS], self._places.ids)
        if not self.reading.patterns:  # of which topics come and go
            for topic in begin.keys() - set(map(str, self._places.topics)):
                raise WrongOption("topic", f"the checkpoint stands in {topic} too; read it as well, or begin another")
        if begin == self._initial and not self._begun:
            self._begun = True
            if self.reading.begins_at_end:
                return start
        else:
            self._initial = None
            if not others:  # else the cursor would go behind messages of the new topic that nobody read
                self._follow(begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._told(limited(self._from(begin, ends, others), ends, most))

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  # Spark's name
        """Return where the topics ended when the batch was planned, for the lag in the query's progress."""
        return self._ends

    def partitions(self, start: Told, end: Told) -> Sequence[InputPartition]:
        """Return the ranges of a batch."""
        self._begun = True
        ends, ids = plain(end), end[IDS]
        topics = [Name(*topic.split("/")) for topic in ends]  # of a batch that comes again, as they were then
        starts = self._from(plain(start), ends, _remade(start[IDS], ids))
        ranges = parts(starts, ends, topics, self.reading.min_partitions, ids)
        return [InputPartition(each) for each in ranges]

    def stop(self) -> None:
        """Close the connections."""
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

    def _told(self, offsets: Offsets) -> Told:
        ids = {topic: known for topic, known in self._places.ids.items() if topic in offsets}
        return {**offsets, IDS: ids}

    def _follow(self, start: Offsets) -> None:
        """Move the cursor of a subscription to where everything before is in the checkpoint; it only goes forward."""
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
        """Return where a batch begins: at its start, but at the oldest message of topics that are new or made again."""
        new_or_remade = {topic for topic, end in ends.items() if topic in others or start.get(topic, end + 1) > end}
        if not new_or_remade:
            return {topic: start[topic] for topic in ends}
        oldest = {str(topic): bounds.first for topic, bounds in self._places.bounds().items()}
        found = {topic: start.get(topic, end) for topic, end in ends.items()}
        for topic in new_or_remade:
            if topic in start and start == self._initial:  # the first batch again, and the topic has grown meanwhile
                found[topic] = ends[topic]
                continue
            if topic in others:
                remade(topic, fail=self.reading.fail_on_data_loss)
            elif topic in start:
                what = f"messages {ends[topic]} to {start[topic] - 1} of topic {topic}"
                lost(what, fail=self.reading.fail_on_data_loss)
            found[topic] = min(oldest.get(topic, ends[topic]), ends[topic])
        return found


class AmsDataSource(spark.DataSource):
    """Topics of AMS as DataFrames; `docs/reference/spark.md` tells the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ams"

    def schema(self) -> StructType:
        """Return the columns of a message; what is wrong with the options is said here, when `load` is called."""
        reading(self.options)
        return MESSAGES

    def reader(self, schema: StructType) -> spark.DataSourceReader:
        """Return what reads once."""
        self._require_ours(schema)
        return BatchReader(reading(self.options))

    def streamReader(self, schema: StructType) -> spark.DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return what reads on and on."""
        self._require_ours(schema)
        asked = reading(self.options)
        if asked.ending is not None:
            given = "endingTimestamp" if isinstance(asked.ending, datetime) else "endingOffsets"
            raise WrongOption(given, "is for a batch; a stream has no end")
        if isinstance(asked.starting, datetime) and asked.starting > datetime.now(UTC):
            # It would begin at the end, and read what is published before that time.
            raise WrongOption("startingTimestamp", "lies in the future; startingOffsets=latest begins with what comes")
        return StreamReader(asked)

    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        """Return what publishes a frame."""
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> spark.DataSourceStreamWriter:  # noqa: N802  # Spark's name
        """Return what publishes a stream."""
        return StreamWriter(self.options, schema, overwrite)

    @staticmethod
    def _require_ours(schema: StructType) -> None:
        if schema != MESSAGES:
            raise WrongOption("schema", "the columns of a message are fixed; leave it out")
