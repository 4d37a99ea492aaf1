"""Requests of cursors in a log, and the states that a start may find."""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from ams.core.clock import SystemClock
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, LogUnavailable
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.offsets import Range, bitmap_of, ranges_of
from ams.core.supervisor import Supervisor
from ams.storage.cursors.acks import AckUpdate
from ams.storage.cursors.base import NO_DEADLINE
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.log.embedded import EmbeddedLog

TOPIC, END = TopicId(b"c" * 16), Offset(10_000)
ORDERED, PARALLEL = (tuple(SubscriptionId(f"{kind}{number}") for number in range(3)) for kind in "sp")

Facts = tuple[int, list[Range], dict[Offset, int], int] | None  # floor, done, failures, lost; None: there is no cursor


@dataclass
class Positions:
    """Drives cursors and records requests; the first state of each is the process's current one."""

    lawful: dict[SubscriptionId, list[Facts]] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    _log: EmbeddedLog = field(init=False)

    async def open(self, log: EmbeddedLog) -> EmbeddedCursors:
        """Open cursors and check that each has a permitted position."""
        self._log = log
        cursors = await EmbeddedCursors.open(log.journal, {TOPIC: END}, SystemClock(), Supervisor())
        for key in (*ORDERED, *PARALLEL):
            found = await facts(cursors, key)
            assert found in self.lawful.get(key, [None]), f"{key} is at {found}, not at {self.lawful.get(key)}"
            self.lawful[key] = [found]
        return cursors

    async def move(self, cursors: EmbeddedCursors, chance: random.Random, beside: Sequence[Awaitable[None]]) -> None:
        """Move some cursors as one group, with appends at the same time."""
        keys = chance.sample((*ORDERED, *PARALLEL), chance.randint(1, 4))
        tasks = [asyncio.ensure_future(self._has_stored(call(cursors, key, chance))) for key in keys]
        await asyncio.sleep(0)
        asked = [await facts(cursors, key) for key in keys]  # they move in memory at once
        moving = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*beside)
        for key, after, answer in zip(keys, asked, await moving, strict=True):
            if answer is True:  # earlier unknown outcomes do not count any more
                self.lawful = {each: states[:1] for each, states in self.lawful.items()} | {key: [after]}
                self.outcomes.append("moved")
            elif answer is False:
                assert after == self.lawful[key][0]
            elif isinstance(answer, CursorsUnavailable):
                is_unknown = answer.message == OUTCOME_UNKNOWN
                self.lawful[key] += [after] * is_unknown
                self.outcomes.append("unknown" if is_unknown else "refused")
            else:
                raise answer
            assert await facts(cursors, key) == self.lawful[key][0]

    async def _has_stored(self, move: Awaitable[None]) -> bool:
        """Make a move; return whether it stored a group, as not every one changes something."""
        before = self._log.journal.commit
        await move
        return self._log.journal.commit > before

    async def image(self, log: EmbeddedLog) -> None:
        try:
            await log.journal.store_checkpoint()
        except (OSError, LogUnavailable):
            return


async def call(cursors: EmbeddedCursors, key: SubscriptionId, chance: random.Random) -> None:
    """Call a cursor; it moves before the first await."""
    offset, roll = Offset(chance.randrange(100)), chance.random()
    if key not in await cursors.places() or roll < 0.05:
        await cursors.create(key, TOPIC, offset, lost=chance.randrange(3))
        return
    position = await cursors.position(key, TOPIC)
    if roll < 0.15:
        await cursors.drop(key)
    elif roll < 0.3:
        await cursors.seek(key, TOPIC, offset)
    elif roll < 0.4:
        await cursors.retain(key, position.generation, Offset(position.offset + chance.randrange(5)))
    elif key in ORDERED:
        await cursors.hand_out(key, position.generation, Offset(position.offset + 10))
        await cursors.acknowledge(key, Offset(position.offset + chance.randrange(10)), NO_DEADLINE)
    else:
        await settle(cursors, key, chance, is_restore=roll < 0.5)


async def settle(cursors: EmbeddedCursors, key: SubscriptionId, chance: random.Random, *, is_restore: bool) -> None:
    progress = await cursors.progress(key)
    begins = [progress.floor + chance.randrange(60) for _ in range(chance.randrange(1, 12))]
    done = [(Offset(begin), Offset(begin + chance.randrange(1, 4))) for begin in begins]
    if is_restore:
        await cursors.restore(key, TOPIC, Offset(chance.randrange(100)), bitmap_of(done))
    elif not progress.run:
        await cursors.take_over(key, TOPIC)
    else:
        failures = {Offset(progress.floor + chance.randrange(60)): chance.randrange(1, 9)}
        await cursors.settle(key, progress.epoch, progress.run, AckUpdate(done, failures))


async def facts(cursors: EmbeddedCursors, key: SubscriptionId) -> Facts:
    if key not in await cursors.places():
        return None
    progress = await cursors.progress(key)
    return progress.floor, ranges_of(progress.done), dict(progress.failures), await cursors.lost_messages(key, {})
