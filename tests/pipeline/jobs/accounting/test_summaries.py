"""The steps from records to results, each by itself."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.jobs.accounting import summaries
from ams.pipeline.jobs.accounting.columns import JOB_SUMMARIES, RECORDS

ENDED = datetime(2024, 3, 5, tzinfo=UTC)


def frame(spark: SparkSession, schema: StructType, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def test_a_job_that_came_twice_counts_once_with_more_wall_time(spark: SparkSession) -> None:
    job = {"month": "2024-03", "site": "SITE-A", "job_id": "1", "end_time": ENDED, "wall": 10, "cpu": 3}
    records = frame(spark, RECORDS, job, {**job, "wall": 9, "cpu": 9}, {**job, "job_id": "2"}, job)

    [found] = summaries.job_summaries(records).collect()

    assert (found.site, found.jobs, found.wall, found.cpu, found.normalised) == ("SITE-A", 2, 20, 6, None)


def test_a_machine_used_in_a_month_what_it_did_not_use_before(spark: SparkSession) -> None:
    machine = {"site": "SITE-B", "vm_id": "a", "status": "started"}
    months = {"2024-01": 100, "2024-03": 250, "2024-04": None}
    records = frame(spark, RECORDS, *({**machine, "month": month, "wall": wall} for month, wall in months.items()))

    used = summaries.usage(summaries.machines(records))

    assert {row.month: row.wall for row in used.collect()} == {"2024-01": 100, "2024-03": 150, "2024-04": 0}


def test_a_row_of_one_record_says_its_message_and_of_the_same_records_the_first(spark: SparkSession) -> None:
    machine = {"month": "2024-03", "site": "SITE-B", "vm_id": "a", "wall": 10, "vms": 1}
    told = {**machine, "jobs": 3, "wall": 20}
    sources = [("p", "t", offset, str(offset), ENDED) for offset in (7, 5, 6)]
    records = frame(spark, RECORDS, *({**machine, "source": source} for source in sources))
    later = frame(spark, RECORDS, *({**told, "source": source} for source in sources)).union(records)

    results = summaries.machines(records), summaries.site_summaries(later), summaries.site_vm_summaries(later)

    assert [[(row.source.topic, row.source.offset) for row in each.collect()] for each in results] == [[("t", 5)]] * 3


def test_what_sites_told_stands_beside_what_came_also_without_a_submit_host(spark: SparkSession) -> None:
    of_host = {"month": "2024-03", "site": "SITE-A", "submit_host": None}
    told = frame(spark, RECORDS, {**of_host, "jobs": 7}, {**of_host, "jobs": 5}, {**of_host, "site": "B", "jobs": 1})
    came = frame(spark, JOB_SUMMARIES, {**of_host, "jobs": 4}, {**of_host, "site": "C", "jobs": 2})

    found = summaries.comparison(told, came, frame(spark, JOB_SUMMARIES, {**of_host, "site": "B", "jobs": 3}))

    assert {row.site: (row.told, row.missing, row.surplus) for row in found.collect()} == {
        "SITE-A": (7, 3, 0),
        "B": (1, 0, 2),
        "C": (None, None, None),
    }


def test_of_a_day_the_last_measure_of_a_storage_counts(spark: SparkSession) -> None:
    storage = {"month": "2024-03", "site": "SITE-A", "storage_system": "se"}
    times = ((5, 1, 900), (5, 23, 100), (6, 2, 201))
    records = frame(
        spark,
        RECORDS,
        *({**storage, "end_time": datetime(2024, 3, day, hour, tzinfo=UTC), "used": used} for day, hour, used in times),
    )

    [month] = summaries.storage_summaries(records).collect()

    assert (month.days, month.last_used, month.most_used, month.average_used) == (2, 201, 201, 151)
