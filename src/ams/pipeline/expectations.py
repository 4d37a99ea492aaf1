"""Expectations of rows: which are checked, counted, and set aside, and which end a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.checkpoint import Counted
from ams.pipeline.columns import BROKEN, PLACE, SOURCE
from ams.pipeline.errors import CheckFailed


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that each row should meet.

    Attributes:
        name: Names it in reasons and counts.
        holds: True for a row that meets it; null is not true.
        on_failure: `set_aside` moves a row that fails to quarantine, `warn` keeps it and prints a line, `fail` ends the
            run before anything of the batch is written.
        at_least: The share of rows that must meet it, for `warn` and `fail`.
    """

    name: str
    holds: Column
    on_failure: Literal["set_aside", "fail", "warn"] = "set_aside"
    at_least: float = 1.0

    @property
    def sets_aside(self) -> bool:
        """True if rows that fail go to quarantine."""
        return self.on_failure == "set_aside"


def check_rows(
    rows: DataFrame,
    expectations: Sequence[Expectation],
    where: str,
    cache: Callable[[DataFrame], DataFrame],
    say: Callable[[str], None],
) -> tuple[DataFrame, DataFrame | None, dict[str, Counted]]:
    """Check rows in the order of expectations: a row that is set aside is not checked further.

    Args:
        rows: Records, with the column `source` where rows are set aside.
        expectations: The conditions, each with a name of its own.
        where: Names the rows in errors, such as `batch 7`.
        cache: Keeps the rows, which are read several times.
        say: Prints the line of an expectation that warns.

    Returns:
        Rows that stay, rows set aside (`columns.BROKEN`), and the counts by expectation.

    Raises:
        CheckFailed: Too few rows meet an expectation whose `on_failure` is `fail`.
    """
    marks = {f"#{number}": each for number, each in enumerate(expectations)}
    marked, passed = rows, F.lit(True)  # in marked: true where it fails, null where it was not checked
    for mark, each in marks.items():
        marked = marked.withColumn(mark, F.when(passed, ~F.coalesce(each.holds, F.lit(False))))
        if each.sets_aside:
            passed = passed & ~F.col(mark)
    cached = cache(marked)
    sums = [F.struct(F.count(mark), F.count_if(F.col(mark))).alias(mark) for mark in marks]
    [found] = cached.agg(*sums).collect()
    counts = {each.name: Counted(*found[mark]) for mark, each in marks.items()}
    for each in expectations:
        _judge(each, counts[each.name], where, say)
    aside = {mark: each.name for mark, each in marks.items() if each.sets_aside}
    broken = _broken(cached.where(~passed), rows.columns, aside) if aside else None
    return cached.where(passed).select(*rows.columns), broken, counts


def _judge(expectation: Expectation, counted: Counted, where: str, say: Callable[[str], None]) -> None:
    good = counted.rows - counted.failed
    if expectation.sets_aside or good >= Decimal(str(expectation.at_least)) * counted.rows:
        return
    needed = f"{expectation.at_least * 100:.10g} %"
    held = f"it holds of {good:,} of {counted.rows:,} rows of {where}, and must of {needed}"
    told = f"expectation {expectation.name}: {held}"
    if expectation.on_failure == "fail":
        raise CheckFailed(f"{told}; nothing of {where} was written, and the next run begins with it")
    say(told)


def _broken(failed: DataFrame, names: Sequence[str], marks: dict[str, str]) -> DataFrame:
    row = F.to_json(F.struct(*(name for name in names if name != SOURCE)), {"ignoreNullFields": "false"})
    made = {
        **{name: F.col(SOURCE).getField(name) for name in PLACE.names},
        "attributes": F.from_json(F.lit("{}"), "map<string,string>"),
        "data": row.cast("binary"),
        "reason": F.coalesce(*(F.when(F.col(mark), F.lit(f"expectation {name}")) for mark, name in marks.items())),
    }
    return failed.select(*(made[name].alias(name) for name in BROKEN.names))
