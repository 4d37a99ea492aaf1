"""Rules for the lines of an export, in sequence: order, names, references, counts.

All lines are validated before use, so an error has the number of its line. Memory grows with the names in a file, not
with its messages.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import Any

from ams.core import push_config
from ams.core.ack_ids import MIN_ACK_DEADLINE
from ams.core.errors import InvalidInput, Unusable
from ams.core.issuer import validate as checked_issuer
from ams.core.messages import MAX_ORDERING_KEY, is_ordering_key
from ams.core.names import checked_name, checked_resource_name, is_uuid
from ams.core.parallel_options import check as check_options
from ams.core.public_keys import PublicKey
from ams.core.quotas import changed_limits
from ams.core.rights import validate as checked_rights
from ams.core.urls import has_credentials
from ams.push import delivery_request
from ams.storage import export_format as export
from ams.storage.export_format import AnyLine, Line, kind
from ams.storage.registry.logins import issuer_on

Name = tuple[str, str]  # of something in a project: the project's name and its own

_USER_FIELDS = ("user", "created_by", "modified_by")  # names of users on earlier lines
MAX_SPAN_MESSAGES = 2**32  # from a subscription's offset to its last acknowledged message: more would take gigabytes
MAX_SECRETS = 2  # of a push subscription: the current one and, for a while, the previous one


class LineRules:
    """Validates lines in sequence; `see` raises `InvalidInput` for an invalid one."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # lines so far by kind, without header and end
        self.has_ended = False
        self._with_secrets = True  # True: the file says that it has secrets
        self._place = -1
        self._number = 0
        self._logs: dict[Name, tuple[int, str | None]] = {}  # of topics without a line: number of its line, and its id
        self._ends: dict[Name, int] = {}
        self._log: Name | None = None  # the log of the current messages
        self._end = self._time = 0
        self._seen: set[tuple[object, ...]] = set()  # keys that may occur once in a file, after their kind
        order: tuple[dict[type[Line], Callable[[Any], None]], ...] = (
            {export.Header: self._header}, {export.Log: self._begin_log, export.Message: self._message},
            {export.Lost: lambda line: None}, {export.User: self._user}, {export.Project: self._project},
            {export.Membership: self._membership}, {export.Schema: self._schema}, {export.Topic: self._topic},
            {export.Subscription: self._subscription}, {export.Snapshot: self._snapshot},
            {export.Registration: self._registration}, {export.NamedToken: self._named_token},
            {export.Binding: self._binding}, {export.Issuer: self._issuer}, {export.End: self._finish},
        )  # fmt: skip
        # By kind: place in the order, check, whether it has an identity of its own, and fields that name users.
        self._rules: dict[type[Line], tuple[int, Callable[[Any], None], bool, list[str]]] = {}
        for place, checks in enumerate(order):
            for each, check in checks.items():
                fields = each.__struct_fields__
                has_identity = "id" in fields and each not in (export.Log, export.Topic)
                self._rules[each] = place, check, has_identity, [name for name in _USER_FIELDS if name in fields]

    def see(self, line: AnyLine, number: int) -> None:
        """Validate the next line."""
        self._number = number
        place, check, has_identity, users = self._rules[type(line)]
        if place != self._place:
            if self.has_ended:
                raise InvalidInput("nothing may follow the end")
            if self._place < 0 and place:
                raise InvalidInput("an export begins with a line of kind header")
            if place < self._place:
                raise InvalidInput(f"a line of kind {kind(line)} may not stand here: kinds have an order")
            self._place = place
            self._leave_log()
        elif isinstance(line, export.Header | export.Lost | export.End):
            raise InvalidInput(f"a second line of kind {kind(line)}")
        for field in users:
            self._known_user(getattr(line, field))
        if has_identity:
            self._identity(kind(line).replace("_", " "), line.id)  # type: ignore[union-attr]  # it has one
        check(line)
        if not isinstance(line, export.Header | export.End):
            self.counts[kind(line)] += 1

    def _header(self, line: export.Header) -> None:
        if line.format != export.FORMAT:
            raise InvalidInput(f"the file is in format {line.format}, this program reads {export.FORMAT}; upgrade it")
        self._with_secrets = line.secrets

    def _begin_log(self, line: export.Log) -> None:
        self._leave_log()
        name = (checked_name("project", line.project), checked_resource_name("topic", line.topic))
        if name in self._logs:
            raise InvalidInput(f"a second log of topic {line.topic} of project {line.project}")
        self._identity("topic", line.id)
        self._logs[name] = self._number, line.id
        self._log, self._end, self._time = name, line.first, 0

    def _message(self, line: export.Message) -> None:
        if self._log is None:
            raise InvalidInput("a message before any log")
        if line.offset < self._end:
            raise InvalidInput(f"offset {line.offset} where {self._end} or a later one must be")
        if line.time < self._time:
            raise InvalidInput("a publish time before that of the message above")
        if not is_ordering_key(line.ordering_key):
            raise InvalidInput(f"an ordering key of more than {MAX_ORDERING_KEY} bytes")
        self._end, self._time = line.offset + 1, line.time

    def _leave_log(self) -> None:
        if self._log is not None:
            self._ends[self._log] = self._end
            self._log = None

    def _user(self, line: export.User) -> None:
        self._once(f"a second user {line.name}", "user", checked_name("user", line.name))
        if line.token:
            self._once("a token that another user has", "token", hash(line.token))

    def _project(self, line: export.Project) -> None:
        self._once(f"a second project {line.name}", "project", checked_name("project", line.name))
        _check_days(line.days)
        changed_limits({}, line.quotas)

    def _membership(self, line: export.Membership) -> None:
        self._known_project(line.project)
        refusal = f"a second membership of user {line.user} in project {line.project}"
        self._once(refusal, "membership", line.project, line.user)

    def _schema(self, line: export.Schema) -> None:
        self._new_in_project("schema", line.project, line.name)
        numbers = [each.revision for each in line.revisions]
        if numbers != sorted(set(numbers)):
            raise InvalidInput("revisions that do not grow")
        if line.last_revision is not None and line.last_revision <= numbers[-1]:
            raise InvalidInput("a last_revision that is not above those that are there")

    def _topic(self, line: export.Topic) -> None:
        self._new_in_project("topic", line.project, line.name)
        number, identity = self._logs.pop((line.project, line.name), (0, None))
        if not number:
            self._identity("topic", line.id)
        elif line.id is not None and line.id != identity:
            raise InvalidInput(f"another id than the log's on line {number}")
        if line.schema is not None and ("schema", line.project, line.schema) not in self._seen:
            raise InvalidInput(f"schema {line.schema} is not on any line before")
        first, last = line.first_revision, line.last_revision
        if line.schema is None and (line.schema_encoding or first or last):
            raise InvalidInput("schema_encoding, first_revision or last_revision without a schema")
        if line.schema is not None and line.deleted_schema:
            raise InvalidInput("deleted_schema with a schema")
        if first is not None and last is not None and first > last:
            raise InvalidInput(f"first_revision {first} after last_revision {last}")
        self._check_access_list(line.authorized)
        _check_days(line.days)

    def _subscription(self, line: export.Subscription) -> None:
        self._new_in_project("subscription", line.project, line.name)
        checked_resource_name("topic", line.topic)
        self._check_position(line.project, line.topic, line.offset, line.done)
        self._check_access_list(line.authorized)
        _check_push(line)
        if line.parallel is None:
            if line.done:
                raise InvalidInput("done one by one, of a subscription that is not parallel")
            return
        check_options(line.parallel)
        if line.ack_deadline_seconds < MIN_ACK_DEADLINE:
            raise InvalidInput(f"ack_deadline_seconds of a parallel subscription is {MIN_ACK_DEADLINE} or more")
        if (letters := line.parallel.dead_letter_policy) is not None:
            checked_resource_name("dead letter topic", letters.topic)

    def _snapshot(self, line: export.Snapshot) -> None:
        self._new_in_project("snapshot", line.project, line.name)
        if ("topic", line.project, line.topic) not in self._seen:
            raise InvalidInput(f"topic {line.topic} is not on any line before")
        self._check_position(line.project, line.topic, line.floor, line.done)

    def _registration(self, line: export.Registration) -> None:
        if line.status == "pending":
            self._once(f"a second pending registration of {line.name}", "pending", line.name)

    def _named_token(self, line: export.NamedToken) -> None:
        self._new_of_user("token", line.user, line.name)
        self._once("a hash that another named token has", "hash", line.hash)
        if line.public_key is not None:
            self._once("a public_key that another named token has", "key", PublicKey.read(line.public_key).id)
        if line.rights is not None:  # unknown actions are accepted here: a right to one does no harm
            checked_rights(line.rights, {each.action for each in line.rights})

    def _binding(self, line: export.Binding) -> None:
        self._new_of_user("binding", line.user, line.name)
        if not line.issuer or not line.subject:
            raise InvalidInput("a binding to no identity: issuer and subject say which")
        self._once("a second binding to the same identity", "bound", line.issuer, line.subject)

    def _issuer(self, line: export.Issuer) -> None:
        known = issuer_on(line)
        if not self._with_secrets and not known.client_secret:
            known = replace(known, client_secret="left out")  # noqa: S106 - stands for the secret
        # Several may be asked about opaque tokens: those in the settings may have replaced one.
        checked_issuer(known)
        self._once(f"a second issuer {line.name}", "issuer", line.name)
        self._once("a url that another issuer has", "url", line.url)

    def _finish(self, line: export.End) -> None:
        for (project, topic), (number, _) in self._logs.items():
            raise InvalidInput(f"topic {topic} of project {project}, whose log is on line {number}, has no line")
        stated, seen = line.counts, self.counts
        if dict(stated) != dict(seen):
            kinds = sorted(each for each in stated.keys() | seen.keys() if stated.get(each, 0) != seen[each])
            difference = ", ".join(f"{each} {stated.get(each, 0)}, and there are {seen[each]}" for each in kinds)
            raise InvalidInput(f"the file has other lines than it says: {difference}")
        self.has_ended = True

    def _once(self, refusal: str, *key: object) -> None:
        if key in self._seen:
            raise InvalidInput(refusal)
        self._seen.add(key)

    def _new_in_project(self, what: str, project: str, name: str) -> None:
        self._known_project(project)
        self._once(f"a second {what} {name} of project {project}", what, project, checked_resource_name(what, name))

    def _new_of_user(self, what: str, user: str, name: str) -> None:
        self._once(f"a second {what} {name} of user {user}", what, user, checked_name(what, name))

    def _identity(self, what: str, identity: str | None) -> None:
        if identity is None:
            return
        if not is_uuid(identity):
            raise InvalidInput(f"id {identity!r} is no uuid in lower-case digits")
        self._once(f"a second {what} with id {identity}", "id", what, identity)

    def _known_user(self, name: str | None) -> None:
        if name is not None and ("user", name) not in self._seen:
            raise InvalidInput(f"user {name} is not on any line before")

    def _known_project(self, name: str) -> None:
        if ("project", name) not in self._seen:
            raise InvalidInput(f"project {name} is not on any line before")

    def _check_position(self, project: str, topic: str, offset: int, done: Iterable[tuple[int, int]]) -> None:
        is_there, end = ("topic", project, topic) in self._seen, self._ends.get((project, topic), 0)
        if is_there and offset > end:
            raise InvalidInput(f"offset {offset} is beyond the end of the topic, {end}")
        last = offset
        for begin, after in done:
            if not last <= begin < after:
                why = "ranges go upwards from the offset, and are not empty"
                raise InvalidInput(f"done from {begin} to {after}: {why}")
            last = after
        if last - offset > MAX_SPAN_MESSAGES:
            raise InvalidInput(f"done to {last}: more than {MAX_SPAN_MESSAGES} messages after the offset")
        if is_there and last > end:
            raise InvalidInput(f"done to {last} is beyond the end of the topic, {end}")

    def _check_access_list(self, names: Iterable[str]) -> None:
        seen: set[str] = set()
        for name in names:
            self._known_user(name)
            if name in seen:
                raise InvalidInput(f"user {name} twice on the access list")
            seen.add(name)


