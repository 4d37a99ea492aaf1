from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.provisioning.entitled import judge
from ams.provisioning.plan import Allow, Alter, Bind, Join, Kind, MakeSubscription, MakeTopic, plan
from ams.provisioning.state import Bound, Member, State
from ams.provisioning.vanished import removals, vanished
from tests.provisioning.listings import APEL, CLOUD, endpoint, served, site
from tests.provisioning.simulated import EMPTY, after

PUBLISHER = "publisher"
TOPICS = State({}, {}, frozenset({"gLite-APEL", "eu-egi-cloud-accounting"}), {})
HOST = endpoint("ce.example.org")
NAME = "gLite-APEL---ce-example-org---SITE-A"
DN = "CN=ce.example.org,O=Example,C=GR"


def planned(state: State, *listed, **said):
    return plan(served(*listed), state, role=PUBLISHER, **said)


def test_a_new_endpoint_gets_a_user_a_binding_and_its_place_on_the_list() -> None:
    found = planned(TOPICS, HOST)

    label = "ce.example.org (gLite-APEL, SITE-A)"
    assert found.steps == [
        Join(endpoint=label, user=NAME, email="grid@example.org"),
        Bind(endpoint=label, binding=NAME, dn=DN, user=NAME),
        Allow(kind=Kind.TOPIC, name="gLite-APEL", users=(NAME,)),
    ]


def test_a_certificate_that_is_bound_keeps_its_binding_and_its_user() -> None:
    state = State({"jane": Member("u1", frozenset({PUBLISHER}))}, {"laptop": Bound(DN, "u1")}, TOPICS.topics, {})

    assert planned(state, HOST).steps == [Allow(kind=Kind.TOPIC, name="gLite-APEL", users=("jane",))]


def test_two_endpoints_with_one_certificate_share_a_user() -> None:
    other = endpoint("ce.example.org", service_type=CLOUD)
    found = planned(TOPICS, HOST, other)

    assert [step.user for step in found.steps if isinstance(step, Join)] == [NAME]
    assert [(step.name, step.users) for step in found.steps if isinstance(step, Allow)] == [
        ("gLite-APEL", (NAME,)),
        ("eu-egi-cloud-accounting", (NAME,)),
    ]


def test_a22_a_binding_of_a_user_who_was_made_anew_is_pointed_at_the_new_one() -> None:
    state = State(
        {NAME: Member("new", frozenset({PUBLISHER}), frozenset({"gLite-APEL"}))},
        {NAME: Bound(DN, "old")},
        TOPICS.topics,
        {},
    )

    found = planned(state, HOST)

    assert [replace(step, endpoint="") for step in found.steps] == [Alter(binding=NAME, user=NAME)]


def test_a_new_certificate_of_a_host_moves_its_binding() -> None:
    state = after(TOPICS, planned(TOPICS, HOST).steps)

    found = planned(state, endpoint("ce.example.org", dn="/C=GR/O=New/CN=ce.example.org"))

    assert [replace(step, endpoint="") for step in found.steps] == [
        Alter(binding=NAME, dn="CN=ce.example.org,O=New,C=GR")
    ]


def test_two_hosts_that_swap_their_certificates_each_keep_a_binding() -> None:
    a, b = endpoint("a.example.org"), endpoint("b.example.org")
    state = after(TOPICS, planned(TOPICS, a, b).steps)
    swapped = replace(a, dn="/CN=new"), replace(b, dn=a.dn)

    later = after(state, planned(state, *swapped).steps)

    assert {each.dn for each in later.bindings.values()} == {"CN=new", "CN=a.example.org,O=Example,C=GR"}
    assert planned(later, *swapped).steps == []


def test_somebody_elses_binding_is_not_given_another_user() -> None:
    state = State({}, {"laptop": Bound(DN, "who")}, TOPICS.topics, {})

    found = planned(state, HOST)

    assert found.steps == []
    assert "bound as laptop" in found.failed[0].text


