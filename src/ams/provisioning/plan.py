"""Reads the existing state of declared resources, and plans the steps that are missing.

A plan is pure, so its laws can be tested. It is idempotent: after it is carried out, a new plan is empty.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from ams.client import wire
from ams.client.errors import NotAuthenticated, NotFound
from ams.client.wire import Call, authn
from ams.client.wire.users import OF_SETTINGS
from ams.core.errors import BadSettings
from ams.core.parallel_options import ORDERED
from ams.core.yaml_tree import bad
from ams.provisioning.declarations import Ask, Declared, Existing, Fields, ResourceKey, ResourceKind, Step, StepSign
from ams.provisioning.document import ALL, ISSUER, KEY_ID, SECRETS, SERVICE_TYPE, TOKEN_FILE, USER
from ams.wire.projects import DESCRIPTOR

T = TypeVar("T")
_PAGE = 500  # resources per page
_BINDING_FIELDS = ("host", "auth_identifier", "unique_key", "auth_type", "issuer")  # alike in files and in the API
_FIXED_FIELDS = ("type", "filter", "enableMessageOrdering")  # fields of a subscription that never change
_ORDER = list(ResourceKind)
_REPLACED_KINDS = (ResourceKind.IDENTITY, ResourceKind.TOKEN)  # removed and made again, never altered
_DIFFERS = {"expires_on": "another end", "rights": "other rights"}


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Prune undeclared resources in declared sections; set secrets, which cannot be compared; renew tokens."""

    prune: bool = False
    set_secrets: bool = False
    renew_tokens: bool = False


def plan(declared: Declared, existing: Existing, options: PlanOptions = PlanOptions()) -> list[Step]:
    """Return the steps in order. Raises `BadDocument` for missing references and impossible changes."""
    removed = {**declared.gone, **(_surplus(declared, existing) if options.prune else {})}
    for place, target in declared.references:
        if target not in declared.fields and (target not in existing.fields or target in removed):
            raise bad(place, f"{target} is neither declared nor there")
    keys = declared.fields if declared.in_order else sorted(declared.fields, key=lambda key: _ORDER.index(key.kind))
    steps = [step for key in keys if (step := _step(key, declared, existing, options))]
    last_first = sorted(removed, key=lambda key: (-_ORDER.index(key.kind), key))
    return steps + [Step(StepSign.REMOVE, key, removed[key]) for key in last_first]


def _step(key: ResourceKey, declared: Declared, existing: Existing, options: PlanOptions) -> Step | None:
    wanted = _wanted_fields(key, declared, existing)
    found = existing.fields.get(key)
    owner = declared.owners.get(key, "")
    if found is None:
        return Step(StepSign.ADD, key, wanted, owner)
    if KEY_ID in found:
        said = "is a key, which is made by ams token create --google-file and never declared"
        raise bad(declared.places[key], f"{key} {said}: give the token another name")
    changed = {
        name: value
        for name, value in wanted.items()
        if not _same(name, value, found.get(name)) or (options.set_secrets and name in SECRETS)
    }
    if impossible := _impossible(key.kind, changed, found, options):
        raise bad(declared.places[key], f"{key} {impossible}")
    if changed and key.kind in _REPLACED_KINDS:
        changed = {**found, **wanted}
    return Step(StepSign.ALTER, key, changed, owner) if changed else None


def _impossible(kind: ResourceKind, changed: Fields, found: Fields, options: PlanOptions) -> str:
    if not changed:
        return ""
    if kind is ResourceKind.TOKEN:
        differs = " and ".join(_DIFFERS[name] for name in changed)
        remedy = "give --renew-tokens to revoke it and make it anew"
        return "" if options.renew_tokens else f"is there with {differs}: {remedy}"
    if kind is ResourceKind.ISSUER and found.get("source") == OF_SETTINGS:
        return f"is of the service's settings (issuers_file), where its {', '.join(changed)} must be changed"
    fixed = [name for name in _FIXED_FIELDS if kind is ResourceKind.SUBSCRIPTION and name in changed]
    if kind is ResourceKind.SERVICE_TYPE and "type" in changed:
        text = f"is of type {found['type']}, and a service type cannot change its type"
    elif "topic" in changed:
        text = f"is on topic {found['topic']}, and a subscription cannot change its topic"
    elif fixed:
        text = f"has another {', '.join(fixed)}, which a subscription cannot change"
    elif changed.get("schema") == {}:
        text = "holds a schema of payloads, and the service cannot take that part away"
    else:
        return ""
    return f"{text}; delete it first"


