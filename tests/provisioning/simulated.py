"""What steps make of a state, without any service."""

from collections.abc import Iterable
from dataclasses import replace

from ams.provisioning.plan import (
    Allow,
    Alter,
    Bind,
    Disallow,
    Join,
    Kind,
    Leave,
    MakeSubscription,
    MakeTopic,
    Step,
    Unbind,
)
from ams.provisioning.state import Bound, Member, State

EMPTY = State({}, {}, frozenset(), {})


def after(state: State, steps: Iterable[Step], *, role: str = "publisher") -> State:
    """Return the state when all steps were done; fails where a service would refuse one."""
    for step in steps:
        state = _after(state, step, role)
    return state


def _after(state: State, step: Step, role: str) -> State:
    members, bindings = dict(state.members), dict(state.bindings)
    match step:
        case Join(user=user):
            assert user not in members
            members[user] = Member(f"uuid-of-{user}", frozenset({role}))
        case Bind(binding=binding, dn=dn, user=user):
            assert binding not in bindings
            assert dn not in {each.dn for each in bindings.values()}
            bindings[binding] = Bound(dn, members[user].uuid)
        case Alter(binding=binding, dn=dn, user=user):
            there = bindings[binding]
            assert not dn or dn not in {each.dn for each in bindings.values()}
            bindings[binding] = Bound(dn or there.dn, members[user].uuid if user else there.uuid)
        case Unbind(binding=binding):
            del bindings[binding]
        case Leave(user=user):
            del members[user]
        case MakeTopic(topic=topic):
            assert topic not in state.topics
            return replace(state, topics=state.topics | {topic})
        case MakeSubscription(subscription=name, topic=topic):
            assert name not in state.subscriptions
            assert topic in state.topics
            return replace(state, subscriptions={**state.subscriptions, name: topic})
        case Allow(kind=kind, name=name, users=users):
            for user in users:
                members[user] = _listed(members[user], kind, name, there=True)
        case Disallow(kind=kind, name=name, users=users):
            for user in users:
                members[user] = _listed(members[user], kind, name, there=False)
    return replace(state, members=members, bindings=bindings)


def _listed(member: Member, kind: Kind, name: str, *, there: bool) -> Member:
    before = member.topics if kind is Kind.TOPIC else member.subscriptions
    now = before | {name} if there else before - {name}
    return replace(member, topics=now) if kind is Kind.TOPIC else replace(member, subscriptions=now)
