"""From what is listed and what there is to the steps that are missing (authn contract 14.2, steps 6 to 11).

Pure: the same listing over a state in which all steps were done has no steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ams.provisioning.entitled import Entitled, LeftOut, Reason
from ams.provisioning.naming import is_of_endpoint
from ams.provisioning.state import State


class Kind(StrEnum):
    """What has an access list."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change; `endpoint` is whom it is for, empty when it is for several or for none."""

    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Step):
    """Make a user a member of the project, and first a user if there is none of that name."""

    user: str
    email: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind(Step):
    """Let a certificate stand for a user."""

    binding: str
    dn: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter(Step):
    """Let a binding be of another certificate, or of another user; what is empty stays."""

    binding: str
    dn: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTopic(Step):
    """Make a topic."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeSubscription(Step):
    """Make a subscription to a topic."""

    subscription: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow(Step):
    """Put users on an access list."""

    kind: Kind
    name: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disallow(Step):
    """Take users off an access list."""

    kind: Kind
    name: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbind(Step):
    """Let a certificate stand for nobody."""

    binding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(Step):
    """End a membership; the user stays, with no right in the project."""

    user: str


@dataclass(slots=True)
class Plan:
    """What is to be done, and for whom it cannot be."""

    steps: list[Step] = field(default_factory=list)
    failed: list[LeftOut] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What is wrong with a whole topic."""
    users: dict[str, str] = field(default_factory=dict)
    """Of each certificate that is served, the user it stands for."""


def plan(served: Sequence[Entitled], state: State, *, role: str, consumer: str = "") -> Plan:
    """Say what is missing; `role` is that of members, `consumer` who reads the subscriptions of endpoints."""
    made = Plan()
    bound = _Bound(state)
    _move_bindings(served, bound, made)
    for each in served:
        _serve(each, bound, made, role)
    _give_topics(served, state, made, consumer)
    return made


class _Bound:
    """Bindings and members, as they will be once the steps planned so far are done."""

    def __init__(self, state: State) -> None:
        self.dns = {name: each.dn for name, each in state.bindings.items()}
        self.names = {each.dn: name for name, each in state.bindings.items()}
        self.uuids = {name: each.uuid for name, each in state.bindings.items()}
        self.members = {name: each.roles for name, each in state.members.items()}
        self._by_uuid = {each.uuid: name for name, each in state.members.items()}
        self.users: dict[str, str] = {}
        """Of bindings that were planned for, the user."""

    def user(self, binding: str) -> str:
        """Return the member a binding is of, empty for none."""
        return self.users.get(binding) or self._by_uuid.get(self.uuids.get(binding, ""), "")

    def move(self, binding: str, dn: str) -> None:
        """Let a binding be of another certificate."""
        before = self.dns.get(binding, "")
        if self.names.get(before) == binding:
            del self.names[before]
        self.dns[binding], self.names[dn] = dn, binding


def _move_bindings(served: Sequence[Entitled], bound: _Bound, made: Plan) -> None:
    """Let the bindings of endpoints that have another certificate now be of that (step 9).

    First of all, and until there are none: such a move may free a certificate that another endpoint has now.
    """
    moving = True
    while moving:
        moving = False
        for each in served:
            if each.dn not in bound.names and bound.dns.get(each.name, each.dn) != each.dn:
                made.steps.append(Alter(endpoint=str(each.endpoint), binding=each.name, dn=each.dn))
                bound.move(each.name, each.dn)
                moving = True


def _serve(each: Entitled, bound: _Bound, made: Plan, role: str) -> None:
    """Plan a user and a binding for an endpoint (steps 6 to 10)."""
    endpoint, binding = str(each.endpoint), bound.names.get(each.dn)
    user = bound.user(binding) if binding else each.name
    if binding and not user and not is_of_endpoint(binding):
        told = f"its certificate is bound as {binding}, of whose user the project knows nothing"
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, told))
        return
    user = user or binding or each.name
    if user not in bound.members:
        made.steps.append(Join(endpoint=endpoint, user=user, email=each.email))
        bound.members[user] = frozenset({role})
    elif role not in bound.members[user]:
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, f"{user} is a member without the role {role}"))
    if binding is None:
        made.steps.append(Bind(endpoint=endpoint, binding=each.name, dn=each.dn, user=user))
        bound.move(each.name, each.dn)
    elif not bound.user(binding):
        made.steps.append(Alter(endpoint=endpoint, binding=binding, user=user))
    bound.users[binding or each.name] = user
    made.users[each.dn] = user


def _give_topics(served: Sequence[Entitled], state: State, made: Plan, consumer: str) -> None:
    """Plan topics, subscriptions and access lists (steps 11a and 11b)."""
    allowed: dict[str, dict[str, None]] = {}
    owners: dict[str, Entitled] = {}
    for each in served:
        if each.dn in made.users:
            allowed.setdefault(each.topic, {})[made.users[each.dn]] = None
            owners |= {each.topic: each} if each.subscription else {}
    for topic, users in allowed.items():
        owner = owners.get(topic)
        if owner is None and topic not in state.topics:
            made.faults.append(f"there is no topic {topic} (ams topics create {topic})")
            continue
        endpoint = str(owner.endpoint) if owner else ""
        if topic not in state.topics:
            made.steps.append(MakeTopic(endpoint=endpoint, topic=topic))
        missing = tuple(user for user in users if not _is_on_list(user, topic, state))
        if missing:
            made.steps.append(Allow(endpoint=endpoint, kind=Kind.TOPIC, name=topic, users=missing))
        if owner:
            _give_subscription(owner, state, made, consumer)


def _give_subscription(each: Entitled, state: State, made: Plan, consumer: str) -> None:
    endpoint, name = str(each.endpoint), each.subscription
    if state.subscriptions.get(name, each.topic) != each.topic:
        told = f"subscription {name} is one to {state.subscriptions[name] or 'a topic that is gone'}"
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, told))
        return
    if name not in state.subscriptions:
        made.steps.append(MakeSubscription(endpoint=endpoint, subscription=name, topic=each.topic))
    reads = consumer in state.members and name in state.members[consumer].subscriptions
    if consumer and not reads:
        made.steps.append(Allow(endpoint=endpoint, kind=Kind.SUBSCRIPTION, name=name, users=(consumer,)))


def _is_on_list(user: str, topic: str, state: State) -> bool:
    return user in state.members and topic in state.members[user].topics