def test_a_topic_that_is_not_there_is_told_and_the_users_are_made() -> None:
    found = planned(EMPTY, HOST)

    assert found.faults == ["there is no topic gLite-APEL (ams topics create gLite-APEL)"]
    assert [type(step) for step in found.steps] == [Join, Bind]


def test_a_member_without_the_role_is_told() -> None:
    state = State({NAME: Member("u", frozenset())}, {NAME: Bound(DN, "u")}, TOPICS.topics, {})

    assert "without the role publisher" in planned(state, HOST).failed[0].text


def test_an_endpoint_of_clouds_gets_a_topic_and_a_subscription_for_itself() -> None:
    cloud = endpoint("nova.example.org", service_type="org.openstack.nova", site="SITE.B", primary_key="12 34G0")
    state = State({"reader": Member("r")}, {}, frozenset(), {})
    found = plan(served(cloud, own_topics=True), state, role=PUBLISHER, consumer="reader")

    name, user = "SITE_SITE-B_ENDPOINT_1234G0", "org-openstack-nova---nova-example-org---SITE-B"
    assert [replace(step, endpoint="") for step in found.steps] == [
        Join(user=user, email="grid@example.org"),
        Bind(binding=user, dn="CN=nova.example.org,O=Example,C=GR", user=user),
        MakeTopic(topic=name),
        Allow(kind=Kind.TOPIC, name=name, users=(user,)),
        MakeSubscription(subscription=name, topic=name),
        Allow(kind=Kind.SUBSCRIPTION, name=name, users=("reader",)),
    ]


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
def states(draw: st.DrawFn) -> State:
    topics = frozenset(
        draw(st.sets(st.sampled_from(["gLite-APEL", "eu-egi-cloud-accounting", "SITE_SITE-A_ENDPOINT_1G0"])))
    )
    names = draw(st.lists(st.one_of(NAMES, st.just("jane")), unique=True, max_size=3))
    uuids = draw(st.permutations(["u1", "u2", "u3"]))
    lists = st.frozensets(st.sampled_from(sorted(topics))) if topics else st.just(frozenset())
    members = {
        name: Member(uuid, frozenset({PUBLISHER}), draw(lists)) for name, uuid in zip(names, uuids, strict=False)
    }
    bound = draw(st.dictionaries(st.one_of(NAMES, st.just("laptop")), UUIDS, max_size=3))
    dns = draw(st.permutations(["CN=one", "CN=two", "CN=three"]))
    bindings = {name: Bound(dn, uuid) for (name, uuid), dn in zip(bound.items(), dns, strict=False)}
    return State({"reader": Member("r"), **members}, bindings, topics, {})


@settings(max_examples=60, deadline=None)
@given(states(), LISTED, st.booleans())
def test_a22_what_was_done_once_leaves_nothing_to_do(state: State, listed: list, own_topics: bool) -> None:
    judged = {
        kind: judge([each for each in listed if each.service_type == kind], site, own_topics=own_topics)
        for kind in (APEL, CLOUD)
    }
    wanted = [each for kind in judged.values() for each in kind.served]

    made = plan(wanted, state, role=PUBLISHER, consumer="reader")
    taken = removals(vanished(judged, state, made.users, own_topics=own_topics), state)
    later = after(after(state, made.steps), taken)

    again = plan(wanted, later, role=PUBLISHER, consumer="reader")
    assert again.steps == []
    assert removals(vanished(judged, later, again.users, own_topics=own_topics), later) == []


@settings(max_examples=30, deadline=None)
@given(states(), LISTED)
def test_nobody_loses_what_provisioning_did_not_give(state: State, listed: list) -> None:
    found = plan(served(*listed), state, role=PUBLISHER)
    taken = removals(vanished({APEL: judge(listed, site)}, state, found.users), state)
    later = after(after(state, found.steps), taken)

    for name in {"reader", "jane"} & state.members.keys():
        assert later.members[name].topics >= state.members[name].topics
    assert ("laptop" in later.bindings) == ("laptop" in state.bindings)
