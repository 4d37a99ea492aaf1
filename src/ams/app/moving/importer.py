"""Import: reads the lines of an export into an empty installation.

Messages are stored as they come. Registry records follow in one transaction at the very end, after all cursors. So a
half import belongs to no registry, and no node serves it: a starting node finds messages and an empty registry, and
refuses. Importing the same file again resumes, by the identities of the topics.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, TypeVar

from ams.app.moving.exporter import Installation, Progress
from ams.app.moving.files import lines, reading
from ams.app.moving.rules import LineRules, validate_lines
from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.core.messages import Stored
from ams.core.messages import message as made_message
from ams.core.names import Offset, TopicId, new_topic_id, topic_id
from ams.core.offsets import bitmap_of
from ams.service.subscriptions import NO_TOPIC
from ams.storage.export_format import AnyLine, End, Header, Line, Log, Lost, Message
from ams.storage.log.base import Origin
from ams.storage.registry.export import ImportedCursor, Loaded, Name, RegistryImport

T = TypeVar("T")
_MESSAGES_PER_LOAD = 2000
_BYTES_PER_LOAD = 1 << 20  # loaded at once
_CONCURRENT_CREATIONS = 1000  # logs and cursors created concurrently, to share commits


def check(path: str, progress: Progress) -> Mapping[str, int]:
    """Validate every line of a file. Returns the number of lines of each kind. Raises `Unusable`."""
    rules, done, expected = LineRules(), 0, None
    with reading(path) as file:
        for line in validate_lines(lines(file, path), path, rules):
            if isinstance(line, Header):
                expected = line.messages
            elif isinstance(line, Message):
                done += 1
                if done % _MESSAGES_PER_LOAD == 0:
                    progress(done, expected)
    return rules.counts


async def import_(
    target: Installation, path: str, progress: Progress, *, messages_only: bool = False
) -> Mapping[str, int]:
    """Store the contents of a file in an empty installation. Returns the number of lines of each kind.

    With `messages_only` only messages are stored; a later file brings newer ones and the rest. Lines are validated as
    they come; run `check` first to validate all. Raises `Unusable` for a bad line, after which the import can be
    resumed, and for an installation that is not empty, which stays unchanged.
    """
    if not await target.registry.is_empty():
        raise Unusable("there are users or topics already: import into a new installation")
    with reading(path) as file:
        return await _Importing(target, file, path, progress, messages_only).store_all()


class _Importing:
    def __init__(
        self, target: Installation, file: IO[bytes], path: str, progress: Progress, messages_only: bool
    ) -> None:
        self._target, self._progress, self._messages_only = target, progress, messages_only
        self._log = target.log
        self._rules = LineRules()
        self._lines = validate_lines(lines(file, path), path, self._rules)
        self._next: AnyLine | None = next(self._lines, None)
        self._expected: int | None = None
        self._done = 0

    async def store_all(self) -> Mapping[str, int]:
        logs, lost = {}, 0
        while isinstance(self._next, Header | Log | Lost):
            line = self._take()
            if isinstance(line, Header):
                self._expected = line.messages
            elif isinstance(line, Log):
                logs[line.project, line.topic] = await self._load(line)
            elif isinstance(line, Lost):
                lost = line.messages
        # A registry that does not know the other topics would drop their messages.
        if others := await self._log.topics() - {each.topic for each in logs.values()}:
            raise Unusable(
                f"the log holds topics that are not in the file ({len(others)}), of a registry that was lost or of"
                " another import: import into a new installation"
            )
        if self._messages_only:
            deque(self._registry_lines(), 0)  # validates the lines as they are read
        else:
            await fill(self._target, self._registry_lines(), logs, lost)
        return self._rules.counts

    async def _load(self, line: Log) -> Loaded:
        if self._messages_only and line.id is None:
            raise Unusable(f"topic {line.topic} of project {line.project} has no id in the file: no later one goes on")
        topic = topic_id(line.id) if line.id else new_topic_id()
        label, origin = f"{line.project}.{line.topic}", Origin(Offset(line.first), line.bytes)
        retention = None if line.retention is None else Milliseconds(line.retention)
        await self._log.create(topic, retention, label=label, origin=origin)
        end = (await self._log.bounds(topic)).end
        if line.first > end:
            what = f"messages {end} to {line.first - 1} of topic {line.topic} of project {line.project}"
            raise Unusable(f"{what} are missing: import the file that has them before this one")
        await self._log.load(topic, self._messages(end))
        return Loaded(topic, line.bytes)

    async def _messages(self, start: Offset) -> AsyncIterator[Sequence[Stored]]:
        """Yield the next messages, except those below `start`, which an earlier import stored."""
        batch: list[Stored] = []
        size = 0
        while isinstance(line := self._next, Message):
            made = made_message(line.data, line.attributes, line.ordering_key)
            each = Stored(Offset(line.offset), Milliseconds(line.time), made.fragment)
            self._take()
            self._done += 1
            if each.offset < start:
                continue
            batch.append(each)
            size += len(each.fragment)
            if len(batch) == _MESSAGES_PER_LOAD or size >= _BYTES_PER_LOAD:
                yield batch
                batch, size = [], 0
                self._progress(self._done, self._expected)
        if batch:
            yield batch

    def _take(self) -> AnyLine:
        taken = self._next
        assert taken is not None
        self._next = next(self._lines, None)
        return taken

    def _registry_lines(self) -> Iterator[Line]:
        while self._next is not None:
            line = self._take()
            if not isinstance(line, End):
                yield line


async def fill(
    target: Installation, lines: Iterable[Line], logs: Mapping[Name, Loaded], lost: int = 0,
    handed: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Store all registry records in an empty registry, in one transaction, after everything they refer to.

    `lines` are an export without its messages, and `logs` the topics with stored messages. `lost`: lost messages of
    deleted subscriptions; `lines` has those of the others. `handed` is the offset up to which messages were delivered
    a moment ago, by subscription id.
    """
    loop = asyncio.get_running_loop()

    async def make_log(named: tuple[Name, TopicId]) -> None:
        name, topic = named
        await target.log.create(topic, label=".".join(name))

    async def place(placed: ImportedCursor) -> None:
        topic, offset = (NO_TOPIC, 0) if placed.topic is None else (placed.topic, placed.offset)
        given = Offset((handed or {}).get(placed.subscription, 0))
        await target.cursors.create(placed.subscription, topic, Offset(offset), placed.lost, given)
        if placed.done and placed.topic is not None:
            await target.cursors.restore(placed.subscription, topic, Offset(offset), bitmap_of(placed.done))

    async def finish(filling: RegistryImport) -> None:
        await _run_all(make_log, [each for each in filling.topics.items() if each[0] not in logs])
        await _run_all(place, filling.cursors)
        await target.cursors.lost_in_all({}, least=lost + sum(each.lost for each in filling.cursors))

    def finish_on_loop(filling: RegistryImport) -> None:
        asyncio.run_coroutine_threadsafe(finish(filling), loop).result()

    await target.registry.fill(lines, logs, finish_on_loop)


async def _run_all(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    remaining = iter(items)
    while part := list(islice(remaining, _CONCURRENT_CREATIONS)):
        await asyncio.gather(*map(work, part))
