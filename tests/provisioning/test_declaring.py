from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.provisioning.declarations import Existing, Fields, ResourceKey, ResourceKind, Step, StepSign
from ams.provisioning.endpoints import Declaration, VanishedResources, declare, find_vanished, judge, refusal, removals
from ams.provisioning.gocdb import Endpoint
from ams.provisioning.plan import Target, plan
from tests.provisioning.listings import APEL, CLOUD, endpoint, expected_endpoints, site

TARGET = Target("p", "ams", "uuid-of-ams", "localhost")


def member(uuid: str, *roles: str, topics: Iterable[str] = ()) -> tuple[str, tuple[str, ...], frozenset[str]]:
    """Return a member for `existing_state`: its uuid, its roles, and the topics whose access list has it."""
    return uuid, roles, frozenset(topics)


def existing_state(
    members: Mapping[str, tuple[str, tuple[str, ...], frozenset[str]]] = {},  # only read
    bindings: Mapping[str, tuple[str, str]] = {},  # only read
    topics: Iterable[str] = (),
) -> Existing:
    """Return the state of a target; bindings are names, certificates and uuids of users."""
    uuids = {name: uuid for name, (uuid, _, _) in members.items()}
    names = {uuid: name for name, uuid in uuids.items()}
    fields: dict[ResourceKey, Fields] = {ResourceKey(ResourceKind.TOPIC, "p", topic): {} for topic in topics}
    for name, (_, roles, _) in members.items():
        fields[ResourceKey(ResourceKind.MEMBER, "p", name)] = {"roles": tuple(roles)}
    for topic in {topic for _, _, lists in members.values() for topic in lists}:
        users = tuple(name for name, (_, _, lists) in members.items() if topic in lists)
        fields[ResourceKey(ResourceKind.PUBLISHERS, "p", topic)] = {"users": users}
    for name, (dn, uuid) in bindings.items():
        fields[ResourceKey(ResourceKind.BINDING, "", name)] = binding(dn, uuid, names.get(uuid, ""))
    return Existing(fields, uuids=uuids)


def binding(dn: str, uuid: str, user: str) -> Fields:
    fields = {"service_uuid": TARGET.service_uuid, "host": TARGET.host}
    return fields | {"auth_identifier": dn, "unique_key": uuid, "user": user}


def state_after(existing: Existing, steps: Iterable[Step]) -> Existing:
    """Return the state after all steps; fails where a service would refuse one."""
    fields, uuids = dict(existing.fields), dict(existing.uuids)
    for step in steps:
        _do(step, fields, uuids)
    return Existing(fields, uuids=uuids)


def _do(step: Step, fields: dict[ResourceKey, Fields], uuids: dict[str, str]) -> None:
    key, kind, before = step.key, step.key.kind, fields.get(step.key)
    if kind in (ResourceKind.PUBLISHERS, ResourceKind.CONSUMERS):
        users, on = step.fields["users"], (before or {"users": ()})["users"]
        if step.change is StepSign.REMOVE:
            fields[key] = {"users": tuple(user for user in on if user not in users)}
        else:
            assert not set(users) & set(on)
            fields[key] = {"users": (*on, *users)}
        return
    assert (before is None) is (step.change is StepSign.ADD)
    if step.change is StepSign.REMOVE:
        del fields[key]
    elif kind is ResourceKind.BINDING:
        dns = {each["auth_identifier"] for other, each in fields.items() if other.kind is ResourceKind.BINDING}
        assert step.fields.get("auth_identifier") not in dns
        assert step.fields.get("user", "") in {"", *uuids}
        fields[key] = {**(before or {}), **step.fields, "unique_key": uuids.get(step.fields.get("user", ""), "")}
    else:
        assert (
            kind is not ResourceKind.SUBSCRIPTION
            or ResourceKey(ResourceKind.TOPIC, "p", step.fields["topic"]) in fields
        )
        fields[key] = step.fields
        if kind is ResourceKind.MEMBER:
            uuids[key.name] = f"uuid-of-{key.name}"


PUBLISHER = "publisher"
TOPICS = existing_state(topics=["gLite-APEL", "eu-egi-cloud-accounting"])
HOST = endpoint("ce.example.org")
NAME = "gLite-APEL---ce-example-org---SITE-A"
DN = "CN=ce.example.org,O=Example,C=GR"
LABEL = "ce.example.org (gLite-APEL, SITE-A)"


def declare_listed(existing: Existing, *listed) -> Declaration:
    return declare(expected_endpoints(*listed), existing, TARGET, role=PUBLISHER)


def plan_listed(existing: Existing, *listed) -> list[Step]:
    return plan(declare_listed(existing, *listed).to_declared({}), existing)


def key_in_project(kind: str, name: str) -> ResourceKey:
    return ResourceKey(ResourceKind(kind), "p", name)


def binding_key(name: str) -> ResourceKey:
    return ResourceKey(ResourceKind.BINDING, "", name)


