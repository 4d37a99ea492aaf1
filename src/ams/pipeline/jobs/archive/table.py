"""What an archive looks like, and reading one."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ams.pipeline import messages
from ams.pipeline.errors import WrongTable
from ams.pipeline.messages import PARTITIONS
from ams.pipeline.tables import Table, frame
from ams.tables.files import File, Partition
from ams.tables.location import Location
from ams.tables.snapshot import open_table

ARCHIVE: StructType = from_arrow_schema(messages.ARCHIVE)
_DAY_MILLISECONDS = 86_400_000


def archive_table(spark: SparkSession, path: str) -> Table:
    """Return the archive in a folder, for writing."""
    return Table(spark, path, ARCHIVE, PARTITIONS, order="offset")


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
    """Return archived messages (`ARCHIVE`) as they are now; more may be archived, and days merged, meanwhile.

    Raises `WrongTable` where there is no archive.
    """
    return frame(spark, Location.of(path), selected(path, selection or Selection()), ARCHIVE)


def selected(path: str, selection: Selection) -> list[File]:
    """Return the files of a part of an archive; raise `WrongTable` where there is none, or another table."""
    found = open_table(path)
    if found.partition_by != PARTITIONS:
        raise WrongTable(f"{path} is no archive: its partitions are {', '.join(found.partition_by) or 'none'}")
    return found.select(where=lambda file: selection.holds(file.partition))


def matches(name: str, patterns: Collection[str]) -> bool:
    """Whether a name is one of some, or fits one of the patterns among them.

    >>> matches("metric_data", ["alarms", "metric_*"])
    True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)
