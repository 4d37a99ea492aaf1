"""The results of `worked.md`, whatever order its messages come in."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.jobs.accounting.job import Options, refresh, run
from ams.pipeline.running import Run
from ams.pipeline.tables import rows_of
from ams.tables.snapshot import open_table
from demo.pipeline.samples import Sample
from tests.pipeline.jobs.recorded import published, quarantined, recorded_run

WORKED = Path(__file__).with_name("worked.md").read_text()
TEXTS = re.findall(r"^```\n(.*?)^```$", WORKED, re.MULTILINE | re.DOTALL)

Line = tuple[str, ...]


def expected(name: str) -> tuple[Line, list[Line]]:
    """Return the head and the rows of a table of the worked example."""
    section = WORKED.split(f"\n## {name}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [tuple(cell.strip() for cell in line) for line in lines]
    return head, sorted(rows)


def shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(" ".join(str(part) for part in each) for each in value)
    return str(value)


def lines(frame: DataFrame, head: Sequence[str]) -> list[Line]:
    return sorted(tuple(shown(row[name]) for name in head) for row in frame.select(*head).collect())


def check(run: Run) -> None:
    for name in ("job_summaries", "site_summaries", "sync", "vm_summaries", "storage_summaries"):
        head, rows = expected(name)
        found = rows_of(run.spark, run.work / "results" / name)
        assert lines(found, head) == rows, name


@pytest.mark.long
def test_the_worked_example_comes_out_as_by_hand_from_messages_twice_late_and_in_any_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    doubled = [*TEXTS, *TEXTS]
    random.Random(1).shuffle(doubled)
    messages = published(Sample("gLite-APEL", text.encode()) for text in doubled)
    late = len(doubled) // 3

    for batch in (messages[late:], messages[:late]):
        job = recorded_run(spark, tmp_path, batch)
        run(job, Options())

    check(job)
    broken = quarantined(job)
    assert [(reason,) for _, reason in broken] == 2 * expected("reasons")[1]
    assert [data.decode() for data, _ in broken] == 2 * [text for text in TEXTS if "WallDuration: -7200" in text]

    results = list((tmp_path / "results").iterdir())
    written = [open_table(path).version for path in results]
    refresh(job, "")  # nothing came since
    assert [open_table(path).version for path in results] == written
