"""Rollback: publishes messages since the cut to the old service through its API, and routes clients back to it.

This works while nobody uses the old service and this one still keeps all messages since the cut. The old service gives
the messages the same ids, because it counts in order and nobody else publishes; the publish times are new.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from ams.app.moving.exporter import Progress
from ams.client import Client, wire
from ams.client.errors import ClientError, InvalidInput, NotFound
from ams.client.wire.call import Call
from ams.core.errors import Unavailable, Unusable
from ams.core.messages import parse
from ams.migrate.conversion import Converted, MovedTopic, Oddity
from ams.migrate.cutover import Held, Steps, Tell, run_command
from ams.migrate.message_copy import plan
from ams.migrate.requests import OldService, each_of
from ams.migrate.sources import OpenReference, ReferenceSource
from ams.storage.export_format import Subscription

T = TypeVar("T")

MAX_MESSAGES = 100  # messages in a request
MOST_BYTES = 512 * 1024  # of messages in a request; a larger message has its own request
_REFUSED = re.compile(r'["\\\x00-\x1f]')  # such an attribute makes an unreadable record in the old service


class Returned(NamedTuple):
    """Result of a rollback."""

    messages: int
    positions: int  # subscriptions whose offset moved
    oddities: list[Oddity]


class _Since(NamedTuple):
    topic: MovedTopic
    start: int
    end: int


async def back(
    source: OpenReference, old: OldService, new: Client, steps: Steps, progress: Progress, tell: Tell
) -> Returned:
    """Switch back to the old service. Raises `Unusable` if that is not possible any more.

    `source` opens the old data; `old` and `new` are service_admin clients. Can be repeated after an interruption.
    """
    async with old, Held("new", steps, tell) as held, source() as opened:
        await held.begin(all_answered=True)
        if steps.start:
            tell("starting the old service")
            await run_command("--start", steps.start)
        tell("looking whether the way back is open")
        documents = await opened.documents()
        returning = _Returning(new, old, opened, plan(documents, opened.messages), progress)
        since = await returning.look()
        tell("giving messages and positions to the old service")
        returned = await returning.give(since)
        await returning.check_still(since)
        await held.route_clients("old")
        return returned


class _Returning:
    def __init__(
        self, new: Client, old: OldService, source: ReferenceSource, found: Converted, progress: Progress
    ) -> None:
        self._new, self._old, self._source, self._found, self._progress = new, old, source, found, progress
        self._oddities: list[Oddity] = []
        self._done = self._expected = 0

    async def look(self) -> Sequence[_Since]:
        return [each for each in await each_of(self._found.topics, self._since) if each is not None]

    async def check_still(self, since: Sequence[_Since]) -> None:
        """Raise `Unusable` if somebody published here meanwhile, or the old service has other messages."""
        await self._source.messages.look()
        for topic, _, end in since:
            if self._source.messages.bounds(topic.kafka).end != end:
                raise Unusable(f"{topic.what} has not what was given to it: it has several partitions, or is used")
            if (await self._ask(wire.get_topic_offsets(topic.line.project, topic.line.name))).max != end:
                raise Unusable(f"{topic.what} grows here, past the proxy: find out by whom, and do it again")

    async def give(self, since: Sequence[_Since]) -> Returned:
        self._expected = sum(each.end - each.start for each in since)
        await each_of(since, self._give_messages)
        moved = sum(await each_of(self._found.standing, self._move))
        self._oddities += await asyncio.to_thread(lambda: list(self._made_since()))
        return Returned(self._expected, moved, self._oddities)

    async def _since(self, topic: MovedTopic) -> _Since | None:
        project, name = topic.line.project, topic.line.name
        first, end = topic.bounds.first, topic.bounds.end
        try:
            here = await self._ask(wire.get_topic_offsets(project, name))
        except NotFound:
            self._oddities.append(Oddity("topic", f"{project}/{name}", "is deleted here, and is left there"))
            return None
        if here.max < end:
            raise Unusable(f"{topic.what} has {end - here.max} messages there that are not here: the old one was used")
        if here.min > end:
            raise Unusable(f"messages of {topic.what} since the cut are kept here no longer: the way back is closed")
        if first < end and here.min < end and not await self._is_same(topic, end - 1):
            raise Unusable(f"{topic.what} has other messages there: the old service was used since the cut")
        return _Since(topic, end, here.max)

    async def _is_same(self, topic: MovedTopic, offset: int) -> bool:
        """Return whether both have the same message at an offset; the publish time may differ."""
        there = [
            (message.data, dict(message.attributes))
            async for batch in self._source.messages.batches(topic.kafka, offset, offset + 1)
            for message in (parse(each.fragment) for each in batch)
        ]
        read = wire.read_topic(topic.line.project, topic.line.name, start=offset, stop=offset + 1)
        here = [(each.data, _comparable_attributes(dict(each.attributes))) for each in await self._ask(read)]
        return here == (there or [("", {})])  # an unreadable one there is empty here

    async def _give_messages(self, since: _Since) -> None:
        """Publish messages in order; the returned ids prove that nobody else publishes."""
        line, what = since.topic.line, since.topic.what
        async for batch in self._batches(since):
            attributes = [_comparable_attributes(dict(each.attributes)) for each in batch]
            changed = sum(kept != each.attributes for kept, each in zip(attributes, batch, strict=True))
            if changed:
                done = f"{changed} messages lost quotes, backslashes or line breaks of attributes: it cannot keep them"
                self._oddities.append(Oddity("attribute", what, done))
            said = [{"data": each.data, "attributes": kept} for kept, each in zip(attributes, batch, strict=True)]
            call = wire.publish_encoded(line.project, line.name, msgspec.json.encode({"messages": said}))
            try:
                published = await self._old.ask(call, retries=False)
            except (NotFound, InvalidInput) as error:
                raise Unusable(f"the old service does not take messages of {what}: {error.message}") from None
            ids = [str(each.offset) for each in batch]
            if published.message_ids != ids:
                raise Unusable(f"the old service gave message {ids[0]} of {what} another id: it is used")
            self._done += len(batch)
            self._progress(self._done, self._expected)

    async def _batches(self, since: _Since) -> AsyncIterator[list[wire.ReadMessage]]:
        line, start = since.topic.line, since.start
        while start < since.end:
            stop = min(start + MAX_MESSAGES, since.end)
            read = await self._ask(wire.read_topic(line.project, line.name, start=start, stop=stop, most=MAX_MESSAGES))
            if [each.offset for each in read] != list(range(start, stop)):
                raise Unusable(f"messages of {since.topic.what} from {start} to {stop} cannot be read here")
            part: list[wire.ReadMessage] = []
            for each in read:
                if part and sum(len(one.data) for one in part) + len(each.data) > MOST_BYTES:
                    yield part
                    part = []
                part.append(each)
            yield part
            start = stop

    async def _move(self, subscription: Subscription) -> bool:
        project, name = subscription.project, subscription.name
        try:
            here = await self._ask(wire.get_offsets(project, name))
        except NotFound:
            self._oddities.append(Oddity("subscription", f"{project}/{name}", "is deleted here, and is left there"))
            return False
        if here.current == subscription.offset:
            return False
        try:
            await self._old.ask(wire.modify_offset(project, name, here.current), retries=True)
        except (NotFound, InvalidInput) as error:
            self._oddities.append(Oddity("subscription", f"{project}/{name}", f"is not moved: {error.message}"))
            return False
        return True

    def _made_since(self) -> Iterator[Oddity]:
        known = {
            *(("topic", f"{each.line.project}/{each.line.name}") for each in self._found.topics),
            *(("subscription", f"{each.project}/{each.name}") for each in self._found.subscriptions),
            *(("user", each.name) for each in self._found.users),
        }
        ask = self._new.call
        here = [("user", each.name) for each in ask(wire.list_users()).users]
        for project in (each.name for each in ask(wire.list_projects()).projects):
            topics = ask(wire.list_topics(project)).topics
            here += [("topic", f"{project}/{each.name.rpartition('/')[2]}") for each in topics]
            subscriptions = ask(wire.list_subscriptions(project)).subscriptions
            here += [("subscription", f"{project}/{each.name.rpartition('/')[2]}") for each in subscriptions]
        for kind, name in here:
            if (kind, name) not in known:
                yield Oddity(kind, name, "was made here, and stays here")

    async def _ask(self, call: Call[T]) -> T:
        try:
            return await asyncio.to_thread(self._new.call, call)
        except NotFound:
            raise
        except ClientError as error:
            raise Unavailable(f"the new service cannot be asked: {call.method} {call.path}: {error.message}") from None


def _comparable_attributes(attributes: dict[str, str]) -> dict[str, str]:
    return {_REFUSED.sub(" ", name): _REFUSED.sub(" ", value) for name, value in attributes.items()}
