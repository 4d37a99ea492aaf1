"""Export: writes all data of a stopped installation as lines (docs/reference/export-format.md).

Messages come first and registry records last. So an importer can store each line as it comes, and nothing is served
before the import is complete.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import IO, NamedTuple

from ams import __version__
from ams.app.moving.files import writing
from ams.core.errors import Unusable
from ams.core.names import Offset, SubscriptionId, TopicId, topic_id_text
from ams.core.offsets import ranges_of
from ams.service.push.configurations import Pushing
from ams.service.subscriptions import Subscriptions
from ams.service.tallies import Counting, Counts
from ams.storage.cursors.acks import CursorStore
from ams.storage.export_format import FORMAT, End, Header, Line, Log, Lost, Message, encode_line, encoded_message, kind
from ams.storage.log import base
from ams.storage.registry.counts import TopicTally
from ams.storage.registry.export import CursorPosition
from ams.storage.registry.registry import Registry

Progress = Callable[[int, int | None], None]  # called with the number of messages done, and the approximate total

_MESSAGE = str(Message.__struct_config__.tag)
_MESSAGES_PER_READ = 10_000
_BYTES_PER_READ = 4 << 20  # for one read


class Installation(NamedTuple):
    """Engines of a stopped installation."""

    registry: Registry
    log: base.Log
    cursors: CursorStore


async def export(
    source: Installation, path: str, progress: Progress, *, with_secrets: bool = True
) -> Mapping[str, int]:
    """Write an installation to a new file. Returns the number of lines of each kind.

    Without secrets, tokens and push secrets are left out. Raises `Unusable` or `Damaged`; then the file is removed.
    """
    with writing(path) as file:
        return await _Exporting(source, file, progress, with_secrets).write_all()


class _Exporting:
    def __init__(self, source: Installation, file: IO[bytes], progress: Progress, with_secrets: bool) -> None:
        self._registry, self._log, self._cursors = source
        self._file, self._progress, self._with_secrets = file, progress, with_secrets
        self._counts: Counter[str] = Counter()
        self._expected = 0

    async def write_all(self) -> Mapping[str, int]:
        # As at a start: create missing cursors, and count the uncounted messages.
        await Subscriptions(self._registry, self._log, self._cursors, Pushing(self._registry)).give_cursors()
        await Counting(self._registry, self._log, Counts()).catch_up()
        topics = sorted(await self._registry.tallies.all(), key=lambda each: (each.project, each.name))
        for each in topics:
            bounds = await self._log.bounds(each.id)
            self._expected += bounds.end - bounds.oldest
        made = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        header = Header(format=FORMAT, ams=__version__, made=made, secrets=self._with_secrets, messages=self._expected)
        self._file.write(encode_line(header))
        retentions = await self._registry.topics.retentions()
        for topic in topics:
            await self._write_log(topic, retentions.get(topic.id))
        standings = await self._standings({(each.project_id, each.name): each.id for each in topics})
        there = [await self._cursors.lost_messages(each, {}) for each in await self._cursors.places()]
        self._write([Lost(messages=await self._cursors.lost_in_all({}) - sum(there))])
        await self._registry.export_lines(self._write, standings, with_secrets=self._with_secrets)
        self._file.write(encode_line(End(counts=dict(self._counts))))
        return self._counts

    async def _write_log(self, topic: TopicTally, retention: int | None) -> None:
        bounds, totals = await self._log.bounds(topic.id), await self._log.totals(topic.id)
        log = Log(
            project=topic.project, topic=topic.name, id=topic_id_text(topic.id), first=bounds.oldest,
            bytes=totals.bytes, retention=retention,
        )  # fmt: skip
        self._write([log])
        end = bounds.oldest
        while end < bounds.end:
            most = min(_MESSAGES_PER_READ, bounds.end - end)
            batch = await self._log.read(topic.id, end, max_messages=most, max_bytes=_BYTES_PER_READ)
            if not batch:
                break
            self._file.writelines(map(encoded_message, batch))
            self._counts[_MESSAGE] += len(batch)
            self._progress(self._counts[_MESSAGE], self._expected)
            end = Offset(batch[-1].offset + 1)
        if end < bounds.end:
            raise Unusable(
                f"the newest messages of topic {topic.name} of project {topic.project} cannot be read: retention took "
                "them meanwhile, or they are damaged; export again"
            )

    async def _standings(self, topics: Mapping[tuple[str, str], TopicId]) -> Mapping[SubscriptionId, CursorPosition]:
        """Return the positions of cursors; without its old topic, only a cursor's lost messages count."""
        places, found = await self._cursors.places(), {}
        for each in await self._registry.subscriptions.all():
            place, topic = places.get(each.id), topics.get((each.project_id, each.topic))
            lost = await self._cursors.lost_messages(each.id, {}) if place else 0
            if place is None or place.topic != topic:  # a detached subscription has no position
                found[each.id] = CursorPosition(0, lost)
                continue
            progress = await self._cursors.progress(each.id)
            found[each.id] = CursorPosition(progress.floor, lost, ranges_of(progress.done))
        return found

    def _write(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._file.write(encode_line(line))
            self._counts[kind(line)] += 1
