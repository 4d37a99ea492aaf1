"""What an archive looks like, and reading one."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from ams.pipeline.columns import MESSAGES
from ams.pipeline.tables import Partition, Table, frame, reading
from ams.pipeline.tables.manifest import Folder

ARCHIVE = StructType([*MESSAGES.fields, StructField("date", DateType(), nullable=False)])
"""A message, and the day of its publish time in UTC. The columns of `PARTITIONS` stand in the names of the folders."""
WITHOUT_KEYS = StructType([field for field in ARCHIVE.fields if field.name != "ordering_key"])
"""An archive of a version before there were ordering keys; it is gone on with."""
PARTITIONS = ("project", "topic", "date")
RANGES = ("offset", "publish_time")
_DAY_MILLISECONDS = 86_400_000


def archive_table(spark: SparkSession, path: str) -> Table:
    """Return the archive in a folder, for writing."""
    return Table(spark, path, ARCHIVE, PARTITIONS, ranges=RANGES, order=("offset",), earlier=(WITHOUT_KEYS,))


def dated(messages: DataFrame) -> DataFrame:
    """Return messages (`MESSAGES`, also of before there were ordering keys) as rows of an archive (`ARCHIVE`)."""
    if "ordering_key" not in messages.columns:
        messages = messages.withColumn("ordering_key", F.lit(None).cast("string"))
    days = F.floor(F.unix_millis("publish_time") / _DAY_MILLISECONDS).cast("int")
    date = F.date_add(F.lit("1970-01-01").cast("date"), days)  # by number: of whatever time zone the session is
    return messages.withColumn("date", date).select(*ARCHIVE.names)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of an archive is meant; the default is all of it."""

    project: str = "*"
    """A name or a pattern, such as `egi-*`."""
    topics: tuple[str, ...] = ("*",)
    """Names or patterns."""
    first: str = ""
    """The first day, `2024-03-05`."""
    last: str = ""
    """The last day, itself included."""

    def holds(self, partition: Partition) -> bool:
        """Whether a partition is meant."""
        project, topic, date = (partition[name] or "" for name in PARTITIONS)
        if not fnmatchcase(project, self.project) or not matches(topic, self.topics):
            return False
        return (not self.first or self.first <= date) and (not self.last or date <= self.last)


def archived(spark: SparkSession, path: str, selection: Selection | None = None) -> DataFrame:
    """Return archived messages (`ARCHIVE`); also while they are being archived, but not while days are merged.

    Raises `WrongTable` for a folder without an archive.
    """
    return frame(spark, path, ARCHIVE, folders_of(spark, path, selection or Selection()))


def folders_of(spark: SparkSession, path: str, selection: Selection) -> list[Folder]:
    """Return what the manifest of an archive says of its folders."""
    return [each for each in reading(spark, path, ARCHIVE, WITHOUT_KEYS) if selection.holds(each.values)]


def matches(name: str, patterns: Collection[str]) -> bool:
    """Whether a name is one of some, or fits one of the patterns among them.

    >>> matches("metric_data", ["alarms", "metric_*"])
    True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)
