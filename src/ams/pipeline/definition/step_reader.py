"""Steps of a definition while it is read, expectations, and the order of rows."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from operator import and_

import yaml
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.core.yaml_tree import Value, bad, read_capped
from ams.pipeline.checkpoint import Counted
from ams.pipeline.columns import BROKEN
from ams.pipeline.definition import fields
from ams.pipeline.definition.fields import MESSAGE_TYPES, PLACED, SOURCE, Findings
from ams.pipeline.errors import CheckFailed
from ams.pipeline.expressions import Expression, expression, types
from ams.pipeline.message_parser import Parse

SET_ASIDE, FAIL, WARN = "set_aside", "fail", "warn"  # rows that fail: quarantine them, end the run, or keep them


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition that each row should meet."""

    name: str
    rule: str  # for people; the default name
    holds: Callable[[DataFrame, Column], Column]
    """Makes a column, true where the rule holds, from the rows and a column that tells whether each row is checked."""
    on_failure: str
    at_least: Decimal = Decimal(1)

    def __str__(self) -> str:
        return f"expectation {self.name}" + ("" if self.name == self.rule else f": {self.rule}")

    @property
    def share(self) -> str:
        """The required percentage of rows."""
        return f"{(self.at_least * 100).normalize():f} %"

    def judge(self, counted: Counted, where: str) -> str | None:
        """Return the message if too few rows meet it, else None."""
        good = counted.rows - counted.failed
        if self.on_failure == SET_ASIDE or good >= self.at_least * counted.rows:
            return None
        return f"{self}: it holds of {good:,} of {counted.rows:,} rows of {where}, and must of {self.share}"


@dataclass(slots=True)
class BatchCounts:
    """Counts of one batch, or one result, on its way through the steps."""

    where: str
    say: Callable[[str], None]
    stack: ExitStack
    counts: dict[str, Counted] = field(default_factory=dict)
    aside: list[DataFrame] = field(default_factory=list)

    def expect(self, expectations: Sequence[Expectation], rows: DataFrame) -> DataFrame:
        """Check expectations in order, count rows, and return those that stay. Raises `CheckFailed`."""
        marks = {f"#{at}": each for at, each in enumerate(expectations)}  # no definition can have such a column
        marked, passed = rows, F.lit(True)  # in marked: true where it fails, null where it was not checked
        for mark, each in marks.items():
            holds = F.coalesce(each.holds(marked, passed), F.lit(False))
            marked = marked.withColumn(mark, F.when(passed, ~holds))
            if each.on_failure == SET_ASIDE:
                passed = passed & ~F.col(mark)
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


def _broken(failed: DataFrame, names: Sequence[str], marks: Mapping[str, Expectation]) -> DataFrame:
    row = F.to_json(F.struct(*(name for name in names if name != SOURCE)), {"ignoreNullFields": "false"})
    made = {
        **{name: F.col(SOURCE).getField(name) for name in PLACED},
        "attributes": F.from_json(F.lit("{}"), "map<string,string>"),
        "data": row.cast("binary"),
        "reason": F.coalesce(*(F.when(F.col(mark), F.lit(str(each))) for mark, each in marks.items())),
    }
    return failed.select(*(made[name].alias(name) for name in BROKEN.names))


Step = Callable[[DataFrame, BatchCounts], DataFrame]


@dataclass(slots=True)
class Steps:
    """Steps in order, and the columns after the last one."""

    folder: str  # of the definition: its files are relative to it
    before: list[Step] = field(default_factory=list)
    parse: Parse | None = None
    parsed: Mapping[str, DataType] = field(default_factory=dict)  # by parsing, with `attributes`, without `source`
    rows: list[Step] = field(default_factory=list)
    whole: list[Step] = field(default_factory=list)
    """Steps on all rows, computed anew when rows are added: the order of arrival does not matter."""
    columns: dict[str, DataType] = field(default_factory=lambda: dict(MESSAGE_TYPES))
    """Columns after the steps read so far."""
    row_columns: dict[str, DataType] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    row_lines: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    expected: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def file(self, value: Value) -> bytes:
        """Return the content of a file that the definition names. Raises `BadDocument`."""
        content = read_capped(os.path.join(self.folder, value.text()))
        self.files[value.text()] = hashlib.sha256(content).hexdigest()
        return content

    def add(self, step: Step) -> None:
        """Append a step on rows; after a step on all rows, it is one too."""
        (self.whole if self.whole else self.rows).append(step)

    def add_whole(self, step: Step) -> None:
        """Append a step on all rows."""
        if not self.whole:
            self.row_columns = dict(self.columns)
        self.whole.append(step)


def through(steps: Sequence[Step], rows: DataFrame, watch: BatchCounts) -> DataFrame:
    """Return rows after steps."""
    for step in steps:
        rows = step(rows, watch)
    return rows


ORDER = ("publish_time", "project", "topic", "offset")  # fields of `source` that order messages
_NUMBER = "#number"  # no column of a definition can have this name


def one_of_each(rows: DataFrame, by: Sequence[str], *, last: bool) -> DataFrame:
    """Return one row of those equal in `by`: the first published, or the last."""
    return rows.withColumn(_NUMBER, place_among(rows, by, last=last)).where(F.col(_NUMBER) == 1).drop(_NUMBER)


def place_among(rows: DataFrame, by: Sequence[str | Column], *, last: bool = False) -> Column:
    """Return each row's rank, from 1, among those equal in `by`; rows of one message are ordered by content."""
    order = [F.col(SOURCE).getField(name) for name in ORDER] if SOURCE in rows.columns else []
    order.append(F.to_json(F.struct(*sorted(name for name in rows.columns if name != SOURCE))))
    window = Window.partitionBy(*by).orderBy(*(each.desc() if last else each.asc() for each in order))
    return F.row_number().over(window)


