"""Declares what endpoints of GOCDB are to have, and what those that vanished no longer have (authn contract 14.2, 15).

Pure: the same listing over a state in which all steps were done declares nothing that is missing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ams.provisioning.declared import Declared, Existing, Fields, Key, Kind
from ams.provisioning.endpoints import (
    Entitled,
    Judged,
    LeftOut,
    Reason,
    is_endpoints_topic,
    is_of_endpoint,
    is_of_type,
    type_topic,
)
from ams.provisioning.state import Target

ACK_DEADLINE_SECONDS = 100
"""Of the subscription of an endpoint (step 11b)."""


@dataclass(slots=True)
class Declaration:
    """What is to be there, and for whom it cannot be."""

    fields: dict[Key, Fields] = field(default_factory=dict)
    owners: dict[Key, str] = field(default_factory=dict)
    failed: list[LeftOut] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What is wrong with a whole topic."""
    users: dict[str, str] = field(default_factory=dict)
    """Of each certificate that is served, the user it stands for."""

    def add(self, key: Key, fields: Fields, owner: str) -> None:
        """Declare a resource; the first who needs it owns it."""
        if key not in self.fields:
            self.fields[key], self.owners[key] = fields, owner

    def declared(self, gone: Mapping[Key, Fields]) -> Declared:
        """Return it for a plan, with what is to be removed."""
        return Declared(self.fields, owners=self.owners, gone=gone, in_order=True)


def declare(
    served: Sequence[Entitled], existing: Existing, target: Target, *, role: str, consumer: str = ""
) -> Declaration:
    """Say what is to be there; `role` is that of members, `consumer` who reads the subscriptions of endpoints."""
    made, bound = Declaration(), _Bound(existing)
    moved = _move_bindings(served, bound)
    for each in [*moved.values(), *(each for each in served if moved.get(each.dn) is not each)]:
        _serve(each, bound, made, target, role)
    _give_topics(served, existing, made, target.project, consumer)
    return made


class _Bound:
    """Bindings and members, as they will be once all that is declared so far is there."""

    def __init__(self, existing: Existing) -> None:
        bindings = existing.of(Kind.BINDING)
        self.dns = {name: each["auth_identifier"] for name, each in bindings.items()}
        self.names = {dn: name for name, dn in self.dns.items()}
        self.members = {name: each["roles"] for name, each in existing.of(Kind.MEMBER).items()}
        self.users = {name: each["user"] for name, each in bindings.items()}
        """Of bindings the member, empty for none."""

    def move(self, binding: str, dn: str) -> None:
        """Let a binding be of another certificate."""
        before = self.dns.get(binding, "")
        if self.names.get(before) == binding:
            del self.names[before]
        self.dns[binding], self.names[dn] = dn, binding


def _move_bindings(served: Sequence[Entitled], bound: _Bound) -> dict[str, Entitled]:
    """Let the bindings of endpoints that have another certificate now be of that (step 9).

    Returns those endpoints by their certificates.

    First of all, and until there are none: such a move may free a certificate that another endpoint has now.
    """
    moved: dict[str, Entitled] = {}
    moving = True
    while moving:
        moving = False
        for each in served:
            if each.dn not in bound.names and bound.dns.get(each.name, each.dn) != each.dn:
                bound.move(each.name, each.dn)
                moved[each.dn] = each
                moving = True
    return moved


def _serve(each: Entitled, bound: _Bound, made: Declaration, target: Target, role: str) -> None:
    """Declare a user and a binding for an endpoint (steps 6 to 10)."""
    endpoint, binding = str(each.endpoint), bound.names.get(each.dn)
    user = bound.users.get(binding, "") if binding else each.name
    if binding and not user and not is_of_endpoint(binding):
        said = f"its certificate is bound as {binding}, of whose user the project knows nothing"
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, said))
        return
    user = user or binding or each.name
    if user not in bound.members:
        made.add(Key(Kind.MEMBER, target.project, user), {"roles": (role,), "email": each.email}, endpoint)
        bound.members[user] = (role,)
    elif role not in bound.members[user]:
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, f"{user} is a member without the role {role}"))
    binding = binding or each.name
    bound.move(binding, each.dn)
    bound.users[binding] = user
    fields = {"service_uuid": target.service_uuid, "host": target.host, "auth_identifier": each.dn, "user": user}
    made.add(Key(Kind.BINDING, "", binding), fields, endpoint)
    made.users[each.dn] = user


def _give_topics(
    served: Sequence[Entitled], existing: Existing, made: Declaration, project: str, consumer: str
) -> None:
    """Declare topics, subscriptions and entries of access lists (steps 11a and 11b)."""
    topics, subscriptions = existing.of(Kind.TOPIC), existing.of(Kind.SUBSCRIPTION)
    allowed: dict[str, dict[str, None]] = {}
    owners: dict[str, Entitled] = {}
    for each in served:
        if each.dn in made.users:
            allowed.setdefault(each.topic, {})[made.users[each.dn]] = None
            owners |= {each.topic: each} if each.subscription else {}
    for topic, users in allowed.items():
        owner = owners.get(topic)
        if owner is None and topic not in topics:
            made.faults.append(f"there is no topic {topic} (ams topics create {topic})")
            continue
        endpoint = str(owner.endpoint) if owner else ""
        if topic not in topics:
            made.add(Key(Kind.TOPIC, project, topic), {}, endpoint)
        made.add(Key(Kind.PUBLISHERS, project, topic), {"users": tuple(users)}, endpoint)
        if owner:
            _give_subscription(owner, subscriptions.get(owner.subscription), made, project, consumer)


