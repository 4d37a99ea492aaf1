"""Rows that fail a definition's expectations, on Spark over a real service."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.exit_codes import Exit, exit_code
from ams.client import Message
from ams.pipeline.checkpoint import EXPECTATIONS, Counted, Expected, read_expected
from ams.pipeline.errors import CheckFailed
from tests.pipeline.conftest import Runs
from tests.pipeline.garden import Garden

PARSE = """\
source: {topic: walls, max_messages: 4}
steps:
  - parse: {format: json, fields: {site: string, job: bigint, wall: double, status: string}}
"""
EXPECT_STEP = """\
  - expect:
      - not_null: [site, job]
      - range: {column: wall, min: 0, max: 100}
        name: a sane wall time
      - unique: [site, job]
      - condition: status in ('OK', 'BAD')
"""


def definition(steps: str) -> str:
    return f"{PARSE}{steps}sink: {{table: walls}}\n"


def wall(site: str | None, job: int | None, wall: float | None = 1.0, status: str | None = "OK") -> Message:
    return Message(json.dumps({"site": site, "job": job, "wall": wall, "status": status}).encode(), {"vo": "ops"})


WALL_MESSAGES = [
    wall("A", 1), wall(None, 2), Message(b"no JSON"), wall("A", 3, -1.0),
    wall("A", 1, 5.0),  # the second batch: unique within a batch only
    wall("A", 4, None), wall("A", 4), wall("B", 5, 500.0, "BAD"), wall("B", 6, 1.0, None),
]  # fmt: skip
EXPECTED_COUNTS = {
    "not_null site, job": Counted(8, 1), "a sane wall time": Counted(7, 2), "unique site, job": Counted(5, 1),
    "condition status in ('OK', 'BAD')": Counted(4, 1),
}  # fmt: skip


@pytest.mark.long
def test_rows_that_are_not_as_expected_are_set_aside_with_the_reason(runs: Runs) -> None:
    runs.garden.topic("walls", WALL_MESSAGES)

    run = runs.do(definition(EXPECT_STEP))

    kept = runs.rows("tables/walls").orderBy("offset").collect()
    assert [(row.topic, row.offset, row.site, row.job) for row in kept] == [
        ("walls", 0, "A", 1), ("walls", 4, "A", 1), ("walls", 5, "A", 4),
    ]  # fmt: skip
    broken = {row.offset: row for row in runs.rows("quarantine").collect()}
    assert {offset: row.reason.partition(" (byte")[0] for offset, row in broken.items()} == {
        1: "expectation not_null site, job", 2: "not JSON: JSON is malformed: invalid character",
        3: "expectation a sane wall time: range wall from 0 to 100", 6: "expectation unique site, job",
        7: "expectation a sane wall time: range wall from 0 to 100",
        8: "expectation condition status in ('OK', 'BAD')",
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
    runs.do(definition(EXPECT_STEP))
    for each in ("commits/2", "commits/.2.crc"):
        (runs.work / "checkpoint" / each).unlink()
    last = Expected(
        batch=1, rows=EXPECTED_COUNTS | {each: Counted(of.rows - 1, of.failed) for each, of in EXPECTED_COUNTS.items()}
    )
    last.rows["condition status in ('OK', 'BAD')"] = Counted(3, 0)  # type: ignore[index]  # a dict
    (runs.work / EXPECTATIONS).write_bytes(msgspec.json.encode(last))

    again = runs.do(definition(EXPECT_STEP))

    assert read_expected(runs.work).rows == EXPECTED_COUNTS
    assert again.expectation_counts() == {name: Counted(1, name.startswith("cond")) for name in EXPECTED_COUNTS}
    assert (runs.rows("quarantine").count(), runs.rows("tables/walls").count()) == (6, 3)


@pytest.mark.long
def test_a_share_that_is_too_small_ends_the_run_before_anything_is_written_and_can_be_mended(runs: Runs) -> None:
    good = [wall("A", 1), wall("A", 2), wall(None, 3), wall("A", 4)]
    runs.garden.topic("walls", [*good, *([wall("B", 5, None, "BAD")] * 4)])
    share = "  - expect: [{not_null: site}, {share: {condition: status = 'OK', at_least: %s}}]\n"

    with pytest.raises(CheckFailed) as raised:
        runs.do(definition(share % "0.5"))
    assert exit_code(raised.value) is Exit.REFUSED
    assert str(raised.value) == (
        "expectation share status = 'OK': it holds of 0 of 4 rows of batch 1, and must of 50 %; "
        "nothing of batch 1 was written, and the next run begins with it"
    )
    assert (runs.rows("tables/walls").count(), runs.rows("quarantine").count()) == (3, 1)
    assert read_expected(runs.work).batch == 0
    rest = runs.do(definition(share % "0"))
    assert rest.counts() == (4, 0)
    assert rest.expectation_counts() == {"not_null site": Counted(4, 0), "share status = 'OK'": Counted(4, 4)}


@pytest.mark.long
def test_a_share_may_warn_and_rows_stay(runs: Runs) -> None:
    runs.garden.topic("walls", [wall(None, 1), wall("A", 2), wall("B", 3)])
    told: list[str] = []
    run = runs.begin()
    run.say = told.append
    share = "{share: {condition: site = 'A', at_least: 0.4}, on_failure: warn, name: mostly A}"

    runs.do(definition(f"  - expect: {{not_null: site, on_failure: warn}}\n  - expect: {share}\n"), run)
    assert told == [
        "expectation not_null site: it holds of 2 of 3 rows of batch 0, and must of 100 %",
        "expectation mostly A: share site = 'A': it holds of 1 of 3 rows of batch 0, and must of 40 %",
    ]
    assert (run.counts(), run.expectation_counts()) == (
        (3, 0), {"not_null site": Counted(3, 1), "mostly A": Counted(3, 2)},
    )  # fmt: skip


@pytest.mark.long
def test_a_result_is_replaced_only_when_it_is_as_expected(runs: Runs, garden: Garden) -> None:
    steps = definition(
        "  - expect: {not_null: site}\n"
        "  - aggregate: {by: [site], values: {jobs: count(*)}}\n"
        "  - expect: [{share: {condition: jobs > 1, at_least: 1}}, {unique: jobs, on_failure: warn}]\n"
    )
    garden.topic("walls", [wall("A", 1), wall("A", 2), wall("B", 1), wall("B", 2), wall(None, 1)])
    counted = runs.do(steps).expectation_counts()
    garden.publish("walls", [wall("C", 1)])

    with pytest.raises(CheckFailed, match=r"it holds of 2 of 3 rows of the result, and must of 100 %"):
        runs.do(steps)

    assert counted == {"not_null site": Counted(5, 1), "share jobs > 1": Counted(2, 0), "unique jobs": Counted(2, 1)}
    assert sorted(row.site for row in runs.rows("results/walls").collect()) == ["A", "B"]
    garden.publish("walls", [wall("C", 2)])
    runs.do(steps)
    assert sorted(row.site for row in runs.rows("results/walls").collect()) == ["A", "B", "C"]
    assert read_expected(runs.work).rows["not_null site"] == Counted(7, 1)


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