def _wanted_fields(key: ResourceKey, declared: Declared, existing: Existing) -> Fields:
    """Return the declared fields. Members without a role stay on a list, as push workers do (HTTP contract 13.5)."""
    wanted = declared.fields[key]
    if "users" in wanted:
        there = existing.fields.get(key, {}).get("users", ())
        return {"users": tuple(user for user in wanted["users"] if user not in there)}
    if "access" not in wanted:
        return wanted
    listed = existing.fields.get(key, {}).get("access", ())
    members = {user: ResourceKind.MEMBER.key(user, key.project) for user in listed}
    without_role = {user for user, member in members.items() if existing.fields.get(member) == {"roles": ()}}
    kept = {user for user in without_role if members[user] not in declared.fields}
    return {**wanted, "access": tuple(sorted({*wanted["access"], *kept}))}


def _same(name: str, wanted: Any, found: Any) -> bool:
    if name == "push":
        return same_push(wanted, found or {})
    if name == "users":
        return not wanted
    if name == "headers":  # their values are never shown, nor is an access key
        return set(wanted) == set(found or ())
    if name == "client_secret":
        return bool(found)
    return name in ("access_key", TOKEN_FILE) or bool(wanted == found)


def same_push(declared: Fields, existing: Fields) -> bool:
    """Return whether a push configuration is as declared; other fields may differ."""
    if not declared:
        return not existing.get("type")
    dead_letters = short_name(existing.get("deadLetterTopic", ""))
    return _holds({**existing, "deadLetterTopic": dead_letters}, declared)


def _holds(existing: object, declared: object) -> bool:
    if isinstance(declared, Mapping):
        return isinstance(existing, Mapping) and all(_holds(existing.get(name), declared[name]) for name in declared)
    return existing == declared


def _surplus(declared: Declared, existing: Existing) -> dict[ResourceKey, Fields]:
    return {
        key: {}
        for key, fields in existing.fields.items()
        if key not in declared.fields
        and (key.project, key.kind) in declared.sections
        and not _is_never_pruned(key, fields, existing.caller)
    }


def _is_never_pruned(key: ResourceKey, fields: Fields, caller: str) -> bool:
    """Return whether a resource is never pruned: the caller, members without a role, keys, issuers of the settings."""
    if key.kind is ResourceKind.MEMBER:
        return key.name == caller or fields == {"roles": ()}
    if key.kind is ResourceKind.TOKEN:
        return KEY_ID in fields
    return key.kind is ResourceKind.ISSUER and fields.get("source") == OF_SETTINGS


class Target(NamedTuple):
    """A project of AMS, and a host of a service type on which certificates are bound."""

    project: str
    service_type: str
    service_uuid: str
    host: str


def read_existing(declared: Declared, ask: Ask) -> Existing:
    """Return the existing resources of declared users and projects, with the declared fields."""
    fields = dict(_State(declared, ask).everything())
    try:
        return Existing(fields, str(ask(wire.get_profile()).name))
    except NotAuthenticated:
        return Existing(fields)


