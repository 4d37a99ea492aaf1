"""Readers of the fields that a file declares of each kind of resource.

A secret is never in a file of declarations, nor in a plan: a file says where it is read from, and where that of a new
token is written to. Of a push configuration only what the service would show again as it was said is taken, so that a
second run finds nothing to do: no fields that the service drops for a type, no values that it replaces.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ams.core.ack_ids import MAX_ACK_DEADLINE
from ams.core.clock import utc_text
from ams.core.distinguished_names import normalised
from ams.core.errors import BadDocument
from ams.core.parallel_options import ORDERED, PARALLEL
from ams.core.quotas import MAX_LIMIT, QUOTAS
from ams.core.rights import is_resource
from ams.core.settings import retention_seconds, size_number
from ams.core.yaml_tree import Value, bad, read_capped
from ams.provisioning import parallel
from ams.provisioning.declared import Fields, Key, Kind

ALL = "all"
"""Of the user's rights: what a token has that is not reduced."""
KEY_ID = "key_id"
"""Of a named token that is a key; it is never declared."""
TOKEN_FILE = "token_file"  # noqa: S105  # the name of a field
MAX_NUMBER = 2**31 - 1
MAX_ATTEMPTS = 1000
MAX_OUTSTANDING = 1000
"""Of deliveries of a message (docs/reference/push.md)."""
PROJECT_ROLES = ("consumer", "project_admin", "publisher")
"""Roles in a project: three, whatever the roles file of the service says (HTTP contract 3.3)."""

Read = Callable[[Value], Any]
Readers = Mapping[str, Read]


def chosen(said: Mapping[str, Value], readers: Readers) -> Fields:
    """Read those fields that are said."""
    return {name: read(said[name]) for name, read in readers.items() if name in said}


def _fields(value: Value, readers: Readers, missing: str = "", needed: tuple[str, ...] = ()) -> Fields:
    """Read fields; raise `BadDocument` with the text `missing` for the first one that is needed and is not there."""
    said = value.mapping(tuple(readers))
    for name in needed:
        if name not in said:
            raise bad(value.place, missing.format(name))
    return chosen(said, readers)


def topic_fields(value: Value) -> Fields:
    """Return the fields of a topic."""
    return _fields(value, _TOPIC)


def subscription_fields(value: Value) -> Fields:
    """Return the fields of a subscription."""
    found = _fields(value, _SUBSCRIPTION, "a subscription must name its {}", ("topic",))
    parallel.check_type(value.mapping(), found)
    return found


def member_fields(value: Value) -> Fields:
    """Return the fields of a member."""
    for each in value.values():
        if each.text() not in PROJECT_ROLES:
            raise bad(each.place, f"{each.text()!r} is no role in a project: {', '.join(PROJECT_ROLES)}")
    return {"roles": _names(value)}


def schema_fields(value: Value, folder: str) -> Fields:
    """Return the fields of a schema, which is declared whole; `file` is relative to `folder`."""
    said = value.mapping(("type", "schema", "file", "attributes"))
    if "schema" in said and "file" in said:
        raise bad(said["file"].place, "give the schema here or in a file, not both")
    content = _schema_file(said["file"], folder) if "file" in said else _object(said.get("schema"))
    attributes = _object(said.get("attributes"))
    if not content and not attributes:
        raise bad(value.place, "a schema says something: give it a schema, a file or attributes")
    kind = said["type"].text().lower() if "type" in said else "json"
    if kind not in ("json", "avro"):
        raise bad(said["type"].place, "the type of a schema is json or avro")
    return {"type": kind, "schema": content, "attributes": attributes}


def _schema_file(value: Value, folder: str) -> Any:
    path = os.path.join(folder, value.text())
    try:
        found = json.loads(read_capped(path))
    except (ValueError, RecursionError):
        raise bad(value.place, f"{path} is not JSON") from None
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
    said = value.mapping()
    if not said:
        return {}
    readers = _PUSH.get(said["type"].text() if "type" in said else "")
    if readers is None:
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


