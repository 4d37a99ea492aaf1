"""Converts documents of the reference to lines of an export. Pure: the same documents give the same lines.

Data that is changed or left out is reported as an `Oddity`. Where there is a choice, we do as the reference did.
"""

import base64
import contextlib
import itertools
import math
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeVar

from ams.core.ack_ids import MAX_ACK_DEADLINE
from ams.core.names import MAX_NAME, is_name, is_uuid
from ams.core.push_config import HTTP_ENDPOINT, MATTERMOST, PushConfig, is_https
from ams.core.settings import MAX_RETENTION_SECONDS
from ams.core.urls import has_credentials
from ams.storage import export_format as export

T = TypeVar("T")
Document = Mapping[str, Any]
Place = tuple[str, str]  # a project, by name or old uuid, and the name of something in it
NAMESPACE = uuid.UUID("8c0f1a54-6f0e-5bd3-9a3e-0d6b7a2f4c11")  # for ids that the reference lacks
LONGEST_AGE = MAX_RETENTION_SECONDS * 1000
LAST_MESSAGES = 1000  # a rate is stored as so many messages since the previous request
MAX_TIME_MS = 253_402_300_799_999  # the end of the year 9999
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_KINDS: Mapping[str, Literal["json", "avro"]] = {"json": "json", "avro": "avro"}
_DECIDED: Mapping[str, Literal["accepted", "declined"]] = {"accepted": "accepted", "declined": "declined"}
_PERSON = ("email", "first_name", "last_name", "organization", "description")
MAX_COUNT = 2**53  # larger numbers are invalid


class Oddity(NamedTuple):
    """Old data that is changed or left out."""

    kind: str
    what: str  # the item, by names that are not secret
    done: str


@dataclass(frozen=True, slots=True)
class Documents:
    """The collections of the reference, each in order of creation."""

    projects: Sequence[Document] = ()
    users: Sequence[Document] = ()
    topics: Sequence[Document] = ()
    subscriptions: Sequence[Document] = ()
    schemas: Sequence[Document] = ()
    user_registrations: Sequence[Document] = ()
    daily_topic_msg_count: Sequence[Document] = ()


class KafkaBounds(NamedTuple):
    """Bounds of a topic in Kafka: the oldest kept offset, and the end."""

    first: int
    end: int
    age: int | None = None  # retention in milliseconds; None: unknown
    young: int | None = None  # first offset within the retention: Kafka drops older messages later, we at once


NO_MESSAGES = KafkaBounds(0, 0)


@dataclass(frozen=True, slots=True)
class MovedTopic:
    """A converted topic, and the place of its messages."""

    line: export.Topic
    kafka: str  # the name of its topic in Kafka
    bytes: int
    bounds: KafkaBounds

    @property
    def what(self) -> str:
        """Its name for people."""
        return f"topic {self.line.project}/{self.line.name}"