BOUND_HERE = {"service_uuid": TARGET.service_uuid, "host": TARGET.host}
LISTED_NOW = Step(StepSign.ADD, key_in_project("publishers", "gLite-APEL"), {"users": (NAME,)})
JOINED = [Step(StepSign.ADD, key_in_project("member", NAME), {"roles": (PUBLISHER,), "email": "grid@example.org"},
    LABEL),
          Step(StepSign.ADD, binding_key(NAME), {**BOUND_HERE, "auth_identifier": DN, "user": NAME},
              LABEL)]  # fmt: skip
MADE_ANEW = existing_state({NAME: member("new", PUBLISHER, topics=["gLite-APEL"])}, {NAME: (DN, "old")}, ["gLite-APEL"])
PLANNED = {
    "a new endpoint gets a user, a binding and its place on the list": (TOPICS, [HOST], [*JOINED, LISTED_NOW]),
    "a certificate that is bound keeps its binding and its user": (
        existing_state({"jane": member("u1", PUBLISHER)}, {"laptop": (DN, "u1")}, ["gLite-APEL"]), [HOST],
        [Step(StepSign.ADD, key_in_project("publishers", "gLite-APEL"), {"users": ("jane",)})],
    ),
    "two endpoints with one certificate share a user": (
        TOPICS, [HOST, endpoint("ce.example.org", service_type=CLOUD)],
        [*JOINED, LISTED_NOW,
         Step(StepSign.ADD, key_in_project("publishers", "eu-egi-cloud-accounting"), {"users": (NAME,)})],
    ),
    "A22: a binding of a user who was made anew is pointed at the new one": (
        MADE_ANEW, [HOST], [Step(StepSign.ALTER, binding_key(NAME), {"user": NAME}, LABEL)],
    ),
    "a new certificate of a host moves its binding": (
        state_after(TOPICS, plan_listed(TOPICS, HOST)),
        [endpoint("ce.example.org", dn="/C=GR/O=New/CN=ce.example.org")],
        [Step(StepSign.ALTER, binding_key(NAME), {"auth_identifier": "CN=ce.example.org,O=New,C=GR"}, LABEL)],
    ),
    "somebody else's binding is not given another user": (
        existing_state({}, {"laptop": (DN, "who")}, ["gLite-APEL"]), [HOST], [],
    ),
    "users are made without their topic": (existing_state(), [HOST], JOINED),
}  # fmt: skip


@pytest.mark.parametrize(("existing", "listed", "steps"), PLANNED.values(), ids=PLANNED)
def test_endpoints_get_what_they_lack(existing: Existing, listed: list[Endpoint], steps: list[Step]) -> None:
    assert plan_listed(existing, *listed) == steps