def validate_lines(numbered: Iterable[tuple[int, AnyLine]], path: str, rules: LineRules) -> Iterator[AnyLine]:
    """Yield valid lines. Raises `Unusable` for the first invalid one, and for a file without its end."""
    for number, line in numbered:
        try:
            rules.see(line, number)
        except InvalidInput as error:
            raise Unusable(f"{path}, line {number}: {error.message}") from None
        yield line
    if not rules.has_ended:
        raise Unusable(f"{path}: the last line is missing: the file was cut")


def _check_push(line: export.Subscription) -> None:
    push, is_parallel = line.push, line.parallel is not None
    if push is not None:
        _check_config(push)
        if push.dead_letter_topic == line.topic:
            raise InvalidInput("a dead letter topic that is the subscription's own")
        most = push_config.MAX_OUTSTANDING
        if not 0 <= push.max_outstanding <= (most if is_parallel else 0):
            raise InvalidInput(f"max_outstanding {push.max_outstanding}, and a parallel one has up to {most}")
        if is_parallel and push.dead_letter_topic:
            raise InvalidInput("a dead letter topic for push of a parallel subscription, which has a policy for that")
        if push.google is not None:
            if not is_parallel or push.type != push_config.HTTP_ENDPOINT:
                raise InvalidInput("push in Google's form that is not to an endpoint, or of one that is not parallel")
            push_config.check_google_form(push.google, push.endpoint, is_permitted=True)
    if line.push_secrets and (push is None or push.type != push_config.HTTP_ENDPOINT):
        raise InvalidInput("push_secrets without a push endpoint")
    if len(line.push_secrets) > MAX_SECRETS:
        raise InvalidInput(f"more than {MAX_SECRETS} push_secrets")
    for each in line.push_secrets:
        try:
            delivery_request.key(each.secret)
        except ValueError as error:
            raise InvalidInput(str(error)) from None


