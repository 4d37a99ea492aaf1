"""Who was provisioned and is no longer listed; and when to take nobody away (authn contract 15, A22).

What provisioning made is known by its name. An endpoint that is listed, but not served now, has not vanished.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ams.provisioning.entitled import Judged
from ams.provisioning.naming import is_endpoints_topic, is_of_endpoint, is_of_type, type_topic
from ams.provisioning.plan import Disallow, Kind, Leave, Step, Unbind
from ams.provisioning.state import State


@dataclass(frozen=True, slots=True)
class Vanished:
    """What is left of endpoints that are not listed any more."""

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
    judged: Mapping[str, Judged], state: State, serving: Mapping[str, str], *, own_topics: bool = False
) -> Vanished:
    """Hold what was judged, by service type, against what there is.

    `serving` names the user of each certificate, as it will be once the plan is carried out. `own_topics` says that
    endpoints have topics for themselves, and types have none.
    """
    names = {name for each in judged.values() for name in each.names}
    dns = {dn for each in judged.values() for dn in each.dns}
    of_types = [name for name in {*state.members, *state.bindings} if _is_of_any(name, judged)]
    gone = {name for name in of_types if name not in names}
    bindings = sorted(name for name in gone if name in state.bindings and state.bindings[name].dn not in dns)
    in_use = _in_use(dns, state, serving)
    users = sorted(name for name in gone if name in state.members and name not in in_use)
    if own_topics:
        listed = {topic for each in judged.values() for topic in each.topics}
        topics = sorted(topic for topic in state.topics - listed if is_endpoints_topic(topic))
        return Vanished(tuple(users), tuple(bindings), topics=tuple(topics), provisioned=len(of_types))
    entries = [each for name, found in judged.items() for each in _entries(name, found, state, serving, users)]
    return Vanished(tuple(users), tuple(bindings), tuple(entries), provisioned=len(of_types))


def _is_of_any(name: str, service_types: Iterable[str]) -> bool:
    return any(is_of_type(name, each) for each in service_types)


def _in_use(dns: Collection[str], state: State, serving: Mapping[str, str]) -> set[str]:
    """Return the members that certificates stand for, now or soon."""
    uuids = {each.uuid for each in state.bindings.values() if each.dn in dns}
    now = {name for name, member in state.members.items() if member.uuid in uuids}
    return now | {serving[dn] for dn in dns if dn in serving}


def _entries(
    service_type: str, found: Judged, state: State, serving: Mapping[str, str], gone: Sequence[str]
) -> list[tuple[str, str]]:
    topic = type_topic(service_type)
    staying = found.names | _in_use(found.dns, state, serving) | set(gone)
    return [
        (topic, name)
        for name, member in sorted(state.members.items())
        if topic in member.topics and is_of_endpoint(name) and name not in staying
    ]


def refusal(found: Vanished, judged: Mapping[str, Judged], *, whole: bool, most: int) -> str:
    """Say why nobody may be taken away, empty when all may.

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


def removals(found: Vanished, state: State) -> list[Step]:
    """Return the steps that take them away: first their logins, then their rights."""
    here = {member.uuid for member in state.members.values()}
    steps: list[Step] = [Unbind(binding=name) for name in found.bindings if state.bindings[name].uuid in here]
    lists: dict[tuple[Kind, str], list[str]] = {}
    for user in found.users:
        for topic in sorted(state.members[user].topics):
            lists.setdefault((Kind.TOPIC, topic), []).append(user)
        for subscription in sorted(state.members[user].subscriptions):
            lists.setdefault((Kind.SUBSCRIPTION, subscription), []).append(user)
    for topic, user in found.entries:
        lists.setdefault((Kind.TOPIC, topic), []).append(user)
    steps += [Disallow(kind=kind, name=name, users=tuple(users)) for (kind, name), users in lists.items()]
    return [*steps, *(Leave(user=user) for user in found.users)]