def _give_subscription(each: Entitled, there: Fields | None, made: Declaration, project: str, consumer: str) -> None:
    """Declare a subscription; `there` are the fields of the one that has its name."""
    endpoint, name = str(each.endpoint), each.subscription
    if there is None:
        fields = {"topic": each.topic, "ackDeadline": ACK_DEADLINE_SECONDS}
        made.add(Key(Kind.SUBSCRIPTION, project, name), fields, endpoint)
    elif there["topic"] != each.topic:
        said = f"subscription {name} is one to {there['topic'] or 'a topic that is gone'}"
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, said))
        return
    if consumer:
        made.add(Key(Kind.CONSUMERS, project, name), {"users": (consumer,)}, endpoint)


@dataclass(frozen=True, slots=True)
class Vanished:
    """What is left of endpoints that are not listed any more.

    What provisioning made is known by its name. An endpoint that is listed, but not served now, has not vanished.
    """

    users: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    """Topics, and users on their lists whose certificates are those of other types only."""
    topics: tuple[str, ...] = ()
    """Those that endpoints had for themselves. They hold messages and are never removed."""
    provisioned: int = 0
    """How many users there are that were provisioned, these included."""

    @property
    def who(self) -> list[str]:
        """All names that something would be taken from."""
        return list(dict.fromkeys([*self.users, *self.bindings, *(user for _, user in self.entries)]))


def vanished(
    judged: Mapping[str, Judged], existing: Existing, serving: Mapping[str, str], *, own_topics: bool = False
) -> Vanished:
    """Hold what was judged, by service type, against what there is.

    `serving` names the user of each certificate, as it will be once the plan is carried out. `own_topics` says that
    endpoints have topics for themselves, and types have none.
    """
    members, bindings = existing.of(Kind.MEMBER), existing.of(Kind.BINDING)
    names = {name for each in judged.values() for name in each.names}
    dns = {dn for each in judged.values() for dn in each.dns}
    of_types = [name for name in {*members, *bindings} if any(is_of_type(name, each) for each in judged)]
    gone = {name for name in of_types if name not in names}
    unbound = sorted(name for name in gone if name in bindings and bindings[name]["auth_identifier"] not in dns)
    users = sorted((gone & members.keys()) - _in_use(dns, existing, serving))
    if own_topics:
        listed = {topic for each in judged.values() for topic in each.topics}
        topics = sorted(topic for topic in existing.of(Kind.TOPIC).keys() - listed if is_endpoints_topic(topic))
        return Vanished(tuple(users), tuple(unbound), topics=tuple(topics), provisioned=len(of_types))
    entries = [each for name, found in judged.items() for each in _entries(name, found, existing, serving, users)]
    return Vanished(tuple(users), tuple(unbound), tuple(entries), provisioned=len(of_types))


def _in_use(dns: Collection[str], existing: Existing, serving: Mapping[str, str]) -> set[str]:
    """Return the members that certificates stand for, now or soon."""
    now = {each["user"] for each in existing.of(Kind.BINDING).values() if each["auth_identifier"] in dns}
    return now | {serving[dn] for dn in dns if dn in serving}


def _entries(
    service_type: str, found: Judged, existing: Existing, serving: Mapping[str, str], gone: Iterable[str]
) -> list[tuple[str, str]]:
    topic = type_topic(service_type)
    staying = found.names | _in_use(found.dns, existing, serving) | set(gone)
    on_list = existing.of(Kind.PUBLISHERS).get(topic, {"users": ()})["users"]
    return [(topic, name) for name in sorted(on_list) if is_of_endpoint(name) and name not in staying]


def refusal(found: Vanished, judged: Mapping[str, Judged], *, whole: bool, most: int) -> str:
    """Say why nothing may be removed, empty when all may.

    `whole` is whether all listings came; `most` how many users at most.
    """
    count = len(found.who)
    if not whole or not all(each.readable for each in judged.values()):
        return "not all that GOCDB lists could be read"
    empty = [name for name, each in judged.items() if not each.names]
    if empty:
        return f"GOCDB lists no endpoint of {', '.join(empty)}"
    if count > most:
        return f"{count} are more than --max-removals {most}"
    if count > 1 and 2 * count > found.provisioned:
        return f"{count} of {found.provisioned} are more than half: GOCDB seems not to list all it knows"
    return ""


def removals(found: Vanished, existing: Existing, project: str) -> dict[Key, Fields]:
    """Return what is to be removed: a plan takes logins first, then rights."""
    bindings = existing.of(Kind.BINDING)
    gone: dict[Key, Fields] = {Key(Kind.BINDING, "", name): {} for name in found.bindings if bindings[name]["user"]}
    for key, fields in existing.fields.items():
        if key.kind in (Kind.PUBLISHERS, Kind.CONSUMERS):
            named = {*found.users, *(user for topic, user in found.entries if key == (Kind.PUBLISHERS, project, topic))}
            off = tuple(sorted(named.intersection(fields["users"])))
            gone |= {key: {"users": off}} if off else {}
    return gone | {Key(Kind.MEMBER, project, user): {} for user in found.users}
