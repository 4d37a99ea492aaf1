"""Copying: messages into an installation that nobody uses yet, again and again while the old service goes on.

A round copies what came since the round before. Offsets and times stay, so the next round goes on where one was broken
off. What exists (users, topics, offsets) comes last, in one transaction: no node serves the installation before.

A file in the data folder, `migration.json`, says that a migration is under way, and which topics are its own.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from ams.app.moving.exporting import Installation, Progress
from ams.app.moving.importing import fill
from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.core.messages import Stored
from ams.core.names import Offset, TopicId, topic_id, topic_id_text
from ams.migrate.asking import each_of
from ams.migrate.converting import NAMESPACE, Bounds, MovedTopic
from ams.migrate.documents import Oddity
from ams.migrate.sources import Kafka
from ams.migrate.writing import Plan, stand_in, unreadable, unreadable_end
from ams.storage.export_format import Topic
from ams.storage.files import Disk, write_whole
from ams.storage.log.base import Origin
from ams.storage.registry.export import Loaded, Name

T = TypeVar("T")

TIMES = 16  # how often a topic may be made again while it is copied
MANY = 10_000  # messages that are put where the next start, with clients waiting for it, need not read them
FILE = "migration.json"


class Copied(NamedTuple):
    """What a round did."""

    messages: int  # copied by it
    topics: Mapping[Name, Loaded]  # the topics that have a log now


class MadeAgain(Exception):
    """A topic of the old service is not the one that was copied: its messages are others."""


class Note(NamedTuple):
    """What is remembered of a log from one round to the next."""

    kafka: str  # the topic in Kafka
    count_from: int  # the offset from which on bytes are counted: those before were counted when the log was made
    stand_in: int = -1  # offset of a message that stands in for a last record that cannot be read; -1: none


@dataclass(slots=True)
class Notes:
    """What is remembered of logs, by their identities."""

    path: Path
    topics: dict[str, Note] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str) -> "Notes":
        """Read the notes of a data folder; none are there before the first round. Raises `Unusable`."""
        path = Path(folder) / FILE
        if not path.exists():
            return cls(path)
        try:
            topics = json.loads(path.read_bytes())["topics"]
            return cls(path, {each: Note(*note) for each, note in topics.items()})
        except (OSError, ValueError, KeyError, TypeError):
            raise Unusable(f"{path} cannot be read: begin again with a new data folder") from None

    def add(self, topics: Mapping[TopicId, MovedTopic]) -> None:
        """Remember logs that will be made, durably."""
        for place, topic in topics.items():
            self.topics[topic_id_text(place)] = Note(topic.kafka, topic.bounds.end)
        self._write()

    def stands_in(self, place: TopicId, offset: int) -> None:
        """Remember that a log ends in a message that stands in for another, durably."""
        name = topic_id_text(place)
        self.topics[name] = self.topics[name]._replace(stand_in=offset)
        self._write()

    def _write(self) -> None:
        write_whole(Disk(), str(self.path), json.dumps({"topics": self.topics}).encode())


class Copying:
    """Rounds into one installation, whose data folder is `folder`."""

    def __init__(self, target: Installation, folder: str, source: Kafka, progress: Progress) -> None:
        self._target, self._registry, self._log = target, target.registry, target.log
        self._notes = Notes.read(folder)
        self._source, self._progress = source, progress
        self._there: frozenset[TopicId] = frozenset()
        self._is_filled = False  # whether an earlier cut stored what exists
        self._done = self._expected = 0

    async def bounds(self) -> Callable[[str], Bounds]:
        """Return what tells what a topic has, by its name in Kafka: copied messages stay when Kafka drops them."""
        oldest: dict[str, int] = {}
        for place, bounds in (await self._log.all_bounds()).items():
            note = self._notes.topics.get(topic_id_text(place))
            if note is not None:
                oldest[note.kafka] = bounds.oldest

        def kept(topic: str) -> Bounds:
            there = self._source.bounds(topic)
            if there.first == there.end:  # nothing is kept there, so what was copied is too old here as well
                return there
            return there._replace(first=min(there.first, oldest.get(topic, there.first)))

        return kept

    async def round(self, plan: Plan) -> Copied:
        """Copy the messages that are new; nothing else changes. Raises `Unusable`, `Unavailable`."""
        await self._look()
        copied = await self._copied(plan, at_end=False)
        if copied.messages >= MANY:
            await self._log.loaded()
        return copied

    async def finish(self, plan: Plan) -> Copied:
        """Copy what is left, and then all that exists, in one transaction.

        It replaces what an earlier, failed cut stored; raises `Unusable` when messages were published since.
        """
        await self._look()
        copied = await self._copied(plan, at_end=True)
        if self._is_filled:
            await self._registry.clear()
        lines = list(plan.found.lines())
        for line in lines:  # the counters of topics are what their logs say
            loaded = copied.topics.get((line.project, line.name)) if isinstance(line, Topic) else None
            if isinstance(line, Topic) and line.tally is not None and loaded is not None:
                line.tally.bytes = loaded.bytes
        await fill(self._target, lines, copied.topics, handed=plan.found.handed)
        return copied

    @staticmethod
    def end(folder: str) -> None:
        """Forget that the service of a data folder is being filled: it is used."""
        (Path(folder) / FILE).unlink(missing_ok=True)

    async def _look(self) -> None:
        self._is_filled = not await self._registry.is_empty()
        if self._is_filled and not self._notes.topics:
            raise Unusable("there are users or topics already: move into a new installation")
        self._there = await self._log.topics()
        others = {topic_id_text(each) for each in self._there} - self._notes.topics.keys()
        if others:
            raise Unusable(f"the log holds {len(others)} topics of somebody else: move into a new installation")

    async def _copied(self, plan: Plan, *, at_end: bool) -> Copied:
        topics = plan.found.topics
        await self._make({self._unused(each): each for each in topics if not self._places(each)})
        self._expected, self._done = plan.messages, 0
        copied = dict(await each_of(topics, lambda topic: self._copy(topic, plan.found.oddities, at_end)))
        for place in self._there - {each.topic for _, each in copied.values()}:
            await self._log.drop(place)  # of a topic that is gone, or was made again
        loaded = {name: each for name, (_, each) in copied.items()}
        return Copied(sum(new for new, _ in copied.values()), loaded)

    def _places(self, topic: MovedTopic) -> list[TopicId]:
        """Return the logs there are of a topic, the newest last: it has a new one each time it was made again."""
        return [each for each in _identities(topic) if each in self._there]

    async def _make(self, new: Mapping[TopicId, MovedTopic]) -> None:
        self._notes.add(new)
        await asyncio.gather(*map(self._create, new, new.values()))
        self._there |= new.keys()

    async def _create(self, place: TopicId, topic: MovedTopic) -> None:
        line = topic.line
        label, origin = f"{line.project}.{line.name}", Origin(Offset(topic.bounds.first), topic.bytes)
        retention = None if line.retention is None else Milliseconds(line.retention)
        await self._log.create(place, retention, label=label, origin=origin)

    async def _copy(self, topic: MovedTopic, oddities: list[Oddity], at_end: bool) -> tuple[Name, tuple[int, Loaded]]:
        place = self._places(topic)[-1]
        if await self._needs_new_log(place, topic):
            place = await self._begin_again(topic)
        try:
            new = await self._go_on(place, topic, oddities, at_end)
        except MadeAgain:
            if self._is_filled:
                what = f"{topic.what} has other messages here"
                raise Unusable(f"{what}: the new service was used since it was filled") from None
            place = await self._begin_again(topic)
            new = await self._go_on(place, topic, oddities, at_end)
        self._done += topic.bounds.end - topic.bounds.first
        self._progress(self._done, self._expected)
        size = (await self._log.totals(place)).bytes or topic.bytes
        return (topic.line.project, topic.line.name), (new, Loaded(place, size))

    async def _needs_new_log(self, place: TopicId, topic: MovedTopic) -> bool:
        """Return whether a log cannot be gone on with, as the topic goes on otherwise.

        It ends in what a cut that failed put there for a record that cannot be read; or Kafka has dropped all that came
        since, and a log has an end only by a message, or from its beginning.
        """
        end = (await self._log.bounds(place)).end
        if end >= topic.bounds.end:
            return False
        stands_in = self._notes.topics[topic_id_text(place)].stand_in == end - 1
        return stands_in or self._source.bounds(topic.kafka).first == topic.bounds.end

    async def _begin_again(self, topic: MovedTopic) -> TopicId:
        place = self._unused(topic)
        await self._make({place: topic})
        return place

    def _unused(self, topic: MovedTopic) -> TopicId:
        for each in _identities(topic):
            if topic_id_text(each) not in self._notes.topics:
                return each
        raise Unusable(f"{topic.what} was made again {TIMES} times while it was copied: begin with a new data folder")

    async def _go_on(self, place: TopicId, topic: MovedTopic, oddities: list[Oddity], at_end: bool) -> int:
        bounds = await self._log.bounds(place)
        if bounds.end and topic.bounds.end == 0:
            raise Unusable(f"{topic.what} was copied, and Kafka has nothing of it now: is --kafka right?")
        if bounds.end > topic.bounds.end:
            raise MadeAgain
        note, copied = self._notes.topics[topic_id_text(place)], 0
        is_whole = bounds.end == topic.bounds.end
        # Whether it is the same topic was seen a moment ago, in the round before clients were held.
        if is_whole and ((at_end and not self._is_filled) or note.stand_in == bounds.end - 1):
            return 0
        last = await self._log.read(place, Offset(bounds.end - 1), max_messages=1, max_bytes=1) if bounds.end else ()

        async def counted() -> AsyncIterator[Sequence[Stored]]:
            nonlocal copied
            async for batch in self._new(place, topic, last, at_end, oddities):
                copied += len(batch)
                yield batch

        await self._log.load(place, _ahead(counted()), count_from=Offset(note.count_from))
        return copied

    async def _new(
        self, place: TopicId, topic: MovedTopic, last: Sequence[Stored], at_end: bool, oddities: list[Oddity]
    ) -> AsyncIterator[Sequence[Stored]]:
        """Yield what a topic has behind the end of its log, if `last`, the message before, is there too.

        Records at the end that cannot be read are left to the next round, but at the end of all: a log cannot end in a
        hole, as the id would be given again.
        """
        start = (await self._log.bounds(place)).end
        oldest, end = self._source.bounds(topic.kafka).first, topic.bounds.end
        first = max(start, oldest)
        if first > start:
            done = f"{first - start} messages were dropped by Kafka before they were copied, and are lost"
            oddities.append(Oddity("age", topic.what, done))
        compare = bool(last) and start > oldest
        time = last[0].time if last else Milliseconds(0)
        count, following = 0, first
        async for batch in self._source.batches(topic.kafka, first - 1 if compare else first, end, time):
            if compare:
                if batch[0][::2] != last[0][::2]:  # the offset and what it says; times may have been raised
                    raise MadeAgain
                compare, batch = False, batch[1:]
            if batch:
                time, following = batch[-1].time, batch[-1].offset + 1
                count += len(batch)
                yield batch
        if compare:  # the one before is not there, nor any behind it
            raise MadeAgain
        holes = following - first - count
        if at_end and following < end:
            oddities.append(unreadable_end(topic))
            holes += end - 1 - following
            self._notes.stands_in(place, end - 1)
            yield [stand_in(topic, time)]
        if holes:
            oddities.append(unreadable(topic, holes))


def _identities(topic: MovedTopic) -> list[TopicId]:
    """Return what the log of a topic is known by: at first, and after each time that the topic was made again."""
    own = topic.line.id or ""
    return [topic_id(own), *(topic_id(str(uuid.uuid5(NAMESPACE, f"{own} {number}"))) for number in range(1, TIMES))]


async def _ahead(batches: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield batches, the next of which is made while one is used."""

    async def fetch() -> T | None:
        return await anext(batches, None)

    following = asyncio.create_task(fetch())
    try:
        while (batch := await following) is not None:
            following = asyncio.create_task(fetch())
            yield batch
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