@dataclass(slots=True)
class Converted:
    """All converted data except messages."""

    users: list[export.User] = field(default_factory=list)
    projects: list[export.Project] = field(default_factory=list)
    memberships: list[export.Membership] = field(default_factory=list)
    schemas: list[export.Schema] = field(default_factory=list)
    topics: list[MovedTopic] = field(default_factory=list)
    subscriptions: list[export.Subscription] = field(default_factory=list)
    registrations: list[export.Registration] = field(default_factory=list)
    handed: dict[str, int] = field(default_factory=dict)  # by subscription id: end of its unacknowledged leases
    oddities: list[Oddity] = field(default_factory=list)
    renamed: set[str] = field(default_factory=set)  # new names that replace invalid ones

    @property
    def messages(self) -> int:
        """Upper bound of the messages: holes are counted."""
        return sum(topic.bounds.end - topic.bounds.first for topic in self.topics)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of lines of each kind."""
        return {**Counter(export.kind(each) for each in self.lines()), "message": self.messages}

    @property
    def standing(self) -> list[export.Subscription]:
        """The subscriptions whose topic exists: others have no position."""
        topics = {(each.line.project, each.line.name) for each in self.topics}
        return [each for each in self.subscriptions if (each.project, each.topic) in topics]

    def lines(self) -> Iterator[export.Line]:
        """Return the lines after the messages, in the order of an export."""
        topics = (topic.line for topic in self.topics)
        named = itertools.chain(self.memberships, self.schemas, topics, self.subscriptions, self.registrations)
        return itertools.chain(self.users, self.projects, named)


def kept_for(age: int | None) -> int:
    """Return our retention for one of Kafka; a year if unknown."""
    return age if age is not None and 0 < age <= LONGEST_AGE else LONGEST_AGE


def convert_documents(documents: Documents, bounds: Callable[[str], KafkaBounds]) -> Converted:
    """Convert documents; `bounds` returns the bounds of a Kafka topic."""
    return _Conversion(documents, bounds).run()


def user_names(users: Sequence[Document]) -> Mapping[str, str]:
    """Return new user names by old uuids; a user that is left out maps to the one the reference answered with."""
    conversion = _Conversion(Documents(users=users), lambda _: NO_MESSAGES)
    conversion.run()
    return conversion.users


class _Conversion:
    def __init__(self, documents: Documents, bounds: Callable[[str], KafkaBounds]) -> None:
        self._documents, self._bounds = documents, bounds
        self._done = Converted()
        self.users: dict[str, str] = {}  # names of converted users, by old uuid; both of two with one name
        self._kept: list[tuple[str, Document]] = []  # converted users, by new name
        self._ids: set[tuple[str, str]] = set()
        self._projects: dict[str, str] = {}
        self._schemas: dict[str, Place] = {}  # project and name, by old uuids
        self._topics: dict[Place, MovedTopic] = {}  # by the uuid of the project and the old name

    def run(self) -> Converted:
        self._convert_users()
        self._convert_projects()
        for name, each in self._kept:
            roles: dict[str, tuple[str, ...]] = {}
            for entry in _items(each, "projects", dict):
                if (project := self._projects.get(_text(entry, "project_uuid"))) is None:
                    self._odd("membership", f"user {name}", "of a project that is gone is left out")
                    continue
                if project in roles:
                    self._odd("second membership", f"user {name} in {project}", "the last one decides, as it did")
                roles[project] = tuple(_items(entry, "roles", str))
            self._done.memberships += [
                export.Membership(user=name, project=each, roles=of) for each, of in roles.items()
            ]
        self._convert_schemas()
        days = _days(self._documents.daily_topic_msg_count, "project_uuid", "topic_name")
        for old, place, several in self._group_by_name("topic", self._documents.topics):
            if len(several) > 1:
                self._odd("second topic", f"{place[0]}/{place[1]}", "both are one now: they shared their messages")
            self._topics[old] = self._topic(place, several, ".".join(old), days[old])
        self._done.topics = list(self._topics.values())
        self._convert_subscriptions()
        self._convert_registrations()
        return self._done

    def _odd(self, kind: str, what: str, done: str) -> None:
        self._done.oddities.append(Oddity(kind, what, done))

    def _name(self, kind: str, name: str, is_taken: Callable[[str], bool]) -> str:
        """Return a valid, unused name: old names may break the rule."""
        if is_name(name):
            return name
        base = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "unnamed"
        endings = itertools.chain([""], (f"_{number}" for number in itertools.count(2)))
        mended = next(each for end in endings if not is_taken(each := base[: MAX_NAME - len(end)] + end))
        self._done.renamed.add(mended)
        self._odd("name", f"{kind} {name!r}", f"is called {mended} now: nobody could address it")
        return mended

    def _creation_time(self, what: str, each: Document) -> int | None:
        """Return the creation time; versions before 2020 did not store it for topics and subscriptions."""
        if (noted := _time(each, "created_on")) is None:
            self._odd("date", what, "does not say when it was made, or in the year 1: its document says when")
        return noted or _document_time(each)

    def _id(self, kind: str, name: str, identity: str) -> str | None:
        if is_uuid(identity) and (kind, identity) not in self._ids:
            self._ids.add((kind, identity))
            return identity
        why = "another has it too" if is_uuid(identity) else "its own is none"
        self._odd("uuid", f"{kind} {name}", f"gets a new uuid: {why}")
        return None

    def _user(self, identity: str) -> str | None:
        return self.users.get(identity) if identity else None

    def _convert_users(self) -> None:
        documents = self._documents.users
        others = {_text(each, "name") for each in documents}
        made: dict[str, export.User] = {}
        tokens: set[str] = set()
        for each in documents:
            name = self._name("user", _text(each, "name"), lambda name: name in others or name in made)
            token, identity = _text(each, "token"), _text(each, "uuid")
            if name in made:
                self.users.setdefault(identity, name)
                self._odd("second user", name, "is left out with its token: the oldest of a name answered")
                continue
            if not token:
                self._odd("token", f"user {name}", "has none, and gets a new one")
            elif token in tokens:
                self._odd("second token", f"user {name}", "is left out: the oldest user of a token answered")
                continue
            tokens.add(token)
            self.users.setdefault(identity, name)
            self._kept.append((name, each))
            made[name] = export.User(
                name=name, id=self._id("user", name, identity), token=token,
                service_roles=tuple(_items(each, "service_roles", str)),
                created_on=self._creation_time(f"user {name}", each), modified_on=_time(each, "modified_on"),
                **_texts(each, *_PERSON),
            )  # fmt: skip
        creators = {name: self._user(_text(each, "created_by")) for name, each in self._kept}
        self._done.users = _by_creators(made, creators)

    def _convert_projects(self) -> None:
        documents = self._documents.projects
        others = {_text(each, "name") for each in documents}
        days = _days(self._documents.daily_topic_msg_count, "project_uuid")
        names: set[str] = set()
        for each in documents:
            identity = _text(each, "uuid")
            name = self._name("project", _text(each, "name"), lambda name: name in others or name in names)
            if name in names:
                self._odd("second project", name, "is left out with all in it: the oldest of a name answered")
                continue
            names.add(name)
            self._projects.setdefault(identity, name)
            self._done.projects.append(export.Project(
                name=name, id=self._id("project", name, identity), description=_text(each, "description"),
                created_on=self._creation_time(f"project {name}", each), modified_on=_time(each, "modified_on"),
                created_by=self._user(_text(each, "created_by")),
                days=tuple(export.Day(day, count, 0) for day, count in sorted(days[identity,].items())),
            ))  # fmt: skip

    def _convert_schemas(self) -> None:
        others = {(_text(each, "project_uuid"), _text(each, "name")) for each in self._documents.schemas}
        names: set[Place] = set()
        for each in self._documents.schemas:
            if (place := self._place("schema", each, names, others)) is None:
                continue
            project, name = place
            payload, kind = None, _KINDS.get(_text(each, "type").lower())
            with contextlib.suppress(ValueError):  # also `binascii.Error` and `UnicodeDecodeError`
                payload = base64.b64decode(_text(each, "raw_schema"), validate=True).decode()
            if payload is None or kind is None:
                self._odd("schema", f"{project}/{name}", "is left out: it cannot be read; its topics take any message")
                continue
            names.add(place)
            self._schemas[_text(each, "uuid")] = place
            identity = self._id("schema", name, _text(each, "uuid"))
            created = _document_time(each)
            revision = export.Revision(revision=1, type=kind, payload=payload, created_on=created)
            line = export.Schema(project=project, name=name, id=identity, created_on=created, revisions=(revision,))
            self._done.schemas.append(line)

    def _place(self, kind: str, each: Document, taken: Collection[Place], others: Collection[Place]) -> Place | None:
        """Return project and name; None to leave it out. `others`: old project uuids and names of its kind."""
        owner = _text(each, "project_uuid")
        if (project := self._projects.get(owner)) is None:
            self._odd(kind, _text(each, "name"), "of a project that is gone is left out")
            return None

        def is_taken(name: str) -> bool:
            return (owner, name) in others or (project, name) in taken

        name = self._name(kind, _text(each, "name"), is_taken)
        if (project, name) in taken:
            self._odd(f"second {kind}", f"{project}/{name}", "is left out: the oldest of a name answered")
            return None
        return project, name

    def _group_by_name(self, kind: str, documents: Sequence[Document]) -> Iterator[tuple[Place, Place, list[Document]]]:
        """Yield old place, new place and documents of each converted item: a name may have two documents."""
        groups: dict[Place, list[Document]] = defaultdict(list)
        for each in documents:
            groups[_text(each, "project_uuid"), _text(each, "name")].append(each)
        taken: set[Place] = set()
        for old, several in groups.items():
            if place := self._place(kind, several[-1], taken, groups):
                taken.add(place)
                yield old, place, several

    def _topic(self, place: Place, several: Sequence[Document], kafka: str, days: Mapping[str, int]) -> MovedTopic:
        project, name = place
        newest = several[-1]
        bounds = self._bounds(kafka)
        old = 0 if bounds.young is None else bounds.young - bounds.first
        if old > 0:
            self._odd("age", f"topic {project}/{name}", f"{old} messages are older than it keeps them, and go")
        counted = sum(_number(each, "msg_num") for each in several)
        size = sum(_number(each, "total_bytes") for each in several)
        if counted != bounds.end:
            self._odd("counter", f"topic {project}/{name}", f"counts {bounds.end} messages now, and counted {counted}")
        schema = self._schemas.get(_text(newest, "schema_uuid"))
        if _text(newest, "schema_uuid") and (schema is None or schema[0] != project):
            self._odd("schema", f"topic {project}/{name}", "has none now: its schema is not there")
        retention = None if bounds.age is None else kept_for(bounds.age)
        if retention != bounds.age:
            self._odd("retention", f"topic {project}/{name}", "is a year now, the most there is")
        created = self._creation_time(f"topic {project}/{name}", newest)
        line = export.Topic(
            project=project, name=name, id=str(uuid.uuid5(NAMESPACE, f"topic {kafka} {several[0].get('_id', '')}")),
            retention=retention, created_on=created, schema=schema[1] if schema and schema[0] == project else None,
            authorized=self._authorized_users(f"topic {project}/{name}", several),
            tally=_tally(newest, bounds.end, size, "publish"), days=_fit_days(days, bounds.end, created),
        )  # fmt: skip
        return MovedTopic(line, kafka, max(size, 0), bounds)

    def _authorized_users(self, what: str, several: Sequence[Document]) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for identity in (each for one in several for each in _items(one, "acl", str)):
            if (name := self.users.get(identity)) is None:
                self._odd("access list", what, "names a user that is gone, who is left out")
            elif name in names:
                self._odd("access list", what, f"names {name} twice")
            else:
                names[name] = None
        return tuple(names)

    def _convert_subscriptions(self) -> None:
        for _, place, several in self._group_by_name("subscription", self._documents.subscriptions):
            if len(several) > 1:
                self._odd("second subscription", f"{place[0]}/{place[1]}", "the smaller offset is taken")
            if line := self._subscription(place, several):
                self._done.subscriptions.append(line)

    def _subscription(self, place: Place, several: Sequence[Document]) -> export.Subscription | None:
        project, name = place
        newest, what = several[-1], f"subscription {project}/{name}"
        owner, old_topic = _text(newest, "project_uuid"), _text(newest, "topic")
        topic = self._topics.get((owner, old_topic))
        if topic is None and not is_name(old_topic):
            self._odd("subscription", f"{project}/{name}", "is left out: its topic is gone, and had no name")
            return None
        offset, lost = self._offset(what, several, topic)
        deadline = _number(newest, "ack", 10)
        if not 0 <= deadline <= MAX_ACK_DEADLINE:
            self._odd("deadline", what, f"of {deadline} s is cut to 0 to {MAX_ACK_DEADLINE}")
        identity = str(uuid.uuid5(NAMESPACE, f"subscription {owner}.{_text(newest, 'name')}"))
        if topic:
            handed = max(_number(each, "next_offset") for each in several)
            self._done.handed[identity] = min(handed, topic.bounds.end)
        return export.Subscription(
            project=project, name=name, topic=topic.line.name if topic else old_topic, id=identity,
            ack_deadline_seconds=min(max(deadline, 0), MAX_ACK_DEADLINE),
            created_on=self._creation_time(what, newest), push=self._push(what, newest),
            authorized=self._authorized_users(what, several), offset=offset, lost=lost,
            tally=_tally(newest, _number(newest, "msg_num"), _number(newest, "total_bytes"), "consume"),
        )  # fmt: skip

    def _offset(self, what: str, several: Sequence[Document], topic: MovedTopic | None) -> tuple[int, int]:
        """Return its offset, and how many messages expired before they were acknowledged."""
        offset = min(_number(each, "offset") for each in several)
        if topic is None:
            self._odd("topic", what, "has a topic that is gone")
            return max(offset, 0), 0
        first, end, *_ = topic.bounds
        if offset < 0:
            self._odd("offset", what, f"of {offset} begins at the oldest message kept, {first}, as it would have")
            return first, 0
        if offset < first:
            self._odd("offset", what, f"{first - offset} messages are kept no longer that it has not acknowledged")
            return first, first - offset
        if offset <= end:
            return offset, 0
        created = _time(several[-1], "created_on") or _document_time(several[-1]) or 0
        place = first if (topic.line.created_on or 0) > created else end  # was the topic made again?
        self._odd("offset", what, f"of {offset} is beyond the end: it stands at {place} now")
        return place, 0

    def _push(self, what: str, each: Document) -> PushConfig | None:
        kind, endpoint = _text(each, "push_type"), _text(each, "push_endpoint")
        if kind not in (HTTP_ENDPOINT, MATTERMOST):
            if endpoint:
                self._odd("push", what, "has an endpoint and no type of push: it is pulled from, as it was")
            return None
        if has_credentials(endpoint) or has_credentials(_text(each, "mattermost_url")):
            self._odd("push", what, "is pulled from now: its endpoint has a user and password in its URL")
            return None
        if kind == HTTP_ENDPOINT and not is_https(endpoint):
            self._odd("push", what, "is pulled from now: its endpoint is no https URL")
            return None
        policy = _text(each, "retry_policy")
        autogen = kind == HTTP_ENDPOINT and _text(each, "authorization_type") == "autogen"
        return PushConfig(
            type=kind, endpoint=endpoint, max_messages=max(_number(each, "max_messages"), 1),
            header_type="" if kind == MATTERMOST else _text(each, "authorization_type"),
            header_value=_text(each, "authorization_header") if autogen else "",
            retry_policy=policy if policy in ("linear", "slowstart") else "linear",
            retry_period=max(_number(each, "retry_period"), 0), verified=bool(each.get("verified")),
            base64_decode=bool(each.get("base_64_decode")),
            **_texts(each, "verification_hash", "mattermost_url", "mattermost_username", "mattermost_channel"),
        )  # fmt: skip

    def _convert_registrations(self) -> None:
        pending: set[str] = set()
        made: list[export.Registration] = []
        for each in reversed(self._documents.user_registrations):  # the newest of several pending ones
            name, decided = _text(each, "name"), _DECIDED.get(_text(each, "status"))
            if decided is None and name in pending:
                self._odd("registration", name, "is left out: a newer one of the name is pending")
                continue
            if decided is None:
                pending.add(name)
            made.append(export.Registration(
                name=name, id=self._id("registration", name, _text(each, "uuid")), status=decided or "pending",
                registered_at=_text_time(each, "registered_at"), modified_at=_text_time(each, "modified_at"),
                modified_by=self._user(_text(each, "modified_by")),
                **_texts(each, *_PERSON, "activation_token", "decline_comment"),
            ))  # fmt: skip
        self._done.registrations = made[::-1]


def _text(each: Document, name: str) -> str:
    found = each.get(name)
    return found if isinstance(found, str) else ""


def _number(each: Document, name: str, otherwise: int = 0) -> int:
    found = each.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return otherwise
    return min(max(int(found), -MAX_COUNT), MAX_COUNT)


def _items(each: Document, name: str, kind: type[T]) -> list[T]:
    found = each.get(name)
    return [one for one in found if isinstance(one, kind)] if isinstance(found, list) else []


def _time(each: Document, name: str) -> int | None:
    """Return a date in milliseconds; None for the year 1 (never) and for invalid dates."""
    found = each.get(name)
    if isinstance(found, datetime):
        found = milliseconds(found)
    elif found is None or isinstance(found, str | float) or not hasattr(found, "__int__"):
        return None
    return int(found) if 0 < int(found) <= MAX_TIME_MS else None


def milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since 1970, truncated; without a zone it is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _document_time(each: Document) -> int | None:
    """Return the creation time of a document: the first 4 bytes of its id are seconds."""
    digits = str(each.get("_id", ""))
    return int(digits[:8], 16) * 1000 if re.fullmatch("[0-9a-f]{24}", digits) else None


def _text_time(each: Document, name: str) -> int | None:
    try:
        return _time({name: datetime.fromisoformat(_text(each, name))}, name)
    except ValueError:
        return None


def _texts(each: Document, *names: str) -> dict[str, Any]:
    return {name: _text(each, name) for name in names}


def _by_creators(made: Mapping[str, export.User], creators: Mapping[str, str | None]) -> list[export.User]:
    ordered: dict[str, export.User] = {}
    for user in made.values():
        path: list[export.User] = []
        current: export.User | None = user
        while current is not None and current.name not in ordered and current not in path:
            path.append(current)
            current = made.get(creators[current.name] or "")
        for each in reversed(path):
            creator = creators[each.name]
            each.created_by = creator if creator in ordered else None
            ordered[each.name] = each
    return list(ordered.values())


def _days(documents: Iterable[Document], *names: str) -> Mapping[tuple[str, ...], Mapping[str, int]]:
    days: dict[tuple[str, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for each in documents:
        if (time := _time(each, "date")) is not None:
            day = datetime.fromtimestamp(time / 1000, UTC).date().isoformat()
            days[tuple(_text(each, name) for name in names)][day] += max(_number(each, "msg_count"), 0)
    return days


def _fit_days(days: Mapping[str, int], end: int, created: int | None) -> tuple[export.Day, ...]:
    """Fit the days to the published total: a topic that was made again inherited the days of its name."""
    left = end
    kept: dict[str, int] = {}
    for day, count in sorted(days.items(), reverse=True):
        kept[day] = min(count, left)
        left -= kept[day]
    if left > 0:
        first = min(kept, default=datetime.fromtimestamp((created or 0) / 1000, UTC).date().isoformat())
        kept[first] = kept.get(first, 0) + left
    return tuple(export.Day(day, count, 0) for day, count in sorted(kept.items()) if count)


def _tally(each: Document, messages: int, size: int, verb: str) -> export.Tally:
    """Return the counters, and two request times that give the same rate."""
    last, rate = _time(each, f"latest_{verb}"), each.get(f"{verb}_rate")
    tally = export.Tally(messages=max(messages, 0), bytes=max(size, 0), last=last)
    if last is not None and isinstance(rate, int | float) and math.isfinite(rate) and rate > 0:
        before = last - round(1000 * LAST_MESSAGES / rate)
        if before >= 0:
            tally.last_messages, tally.before = LAST_MESSAGES, before
    return tally
