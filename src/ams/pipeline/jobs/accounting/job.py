"""The job `accounting`: usage records from AMS to monthly summaries.

Every record is kept, by kind and month; results are computed from them for the months that something came for, and
replace what stood there. So a record that comes twice, late or out of turn changes nothing but what it should.

PostgreSQL has a table for each result; months are replaced whole. Groups appear and vanish when records come late (a
running machine is now completed). So a month's rows are deleted and written in one transaction: readers see the old
month or the new one.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Final

import msgspec
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from ams.pipeline.jobs.accounting import summaries
from ams.pipeline.jobs.accounting.envelope import EnvelopeTrust
from ams.pipeline.jobs.accounting.reader import parse
from ams.pipeline.jobs.base import Job
from ams.pipeline.postgres import VARIABLE, Rows, Session, address, identifier, load, map_errors, open_session, write
from ams.pipeline.run import Run
from ams.pipeline.session import persist_rows
from ams.pipeline.tables import Table
from ams.storage.files import Disk, write_whole

TABLES: Final = {name: schema for name, schema in summaries.RESULTS.items() if name != "machines"}

# Types of PostgreSQL by those of Spark; arrays and structs are kept as `jsonb`.
TYPES: Final = {"string": "text", "bigint": "bigint", "timestamp": "timestamptz", "decimal(10,3)": "numeric(10, 3)"}


def prepared_database(database: str) -> str:
    """Make missing tables and columns; return the connection string. Raises `WrongOption` or `PipelineError`."""
    to = address(database)
    with open_session(to) as connection, map_errors("the tables of accounting"), connection.transaction():
        for name, schema in TABLES.items():
            table, index = Identifier(f"accounting_{name}"), Identifier(f"accounting_{name}_month")
            connection.execute(SQL("CREATE TABLE IF NOT EXISTS {} ()").format(table))
            there = {each.name for each in connection.execute(SQL("TABLE {} LIMIT 0").format(table)).description or ()}
            for field in (each for each in schema if each.name not in there):
                column, kind = Identifier(field.name), SQL(TYPES.get(field.dataType.simpleString(), "jsonb"))
                connection.execute(SQL("ALTER TABLE {} ADD COLUMN {} {}").format(table, column, kind))
            connection.execute(SQL("CREATE INDEX IF NOT EXISTS {} ON {} (month, site)").format(index, table))
    return to


def _replace_in_database(frame: DataFrame, to: str, name: str) -> None:
    table, names = f"accounting_{name}", TABLES[name].names
    nested = [each.name for each in TABLES[name] if isinstance(each.dataType, ArrayType | StructType)]

    def put(connection: Session, rows: Rows) -> int:
        into = {"table": identifier(table), "columns": SQL(", ").join(map(Identifier, names))}
        with map_errors(f"table {table}"), connection.cursor() as cursor:
            load(cursor, SQL("SELECT {columns} FROM {table}").format(**into), names, rows)
            cursor.execute(SQL("DELETE FROM {table} WHERE month IN (SELECT month FROM incoming)").format(**into))
            cursor.execute(SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming").format(**into))
            return cursor.rowcount

    write(frame.select(*names).withColumns({each: F.to_json(each) for each in nested}), to, ["month"], put)


class AccountingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the job."""

    topics: tuple[str, ...] = ("gLite-APEL", "eu-egi-cloud-accounting", "eu-egi-storage-accounting")
    """The topics usage records come in; any kind may come in any of them."""
    ca: str = ""
    """A PEM file or a folder of them: authorities that a signer's certificate must come from; without it a signature
    is checked, but anyone's."""
    key: str = ""
    """A PEM file with the RSA key that senders encrypt for; without it encrypted messages are set aside."""
    certificate: str = ""
    """A PEM file with the certificate of `key`."""
    signed_only: bool = False
    """True if messages without a signature are set aside."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Messages a batch at most; each may hold a thousand records."""
    database: str = ""
    """`postgresql://USER@HOST:PORT/DATABASE` without a password, where results go too; empty takes
    `AMS_PIPELINE_DATABASE`, and where that is not set either they stay in files."""


def run(run: Run, options: AccountingOptions) -> None:
    """Read what came, keep it, and bring the months it is of up to date."""
    # Tasks may work in another folder than we do.
    trust = EnvelopeTrust(*(each and os.path.abspath(each) for each in (options.ca, options.key, options.certificate)))
    trust.check()
    read_message = partial(parse, trust=trust, signed_only=options.signed_only)
    to = prepared_database(options.database) if options.database or VARIABLE in os.environ else ""
    records = _records_of(run)

    def handle(messages: DataFrame) -> None:
        run.append(records, run.parsed(messages, read_message, summaries.RECORD))

    messages = run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages))
    run.stream(messages, handle, lambda: refresh(run, to))


def _records_of(run: Run) -> Table:
    return run.table("records", summaries.RECORDS, ("kind", "month"))


def refresh(run: Run, to: str) -> None:
    """Compute anew the months that records came for since the last time; `to` is the database, or empty."""
    records, mark = _records_of(run), run.work / "accounting.batch"  # the last batch that results were computed of
    last, touched = records.batch(), defaultdict[str, set[str]](set)
    for each in records.partitions_since(int(mark.read_text()) if mark.exists() else -1):
        touched[str(each["kind"])].add(str(each["month"]))

    def came(kind: str, months: Iterable[str]) -> DataFrame:
        return records.read([{"kind": kind, "month": month} for month in sorted(months)])

    def result(name: str) -> Table:
        return run.result(name, summaries.RESULTS[name], ("month",))

    def put(name: str, frame: DataFrame) -> None:
        if not to or name not in TABLES:
            result(name).replace(frame)
            return
        with persist_rows(frame.select(*summaries.RESULTS[name].names)) as rows:
            result(name).replace(rows)
            _replace_in_database(rows, to, name)

    for kind, name, sum_up in (
        ("job", "job_summaries", summaries.job_summaries),
        ("job_summary", "site_summaries", summaries.site_summaries),
        ("vm_summary", "site_vm_summaries", summaries.site_vm_summaries),
        ("storage", "storage_summaries", summaries.storage_summaries),
    ):
        if months := touched[kind]:
            put(name, sum_up(came(kind, months)))
    if months := touched["job"] | touched["job_summary"] | touched["sync"]:
        partitions = [{"month": month} for month in sorted(months)]
        summed = (result(name).read(partitions) for name in ("job_summaries", "site_summaries"))
        put("sync", summaries.comparison(came("sync", months), *summed))
    if months := touched["vm"]:
        put("machines", summaries.machines(came("vm", months)))
        # A machine's usage depends on earlier months: recompute all from the first one touched.
        usage = summaries.usage(result("machines").read()).where(F.col("month") >= min(months))
        put("vm_summaries", summaries.vm_summaries(usage))
    write_whole(Disk(), str(mark), str(last).encode())


JOB = Job("accounting", "Usage records of jobs, machines and storage, to monthly summaries", AccountingOptions, run)
