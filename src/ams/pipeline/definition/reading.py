"""The steps of a definition while they are read, and rows on their way through them: counted, and put in order."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.core.yaml_tree import Value, read_capped
from ams.pipeline.checkpoint import Counted
from ams.pipeline.columns import BROKEN
from ams.pipeline.definition.fields import MESSAGE_TYPES, ORDERING_KEY, PLACED, SOURCE
from ams.pipeline.errors import CheckFailed
from ams.pipeline.expressions import types
from ams.pipeline.parsing import Parse

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
    """At whose end what was kept of the rows goes."""
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
        sums = [F.struct(F.count(mark), F.count_if(F.col(mark))).alias(mark) for mark in marks]
        [found] = marked.agg(*sums).collect()
        for mark, each in marks.items():
            self.counts[each.name] = counted = Counted(*found[mark])
            if told := each.judge(counted, self.where):
                if each.on_failure == FAIL:
                    raise CheckFailed(f"{told}; nothing of {self.where} was written, and the next run begins with it")
                self.say(told)
        if aside := {mark: each for mark, each in marks.items() if each.on_failure == SET_ASIDE}:
            self.aside.append(_broken(marked.where(~passed), rows.columns, aside))
        return marked.where(passed).select(*rows.columns)


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


Step = Callable[[DataFrame, Watch], DataFrame]
"""Something that is done to rows."""


@dataclass(slots=True)
class Steps:
    """Steps in their order, and the columns behind the last of them."""

    folder: str
    """Where the definition is: files it names are relative to it."""
    before: list[Step] = field(default_factory=list)
    """On messages, before they are parsed."""
    parse: Parse | None = None
    parsed: Mapping[str, DataType] = field(default_factory=dict)
    """The columns a parse makes, `attributes` among them, `source` not."""
    rows: list[Step] = field(default_factory=list)
    """On each row by itself."""
    whole: list[Step] = field(default_factory=list)
    """On all rows there are, computed anew whenever there are more: so it does not matter when a row came."""
    columns: dict[str, DataType] = field(default_factory=lambda: dict(MESSAGE_TYPES))
    """At the point that was read up to."""
    row_columns: dict[str, DataType] = field(default_factory=dict)
    """Of the rows that are kept, before the steps on all of them."""
    lines: list[str] = field(default_factory=list)
    """What each does, for people."""
    row_lines: list[str] = field(default_factory=list)
    """What those do that decide which rows there are before the steps on all of them."""
    checks: list[str] = field(default_factory=list)
    """Expectations that rows are only counted by, or that end the run."""
    expected: set[str] = field(default_factory=set)
    """The names of expectations."""
    said: list[str] = field(default_factory=list)
    """The names of the steps."""
    files: dict[str, str] = field(default_factory=dict)
    """Files they name, with hashes of what these hold."""

    @property
    def key_columns(self) -> Mapping[str, DataType]:
        """The columns that ordering keys can be made of: that of the message too, until parse or select leaves it."""
        is_there = {"parse", "select"}.isdisjoint(self.said)
        return {ORDERING_KEY: types.STRING, **self.columns} if is_there else self.columns

    def file(self, value: Value) -> bytes:
        """Return what a file holds that the definition names; raise `BadDocument` if it cannot be read."""
        content = read_capped(os.path.join(self.folder, value.text()))
        self.files[value.text()] = hashlib.sha256(content).hexdigest()
        return content

    def add(self, step: Step) -> None:
        """Append a step on rows, which is one on all rows behind another of these."""
        (self.whole if self.whole else self.rows).append(step)

    def add_whole(self, step: Step) -> None:
        """Append a step on all rows."""
        if not self.whole:
            self.row_columns = dict(self.columns)
        self.whole.append(step)


def through(steps: Sequence[Step], rows: DataFrame, watch: Watch) -> DataFrame:
    """Return rows after steps."""
    for step in steps:
        rows = step(rows, watch)
    return rows


ORDER = ("publish_time", "project", "topic", "offset")
"""Of what `source` holds, what messages are put in order by."""
_NUMBER = "#number"
"""A name that no column of a definition can have."""


def one_of_each(rows: DataFrame, by: Sequence[str], *, last: bool) -> DataFrame:
    """Return of the rows that are equal in `by` the first that was published, or the last."""
    return rows.withColumn(_NUMBER, place_among(rows, by, last=last)).where(F.col(_NUMBER) == 1).drop(_NUMBER)


def place_among(rows: DataFrame, by: Sequence[str | Column], *, last: bool = False) -> Column:
    """Return the place of each row, from 1, among those that are equal in `by`.

    Rows of one message are told apart by their content, so that it is the same whatever order they come in.
    """
    order = [F.col(SOURCE).getField(name) for name in ORDER] if SOURCE in rows.columns else []
    order.append(F.to_json(F.struct(*sorted(name for name in rows.columns if name != SOURCE))))
    window = Window.partitionBy(*by).orderBy(*(each.desc() if last else each.asc() for each in order))
    return F.row_number().over(window)
