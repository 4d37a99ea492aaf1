"""The jobs `archive` and `archive-check`."""

from collections.abc import Sequence

import msgspec
from pyspark.sql import DataFrame

from ams.pipeline.archiving import closed, is_kept_here
from ams.pipeline.errors import CheckFailed, WrongOption, WrongTable
from ams.pipeline.jobs.archive.checking import MOST, check, summary
from ams.pipeline.jobs.archive.selecting import selection
from ams.pipeline.jobs.archive.table import Selection, archive_table, dated
from ams.pipeline.jobs.base import Job
from ams.pipeline.report.text import table
from ams.pipeline.running import Run
from ams.pipeline.tables import Table
from ams.tables.snapshot import open_table

_MEBIBYTE = 2**20


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said to `archive`."""

    topics: tuple[str, ...] = ("*",)
    """Topics of the project; `*` and `?` in them stand for any characters. With such, topics that are made later are
    archived too, and ones that were deleted are let go."""
    path: str = ""
    """The folder of the archive; without it `tables/archive` in the folder of the run."""
    merge: bool = True
    """Whether the many small files of a day are merged into few when the day is closed."""
    closed_after: int = 1
    """How many days after its end a day is closed."""
    file_mib: int = 256
    """How large a merged file becomes, in MiB."""
    batch_messages: int = 200_000
    """How many messages are stored at a time."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise WrongOption("topics", "names no topic")
        if self.closed_after < 0:
            raise WrongOption("closed_after", f"{self.closed_after} is less than 0")
        for name, value in (("file_mib", self.file_mib), ("batch_messages", self.batch_messages)):
            if value < 1:
                raise WrongOption(name, f"{value} is less than 1")


def run(run: Run, options: Options) -> None:
    """Archive what there is, then merge the days that are closed."""
    archive = archive_table(run.spark, options.path or default_path(run))
    if archive.exists() and is_kept_here(open_table(archive.root).query):
        raise WrongTable(
            f"{archive.root} is written by `ams archive`, whose place is in the table; go on with that, or give "
            "another folder"
        )

    def handle(messages: DataFrame, batch_id: int) -> None:
        run.append(archive, dated(messages), batch_id)

    run.stream(read(run, options), handle, lambda: refresh(run, archive, options))


def read(run: Run, options: Options) -> DataFrame:
    """Return the stream of all topics that are meant."""
    return run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages))


def refresh(run: Run, archive: Table, options: Options) -> None:
    """Merge what is to be merged."""
    if not options.merge:
        return
    days = closed(archive.partitions_since(-1), options.closed_after)
    merged = archive.merge(days, file_bytes=options.file_mib * _MEBIBYTE)
    if merged:
        run.say(f"archive: merged {merged} files of days that are closed")


def default_path(run: Run) -> str:
    """Return where the archive of a run lies unless it is said."""
    return str(run.work / "tables" / "archive")


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said to `archive-check`."""

    archive: str
    """The folder of the archive."""
    project: str = "*"
    """A project or a pattern."""
    topics: tuple[str, ...] = ("*",)
    """Topics or patterns."""
    first: str = ""
    """The first day, such as 2024-03-05."""
    last: str = ""
    """The last day, itself included."""

    def __post_init__(self) -> None:
        self.selection()

    def selection(self) -> Selection:
        """Return which part of the archive is meant; raise `WrongOption`."""
        return selection(self.project, self.topics, self.first, self.last)


def run_check(run: Run, options: CheckOptions) -> None:
    """Tell what an archive holds and everything that is wrong with it; raise `CheckFailed` for anything."""
    found, wrong = check(run.spark, options.archive, options.selection())
    rows = [(name, *numbers) for name, numbers in sorted(summary(found).items())]
    run.count(sum(file.rows for file in found))
    print(table(("TOPIC", "MESSAGES", "FIRST", "LAST", "BYTES"), rows), flush=True)
    if wrong:
        print("\n".join(wrong), flush=True)
        raise CheckFailed(_counted(wrong, options.archive))


def _counted(wrong: Sequence[str], path: str) -> str:
    count = "1 thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
    return f"{count} not as it should be in {path}" + (", and there may be more" if len(wrong) >= MOST else "")


JOB = Job(
    "archive",
    "Topics to a Delta table, by project, topic and day",
    Options,
    run,
    harmless=frozenset(Options.__struct_fields__) - {"path"},
)
CHECK = Job(
    "archive-check",
    "Whether an archive has every message once",
    CheckOptions,
    run_check,
    harmless=frozenset(CheckOptions.__struct_fields__),
)
