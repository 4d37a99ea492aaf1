"""Listed endpoints: which are served, why others are not, their declarations, and resources to remove.

Steps 1 to 11 of authn contract 14.2; 15, A21, A24. An error affects only its endpoint. Pure and idempotent: after all
steps are done, the same listing declares nothing new.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ams.core.distinguished_names import normalise_name
from ams.core.errors import ServiceFailed
from ams.core.names import is_name
from ams.provisioning.declarations import Declared, Existing, Fields, ResourceKey, ResourceKind
from ams.provisioning.gocdb import Endpoint, Site
from ams.provisioning.plan import Target

CERTIFIED = ("Certified", "Uncertified")  # as the reference: only candidates, suspended, closed sites are left out
SEPARATOR = "---"
ACK_DEADLINE_SECONDS = 100  # of the subscription of an endpoint (step 11b)
_OUR_USER_NAME = re.compile(r"(?!-).+?---.+?---.+")


class Reason(StrEnum):
    """Why an endpoint is not served."""

    NO_DN = "no certificate"
    NOT_IN_PRODUCTION = "not in production"
    SITE = "site not in production"
    FAILED = "failed"

    @property
    def by_rule(self) -> bool:
        """True if this is a rule, and not an error to fix."""
        return self is not Reason.FAILED


class LeftOut(NamedTuple):
    """An endpoint that is not served."""

    endpoint: Endpoint
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEndpoint:
    """A served endpoint, with its user and binding; `subscription` is empty where the topic is everybody's."""

    endpoint: Endpoint
    name: str
    dn: str
    email: str
    topic: str
    subscription: str = ""


@dataclass(slots=True)
class JudgedListing:
    """All endpoints of a listing; `names`, `topics` and `dns` are those of endpoints that are left out, too."""

    served: list[ServedEndpoint] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    dns: set[str] = field(default_factory=set)
    readable: bool = True  # every endpoint could be identified


def judge(
    listed: Iterable[Endpoint], find_site: Callable[[str], Site | None], *, email: str = "", own_topics: bool = False
) -> JudgedListing:
    """Decide what each endpoint gets, or why nothing; `email` is for sites without one."""
    judged = JudgedListing()
    for endpoint in listed:
        _note_listed(endpoint, judged)
        found = _judge_endpoint(endpoint, find_site, email, own_topics=own_topics)
        if isinstance(found, ServedEndpoint):
            judged.served.append(found)
        else:
            judged.left_out.append(found)
    # Endpoints of one name with several certificates: each run would give the name to another.
    certificates = Counter(name for name, _ in {(each.name, each.dn) for each in judged.served})
    for each in (each for each in judged.served if certificates[each.name] > 1):
        said = f"several endpoints with different certificates are called {each.name}"
        judged.left_out.append(LeftOut(each.endpoint, Reason.FAILED, said))
    judged.served = [each for each in judged.served if certificates[each.name] == 1]
    return judged


def _note_listed(endpoint: Endpoint, judged: JudgedListing) -> None:
    if not (endpoint.host and endpoint.site and endpoint.service_type):
        judged.readable = False
    judged.names.add(_user_name(endpoint))
    judged.topics.add(_endpoint_topic(endpoint))
    if endpoint.dn:
        try:
            judged.dns.add(normalise_name(endpoint.dn))
        except ValueError:
            judged.readable = False


