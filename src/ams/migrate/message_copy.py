"""Plans a move, writes it as an export, or copies its messages in rounds into an unused installation.

A round copies the messages since the previous one while the old service runs. Offsets and times stay, so an interrupted
round is resumed. Users, topics and offsets come last, in one transaction: no node serves the installation before.

A file in the data folder, `migration.json`, marks a migration under way and lists its topics.
"""

import asyncio
import contextlib
import json
import math
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from ams.app.moving.exporter import Installation, Progress
from ams.app.moving.files import writing
from ams.app.moving.importer import fill
from ams.core.clock import Milliseconds
from ams.core.errors import Unavailable, Unusable
from ams.core.messages import Stored, message
from ams.core.names import Offset, TopicId, topic_id, topic_id_text
from ams.migrate.conversion import NAMESPACE, Converted, Documents, KafkaBounds, MovedTopic, Oddity, convert_documents
from ams.migrate.requests import each_of
from ams.migrate.sources import Kafka
from ams.storage.export_format import FORMAT, End, Header, Log, encode_line, encoded_message, kind
from ams.storage.files import Disk, write_whole
from ams.storage.log.base import Origin
from ams.storage.registry.export import Loaded, Name

T = TypeVar("T")

SAMPLE = 10_000  # messages read to estimate the speed
STORING_FACTOR = 2  # reading and storing take so many times as long as reading; measured in November 2026
TRIES = 16  # how often a topic may be recreated during the copy
RESTART_MESSAGES = 10_000  # a round with so many seals the log, so that the next start is short
FILE = "migration.json"


def plan(documents: Documents, kafka: Kafka, bounds: Callable[[str], KafkaBounds] | None = None) -> Converted:
    """Plan a move, read only. Raises `Unavailable` if the database or the brokers do not fit."""
    if not documents.users and not documents.projects:
        raise Unavailable("there are neither users nor projects in the old database: is its name right?")
    found = convert_documents(documents, bounds or kafka.bounds)
    if not any(topic.bounds.end for topic in found.topics) and any(each.get("msg_num") for each in documents.topics):
        raise Unavailable("nothing of any topic is in Kafka, and messages were published: are the brokers right?")
    ours = {topic.kafka for topic in found.topics}
    for name, count in sorted(kafka.other_partitions.items()):
        if name in ours:
            done = f"{count} messages outside partition 0 had no ids, and stay"
            found.oddities.append(Oddity("partitions", f"Kafka topic {name}", done))
    return found


async def seconds_to_copy(plan: Converted, kafka: Kafka) -> int:
    """Estimate the time of the first copy by reading messages of the largest topic. Raises `Unavailable`."""
    largest = max(plan.topics, key=lambda each: each.bounds.end - each.bounds.first, default=None)
    if largest is None or not plan.messages:
        return 0
    first, end = largest.bounds.first, min(largest.bounds.end, largest.bounds.first + SAMPLE)
    began = time.perf_counter()
    async for _ in kafka.batches(largest.kafka, first, end):
        """Nothing is kept of it."""
    return math.ceil(STORING_FACTOR * (time.perf_counter() - began) * plan.messages / (end - first))


async def write(plan: Converted, kafka: Kafka, path: str, progress: Progress) -> Mapping[str, int]:
    """Write the export to a new file; return lines by kind. Raises `Unusable`, `Unavailable`."""
    counts: Counter[str] = Counter()
    expected = plan.messages
    with writing(path) as file:
        file.write(encode_line(Header(format=FORMAT, messages=expected)))
        for topic in (each for each in plan.topics if each.bounds.end):
            log = Log(project=topic.line.project, topic=topic.line.name, id=topic.line.id, first=topic.bounds.first,
                      bytes=topic.bytes, retention=topic.line.retention)  # fmt: skip
            file.write(encode_line(log))
            counts[kind(log)] += 1
            async for batch in messages_of(topic, kafka, plan.oddities):
                file.writelines(map(encoded_message, batch))
                counts["message"] += len(batch)
                progress(counts["message"], expected)
        for line in plan.lines():
            file.write(encode_line(line))
            counts[kind(line)] += 1
        file.write(encode_line(End(counts=dict(counts))))
    return counts


async def messages_of(topic: MovedTopic, kafka: Kafka, oddities: list[Oddity]) -> AsyncIterator[Sequence[Stored]]:
    """Yield a topic's messages. Unreadable records are holes; an empty message replaces a hole at the end."""
    first, end = topic.bounds.first, topic.bounds.end
    count, last, time = 0, first - 1, 0
    async for batch in kafka.batches(topic.kafka, first, end):
        count += len(batch)
        last, time = batch[-1].offset, batch[-1].time
        yield batch
    _note_unreadable(topic, end - first - count, oddities)
    if last + 1 < end:
        yield [_stand_in(topic, Milliseconds(time), oddities)]


def _note_unreadable(topic: MovedTopic, count: int, oddities: list[Oddity]) -> None:
    if count:
        done = f"{count} records cannot be read: there is nothing at their ids"
        oddities.append(Oddity("record", topic.what, done))


