"""Rows that fail expectations, on Spark over a real service."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.cli.exit_codes import Exit, exit_code
from ams.client import Message
from ams.pipeline.checkpoint import EXPECTATIONS, Counted, Expected, read_expected
from ams.pipeline.errors import CheckFailed, WrongOption
from pyspark_ams.jobs import Expectation, Json, Run
from tests.pipeline.conftest import Runs
from tests.pipeline.garden import Garden

COLUMNS = "site string, job bigint, wall double, status string"


def walls(*expectations: str, **settings: Any) -> Callable[[Run], None]:
    """Return a job that keeps the walls that are as expected; expectations are named by their SQL."""

    def keep(run: Run) -> None:
        parse = Json(COLUMNS)
        table = run.table("walls", parse.schema)

        def handle(messages: DataFrame) -> None:
            expected = (Expectation(each, F.expr(each), **settings) for each in expectations)
            run.append(table, run.expect(run.parsed(messages, parse), *expected))

        run.stream(run.topic("walls", maxOffsetsPerTrigger="4"), handle)

    return keep


def wall(site: str | None, job: int | None, wall: float | None = 1.0, status: str | None = "OK") -> Message:
    return Message(json.dumps({"site": site, "job": job, "wall": wall, "status": status}).encode(), {"vo": "ops"})


WALL_MESSAGES = [
    wall("A", 1), wall(None, 2), Message(b"no JSON"), wall("A", 3, -1.0),
    wall("A", 1, 5.0),  # the second batch: unique within a batch only
    wall("A", 4, None), wall("A", 4), wall("B", 5, 500.0, "BAD"), wall("B", 6, 1.0, None),
]  # fmt: skip
GIVEN, SANE, UNIQUE, KNOWN = (
    "site IS NOT NULL AND job IS NOT NULL", "wall IS NULL OR wall BETWEEN 0 AND 100",
    "row_number() OVER (PARTITION BY site, job ORDER BY source.offset) = 1", "status IN ('OK', 'BAD')",
)  # fmt: skip
EXPECTED_COUNTS = {GIVEN: Counted(8, 1), SANE: Counted(7, 2), UNIQUE: Counted(5, 1), KNOWN: Counted(4, 1)}


@pytest.mark.long
def test_rows_that_are_not_as_expected_are_set_aside_with_the_reason(runs: Runs) -> None:
    runs.garden.topic("walls", WALL_MESSAGES)

    run = runs.do(walls(GIVEN, SANE, UNIQUE, KNOWN))

    kept = runs.rows("tables/walls").orderBy("source.offset").collect()
    assert [(row.source.topic, row.source.offset, row.site, row.job) for row in kept] == [
        ("walls", 0, "A", 1), ("walls", 4, "A", 1), ("walls", 5, "A", 4),
    ]  # fmt: skip
    broken = {row.offset: row for row in runs.rows("quarantine").collect()}
    assert {offset: row.reason.partition(" (byte")[0] for offset, row in broken.items()} == {
        1: f"expectation {GIVEN}", 2: "not JSON: JSON is malformed: invalid character", 3: f"expectation {SANE}",
        6: f"expectation {UNIQUE}", 7: f"expectation {SANE}", 8: f"expectation {KNOWN}",
    }  # fmt: skip
    assert json.loads(broken[1].data) == {
        "site": None, "job": 2, "wall": 1.0, "status": "OK", "attributes": {"vo": "ops"},
    }  # fmt: skip
    assert (run.counts(), run.expectation_counts()) == ((3, 6), EXPECTED_COUNTS)


@pytest.mark.long
def test_a_batch_that_a_kill_brings_again_counts_once(runs: Runs) -> None:
    """Killed after the table's commit and before the counts: Spark's checkpoint does not know that the batch is
    done."""
    runs.garden.topic("walls", WALL_MESSAGES)
    runs.do(walls(GIVEN, SANE, UNIQUE, KNOWN))
    for each in ("commits/2", "commits/.2.crc"):
        (runs.work / "checkpoint" / each).unlink()
    last = Expected(
        batch=1, rows=EXPECTED_COUNTS | {each: Counted(of.rows - 1, of.failed) for each, of in EXPECTED_COUNTS.items()}
    )
    last.rows[KNOWN] = Counted(3, 0)  # type: ignore[index]  # a dict
    (runs.work / EXPECTATIONS).write_bytes(msgspec.json.encode(last))

    again = runs.do(walls(GIVEN, SANE, UNIQUE, KNOWN))

    assert read_expected(runs.work).rows == EXPECTED_COUNTS
    assert again.expectation_counts() == {name: Counted(1, name == KNOWN) for name in EXPECTED_COUNTS}
    assert (runs.rows("quarantine").count(), runs.rows("tables/walls").count()) == (6, 3)


@pytest.mark.long
def test_a_share_that_is_too_small_ends_the_run_before_anything_is_written_and_can_be_mended(runs: Runs) -> None:
    good = [wall("A", 1), wall("A", 2), wall("A", 3, None, "BAD"), wall("A", 4)]
    runs.garden.topic("walls", [*good, *([wall("B", 5, None, "BAD")] * 4)])

    with pytest.raises(CheckFailed) as raised:
        runs.do(walls("status = 'OK'", on_failure="fail", at_least=0.5))
    assert exit_code(raised.value) is Exit.REFUSED
    assert str(raised.value) == (
        "expectation status = 'OK': it holds of 0 of 4 rows of batch 1, and must of 50 %; "
        "nothing of batch 1 was written, and the next run begins with it"
    )
    assert runs.rows("tables/walls").count() == 4
    assert read_expected(runs.work).batch == 0
    rest = runs.do(walls("status = 'OK'", on_failure="fail", at_least=0))
    assert (rest.counts(), rest.expectation_counts()) == ((4, 0), {"status = 'OK'": Counted(4, 4)})


@pytest.mark.long
def test_a_share_may_warn_and_rows_stay(runs: Runs) -> None:
    runs.garden.topic("walls", [wall(None, 1), wall("A", 2), wall("B", 3)])
    told: list[str] = []
    run = runs.begin()
    run.say = told.append

    runs.do(walls("site = 'A'", on_failure="warn", at_least=0.4), run)

    assert told == ["expectation site = 'A': it holds of 1 of 3 rows of batch 0, and must of 40 %"]
    assert (run.counts(), run.expectation_counts()) == ((3, 0), {"site = 'A'": Counted(3, 2)})


@pytest.mark.long
def test_a_result_is_replaced_only_when_it_is_as_expected(runs: Runs, garden: Garden) -> None:
    def count(run: Run) -> None:
        parse = Json(COLUMNS)
        table = run.table("walls", parse.schema)

        def handle(messages: DataFrame) -> None:
            run.append(table, run.expect(run.parsed(messages, parse), Expectation("a site", F.col("site").isNotNull())))

        def refresh() -> None:
            jobs = table.read().groupBy("site").agg(F.count("*").alias("jobs"))
            run.replace("walls", run.expect(jobs, Expectation("jobs", F.col("jobs") > 1, on_failure="fail")))

        run.stream(run.topic("walls"), handle, refresh)

    garden.topic("walls", [wall("A", 1), wall("A", 2), wall("B", 1), wall("B", 2), wall(None, 1)])
    counted = runs.do(count).expectation_counts()
    garden.publish("walls", [wall("C", 1)])

    with pytest.raises(CheckFailed, match=r"it holds of 2 of 3 rows of the result, and must of 100 %"):
        runs.do(count)

    assert counted == {"a site": Counted(5, 1), "jobs": Counted(2, 0)}
    assert sorted(row.site for row in runs.rows("results/walls").collect()) == ["A", "B"]
    garden.publish("walls", [wall("C", 2)])
    runs.do(count)
    assert sorted(row.site for row in runs.rows("results/walls").collect()) == ["A", "B", "C"]
    assert read_expected(runs.work).rows["a site"] == Counted(7, 1)


def test_rows_of_a_result_are_not_set_aside(runs: Runs) -> None:
    rows = runs.spark.range(1)
    with pytest.raises(WrongOption, match="expectation a: rows of a result cannot be set aside"):
        runs.begin().expect(rows, Expectation("a", F.lit(True)))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8), st.data())
def test_a_batch_counts_once_however_often_it_is_done(batches: list[tuple[int, int]], data: st.DataObject) -> None:
    known = Expected()
    for number, (good, failed) in enumerate(batches):
        for _ in range(data.draw(st.integers(1, 3))):
            known = known.add_counts({"a": Counted(good + failed, failed)}, number)
        if data.draw(st.booleans()):
            known = msgspec.json.decode(msgspec.json.encode(known), type=Expected)

    total = Counted(sum(map(sum, batches)), sum(failed for _, failed in batches))
    assert known.rows.get("a", Counted(0, 0)) == total
