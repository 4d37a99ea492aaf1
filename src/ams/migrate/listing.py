"""What the reference keeps, read through its API, as the documents that its MongoDB holds.

What the API does not show is missing in them, or told as an oddity; `LACKS` says what is never there.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from ams.client.errors import NotFound
from ams.client.wire.call import (
    projects_path,
    registrations_path,
    schemas_path,
    subscriptions_path,
    topics_path,
    users_path,
)
from ams.core.errors import Unavailable
from ams.core.names import is_name
from ams.migrate.asking import AT_A_TIME, Json, OldService, each_of, integer, objects, text, texts
from ams.migrate.converting import Bounds, kafka_topic, project_uuid
from ams.migrate.documents import Document, Documents, Oddity
from ams.migrate.pulling import TEMPORARY, Pulling, TopicName, bounds_of

LACKS = (
    "projects have new uuids: the API shows none",
    "dates are whole seconds, and those of topics and subscriptions made before 2020 are missing",
    "retention of Kafka is not shown: topics have that of the new service, which is to be set to it before the import",
    "days of topics before their newest 30 are those of their project alone",
    "messages outside partition 0, and what was left by things deleted, are not shown",
    "roles are not shown",
)
FIRST_DAY = date(2015, 1, 1)
"""Before the first version: from here on days are asked for where no project says when it was made."""
BLOCK = 30
"""Days asked for at once, until a block has messages."""


@dataclass(slots=True)
class Listed:
    """What was read."""

    documents: Documents
    places: dict[str, TopicName]
    """Topics by the names of their Kafka topics, as `converting` calls them."""
    bounds: dict[str, Bounds]


@dataclass(slots=True)
class _Found:
    """Documents as they are found."""

    projects: list[Document] = field(default_factory=list)
    users: list[Document] = field(default_factory=list)
    topics: list[Document] = field(default_factory=list)
    subscriptions: list[Document] = field(default_factory=list)
    schemas: list[Document] = field(default_factory=list)
    user_registrations: list[Document] = field(default_factory=list)
    daily_topic_msg_count: list[Document] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)


async def listed(old: OldService, pulling: Pulling) -> Listed:
    """Read everything but messages, positions before the bounds of their topics.

    Asking for positions changes two things there, as every client does that asks: one below the oldest message kept is
    lifted to it, and a topic that nobody ever published to gets its topic in Kafka. Raises `Unavailable`.
    """
    return await _Listing(old, pulling).run()


class _Listing:
    def __init__(self, old: OldService, pulling: Pulling) -> None:
        self._old = old
        self._pulling = pulling
        self._found = _Found()
        self._users: dict[str, str] = {}
        """Uuids by name; of two of a name the oldest's, who answered."""
        self._places: dict[str, TopicName] = {}
        self._bounds: dict[str, Bounds] = {}

    async def run(self) -> Listed:
        users = await self._old.pages(users_path(), "users", details="true")
        for each in users:
            self._users.setdefault(text(each, "name"), text(each, "uuid"))
        self._found.users = [self._user(each) for each in users]
        projects = objects(await self._old.get(projects_path()), "projects")
        self._found.projects = [self._project(each) for each in projects]
        for name in dict.fromkeys(text(each, "name") for each in projects):
            await self._in_project(name)
        registrations = objects(await self._old.get(registrations_path()), "user_registrations")
        self._found.user_registrations = [self._registration(each) for each in registrations]
        await self._other_days()
        documents = Documents(**{name: getattr(self._found, name) for name in _Found.__dataclass_fields__})
        return Listed(documents, self._places, self._bounds)

    def _odd(self, kind: str, what: str, done: str) -> None:
        self._found.oddities.append(Oddity(kind, what, done))

    def _uuid(self, name: str) -> str:
        return self._users.get(name, "") if name else ""

    def _user(self, each: Json) -> Document:
        memberships = [
            {
                "project_uuid": project_uuid(text(one, "project")) if text(one, "project") else "",
                "roles": texts(one, "roles"),
            }
            for one in objects(each, "projects")
        ]
        return {
            **_person(each),
            "uuid": text(each, "uuid"),
            "token": text(each, "token"),
            "service_roles": texts(each, "service_roles"),
            "projects": memberships,
            "created_on": _date(each, "created_on"),
            "modified_on": _date(each, "modified_on"),
            "created_by": self._uuid(text(each, "created_by")),
        }

    def _project(self, each: Json) -> Document:
        return {
            "uuid": project_uuid(text(each, "name")),
            "name": text(each, "name"),
            "description": text(each, "description"),
            "created_on": _date(each, "created_on"),
            "modified_on": _date(each, "modified_on"),
            "created_by": self._uuid(text(each, "created_by")),
        }

    def _registration(self, each: Json) -> Document:
        return {
            **_person(each),
            "uuid": text(each, "uuid"),
            "status": text(each, "status"),
            "activation_token": text(each, "activation_token"),
            "decline_comment": text(each, "decline_comment"),
            "registered_at": text(each, "registered_at"),
            "modified_at": text(each, "modified_at"),
            "modified_by": self._uuid(text(each, "modified_by")),
        }

    async def _in_project(self, name: str) -> None:
        if not is_name(name):
            self._odd("project", repr(name), "nothing in it is read: no request can name it")
            return
        try:
            topics = await self._old.pages(topics_path(name), "topics")
            schemas = await self._schemas(name, topics)
            subscriptions = await self._old.pages(subscriptions_path(name), "subscriptions")
        except NotFound:
            return  # deleted since the list was read
        newest = self._with_latest(name, subscriptions)
        read = await each_of(newest, lambda each: self._subscription(name, *each), AT_A_TIME)
        self._found.subscriptions += [each for each in read if each is not None]
        newest = self._with_latest(name, topics)
        read = await each_of(newest, lambda each: self._topic(name, *each, schemas), AT_A_TIME)
        self._found.topics += [each for each in read if each is not None]

    def _with_latest(self, project: str, items: Iterable[Json]) -> list[tuple[Json, bool]]:
        """Return items that are to be read, and whether each is the newest of its name, of which requests tell."""
        kept = {}
        for each in items:
            name = _short(text(each, "name"))
            if TEMPORARY.fullmatch(name):
                self._odd("subscription", f"{project}/{name}", "is left out: a move made it; delete it when none runs")
            else:
                kept[id(each)] = (name, each)
        latest = {name: number for number, (name, _) in kept.items()}
        return [(each, latest[name] == number) for number, (name, each) in kept.items()]

    async def _readable_schemas(self, project: str, topics: Sequence[Json]) -> Sequence[Json]:
        """Return all schemas; where one that is broken lets their list fail, those of topics that can be read."""
        listed = await self._old.get_answerable(schemas_path(project))
        if listed is not None:
            return objects(listed, "schemas")
        self._odd("schema", f"project {project}", "one cannot be read: those that no topic has are left out")
        named = {_short(text(each, "schema")) for each in topics}
        found = [await self._old.get_answerable(schemas_path(project, name)) for name in sorted(named) if is_name(name)]
        return [each for each in found if each is not None]

    async def _schemas(self, project: str, topics: Sequence[Json]) -> Mapping[str, str]:
        """Read schemas; return their uuids by resource name."""
        found = await self._readable_schemas(project, topics)
        for each in found:
            raw = json.dumps(each.get("schema"), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            self._found.schemas.append({
                "project_uuid": project_uuid(project),
                "uuid": text(each, "uuid"),
                "name": text(each, "name").partition("/schemas/")[2],
                "type": text(each, "type"),
                "raw_schema": base64.b64encode(raw.encode()).decode(),
            })  # fmt: skip
        return {text(each, "name"): text(each, "uuid") for each in found}

    async def _listed(self, path: str) -> list[str]:
        """Return uuids of who is on an access list."""
        names = texts(await self._old.get(f"{path}:acl"), "authorized_users")
        return [self._uuid(name) for name in names]

    async def _topic(self, project: str, each: Json, latest: bool, schemas: Mapping[str, str]) -> Document | None:
        name = _short(text(each, "name"))
        document = {
            "project_uuid": project_uuid(project),
            "name": name,
            "schema_uuid": schemas.get(text(each, "schema"), text(each, "schema")),
            "created_on": _date(each, "created_on"),
        }
        if not is_name(name):
            self._odd("topic", f"{project}/{name}", "messages, list and counters are not read: no request can name it")
        if not latest or not is_name(name):
            return document
        place, path = TopicName(project, name), topics_path(project, name)
        kafka = kafka_topic(project_uuid(project), name)
        try:
            listed = await self._listed(path)
            metrics = await self._metrics(f"topic {project}/{name}", path)
            if kafka not in self._bounds:
                self._bounds[kafka] = await self._pulling.bounds_now(place)
        except NotFound:
            return None
        self._places[kafka] = place
        self._found.daily_topic_msg_count += [
            {"project_uuid": project_uuid(project), "topic_name": name, "date": day, "msg_count": count}
            for point in metrics.get("topic.number_of_daily_messages", [])
            if (day := _day(point)) and (count := integer(point, "value"))
        ]
        return {
            **document,
            "acl": listed,
            "msg_num": _value(metrics, "topic.number_of_messages"),
            "total_bytes": _value(metrics, "topic.number_of_bytes"),
            **_last(metrics, "topic.publishing_rate", "latest_publish", "publish_rate"),
        }

    async def _subscription(self, project: str, each: Json, latest: bool) -> Document | None:
        name, topic = _short(text(each, "name")), _short(text(each, "topic"))
        if not is_name(name):
            self._odd("subscription", f"{project}/{name}", "is left out: no request can name it")
            return None
        path = subscriptions_path(project, name)
        try:
            offsets = await self._old.get(f"{path}:offsets")
            listed = await self._listed(path) if latest else []
            metrics = await self._metrics(f"subscription {project}/{name}", path) if latest else {}
        except NotFound:
            return None
        if is_name(topic):
            self._note_bounds(TopicName(project, topic), offsets)
        return {
            "project_uuid": project_uuid(project),
            "name": name,
            "topic": topic,
            "acl": listed,
            "offset": integer(offsets, "current") or 0,
            "ack": integer(each, "ackDeadlineSeconds"),
            "created_on": _date(each, "createdOn"),
            "msg_num": _value(metrics, "subscription.number_of_messages"),
            "total_bytes": _value(metrics, "subscription.number_of_bytes"),
            **_last(metrics, "subscription.consumption_rate", "latest_consume", "consume_rate"),
            **_push(each.get("pushConfig") or {}),
        }

    def _note_bounds(self, place: TopicName, offsets: Json) -> None:
        """Keep the widest end: it is not before a position that was read in the same answer, or in another."""
        kafka = kafka_topic(project_uuid(place.project), place.topic)
        try:
            found, before = bounds_of(offsets, place), self._bounds.get(kafka)
        except Unavailable:
            return  # of a topic that is there it is asked again
        if before is not None:
            found = Bounds(max(found.first, before.first), max(found.end, before.end))
        self._bounds[kafka] = found

    async def _metrics(self, what: str, path: str) -> Mapping[str, Sequence[Json]]:
        """Return points by the name of their metric; none where a rate is infinite, as no answer can say that."""
        found = await self._old.get_answerable(f"{path}:metrics")
        if found is None:
            self._odd("counter", what, "bytes, days and rate are not shown, and begin anew")
            return {}
        return {text(each, "metric"): objects(each, "timeseries") for each in objects(found, "metrics")}

    async def _other_days(self) -> None:
        """Add the messages of days that no topic shows: before the newest 30 of each, and of topics deleted since."""
        shown: dict[tuple[str, datetime], int] = defaultdict(int)
        for each in self._found.daily_topic_msg_count:
            shown[each["project_uuid"], each["date"]] += each["msg_count"]
        for (project, day), count in sorted((await self._days()).items()):
            left = count - shown[project, day]
            if left > 0:
                self._found.daily_topic_msg_count.append(
                    {"project_uuid": project, "topic_name": "", "date": day, "msg_count": left}
                )

    async def _days(self) -> Mapping[tuple[str, datetime], int]:
        """Return messages of all days of projects, by their uuids."""
        made = [moment for each in self._found.projects if (moment := each["created_on"]) is not None]
        today = datetime.now(UTC).date()
        complete = len(made) == len(self._found.projects)
        first = min((each.date() for each in made), default=today) if complete else FIRST_DAY
        days: dict[tuple[str, datetime], int] = {}
        while first <= today:
            last = min(first + timedelta(days=BLOCK - 1), today)
            if await self._published(first, last):
                span = [first + timedelta(days=number) for number in range((last - first).days + 1)]
                published = await each_of(span, lambda day: self._published(day, day), AT_A_TIME)
                for day, counts in zip(span, published, strict=True):
                    moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
                    days |= {(project_uuid(name), moment): count for name, count in counts.items()}
            first = last + timedelta(days=1)
        return days

    async def _published(self, first: date, last: date) -> Mapping[str, int]:
        """Return how many messages projects got from a day to another."""
        asked = {"start_date": first.isoformat(), "end_date": last.isoformat()}
        found = (await self._old.get("/v1/metrics/va_metrics", **asked)).get("projects_metrics")
        counted = objects(found, "projects") if isinstance(found, dict) else []
        return {text(each, "project"): count for each in counted if (count := integer(each, "message_count"))}


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]