def _stand_in(topic: MovedTopic, time: Milliseconds, oddities: list[Oddity]) -> Stored:
    """Return an empty message in place of an unreadable last record, whose id is used."""
    last = Offset(topic.bounds.end - 1)
    oddities.append(Oddity("record", topic.what, f"an empty message stands at its end, {last}"))
    return Stored(last, time, message("").fragment)


class Copied(NamedTuple):
    """Result of a round."""

    messages: int  # copied in this round
    topics: Mapping[Name, Loaded]  # topics with a log


class MadeAgain(Exception):
    """The old service's topic was deleted and made again: its messages are others."""


class Note(NamedTuple):
    """Note about a log, kept between rounds."""

    kafka: str  # the topic in Kafka
    count_from: int  # bytes are counted from this offset; earlier ones were counted when the log was made
    stand_in: int = -1  # offset of a placeholder for an unreadable last record; -1: none


class Copying:
    """Rounds into one installation, whose data folder is `folder`."""

    def __init__(self, target: Installation, folder: str, source: Kafka, progress: Progress) -> None:
        """Read the notes of earlier rounds. Raises `Unusable`."""
        self._target, self._registry, self._log = target, target.registry, target.log
        self._path = Path(folder) / FILE
        self._notes: dict[str, Note] = {}  # by topic id
        try:
            if self._path.exists():
                topics = json.loads(self._path.read_bytes())["topics"]
                self._notes = {each: Note(*note) for each, note in topics.items()}
        except (OSError, ValueError, KeyError, TypeError):
            raise Unusable(f"{self._path} cannot be read: begin again with a new data folder") from None
        self._source, self._progress = source, progress
        self._there: frozenset[TopicId] = frozenset()
        self._is_filled = False  # an earlier cut stored users, topics and offsets
        self._done = self._expected = 0

    async def bounds(self) -> Callable[[str], KafkaBounds]:
        """Return a function from Kafka topic to bounds: copied messages stay when Kafka drops them."""
        oldest: dict[str, int] = {}
        for place, bounds in (await self._log.all_bounds()).items():
            if note := self._notes.get(topic_id_text(place)):
                oldest[note.kafka] = bounds.oldest

        def kept_bounds(topic: str) -> KafkaBounds:
            there = self._source.bounds(topic)
            if there.first == there.end:  # Kafka keeps nothing, so copied messages are too old too
                return there
            return there._replace(first=min(there.first, oldest.get(topic, there.first)))

        return kept_bounds

    async def round(self, plan: Converted) -> Copied:
        """Copy new messages only. Raises `Unusable`, `Unavailable`."""
        await self._look()
        copied = await self._copy_topics(plan, at_end=False)
        if copied.messages >= RESTART_MESSAGES:
            await self._log.end_load()
        return copied

    async def finish(self, plan: Converted) -> Copied:
        """Copy the remaining messages, then users, topics and offsets in one transaction.

        Replaces the data of an earlier, failed cut. Raises `Unusable` if messages were published since.
        """
        await self._look()
        copied = await self._copy_topics(plan, at_end=True)
        if self._is_filled:
            await self._registry.clear()
        for line in (each.line for each in plan.topics):  # their counters come from their logs
            loaded = copied.topics.get((line.project, line.name))
            if line.tally is not None and loaded is not None:
                line.tally.bytes = loaded.bytes
        await fill(self._target, plan.lines(), copied.topics, handed=plan.handed)
        return copied

    @staticmethod
    def end(folder: str) -> None:
        """Remove the note: the installation is in use."""
        (Path(folder) / FILE).unlink(missing_ok=True)

    async def _look(self) -> None:
        self._is_filled = not await self._registry.is_empty()
        if self._is_filled and not self._notes:
            raise Unusable("there are users or topics already: move into a new installation")
        self._there = await self._log.topics()
        if others := {topic_id_text(each) for each in self._there} - self._notes.keys():
            raise Unusable(f"the log holds {len(others)} topics of somebody else: move into a new installation")

    async def _copy_topics(self, plan: Converted, *, at_end: bool) -> Copied:
        topics = plan.topics
        await self._make([each for each in topics if not self._places(each)])
        self._expected, self._done = plan.messages, 0
        copied = dict(await each_of(topics, lambda topic: self._copy(topic, plan.oddities, at_end)))
        for place in self._there - {each.topic for _, each in copied.values()}:
            await self._log.drop(place)  # its topic is gone, or was made again
        return Copied(sum(new for new, _ in copied.values()), {name: each for name, (_, each) in copied.items()})

    def _places(self, topic: MovedTopic) -> list[TopicId]:
        """Return the logs of a topic, newest last: it gets a new one each time it is made again."""
        return [each for each in _identities(topic) if each in self._there]

    async def _make(self, topics: Sequence[MovedTopic]) -> list[TopicId]:
        new = {self._unused_topic_id(each): each for each in topics}
        self._note({topic_id_text(place): Note(topic.kafka, topic.bounds.end) for place, topic in new.items()})
        await asyncio.gather(*map(self._create, new, new.values()))
        self._there |= new.keys()
        return list(new)

    def _note(self, notes: Mapping[str, Note]) -> None:
        """Change notes, durably: before a log is made, or ends in a placeholder."""
        self._notes |= notes
        write_whole(Disk(), str(self._path), json.dumps({"topics": self._notes}).encode())

    async def _create(self, place: TopicId, topic: MovedTopic) -> None:
        line = topic.line
        label, origin = f"{line.project}.{line.name}", Origin(Offset(topic.bounds.first), topic.bytes)
        retention = None if line.retention is None else Milliseconds(line.retention)
        await self._log.create(place, retention, label=label, origin=origin)

    async def _copy(self, topic: MovedTopic, oddities: list[Oddity], at_end: bool) -> tuple[Name, tuple[int, Loaded]]:
        place = self._places(topic)[-1]
        if await self._needs_new_log(place, topic):
            [place] = await self._make([topic])
        try:
            new = await self._go_on(place, topic, oddities, at_end)
        except MadeAgain:
            if self._is_filled:
                what = f"{topic.what} has other messages here"
                raise Unusable(f"{what}: the new service was used since it was filled") from None
            [place] = await self._make([topic])
            new = await self._go_on(place, topic, oddities, at_end)
        self._done += topic.bounds.end - topic.bounds.first
        self._progress(self._done, self._expected)
        size = (await self._log.totals(place)).bytes or topic.bytes
        return (topic.line.project, topic.line.name), (new, Loaded(place, size))

    async def _needs_new_log(self, place: TopicId, topic: MovedTopic) -> bool:
        """Return whether a log cannot be continued.

        It ends in a placeholder of a failed cut; or Kafka dropped all messages since, and only a message can set a
        log's end.
        """
        end = (await self._log.bounds(place)).end
        if end >= topic.bounds.end:
            return False
        stands_in = self._notes[topic_id_text(place)].stand_in == end - 1
        return stands_in or self._source.bounds(topic.kafka).first == topic.bounds.end

    def _unused_topic_id(self, topic: MovedTopic) -> TopicId:
        for each in _identities(topic):
            if topic_id_text(each) not in self._notes:
                return each
        raise Unusable(f"{topic.what} was made again {TRIES} times while it was copied: begin with a new data folder")

    async def _go_on(self, place: TopicId, topic: MovedTopic, oddities: list[Oddity], at_end: bool) -> int:
        bounds = await self._log.bounds(place)
        if bounds.end and topic.bounds.end == 0:
            raise Unusable(f"{topic.what} was copied, and Kafka has nothing of it now: is --kafka right?")
        if bounds.end > topic.bounds.end:
            raise MadeAgain
        note, copied = self._notes[topic_id_text(place)], 0
        is_whole = bounds.end == topic.bounds.end
        # The round before clients were held has just checked that it is the same topic.
        if is_whole and ((at_end and not self._is_filled) or note.stand_in == bounds.end - 1):
            return 0
        last = await self._log.read(place, Offset(bounds.end - 1), max_messages=1, max_bytes=1) if bounds.end else ()

        async def counted_batches() -> AsyncIterator[Sequence[Stored]]:
            nonlocal copied
            async for batch in self._new(place, topic, last, at_end, oddities):
                copied += len(batch)
                yield batch

        await self._log.load(place, _ahead(counted_batches()), count_from=Offset(note.count_from))
        return copied

    async def _new(
        self, place: TopicId, topic: MovedTopic, last: Sequence[Stored], at_end: bool, oddities: list[Oddity]
    ) -> AsyncIterator[Sequence[Stored]]:
        """Yield the topic's messages after the end of its log, if `last`, the message before, matches.

        Unreadable records at the end are left to the next round, except in the last one: a log cannot end in a hole,
        because the offset would be used again.
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
                if batch[0][::2] != last[0][::2]:  # offset and content; times may have been raised
                    raise MadeAgain
                compare, batch = False, batch[1:]
            if batch:
                time, following = batch[-1].time, batch[-1].offset + 1
                count += len(batch)
                yield batch
        if compare:  # neither `last` nor any later message exists
            raise MadeAgain
        holes = following - first - count
        if at_end and following < end:
            holes += end - 1 - following
            name = topic_id_text(place)
            self._note({name: self._notes[name]._replace(stand_in=end - 1)})
            yield [_stand_in(topic, time, oddities)]
        _note_unreadable(topic, holes, oddities)


def _identities(topic: MovedTopic) -> list[TopicId]:
    """Return the topic ids for a log: the first, and one for each time the topic is made again."""
    own = topic.line.id or ""
    return [topic_id(own), *(topic_id(str(uuid.uuid5(NAMESPACE, f"{own} {number}"))) for number in range(1, TRIES))]


async def _ahead(batches: AsyncIterator[T]) -> AsyncIterator[T]:
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