def issuer_fields(value: Value, folder: str) -> Fields:
    """Return the fields of an issuer; names of files in them are relative to `folder`."""
    readers = {**ISSUER, "client_secret": lambda said: _where(said, folder)}
    return _fields(value, readers, "an issuer says its {}", ("url",))


def identity_fields(value: Value) -> Fields:
    """Return the fields of a binding of a user to an identity."""
    readers = {"issuer": Value.text, "subject": Value.text}
    return _fields(value, readers, "a binding of a user says its {}", tuple(readers))


def token_fields(value: Value, folder: str) -> Fields:
    """Return the fields of a named token; `token_file` is relative to `folder`."""
    readers = {TOKEN_FILE: lambda said: os.path.join(folder, said.text()), "expires_on": _time, "rights": _rights}
    return _fields(value, readers, "a token says the {} that gets it when it is made", (TOKEN_FILE,))


def _rights(value: Value) -> tuple[str, ...] | str:
    """Return rights as ACTION=RESOURCE; nothing said is all of the user's."""
    if value.is_null:
        return ALL
    found = {_right(each) for each in value.values()}
    if not found:
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
    return tuple(sorted({text for each in value.values() for text in _rule(each)}))


def _rule(value: Value) -> Iterator[str]:
    said = value.mapping(("entitlement", "project", "roles"))
    roles = [each.text() for each in said["roles"].values()] if "roles" in said else []
    if len(said) != 3 or not roles:
        raise bad(value.place, "a rule has an entitlement, a project and its roles there")
    for role in roles:
        yield f"{said['project'].text()}={role}={said['entitlement'].text()}"


def _time(value: Value) -> str:
    """Return a time as the service writes it; empty for no end."""
    return "" if value.is_null else _said_as(utc_text, value)


def service_type_fields(value: Value) -> Fields:
    """Return the fields of a service type, without its auth methods."""
    said = value.mapping((*SERVICE_TYPE, "auth_methods"))
    if "hosts" not in said or not said["hosts"].values():
        raise bad(value.place, "a service type names its hosts")
    return chosen(said, SERVICE_TYPE)


def auth_methods(service_type: str, value: Value, folder: str) -> Iterator[tuple[Key, Value, Fields]]:
    """Yield the auth methods of a service type; names of files in them are relative to `folder`."""
    said = value.mapping()
    hosts = said["hosts"].texts()
    methods = said["auth_methods"].mapping() if "auth_methods" in said else {}
    for host, each in methods.items():
        if host not in hosts:
            raise bad(each.place, f"{host} is no host of service type {service_type}")
        yield Key(Kind.AUTH_METHOD, service_type, host), each, _auth_method(each, folder)


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


def binding_fields(value: Value) -> Fields:
    """Return the fields of a binding of a certificate, its names in normal form."""
    fields = _fields(value, _BINDING, "a binding says its {}", ("service_type", "host", "auth_identifier"))
    if ("user" in fields) == ("unique_key" in fields):
        raise bad(value.place, "a binding says its user, of AMS, or the unique_key of one elsewhere")
    return {name: fields[name] for name in value.mapping()}


def _where(value: Value, folder: str) -> Mapping[str, str]:
    """Return where a secret is: a file, whose name is relative to `folder`, or a variable."""
    # The text that stands there instead is not shown: it may be the secret itself.
    try:
        said = value.mapping(("file", "env"))
    except BadDocument:
        said = {}
    if len(said) != 1:
        raise bad(value.place, "a secret is not in this file: say {file: PATH} or {env: VARIABLE}")
    [(kind, each)] = said.items()
    return {kind: os.path.join(folder, each.text()) if kind == "file" else each.text()}


def _said_as(read: Callable[[str], Any], value: Value) -> Any:
    """Read a text by what raises `ValueError` for one that cannot be."""
    try:
        return read(value.text())
    except ValueError as error:
        raise bad(value.place, str(error)) from None


