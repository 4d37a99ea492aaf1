"""Runs: consecutive messages with one publish time.

Logs store runs and answers are encoded from runs. Single messages are made only on access.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple, cast, overload

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored, has_ordering_keys, sent_bytes
from ams.core.names import Offset


class Run(NamedTuple):
    """One or more messages with consecutive offsets and one publish time."""

    first: Offset
    time: Milliseconds
    fragments: Sequence[Fragment]
    size: int  # bytes of the fragments
    has_ordering_keys: bool  # False: no message has one

    @classmethod
    def of(cls, first: Offset, time: Milliseconds, fragments: Sequence[Fragment]) -> "Run":
        """Return a run, with its size and whether it has ordering keys."""
        return cls(first, time, fragments, sum(map(len, fragments)), has_ordering_keys(fragments))

    @property
    def end(self) -> Offset:
        """The offset after the last message."""
        return Offset(self.first + len(self.fragments))

    def part(self, start: Offset, most: int, room: int) -> "Run":
        """Return the part from `start` on: at most `most` messages and `room` bytes, but at least one message."""
        skip = start - self.first
        fragments = self.fragments[skip : skip + most]
        ends = list(accumulate(map(len, fragments)))
        if ends[-1] > room:
            fragments = fragments[: max(bisect_right(ends, room), 1)]
        return Run(start, self.time, fragments, ends[len(fragments) - 1], self.has_ordering_keys)

    @property
    def messages(self) -> Iterator[Stored]:
        """The single messages."""
        return map(Stored, cast("Sequence[Offset]", range(self.first, self.end)), repeat(self.time), self.fragments)


class Runs(Sequence[Stored]):
    """Messages of a read in offset order, as runs and as a sequence."""

    __slots__ = ("_count", "runs")

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._count = sum([len(run.fragments) for run in runs])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Stored]:
        for run in self.runs:
            yield from run.messages

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    @overload
    def __getitem__(self, place: int) -> Stored: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Stored]: ...
    def __getitem__(self, place: int | slice) -> Stored | Sequence[Stored]:
        if isinstance(place, slice):
            return list(self)[place]
        left = place if place >= 0 else place + self._count
        for run in self.runs:
            if 0 <= left < len(run.fragments):
                return Stored(Offset(run.first + left), run.time, run.fragments[left])
            left -= len(run.fragments)
        raise IndexError(place)


class Columns(Sequence[Stored]):
    """Messages in offset order as columns: compact for bulk loading and transfer between processes."""

    __slots__ = ("fragments", "offsets", "times")

    def __init__(self, offsets: "array[int]", times: "array[int]", fragments: list[Fragment]) -> None:
        self.offsets, self.times, self.fragments = offsets, times, fragments

    def extend(self, more: "Columns") -> None:
        """Append messages."""
        self.offsets += more.offsets
        self.times += more.times
        self.fragments += more.fragments

    @classmethod
    def of(cls, messages: Sequence[Stored]) -> "Columns":
        """Return messages as columns."""
        if isinstance(messages, Columns):
            return messages
        offsets, times = array("q", [each.offset for each in messages]), array("q", [each.time for each in messages])
        return cls(offsets, times, [each.fragment for each in messages])

    def __len__(self) -> int:
        return len(self.fragments)

    def __iter__(self) -> Iterator[Stored]:
        offsets, times = cast("Sequence[Offset]", self.offsets), cast("Sequence[Milliseconds]", self.times)
        return map(Stored, offsets, times, self.fragments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    @overload
    def __getitem__(self, place: int) -> Stored: ...
    @overload
    def __getitem__(self, place: slice) -> "Columns": ...
    def __getitem__(self, place: int | slice) -> "Stored | Columns":
        if isinstance(place, slice):
            return Columns(self.offsets[place], self.times[place], self.fragments[place])
        return Stored(Offset(self.offsets[place]), Milliseconds(self.times[place]), self.fragments[place])


def runs_of(messages: Sequence[Stored]) -> Sequence[Run]:
    """Return messages in offset order as runs."""
    if isinstance(messages, Runs):
        return messages.runs
    found: list[tuple[Offset, Milliseconds, list[Fragment]]] = []
    fragments: list[Fragment] = []
    end, moment = Offset(-1), Milliseconds(-1)
    for offset, time, fragment in messages:
        if offset != end or time != moment:
            fragments, moment = [], time
            found.append((offset, time, fragments))
        fragments.append(fragment)
        end = Offset(offset + 1)
    return [Run.of(*each) for each in found]


def sizes(messages: Sequence[Stored]) -> tuple[int, int]:
    """Return the bytes of messages in the log, and of their data as counted at publish."""
    runs = runs_of(messages)
    return sum([run.size for run in runs]), sum([sent_bytes(run.fragments, run.size) for run in runs])
