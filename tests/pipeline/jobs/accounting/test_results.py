import random
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.accounting import summaries
from ams.pipeline.jobs.accounting.job import TABLES, AccountingOptions, prepared_database, refresh, run
from ams.pipeline.jobs.accounting.summaries import JOB_SUMMARIES, RECORDS
from ams.pipeline.tables import rows_of
from ams.tables.table import open_table
from demo.pipeline.samples import Sample
from tests.pipeline.jobs.recorded import read_quarantine, recorded_run, store_samples


def frame(spark: SparkSession, schema: StructType, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


@pytest.mark.long
def test_a_machine_used_in_a_month_what_it_did_not_use_before(spark: SparkSession) -> None:
    machine = {"site": "SITE-B", "vm_id": "a", "status": "started"}
    months = {"2024-01": 100, "2024-03": 250, "2024-04": None, "2024-05": 40, "2024-06": 45}  # reset in May
    records = frame(spark, RECORDS, *({**machine, "month": month, "wall": wall} for month, wall in months.items()))

    assert {row.month: (row.wall, row.reset) for row in summaries.usage(summaries.machines(records)).collect()} == {
        "2024-01": (100, False), "2024-03": (150, False), "2024-04": (0, False), "2024-05": (40, True),
        "2024-06": (5, False),
    }  # fmt: skip


@pytest.mark.long
def test_a_row_of_one_record_says_its_message_and_of_the_same_records_the_first(spark: SparkSession) -> None:
    machine = {"month": "2024-03", "site": "SITE-B", "vm_id": "a", "wall": 10, "vms": 1}
    told = {**machine, "jobs": 3, "wall": 20}
    sources = [("p", "t", offset, str(offset), datetime(2024, 3, 5, tzinfo=UTC)) for offset in (7, 5, 6)]
    records = frame(spark, RECORDS, *({**machine, "source": source} for source in sources))
    later = frame(spark, RECORDS, *({**told, "source": source} for source in sources)).union(records)

    results = summaries.machines(records), summaries.site_summaries(later), summaries.site_vm_summaries(later)

    assert [[(row.source.topic, row.source.offset) for row in each.collect()] for each in results] == [[("t", 5)]] * 3


@pytest.mark.long
def test_what_sites_told_stands_beside_what_came_also_without_a_submit_host(spark: SparkSession) -> None:
    of_host = {"month": "2024-03", "site": "SITE-A", "submit_host": None}
    told = frame(spark, RECORDS, {**of_host, "jobs": 7}, {**of_host, "jobs": 5}, {**of_host, "site": "B", "jobs": 1})
    came = frame(spark, JOB_SUMMARIES, {**of_host, "jobs": 4}, {**of_host, "site": "C", "jobs": 2})

    found = summaries.comparison(told, came, frame(spark, JOB_SUMMARIES, {**of_host, "site": "B", "jobs": 3}))

    assert {row.site: (row.told, row.missing, row.surplus) for row in found.collect()} == {
        "SITE-A": (7, 3, 0), "B": (1, 0, 2), "C": (None, None, None),
    }  # fmt: skip


WORKED_EXAMPLE = Path(__file__).with_name("worked.md").read_text()
TEXTS = re.findall(r"^```\n(.*?)^```$", WORKED_EXAMPLE, re.MULTILINE | re.DOTALL)

RESULTS = ("job_summaries", "site_summaries", "sync", "vm_summaries", "storage_summaries")
Line = tuple[str, ...]


def read_expected_rows(name: str) -> tuple[Line, list[Line]]:
    section = WORKED_EXAMPLE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [tuple(cell.strip() for cell in line) for line in lines]
    return head, sorted(rows)


def format_cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(" ".join(str(part) for part in each) for each in value)
    return str(value)


def lines(frame: DataFrame, head: Sequence[str]) -> list[Line]:
    return sorted(tuple(format_cell(row[name]) for name in head) for row in frame.select(*head).collect())


@pytest.mark.long
def test_the_worked_example_is_as_by_hand_in_any_order(spark: SparkSession, database: str, tmp_path: Path) -> None:
    doubled = [*TEXTS, *TEXTS]
    random.Random(1).shuffle(doubled)
    messages = store_samples(Sample("gLite-APEL", text.encode()) for text in doubled)
    late = len(doubled) // 3

    for batch in (messages[late:], messages[:late]):
        job = recorded_run(spark, tmp_path, batch)
        run(job, AccountingOptions())

    for name in RESULTS:
        head, rows = read_expected_rows(name)
        assert lines(rows_of(spark, job.work / "results" / name), head) == rows, name
    with closing(psycopg.connect(database)) as connection:
        for name in RESULTS:
            kept = connection.execute(f"SELECT count(*) FROM accounting_{name}").fetchone()
            assert kept == (len(read_expected_rows(name)[1]),), name
        in_month = connection.execute("SELECT sum(jobs), sum(wall) FROM accounting_job_summaries").fetchone()
    jobs = rows_of(spark, job.work / "results" / "job_summaries")
    assert in_month == tuple(jobs.agg({"jobs": "sum", "wall": "sum"}).collect()[0])
    broken = read_quarantine(job)
    assert [(reason,) for _, reason in broken] == 2 * read_expected_rows("reasons")[1]
    assert [data.decode() for data, _ in broken] == 2 * [text for text in TEXTS if "WallDuration: -7200" in text]

    results = list((tmp_path / "results").iterdir())
    written = [open_table(path).version for path in results]
    refresh(job, "")  # nothing came since
    assert [open_table(path).version for path in results] == written


def test_files_that_are_missing_are_told_before_anything_is_read(tmp_path: Path) -> None:
    job = recorded_run(None, tmp_path)  # type: ignore[arg-type]  # Spark is not asked

    with pytest.raises(WrongOption, match="option ca"):
        run(job, AccountingOptions(ca=str(tmp_path / "none")))
    with pytest.raises(WrongOption, match="option database"):
        run(job, AccountingOptions(database="postgresql://someone:secret@db.example/x"))


def test_a_table_of_before_is_given_the_columns_it_lacks_and_keeps_its_rows(database: str) -> None:
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("CREATE TABLE accounting_site_summaries (month text, site text)")
        connection.execute("INSERT INTO accounting_site_summaries VALUES ('2024-03', 'SITE-A')")

        prepared_database("")
        prepared_database("")

        found = connection.execute("SELECT * FROM accounting_site_summaries")
        assert {each.name for each in found.description or ()} == set(TABLES["site_summaries"].names)
        assert [row[:2] for row in found.fetchall()] == [("2024-03", "SITE-A")]