def _some_text(value: Value) -> str:
    """Return text that says something: the service takes an empty one as nothing said (HTTP contract 5.3)."""
    if not value.text():
        raise bad(value.place, "an empty text changes nothing; leave it out")
    return value.text()


def _text_or_none(value: Value) -> str:
    return "" if value.is_null else value.text()


def _names(value: Value) -> tuple[str, ...]:
    names = [each.text() for each in value.values()]
    for each in value.values():
        if names.count(each.text()) > 1:
            raise bad(each.place, f"{each.text()!r} is said twice")
    return tuple(sorted(names))


def _retention(value: Value) -> Any:
    return _said_as(retention_seconds, value)


def _quotas(value: Value) -> Mapping[str, int]:
    return {name: _limit(each) for name, each in value.mapping(tuple(QUOTAS)).items()}


def _limit(value: Value) -> int:
    """Return a limit: a number, a size such as 64MiB, or `none` for 0."""
    text = value.text()
    try:
        limit = 0 if text == "none" else size_number(text)
    except (ValueError, KeyError):
        limit = -1
    if not 0 <= limit <= MAX_LIMIT:
        raise bad(value.place, f"{text!r} is no limit such as 100 or 64MiB, nor 'none'")
    return limit


def _subject(value: Value) -> Any:
    return _said_as(normalised, value)


def _number(highest: int, lowest: int = 1) -> Read:
    return lambda value: value.number(lowest, highest)


def _one_of(*choices: str) -> Read:
    return lambda value: value.one_of(*choices)


USER: Readers = {
    **dict.fromkeys(("email", "first_name", "last_name", "organization", "description"), _some_text),
    "service_roles": _names,
}
PROJECT: Readers = {"description": _some_text, "retention": _retention, "quotas": _quotas, "strictData": Value.switch}
_TOPIC: Readers = {"schema": _text_or_none, "retention": _retention, "access": _names}
_SUBSCRIPTION: Readers = {
    "topic": Value.text,
    "ackDeadline": _number(MAX_ACK_DEADLINE, 0),
    "push": push_fields,
    "access": _names,
    "type": _one_of(ORDERED, PARALLEL),
    **parallel.OPTIONS,
}
ISSUER: Readers = {
    **dict.fromkeys(("url", "jwks_url", "introspection_url", "client_id"), _text_or_none),
    **dict.fromkeys(("audiences", "clients", "entitlement_claims"), Value.texts),
    "introspect": _one_of("never", "opaque", "always"),
    "client_secret": Value.mapping,
    "create_users": Value.switch,
    "roles": _rules,
}
SERVICE_TYPE: Readers = {
    "hosts": Value.texts,
    "auth_types": Value.texts,
    "auth_method": _one_of("headers", "api-key"),
    "type": Value.text,
    "verify_client_host": Value.switch,
}
_BINDING: Readers = {
    **dict.fromkeys(("service_type", "host", "user", "unique_key", "auth_type"), Value.text),
    "auth_identifier": _subject,
    "issuer": lambda value: "" if value.is_null else _subject(value),
}
_PUSH_OF_BOTH: Readers = {
    "type": Value.text,
    "retryPolicy": _retry_policy,
    "base64Decode": Value.switch,
    "deadLetterTopic": Value.text,
    "maxDeliveryAttempts": _number(MAX_ATTEMPTS),
    "maxOutstanding": _number(MAX_OUTSTANDING),
}
_PUSH: Mapping[str, Readers] = {
    "http_endpoint": {
        **_PUSH_OF_BOTH,
        "pushEndpoint": _endpoint,
        "maxMessages": _number(MAX_NUMBER),
        "authorizationHeader": lambda value: _fields(value, {"type": _one_of("autogen", "disabled")}),
    },
    "mattermost": {
        **_PUSH_OF_BOTH,
        **dict.fromkeys(("mattermostUrl", "mattermostUsername", "mattermostChannel"), Value.text),
    },
}
