"""Reads the files of `ams apply` (docs/reference/apply.md)."""

import os
from collections.abc import Callable, Iterable, Mapping

from ams.client.wire import authn
from ams.core.names import MAX_NAME, is_name
from ams.core.yaml_tree import FileLine, Value, bad, read_tree
from ams.provisioning import fields
from ams.provisioning.declared import Declared, Fields, Key, Kind, Reference

NAME_RULE = f"1 to {MAX_NAME} letters, digits, - and _"
"""What names of AMS are made of, for people."""


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
        self._places: dict[Key, FileLine] = {}
        self._references: list[Reference] = []
        self._sections: set[tuple[str, Kind]] = set()
        self._bound: list[tuple[FileLine, str]] = []
        """Users of AMS whom bindings name, and where."""
        self._token_files: dict[str, FileLine] = {}
        """Files that get tokens, and where that is said."""

    def declared(self) -> Declared:
        references = [*self._references, *(self._of_user(place, user) for place, user in self._bound)]
        return Declared(self._fields, self._places, references, frozenset(self._sections))

    def _of_user(self, place: FileLine, user: str) -> Reference:
        """Return what a binding needs: the user, whom also a project may declare as its member."""
        members = (key for key in self._fields if key.kind is Kind.MEMBER and key.name == user)
        return Reference(place, next(members, Key(Kind.USER, "", user)))

    def document(self, root: Value, folder: str) -> None:
        """Read one file; names of files in it are relative to `folder`."""
        said = root.mapping(("users", "projects", "issuers", "service_types", "bindings"))
        for name, value in _section(said, "users"):
            self._user(name, value, folder)
        for key, value in self._resources(said, "issuers", "", Kind.ISSUER):
            self._add(key, value, fields.issuer_fields(value, folder))
        for name, value in _section(said, "projects"):
            self._project(name, value, folder)
        for name, value in _authn_section(said, "service_types"):
            self._service_type(name, value, folder)
        if "bindings" in said:
            self._sections.add(("", Kind.BINDING))
        for name, value in _authn_section(said, "bindings"):
            self._binding(name, value)

    def _user(self, name: str, value: Value, folder: str) -> None:
        said = value.mapping((*fields.USER, "bindings", "tokens"))
        self._add(Key(Kind.USER, "", name), value, fields.chosen(said, fields.USER))
        for key, each in self._resources(said, "bindings", name, Kind.IDENTITY):
            self._add(key, each, fields.identity_fields(each))
        for key, each in self._resources(said, "tokens", name, Kind.TOKEN):
            self._token(key, each, fields.token_fields(each, folder))

    def _token(self, key: Key, value: Value, found: Fields) -> None:
        self._add(key, value, found)
        path = os.path.realpath(found[fields.TOKEN_FILE])
        if path in self._token_files:
            raise bad(value.place, f"{path} gets another token already, at {self._token_files[path]}")
        self._token_files[path] = value.place

    def _service_type(self, name: str, value: Value, folder: str) -> None:
        self._add(Key(Kind.SERVICE_TYPE, "", name), value, fields.service_type_fields(value))
        if "auth_methods" in value.mapping():
            self._sections.add((name, Kind.AUTH_METHOD))
        for key, each, found in fields.auth_methods(name, value, folder):
            self._add(key, each, found)

    def _binding(self, name: str, value: Value) -> None:
        found, said = fields.binding_fields(value), value.mapping()
        self._add(Key(Kind.BINDING, "", name), value, found)
        service_type = Key(Kind.SERVICE_TYPE, "", found["service_type"])
        self._references.append(Reference(said["service_type"].place, service_type))
        if "user" in found:
            self._bound.append((said["user"].place, found["user"]))

    def _project(self, project: str, value: Value, folder: str) -> None:
        said = value.mapping((*fields.PROJECT, "members", "schemas", "topics", "subscriptions"))
        self._add_to_project(Key(Kind.PROJECT, "", project), value, fields.chosen(said, fields.PROJECT))
        for key, each in self._resources(said, "members", project, Kind.MEMBER):
            self._add(key, each, fields.member_fields(each))
        for key, each in self._resources(said, "schemas", project, Kind.SCHEMA):
            self._add(key, each, fields.schema_fields(each, folder))
        for key, each in self._resources(said, "topics", project, Kind.TOPIC):
            self._add(key, each, fields.topic_fields(each))
            self._refer(project, each)
        for key, each in self._resources(said, "subscriptions", project, Kind.SUBSCRIPTION):
            self._add(key, each, fields.subscription_fields(each))
            self._refer(project, each)

    def _resources(
        self, said: Mapping[str, Value], section: str, project: str, kind: Kind
    ) -> Iterable[tuple[Key, Value]]:
        if section in said:
            self._sections.add((project, kind))
        return [(Key(kind, project, name), value) for name, value in _section(said, section)]

    def _refer(self, project: str, value: Value) -> None:
        """Remember which resources a topic or subscription names."""
        said = value.mapping()
        push = said["push"].mapping() if "push" in said else {}
        named = [(said.get("topic"), Kind.TOPIC), (said.get("schema"), Kind.SCHEMA)]
        letters = said["deadLetterPolicy"].mapping() if "deadLetterPolicy" in said else {}
        named += [(each.get("deadLetterTopic"), Kind.TOPIC) for each in (push, letters)]
        named += [(user, Kind.MEMBER) for user in said["access"].values()] if "access" in said else []
        for each, kind in named:
            if each is not None and not each.is_null:
                self._references.append(Reference(each.place, Key(kind, project, each.text())))

    def _add(self, key: Key, value: Value, found: Fields) -> None:
        if key in self._fields:
            raise bad(value.place, f"{key} is declared already, at {self._places[key]}")
        self._fields[key] = found
        self._places[key] = value.place

    def _add_to_project(self, key: Key, value: Value, found: Fields) -> None:
        """Add a project, which several files may declare parts of; each field only one of them."""
        before = self._fields.get(key, {})
        for name in found.keys() & before.keys():
            raise bad(value.place, f"{name} of {key} is declared already, at {self._places[key]}")
        self._fields[key] = {**before, **found}
        self._places.setdefault(key, value.place)


def _section(
    said: Mapping[str, Value], section: str, is_one: Callable[[str], bool] = is_name, rule: str = NAME_RULE
) -> list[tuple[str, Value]]:
    """Return the names and values of a section; raise `BadDocument` for what cannot be a name (HTTP contract 2)."""
    found = said[section].mapping() if section in said else {}
    for name, value in found.items():
        if not is_one(name):
            raise bad(value.place, f"{name!r} is no name: {rule}")
    return list(found.items())


def _authn_section(said: Mapping[str, Value], section: str) -> list[tuple[str, Value]]:
    """Do the same for names of the certificate service (15, A7)."""
    return _section(said, section, authn.is_name, authn.NAME_RULE)