def _judge_endpoint(
    endpoint: Endpoint, find_site: Callable[[str], Site | None], email: str, *, own_topics: bool
) -> ServedEndpoint | LeftOut:
    needed = {
        "HOSTNAME": endpoint.host, "SERVICE_TYPE": endpoint.service_type, "SITENAME": endpoint.site,
        "IN_PRODUCTION": endpoint.in_production, **({"PRIMARY_KEY": endpoint.primary_key} if own_topics else {}),
    }  # fmt: skip
    if missing := ", ".join(name for name, value in needed.items() if not value):
        return LeftOut(endpoint, Reason.FAILED, f"GOCDB tells no {missing}")
    if not endpoint.dn:
        return LeftOut(endpoint, Reason.NO_DN, "GOCDB tells no HOSTDN")
    if endpoint.in_production != "Y":
        return LeftOut(endpoint, Reason.NOT_IN_PRODUCTION, "the endpoint is not in production")
    try:
        site = find_site(endpoint.site)
    except ServiceFailed as error:
        return LeftOut(endpoint, Reason.FAILED, f"site {endpoint.site}: {error.message}")
    if site is None:
        return LeftOut(endpoint, Reason.FAILED, f"GOCDB lists no site {endpoint.site}")
    if site.infrastructure != "Production":
        text = f"site {site.name} is of the infrastructure {site.infrastructure or 'none'}"
        return LeftOut(endpoint, Reason.SITE, text)
    if site.certification not in CERTIFIED:
        return LeftOut(endpoint, Reason.SITE, f"site {site.name} is {site.certification or 'not certified'}")
    return _check_entitlement(endpoint, site.email or email, own_topics=own_topics)


def _check_entitlement(endpoint: Endpoint, email: str, *, own_topics: bool) -> ServedEndpoint | LeftOut:
    try:
        dn = normalise_name(endpoint.dn)
    except ValueError as error:
        return LeftOut(endpoint, Reason.FAILED, f"HOSTDN {endpoint.dn[:200]!r}: {error}")
    if not dn:
        return LeftOut(endpoint, Reason.FAILED, f"HOSTDN {endpoint.dn[:200]!r} has no attribute that counts")
    name = _user_name(endpoint)
    topic = _endpoint_topic(endpoint) if own_topics else _replace_dots(endpoint.service_type)
    for kind, text in (("user", name), ("topic", topic)):
        if not is_name(text):
            return LeftOut(endpoint, Reason.FAILED, f"{text[:300]!r} cannot be the name of a {kind}")
    own = topic if own_topics else ""
    return ServedEndpoint(endpoint=endpoint, name=name, dn=dn, email=email, topic=topic, subscription=own)


def _user_name(endpoint: Endpoint) -> str:
    return _replace_dots(SEPARATOR.join((endpoint.service_type, endpoint.host, endpoint.site)))


def _endpoint_topic(endpoint: Endpoint) -> str:
    return f"SITE_{_replace_dots(endpoint.site)}_ENDPOINT_{''.join(endpoint.primary_key.split())}"


def is_of_endpoint(name: str) -> bool:
    """Return whether a name is one that provisioning makes; the API has no other mark for them."""
    return _OUR_USER_NAME.fullmatch(name) is not None


def _replace_dots(text: str) -> str:
    return text.replace(".", "-")


@dataclass(slots=True)
class Declaration:
    """Declared resources, endpoints and topics that failed, and users by certificate."""

    fields: dict[ResourceKey, Fields] = field(default_factory=dict)
    owners: dict[ResourceKey, str] = field(default_factory=dict)
    failed: list[LeftOut] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)

    def add(self, key: ResourceKey, fields: Fields, owner: str) -> None:
        """Declare a resource; the first endpoint that needs it owns it."""
        if key not in self.fields:
            self.fields[key], self.owners[key] = fields, owner

    def to_declared(self, gone: Mapping[ResourceKey, Fields]) -> Declared:
        """Return it for a plan, with the resources to remove."""
        return Declared(self.fields, owners=self.owners, gone=gone, in_order=True)


def declare(
    served: Sequence[ServedEndpoint], existing: Existing, target: Target, *, role: str, consumer: str = ""
) -> Declaration:
    """Declare for endpoints; `role` is that of members, `consumer` a user who reads the subscriptions of endpoints."""
    made, bound = Declaration(), _Bound(existing)
    # First the bindings of endpoints that have another certificate now (step 9), until there are none: such a move may
    # free a certificate that another endpoint has now.
    moved: dict[str, ServedEndpoint] = {}
    moving = True
    while moving:
        moving = False
        for each in served:
            if each.dn not in bound.names and bound.dns.get(each.name, each.dn) != each.dn:
                bound.move(each.name, each.dn)
                moved[each.dn] = each
                moving = True
    for each in [*moved.values(), *(each for each in served if moved.get(each.dn) is not each)]:
        _serve(each, bound, made, target, role)
    _give_topics(served, existing, made, target.project, consumer)
    return made


