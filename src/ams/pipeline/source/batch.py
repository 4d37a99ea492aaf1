"""Reading once: from where is asked to where is asked, or to the end as it is when the query is planned."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ams.pipeline.service import Service
from ams.pipeline.source.fetching import Fetch
from ams.pipeline.source.filtering import Window, window
from ams.pipeline.source.options import EARLIEST, Reading
from ams.pipeline.source.parts import Part, parts
from ams.pipeline.source.places import Places


class Partition(InputPartition):
    """A part as Spark hands it to a task."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)


class BatchReader(DataSourceReader):
    """Reads once."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.window = Window()

    def partitions(self) -> Sequence[InputPartition]:
        """Find where reading begins and ends, once, so that all tasks agree."""
        with Service(self.reading.access) as service:
            places = Places(service, self.reading)
            starts, ends = places.within(self.window, places.starts(EARLIEST), places.ends())
            ranges = parts(starts, ends, places.topics, self.reading.min_partitions, places.ids)
        return [Partition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition."""
        return read_part(self.reading, partition)


class FilteringReader(BatchReader):
    """Reads less when filters say that it is enough.

    A class of its own because Spark refuses readers that take filters unless filters are switched on.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Note what may pass, and leave all filters to Spark to be looked at."""
        self.window = window(filters)
        return filters


def read_part(reading: Reading, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a partition; runs on an executor."""
    part = partition.value
    if not isinstance(part, Part):  # Spark reads nothing by asking for one partition without a value
        return
    through = reading.subscription.name if reading.subscription else ""
    with Service(reading.access) as service:
        yield from Fetch(service, part, through, reading.fail_on_data_loss).batches()
