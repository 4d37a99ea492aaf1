"""A plain model of a log's requests and answers, and of the contents that these permit."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from ams.core.errors import AmsError, LogUnavailable, NotFound, OutcomeUnknown
from ams.core.messages import Fragment, Message, Stored, message
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Appended
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from tests.storage.log.engines import HOUR, Embedded
from tests.support.waiting import PATIENCE_SECONDS

IsKept = Callable[[int, int], bool]
DEFAULT_RETENTION = LogOptions().retention
SWEEP_MARGIN_MS = 1000  # milliseconds by which messages that are too old may be seen longer


@dataclass
class Attempt:
    """An append, and its outcome."""

    fragments: list[Fragment]
    key: str | None
    answer: Appended | None = None
    earlier: Appended | None = None
    """Earlier answer, if those messages were deleted for size and the same append was stored again."""
    in_doubt: bool = False  # whether the outcome was answered as unknown

    @property
    def is_refused(self) -> bool:
        """Return whether every answer was that nothing is stored."""
        return self.answer is None and not self.in_doubt

    @property
    def messages(self) -> list[Message]:
        return [message("")._replace(fragment=fragment) for fragment in self.fragments]

    async def ask(self, log: EmbeddedLog, topic: TopicId) -> None:
        """Append, again with the same key, and note the answer."""
        try:
            self.answer = await log.append(topic, self.messages, key=self.key)
        except OutcomeUnknown:
            self.in_doubt = True
        except (LogUnavailable, NotFound):
            return


@dataclass
class TopicHistory:
    retentions: set[int]  # retentions that may be in force: requested, acknowledged or not
    created: bool = False  # whether the creation was acknowledged
    dropping: bool = False
    dropped: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    floor: int = 0  # the oldest offset when retention was done
    seen: dict[int, Stored] = field(default_factory=dict)  # messages that were read; they were durable by then

    @property
    def answered_attempts(self) -> list[Attempt]:
        return [each for each in self.attempts if each.answer is not None]


@dataclass
class History:
    """Drives a log and records requests and answers; `check` compares a log's contents with them."""

    topics: dict[TopicId, TopicHistory] = field(default_factory=dict)
    count: int = 0
    limited: bool = False
    """True if messages are also deleted for size; then any may be gone, but none comes back."""

    async def create(self, log: EmbeddedLog, retention: int | None = None) -> None:
        topic = new_topic_id()
        told = self.topics[topic] = TopicHistory({retention or DEFAULT_RETENTION})
        try:
            await log.create(topic, retention)
            told.created = True
        except LogUnavailable:
            return

    async def append(self, log: EmbeddedLog, which: int, sizes: list[int], keyed: bool = False) -> None:
        if not self.topics:
            return
        told, topic = self._pick(which)
        messages = [message(f"{self.count + n:06d}" + "x" * size) for n, size in enumerate(sizes)]
        attempt = Attempt([each.fragment for each in messages], f"key{self.count}" if keyed else None)
        self.count += len(sizes)
        told.attempts.append(attempt)
        await attempt.ask(log, topic)

    async def drop(self, log: EmbeddedLog, which: int) -> None:
        if not self.topics:
            return
        told, topic = self._pick(which)
        told.dropping = True
        try:
            await log.drop(topic)
            told.dropped = told.created  # otherwise its creation may have been unknown, and succeed after all
        except LogUnavailable:
            return

    async def set_retention(self, log: EmbeddedLog, which: int, retention: int) -> None:
        if not self.topics:
            return
        told, topic = self._pick(which)
        told.retentions.add(retention)
        try:
            await log.set_retention(topic, retention)
        except (LogUnavailable, NotFound):
            return

    async def retain(self, log: EmbeddedLog) -> None:
        try:
            await log.retain()
            for topic, bounds in (await log.all_bounds()).items():
                self.topics[topic].floor = bounds.oldest
        except LogUnavailable:
            return

    async def check(self, log: EmbeddedLog, now: int) -> None:
        """Check that nothing acknowledged is lost, nothing refused or unrequested is there, and requests are whole."""
        there = await log.topics()
        assert there <= set(self.topics)
        for topic, told in self.topics.items():
            if told.created and not told.dropping:
                assert topic in there, "an acknowledged topic is gone"
            if told.dropped:
                assert topic not in there, "a dropped topic is back"
            if topic in there:
                await self._check_topic(log, topic, told, now)

    async def _check_topic(self, log: EmbeddedLog, topic: TopicId, told: TopicHistory, now: int) -> None:
        stored = await read_stored(log, topic)
        bounds = await log.bounds(topic)
        # Retention may have deleted more meanwhile.
        stored = {offset: each for offset, each in stored.items() if offset >= bounds.oldest}
        ends = [each.answer.first + each.answer.count for each in told.answered_attempts if each.answer]
        assert bounds.end >= max(ends, default=0), "the end went back"
        assert bounds.oldest >= told.floor, "what retention took is back"
        assert bounds.oldest == min(stored, default=bounds.end), "the oldest offset is not that of the oldest message"
        found = {offset: each.fragment for offset, each in stored.items()}
        young = now - min(told.retentions)
        self._check_acknowledged(told, found, self._must_keep(bounds.oldest, young))
        self._check_ages(told, stored, now)
        self._check_unanswered(told, found)
        told.seen |= stored
        await self._check_keys(log, topic, told, self._must_keep(bounds.oldest, young))

    def _must_keep(self, oldest: int, young: int) -> IsKept:
        """Return a predicate whether a message must be there, by its offset and time."""
        return lambda offset, time: offset >= oldest if self.limited else time >= young

    def _check_acknowledged(self, told: TopicHistory, stored: dict[int, bytes], kept: IsKept) -> None:
        """Check that acknowledged messages, and those seen, stay until a retention they may have had deletes them."""
        for attempt in told.answered_attempts:
            assert attempt.answer is not None
            for offset, fragment in enumerate(attempt.fragments, attempt.answer.first):
                assert offset in stored or not kept(offset, attempt.answer.time), (
                    f"{offset} was acknowledged, and is gone"
                )
                assert stored.get(offset, fragment) == fragment, f"{offset} is not what was acknowledged"
        for offset, seen in told.seen.items():
            assert stored.get(offset) == seen.fragment or not kept(offset, seen.time), f"{offset} was seen, and is gone"

    def _check_ages(self, told: TopicHistory, stored: dict[int, Stored], now: int) -> None:
        """Check that messages older than any permitted retention are not served."""
        oldest = now - max(told.retentions) - SWEEP_MARGIN_MS
        assert all(each.time >= oldest for each in stored.values()), "messages are served that are too old"

    def _check_unanswered(self, told: TopicHistory, stored: dict[int, bytes]) -> None:
        """Check that a stored append without an answer was requested, was not refused, and is whole."""
        known = {
            offset for attempt in told.answered_attempts for each in (attempt.answer, attempt.earlier) if each
            for offset in range(each.first, each.first + each.count)
        }  # fmt: skip
        rest = [fragment for offset, fragment in sorted(stored.items()) if offset not in known]
        unknown = [each.fragments for each in told.attempts if each.answer is None and each.in_doubt]
        while rest:
            found = next((each for each in unknown if rest[: len(each)] == each), None)
            assert found is not None, "a message that was not asked for, or was refused, or half a request"
            unknown.remove(found)
            rest = rest[len(found) :]

    async def _check_keys(self, log: EmbeddedLog, topic: TopicId, told: TopicHistory, kept: IsKept) -> None:
        """Repeat appends with keys: answered ones get their answer, refused ones are new, unknown ones are
        stored once."""
        for attempt in [each for each in told.attempts if each.key is not None]:
            before, refused, end = attempt.answer, attempt.is_refused, (await log.bounds(topic)).end
            if before is not None and not kept(before.first, before.time):
                continue
            await attempt.ask(log, topic)
            assert attempt.answer is not None
            if self.limited and before is not None and before.first < (await log.bounds(topic)).oldest:
                attempt.earlier = before  # it was being deleted: the power may fail before that
            elif before is not None:
                assert attempt.answer == before, "a key was forgotten"
            if refused:
                assert attempt.answer.first == end, "what was refused was stored"

    def _pick(self, which: int) -> tuple[TopicHistory, TopicId]:
        topic = list(self.topics)[which % len(self.topics)]
        return self.topics[topic], topic


