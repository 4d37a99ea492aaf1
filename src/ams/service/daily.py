"""Which days messages were published on, told from the log's publish times (UTC)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ams.core.clock import DAY, Milliseconds, day_of
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Log, Totals


class Share(NamedTuple):
    """What was published on one day."""

    day: int
    """Days since the epoch."""
    messages: int
    bytes: int


async def shares(log: Log, topic: TopicId, counted: Totals, now: Totals) -> list[Share]:
    """Return by day what was published between two totals of a topic, oldest day first; the sum is their difference.

    `counted.time` is any moment not after the first message to be told; None: not known. Messages that retention has
    taken meanwhile are told as of the earliest day they can be of. Bytes of several days are shared out by messages.
    Raises `NotFound` when the topic is gone.
    """
    messages = now.messages - counted.messages
    if messages <= 0 or now.time is None:
        return []
    last = day_of(now.time)
    first = last if counted.time is None else min(day_of(counted.time), last)
    if first == last:
        return [Share(last, messages, now.bytes - counted.bytes)]
    ends = await _ends(log, topic, Offset(counted.messages), Offset(now.messages), range(first, last))
    return list(_shared([*ends, (last, Offset(now.messages))], counted, now))


async def _ends(log: Log, topic: TopicId, start: Offset, end: Offset, days: range) -> list[tuple[int, Offset]]:
    """Return days with messages from `start` on, each with the offset its messages end at."""
    found: list[tuple[int, Offset]] = []
    day = days.start
    while day in days:
        stop = await log.offset_at(topic, Milliseconds((day + 1) * DAY))
        if stop is None:
            return [*found, (day, min((await log.bounds(topic)).end, end))]
        if stop > start:
            found.append((day, min(stop, end)))
            start = stop
        day = max(day + 1, await _day_at(log, topic, start, days.stop))
    return found


async def _day_at(log: Log, topic: TopicId, offset: Offset, last: int) -> int:
    """Return the day of a message; `last` when it cannot be read."""
    found = await log.read(topic, offset, max_messages=1, max_bytes=1)
    return day_of(found[0].time) if found else last


def _shared(ends: Iterable[tuple[int, Offset]], counted: Totals, now: Totals) -> Iterator[Share]:
    messages, size = now.messages - counted.messages, now.bytes - counted.bytes
    told, told_bytes = 0, 0
    for day, end in ends:
        until = end - counted.messages
        if until > told:
            until_bytes = size * until // messages
            yield Share(day, until - told, until_bytes - told_bytes)
            told, told_bytes = until, until_bytes
