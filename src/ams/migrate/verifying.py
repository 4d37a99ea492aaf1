"""Hold the new service to the old data: every token, every message, every subscription's next message."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ams.client import Client, wire
from ams.client.errors import ClientError
from ams.core.clock import publish_time
from ams.core.messages import parse
from ams.migrate.converting import Converted, MovedTopic
from ams.migrate.sources import Messages
from ams.migrate.writing import messages_of

AT_ONCE = 5_000
"""Messages asked of the service at once."""


class Difference(NamedTuple):
    """Something that is not the same on both sides."""

    what: str
    old: str
    new: str


class Verified(NamedTuple):
    """What was compared, and what differs."""

    users: int
    topics: int
    messages: int
    subscriptions: int
    differences: list[Difference]


async def verify(found: Converted, kafka: Messages, client: Client, ca: str | None) -> Verified:
    """Compare all that goes over with what the service of `client`, an administrator's, has.

    What the service has got since is passed over: messages behind the old end, and subscriptions that went on.
    Raises a `ClientError` where the service cannot be asked.
    """
    differences = [*_users(found, client, ca), *_subscriptions(found, client)]
    messages = 0
    for topic in found.topics:
        old, new, count = await _topic(topic, kafka, client)
        messages += count
        if old != new:
            differences.append(Difference(f"topic {topic.line.project}/{topic.line.name}", old, new))
    return Verified(len(found.users), len(found.topics), messages, len(found.subscriptions), differences)


def _users(found: Converted, client: Client, ca: str | None) -> Iterator[Difference]:
    """Try every token."""
    for user in filter(lambda each: each.token, found.users):
        with Client(client.endpoint, user.token, ca=ca) as own:
            try:
                profile = own.call(wire.get_profile())
            except ClientError as error:
                yield Difference(f"token of user {user.name}", user.name, error.message)
                continue
        if (profile.name, user.id or profile.uuid) != (user.name, profile.uuid):
            yield Difference(f"token of user {user.name}", f"{user.name} {user.id}", f"{profile.name} {profile.uuid}")


def _subscriptions(found: Converted, client: Client) -> Iterator[Difference]:
    topics = {(each.line.project, each.line.name) for each in found.topics}
    for each in found.subscriptions:
        if (each.project, each.topic) not in topics:
            continue
        try:
            current = client.call(wire.get_offsets(each.project, each.name)).current
        except ClientError as error:
            yield Difference(f"subscription {each.project}/{each.name}", str(each.offset), error.message)
            continue
        if current < each.offset:
            yield Difference(f"subscription {each.project}/{each.name}", str(each.offset), str(current))


async def _topic(topic: MovedTopic, kafka: Messages, client: Client) -> tuple[str, str, int]:
    """Return what each side has up to the old end, as counts and a hash of ids, times, attributes and data."""
    old = _Sum()
    async for batch in messages_of(topic, kafka, []):
        for each in batch:
            message = parse(each.fragment)
            old.add(each.offset, publish_time(each.time), message.attributes, message.data)
    new = _Sum()
    try:
        for one in _read(topic, client):
            new.add(one.offset, one.publish_time, one.attributes, one.data)
    except ClientError as error:
        return str(old), error.message, old.count
    return str(old), str(new), old.count


def _read(topic: MovedTopic, client: Client) -> Iterator[wire.ReadMessage]:
    following = topic.bounds.first
    while following < topic.bounds.end:
        stop = min(following + AT_ONCE, topic.bounds.end)
        asked = wire.read_topic(topic.line.project, topic.line.name, start=following, stop=stop, most=AT_ONCE)
        yield from client.call(asked)
        following = stop


class _Sum:
    """A count and a hash of messages."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, offset: int, time: str, attributes: Mapping[str, str], data: str) -> None:
        """Take a message in."""
        self.count += 1
        self._hash.update(repr((offset, time, sorted(attributes.items()), data)).encode())

    def __str__(self) -> str:
        return f"{self.count} messages, {self._hash.hexdigest()[:16]}"
