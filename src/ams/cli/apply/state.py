"""Asks the service what there is of what the files declare, and no more."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ams.cli.apply import logins
from ams.cli.apply.resources import Declared, Existing, Fields, Key, Kind
from ams.cli.output import short_name
from ams.client import wire
from ams.client.errors import NotAuthenticated, NotFound
from ams.client.wire import Call, authn

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
        if ("", Kind.ISSUER) in self._kinds:
            for issuer in self._ask(wire.list_issuers()).issuers:
                yield Key(Kind.ISSUER, "", issuer.name), logins.existing_issuer(issuer)
        for project in self._declared.projects:
            yield from self._project(project)
        if self._declared.concerns_authn:
            yield from self._authn()

    def _authn(self) -> Iterator[tuple[Key, Fields]]:
        """Read what the certificate service has: all service types, and of the rest what belongs to declared ones."""
        types = self._ask(authn.list_service_types()).service_types
        for each in types:
            yield Key(Kind.SERVICE_TYPE, "", each.name), _service_type(each)
        names = {each.uuid: each.name for each in types}
        if any(kind is Kind.AUTH_METHOD for _, kind in self._kinds):
            for method in self._ask(authn.list_auth_methods()).auth_methods:
                fields = {"port": method.port, "headers": tuple(method.headers)}
                yield Key(Kind.AUTH_METHOD, names.get(method.service_uuid, ""), method.host), fields
        if ("", Kind.BINDING) in self._kinds:
            yield from self._bindings(names)

    def _bindings(self, names: Mapping[str, str]) -> Iterator[tuple[Key, Fields]]:
        """Read bindings that are declared, or of declared service types, and the users that are bound."""
        bindings = [fields for key, fields in self._declared.fields.items() if key.kind is Kind.BINDING]
        bound = {fields["user"] for fields in bindings if "user" in fields}
        uuids = {}
        for name in sorted(bound):
            user = self._found(wire.get_user(name))
            if user:
                uuids[name] = user.uuid
                if Key(Kind.USER, "", name) not in self._declared.fields:
                    yield Key(Kind.USER, "", name), {}
        for binding in self._ask(authn.list_bindings()).bindings:
            key = Key(Kind.BINDING, "", binding.name)
            service_type = names.get(binding.service_uuid, "")
            declared = self._declared.fields.get(key)
            if declared is None and Key(Kind.SERVICE_TYPE, "", service_type) not in self._declared.fields:
                continue
            wanted = (declared or {}).get("user", "")
            stands_for = wanted if wanted and uuids.get(wanted) == binding.unique_key else ""
            yield key, {"service_type": service_type, "user": stands_for, **_binding(binding)}

    def _user(self, key: Key) -> Iterator[tuple[Key, Fields]]:
        user = self._found(wire.get_user(key.name))
        if user:
            texts = ("email", "first_name", "last_name", "organization", "description")
            said = {name: getattr(user, name) for name in texts}
            yield key, {**said, "service_roles": tuple(sorted(user.service_roles))}
            yield from self._logins(user.name)

    def _logins(self, user: str) -> Iterator[tuple[Key, Fields]]:
        """Read the bindings and tokens of a user; a binding that a first login made counts only if it is declared."""
        if (user, Kind.IDENTITY) in self._kinds:
            for binding in self._ask(wire.list_bindings(user)).bindings:
                key = Key(Kind.IDENTITY, user, binding.name)
                if not binding.by_login or key in self._declared.fields:
                    yield key, {"issuer": binding.issuer, "subject": binding.subject}
        if (user, Kind.TOKEN) in self._kinds:
            for token in self._ask(wire.list_tokens(user)).tokens:
                yield Key(Kind.TOKEN, user, token.name), logins.existing_token(token)

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


def _service_type(found: authn.ServiceType) -> Fields:
    return {
        "hosts": tuple(sorted(set(found.hosts))),
        "auth_types": tuple(sorted(set(found.auth_types))),
        "auth_method": found.auth_method,
        "type": found.type,
        "verify_client_host": found.verify_client_host,
    }


def _binding(found: authn.Binding) -> Fields:
    return {
        "host": found.host,
        "auth_identifier": found.auth_identifier,
        "unique_key": found.unique_key,
        "auth_type": found.auth_type,
        "issuer": found.issuer,
    }
