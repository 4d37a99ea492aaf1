"""The calls that carry out one step of a plan; making users and tokens is in `running`, as answers hold secrets."""

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from ams.cli.apply import logins
from ams.cli.apply.authn import secret, secrets
from ams.cli.apply.plan import Change, Step
from ams.cli.apply.resources import Kind
from ams.client import wire
from ams.client.wire import Call, authn

Calls = Generator[Call[Any], Any, None]
"""Calls to send, in order; it is sent the answer of each."""


def calls(step: Step) -> Calls:
    """Yield the calls of a step, in order."""
    if step.change is Change.REMOVE:
        yield _REMOVE[step.key.kind](step.key.project, step.key.name)
    else:
        yield from _MAKE_OR_ALTER[step.key.kind](step)


def _user(step: Step) -> Calls:
    yield wire.update_user(step.key.name, wire.UserDetails(**step.fields))


def _member(step: Step) -> Calls:
    yield wire.update_member(step.key.project, step.key.name, step.fields["roles"])


def _project(step: Step) -> Calls:
    name, description = step.key.name, step.fields.get("description", "")
    if step.change is Change.ADD:
        yield wire.create_project(name, description)
    elif description:
        yield wire.update_project(name, description=description)
    if _to_be_set(step, "retention"):
        yield wire.modify_project_retention(name, step.fields["retention"])


def _schema(step: Step) -> Calls:
    project, name, fields = step.key.project, step.key.name, step.fields
    if step.change is Change.ADD:
        yield wire.create_schema(project, name, fields["schema"], kind=fields["type"], attributes=fields["attributes"])
    else:
        yield wire.update_schema(
            project,
            name,
            fields.get("schema"),
            kind=fields.get("type", ""),
            attributes=fields.get("attributes"),
        )


def _topic(step: Step) -> Calls:
    project, name, fields = step.key.project, step.key.name, step.fields
    if step.change is Change.ADD:
        yield wire.create_topic(project, name, schema=fields.get("schema", ""))
    elif fields.get("schema"):
        yield wire.attach_schema(project, name, fields["schema"])
    elif _to_be_set(step, "schema"):
        yield wire.detach_schema(project, name)
    if _to_be_set(step, "retention"):
        yield wire.modify_topic_retention(project, name, fields["retention"])
    if _to_be_set(step, "access"):
        yield wire.modify_topic_acl(project, name, fields["access"])


def _subscription(step: Step) -> Calls:
    yield from _new_subscription(step) if step.change is Change.ADD else _altered_subscription(step)


def _new_subscription(step: Step) -> Calls:
    project, name, fields = step.key.project, step.key.name, step.fields
    deadline, access, push = fields.get("ackDeadline"), fields.get("access"), _push_config(step)
    # With its push configuration, or not at all: as a pull subscription it would be another resource (contract 9.3).
    yield wire.create_subscription(project, name, fields["topic"], ack_deadline=deadline, push=push)
    if deadline == 0:
        # At creation the service reads 0 as nothing said (contract 9.3).
        yield wire.modify_ack_deadline(project, name, 0)
    if access and push:
        # The service has put its push worker on the list, where it must stay (contract 13.5).
        there = yield wire.get_subscription_acl(project, name)
        access = dict.fromkeys((*access, *there.authorized_users))
    if access:
        yield wire.modify_subscription_acl(project, name, list(access))


def _altered_subscription(step: Step) -> Calls:
    project, name, fields = step.key.project, step.key.name, step.fields
    if "ackDeadline" in fields:
        yield wire.modify_ack_deadline(project, name, fields["ackDeadline"])
    if "access" in fields:
        yield wire.modify_subscription_acl(project, name, fields["access"])
    if "push" in fields:
        # Last: the service then puts its push worker on the access list (contract 13.3).
        yield wire.modify_push_config(project, name, _push_config(step))


def _issuer(step: Step) -> Calls:
    where = step.fields.get(logins.CLIENT_SECRET)
    client_secret = secret(where) if where else None
    if step.change is Change.ADD:
        yield wire.create_issuer(logins.issuer(step.key.name, step.fields, None, client_secret))
    else:
        there = yield wire.get_issuer(step.key.name)
        yield wire.update_issuer(logins.issuer(step.key.name, step.fields, there, client_secret))


def _identity(step: Step) -> Calls:
    user, name = step.key.project, step.key.name
    if step.change is Change.ALTER:
        yield wire.delete_binding(user, name)
    yield wire.create_binding(user, name, step.fields["issuer"], step.fields["subject"])


def _service_type(step: Step) -> Calls:
    said = dict(step.fields)
    if step.change is Change.ADD:
        hosts, kind = said.pop("hosts"), said.pop("type", "ams")
        yield authn.create_service_type(step.key.name, hosts, kind=kind, **said)
    else:
        yield authn.update_service_type(step.key.name, **said)


def _auth_method(step: Step) -> Calls:
    service_type, host = step.key.project, step.key.name
    said = {**step.fields, **secrets(step.fields)}
    if step.change is Change.ADD:
        yield authn.create_auth_method(service_type, host, said.pop("port"), **said)
    else:
        yield authn.update_auth_method(service_type, host, **said)


def _binding(step: Step) -> Calls:
    said = dict(step.fields)
    if "service_type" in said:
        said["service_uuid"] = (yield authn.get_service_type(said.pop("service_type"))).uuid
    if "user" in said:
        # Asked for now, as a step before may have made the user.
        said["unique_key"] = (yield wire.get_user(said.pop("user"))).uuid
    if step.change is Change.ADD:
        yield authn.create_binding(step.key.name, **said)
    else:
        yield authn.update_binding(step.key.name, **said)


def _push_config(step: Step) -> wire.PushConfig | None:
    push = step.fields.get("push")
    return msgspec.convert(push, wire.PushConfig) if push else None


def _to_be_set(step: Step, field: str) -> bool:
    """Whether a call must set this field: a new resource has nothing set, which need not be said."""
    return field in step.fields and bool(step.change is Change.ALTER or step.fields[field])


_MAKE_OR_ALTER: dict[Kind, Callable[[Step], Calls]] = {
    Kind.USER: _user,
    Kind.PROJECT: _project,
    Kind.MEMBER: _member,
    Kind.SCHEMA: _schema,
    Kind.TOPIC: _topic,
    Kind.SUBSCRIPTION: _subscription,
    Kind.ISSUER: _issuer,
    Kind.IDENTITY: _identity,
    Kind.SERVICE_TYPE: _service_type,
    Kind.AUTH_METHOD: _auth_method,
    Kind.BINDING: _binding,
}
_REMOVE: dict[Kind, Callable[[str, str], Call[Any]]] = {
    Kind.MEMBER: wire.remove_member,
    Kind.SCHEMA: wire.delete_schema,
    Kind.TOPIC: wire.delete_topic,
    Kind.SUBSCRIPTION: wire.delete_subscription,
    Kind.ISSUER: lambda _, name: wire.delete_issuer(name),
    Kind.IDENTITY: wire.delete_binding,
    Kind.TOKEN: wire.revoke_token,
    Kind.AUTH_METHOD: authn.delete_auth_method,
    Kind.BINDING: lambda _, name: authn.delete_binding(name),
}