def test_what_cannot_be_given_to_an_endpoint_is_told() -> None:
    for existing, reason in (
        (existing_state({}, {"laptop": (DN, "who")}, ["gLite-APEL"]), "bound as laptop"),
        (existing_state({NAME: member("u")}, {NAME: (DN, "u")}, ["gLite-APEL"]), "without the role publisher"),
    ):
        assert reason in declare_listed(existing, HOST).failed[0].text
    assert declare_listed(existing_state(), HOST).faults == [
        "there is no topic gLite-APEL (ams topics create gLite-APEL)"
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_certificate_that_another_host_gives_up_is_moved_after_that_one(is_first: bool) -> None:
    a, b = endpoint("a.example.org"), endpoint("b.example.org")
    existing = state_after(TOPICS, plan_listed(TOPICS, a, b))
    giver, taker = (a, b) if is_first else (b, a)
    moved = sorted([replace(giver, dn="/CN=new"), replace(taker, dn=giver.dn)], key=lambda each: each.host)

    steps = plan_listed(existing, *moved)

    given = f"CN={giver.host},O=Example,C=GR"
    assert [step.fields["auth_identifier"] for step in steps] == ["CN=new", given]
    assert plan_listed(state_after(existing, steps), *moved) == []


HOSTS = st.sampled_from(["a.example.org", "b.example.org", "c.example.org"])
NAMES = HOSTS.map(lambda host: f"gLite-APEL---{host.replace('.', '-')}---SITE-A")
UUIDS = st.sampled_from(["u1", "u2", "u3", "u4"])
DNS = st.sampled_from(["/CN=one", "/CN=two", "/CN=three"])
LISTED = st.lists(
    st.builds(
        lambda host, dn, kind, key: endpoint(host, dn=dn, service_type=kind, primary_key=key),
        HOSTS, DNS, st.sampled_from([APEL, CLOUD]), st.sampled_from(["1G0", "2G0"]),
    ),
    max_size=4,
)  # fmt: skip


@st.composite
def states(draw: st.DrawFn) -> Existing:
    topics = draw(st.sets(st.sampled_from(["gLite-APEL", "eu-egi-cloud-accounting", "SITE_SITE-A_ENDPOINT_1G0"])))
    names = draw(st.lists(st.one_of(NAMES, st.just("jane")), unique=True, max_size=3))
    uuids = draw(st.permutations(["u1", "u2", "u3"]))
    lists = st.frozensets(st.sampled_from(sorted(topics))) if topics else st.just(frozenset())
    members = {name: member(uuid, PUBLISHER, topics=draw(lists)) for name, uuid in zip(names, uuids, strict=False)}
    bound = draw(st.dictionaries(st.one_of(NAMES, st.just("laptop")), UUIDS, max_size=3))
    dns = draw(st.permutations(["CN=one", "CN=two", "CN=three"]))
    bindings = {name: (dn, uuid) for (name, uuid), dn in zip(bound.items(), dns, strict=False)}
    return existing_state({"reader": member("r"), **members}, bindings, topics)


@settings(max_examples=60, deadline=None)
@given(states(), LISTED, st.booleans())
def test_a22_what_was_done_once_leaves_nothing_to_do(existing: Existing, listed_gocdb: list, own_topics: bool) -> None:
    judged = {
        kind: judge([each for each in listed_gocdb if each.service_type == kind], site, own_topics=own_topics)
        for kind in (APEL, CLOUD)
    }
    wanted = [each for kind in judged.values() for each in kind.served]

    def all_steps(now: Existing) -> list[Step]:
        made = declare(wanted, now, TARGET, role=PUBLISHER, consumer="reader")
        gone = removals(find_vanished(judged, now, made.users, own_topics=own_topics), now, "p")
        return plan(made.to_declared(gone), now)

    assert all_steps(state_after(existing, all_steps(existing))) == []


@settings(max_examples=30, deadline=None)
@given(states(), LISTED)
def test_nobody_loses_what_provisioning_did_not_give(existing: Existing, listed_gocdb: list) -> None:
    made = declare_listed(existing, *listed_gocdb)
    gone = removals(find_vanished({APEL: judge(listed_gocdb, site)}, existing, made.users), existing, "p")
    later = state_after(existing, plan(made.to_declared(gone), existing))

    for name in {"reader", "jane"} & existing.of(ResourceKind.MEMBER).keys():
        assert name in later.of(ResourceKind.MEMBER)
        for topic, fields in existing.of(ResourceKind.PUBLISHERS).items():
            assert name not in fields["users"] or name in later.of(ResourceKind.PUBLISHERS)[topic]["users"]
    assert ("laptop" in later.of(ResourceKind.BINDING)) == ("laptop" in existing.of(ResourceKind.BINDING))


ENDPOINTS = [endpoint(f"{letter}.example.org") for letter in "abcdef"]
_TOPICS = existing_state(topics=[APEL])
FULL = state_after(_TOPICS, plan_listed(_TOPICS, *ENDPOINTS))


def vanished_resources(existing: Existing, *listed, service_type: str = APEL) -> VanishedResources:
    return find_vanished({service_type: judge(listed, site)}, existing, {})


def test_a22_who_is_listed_but_not_served_has_not_vanished() -> None:
    *others, last = ENDPOINTS
    assert vanished_resources(FULL, *others, replace(last, in_production="N")).who == []
    assert vanished_resources(FULL, *others, replace(last, dn="")).who == []
    assert vanished_resources(FULL, *others).who == ["gLite-APEL---f-example-org---SITE-A"]


def test_a22_other_types_and_other_peoples_users_are_not_looked_at() -> None:
    assert vanished_resources(existing_state({"jane": member("j")}, {"laptop": ("CN=x", "j")}), *ENDPOINTS).who == []
    assert vanished_resources(FULL, endpoint("x", service_type=CLOUD), service_type=CLOUD).who == []


@pytest.mark.parametrize(("listed", "said", "told"), [
    (ENDPOINTS[1:], {}, ""), (ENDPOINTS[1:], {"whole": False}, "could be read"),
    ([*ENDPOINTS[1:], replace(ENDPOINTS[0], site="", dn="")], {}, "could be read"),
    ([], {}, "lists no endpoint of gLite-APEL"), (ENDPOINTS[2:], {"most": 1}, "2 are more than --max-removals 1"),
    (ENDPOINTS[4:], {}, "4 of 6 are more than half"),
], ids=["one of six", "a listing did not come", "unreadable", "empty", "too many", "more than half"])  # fmt: skip
def test_a22_nobody_is_removed_when_the_listing_is_doubtful(listed: list, said: dict, told: str) -> None:
    judged = {APEL: judge(listed, site)}
    found = refusal(find_vanished(judged, FULL, {}), judged, **{"whole": True, "most": 5, **said})
    assert (told in found) if told else found == ""


def test_a_binding_whose_user_is_in_another_project_stays() -> None:
    existing = existing_state({}, {"gLite-APEL---z---SITE-A": ("CN=z", "elsewhere")})
    found = vanished_resources(existing, *ENDPOINTS)
    assert found.bindings == ("gLite-APEL---z---SITE-A",)
    assert removals(found, existing, "p") == {}
