"""Finding messages to give: those that come again, then those that were not given yet."""

import asyncio
from collections.abc import Sequence

import structlog

from ams.core.clock import Clock, Milliseconds
from ams.core.messages import Stored, attributes_of, ordering_key_of
from ams.core.names import Offset
from ams.core.offsets import bitmap_of, ranges_of
from ams.core.runs import runs_of, sizes
from ams.service.parallel.opening import Open, OpenSubscriptions
from ams.storage.log.base import Log

SLICE = 1000
"""Messages of one read at most, or as many as are asked for, of a pull for which nothing was found at first."""
SLICE_BYTES = 2**22
GROWTH_FACTOR = 8
SCAN_MS = 1000
"""For so long one pull looks at messages that are not for it, as those the filter passes over."""

logger = structlog.get_logger("ams.parallel")


class Finder:
    """Finds messages to lease or give back; one call for a subscription at a time."""

    def __init__(self, log: Log, opened: OpenSubscriptions, clock: Clock) -> None:
        self._log = log
        self._opened = opened
        self._clock = clock

    async def find(self, opened: Open, most: int, max_bytes: int, holder: str) -> Sequence[Stored]:
        """Return messages to give, in offset order: those that come again, and behind them as many new ones as fit.

        At least one, or at most so many bytes. Empty when there is nothing, or nothing was found within `SCAN_MS`: the
        next call goes on from there.
        """
        again = await self._again(opened, most, max_bytes) if opened.backlog.is_again_ready else []
        left = max_bytes - sizes(again)[0]
        if again and (len(again) == most or left <= 0):
            return again
        try:
            new = await self._new(opened, most - len(again), left, holder)
        except BaseException:
            opened.backlog.give_back(offsets_of(again))
            raise
        if not again:
            return new
        if sizes(new)[0] > left:  # one at least was read
            opened.backlog.give_back(offsets_of(new))
            return again
        return [*again, *new]

    async def _again(self, opened: Open, most: int, max_bytes: int) -> list[Stored]:
        backlog, found = opened.backlog, []
        offsets = backlog.again(most)
        left = max_bytes
        try:
            for begin, end in ranges_of(bitmap_of([(each, Offset(each + 1)) for each in offsets])):
                read = await self._log.read(opened.topic, begin, max_messages=end - begin, max_bytes=left)
                last = read[-1].offset + 1 if read else (await self._log.bounds(opened.topic)).oldest
                here = {each.offset for each in read}
                lost = [each for each in map(Offset, range(begin, min(end, last))) if each not in here]
                if lost:  # retention took them, or they are damaged
                    name = opened.subscription.name
                    logger.warning("subscription.lost", subscription=name, first=lost[0], messages=len(lost))
                    backlog.lose(lost)
                found += [each for each in read if each.offset < end]
                left -= sizes(read)[0]
                if left <= 0:
                    break
        except BaseException:
            backlog.give_back(offsets)
            raise
        taken = {each.offset for each in found}
        backlog.give_back([each for each in offsets if each not in taken])
        return found

    async def _new(self, opened: Open, most: int, max_bytes: int, holder: str) -> Sequence[Stored]:
        backlog, until = opened.backlog, self._clock.monotonic() + SCAN_MS
        many, room = most, max_bytes
        while backlog.may_scan(holder):
            start = backlog.scan
            read = await self._log.read(opened.topic, start, max_messages=many, max_bytes=room)
            if not read and not await self._is_hole(opened, start):
                break
            found = self._chosen(opened, read, most, max_bytes)
            if found or self._clock.monotonic() >= until:
                return found
            many, room = max(most, min(GROWTH_FACTOR * many, SLICE)), max(max_bytes, SLICE_BYTES)
            await asyncio.sleep(0)  # for the other requests
        return ()

    def _chosen(self, opened: Open, read: Sequence[Stored], most: int, max_bytes: int) -> Sequence[Stored]:
        """Return which of the messages that were read may be given, as many as fit; what is behind was not seen."""
        backlog, now = opened.backlog, self._clock.monotonic()
        looks = opened.filter is not None or opened.options.enable_message_ordering
        runs = runs_of(read)
        fits = len(read) <= most and sum([run.size for run in runs]) <= max_bytes
        takes_all = bool(runs) and fits and not looks and backlog.may_give_all(runs[0].first, runs[-1].end)
        chosen: list[Stored] = []
        left = max_bytes
        for run in runs:
            if run.first > backlog.scan:  # damaged, or left out when the topic was loaded
                backlog.done.pass_over(backlog.scan, run.first)
            for each in () if takes_all else run.messages:
                if chosen and (len(chosen) == most or len(each.fragment) > left):
                    return chosen
                if self._may_give(opened, each, now):
                    chosen.append(each)
                    left -= len(each.fragment)
                backlog.done.scanned(Offset(each.offset + 1))
            backlog.done.scanned(run.end)
        return read if takes_all else chosen

    def _may_give(self, opened: Open, message: Stored, now: Milliseconds) -> bool:
        backlog, (offset, _, fragment) = opened.backlog, message
        if not backlog.undone(offset, Offset(offset + 1)):
            return False
        if opened.filter is not None and not opened.filter.matches(attributes_of(fragment)):
            backlog.done.pass_over(offset, Offset(offset + 1))
            return False
        key = ordering_key_of(fragment) if opened.options.enable_message_ordering else ""
        return backlog.may_give(offset, key, now)

    async def _is_hole(self, opened: Open, start: Offset) -> bool:
        bounds = await self._log.bounds(opened.topic)
        if bounds.end <= start:
            return False
        await self._opened.retain(opened)
        # What was published since it was read is no hole.
        late = await self._log.read(opened.topic, start, max_messages=1, max_bytes=1)
        if not late and opened.backlog.scan == start:
            logger.warning("parallel.hole", subscription=opened.subscription.name, offset=start)
            opened.backlog.done.pass_over(start, bounds.end)
            opened.backlog.done.scanned(bounds.end)
        return True


def offsets_of(messages: Sequence[Stored]) -> list[Offset]:
    """Return the offsets of messages that are in offset order."""
    return [Offset(each) for run in runs_of(messages) for each in range(run.first, run.end)]
