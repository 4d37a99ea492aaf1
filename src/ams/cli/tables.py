"""`ams pipeline table`: looking after the tables that jobs keep; needs neither Spark nor a service."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from ams.cli.arguments import Output, argument, option, pairs, time_of
from ams.cli.command import Group
from ams.cli.exits import Usage
from ams.cli.extras import need
from ams.cli.output import Format, columns, note, printable, write
from ams.pipeline.errors import CheckFailed

if TYPE_CHECKING:
    from ams.tables.files import Partition

app = Group(
    "ams pipeline table history ams-pipeline/accounting/results/sites",
    "ams pipeline table restore ams-pipeline/accounting/results/sites 2024-03-05",
    "ams pipeline table merge archive --partition date=2024-03-04",
    "ams pipeline table vacuum archive --remove",
    help="Look after tables of jobs: history, restore, merge, vacuum, check.",
)

Table = Annotated[str, argument("TABLE", "Folder of the table.")]


@app.command()
def history(
    table: Table,
    limit: Annotated[int | None, option("The newest so many only.", metavar="N", min=1)] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the versions that are kept, newest first: when they came, by what, and how many rows and files."""
    need("tables")
    from ams.tables import upkeep

    found = [each._asdict() for each in upkeep.history(table, limit)]
    headers = ("VERSION", "TIME", "WHAT", "BATCH", "FILES", "ROWS", "FILES GONE")
    rows = [tuple("" if each is None else _cell(each) for each in done.values()) for done in found]
    write(output, found, columns(headers, rows))


@app.command()
def restore(
    table: Table,
    version: Annotated[str, argument("VERSION", "A number, or a time: the version of then.")],
) -> None:
    """Make the rows those of an earlier version again; a new version, so it can be undone.

    The run that writes the table goes on with its next batch. What batches since that version brought is gone.
    """
    need("tables")
    from ams.tables import upkeep

    found = upkeep.restore(table, _version(version))
    note(f"{table}: version {found.version} has the rows of {version}")


@app.command()
def merge(
    table: Table,
    partition: Annotated[
        list[str] | None, option("Only partitions with this value; repeatable.", "--partition", metavar="KEY=VALUE")
    ] = None,
    order: Annotated[str | None, option("Keep rows in the order of this column.", metavar="COLUMN")] = None,
) -> None:
    """Put a few large files in the place of many small ones; the rows stay the same, also for who reads meanwhile."""
    need("tables")
    from ams.tables import upkeep
    from ams.tables.snapshot import open_table

    wanted = pairs(partition, "--partition")
    found = [file.partition for file in open_table(table).files]
    gone = upkeep.merge(table, _chosen(found, wanted), order=order)
    note(f"{table}: {gone} files were put together")


@app.command()
def vacuum(
    table: Table,
    remove: Annotated[bool, option("Remove them; otherwise they are only listed.", "--remove")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List the files that no version needs that is still kept, or remove them."""
    need("tables")
    from ams.tables import upkeep

    found = upkeep.vacuum(table, dry_run=not remove)
    if found or output is Format.JSON:
        write(output, found, "\n".join(map(printable, found)))
    note(f"{table}: {len(found)} files {'were removed' if remove else 'can go: --remove'}")


@app.command()
def check(table: Table, output: Output = Format.TABLE) -> None:
    """Compare the log of a table with its files; ends with an error when they differ."""
    need("tables")
    from ams.tables import upkeep

    report = upkeep.check(table)
    lines = [f"{report.rows:,} rows in {report.files:,} files, {report.size:,} bytes", *report.wrong]
    write(output, asdict(report), "\n".join(map(printable, lines)))
    if report.unknown:
        note(f"{table}: {len(report.unknown)} files of attempts that failed, or of a batch at work; vacuum takes them")
    if report.wrong:
        raise CheckFailed(f"{table}: {len(report.wrong)} of {report.files} files are not as its log says")


def _cell(value: object) -> str:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else str(value)


def _version(text: str) -> int | datetime:
    try:
        return int(text) if text.isdigit() else time_of(text)
    except ValueError:
        raise Usage(f"{text!r} is neither a number nor a time such as 2024-03-05 or 2024-03-05T12:00:00Z") from None


def _chosen(partitions: "Iterable[Partition]", wanted: dict[str, str]) -> "list[Partition] | None":
    if not wanted:
        return None
    return [
        each for each in partitions if wanted.items() <= {name: value or "" for name, value in each.items()}.items()
    ]
