"""Asks the services what there is of what is declared, and no more."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ams.client import wire
from ams.client.errors import NotAuthenticated, NotFound
from ams.client.wire import Call, authn
from ams.core.errors import BadSettings
from ams.provisioning import parallel
from ams.provisioning.declared import Ask, Declared, Existing, Fields, Key, Kind
from ams.provisioning.fields import ALL, ISSUER, KEY_ID, SERVICE_TYPE, USER

T = TypeVar("T")
_PAGE = 500
"""Resources asked for at once."""
_BOUND = ("host", "auth_identifier", "unique_key", "auth_type", "issuer")
"""Fields of a binding that are shown as they are declared."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is provisioned: a project of AMS, and a host of a service type, on which certificates are bound."""

    project: str
    service_type: str
    service_uuid: str
    host: str


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
        """Return the user whose token is used; empty for the service token, which is no user's."""
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
                yield Key(Kind.ISSUER, "", issuer.name), existing_issuer(issuer)
        for project in self._declared.projects:
            yield from self._project(project)
        if self._declared.concerns_authn:
            yield from self._authn()

    def _authn(self) -> Iterator[tuple[Key, Fields]]:
        """Read what the certificate service has: all service types, and of the rest what belongs to declared ones."""
        types = self._ask(authn.list_service_types()).service_types
        for each in types:
            yield Key(Kind.SERVICE_TYPE, "", each.name), _shown(each, SERVICE_TYPE)
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
            yield key, {"service_type": service_type, "user": stands_for, **_shown(binding, _BOUND)}

    def _user(self, key: Key) -> Iterator[tuple[Key, Fields]]:
        user = self._found(wire.get_user(key.name))
        if user:
            yield key, _shown(user, USER)
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
                said = {"expires_on": token.expires_on, "rights": _rights(token.rights)}
                yield Key(Kind.TOKEN, user, token.name), {**said, **({KEY_ID: token.key_id} if token.key_id else {})}

    def _project(self, name: str) -> Iterator[tuple[Key, Fields]]:
        project = self._found(wire.get_project(name))
        if not project:
            return
        yield (
            Key(Kind.PROJECT, "", name),
            {
                "description": project.description,
                "retention": project.retention_seconds,
                "quotas": dict(project.quotas),
                **({} if project.strict_data is None else {"strictData": project.strict_data}),
            },
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
        for user in self._users(project):
            roles = [role for each in user.projects if each.project == project for role in each.roles]
            yield Key(Kind.MEMBER, project, user.name), {"roles": tuple(sorted(roles))}

    def _schemas(self, project: str) -> Iterator[tuple[Key, Fields]]:
        for schema in self._ask(wire.list_schemas(project)).schemas:
            fields = {"type": schema.type, "schema": schema.schema, "attributes": schema.attributes}
            yield Key(Kind.SCHEMA, project, short_name(schema.name)), fields

    def _topics(self, project: str) -> Iterator[tuple[Key, Fields]]:
        pages = self._pages(functools.partial(wire.list_topics, project))
        for topic in (each for page in pages for each in page.topics):
            key = Key(Kind.TOPIC, project, short_name(topic.name))
            fields = {"schema": short_name(topic.schema), "retention": topic.retention_seconds}
            yield key, fields | self._access(key, wire.get_topic_acl)

    def _subscriptions(self, project: str) -> Iterator[tuple[Key, Fields]]:
        pages = self._pages(functools.partial(wire.list_subscriptions, project))
        for subscription in (each for page in pages for each in page.subscriptions):
            key = Key(Kind.SUBSCRIPTION, project, short_name(subscription.name))
            letters = subscription.dead_letter_policy
            fields = {
                "topic": short_name(subscription.topic),
                "ackDeadline": subscription.ack_deadline_seconds,
                "push": subscription.push_config,
                **parallel.existing(subscription, short_name(letters.dead_letter_topic) if letters else ""),
            }
            yield key, fields | self._access(key, wire.get_subscription_acl)

    def _access(self, key: Key, ask_for: Callable[[str, str], Call[wire.Acl]]) -> dict[str, Any]:
        """Return the access list, if the files say anything of it: each is a question of its own."""
        if "access" not in self._declared.fields.get(key, {}):
            return {}
        return {"access": tuple(sorted(self._ask(ask_for(key.project, key.name)).authorized_users))}

    def of_target(self, target: Target, bindings: Iterable[authn.Binding]) -> Existing:
        project, fields = target.project, dict[Key, Fields]()
        fields |= self._subscriptions(project)
        fields |= self._topics(project)
        entries: dict[Key, list[str]] = {}
        users = self._users(project)
        for user in users:
            here = [each for each in user.projects if each.project == project]
            roles = {role for each in here for role in each.roles}
            fields[Key(Kind.MEMBER, project, user.name)] = {"roles": tuple(sorted(roles))}
            lists = [(Kind.PUBLISHERS, topic) for each in here for topic in each.topics]
            lists += [(Kind.CONSUMERS, name) for each in here for name in each.subscriptions]
            for kind, name in lists:
                entries.setdefault(Key(kind, project, short_name(name)), []).append(user.name)
        names = {user.uuid: user.name for user in users}
        for binding in bindings:
            bound = {"service_uuid": binding.service_uuid, "user": names.get(binding.unique_key, "")}
            fields[Key(Kind.BINDING, "", binding.name)] = bound | _shown(binding, _BOUND)
        fields |= {key: {"users": tuple(on)} for key, on in entries.items()}
        return Existing(fields, uuids={name: uuid for uuid, name in names.items()})

    def _users(self, project: str) -> list[wire.User]:
        pages = self._pages(lambda **page: wire.list_members(project, details=True, **page))
        return [user for page in pages for user in page.users]

    def _pages(self, call: Callable[..., Call[Any]]) -> Iterator[Any]:
        token = ""
        while True:
            page = self._ask(call(page_size=_PAGE, page_token=token))
            yield page
            token = page.next_page_token
            if not token:
                return

    def _found(self, call: Call[T]) -> T | None:
        try:
            found: T = self._ask(call)
        except NotFound:
            return None
        return found


def find_target(ask: Ask, project: str, service_type: str, host: str, service_uuid: str) -> Target:
    """Look up the service type; raise `BadSettings` if host or uuid are not its own, or a `ClientError`."""
    found = ask(authn.get_service_type(service_type))
    if service_uuid and service_uuid != found.uuid:
        raise BadSettings(f"service type {service_type} has the uuid {found.uuid}, and not {service_uuid}")
    if host not in found.hosts:
        raise BadSettings(f"service type {service_type} has no host {host}, but {', '.join(found.hosts)}")
    return Target(project, service_type, found.uuid, host)


def read_target(target: Target, ask: Ask) -> Existing:
    """Return all that a target has, with entries of access lists instead of the lists; raise a `ClientError`."""
    bindings = ask(authn.list_host_bindings(target.service_type, target.host)).bindings
    return _State(Declared(), ask).of_target(target, [each for each in bindings if each.auth_type == authn.X509])


def existing_issuer(found: wire.Issuer) -> Fields:
    """Return an issuer as it is there, spelled as files declare it."""
    rules = {f"{rule.project}={role}={rule.entitlement}" for rule in found.roles for role in rule.roles}
    alike = _shown(found, (name for name in (*ISSUER, "source") if name != "roles"))
    return {**alike, "roles": tuple(sorted(rules)), "client_secret": bool(found.client_secret)}


def _rights(given: Iterable[wire.Right] | None) -> tuple[str, ...] | str:
    """Write rights as files declare them; None stands for all of the user's."""
    return ALL if given is None else tuple(sorted({f"{each.action}={each.resource}" for each in given}))


def _shown(found: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields as files declare them: names in a list sorted, each once."""
    fields = {name: getattr(found, name) for name in names}
    return {name: tuple(sorted(set(each))) if isinstance(each, list) else each for name, each in fields.items()}


def short_name(resource: str) -> str:
    """Return the last part of a resource name."""
    return resource.rpartition("/")[2]
