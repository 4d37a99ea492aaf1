"""Verifies the new service against the old data: tokens, messages, and positions of subscriptions."""

import asyncio
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import msgspec

from ams.app.moving.exporter import Installation
from ams.client import Client, wire
from ams.client.errors import Refused
from ams.client.transport import fits_header
from ams.core.clock import SystemClock, publish_time
from ams.core.messages import parse
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.migrate.comparison import different, read_of
from ams.migrate.conversion import Converted, KafkaBounds, MovedTopic, kept_for
from ams.migrate.requests import MAX_REQUESTS, AnswerTooLarge, Side, each_of
from ams.migrate.sources import Kafka
from ams.storage.cursors.base import TopicOffset
from ams.storage.export_format import Subscription, User

MESSAGES = 1_000  # per request
EXPIRY_MARGIN_MS = 3_600_000  # messages that expire within this time may be missing
MISSING = "is not there"
REQUEST_THREADS = 8  # faster than an event loop for many small requests


class Difference(NamedTuple):
    """A difference between both sides."""

    what: str
    old: str
    new: str


class Verified(NamedTuple):
    """Result of a verification."""

    users: int
    topics: int
    messages: int
    subscriptions: int
    differences: list[Difference]
    answers: int = 0  # of both services


async def verify(
    found: Converted, kafka: Kafka, client: Client, ca: str | None, sides: tuple[Side, Side] | None = None
) -> Verified:
    """Compare all converted data with the new service; `client` is an administrator's.

    With `sides` (old, new), every token is tried on both, and all resources of the projects are read from both. Newer
    state is ignored: messages after the old end, and subscriptions that moved on.

    Raises:
        ClientError: A service does not answer.
        Unavailable: Messages cannot be read.
    """
    differences = await asyncio.to_thread(lambda: [*_users(found, client, ca), *_places(client, found.standing)])
    answers = 0
    if sides:
        answers, differ = await _answers(found, *sides)
        differences += differ
    sums = await each_of(found.topics, lambda topic: _topic(topic, kafka, client))
    pairs = zip(found.topics, sums, strict=True)
    differences += [Difference(topic.what, old, new) for topic, (old, new, _) in pairs if old != new]
    messages = sum(count for _, _, count in sums)
    return Verified(len(found.users), len(found.topics), messages, len(found.subscriptions), differences, answers)


async def _answers(found: Converted, old: Side, new: Side) -> tuple[int, list[Difference]]:
    """Ask both services for the owner of every token and, as administrator, for all resources of projects."""
    await old.reach()
    await new.reach()
    asked = [("/v1/users/profile", f"token of user {each.name}", each.token) for each in found.users if each.token]
    asked += [(target, target.removeprefix("/v1/"), "") for target in _targets(found)]
    differences = await each_of(asked, lambda each: _compare_answers(*each, old, new), MAX_REQUESTS)
    return len(asked), list(itertools.chain.from_iterable(differences))


def _targets(found: Converted) -> Iterator[str]:
    for project in found.projects:
        if project.name not in found.renamed:
            place = f"/v1/projects/{project.name}"
            yield place
            yield from (f"{place}/{each}" for each in ("members?details=true", "topics", "subscriptions", "schemas"))
    for kind, lines in (("topics", [each.line for each in found.topics]), ("subscriptions", found.subscriptions)):
        for each in lines:
            if found.renamed.isdisjoint((each.project, each.name)):
                yield f"/v1/projects/{each.project}/{kind}/{each.name}:acl"


async def _compare_answers(target: str, what: str, token: str, old: Side, new: Side) -> list[Difference]:
    """Ask both with a token; an empty one means the administrators' tokens."""
    if (read := read_of(target)) is None:
        return []
    try:
        one, other = await asyncio.gather(*(side.ask(target, None, token) for side in (old, new)))
    except AnswerTooLarge:
        return [Difference(what, "an answer that is too large to compare", "")]
    secrets = (token, old.token, new.token)
    kinds = different(read.action, one, other, still=True, admin=True, secrets=secrets)
    return [Difference(f"{what}: {kind.where}", kind.old, kind.new) for kind in kinds]


async def compare_stored(found: Converted, stored: Installation, kafka: Kafka) -> list[Difference]:
    """Compare topics and positions with a stopped installation's store: a few reads."""
    topics = await stored.registry.tallies.all()
    projects = {each.project_id: each.project for each in topics}
    logs: dict[tuple[str, str], TopicId] = {(each.project, each.name): each.id for each in topics}
    subscriptions: dict[tuple[str, str], SubscriptionId] = {
        (projects[each.project_id], each.name): each.id
        for each in await stored.registry.subscriptions.all()
        if each.project_id in projects
    }
    bounds, places = await stored.log.all_bounds(), await stored.cursors.places()

    async def compare(topic: MovedTopic) -> Difference | None:
        log = logs.get((topic.line.project, topic.line.name))
        if log is None or log not in bounds:
            return Difference(topic.what, _bounds(topic.bounds), MISSING)
        has = KafkaBounds(*bounds[log])
        if has.end == topic.bounds.end and not await _lacks(topic, has.first, kafka):
            return None
        return Difference(topic.what, _bounds(topic.bounds), _bounds(has))

    differences = [each for each in await each_of(found.topics, compare, REQUEST_THREADS) if each]
    for each in found.standing:
        subscription, log = subscriptions.get((each.project, each.name)), logs.get((each.project, each.topic))
        place = places.get(subscription) if subscription else None
        if place is None or log is None or place != TopicOffset(log, Offset(each.offset)):
            new = MISSING if place is None else str(place.offset)
            differences.append(Difference(f"subscription {each.project}/{each.name}", str(each.offset), new))
    return differences


