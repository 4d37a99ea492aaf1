"""Expectations: what is said of rows, how often it held, and what becomes of rows of which it does not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.checkpoint import Counted
from ams.pipeline.columns import BROKEN
from ams.pipeline.definition.fields import PLACED, SOURCE
from ams.pipeline.errors import CheckFailed

SET_ASIDE, FAIL, WARN = "set_aside", "fail", "warn"
"""What becomes of rows of which an expectation does not hold: they go to quarantine; the run ends; they stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Something that is said of each row."""

    name: str
    rule: str
    """What is said, as people read it; the name, unless another was given."""
    holds: Callable[[DataFrame, Column], Column]
    """Makes the column that is true where it holds, of the rows and of whether each came as far as this expectation."""
    on_failure: str
    at_least: Decimal = Decimal(1)
    """Of how large a share of the rows it must hold, where rows are not set aside."""

    def __str__(self) -> str:
        return f"expectation {self.name}" + ("" if self.name == self.rule else f": {self.rule}")

    @property
    def share(self) -> str:
        """Of how many rows in a hundred it must hold."""
        return f"{(self.at_least * 100).normalize():f} %"

    def judge(self, counted: Counted, where: str) -> str | None:
        """Return what is to be told when too few rows are as expected."""
        good = counted.rows - counted.failed
        if self.on_failure == SET_ASIDE or good >= self.at_least * counted.rows:
            return None
        return f"{self}: it holds of {good:,} of {counted.rows:,} rows of {where}, and must of {self.share}"


@dataclass(slots=True)
class Watch:
    """What is seen of the rows of one batch, or of one result, on their way through the steps."""

    where: str
    say: Callable[[str], None]
    stack: ExitStack
    counts: dict[str, Counted] = field(default_factory=dict)
    """By the names of expectations."""
    aside: list[DataFrame] = field(default_factory=list)
    """What is set aside (`columns.BROKEN`)."""

    def expect(self, expectations: Sequence[Expectation], rows: DataFrame) -> DataFrame:
        """Count the rows, and return those that go on. They are made once, and kept until the batch is done.

        Each expectation is about the rows that those before let pass. Raises `CheckFailed` for one that must not fail.
        """
        marks = {f"#{at}": each for at, each in enumerate(expectations)}  # no column of a definition has such a name
        marked, passed = _marked(rows, marks)
        self.stack.callback(marked.persist(StorageLevel.DISK_ONLY).unpersist)
        counts = _counts(marked, marks)
        self.counts |= counts
        for each in expectations:
            if told := each.judge(counts[each.name], self.where):
                if each.on_failure == FAIL:
                    raise CheckFailed(f"{told}; nothing of {self.where} was written, and the next run begins with it")
                self.say(told)
        if aside := {mark: each for mark, each in marks.items() if each.on_failure == SET_ASIDE}:
            self.aside.append(_broken(marked.where(~passed), rows.columns, aside))
        return marked.where(passed).select(*rows.columns)


@contextmanager
def watching(where: str, say: Callable[[str], None]) -> Iterator[Watch]:
    """Watch rows within the block, at whose end what was kept of them goes."""
    with ExitStack() as stack:
        yield Watch(where, say, stack)


def _marked(rows: DataFrame, marks: Mapping[str, Expectation]) -> tuple[DataFrame, Column]:
    """Return the rows with a column for each expectation, and what is true of those rows that go on.

    Such a column is true where the expectation does not hold, and null where a row did not come to it.
    """
    reached = F.lit(True)
    for mark, each in marks.items():
        rows = rows.withColumn(mark, F.when(reached, ~F.coalesce(each.holds(rows, reached), F.lit(False))))
        if each.on_failure == SET_ASIDE:
            reached = reached & ~F.col(mark)
    return rows, reached


def _counts(marked: DataFrame, marks: Mapping[str, Expectation]) -> dict[str, Counted]:
    """Return, by the name of each expectation, how many rows came to it, and of how many it does not hold."""
    sums = [(F.count(mark), F.count_if(F.col(mark))) for mark in marks]
    [found] = marked.agg(*(F.struct(*pair).alias(mark) for mark, pair in zip(marks, sums, strict=True))).collect()
    return {each.name: Counted(*found[mark]) for mark, each in marks.items()}


def _broken(failed: DataFrame, names: Sequence[str], marks: Mapping[str, Expectation]) -> DataFrame:
    """Return rows that do not go on as `columns.BROKEN`: each as JSON, with the first expectation it fails."""
    row = F.to_json(F.struct(*(name for name in names if name != SOURCE)), {"ignoreNullFields": "false"})
    made = {
        **{name: F.col(SOURCE).getField(name) for name in PLACED},
        "attributes": F.from_json(F.lit("{}"), "map<string,string>"),
        "data": row.cast("binary"),
        "reason": F.coalesce(*(F.when(F.col(mark), F.lit(str(each))) for mark, each in marks.items())),
    }
    return failed.select(*(made[name].alias(name) for name in BROKEN.names))
