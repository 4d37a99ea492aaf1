import random
import re
from datetime import UTC, date, datetime, timedelta
from math import nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs import metrics
from ams.pipeline.jobs.archive import archive_table, with_date
from ams.pipeline.report.page import Figure, Rows, Section, page, put
from ams.pipeline.report.plots import board, stacked_bars, timelines
from ams.pipeline.run import Run
from tests.pipeline.jobs.recorded import recorded_run, rows_of

MIDNIGHT = datetime(2024, 3, 5, tzinfo=UTC)
DRAWINGS = {
    "stacked bars": lambda: stacked_bars({"atlas": [175e3, 2.0], "<cms>": [0.5, 0.0]}, ["SITE-A", "SITE-B"], "hours"),
    "a board": lambda: board({"SITE-A": [99.5, nan], "SITE-B": [0.0, 100.0]}, ["5 March", "6 March"]),
    "timelines": lambda: timelines({"ce01.example.org": [(MIDNIGHT, MIDNIGHT + timedelta(hours=3), "CRITICAL")]}),
    "nothing": lambda: stacked_bars({}, [], "hours"),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_plot_is_a_well_formed_picture_and_the_same_each_time(name: str) -> None:
    drawn = DRAWINGS[name]()
    assert Xml.fromstring(drawn).tag.endswith("svg")
    assert drawn == DRAWINGS[name]()


def test_a_page_shows_its_sections_escapes_what_they_say_and_fetches_nothing() -> None:
    rows = Rows(("topic", "messages", "share"), [("<script>", 12345, 0.5), (None, True, -1), ("jobs", 7, None)], "All")
    plots = Section("Plots", content=[Figure(DRAWINGS["stacked bars"](), "Hours of sites")])

    written = page("Report", "of a day", [Section("Usage <1>", "a & b", [rows]), plots])

    assert "Usage &lt;1&gt;" in written
    assert "a &amp; b" in written
    assert '<td>&lt;script&gt;</td><td class="number">12,345</td><td class="number">0.50</td>' in written
    assert '<td>-</td><td>True</td><td class="number">-1</td>' in written
    assert '<th scope="col">topic</th><th scope="col">messages</th><th scope="col" class="number">share</th>' in written
    assert "<figcaption>Hours of sites</figcaption>" in written
    assert written.count("<svg") == 1
    assert not re.findall(r"<script|<link|<img|src=|@import|url\(http", written)


def test_a_page_is_put_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    for text in ("old", "Ζεύς"):
        put(tmp_path / "results" / "page.html", text)
    assert [each.name for each in (tmp_path / "results").iterdir()] == ["page.html"]
    assert (tmp_path / "results" / "page.html").read_text(encoding="utf-8") == "Ζεύς"


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
    chance = random.Random(7)
    begin = datetime(2024, 3, 1, tzinfo=UTC)
    rows = [
        {
            "project": "meadow", "topic": chance.choice(["plants", "stones"]), "offset": number,
            "message_id": str(number),
            "publish_time": begin + timedelta(milliseconds=chance.randrange(10 * 86_400_000)),
            "attributes": [("origin", origin)] if (origin := chance.choice(["athens", "bologna", ""])) else [],
            "data": bytes(chance.randrange(2000)),
        }
        for number in range(3000)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, to_arrow_schema(MESSAGES, timezone="UTC"))
    pq.write_table(table, tmp_path / "messages.parquet")
    return tmp_path / "messages.parquet"


@pytest.mark.long
def test_figures_are_those_of_another_engine(spark: SparkSession, path: Path) -> None:
    month = metrics.count(spark.read.parquet(str(path)), "2024-03", "origin")

    for keys, found in ((metrics.BY_DAY, month.days), (metrics.BY_MONTH, month.totals)):
        duckdb.sql("SET TimeZone = 'UTC'")
        expected = duckdb.sql(ORACLE.format(path=path, keys=", ".join(keys))).fetchall()
        rows = list(found[[*keys, *metrics.FIGURES]].itertuples(index=False, name=None))
        assert [row[:-2] for row in rows] == [pytest.approx(row[:-2]) for row in expected]
        assert [row[-1].astimezone(UTC) for row in rows] == [row[-1].astimezone(UTC) for row in expected]
    assert month.totals["messages"].sum() == 3000

    lines = metrics.as_text(month).splitlines()
    assert (lines[0].split("  ")[0], len(lines)) == ("PROJECT", 1 + 2 * 3)
    assert metrics.as_csv(month).count("\n") == 1 + len(month.days)
    page = metrics.as_page(month)
    assert "3,000 messages with" in page
    assert page.count("<svg") == 4


LAST_TIME = datetime(2024, 2, 29, 10, 20, 30, 123000, tzinfo=UTC)


def usage(topic: str, day: int, messages: int = 86400, publisher: str = "") -> dict[str, Any]:
    return {
        "project": "meadow", "topic": topic, "publisher": publisher, "date": date(2024, 2, day), "messages": messages,
        "bytes": 1024 * messages, "p95_bytes": 1024.5, "largest_bytes": 2048, "busiest_minute": 70, "first": LAST_TIME,
        "last": LAST_TIME,
    }  # fmt: skip


def make_february(*rows: dict[str, Any], by_publisher: bool = False) -> metrics.Month:
    schema = to_arrow_schema(StructType(metrics.USAGE.fields[:-1]), timezone="UTC")
    days = pa.Table.from_pylist(list(rows), schema).to_pandas()
    return metrics.Month("2024-02", days, days.drop(columns="date"), by_publisher)


def test_a_month_as_csv() -> None:
    month = make_february(usage("plants", 29, publisher='a,"b'), by_publisher=True)

    assert metrics.as_csv(month).splitlines()[1] == (
        '2024-02-29,meadow,plants,"a,""b",86400,88473600,1024.5,2048,1.0,70,'
        "2024-02-29T10:20:30.123Z,2024-02-29T10:20:30.123Z"
    )


def test_a_page_names_the_largest_puts_the_rest_together_and_escapes_what_publishers_call_themselves() -> None:
    topics = [usage(f"topic-{number}", 1, 100 - number, "<script>alert(1)</script>") for number in range(9)]

    page = metrics.as_page(make_february(*topics))

    assert set(re.findall(r"meadow/topic-\d", page)) == {f"meadow/topic-{number}" for number in range(7)}
    assert "others" in page
    assert page.count("<svg") == 2
    assert "<script>" not in metrics.as_page(make_february(*topics, by_publisher=True))


def test_a_month_without_messages_has_a_page_too() -> None:
    month = make_february()
    assert "0 messages" in metrics.as_page(month)
    assert month.length == 29
    assert metrics.following(date(2023, 12, 1)) == date(2024, 1, 1)


def test_a_month_that_is_none_is_refused() -> None:
    with pytest.raises(WrongOption, match=re.escape("option month: 'May' is no month such as 2024-03")):
        metrics.MetricsOptions(month="May")
    with pytest.raises(WrongOption, match="is no month"):
        metrics.MetricsOptions(month="9999-12")
    with pytest.raises(WrongOption, match="option topics: names no topic"):
        metrics.MetricsOptions(topics=())


def report(job: Run, archive: Path, month: str) -> list[tuple[object, ...]]:
    metrics.run(job, metrics.MetricsOptions(month=month, archive=str(archive)))
    return rows_of(job, "usage", "month, topic, date::VARCHAR, messages, bytes")


@pytest.mark.long
def test_the_table_has_each_month_as_it_was_reported_last(spark: SparkSession, tmp_path: Path) -> None:
    archive, job = tmp_path / "archive", recorded_run(spark, tmp_path / "work")
    keep_message(spark, archive, 0, datetime(2024, 2, 29, 12, tzinfo=UTC))
    keep_message(spark, archive, 1, datetime(2024, 3, 5, 12, tzinfo=UTC))
    february = ("2024-02", "plants", "2024-02-29", 1, 3)

    assert report(job, archive, "2024-02") == [february]
    assert report(job, archive, "2024-03") == [february, ("2024-03", "plants", "2024-03-05", 1, 3)]
    keep_message(spark, archive, 2, datetime(2024, 3, 5, 13, tzinfo=UTC))
    assert report(job, archive, "2024-03") == [february, ("2024-03", "plants", "2024-03-05", 2, 6)]
    assert report(job, archive, "2024-04") == [february, ("2024-03", "plants", "2024-03-05", 2, 6)]
    assert rows_of(job, "usage", 'epoch("first")::BIGINT, epoch("last")::BIGINT') == [
        (1_709_208_000, 1_709_208_000), (1_709_640_000, 1_709_643_600),
    ]  # fmt: skip


def keep_message(spark: SparkSession, archive: Path, number: int, time: datetime) -> None:
    row: dict[str, object] = {
        **dict.fromkeys(MESSAGES.names), "project": "garden", "topic": "plants", "offset": number,
        "message_id": str(number), "publish_time": time, "attributes": {}, "data": b"dry",
    }  # fmt: skip
    archive_table(spark, str(archive)).append(with_date(spark.createDataFrame([row], MESSAGES)), number, "query")