async def _lacks(topic: MovedTopic, first: int, kafka: Kafka) -> bool:
    oldest, since = topic.bounds.young, _since(topic)
    if oldest is None or first <= oldest:
        return False
    batches = kafka.batches(topic.kafka, max(oldest, kafka.bounds(topic.kafka).first), first)
    return any([each.time >= since async for batch in batches for each in batch])


def _since(topic: MovedTopic) -> int:
    """Return the oldest publish time that a topic still keeps, plus a margin."""
    if topic.bounds.young is None:
        return 0
    kept = kept_for(topic.bounds.age)
    return SystemClock().wall() - kept + min(EXPIRY_MARGIN_MS, kept // 10)


async def compare_served(found: Converted, client: Client, ca: str | None) -> list[Difference]:
    """Compare with the answers of the new service, before clients are routed to it.

    Checks the owner and roles of every token, and the position of one subscription per project: `compare_stored` has
    checked the others. `client` is an administrator's. Raises a `ClientError` if the service does not answer.
    """
    some = {each.project: each for each in found.standing}
    return await asyncio.to_thread(lambda: [*_users(found, client, ca), *_places(client, list(some.values()))])


def _users(found: Converted, client: Client, ca: str | None) -> Iterator[Difference]:
    roles: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for each in found.memberships:
        roles[each.user][each.project] = set(each.roles)

    with Client(client.endpoint, ca=ca, retry=None) as anybody, ThreadPoolExecutor(REQUEST_THREADS) as executor:

        def compare(user: User) -> Difference | None:
            what = f"token of user {user.name}"
            try:
                call = wire.get_profile()
                if fits_header(user.token):
                    call = replace(call, headers={**call.headers, "x-api-key": user.token})
                else:  # clients sent it in the query
                    call = replace(call, query={**call.query, "key": user.token})
                profile = anybody.call(call)
            except Refused as error:
                return Difference(what, user.name, error.message)
            if (profile.name, user.id or profile.uuid) != (user.name, profile.uuid):
                return Difference(what, f"{user.name} {user.id}", f"{profile.name} {profile.uuid}")
            old = (set(user.service_roles), roles[user.name])
            new = (set(profile.service_roles), {each.project: set(each.roles) for each in profile.projects})
            return None if old == new else Difference(f"roles of user {user.name}", _roles(*old), _roles(*new))

        yield from filter(None, executor.map(compare, [each for each in found.users if each.token]))


def _roles(service: Iterable[str], projects: Mapping[str, Iterable[str]]) -> str:
    said = [",".join(sorted(service)) or "-"]
    return " ".join(said + [f"{project}:{','.join(sorted(roles))}" for project, roles in sorted(projects.items())])


def _places(client: Client, subscriptions: Sequence[Subscription]) -> Iterator[Difference]:
    def compare(each: Subscription) -> Difference | None:
        what = f"subscription {each.project}/{each.name}"
        try:
            new = client.call(wire.get_offsets(each.project, each.name)).current
        except Refused as error:
            return Difference(what, str(each.offset), error.message)
        return Difference(what, str(each.offset), str(new)) if new < each.offset else None

    with ThreadPoolExecutor(REQUEST_THREADS) as executor:
        yield from filter(None, executor.map(compare, subscriptions))


def _bounds(bounds: KafkaBounds) -> str:
    return f"{bounds.first} to {bounds.end}"


async def _topic(topic: MovedTopic, kafka: Kafka, client: Client) -> tuple[str, str, int]:
    """Return both sides' messages up to the old end; expired ones are ignored."""
    place = topic.line.project, topic.line.name
    try:
        oldest = (await asyncio.to_thread(client.call, wire.get_topic_offsets(*place))).min
        new = asyncio.ensure_future(asyncio.to_thread(_new, topic, oldest, client))
    except Refused as error:
        return _bounds(topic.bounds), error.message, 0
    try:
        old, since = _Sum(topic), _since(topic)
        async for batch in kafka.batches(topic.kafka, topic.bounds.first, topic.bounds.end):
            kept = [(each, parse(each.fragment)) for each in batch if each.offset >= oldest or each.time >= since]
            old.add([(each.offset, publish_time(each.time), body.attributes, body.data) for each, body in kept])
        return str(old), str(await new), old.count
    except Refused as error:
        return str(old), error.message, old.count
    finally:
        new.cancel()


def _new(topic: MovedTopic, oldest: int, client: Client) -> "_Sum":
    new = _Sum(topic)
    place, following = (topic.line.project, topic.line.name), max(oldest, topic.bounds.first)
    while following < topic.bounds.end:
        stop = min(following + MESSAGES, topic.bounds.end)
        read = client.call(wire.read_topic(*place, start=following, stop=stop, most=MESSAGES))
        new.add([(each.offset, each.publish_time, each.attributes, each.data) for each in read])
        following = stop
    return new


_lines = msgspec.json.Encoder(order="deterministic").encode_lines


class _Sum:
    """A count and a hash of messages. An empty last one is ignored: it may replace an unreadable record."""

    def __init__(self, topic: MovedTopic) -> None:
        self._last = topic.bounds.end - 1
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, messages: Sequence[tuple[int, str, Mapping[str, str], str]]) -> None:
        if messages and messages[-1][0] == self._last and not any(messages[-1][2:]):
            messages = messages[:-1]
        self.count += len(messages)
        self._hash.update(_lines(messages))

    def __str__(self) -> str:
        return f"{self.count} messages, {self._hash.hexdigest()[:16]}"
