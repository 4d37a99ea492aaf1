"""Reads the files of `ams apply` (docs/reference/apply.md).

A secret is never in a file of declarations, nor in a plan: a file says where it is read from, and where that of a new
token is written to. A push configuration may have only what the service would show again as it was said, so that a
second run finds nothing to do: no fields that the service drops for a type, no values that it replaces.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ams.client.wire import authn
from ams.core import parallel_options
from ams.core.ack_ids import MAX_ACK_DEADLINE, MIN_ACK_DEADLINE
from ams.core.clock import seconds_span, seconds_text, utc_text
from ams.core.distinguished_names import normalise_name
from ams.core.errors import BadDocument, InvalidInput
from ams.core.names import MAX_NAME, is_name, is_resource_name
from ams.core.parallel_options import ORDERED, PARALLEL
from ams.core.quotas import MAX_LIMIT, QUOTAS
from ams.core.rights import is_resource
from ams.core.settings import retention_seconds, size_number
from ams.core.yaml_tree import FileLine, Value, bad, read_capped, read_tree
from ams.provisioning.declarations import Declared, Fields, Reference, ResourceKey, ResourceKind
from ams.wire.projects import DEFINITION

ALL = "all"  # a token with all rights of its user
KEY_ID = "key_id"  # of a named token that is a key; it is never declared
TOKEN_FILE = "token_file"  # noqa: S105  # the name of a field
SECRETS = ("access_key", "headers", "client_secret")  # never shown, so they cannot be compared
MAX_NUMBER = 2**31 - 1
MAX_ATTEMPTS = 1000
MAX_OUTSTANDING = 1000  # of deliveries of a message (docs/reference/push.md)
SCHEMA_TYPES = ("json", "avro", "protobuf")
PROJECT_ROLES = ("consumer", "project_admin", "publisher")  # whatever the roles file says (HTTP contract 3.3)

Readers = Mapping[str, Callable[[Value], Any]]


def _read_fields(said: Mapping[str, Value], readers: Readers) -> Fields:
    return {name: read(said[name]) for name, read in readers.items() if name in said}


def _fields(value: Value, readers: Readers, missing: str = "", needed: tuple[str, ...] = ()) -> Fields:
    """Read fields. Raises `BadDocument` with the text `missing` for the first absent required one."""
    said = value.mapping(tuple(readers))
    for name in needed:
        if name not in said:
            raise bad(value.place, missing.format(name))
    return _read_fields(said, readers)


def _member_fields(value: Value) -> Fields:
    for each in value.values():
        if each.text() not in PROJECT_ROLES:
            raise bad(each.place, f"{each.text()!r} is no role in a project: {', '.join(PROJECT_ROLES)}")
    return {"roles": _names(value)}


def _schema_fields(value: Value, folder: str) -> Fields:
    # A schema is declared whole.
    said = value.mapping(("type", "schema", "file", "attributes"))
    if "schema" in said and "file" in said:
        raise bad(said["file"].place, "give the schema here or in a file, not both")
    kind = said["type"].text().lower() if "type" in said else "json"
    content = _schema_file(said["file"], folder, kind) if "file" in said else _object(said.get("schema"))
    attributes = _object(said.get("attributes"))
    if not content and not attributes:
        raise bad(value.place, "a schema says something: give it a schema, a file or attributes")
    if kind not in SCHEMA_TYPES:
        raise bad(said["type"].place, f"the type of a schema is {', '.join(SCHEMA_TYPES)}")
    return {"type": kind, "schema": content, "attributes": attributes}


def _schema_file(value: Value, folder: str, kind: str) -> Any:
    path = os.path.join(folder, value.text())
    try:
        if kind == "protobuf":
            return {DEFINITION: read_capped(path).decode()}
        found = json.loads(read_capped(path))
    except (ValueError, RecursionError):
        raise bad(value.place, f"{path} is not {'text' if kind == 'protobuf' else 'JSON'}") from None
    if not isinstance(found, dict):
        raise bad(value.place, f"{path} does not hold an object")
    return found


def _object(value: Value | None) -> Any:
    if value is None or value.is_null:
        return {}
    value.mapping()
    return value.plain()


def push_fields(value: Value) -> Fields:
    """Return the fields of a push configuration (HTTP contract 13.1); nothing means pull."""
    if not (said := value.mapping()):
        return {}
    if (readers := _PUSH.get(said["type"].text() if "type" in said else "")) is None:
        raise bad(value.place, f"the type of a push configuration is {' or '.join(_PUSH)}")
    if "maxDeliveryAttempts" in said and "deadLetterTopic" not in said:
        raise bad(said["maxDeliveryAttempts"].place, "maxDeliveryAttempts needs a deadLetterTopic")
    needed = "pushEndpoint" if "pushEndpoint" in readers else "mattermostUrl"
    return _fields(value, readers, "a push configuration of this type has a {}", (needed,))


def _retry_policy(value: Value) -> Fields:
    said = value.mapping(("type", "period"))
    policy = said["type"].one_of("linear", "slowstart", "exponential") if "type" in said else "linear"
    if policy == "slowstart" and "period" in said:
        raise bad(said["period"].place, "slowstart has no period")
    period = {"period": said["period"].number(1, MAX_NUMBER)} if "period" in said else {}
    return {"type": policy, **period}


def _endpoint(value: Value) -> str:
    text = value.text()
    if not text.startswith("https://") or len(text) == len("https://"):
        raise bad(value.place, "a push endpoint is an https address")
    return text


def _rights(value: Value) -> tuple[str, ...] | str:
    if value.is_null:
        return ALL
    if not (found := {_right(each) for each in value.values()}):
        raise bad(value.place, "a token is good for something; say ~ for all that its user may do")
    return tuple(sorted(found))


def _right(value: Value) -> str:
    said = value.mapping(("action", "resource"))
    if len(said) != 2:
        raise bad(value.place, "a right has an action and a resource")
    action, resource = said["action"].text(), said["resource"].text().removeprefix("/")
    if not is_resource(resource):
        raise bad(said["resource"].place, f"{resource!r} is no resource such as projects/P/topics/T")
    if action != "*" and ":" not in action:
        raise bad(said["action"].place, f"{action!r} is no action such as topics:publish")
    return f"{action}={resource}"


def _rules(value: Value) -> tuple[str, ...]:
    found: set[str] = set()
    for rule in value.values():
        said = rule.mapping(("entitlement", "project", "roles"))
        roles = [each.text() for each in said["roles"].values()] if "roles" in said else []
        if len(said) != 3 or not roles:
            raise bad(rule.place, "a rule has an entitlement, a project and its roles there")
        found |= {f"{said['project'].text()}={role}={said['entitlement'].text()}" for role in roles}
    return tuple(sorted(found))


def _auth_method(value: Value, folder: str) -> Fields:
    said = value.mapping(("port", "access_key", "headers"))
    if ("access_key" in said) == ("headers" in said):
        raise bad(value.place, "an auth method has headers, or an access_key, as its service type says")
    fields: dict[str, Any] = {"port": said["port"].number(1, 65535) if "port" in said else 443}
    if "access_key" in said:
        return {**fields, "access_key": _where(said["access_key"], folder)}
    headers = {name: _where(each, folder) for name, each in said["headers"].mapping().items()}
    if not headers:
        raise bad(said["headers"].place, "an auth method has one header at least")
    return {**fields, "headers": headers}


def _where(value: Value, folder: str) -> Mapping[str, str]:
    # The wrong text is not quoted: it may be the secret itself.
    try:
        said = value.mapping(("file", "env"))
    except BadDocument:
        said = {}
    if len(said) != 1:
        raise bad(value.place, "a secret is not in this file: say {file: PATH} or {env: VARIABLE}")
    [(kind, each)] = said.items()
    return {kind: os.path.join(folder, each.text()) if kind == "file" else each.text()}


def _some_text(value: Value) -> str:
    """Read a text that is not empty: the service ignores an empty one (HTTP contract 5.3)."""
    if not value.text():
        raise bad(value.place, "an empty text changes nothing; leave it out")
    return value.text()


def _names(value: Value) -> tuple[str, ...]:
    names = [each.text() for each in value.values()]
    for each in value.values():
        if names.count(each.text()) > 1:
            raise bad(each.place, f"{each.text()!r} is said twice")
    return tuple(sorted(names))


def _limit(value: Value) -> int:
    text = value.text()
    try:
        limit = 0 if text == "none" else size_number(text)
    except (ValueError, KeyError):
        limit = -1
    if not 0 <= limit <= MAX_LIMIT:
        raise bad(value.place, f"{text!r} is no limit such as 100 or 64MiB, nor 'none'")
    return limit


def _text_as(read: Callable[[str], Any], *, optional: bool = False) -> Callable[[Value], Any]:
    """Return a reader that applies `read` to a text and reports its error; null of an optional one is empty."""

    def reader(value: Value) -> Any:
        try:
            return "" if optional and value.is_null else read(value.text())
        except (ValueError, InvalidInput) as error:
            raise bad(value.place, str(error)) from None

    return reader


_retention, _text_or_none, _span = _text_as(retention_seconds), _text_as(str, optional=True), _text_as(seconds_span)


def _check_options(value: Value, options: parallel_options.ParallelOptions) -> None:
    try:
        parallel_options.check(options)
    except InvalidInput as error:
        raise bad(value.place, error.message) from None


def _backoff(value: Value) -> Fields:
    if value.is_null:
        return {}
    said = value.mapping(("minimumBackoff", "maximumBackoff"))
    minimum = _span(said["minimumBackoff"]) if "minimumBackoff" in said else parallel_options.DEFAULT_MINIMUM
    maximum = _span(said["maximumBackoff"]) if "maximumBackoff" in said else parallel_options.DEFAULT_MAXIMUM
    _check_options(value, parallel_options.ParallelOptions(parallel_options.RetryPolicy(minimum, maximum)))
    return {"minimumBackoff": seconds_text(minimum), "maximumBackoff": seconds_text(maximum)}


def _dead_letters(value: Value) -> Fields:
    if value.is_null:
        return {}
    said = value.mapping(("deadLetterTopic", "maxDeliveryAttempts"))
    if "deadLetterTopic" not in said:
        raise bad(value.place, parallel_options.NO_DEAD_LETTER_TOPIC)
    attempts = parallel_options.DEFAULT_ATTEMPTS
    if "maxDeliveryAttempts" in said:
        attempts = said["maxDeliveryAttempts"].number(parallel_options.MIN_ATTEMPTS, parallel_options.MAX_ATTEMPTS)
    return {"deadLetterTopic": said["deadLetterTopic"].text(), "maxDeliveryAttempts": attempts}


def _filter(text: str) -> str:
    parallel_options.check(parallel_options.ParallelOptions(filter=text))
    return text


def _expiration(value: Value) -> Fields:
    if not (said := value.mapping(("ttl",))):
        return {}
    ttl = _span(said["ttl"])
    _check_options(value, parallel_options.ParallelOptions(expiration_ttl=ttl))
    return {"ttl": seconds_text(ttl)}


def _message_retention(text: str) -> str:
    retention = seconds_span(text)
    parallel_options.check(parallel_options.ParallelOptions(message_retention=retention))
    return seconds_text(retention)


PARALLEL_OPTIONS: Readers = {
    "retryPolicy": _backoff,
    "deadLetterPolicy": _dead_letters,
    "filter": _text_as(_filter, optional=True),
    "enableMessageOrdering": Value.switch,
    "enableExactlyOnceDelivery": Value.switch,
    "retainAckedMessages": Value.switch,
    "expirationPolicy": _expiration,
    "messageRetentionDuration": _text_as(_message_retention, optional=True),
}
"""Spelled as in the API, spans as the service writes them; `{}` and an empty text mean unset."""


def _check_type(said: Mapping[str, Value], found: Fields) -> None:
    # An ordered subscription has no such options, and a parallel one no deadline as short as an ordered one.
    if found.get("type") == PARALLEL:
        if found.get("ackDeadline", MIN_ACK_DEADLINE) < MIN_ACK_DEADLINE:
            raise bad(said["ackDeadline"].place, f"a parallel subscription has {MIN_ACK_DEADLINE} seconds or more")
        return
    for name in PARALLEL_OPTIONS:
        if name in said:
            raise bad(said[name].place, f"{name} is of parallel subscriptions: say type: parallel")


USER: Readers = {
    **dict.fromkeys(("email", "first_name", "last_name", "organization", "description"), _some_text),
    "service_roles": _names,
}
_TOKEN = {"expires_on": _text_as(utc_text, optional=True), "rights": _rights}
PROJECT: Readers = {
    "description": _some_text,
    "retention": _retention,
    "quotas": lambda value: {name: _limit(each) for name, each in value.mapping(tuple(QUOTAS)).items()},
    "strictData": Value.switch,
}
_TOPIC: Readers = {"schema": _text_or_none, "retention": _retention, "access": _names}
_SUBSCRIPTION: Readers = {
    "topic": Value.text,
    "ackDeadline": lambda value: value.number(0, MAX_ACK_DEADLINE),
    "push": push_fields,
    "access": _names,
    "type": lambda value: value.one_of(ORDERED, PARALLEL),
    **PARALLEL_OPTIONS,
}
ISSUER: Readers = {
    **dict.fromkeys(("url", "jwks_url", "introspection_url", "client_id"), _text_or_none),
    **dict.fromkeys(("audiences", "clients", "entitlement_claims"), Value.texts),
    "introspect": lambda value: value.one_of("never", "opaque", "always"),
    "client_secret": Value.mapping,
    "create_users": Value.switch,
    "roles": _rules,
}
SERVICE_TYPE: Readers = {
    "hosts": Value.texts,
    "auth_types": Value.texts,
    "auth_method": lambda value: value.one_of("headers", "api-key"),
    "type": Value.text,
    "verify_client_host": Value.switch,
}
_BINDING: Readers = {
    **dict.fromkeys(("service_type", "host", "user", "unique_key", "auth_type"), Value.text),
    "auth_identifier": _text_as(normalise_name),
    "issuer": _text_as(normalise_name, optional=True),
}
_PUSH_OF_BOTH: Readers = {
    "type": Value.text,
    "retryPolicy": _retry_policy,
    "base64Decode": Value.switch,
    "deadLetterTopic": Value.text,
    "maxDeliveryAttempts": lambda value: value.number(1, MAX_ATTEMPTS),
    "maxOutstanding": lambda value: value.number(1, MAX_OUTSTANDING),
}
_PUSH: Mapping[str, Readers] = {
    "http_endpoint": {
        **_PUSH_OF_BOTH,
        "pushEndpoint": _endpoint,
        "maxMessages": lambda value: value.number(1, MAX_NUMBER),
        "authorizationHeader": lambda value: _fields(value, {"type": lambda kind: kind.one_of("autogen", "disabled")}),
    },
    "mattermost": {
        **_PUSH_OF_BOTH,
        **dict.fromkeys(("mattermostUrl", "mattermostUsername", "mattermostChannel"), Value.text),
    },
}

NAME_RULE = f"1 to {MAX_NAME} letters, digits, - and _"  # rule for names of AMS, for people
_RESOURCES = (ResourceKind.SCHEMA, ResourceKind.TOPIC, ResourceKind.SUBSCRIPTION)  # Google's clients may name them


def read_documents(paths: Iterable[str]) -> Declared:
    """Read files as one declaration. Raises `BadDocument` with file and line of the first error."""
    reading = _Reading()
    for path in paths:
        if root := read_tree(path):
            reading.document(root, "" if path == "-" else os.path.dirname(path))
    return reading.read_declared()


class _Reading:
    def __init__(self) -> None:
        self._fields: dict[ResourceKey, Fields] = {}
        self._places: dict[ResourceKey, FileLine] = {}
        self._references: list[Reference] = []
        self._sections: set[tuple[str, ResourceKind]] = set()
        self._bound: list[tuple[FileLine, str]] = []  # AMS users in bindings
        self._token_files: dict[str, FileLine] = {}

    def read_declared(self) -> Declared:
        # A binding needs its user, which a project may declare as a member.
        members = {key.name: key for key in reversed(self._fields) if key.kind is ResourceKind.MEMBER}
        bound = [Reference(place, members.get(user, ResourceKind.USER.key(user))) for place, user in self._bound]
        return Declared(self._fields, self._places, [*self._references, *bound], frozenset(self._sections))

    def document(self, root: Value, folder: str) -> None:
        said = root.mapping(("users", "projects", "issuers", "service_types", "bindings"))
        for name, value in _section(said, "users"):
            self._user(name, value, folder)
        for key, value in self._resources(said, "issuers", "", ResourceKind.ISSUER):
            readers = {**ISSUER, "client_secret": lambda where: _where(where, folder)}
            self._add(key, value, _fields(value, readers, "an issuer says its {}", ("url",)))
        for name, value in _section(said, "projects"):
            self._project(name, value, folder)
        for name, value in _section(said, "service_types", authn.is_name, authn.NAME_RULE):
            self._service_type(name, value, folder)
        if "bindings" in said:
            self._sections.add(("", ResourceKind.BINDING))
        for name, value in _section(said, "bindings", authn.is_name, authn.NAME_RULE):
            self._binding(name, value)

    def _user(self, name: str, value: Value, folder: str) -> None:
        said = value.mapping((*USER, "bindings", "tokens"))
        self._add(ResourceKind.USER.key(name), value, _read_fields(said, USER))
        for key, each in self._resources(said, "bindings", name, ResourceKind.IDENTITY):
            readers = {"issuer": Value.text, "subject": Value.text}
            self._add(key, each, _fields(each, readers, "a binding of a user says its {}", tuple(readers)))
        for key, each in self._resources(said, "tokens", name, ResourceKind.TOKEN):
            file_name = {TOKEN_FILE: lambda where: os.path.join(folder, where.text())}
            missing = "a token says the {} that gets it when it is made"
            found = _fields(each, file_name | _TOKEN, missing, (TOKEN_FILE,))
            self._add(key, each, found)
            path = os.path.realpath(found[TOKEN_FILE])
            if path in self._token_files:
                raise bad(each.place, f"{path} gets another token already, at {self._token_files[path]}")
            self._token_files[path] = each.place

    def _service_type(self, name: str, value: Value, folder: str) -> None:
        said = value.mapping((*SERVICE_TYPE, "auth_methods"))
        if "hosts" not in said or not said["hosts"].values():
            raise bad(value.place, "a service type names its hosts")
        self._add(ResourceKind.SERVICE_TYPE.key(name), value, _read_fields(said, SERVICE_TYPE))
        if "auth_methods" not in said:
            return
        self._sections.add((name, ResourceKind.AUTH_METHOD))
        for host, each in said["auth_methods"].mapping().items():
            if host not in said["hosts"].texts():
                raise bad(each.place, f"{host} is no host of service type {name}")
            self._add(ResourceKind.AUTH_METHOD.key(host, name), each, _auth_method(each, folder))

    def _binding(self, name: str, value: Value) -> None:
        found = _fields(value, _BINDING, "a binding says its {}", ("service_type", "host", "auth_identifier"))
        if ("user" in found) == ("unique_key" in found):
            raise bad(value.place, "a binding says its user, of AMS, or the unique_key of one elsewhere")
        said = value.mapping()
        self._add(ResourceKind.BINDING.key(name), value, {each: found[each] for each in said})
        service_type = ResourceKind.SERVICE_TYPE.key(found["service_type"])
        self._references.append(Reference(said["service_type"].place, service_type))
        if "user" in found:
            self._bound.append((said["user"].place, found["user"]))

    def _project(self, project: str, value: Value, folder: str) -> None:
        said = value.mapping((*PROJECT, "members", "schemas", "topics", "subscriptions"))
        key, found = ResourceKind.PROJECT.key(project), _read_fields(said, PROJECT)
        before = self._fields.get(key, {})
        for name in found.keys() & before.keys():  # each field in only one of several files
            raise bad(value.place, f"{name} of {key} is declared already, at {self._places[key]}")
        self._fields[key] = {**before, **found}
        self._places.setdefault(key, value.place)
        for key, each in self._resources(said, "members", project, ResourceKind.MEMBER):
            self._add(key, each, _member_fields(each))
        for key, each in self._resources(said, "schemas", project, ResourceKind.SCHEMA):
            self._add(key, each, _schema_fields(each, folder))
        for key, each in self._resources(said, "topics", project, ResourceKind.TOPIC):
            self._add(key, each, _fields(each, _TOPIC))
            self._refer(project, each)
        for key, each in self._resources(said, "subscriptions", project, ResourceKind.SUBSCRIPTION):
            found = _fields(each, _SUBSCRIPTION, "a subscription must name its {}", ("topic",))
            _check_type(each.mapping(), found)
            self._add(key, each, found)
            self._refer(project, each)

    def _resources(
        self, said: Mapping[str, Value], section: str, project: str, kind: ResourceKind
    ) -> Iterable[tuple[ResourceKey, Value]]:
        if section in said:
            self._sections.add((project, kind))
        is_one = is_resource_name if kind in _RESOURCES else is_name
        return [(kind.key(name, project), value) for name, value in _section(said, section, is_one)]

    def _refer(self, project: str, value: Value) -> None:
        said = value.mapping()
        push = said["push"].mapping() if "push" in said else {}
        named = [(said.get("topic"), ResourceKind.TOPIC), (said.get("schema"), ResourceKind.SCHEMA)]
        letters = said["deadLetterPolicy"].mapping() if "deadLetterPolicy" in said else {}
        named += [(each.get("deadLetterTopic"), ResourceKind.TOPIC) for each in (push, letters)]
        named += [(user, ResourceKind.MEMBER) for user in said["access"].values()] if "access" in said else []
        for each, kind in named:
            if each is not None and not each.is_null:
                self._references.append(Reference(each.place, kind.key(each.text(), project)))

    def _add(self, key: ResourceKey, value: Value, found: Fields) -> None:
        if key in self._fields:
            raise bad(value.place, f"{key} is declared already, at {self._places[key]}")
        self._fields[key] = found
        self._places[key] = value.place


def _section(
    said: Mapping[str, Value], section: str, is_one: Callable[[str], bool] = is_name, rule: str = NAME_RULE
) -> list[tuple[str, Value]]:
    found = said[section].mapping() if section in said else {}
    for name, value in found.items():
        if not is_one(name):
            raise bad(value.place, f"{name!r} is no name: {rule}")
    return list(found.items())
