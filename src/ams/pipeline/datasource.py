"""`format("ams")`: the data source that Spark is given."""

from datetime import UTC, datetime

from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import WrongOption
from ams.pipeline.sink.writer import BatchWriter, StreamWriter
from ams.pipeline.source.options import reading
from ams.pipeline.source.readers import BatchReader, StreamReader


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
