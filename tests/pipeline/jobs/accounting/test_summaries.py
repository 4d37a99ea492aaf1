"""The steps from records to results, each by itself."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.jobs.accounting import summaries
from ams.pipeline.jobs.accounting.columns import JOB_SUMMARIES, RECORDS

pytestmark = pytest.mark.long

ENDED = datetime(2024, 3, 5, tzinfo=UTC)


def frame(spark: SparkSession, schema: StructType, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def test_a_machine_used_in_a_month_what_it_did_not_use_before(spark: SparkSession) -> None:
    machine = {"site": "SITE-B", "vm_id": "a", "status": "started"}
    months = {"2024-01": 100, "2024-03": 250, "2024-04": None, "2024-05": 40, "2024-06": 45}  # reset in May
    records = frame(spark, RECORDS, *({**machine, "month": month, "wall": wall} for month, wall in months.items()))

    used = summaries.usage(summaries.machines(records))

    assert {row.month: (row.wall, row.reset) for row in used.collect()} == {
        "2024-01": (100, False),
        "2024-03": (150, False),
        "2024-04": (0, False),
        "2024-05": (40, True),
        "2024-06": (5, False),
    }


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
