"""Timelines of statuses of a day, and their combination: pure values, in seconds from midnight UTC.

A status is one of the six words that monitoring results carry. An operation joins any number of them. The two that
availability reports use in production are orders: AND takes the worst, OR the best.

A timeline is kept as its changes, each to another status than the one before, so equal days are equal values.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise, product
from typing import NamedTuple

STATUSES = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")  # from the mildest to the worst
SEVERITY = {status: rank for rank, status in enumerate(STATUSES)}  # of two results in one second the worse one counts
BEST_FIRST = ("OK", "WARNING", "CRITICAL", "UNKNOWN", "DOWNTIME", "MISSING")  # OR is the first one present
DAY = 86_400  # seconds; monitoring's UTC has no leap seconds


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on statuses, given as a truth table."""

    name: str
    table: Mapping[tuple[str, str], str]

    def __post_init__(self) -> None:
        for a, b in product(STATUSES, repeat=2):
            if (a, b) not in self.table:
                raise ValueError(f"operation {self.name} does not say what {a} and {b} give")
        table = self.table
        for a, b, c in product(STATUSES, repeat=3):
            same = table[a, a] == a and table[a, b] == table[b, a]
            if not same or table[table[a, b], c] != table[a, table[b, c]]:
                raise ValueError(f"operation {self.name} gives another outcome for {a}, {b}, {c} in another order")

    def over(self, statuses: Iterable[str]) -> str:
        """Combine at least one status; order and repetition do not matter."""
        return reduce(lambda a, b: self.table[a, b], statuses)


def by_order(name: str, order: tuple[str, ...]) -> Operation:
    """Make the operation that returns the first status of `order` that is present."""
    return Operation(name, {(a, b): min(a, b, key=order.index) for a, b in product(order, repeat=2)})


AND = by_order("AND", STATUSES[::-1])
OR = by_order("OR", BEST_FIRST)


class StatusChange(NamedTuple):
    """From `second` on, `status` holds."""

    second: int
    status: str


class StatusSpan(NamedTuple):
    """`status` holds from second `start` up to, and without, second `end`."""

    start: int
    end: int
    status: str


class Timeline(NamedTuple):
    """The statuses of a day, or of two: then the day before has negative seconds. Made by the functions below."""

    changes: tuple[StatusChange, ...]

    def spans(self) -> Iterator[StatusSpan]:
        """Yield the spans of one status, in order, to the end of the day."""
        for change, after in pairwise((*self.changes, StatusChange(DAY, ""))):
            yield StatusSpan(change.second, after.second, change.status)

    def at(self, second: int) -> str:
        """Return the status at a second."""
        return self.changes[self.number(second)].status

    def number(self, second: int) -> int:
        """Return the index of the change in force at a second."""
        return bisect_right(self.changes, second, key=lambda change: change.second) - 1


def holding(before: str, results: Iterable[tuple[int, str]]) -> Timeline:
    """Make a timeline: `before` until the first result; of several results in a second the worst counts."""
    ordered = sorted(results, key=lambda result: (result[0], SEVERITY[result[1]]))
    return _shortest([StatusChange(0, before), *(StatusChange(*result) for result in ordered)])


def combine(operation: Operation, timelines: Sequence[Timeline]) -> Timeline:
    """Combine at least one timeline, second by second."""
    steps = sorted(
        (change.second, number, change.status)
        for number, timeline in enumerate(timelines)
        for change in timeline.changes[1:]
    )
    current = [timeline.changes[0].status for timeline in timelines]
    present = Counter(current)  # a counter instead of a lookup in every line: 300 lines with 100 changes each took 4 s
    changes = [StatusChange(0, operation.over(present))]
    for second, number, status in steps:
        present.subtract([current[number]])
        present[status] += 1
        current[number] = status
        changes.append(StatusChange(second, operation.over(+present)))
    return _shortest(changes)


def overridden(timeline: Timeline, spans: Iterable[StatusSpan]) -> Timeline:
    """Replace the statuses inside spans; spans may exceed the day."""
    for span in spans:
        start, end = max(span.start, 0), min(span.end, DAY)
        if start < end:
            before = (change for change in timeline.changes if change.second < start)
            resumed = [StatusChange(end, timeline.at(end))] if end < DAY else []
            after = (change for change in timeline.changes if change.second > end)
            timeline = _shortest([*before, StatusChange(start, span.status), *resumed, *after])
    return timeline


def join_days(eve: Timeline | None, today: Timeline) -> Timeline:
    """Join two days; seconds of the eve become negative. A place without the eve begins with the day."""
    before = [StatusChange(second - DAY, status) for second, status in eve.changes] if eve else []
    return _shortest([*before, *today.changes])


def _shortest(changes: Iterable[StatusChange]) -> Timeline:
    last_of_second = {change.second: change for change in changes}.values()
    return Timeline(tuple(next(same) for _, same in groupby(last_of_second, lambda change: change.status)))
