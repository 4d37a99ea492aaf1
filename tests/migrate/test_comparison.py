"""Differences between two answers, and the documented ones; and comparing a service with its origin."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.installation import installation
from ams.client import Client
from ams.client.errors import Unreachable
from ams.core.settings import Settings
from ams.migrate.comparison import (
    EXAMPLE_CHARACTERS,
    READS,
    RULES,
    DifferenceKind,
    Rule,
    ServiceAnswer,
    different,
    read_of,
)
from ams.migrate.conversion import Converted, KafkaBounds
from ams.migrate.requests import Side
from ams.migrate.verification import Difference, Verified, compare_served, compare_stored, verify
from ams.storage.export_format import Membership, Subscription, User
from tests.migrate.moved import KafkaStub, counts, import_converted, make_converted, serve_old_stub, token
from tests.support.service import LiveService, live_service

ROOT = Path(__file__).parents[2]

JSON_TYPE = "application/json; charset=utf-8"
NAMES = st.sampled_from(["name", "token", "roles", "users", "value", "authorizationHeader", "mattermostUrl", "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)
ACTIONS = st.sampled_from([each.action for each in READS])
STATUSES = st.sampled_from([200, 400, 401, 403, 404, 500])


def answer(value: Any, status: int = 200, content_type: str = JSON_TYPE) -> ServiceAnswer:
    return ServiceAnswer(status, content_type, json.dumps(value).encode())


def diff_paths(action: str, old: Any, new: Any, **options: Any) -> list[str]:
    return [each.where for each in different(action, answer(old), answer(new), **options)]


@given(ACTIONS, STATUSES, st.text(), st.binary() | VALUES.map(lambda each: json.dumps(each).encode()))
def test_what_is_the_same_is_the_same(action: str, status: int, content_type: str, body: bytes) -> None:
    assert different(action, ServiceAnswer(status, content_type, body), ServiceAnswer(status, content_type, body)) == []


@given(ACTIONS, VALUES)
def test_white_space_and_the_order_of_keys_are_no_difference(action: str, value: Any) -> None:
    other = ServiceAnswer(200, JSON_TYPE, json.dumps(_backwards(value), indent=3).encode())
    assert different(action, answer(value), other, rules=()) == []


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _backwards(each) for name, each in reversed(value.items())}
    return [_backwards(each) for each in value] if isinstance(value, list) else value


@given(st.lists(NAMES, unique=True), st.randoms())
def test_lists_in_another_order_differ_in_that_alone(names: list[str], chance: Any) -> None:
    users = [{"name": each, "roles": []} for each in names]
    other = chance.sample(users, len(users))

    assert diff_paths("users:list", {"users": users}, {"users": other}) == ["users[] order"] * (users != other)
    roles = {"name": "x", "service_roles": names}
    assert diff_paths("users:show", roles, {"name": "x", "service_roles": [each["name"] for each in other]}) == []


SECRET = st.text("0123456789abcdefghijkZ", min_size=32, max_size=64)


@given(ACTIONS, VALUES, VALUES, SECRET, SECRET, st.booleans())
def test_no_secret_is_shown(action: str, old: Any, new: Any, one: str, other: str, known: bool) -> None:
    """Wherever it stands if it is known; otherwise in its field, or if it looks like a token."""
    olds = {"user": old, "token": one, "pushConfig": {"authorizationHeader": {"value": one}, "mattermostUrl": one}}
    news: dict[str, Any] = {"user": new, "token": [other], "pushConfig": {"authorizationHeader": {"value": other}}}
    hooks = {"old": f"https://u:{one}@chat.example/{one}", "new": f"see https://chat.example?x={other} "}
    if known:
        olds |= {one: one, "said": f"no user {one}", "many": [one], "deep": {"x": [{"name": one}]}}
        news |= {other: 1, "said": {other: 1}, "many": [{"x": other}], "deep": {"x": [{"name": other}]}}
    both = [
        *different(action, answer(olds), answer(news), secrets=(one, other) if known else (), rules=()),
        *different(action, answer({"x": hooks["old"]}), answer({"x": hooks["new"]}), rules=()),
        *different(
            action, ServiceAnswer(404, "", f"no {one}!".encode()), ServiceAnswer(404, "", other.encode()), rules=()
        ),
    ]

    assert both
    assert one not in repr(both)
    assert other not in repr(both)
    assert all(len(text) <= EXAMPLE_CHARACTERS for kind in both for text in kind)


def test_a_kind_is_told_once_with_both_sides() -> None:
    old = {"users": [{"name": f"user{each}", "email": "a@x.example"} for each in range(9)]}
    new = {"users": [{"name": f"user{each}", "email": "b@x.example"} for each in range(8)]}

    assert different("users:list", answer(old), answer(new)) == [
        DifferenceKind("users[].email", "a@x.example", "b@x.example"),
        DifferenceKind("users[]", "an object, user8", "(missing)"),
    ]  # fmt: skip


def test_of_several_of_a_name_the_nearest_is_compared_and_true_is_not_1() -> None:
    old = {"users": [{"name": "a", "email": "1"}, {"name": "b"}, {"name": "a", "email": "2"}]}
    assert diff_paths("users:list", old, {"users": [{"name": "b"}, {"name": "a", "email": "1"}]}) == []
    assert diff_paths("users:list", old, {"users": [{"name": "b"}, {"name": "a", "email": "3"}]}) == ["users[].email"]
    assert diff_paths("topics:show", {"a": 1, "b": 1, "c": 2}, {"a": True, "b": "1", "c": 2.0}) == ["a", "b"]


@pytest.mark.parametrize("depth", [100, 600, 5000])
def test_bodies_of_any_depth_are_compared_or_said_to_be_too_deep(depth: int) -> None:
    one, other = (ServiceAnswer(200, JSON_TYPE, b'{"a":' * depth + last + b"}" * depth) for last in (b"1", b"2"))
    assert len(different("users:list", one, other)) == 1


def metrics(name: str, *points: tuple[str, float], **more: Any) -> Mapping[str, Any]:
    series = [{"timestamp": at, "value": of} for at, of in points]
    return {"metrics": [{"metric": name, "resource_name": "t", "timeseries": series} | more]}


PULLED = {"type": "", "pushEndpoint": "", "authorizationHeader": {"type": "autogen"}, "maxMessages": 1}
RATE, COUNT, DAILY = "topic.publishing_rate", "topic.number_of_messages", "topic.number_of_daily_messages"
USER = {"name": "ann", "token": "t", "created_by": "root", "service_roles": ["x"], "projects": [{"project": "P"}]}
NOW, LATER = "2026-11-20T10:20:30Z", "2026-11-20T10:20:31Z"

EXAMPLES: list[tuple[str, str, Any, Any]] = [
    ("O7", "users:list", answer({}, 401, "text/plain; charset=utf-8"), answer({}, 401)),
    ("contract 1.3", "users:list", ServiceAnswer(404, JSON_TYPE, b"404 page not found\n"), answer({"error": {}}, 404)),
    ("O8", "users:byUUID", ServiceAnswer(404, JSON_TYPE, b'{"error": {}}{"x": 1}'), answer({"error": {}}, 404)),
    ("contract 4", "users:list", {"nextPageToken": "NWE="}, {"nextPageToken": "MTI="}),
    ("contract 7", "projects:list", {}, {"projects": []}),
    ("U7", "users:show", {"service_roles": None, "projects": [{"project": "P", "roles": None}]},
     {"service_roles": [], "projects": [{"project": "P", "roles": []}]}),
    ("contract 5.1", "users:show", {"projects": [{"project": "P"}, {"project": "Q"}]},
     {"projects": [{"project": "Q"}, {"project": "P"}]}),
    ("contract 14.4", "ams:vaMetrics", {"projects_metrics": {"projects": [{"project": "P"}, {"project": "Q"}]}},
     {"projects_metrics": {"projects": [{"project": "Q"}, {"project": "P"}]}}),
    ("O6", "ams:healthStatus", answer({}, 401), answer({}, 403)),
    ("A5", "subscriptions:offsets", answer({}), answer({}, 403)),
    ("A5", "subscriptions:timeToOffset", answer({}), answer({}, 403)),
    ("contract 3.5", "topics:metrics", answer({}, 403), answer({})),
    ("contract 3.4", "ams:metrics", answer({}), answer({}, 401)),
    ("A14", "subscriptions:show", {"pushConfig": {"type": "x", "verificationHash": "a"}},
     {"pushConfig": {"type": "x", "verificationHash": ""}}),
    ("T3", "users:list", {"users": [{"name": "a", "token": "b"}]}, {"users": [{"name": "a"}]}),
    ("U3", "projects:showUser", USER, {"name": "ann", "service_roles": [], "projects": []}),
    ("contract 7", "projects:show", {}, {"retentionSeconds": 5}),
    ("contract 8", "topics:show", {}, {"retentionSeconds": 5}),
    ("contract 9.1", "subscriptions:show", {"pushConfig": {"type": "x", "retryPolicy": {}}},
     {"pushConfig": {"type": "x", "retryPolicy": {"period": 0}}}),
    ("contract 14.3", "subscriptions:metrics", {"metrics": []}, metrics("subscription.number_of_lost_messages")),
    ("contract 14.6", "version:list", {"golang": "go1.22", "hostname": "a"}, {"golang": "3.11"}),
    ("contract 11.4", "subscriptions:timeToOffset", answer({}, 400), answer({})),
    ("contract 13.6", "subscriptions:show", {"pushStatus": "a"}, {}),
    ("O1", "ams:metrics", metrics("a", (NOW, 1)), metrics("b", (NOW, 2))),
    ("O3", "ams:vaMetrics", {"a": {"users_count": 0}}, {"a": {"users_count": 4}}),
    ("O4", "ams:vaMetrics", {"projects_metrics": {"projects": []}}, {"projects_metrics": {"projects": [{}]}}),
    ("O4", "ams:vaMetrics", {"total_topics_count": 1}, {"total_topics_count": 2}),
    ("O5", "topics:metrics", metrics(RATE, (NOW, 1.0)), metrics(RATE, (NOW, 1.02))),
    ("contract 14", "topics:metrics", metrics("topic.number_of_bytes", (NOW, 1)),
     metrics("topic.number_of_bytes", (LATER, 1))),
    ("contract 14", "topics:metrics", metrics(RATE, description="a"), metrics(RATE, description="b")),
    ("U13", "projects:metrics", metrics("project.number_of_daily_messages", ("2026-11-20", 9)),
     metrics("project.number_of_daily_messages", ("2026-11-20", 7))),
    ("how-to move-from-the-reference", "topics:metrics", metrics(COUNT, (NOW, 1)), metrics(COUNT, (NOW, 2))),
    ("how-to move-from-the-reference", "topics:metrics", metrics(DAILY), metrics(DAILY, ("2026-11-20", 1))),
    ("U12", "users:show", {"projects": [{"project": "", "roles": []}]}, {"projects": []}),
    ("U14", "users:show", {"projects": [{"project": "P"}, {"project": "P"}]}, {"projects": [{"project": "P"}]}),
    ("U11", "topics:list", {"topics": [{"name": "T"}, {"name": "T"}]}, {"topics": [{"name": "T"}]}),
    ("U11", "topics:list", {"topics": [{"name": "T"}, {"name": "T"}], "totalSize": 2},
     {"topics": [{"name": "T"}], "totalSize": 1}),
    ("U11", "users:show", {"projects": [{"project": "P", "topics": ["a", "a"]}]},
     {"projects": [{"project": "P", "topics": ["a"]}]}),
    ("U5", "registrations:list", {"user_registrations": [{"name": "a", "uuid": "1", "registered_at": ""}]},
     {"user_registrations": []}),
    ("A11", "subscriptions:show", {"pushConfig": {"type": "mattermost", "authorizationHeader": {"type": "autogen"}}},
     {"pushConfig": {"type": "mattermost", "authorizationHeader": {}}}),
    ("how-to move-from-the-reference", "subscriptions:show", {"pushConfig": PULLED},
     {"pushConfig": {"type": "", "pushEndpoint": "", "authorizationHeader": {}, "maxMessages": 0}}),
    ("how-to move-from-the-reference", "subscriptions:show", {"ackDeadlineSeconds": -5}, {"ackDeadlineSeconds": 0}),
    ("how-to move-from-the-reference", "topics:show", {"created_on": "0001-01-01T00:00:00Z"}, {"created_on": NOW}),
    ("how-to move-from-the-reference", "users:show", {"uuid": "an_admin"}, {"uuid": "b"}),
    ("how-to move-from-the-reference", "topics:list", {"topics": [{"name": "/projects/P/topics/a b"}]},
     {"topics": [{"name": "/projects/P/topics/a_b"}]}),
    ("how-to move-from-the-reference", "users:list", {"users": [{"name": "a", "projects": [{"project": "b/c d"}]}]},
     {"users": [{"name": "a", "projects": [{"project": "b_c_d"}]}]}),
    ("how-to move-from-the-reference", "users:profile", {"name": "a b"}, {"name": "a_b_2"}),
    ("how-to move-from-the-reference", "users:show", {"name": "a"}, {"name": "a", "token": "b"}),
    ("how-to move-from-the-reference", "users:list",
     {"users": [{"name": "a", "token": "b"}, {"name": "c", "token": "b"}]}, {"users": [{"name": "a", "token": "b"}]}),
    ("how-to move-from-the-reference", "subscriptions:show",
     {"pushConfig": {"type": "http_endpoint", "pushEndpoint": "http://a.example"}},
     {"pushConfig": {"type": "", "pushEndpoint": ""}}),
    ("how-to compare-with-the-reference", "subscriptions:offsets", {"max": 3}, {"max": 4}),
    ("how-to compare-with-the-reference", "subscriptions:timeToOffset", {"offset": 3}, {"offset": 4}),
    ("how-to compare-with-the-reference", "subscriptions:timeToOffset", answer({}), answer({}, 409)),
    ("how-to compare-with-the-reference", "subscriptions:metrics", metrics("a"), metrics("a", (NOW, 3))),
    ("how-to compare-with-the-reference", "ams:vaMetrics", {"total_message_count": 1}, {"total_message_count": 2}),
]  # fmt: skip


def _as_answer(value: Any) -> ServiceAnswer:
    return value if isinstance(value, ServiceAnswer) else answer(value)


@pytest.mark.parametrize(("source", "action", "old", "new"), EXAMPLES)
def test_a_documented_difference_is_none_by_its_rule_alone(source: str, action: str, old: Any, new: Any) -> None:
    one, other = _as_answer(old), _as_answer(new)
    others = [each for each in RULES if each.source != source]
    still = source != "how-to compare-with-the-reference"

    assert different(action, one, other, still=still) == []
    assert different(action, one, other, still=still, rules=others) != []


@pytest.mark.parametrize("rule", RULES, ids=lambda each: f"{each.source} {each.why}")
def test_every_rule_has_an_example_that_needs_it(rule: Rule) -> None:
    examples = [(action, _as_answer(old), _as_answer(new)) for of, action, old, new in EXAMPLES if of == rule.source]
    assert any(different(*each, rules=[rule]) != different(*each, rules=()) for each in examples)


def test_every_rule_names_where_it_is_documented() -> None:
    differences = (ROOT / "docs/reference/differences.md").read_text()
    contract = (ROOT / "docs/contract/api.md").read_text()
    for source in {each.source for each in RULES}:
        kind, _, name = source.rpartition(" ")
        found = {
            "": re.search(rf"^\| {name} \|", contract + differences, re.MULTILINE) is not None,
            "contract": re.search(rf"^##+ {re.escape(name)}\.? ", contract, re.MULTILINE) is not None,
            "how-to": Path(ROOT / "docs/how-to" / f"{name}.md").exists(),
        }
        assert found[kind], source


def test_what_is_only_right_for_some_is_a_difference_for_others() -> None:
    moved = ("subscriptions:offsets", answer({"max": 3}), answer({"max": 4}))
    hidden = ("subscriptions:show", answer({"verificationHash": "a"}), answer({"verificationHash": ""}))

    assert (different(*moved), different(*moved, still=True)) == ([], [DifferenceKind("max", "3", "4")])
    assert different(*hidden) == []
    assert different(*hidden, admin=True) == [DifferenceKind("verificationHash", "(a secret)", "(none)")]


@pytest.mark.parametrize(("target", "action"), [
    ("/v1/projects/P/topics/T:acl", "topics:acl"), ("/v1/projects/P/topics/T%3Aacl?key=a", "topics:acl"),
    ("/v1/projects/P%2Ftopics", "topics:list"), ("https://ams.example/v1/users/profile?key=x", "users:profile"),
    ("/v1/users:byToken/abc", "users:byToken"), ("/v1/users/ann", "users:show"),
    ("/v1/projects/P/topics/T:read?from=1", None), ("/console/", None), ("//v1/users", None), ("http://[", None),
])  # fmt: skip
def test_reads_are_told_by_their_paths(target: str, action: str | None) -> None:
    found = read_of(target)
    assert (found and found.action) == action


@pytest.fixture(scope="module")
def moved_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data = import_converted(make_converted(users=20, topics=6, messages=10), tmp_path_factory.mktemp("verifying"))
    with live_service(data, "--min-free-bytes", "0", "--reserve-bytes", "0") as running:
        yield running


@pytest.fixture
def resources() -> Converted:
    return make_converted(users=20, topics=6, messages=10)


async def compare_all(moved: LiveService, found: Converted) -> list[Difference]:
    with Client(moved.base_url, token(0), ca=str(moved.ca)) as client:
        return await compare_served(found, client, str(moved.ca))


async def test_quick_looks_find_wrong_tokens_users_and_rights(moved_service: LiveService, resources: Converted) -> None:
    assert await compare_all(moved_service, resources) == []
    resources.users[3].token = "of nobody "
    resources.users[4].token = "no\u00e4scii"
    resources.users[5].name = "other"
    resources.users[6].service_roles = ("admin_viewer",)
    resources.memberships[6:7] = [Membership(user="user7", project="project1", roles=("consumer",))]
    resources.users.append(User(name="new", token=""))  # it got a token that nobody has yet
    resources.memberships += [Membership(user="other", project="project1", roles=("consumer", "publisher"))]
    verified = await compare_all(moved_service, resources)

    both = "project1:consumer,publisher"
    assert [each for each in verified if each.what.startswith(("token", "roles"))] == [
        ("token of user user3", "user3", "Unauthorized"),
        ("token of user user4", "user4", "Unauthorized"),
        ("token of user other", "other None", verified[2].new),
        ("roles of user user6", "admin_viewer project0:consumer,publisher", "- project0:consumer,publisher"),
        ("roles of user user7", "- project1:consumer", f"- {both}"),
    ]
    assert verified[2].new.startswith("user5 ")
    assert token(3) not in repr(verified)


async def test_a_quick_look_asks_one_subscription_per_project(moved_service: LiveService, resources: Converted) -> None:
    for each in resources.subscriptions:
        each.offset += 1
    with Client("http://127.0.0.1:1", token(0), retry=None) as away, pytest.raises(Unreachable):
        await compare_served(resources, away, None)

    asked = sorted(each.what.partition("/")[0] for each in await compare_all(moved_service, resources))
    assert asked == ["subscription project0", "subscription project1"]


@pytest.mark.long
async def test_topics_and_positions_that_were_stored_otherwise_are_found(resources: Converted, tmp_path: Path) -> None:
    data = import_converted(resources, tmp_path)
    same, resources = resources, make_converted(users=20, topics=6, messages=10)
    resources.topics[0].line.name = "gone"
    ends = {
        1: KafkaBounds(5, 16), 2: KafkaBounds(4, 15, young=5), 3: KafkaBounds(7, 15), 4: KafkaBounds(4, 15, young=4),
        5: KafkaBounds(4, 15, age=1000, young=4),
    }  # fmt: skip
    for number, bounds in ends.items():
        object.__setattr__(resources.topics[number], "bounds", bounds)
    resources.subscriptions = [
        Subscription(project="project1", name="sub1", topic="topic1", offset=11),
        Subscription(project="project1", name="sub3", topic="topic3", offset=9),
        Subscription(project="project1", name="none", topic="topic3", offset=9),
        Subscription(project="project1", name="none", topic="never", offset=9),
    ]
    settings = Settings.load({"data": str(data), "min_free_bytes": 0, "reserve_bytes": 0}, {}, None, print)
    async with installation(settings) as stored:
        nothing = await compare_stored(same, stored, KafkaStub(same))
        kept = KafkaStub(resources)
        differences = await compare_stored(resources, stored, kept)
        kept.holes["project0.topic4"] = {4}
        unreadable = await compare_stored(resources, stored, kept)

    assert nothing == []
    assert [tuple(each) for each in differences] == [
        ("topic project0/gone", "5 to 15", "is not there"),
        ("topic project1/topic1", "5 to 16", "5 to 15"),
        ("topic project0/topic4", "4 to 15", "5 to 15"),
        ("subscription project1/sub1", "11", "10"), ("subscription project1/sub3", "9", "10"),
        ("subscription project1/none", "9", "is not there"),
    ]  # fmt: skip  # the first of topic5 is too old by now
    assert [each.what for each in unreadable] == [each.what for each in differences if "topic4" not in each.what]


async def verify_all(moved: LiveService, found: Converted, kept: KafkaStub, old: str = "") -> Verified:
    with Client(moved.base_url, token(0), ca=str(moved.ca)) as client:
        if not old:
            return await verify(found, kept, client, str(moved.ca))
        async with Side(old, token(0)) as one, Side(moved.base_url, token(0)) as other:
            return await verify(found, kept, client, str(moved.ca), (one, other))


async def test_contents_are_the_same_until_a_message_is_not(moved_service: LiveService, resources: Converted) -> None:
    kept = KafkaStub(resources)
    assert await verify_all(moved_service, resources, kept) == Verified(**counts(resources), differences=[])
    kept.changed["project1.topic1"] = {7: "b3RoZXI="}
    resources.topics[2].line.name = "gone"
    # of old age the new one dropped 4
    object.__setattr__(resources.topics[3], "bounds", KafkaBounds(4, 15, age=1000, young=5))
    object.__setattr__(resources.topics[4], "bounds", KafkaBounds(4, 15, young=4))
    other = await verify_all(moved_service, resources, kept)
    assert [(each.what, each.old.split(",")[0], each.new.split(",")[0]) for each in other.differences] == [
        ("topic project1/topic1", "10 messages", "10 messages"),
        ("topic project0/gone", "5 to 15", "Topic doesn't exist"),
        ("topic project0/topic4", "11 messages", "10 messages"),
    ]


@pytest.mark.long
async def test_both_services_are_asked_by_every_token_for_all(moved_service: LiveService, resources: Converted) -> None:
    with serve_old_stub(moved_service.base_url) as old:
        same = await verify_all(moved_service, resources, KafkaStub(resources), old.url)

        assert (same.differences, same.answers) == ([], 20 + 2 * 5 + 6 + 6)
        resources.renamed = {"project1", "topic2"}  # the old service knows them by other names
        assert (await verify_all(moved_service, resources, KafkaStub(resources), old.url)).answers == 20 + 5 + 2 + 3
        resources.renamed = set()
        old.changes = [
            (b'"description":"of a day"', b'"description":"x"'),
            (b'"name":"user4"', b'"name":"%s"' % token(4).encode()),
        ]
        other = await verify_all(moved_service, resources, KafkaStub(resources), old.url)
    assert {each.what for each in other.differences} == {
        "token of user user4: name", "projects/project0: description", "projects/project1: description",
        "projects/project0/members?details=true: users[]",
    }  # fmt: skip
    assert token(4) not in repr(other)