Rule = tuple[str, Callable[[DataFrame, Column], Column]]  # its text, and what makes its boolean column
_SHARE = re.compile(r"0?\.\d{1,9}|[01](\.0{1,9})?", re.ASCII)
_LONGEST_NAME = 200


def expect_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `expect`: one expectation, or a list of them."""
    items = value.values() if isinstance(value.node, yaml.SequenceNode) else [value]
    found = [made for some in findings.each(items, lambda item: _expectation(item, steps, findings)) for made in some]
    if not items:
        findings.add(value, "at least one expectation is expected here")
    steps.add(lambda rows, watch: watch.expect(found, rows))
    if not steps.whole:
        steps.row_lines += [f"expect {each}" for each in found if each.on_failure == SET_ASIDE]
        steps.checks += [f"{each.on_failure} {each}, of {each.share}" for each in found if each.on_failure != SET_ASIDE]


def _expectation(item: Value, steps: Steps, findings: Findings) -> list[Expectation]:
    said = findings.mapping(item, (*_RULES, "name", "on_failure"))
    kinds = [name for name in _RULES if name in said]
    if len(kinds) != 1:
        raise bad(item.place, f"one of {', '.join(_RULES)} must be said{', not several' if kinds else ''}")
    [kind] = kinds
    # Only rows of a batch can be set aside: a result is computed anew each time.
    choices = [FAIL, WARN] if steps.whole or kind == "share" else [SET_ASIDE, FAIL, WARN]
    on_failure = choices[0]
    if "on_failure" in said:
        place = said["on_failure"].place
        if steps.whole and said["on_failure"].text() == SET_ASIDE:
            raise bad(place, "behind steps over all rows none is set aside: expect it before, or filter")
        on_failure = said["on_failure"].one_of(*choices)
    found: list[Expectation] = []
    with findings.catch(said[kind]):
        text, holds = _RULES[kind](said[kind], steps, findings)
        rule = f"{kind} {' '.join(text.split())}"[:_LONGEST_NAME]
        name = said["name"].text() if "name" in said else rule
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            raise bad(item.place, f"the name of an expectation is one line of at most {_LONGEST_NAME} characters")
        if name in steps.expected:
            raise bad(item.place, f"there is an expectation {name!r} already; give this one another name")
        steps.expected.add(name)
        share = Decimal(1)
        if kind == "share":
            at_least = said[kind].mapping()["at_least"]
            if not _SHARE.fullmatch(at_least.text()):
                raise bad(at_least.place, "a share from 0 to 1 is expected here, such as 0.95")
            share = Decimal(at_least.text())
        found.append(Expectation(name=name, rule=rule, holds=holds, on_failure=on_failure, at_least=share))
    return found


def _not_null(value: Value, steps: Steps, findings: Findings) -> Rule:
    names = fields.known_columns(_not_empty(value), steps.columns, findings)
    return ", ".join(names), lambda _, __: reduce(and_, (F.col(name).isNotNull() for name in names))


def _range(value: Value, steps: Steps, findings: Findings) -> Rule:
    said = findings.mapping(value, ("column", *_BOUNDS))
    if "column" not in said or len(said) < 2:
        raise bad(value.place, "column must be said, and min or max, or both")
    name = fields.known_column(said["column"], steps.columns)
    bounds: dict[str, Expression] = {}
    for bound in _BOUNDS.keys() & said.keys():
        with findings.catch(said[bound]):
            bounds[bound] = expression(said[bound].text(), {})
            kinds = [steps.columns[name], bounds[bound].type]
            both = types.common(kinds)
            if both is None or not types.is_ordered(both):
                shown = [types.type_text(each) for each in kinds]
                raise bad(said[bound].place, f"{name} is {shown[0]}, which is not compared with {shown[1]}")

    def holds(_: DataFrame, __: Column) -> Column:
        inside = [_BOUNDS[bound][1](F.col(name), limit.column()) for bound, limit in bounds.items()]
        return reduce(and_, inside) | F.col(name).isNull()

    told = [f"{word} {said[bound].text()}" for bound, (word, _) in _BOUNDS.items() if bound in said]
    return " ".join([name, *told]), holds


def _unique(value: Value, steps: Steps, findings: Findings) -> Rule:
    by = fields.known_keys(_not_empty(value), steps.columns, findings)
    return ", ".join(by), lambda rows, reached: place_among(rows, [reached, *by]) == 1


def _condition(value: Value, steps: Steps, _: Findings) -> Rule:
    found = fields.condition(value, steps.columns, "condition")
    return value.text(), lambda _, __: found.column().cast("boolean")


def _share(value: Value, steps: Steps, findings: Findings) -> Rule:
    said = findings.mapping(value, ("condition", "at_least"))
    if len(said) < 2:
        raise bad(value.place, "condition and at_least must be said")
    rule: list[Rule] = findings.each([said["condition"]], lambda each: _condition(each, steps, findings))
    return rule[0] if rule else ("", lambda _, reached: reached)


def _not_empty(value: Value) -> Value:
    if not fields.values_of(value):
        raise bad(value.place, "at least one column is expected here")
    return value


_BOUNDS = {"min": ("from", Column.__ge__), "max": ("to", Column.__le__)}
_RULES: Mapping[str, Callable[[Value, Steps, Findings], Rule]] = {
    "not_null": _not_null,
    "range": _range,
    "unique": _unique,
    "condition": _condition,
    "share": _share,
}