class _State:
    def __init__(self, declared: Declared, ask: Ask) -> None:
        self._ask, self._declared = ask, declared
        self._kinds = {(key.project, key.kind) for key in declared.fields} | declared.sections
        self._kinds |= {(each.target.project, each.target.kind) for each in declared.references}

    def everything(self) -> Iterator[tuple[ResourceKey, Fields]]:
        for key in self._declared.fields:
            if key.kind is ResourceKind.USER:
                yield from self._user(key)
        if ("", ResourceKind.ISSUER) in self._kinds:
            for issuer in self._ask(wire.list_issuers()).issuers:
                yield ResourceKind.ISSUER.key(issuer.name), existing_issuer(issuer)
        for project in self._declared.projects:
            yield from self._project(project)
        if self._declared.concerns_authn:
            # All service types; of the rest, the resources of declared ones.
            types = self._ask(authn.list_service_types()).service_types
            for each in types:
                yield ResourceKind.SERVICE_TYPE.key(each.name), _declared_fields(each, SERVICE_TYPE)
            names = {each.uuid: each.name for each in types}
            if any(kind is ResourceKind.AUTH_METHOD for _, kind in self._kinds):
                for method in self._ask(authn.list_auth_methods()).auth_methods:
                    fields = {"port": method.port, "headers": tuple(method.headers)}
                    yield ResourceKind.AUTH_METHOD.key(method.host, names.get(method.service_uuid, "")), fields
            if ("", ResourceKind.BINDING) in self._kinds:
                yield from self._bindings(names)

    def _bindings(self, names: Mapping[str, str]) -> Iterator[tuple[ResourceKey, Fields]]:
        # Bindings that are declared, or of declared service types, and the users that are bound.
        bindings = [fields for key, fields in self._declared.fields.items() if key.kind is ResourceKind.BINDING]
        bound = {fields["user"] for fields in bindings if "user" in fields}
        uuids = {}
        for name in sorted(bound):
            if user := self._call_or_none(wire.get_user(name)):
                uuids[name] = user.uuid
                if ResourceKind.USER.key(name) not in self._declared.fields:
                    yield ResourceKind.USER.key(name), {}
        for binding in self._ask(authn.list_bindings()).bindings:
            key = ResourceKind.BINDING.key(binding.name)
            service_type = names.get(binding.service_uuid, "")
            declared = self._declared.fields.get(key)
            if declared is None and ResourceKind.SERVICE_TYPE.key(service_type) not in self._declared.fields:
                continue
            wanted = (declared or {}).get("user", "")
            stands_for = wanted if wanted and uuids.get(wanted) == binding.unique_key else ""
            yield key, {"service_type": service_type, "user": stands_for, **_declared_fields(binding, _BINDING_FIELDS)}

    def _user(self, key: ResourceKey) -> Iterator[tuple[ResourceKey, Fields]]:
        """Read a user, its bindings and tokens; a binding that a first login made counts only if it is declared."""
        if not (user := self._call_or_none(wire.get_user(key.name))):
            return
        yield key, _declared_fields(user, USER)
        if (user.name, ResourceKind.IDENTITY) in self._kinds:
            for binding in self._ask(wire.list_bindings(user.name)).bindings:
                identity = ResourceKind.IDENTITY.key(binding.name, user.name)
                if not binding.by_login or identity in self._declared.fields:
                    yield identity, {"issuer": binding.issuer, "subject": binding.subject}
        if (user.name, ResourceKind.TOKEN) in self._kinds:
            for token in self._ask(wire.list_tokens(user.name)).tokens:
                rights = {f"{each.action}={each.resource}" for each in token.rights or ()}
                reduced = ALL if token.rights is None else tuple(sorted(rights))
                said = {"expires_on": token.expires_on, "rights": reduced}
                key_id = {KEY_ID: token.key_id} if token.key_id else {}
                yield ResourceKind.TOKEN.key(token.name, user.name), said | key_id

    def _project(self, name: str) -> Iterator[tuple[ResourceKey, Fields]]:
        if not (project := self._call_or_none(wire.get_project(name))):
            return
        fields: dict[str, Any] = {"description": project.description, "retention": project.retention_seconds}
        strict = {} if project.strict_data is None else {"strictData": project.strict_data}
        yield ResourceKind.PROJECT.key(name), fields | strict | {"quotas": dict(project.quotas)}
        readers = (
            (ResourceKind.MEMBER, self._members), (ResourceKind.SCHEMA, self._schemas),
            (ResourceKind.TOPIC, self._topics), (ResourceKind.SUBSCRIPTION, self._subscriptions),
        )  # fmt: skip
        for kind, read in readers:
            if (name, kind) in self._kinds:
                yield from read(name)

    def _members(self, project: str) -> Iterator[tuple[ResourceKey, Fields]]:
        for user in self._users(project):
            roles = [role for each in user.projects if each.project == project for role in each.roles]
            yield ResourceKind.MEMBER.key(user.name, project), {"roles": tuple(sorted(roles))}

    def _schemas(self, project: str) -> Iterator[tuple[ResourceKey, Fields]]:
        for schema in self._ask(wire.list_schemas(project)).schemas:
            made = DESCRIPTOR if schema.type == "protobuf" else ""  # by the service, of what is declared
            content = {name: part for name, part in schema.schema.items() if name != made}
            fields = {"type": schema.type, "schema": content, "attributes": schema.attributes}
            yield ResourceKind.SCHEMA.key(short_name(schema.name), project), fields

    def _topics(self, project: str) -> Iterator[tuple[ResourceKey, Fields]]:
        for topic in self._items("topics", functools.partial(wire.list_topics, project)):
            key = ResourceKind.TOPIC.key(short_name(topic.name), project)
            fields = {"schema": short_name(topic.schema), "retention": topic.retention_seconds}
            yield key, fields | self._access(key, wire.get_topic_acl)

    def _subscriptions(self, project: str) -> Iterator[tuple[ResourceKey, Fields]]:
        for subscription in self._items("subscriptions", functools.partial(wire.list_subscriptions, project)):
            key = ResourceKind.SUBSCRIPTION.key(short_name(subscription.name), project)
            letters = subscription.dead_letter_policy
            dead_letter_topic = {"deadLetterTopic": short_name(letters.dead_letter_topic)} if letters else {}
            fields = {
                "topic": short_name(subscription.topic),
                "ackDeadline": subscription.ack_deadline_seconds,
                "push": subscription.push_config,
                "type": subscription.type or ORDERED,
                "retryPolicy": msgspec.to_builtins(subscription.retry_policy) or {},
                "deadLetterPolicy": (msgspec.to_builtins(letters) or {}) | dead_letter_topic,
                "filter": subscription.filter,
                "enableMessageOrdering": subscription.enable_message_ordering,
                "enableExactlyOnceDelivery": subscription.enable_exactly_once_delivery,
                "retainAckedMessages": subscription.retain_acked_messages,
                "expirationPolicy": msgspec.to_builtins(subscription.expiration_policy) or {},
                "messageRetentionDuration": subscription.message_retention_duration,
            }
            yield key, fields | self._access(key, wire.get_subscription_acl)

    def _access(self, key: ResourceKey, ask_for: Callable[[str, str], Call[wire.Acl]]) -> dict[str, Any]:
        # Only if declared: each list costs a request.
        if "access" not in self._declared.fields.get(key, {}):
            return {}
        return {"access": tuple(sorted(self._ask(ask_for(key.project, key.name)).authorized_users))}

    def of_target(self, target: Target, bindings: Iterable[authn.Binding]) -> Existing:
        project = target.project
        fields: dict[ResourceKey, Fields] = {**dict(self._subscriptions(project)), **dict(self._topics(project))}
        entries: dict[ResourceKey, list[str]] = {}
        users = self._users(project)
        for user in users:
            here = [each for each in user.projects if each.project == project]
            roles = {role for each in here for role in each.roles}
            fields[ResourceKind.MEMBER.key(user.name, project)] = {"roles": tuple(sorted(roles))}
            lists = [(ResourceKind.PUBLISHERS, topic) for each in here for topic in each.topics]
            lists += [(ResourceKind.CONSUMERS, name) for each in here for name in each.subscriptions]
            for kind, name in lists:
                entries.setdefault(kind.key(short_name(name), project), []).append(user.name)
        names = {user.uuid: user.name for user in users}
        for binding in bindings:
            bound = {"service_uuid": binding.service_uuid, "user": names.get(binding.unique_key, "")}
            fields[ResourceKind.BINDING.key(binding.name)] = bound | _declared_fields(binding, _BINDING_FIELDS)
        fields |= {key: {"users": tuple(on)} for key, on in entries.items()}
        return Existing(fields, uuids={user.name: user.uuid for user in users})

    def _users(self, project: str) -> list[wire.User]:
        return list(self._items("users", functools.partial(wire.list_members, project, details=True)))

    def _items(self, name: str, call: Callable[..., Call[Any]]) -> Iterator[Any]:
        page = self._ask(call(page_size=_PAGE, page_token=""))
        yield from getattr(page, name)
        while page.next_page_token:
            page = self._ask(call(page_size=_PAGE, page_token=page.next_page_token))
            yield from getattr(page, name)

    def _call_or_none(self, call: Call[T]) -> T | None:
        with contextlib.suppress(NotFound):
            return cast("T", self._ask(call))
        return None


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
    """Return an existing issuer in the form of files."""
    rules = {f"{rule.project}={role}={rule.entitlement}" for rule in found.roles for role in rule.roles}
    alike = _declared_fields(found, (name for name in (*ISSUER, "source") if name != "roles"))
    return {**alike, "roles": tuple(sorted(rules)), "client_secret": bool(found.client_secret)}


def _declared_fields(found: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields as files declare them: names in a list sorted, each once."""
    fields = {name: getattr(found, name) for name in names}
    return {name: tuple(sorted(set(each))) if isinstance(each, list) else each for name, each in fields.items()}


def short_name(resource: str) -> str:
    """Return the last part of a resource name."""
    return resource.rpartition("/")[2]