def _person(each: Json) -> Document:
    names = ("name", "email", "first_name", "last_name", "organization", "description")
    return {name: text(each, name) for name in names}


def _date(each: Json, name: str) -> datetime | None:
    """Return a date of the API, which writes the year 1 for never."""
    try:
        found = datetime.fromisoformat(text(each, name))
    except ValueError:
        return None
    return found if found.year > 1 else None


def _day(point: Json) -> datetime | None:
    try:
        return datetime.fromisoformat(text(point, "timestamp")).replace(tzinfo=UTC)
    except ValueError:
        return None


def _value(metrics: Mapping[str, Sequence[Json]], name: str) -> int:
    points = metrics.get(name, [])
    return (integer(points[0], "value") or 0) if points else 0


def _last(metrics: Mapping[str, Sequence[Json]], name: str, time: str, rate: str) -> Document:
    """Return time and rate of the last request."""
    points = metrics.get(name, [])
    return {time: _date(points[0], "timestamp"), rate: points[0].get("value")} if points else {}


def _push(said: Json) -> Document:
    header, policy = said.get("authorizationHeader") or {}, said.get("retryPolicy") or {}
    return {
        "push_type": text(said, "type"),
        "push_endpoint": text(said, "pushEndpoint"),
        "max_messages": integer(said, "maxMessages"),
        "authorization_type": text(header, "type"),
        "authorization_header": text(header, "value"),
        "retry_policy": text(policy, "type"),
        "retry_period": integer(policy, "period"),
        "verification_hash": text(said, "verificationHash"),
        "verified": said.get("verified") is True,
        "mattermost_url": text(said, "mattermostUrl"),
        "mattermost_username": text(said, "mattermostUsername"),
        "mattermost_channel": text(said, "mattermostChannel"),
        "base_64_decode": said.get("base64Decode") is True,
    }
