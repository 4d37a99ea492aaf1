import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ams.pipeline.jobs.usage.figures import BY_DAY, BY_MONTH, FIGURES
from ams.pipeline.jobs.usage.job import count
from ams.pipeline.jobs.usage.report import as_csv, as_page, as_text

ORACLE = """
WITH sizes AS (
  SELECT project, topic, publish_time::DATE AS date, coalesce(attributes['origin'], '') AS publisher,
         publish_time, octet_length(data) AS bytes FROM read_parquet('{path}')
), minutes AS (
  SELECT {keys}, count(*) AS messages FROM sizes GROUP BY {keys}, date_trunc('minute', publish_time)
), busiest AS (SELECT {keys}, max(messages) AS busiest_minute FROM minutes GROUP BY {keys})
SELECT {keys}, count(*), sum(bytes), quantile_cont(bytes, 0.95), max(bytes), any_value(busiest_minute),
       min(publish_time), max(publish_time)
FROM sizes JOIN busiest USING ({keys}) GROUP BY {keys} ORDER BY {keys}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Messages of two topics, three publishers and ten days of March."""
    chance = random.Random(7)
    begin = datetime(2024, 3, 1, tzinfo=UTC)
    rows = [
        {
            "project": "meadow",
            "topic": chance.choice(["plants", "stones"]),
            "offset": number,
            "message_id": str(number),
            "publish_time": begin + timedelta(milliseconds=chance.randrange(10 * 86_400_000)),
            "attributes": [("origin", origin)] if (origin := chance.choice(["athens", "bologna", ""])) else [],
            "data": bytes(chance.randrange(2000)),
        }
        for number in range(3000)
    ]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("project", "topic")),
            ("offset", pa.int64()),
            ("message_id", pa.string()),
            ("publish_time", pa.timestamp("us", "UTC")),
            ("attributes", pa.map_(pa.string(), pa.string())),
            ("data", pa.binary()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "messages.parquet")
    return tmp_path / "messages.parquet"


def test_figures_are_those_of_another_engine(spark: SparkSession, path: Path) -> None:
    month = count(spark.read.parquet(str(path)), "2024-03", "origin")

    for keys, found in ((BY_DAY, month.days), (BY_MONTH, month.totals)):
        duckdb.sql("SET TimeZone = 'UTC'")
        expected = duckdb.sql(ORACLE.format(path=path, keys=", ".join(keys))).fetchall()
        rows = [tuple(getattr(each, name) for name in (*keys, *FIGURES)) for each in found]
        assert [row[:-2] for row in rows] == [pytest.approx(row[:-2]) for row in expected]
        assert [row[-1].astimezone(UTC) for row in rows] == [row[-1].astimezone(UTC) for row in expected]
    assert sum(each.messages for each in month.totals) == 3000

    lines = as_text(month).splitlines()
    assert lines[0].split("  ")[0] == "PROJECT"
    assert len(lines) == 1 + 2 * 3
    assert as_csv(month).count("\n") == 1 + len(month.days)
    page = as_page(month)
    assert "3,000 messages with" in page
    assert page.count("<svg") == 4