class _Bound:
    """Bindings and members after all declarations so far."""

    def __init__(self, existing: Existing) -> None:
        bindings = existing.of(ResourceKind.BINDING)
        self.dns = {name: each["auth_identifier"] for name, each in bindings.items()}
        self.names = {dn: name for name, dn in self.dns.items()}
        self.members = {name: each["roles"] for name, each in existing.of(ResourceKind.MEMBER).items()}
        self.users = {name: each["user"] for name, each in bindings.items()}  # empty for no member

    def move(self, binding: str, dn: str) -> None:
        before = self.dns.get(binding, "")
        if self.names.get(before) == binding:
            del self.names[before]
        self.dns[binding], self.names[dn] = dn, binding


def _serve(each: ServedEndpoint, bound: _Bound, made: Declaration, target: Target, role: str) -> None:
    endpoint, binding = str(each.endpoint), bound.names.get(each.dn)
    user = bound.users.get(binding, "") if binding else each.name
    if binding and not user and not is_of_endpoint(binding):
        said = f"its certificate is bound as {binding}, of whose user the project knows nothing"
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, said))
        return
    user = user or binding or each.name
    if user not in bound.members:
        made.add(ResourceKind.MEMBER.key(user, target.project), {"roles": (role,), "email": each.email}, endpoint)
        bound.members[user] = (role,)
    elif role not in bound.members[user]:
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, f"{user} is a member without the role {role}"))
    binding = binding or each.name
    bound.move(binding, each.dn)
    bound.users[binding] = user
    fields = {"service_uuid": target.service_uuid, "host": target.host, "auth_identifier": each.dn, "user": user}
    made.add(ResourceKind.BINDING.key(binding), fields, endpoint)
    made.users[each.dn] = user


def _give_topics(
    served: Sequence[ServedEndpoint], existing: Existing, made: Declaration, project: str, consumer: str
) -> None:
    topics, subscriptions = existing.of(ResourceKind.TOPIC), existing.of(ResourceKind.SUBSCRIPTION)
    allowed: dict[str, dict[str, None]] = {}
    owners: dict[str, ServedEndpoint] = {}
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
            made.add(ResourceKind.TOPIC.key(topic, project), {}, endpoint)
        made.add(ResourceKind.PUBLISHERS.key(topic, project), {"users": tuple(users)}, endpoint)
        if owner:
            _give_subscription(owner, subscriptions.get(owner.subscription), made, project, consumer)


def _give_subscription(
    each: ServedEndpoint, there: Fields | None, made: Declaration, project: str, consumer: str
) -> None:
    endpoint, name = str(each.endpoint), each.subscription
    if there is None:
        fields = {"topic": each.topic, "ackDeadline": ACK_DEADLINE_SECONDS}
        made.add(ResourceKind.SUBSCRIPTION.key(name, project), fields, endpoint)
    elif there["topic"] != each.topic:
        said = f"subscription {name} is one to {there['topic'] or 'a topic that is gone'}"
        made.failed.append(LeftOut(each.endpoint, Reason.FAILED, said))
        return
    if consumer:
        made.add(ResourceKind.CONSUMERS.key(name, project), {"users": (consumer,)}, endpoint)


@dataclass(frozen=True, slots=True)
class VanishedResources:
    """Resources of endpoints that left the listing; a listed endpoint that is not served has not vanished.

    `entries` are topics, and users on their lists whose certificates are those of other types only. `topics` hold
    messages and are never removed. `provisioned` is the number of all users with names of provisioning.
    """

    users: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    topics: tuple[str, ...] = ()
    provisioned: int = 0

    @property
    def who(self) -> list[str]:
        """All names that would lose something."""
        return list(dict.fromkeys([*self.users, *self.bindings, *(user for _, user in self.entries)]))


