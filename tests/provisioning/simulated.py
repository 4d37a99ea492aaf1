"""What steps make of a target, without any service."""

from collections.abc import Iterable, Mapping

from ams.provisioning.declared import Change, Existing, Fields, Key, Kind, Step
from ams.provisioning.state import Target

TARGET = Target("p", "ams", "uuid-of-ams", "localhost")


def member(uuid: str, *roles: str, topics: Iterable[str] = ()) -> tuple[str, tuple[str, ...], frozenset[str]]:
    """Return a member for `there`: its uuid, its roles, and the topics whose list it is on."""
    return uuid, roles, frozenset(topics)


def there(
    members: Mapping[str, tuple[str, tuple[str, ...], frozenset[str]]] = {},  # only read
    bindings: Mapping[str, tuple[str, str]] = {},  # only read
    topics: Iterable[str] = (),
) -> Existing:
    """Return what a target has; bindings are names, certificates and uuids of users."""
    uuids = {name: uuid for name, (uuid, _, _) in members.items()}
    names = {uuid: name for name, uuid in uuids.items()}
    fields: dict[Key, Fields] = {Key(Kind.TOPIC, "p", topic): {} for topic in topics}
    for name, (_, roles, _) in members.items():
        fields[Key(Kind.MEMBER, "p", name)] = {"roles": tuple(roles)}
    for topic in {topic for _, _, lists in members.values() for topic in lists}:
        users = tuple(name for name, (_, _, lists) in members.items() if topic in lists)
        fields[Key(Kind.PUBLISHERS, "p", topic)] = {"users": users}
    for name, (dn, uuid) in bindings.items():
        fields[Key(Kind.BINDING, "", name)] = binding(dn, uuid, names.get(uuid, ""))
    return Existing(fields, uuids=uuids)


def binding(dn: str, uuid: str, user: str) -> Fields:
    """Return a binding on the host of the target."""
    fields = {"service_uuid": TARGET.service_uuid, "host": TARGET.host}
    return fields | {"auth_identifier": dn, "unique_key": uuid, "user": user}


def after(existing: Existing, steps: Iterable[Step]) -> Existing:
    """Return what is there when all steps were done; fails where a service would refuse one."""
    fields, uuids = dict(existing.fields), dict(existing.uuids)
    for step in steps:
        _do(step, fields, uuids)
    return Existing(fields, uuids=uuids)


def _do(step: Step, fields: dict[Key, Fields], uuids: dict[str, str]) -> None:
    key, kind, before = step.key, step.key.kind, fields.get(step.key)
    if kind in (Kind.PUBLISHERS, Kind.CONSUMERS):
        users, on = step.fields["users"], (before or {"users": ()})["users"]
        if step.change is Change.REMOVE:
            fields[key] = {"users": tuple(user for user in on if user not in users)}
        else:
            assert not set(users) & set(on)
            fields[key] = {"users": (*on, *users)}
        return
    assert (before is None) is (step.change is Change.ADD)
    if step.change is Change.REMOVE:
        del fields[key]
    elif kind is Kind.BINDING:
        dns = {each["auth_identifier"] for other, each in fields.items() if other.kind is Kind.BINDING}
        assert step.fields.get("auth_identifier") not in dns
        assert step.fields.get("user", "") in {"", *uuids}
        fields[key] = {**(before or {}), **step.fields, "unique_key": uuids.get(step.fields.get("user", ""), "")}
    else:
        assert kind is not Kind.SUBSCRIPTION or Key(Kind.TOPIC, "p", step.fields["topic"]) in fields
        fields[key] = step.fields
        if kind is Kind.MEMBER:
            uuids[key.name] = f"uuid-of-{key.name}"