async def read_all(log: EmbeddedLog, topic: TopicId) -> dict[int, bytes]:
    return {offset: each.fragment for offset, each in (await read_stored(log, topic)).items()}


async def read_stored(log: EmbeddedLog, topic: TopicId) -> dict[int, Stored]:
    """Read a topic from its oldest message: gaps only by retention meanwhile; times do not go back."""
    offset, time, found = (await log.bounds(topic)).oldest, 0, {}
    while offset < (await log.bounds(topic)).end:
        messages = await log.read(topic, offset, max_messages=3, max_bytes=1 << 20)
        first = messages[0].offset if messages else (await log.bounds(topic)).end
        assert first == offset or first <= (await log.bounds(topic)).oldest, f"a hole at {offset}"
        assert [each.offset for each in messages] == list(range(first, first + len(messages)))
        assert [each.time for each in messages] == sorted(max(each.time, time) for each in messages)
        found |= {each.offset: each for each in messages}
        offset, time = first + len(messages), messages[-1].time if messages else time
    return found


Step = tuple[Any, ...]
REUSE: tuple[Step, ...] = (
    ("create", HOUR), ("advance", HOUR // 8), *[("append", -1, [500])] * 5, ("advance", HOUR - HOUR // 16),
    ("append", -1, [500]), ("advance", HOUR // 16 + 1), ("retain",), *[("append", -1, [500])] * 8,
)  # fmt: skip
"""Steps after which, with segments of 4000 bytes, a segment reuses a file with similar records."""


async def act_steps(history: History, log: EmbeddedLog, engine: Embedded, steps: Iterable[Step]) -> None:
    """Do steps one after the other; the appends of `together` run concurrently."""
    for name, *arguments in steps:
        if name == "together":
            await asyncio.gather(*(history.append(log, *each) for each in arguments[0]))
        elif name == "advance":
            engine.clock.advance(arguments[0])
        else:
            await getattr(history, name)(log, *arguments)


def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
    async def run_in_time() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scenario

    asyncio.run(run_in_time())


async def open_anyway(engine: Embedded) -> EmbeddedLog | None:
    """Open the log; None when the power or another call failed meanwhile."""
    try:
        return await engine.open()
    except AmsError:
        assert engine.disk.is_stopped or engine.disk.failed
        return None


async def end_log(engine: Embedded, log: EmbeddedLog | None, ending: str, chance: random.Random | None = None) -> None:
    """End an open log: "close" it in order, "kill" it, or cut its power ("power loss")."""
    if ending != "close":
        engine.disk.stop_at = engine.disk.changes
    if log is not None:
        await log.close()
    if ending == "power loss" or (ending == "close" and engine.disk.is_stopped):
        engine.disk.power_loss(chance or random.Random(1))
    engine.disk.stop_at = None
    engine.disk.heal()


async def reopen_log(engine: Embedded, log: EmbeddedLog, ending: str) -> EmbeddedLog:
    await end_log(engine, log, ending)
    return await engine.open()


def let_time_pass(engine: Embedded, takes: Iterable[int] = ()) -> None:
    """Let these milliseconds pass within syncs and reads of free space, one after the other; then none."""
    left = iter(takes)

    def pass_time() -> None:
        engine.clock.advance(next(left, 0))

    engine.disk.during_sync = engine.disk.during_question = pass_time