def find_vanished(
    judged: Mapping[str, JudgedListing], existing: Existing, serving: Mapping[str, str], *, own_topics: bool = False
) -> VanishedResources:
    """Compare listings, by service type, with what exists; `serving`: the user of each certificate after the plan."""
    members, bindings = existing.of(ResourceKind.MEMBER), existing.of(ResourceKind.BINDING)
    names = {name for each in judged.values() for name in each.names}
    dns = {dn for each in judged.values() for dn in each.dns}
    prefixes = tuple(_replace_dots(each) + SEPARATOR for each in judged)
    of_types = [name for name in {*members, *bindings} if is_of_endpoint(name) and name.startswith(prefixes)]
    gone = {name for name in of_types if name not in names}
    unbound = sorted(name for name in gone if name in bindings and bindings[name]["auth_identifier"] not in dns)
    users = sorted((gone & members.keys()) - _in_use(dns, existing, serving))
    if own_topics:
        listed = {topic for each in judged.values() for topic in each.topics}
        unlisted = sorted(existing.of(ResourceKind.TOPIC).keys() - listed)
        topics = tuple(topic for topic in unlisted if topic.startswith("SITE_") and "_ENDPOINT_" in topic)
        return VanishedResources(tuple(users), tuple(unbound), topics=topics, provisioned=len(of_types))
    entries = [each for name, found in judged.items() for each in _entries(name, found, existing, serving, users)]
    return VanishedResources(tuple(users), tuple(unbound), tuple(entries), provisioned=len(of_types))


def _in_use(dns: Collection[str], existing: Existing, serving: Mapping[str, str]) -> set[str]:
    now = {each["user"] for each in existing.of(ResourceKind.BINDING).values() if each["auth_identifier"] in dns}
    return now | {serving[dn] for dn in dns if dn in serving}


def _entries(
    service_type: str, found: JudgedListing, existing: Existing, serving: Mapping[str, str], gone: Iterable[str]
) -> list[tuple[str, str]]:
    topic = _replace_dots(service_type)
    staying = found.names | _in_use(found.dns, existing, serving) | set(gone)
    on_list = existing.of(ResourceKind.PUBLISHERS).get(topic, {"users": ()})["users"]
    return [(topic, name) for name in sorted(on_list) if is_of_endpoint(name) and name not in staying]


def refusal(found: VanishedResources, judged: Mapping[str, JudgedListing], *, whole: bool, most: int) -> str:
    """Return why nothing may be removed, or an empty text. `whole`: all listings came; `most`: users to remove."""
    count = len(found.who)
    if not whole or not all(each.readable for each in judged.values()):
        return "not all that GOCDB lists could be read"
    if empty := [name for name, each in judged.items() if not each.names]:
        return f"GOCDB lists no endpoint of {', '.join(empty)}"
    if count > most:
        return f"{count} are more than --max-removals {most}"
    if count > 1 and 2 * count > found.provisioned:
        return f"{count} of {found.provisioned} are more than half: GOCDB seems not to list all it knows"
    return ""


def removals(found: VanishedResources, existing: Existing, project: str) -> dict[ResourceKey, Fields]:
    """Return the resources to remove: a plan takes logins first, then rights."""
    bindings = existing.of(ResourceKind.BINDING)
    unbound = [name for name in found.bindings if bindings[name]["user"]]
    gone: dict[ResourceKey, Fields] = {ResourceKind.BINDING.key(name): {} for name in unbound}
    for key, fields in existing.fields.items():
        if key.kind in (ResourceKind.PUBLISHERS, ResourceKind.CONSUMERS):
            named = {user for topic, user in found.entries if key == ResourceKind.PUBLISHERS.key(topic, project)}
            off = tuple(sorted(named.union(found.users).intersection(fields["users"])))
            gone |= {key: {"users": off}} if off else {}
    return gone | {ResourceKind.MEMBER.key(user, project): {} for user in found.users}
