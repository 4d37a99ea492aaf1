"""Splitting what is to be read into parts that are read side by side."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ams.pipeline.options import Name


class Part(NamedTuple):
    """A range of a topic: the offsets from `start` on, before `stop`."""

    topic: Name
    start: int
    stop: int
    id: str = ""
    """Which topic of that name it is; empty where the service does not tell."""


def parts(
    starts: Mapping[str, int],
    ends: Mapping[str, int],
    topics: Sequence[Name],
    least: int | None,
    ids: Mapping[str, str] | None = None,
) -> list[Part]:
    """Return the ranges between offsets, split evenly into at least so many if there are as many messages."""
    known = ids or {}
    ranges = [Part(topic, starts[str(topic)], ends[str(topic)], known.get(str(topic), "")) for topic in topics]
    whole = [each for each in ranges if each.start < each.stop]
    total = sum(each.stop - each.start for each in whole)
    return [piece for each in whole for piece in _split(each, _share(each, total, least or 1))]


def _share(part: Part, total: int, least: int) -> int:
    """Return into how many pieces a part is split, by its share of all messages, rounded up."""
    size = part.stop - part.start
    return min(size, max(1, -(-least * size // total)))


def _split(part: Part, pieces: int) -> list[Part]:
    size = part.stop - part.start
    edges = [part.start + size * number // pieces for number in range(pieces + 1)]
    return [part._replace(start=start, stop=stop) for start, stop in pairwise(edges)]


def limited(starts: Mapping[str, int], ends: Mapping[str, int], most: int | None) -> dict[str, int]:
    """Return ends at most so many messages behind the starts, shared out by what there is of each topic."""
    there = {topic: end - starts[topic] for topic, end in ends.items()}
    total = sum(there.values())
    if most is None or total <= most:
        return dict(ends)
    taken = {topic: most * count // total for topic, count in there.items()}
    for topic in taken:  # what was rounded off
        taken[topic] += min(most - sum(taken.values()), there[topic] - taken[topic])
    return {topic: starts[topic] + count for topic, count in taken.items()}
