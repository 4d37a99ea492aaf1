"""The job `schema-check`."""

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from ams.pipeline.errors import CheckFailed, WrongOption
from ams.pipeline.jobs.archive.selecting import selection
from ams.pipeline.jobs.archive.table import Selection, archived
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.schema_check.rules import TYPES, Rules, of_files, of_service
from ams.pipeline.jobs.schema_check.verdicts import Verdicts
from ams.pipeline.report.text import table
from ams.pipeline.running import Run

CHECKED = StructType(
    [
        StructField("project", StringType(), nullable=False),
        StructField("topic", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("reason", StringType()),
    ]
)
"""A message, and why it would be refused; null when it would not."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said to `schema-check`."""

    archive: str
    """The folder of the archive."""
    schema: str = ""
    """A schema of the project, by its name."""
    file: str = ""
    """Or a file that says what payloads must be, as `ams schemas create --file` takes it."""
    attributes_file: str = ""
    """Or a file that says what attributes must be."""
    type: str = "json"
    """What payloads are when a file says what they must be: `json` or `avro`."""
    project: str = "*"
    """A project of the archive, or a pattern."""
    topics: tuple[str, ...] = ("*",)
    """Topics or patterns."""
    first: str = ""
    """The first day, such as 2024-03-05."""
    last: str = ""
    """The last day, itself included."""
    most: int = 20
    """How many of the messages that would be refused are told."""

    def __post_init__(self) -> None:
        self.selection()
        if bool(self.schema) == bool(self.file or self.attributes_file):
            raise WrongOption("schema", "give a schema by its name, or files, one of the two")
        if self.type not in TYPES:
            raise WrongOption("type", f"{self.type[:20]!r} is neither json nor avro")
        if self.most < 0:
            raise WrongOption("most", f"{self.most} is less than 0")

    def selection(self) -> Selection:
        """Return which part of the archive is meant; raise `WrongOption`."""
        return selection(self.project, self.topics, self.first, self.last)


def run(run: Run, options: Options) -> None:
    """Print how many messages of each topic would be refused, and the first of them; raise `CheckFailed` for any."""
    by_name = bool(options.schema)
    rules = (
        of_service(run.source, options.schema)
        if by_name
        else of_files(options.type, options.file, options.attributes_file)
    )
    found = checked(archived(run.spark, options.archive, options.selection()), rules).persist(StorageLevel.DISK_ONLY)
    try:
        counts = counted(found).collect()
        refused = first_refused(found, options.most).collect()
    finally:
        found.unpersist()
    run.count(sum(row.checked for row in counts))
    print(table(("TOPIC", "CHECKED", "REFUSED"), [tuple(row) for row in counts]), flush=True)
    for row in refused:
        print(f"{row.project}/{row.topic} {row.offset}: {row.reason}", flush=True)
    total = sum(row.refused for row in counts)
    if total:
        raise CheckFailed(f"{total} of {sum(row.checked for row in counts)} messages would be refused")


def checked(messages: DataFrame, rules: Rules) -> DataFrame:
    """Return the verdict on each message, `CHECKED`."""
    wanted = messages.select("project", "topic", "offset", "attributes", "data")
    return wanted.mapInArrow(_checker(rules), CHECKED)


def counted(verdicts: DataFrame) -> DataFrame:
    """Return of each topic how many messages were checked and how many would be refused."""
    topic = F.concat_ws("/", "project", "topic").alias("topic")
    refused = F.count("reason").alias("refused")
    return verdicts.groupBy(topic).agg(F.count("*").alias("checked"), refused).orderBy("topic")


def first_refused(verdicts: DataFrame, most: int) -> DataFrame:
    """Return the first messages that would be refused."""
    return verdicts.where(F.col("reason").isNotNull()).orderBy("project", "topic", "offset").limit(most)


def _checker(rules: Rules) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(CHECKED, timezone="UTC")
        with Verdicts(rules) as verdicts:
            for batch in batches:
                columns = [batch.column(name).to_pylist() for name in ("offset", "data", "attributes")]
                reasons = [
                    verdicts.refusal(offset, data, dict(attributes))
                    for offset, data, attributes in zip(*columns, strict=True)
                ]
                places = [batch.column(name) for name in ("project", "topic", "offset")]
                yield pa.RecordBatch.from_arrays([*places, pa.array(reasons, pa.string())], schema=schema)

    return check


JOB = Job(
    "schema-check",
    "Which archived messages a schema would have refused",
    Options,
    run,
    harmless=frozenset(Options.__struct_fields__),
)
