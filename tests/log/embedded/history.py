"""A plain model of what a log was told and what it answered, and what may therefore be found in it."""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from ams.errors import AmsError, LogUnavailable, NotFound
from ams.log.base import Appended
from ams.log.embedded import EmbeddedLog
from ams.messages import Fragment, message
from ams.names import TopicId, new_topic_id
from tests.log.engines import Embedded


@dataclass
class Attempt:
    """An append that was asked for, and its answer if it got one."""

    fragments: list[Fragment]
    key: str | None
    answer: Appended | None = None


@dataclass
class Told:
    """What was asked of a topic."""

    created: bool = False
    """Whether the creation was acknowledged."""
    dropping: bool = False
    dropped: bool = False
    attempts: list[Attempt] = field(default_factory=list)


@dataclass
class History:
    """Drives a log and remembers; `check` compares what is in a log with what it was told."""

    topics: dict[TopicId, Told] = field(default_factory=dict)
    count: int = 0

    async def create(self, log: EmbeddedLog, retention: int | None = None) -> None:
        topic = new_topic_id()
        told = self.topics[topic] = Told()
        try:
            await log.create(topic, retention)
            told.created = True
        except LogUnavailable:
            return

    async def append(self, log: EmbeddedLog, which: int, sizes: list[int], *, keyed: bool = False) -> None:
        if not self.topics:
            return
        told, topic = self._pick(which)
        messages = [message(f"{self.count + n:06d}" + "x" * size) for n, size in enumerate(sizes)]
        attempt = Attempt([each.fragment for each in messages], f"key{self.count}" if keyed else None)
        self.count += len(sizes)
        told.attempts.append(attempt)
        try:
            attempt.answer = await log.append(topic, messages, key=attempt.key)
        except (LogUnavailable, NotFound):
            return

    async def drop(self, log: EmbeddedLog, which: int) -> None:
        if not self.topics:
            return
        told, topic = self._pick(which)
        told.dropping = True
        try:
            await log.drop(topic)
            told.dropped = told.created  # else it may have been unknown, and its creation come through after all
        except LogUnavailable:
            return

    async def set_retention(self, log: EmbeddedLog, which: int, retention: int) -> None:
        if not self.topics:
            return
        try:
            await log.set_retention(self._pick(which)[1], retention)
        except (LogUnavailable, NotFound):
            return

    async def check(self, log: EmbeddedLog) -> None:
        """Nothing acknowledged is lost, nothing is there that was not asked for, requests are whole."""
        there = await log.topics()
        assert there <= set(self.topics)
        for topic, told in self.topics.items():
            if told.created and not told.dropping:
                assert topic in there, "an acknowledged topic is gone"
            if told.dropped:
                assert topic not in there, "a dropped topic is back"
            if topic in there:
                await self._check_topic(log, topic, told)

    async def _check_topic(self, log: EmbeddedLog, topic: TopicId, told: Told) -> None:
        bounds = await log.bounds(topic)
        acknowledged = [each for each in told.attempts if each.answer is not None]
        ends = [each.answer.first + each.answer.count for each in acknowledged if each.answer]
        assert bounds.end >= max(ends, default=0), "the end went back"
        stored = await read_all(log, topic)
        oldest = (await log.bounds(topic)).oldest
        self._check_acknowledged(acknowledged, stored, oldest)
        self._check_unanswered(told, acknowledged, stored)
        await self._check_keys(log, topic, acknowledged, oldest)

    def _check_acknowledged(self, attempts: list[Attempt], stored: dict[int, bytes], oldest: int) -> None:
        for attempt in attempts:
            assert attempt.answer is not None
            for offset, fragment in enumerate(attempt.fragments, attempt.answer.first):
                if offset >= oldest:
                    assert stored[offset] == fragment, f"{offset} is not what was acknowledged"

    def _check_unanswered(self, told: Told, acknowledged: list[Attempt], stored: dict[int, bytes]) -> None:
        """What nobody was told is stored must have been asked for, and be there as a whole request."""
        known = {
            offset
            for each in acknowledged
            if each.answer
            for offset in range(each.answer.first, each.answer.first + each.answer.count)
        }
        rest = [fragment for offset, fragment in sorted(stored.items()) if offset not in known]
        unanswered = [each.fragments for each in told.attempts if each.answer is None]
        while rest:
            found = next((each for each in unanswered if rest[: len(each)] == each), None)
            assert found is not None, "a message that was not asked for, or half a request"
            unanswered.remove(found)
            rest = rest[len(found) :]

    async def _check_keys(self, log: EmbeddedLog, topic: TopicId, attempts: list[Attempt], oldest: int) -> None:
        for attempt in attempts:
            assert attempt.answer is not None
            if attempt.key is not None and attempt.answer.first >= oldest:
                messages = [message("again") for _ in attempt.fragments]
                messages = [each._replace(fragment=f) for each, f in zip(messages, attempt.fragments, strict=True)]
                assert await log.append(topic, messages, key=attempt.key) == attempt.answer

    def _pick(self, which: int) -> tuple[Told, TopicId]:
        topic = list(self.topics)[which % len(self.topics)]
        return self.topics[topic], topic


async def read_all(log: EmbeddedLog, topic: TopicId) -> dict[int, bytes]:
    """Read a topic from its oldest message on: no holes but what retention takes meanwhile; times do not go back."""
    offset, time, found = (await log.bounds(topic)).oldest, 0, {}
    while offset < (await log.bounds(topic)).end:
        messages = await log.read(topic, offset, max_messages=3, max_bytes=1 << 20)
        first = messages[0].offset if messages else (await log.bounds(topic)).end
        assert first == offset or first <= (await log.bounds(topic)).oldest, f"a hole at {offset}"
        assert [each.offset for each in messages] == list(range(first, first + len(messages)))
        assert [each.time for each in messages] == sorted(max(each.time, time) for each in messages)
        found |= {each.offset: each.fragment for each in messages}
        offset, time = first + len(messages), messages[-1].time if messages else time
    return found


Step = tuple[Any, ...]


async def act(history: History, log: EmbeddedLog, engine: Embedded, steps: list[Step]) -> None:
    """Take steps, one after the other but for `together`, whose appends are under way at once."""
    for name, *arguments in steps:
        if name == "together":
            await asyncio.gather(*(history.append(log, which, sizes) for which, sizes in arguments[0]))
        elif name == "advance":
            engine.clock.advance(arguments[0])
        elif name == "retain":
            try:
                await log.retain()
            except AmsError:
                continue
        else:
            await getattr(history, name)(log, *arguments)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario; one that hangs fails."""

    async def bounded() -> None:
        async with asyncio.timeout(5):
            await scenario

    asyncio.run(bounded())


async def open_anyway(engine: Embedded) -> EmbeddedLog | None:
    """Open the log; None when the power failed meanwhile."""
    try:
        return await engine.open()
    except AmsError:
        assert engine.disk.stopped
        return None


async def lose_power(engine: Embedded, steps: list[Step], stop_at: int, seed: int) -> tuple[History, EmbeddedLog]:
    """Take steps until the power fails at a change of the disk; return the log as it is after it came back."""
    history = History()
    engine.disk.stop_at = stop_at
    log = await open_anyway(engine)
    if log is not None:
        await act(history, log, engine, steps)
        engine.disk.stop_at = engine.disk.changes
        await log.close()
    engine.disk.power_loss(random.Random(seed))
    return history, await engine.open()
