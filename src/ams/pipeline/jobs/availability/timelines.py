"""A day as a line of statuses: pure values, in whole seconds from midnight UTC.

A timeline says for every second of one day which status holds. It is kept as its changes, the first at second 0, each
to another status than the one before, so equal days are equal values.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ams.pipeline.jobs.availability.statuses import SEVERITY, Operation

DAY = 86_400
"""Seconds of a day. UTC as monitoring writes it has no leap seconds."""


class Change(NamedTuple):
    """From `second` on, `status` holds."""

    second: int
    status: str


class Span(NamedTuple):
    """`status` holds from second `start` up to, and without, second `end`."""

    start: int
    end: int
    status: str


class Window(NamedTuple):
    """A part of the day, from second `start` up to, and without, second `end`; it may reach beyond the day."""

    start: int
    end: int


class Timeline(NamedTuple):
    """The statuses of one day. Made by the functions below, which keep it in its shortest form."""

    changes: tuple[Change, ...]

    def spans(self) -> Iterator[Span]:
        """Give the stretches of one status, in order, that together fill the day."""
        for change, after in pairwise((*self.changes, Change(DAY, ""))):
            yield Span(change.second, after.second, change.status)

    def at(self, second: int) -> str:
        """Say which status holds at a second of the day."""
        return self.changes[bisect_right(self.changes, second, key=lambda change: change.second) - 1].status

    def seconds(self) -> Counter[str]:
        """Count the seconds of each status; they sum to a day."""
        counted: Counter[str] = Counter()
        for start, end, status in self.spans():
            counted[status] += end - start
        return counted

    @property
    def last(self) -> str:
        """The status the day ends with."""
        return self.changes[-1].status


def holding(before: str, results: Iterable[tuple[int, str]]) -> Timeline:
    """Make the day on which each result's status holds until the next result.

    Args:
        before: what holds until the first result.
        results: second of the day and status, in any order, doubled or not. Of several at the same second the worst
            counts, so that the order of arrival does not matter.
    """
    ordered = sorted(results, key=lambda result: (result[0], SEVERITY[result[1]]))
    return _shortest([Change(0, before), *(Change(*result) for result in ordered)])


def combined(operation: Operation, timelines: Sequence[Timeline]) -> Timeline:
    """Join timelines, at least one, second by second."""
    if len(timelines) == 1:
        return timelines[0]
    steps = sorted(
        (change.second, number, change.status)
        for number, timeline in enumerate(timelines)
        for change in timeline.changes[1:]
    )
    current = [timeline.changes[0].status for timeline in timelines]
    present = Counter(current)
    changes = [Change(0, operation.over(present))]
    for second, number, status in steps:
        _replace(present, current[number], status)
        current[number] = status
        changes.append(Change(second, operation.over(present)))
    return _shortest(changes)


def overridden(timeline: Timeline, windows: Iterable[Window], status: str) -> Timeline:
    """Let `status` hold inside the windows, and what held before outside of them."""
    changes = list(timeline.changes)
    for window in windows:
        start, end = max(window.start, 0), min(window.end, DAY)
        if start < end:
            changes = _laid_over(Timeline(tuple(changes)), start, end, status)
    return _shortest(changes)


def _laid_over(timeline: Timeline, start: int, end: int, status: str) -> list[Change]:
    before = [change for change in timeline.changes if change.second < start]
    after = [change for change in timeline.changes if change.second > end]
    resumed = [Change(end, timeline.at(end))] if end < DAY else []
    return [*before, Change(start, status), *resumed, *after]


def _replace(present: Counter[str], old: str, new: str) -> None:
    present[old] -= 1
    if not present[old]:
        del present[old]
    present[new] += 1


def _shortest(changes: Iterable[Change]) -> Timeline:
    """Keep the last change of each second, and of those only the ones that change something."""
    by_second = {change.second: change for change in changes}
    kept: list[Change] = []
    for change in by_second.values():
        if not kept or kept[-1].status != change.status:
            kept.append(change)
    return Timeline(tuple(kept))
