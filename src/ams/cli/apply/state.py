"""Asks the service what there is of what the files declare, and no more."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ams.cli.apply.resources import Declared, Existing, Fields, Key, Kind
from ams.cli.output import short_name
from ams.client import wire
from ams.client.errors import NotAuthenticated, NotFound
from ams.client.wire import Call

T = TypeVar("T")

Ask = Callable[[Call[Any]], Any]
"""Sends a call and returns its answer; raises a `ClientError`."""


def read_existing(declared: Declared, ask: Ask) -> Existing:
    """Return what exists of users and projects that are declared, with the fields that are declared."""
    state = _State(declared, ask)
    return Existing(dict(state.everything()), state.caller())


class _State:
    """Reads what a declaration needs."""

    def __init__(self, declared: Declared, ask: Ask) -> None:
        self._ask = ask
        self._declared = declared
        self._kinds = {(key.project, key.kind) for key in declared.fields} | declared.sections
        self._kinds |= {(each.target.project, each.target.kind) for each in declared.references}

    def caller(self) -> str:
        """Return who asks; empty for the service token, which is no user."""
        try:
            return str(self._ask(wire.get_profile()).name)
        except NotAuthenticated:
            return ""

    def everything(self) -> Iterator[tuple[Key, Fields]]:
        for key in self._declared.fields:
            if key.kind is Kind.USER:
                yield from self._user(key)
        for project in self._declared.projects:
            yield from self._project(project)

    def _user(self, key: Key) -> Iterator[tuple[Key, Fields]]:
        user = self._found(wire.get_user(key.name))
        if user:
            texts = ("email", "first_name", "last_name", "organization", "description")
            said = {name: getattr(user, name) for name in texts}
            yield key, {**said, "service_roles": tuple(sorted(user.service_roles))}

    def _project(self, name: str) -> Iterator[tuple[Key, Fields]]:
        project = self._found(wire.get_project(name))
        if not project:
            return
        yield (
            Key(Kind.PROJECT, "", name),
            {"description": project.description, "retention": project.retention_seconds},
        )
        readers = {
            Kind.MEMBER: self._members,
            Kind.SCHEMA: self._schemas,
            Kind.TOPIC: self._topics,
            Kind.SUBSCRIPTION: self._subscriptions,
        }
        for kind, read in readers.items():
            if (name, kind) in self._kinds:
                yield from read(name)

    def _members(self, project: str) -> Iterator[tuple[Key, Fields]]:
        for user in self._ask(wire.list_members(project, details=True)).users:
            roles = [role for each in user.projects if each.project == project for role in each.roles]
            yield Key(Kind.MEMBER, project, user.name), {"roles": tuple(sorted(roles))}

    def _schemas(self, project: str) -> Iterator[tuple[Key, Fields]]:
        for schema in self._ask(wire.list_schemas(project)).schemas:
            fields = {"type": schema.type, "schema": schema.schema, "attributes": schema.attributes}
            yield Key(Kind.SCHEMA, project, short_name(schema.name)), fields

    def _topics(self, project: str) -> Iterator[tuple[Key, Fields]]:
        for topic in self._ask(wire.list_topics(project)).topics:
            key = Key(Kind.TOPIC, project, short_name(topic.name))
            fields = {"schema": short_name(topic.schema), "retention": topic.retention_seconds}
            yield key, fields | self._access(key, wire.get_topic_acl)

    def _subscriptions(self, project: str) -> Iterator[tuple[Key, Fields]]:
        for subscription in self._ask(wire.list_subscriptions(project)).subscriptions:
            key = Key(Kind.SUBSCRIPTION, project, short_name(subscription.name))
            fields = {
                "topic": short_name(subscription.topic),
                "ackDeadline": subscription.ack_deadline_seconds,
                "push": subscription.push_config,
            }
            yield key, fields | self._access(key, wire.get_subscription_acl)

    def _access(self, key: Key, ask_for: Callable[[str, str], Call[wire.Acl]]) -> dict[str, Any]:
        """Return the access list, if the files say anything of it: each is a question of its own."""
        if "access" not in self._declared.fields.get(key, {}):
            return {}
        return {"access": tuple(sorted(self._ask(ask_for(key.project, key.name)).authorized_users))}

    def _found(self, call: Call[T]) -> T | None:
        try:
            found: T = self._ask(call)
        except NotFound:
            return None
        return found
