"""Reads the files of `ams apply` (docs/reference/apply.md)."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ams.access.permissions import PROJECT_ROLES
from ams.cli.apply import authn, logins
from ams.cli.apply.push import push_fields
from ams.cli.apply.resources import Declared, Fields, Key, Kind, Reference
from ams.cli.arguments import retention_seconds
from ams.cli.exits import Usage
from ams.core.names import MAX_NAME, is_name
from ams.core.yaml_tree import Place, Value, bad, read_capped, read_tree

MAX_ACK_DEADLINE = 600
"""Seconds (contract 9.3)."""

Read = Callable[[Value], Any]


def read_documents(paths: Iterable[str]) -> Declared:
    """Read files as one declaration; raise `BadDocument` with file and line for the first thing that is wrong."""
    reading = _Reading()
    for path in paths:
        root = read_tree(path)
        if root:
            reading.document(root, "" if path == "-" else os.path.dirname(path))
    return reading.declared()


class _Reading:
    """Gathers what the files declare."""

    def __init__(self) -> None:
        self._fields: dict[Key, Fields] = {}
        self._places: dict[Key, Place] = {}
        self._references: list[Reference] = []
        self._sections: set[tuple[str, Kind]] = set()
        self._bound: list[tuple[Place, str]] = []
        """Users of AMS whom bindings name, and where."""
        self._token_files: dict[str, Place] = {}
        """Files that get tokens, and where that is said."""

    def declared(self) -> Declared:
        references = [*self._references, *(self._of_user(place, user) for place, user in self._bound)]
        return Declared(self._fields, self._places, references, frozenset(self._sections))

    def _of_user(self, place: Place, user: str) -> Reference:
        """Return what a binding needs: the user, whom also a project may declare as its member."""
        members = (key for key in self._fields if key.kind is Kind.MEMBER and key.name == user)
        return Reference(place, next(members, Key(Kind.USER, "", user)))

    def document(self, root: Value, folder: str) -> None:
        """Read one file; names of files in it are relative to `folder`."""
        said = root.mapping(("users", "projects", "issuers", "service_types", "bindings"))
        for name, value in _section(said, "users"):
            self._user(name, value, folder)
        for name, value in self._resources(said, "issuers", "", Kind.ISSUER):
            self._add(Key(Kind.ISSUER, "", name), value, logins.issuer_fields(value, folder))
        for name, value in _section(said, "projects"):
            self._project(name, value, folder)
        for name, value in authn.named(said, "service_types"):
            self._service_type(name, value, folder)
        if "bindings" in said:
            self._sections.add(("", Kind.BINDING))
        for name, value in authn.named(said, "bindings"):
            self._binding(name, value)

    def _user(self, name: str, value: Value, folder: str) -> None:
        said = value.mapping((*_USER, "bindings", "tokens"))
        self._add(Key(Kind.USER, "", name), value, _chosen(said, _USER))
        for binding, each in self._resources(said, "bindings", name, Kind.IDENTITY):
            self._add(Key(Kind.IDENTITY, name, binding), each, logins.binding_fields(each))
        for token, each in self._resources(said, "tokens", name, Kind.TOKEN):
            self._token(Key(Kind.TOKEN, name, token), each, logins.token_fields(each, folder))

    def _token(self, key: Key, value: Value, fields: Fields) -> None:
        self._add(key, value, fields)
        path = os.path.realpath(fields[logins.TOKEN_FILE])
        if path in self._token_files:
            raise bad(value.place, f"{path} gets another token already, at {self._token_files[path]}")
        self._token_files[path] = value.place

    def _service_type(self, name: str, value: Value, folder: str) -> None:
        self._add(Key(Kind.SERVICE_TYPE, "", name), value, authn.service_type_fields(value))
        if "auth_methods" in value.mapping():
            self._sections.add((name, Kind.AUTH_METHOD))
        for key, each, fields in authn.auth_methods(name, value, folder):
            self._add(key, each, fields)

    def _binding(self, name: str, value: Value) -> None:
        fields, said = authn.binding_fields(value), value.mapping()
        self._add(Key(Kind.BINDING, "", name), value, fields)
        service_type = Key(Kind.SERVICE_TYPE, "", fields["service_type"])
        self._references.append(Reference(said["service_type"].place, service_type))
        if "user" in fields:
            self._bound.append((said["user"].place, fields["user"]))

    def _project(self, project: str, value: Value, folder: str) -> None:
        said = value.mapping((*_PROJECT, "members", "schemas", "topics", "subscriptions"))
        self._add_to_project(Key(Kind.PROJECT, "", project), value, _chosen(said, _PROJECT))
        for name, each in self._resources(said, "members", project, Kind.MEMBER):
            self._add(Key(Kind.MEMBER, project, name), each, {"roles": _roles(each)})
        for name, each in self._resources(said, "schemas", project, Kind.SCHEMA):
            self._add(Key(Kind.SCHEMA, project, name), each, _schema(each, folder))
        for name, each in self._resources(said, "topics", project, Kind.TOPIC):
            self._add(Key(Kind.TOPIC, project, name), each, _fields(each, _TOPIC))
            self._refer(project, each)
        for name, each in self._resources(said, "subscriptions", project, Kind.SUBSCRIPTION):
            self._add(Key(Kind.SUBSCRIPTION, project, name), each, _subscription(each))
            self._refer(project, each)

    def _resources(
        self, said: Mapping[str, Value], section: str, project: str, kind: Kind
    ) -> Iterable[tuple[str, Value]]:
        if section in said:
            self._sections.add((project, kind))
        return _section(said, section)

    def _refer(self, project: str, value: Value) -> None:
        """Remember which resources a topic or subscription names."""
        said = value.mapping()
        for field, kind in (("topic", Kind.TOPIC), ("schema", Kind.SCHEMA)):
            if field in said and not said[field].is_null:
                self._references.append(Reference(said[field].place, Key(kind, project, said[field].text())))
        push = said["push"].mapping() if "push" in said else {}
        if "deadLetterTopic" in push:
            dead_letters = push["deadLetterTopic"]
            self._references.append(Reference(dead_letters.place, Key(Kind.TOPIC, project, dead_letters.text())))
        users = said["access"].values() if "access" in said else []
        self._references += [Reference(user.place, Key(Kind.MEMBER, project, user.text())) for user in users]

    def _add(self, key: Key, value: Value, fields: Fields) -> None:
        if key in self._fields:
            raise bad(value.place, f"{key} is declared already, at {self._places[key]}")
        self._fields[key] = fields
        self._places[key] = value.place

    def _add_to_project(self, key: Key, value: Value, fields: Fields) -> None:
        """Add a project, which several files may declare parts of; each field only one of them."""
        before = self._fields.get(key, {})
        for field in fields.keys() & before.keys():
            raise bad(value.place, f"{field} of {key} is declared already, at {self._places[key]}")
        self._fields[key] = {**before, **fields}
        self._places.setdefault(key, value.place)


def _section(said: Mapping[str, Value], section: str) -> list[tuple[str, Value]]:
    """Return the names and values of a section; raise `BadDocument` for what cannot be a name (contract 2)."""
    found = said[section].mapping() if section in said else {}
    for name, value in found.items():
        if not is_name(name):
            raise bad(value.place, f"{name!r} is no name: 1 to {MAX_NAME} letters, digits, - and _")
    return list(found.items())


def _fields(value: Value, readers: Mapping[str, Read]) -> Fields:
    return _chosen(value.mapping(tuple(readers)), readers)


def _chosen(said: Mapping[str, Value], readers: Mapping[str, Read]) -> Fields:
    return {field: read(said[field]) for field, read in readers.items() if field in said}


def _subscription(value: Value) -> Fields:
    fields = _fields(value, _SUBSCRIPTION)
    if "topic" not in fields:
        raise bad(value.place, "a subscription must name its topic")
    return fields


def _schema(value: Value, folder: str) -> Fields:
    said = value.mapping(("type", "schema", "file", "attributes"))
    if "schema" in said and "file" in said:
        raise bad(said["file"].place, "give the schema here or in a file, not both")
    content = _schema_file(said["file"], folder) if "file" in said else _object(said.get("schema"))
    attributes = _object(said.get("attributes"))
    if not content and not attributes:
        raise bad(value.place, "a schema says something: give it a schema, a file or attributes")
    return {"type": _schema_type(said.get("type"), value.place), "schema": content, "attributes": attributes}


def _schema_type(value: Value | None, place: Place) -> str:
    kind = value.text().lower() if value else "json"
    if kind not in ("json", "avro"):
        raise bad(value.place if value else place, "the type of a schema is json or avro")
    return kind


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


def _some_text(value: Value) -> str:
    """Return text that says something: the service takes an empty one as nothing said (contract 5.3)."""
    if not value.text():
        raise bad(value.place, "an empty text changes nothing; leave it out")
    return value.text()


def _name_or_none(value: Value) -> str:
    return "" if value.is_null else value.text()


def _names(value: Value) -> tuple[str, ...]:
    names = [each.text() for each in value.values()]
    for each in value.values():
        if names.count(each.text()) > 1:
            raise bad(each.place, f"{each.text()!r} is said twice")
    return tuple(sorted(names))


def _roles(value: Value) -> tuple[str, ...]:
    """Return roles in a project: three, whatever the roles file of the service says (contract 3.3)."""
    for each in value.values():
        if each.text() not in PROJECT_ROLES:
            raise bad(each.place, f"{each.text()!r} is no role in a project: {', '.join(sorted(PROJECT_ROLES))}")
    return _names(value)


def _retention(value: Value) -> int:
    """Return seconds; 0 for `default`."""
    try:
        return retention_seconds(value.text())
    except Usage as error:
        raise bad(value.place, str(error)) from None


def _ack_deadline(value: Value) -> int:
    return value.number(0, MAX_ACK_DEADLINE)


_TEXTS = ("email", "first_name", "last_name", "organization", "description")
_USER: Mapping[str, Read] = {**dict.fromkeys(_TEXTS, _some_text), "service_roles": _names}
_PROJECT: Mapping[str, Read] = {"description": _some_text, "retention": _retention}
_TOPIC: Mapping[str, Read] = {"schema": _name_or_none, "retention": _retention, "access": _names}
_SUBSCRIPTION: Mapping[str, Read] = {
    "topic": Value.text,
    "ackDeadline": _ack_deadline,
    "push": push_fields,
    "access": _names,
}