def _check_config(push: push_config.PushConfig) -> None:
    if push.type not in (push_config.HTTP_ENDPOINT, push_config.MATTERMOST):
        raise InvalidInput(f"push of type {push.type!r}, which is none")
    if has_credentials(push.endpoint) or has_credentials(push.mattermost_url):
        raise InvalidInput("a push endpoint with a user and password in its URL")
    is_emulators = push.google is not None and push_config.is_local_http(push.endpoint)
    if push.type == push_config.HTTP_ENDPOINT and not (push_config.is_https(push.endpoint) or is_emulators):
        raise InvalidInput("a push endpoint that is no https URL")
    attempts = push.max_delivery_attempts
    if not push.dead_letter_topic and attempts:
        raise InvalidInput("max_delivery_attempts without a dead_letter_topic")
    if push.dead_letter_topic:
        checked_resource_name("dead letter topic", push.dead_letter_topic)
        if not 1 <= attempts <= push_config.MAX_ATTEMPTS:
            raise InvalidInput(f"max_delivery_attempts {attempts}, and there are 1 to {push_config.MAX_ATTEMPTS}")


def _check_days(days: Iterable[export.Day]) -> None:
    seen: set[str] = set()
    for each in days:
        try:
            date.fromisoformat(each.day)
        except ValueError:
            raise InvalidInput(f"{each.day!r} is no day: YYYY-MM-DD") from None
        if each.day in seen:
            raise InvalidInput(f"day {each.day} twice")
        seen.add(each.day)
