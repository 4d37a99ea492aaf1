"""Documents of the reference from ten years of versions, and their conversion."""

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.app.moving.rules import LineRules
from ams.migrate.conversion import Converted, Documents, KafkaBounds, Oddity, convert_documents
from ams.storage.export_format import FORMAT, Day, End, Header, Log, decode_line, encode_line, kind

NEVER = datetime(1, 1, 1)
MADE = datetime(2020, 3, 4, 5, 6, 7, 89000, UTC)
MILLISECONDS = round(MADE.timestamp() * 1000)
P, ANN, BOB = (str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in ("P", "ann", "bob"))
_ids = iter(range(1, 10_000))


def document(**fields: Any) -> dict[str, Any]:
    return {"_id": f"5e5f{next(_ids):04x}0000000000000000", **fields}


def user(name: str = "ann", **fields: Any) -> dict[str, Any]:
    own = {"uuid": {"ann": ANN, "bob": BOB}.get(name, str(uuid.uuid4())), "token": f"token of {name}"}
    return document(
        **{"name": name, "email": "", "service_roles": [], "projects": [], "created_on": MADE, **own, **fields}
    )


def project(name: str = "EGI", identity: str = P, **fields: Any) -> dict[str, Any]:
    own = {"created_on": MADE, "modified_on": MADE, "created_by": ANN}
    return document(**{"uuid": identity, "name": name, **own, **fields})


def topic(name: str = "t", **fields: Any) -> dict[str, Any]:
    return document(**{"project_uuid": P, "name": name, "acl": [], "created_on": MADE, "msg_num": 0, **fields})


def subscription(name: str = "s", **fields: Any) -> dict[str, Any]:
    return document(
        **{"project_uuid": P, "name": name, "topic": "t", "offset": 0, "ack": 10, "created_on": MADE, **fields}
    )


def convert_and_check(bounds: dict[str, KafkaBounds] | None = None, **collections: Any) -> Converted:
    """Convert, and check the lines by the rules of an import."""
    given = {"projects": [project()], "users": [user()], **collections}
    known = {f"{P}.{name}": each for name, each in (bounds or {}).items()}
    done = convert_documents(Documents(**given), lambda name: known.get(name, KafkaBounds(0, 0)))
    rules, counts = LineRules(), {}
    for number, line in enumerate(lines(done), 1):
        rules.see(decode_line(encode_line(line)), number)
        if not isinstance(line, Header):
            counts[kind(line)] = counts.get(kind(line), 0) + 1
    rules.see(End(counts=counts), 0)
    return done


def lines(done: Converted) -> Iterator[Any]:
    yield Header(format=FORMAT)
    for each in done.topics:
        if each.bounds.end:  # as if all of it were holes but nothing at its end
            yield Log(project=each.line.project, topic=each.line.name, id=each.line.id, first=each.bounds.end)
    yield from done.lines()


def kinds(done: Converted) -> list[str]:
    return [each.kind for each in done.oddities]


def test_tokens_uuids_names_and_dates_stay() -> None:
    done = convert_and_check(
        users=[user(token="a" * 64, email="ann@egi.example", service_roles=["service_admin"], modified_on=NEVER)]
    )

    [one] = done.users
    assert (one.name, one.id, one.token, one.email) == ("ann", ANN, "a" * 64, "ann@egi.example")
    assert (one.service_roles, one.created_on, one.modified_on) == (("service_admin",), MILLISECONDS, None)
    [where] = done.projects
    assert (where.name, where.id, where.created_on, where.created_by) == ("EGI", P, MILLISECONDS, "ann")
    assert done.oddities == []


def test_what_is_odd_is_told_without_secrets() -> None:
    [odd] = convert_and_check(topics=[topic(acl=["gone"])]).oddities
    assert odd == Oddity("access list", "topic EGI/t", "names a user that is gone, who is left out")
    done = convert_and_check(users=[user(), user("bob", token="token of ann"), user("ann", uuid="old", token="secret")])
    assert kinds(done) == ["second token", "second user"]
    assert not any("token of" in text or text == "secret" for each in done.oddities for text in each)


PUSH = {
    "push_type": "http_endpoint", "push_endpoint": "https://endpoint.egi.example/in", "max_messages": 5,
    "authorization_type": "autogen", "authorization_header": "value", "retry_policy": "linear", "retry_period": 3000,
    "verification_hash": "hash", "verified": True, "base_64_decode": True,
}  # fmt: skip
HOOK = {"push_type": "mattermost", "mattermost_url": "https://chat.egi.example/hooks/x",
        "authorization_type": "autogen", "max_messages": 0, "verified": True}  # fmt: skip
LATER = datetime(2024, 1, 1, tzinfo=UTC)


def push_fields(done: Converted, *names: str) -> list[Any]:
    return [getattr(done.subscriptions[0].push, name) for name in names]


def day(count: int, number: int, name: str = "t") -> dict[str, Any]:
    return document(date=datetime(2024, 5, number), project_uuid=P, topic_name=name, msg_count=count)


CONSUMER = {"project_uuid": P, "roles": ["consumer"]}
GONE = {"project_uuid": "gone"}
BECOMES: dict[str, tuple[dict[str, Any], Callable[[Converted], Any], Any, list[str]]] = {
    "users without a token get one each": (
        {"users": [user(token=""), user("bob", token=None)]},
        lambda done: [(each.name, each.token) for each in done.users], [("ann", ""), ("bob", "")], ["token", "token"],
    ),
    "the last of two memberships decides": (
        {"users": [user(projects=[CONSUMER, GONE, {"project_uuid": P, "roles": ["publisher"]}])]},
        lambda done: [each.roles for each in done.memberships], [("publisher",)], ["membership", "second membership"],
    ),
    "what is of a project that is gone is left out": (
        {"topics": [topic(**GONE)], "subscriptions": [subscription(**GONE)],
         "schemas": [document(uuid="s", name="s", type="json", raw_schema="e30=", **GONE)]},
        lambda done: done.topics + done.subscriptions + done.schemas, [], ["schema", "topic", "subscription"],
    ),
    "two users of a uuid go over, and it names the oldest": (
        {"users": [user(projects=[CONSUMER]), user("bob", uuid=ANN, projects=[CONSUMER])],
         "topics": [topic(acl=[ANN])]},
        lambda done: ([(each.name, each.id) for each in done.users], [each.user for each in done.memberships],
                      done.topics[0].line.authorized),
        ([("ann", ANN), ("bob", None)], ["ann", "bob"], ("ann",)), ["uuid"],
    ),
    "nobody is who made what names nobody": (
        {"users": [user(uuid="", created_by=""), user("bob", created_by="")], "projects": [project(created_by="")]},
        lambda done: [each.created_by for each in done.users + done.projects], [None, None, None], ["uuid"],
    ),
    "a schema that cannot be read is left out": (
        {"schemas": [document(uuid="s", project_uuid=P, name="x", type="json", raw_schema="no base64")]},
        lambda done: done.schemas, [], ["schema"],
    ),
    "a list loses who is gone": (
        {"topics": [topic(acl=[ANN, "gone", ANN]), topic("u", acl=None)]},
        lambda done: done.topics[0].line.authorized, ("ann",), ["access list", "access list"],
    ),
    "a subscription whose topic is gone goes over": (
        {"subscriptions": [subscription(topic="gone", offset=7)]},
        lambda done: [(each.topic, each.offset) for each in done.subscriptions], [("gone", 7)], ["topic"],
    ),
    "a pull subscription that once had push is nothing odd": (
        {"topics": [topic()], "subscriptions": [subscription(authorization_type="autogen", max_messages=1)]},
        lambda done: [each.push for each in done.subscriptions], [None], [],
    ),
    "users come after who made them": (
        {"users": [user("bob", created_by=ANN), user("ann", created_by="")]},
        lambda done: [(each.name, each.created_by) for each in done.users], [("ann", None), ("bob", "ann")], [],
    ),
    "users who made each other go over": (
        {"users": [user("bob", created_by=ANN), user("ann", created_by=BOB)]}, lambda done: len(done.users), 2, [],
    ),
    "two topics of a name are one with the newest date and both lists": (
        {"bounds": {"t": KafkaBounds(0, 5)}, "users": [user(), user("bob")],
         "topics": [topic(acl=[ANN], msg_num=3), topic(acl=[BOB, ANN], msg_num=2, created_on=LATER)]},
        lambda done: [(each.line.authorized, each.line.created_on, each.line.tally.messages) for each in done.topics],
        [(("ann", "bob"), round(LATER.timestamp() * 1000), 5)], ["second topic", "access list"],
    ),
    "a subscription beyond the end of a topic that was made again begins at its beginning": (
        {"bounds": {"t": KafkaBounds(0, 5)}, "topics": [topic(msg_num=5, created_on=LATER)],
         "subscriptions": [subscription(offset=700)]},
        lambda done: done.subscriptions[0].offset, 0, ["offset"],
    ),
    "a push configuration keeps its hash, header and state": (
        {"topics": [topic()], "subscriptions": [subscription(**PUSH)]},
        lambda done: push_fields(done, "type", "endpoint", "max_messages", "header_type", "header_value",
                            "verification_hash", "retry_policy", "retry_period", "verified", "base64_decode"),
        ["http_endpoint", PUSH["push_endpoint"], 5, "autogen", "value", "hash", "linear", 3000, True, True], [],
    ),
    "a mattermost hook has no header and at least one message": (
        {"topics": [topic()], "subscriptions": [subscription(**HOOK)]},
        lambda done: push_fields(done, "type", "header_type", "header_value", "max_messages"),
        ["mattermost", "", "", 1], [],
    ),
    "days are added up and fit what the topic has": (
        {"bounds": {"t": KafkaBounds(0, 10)}, "topics": [topic(msg_num=10)],
         "daily_topic_msg_count": [day(100, 1), day(4, 2), day(3, 2), day(2, 3), day(9, 3, "gone")]},
        lambda done: (done.projects[0].days, done.topics[0].line.days),
        ((Day("2024-05-01", 100, 0), Day("2024-05-02", 7, 0), Day("2024-05-03", 11, 0)),
         (Day("2024-05-01", 1, 0), Day("2024-05-02", 7, 0), Day("2024-05-03", 2, 0))), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("documents", "look", "expected", "odd"), BECOMES.values(), ids=BECOMES)
def test_each_document_becomes_what_the_rules_say(
    documents: dict[str, Any], look: Callable[[Converted], Any], expected: Any, odd: list[str]
) -> None:
    done = convert_and_check(**documents)
    assert (look(done), kinds(done)) == (expected, odd)


@pytest.mark.parametrize("old", ["admin", "6D0F1A54-6F0E-4BD3-9A3E-0D6B7A2F4C11", ""])
def test_a_uuid_that_is_none_becomes_another_and_what_named_it_follows(old: str) -> None:
    done = convert_and_check(users=[user(uuid=old)], topics=[topic(acl=[old])])
    assert (done.users[0].id, done.topics[0].line.authorized, kinds(done)) == (None, ("ann",), ["uuid"])


def test_memberships_of_old_versions_lack_lists() -> None:
    for said in ({}, {"roles": None}, {"roles": []}):
        done = convert_and_check(users=[user(projects=[{"project_uuid": P, **said}], service_roles=None)])
        assert [(each.user, each.project, each.roles) for each in done.memberships] == [("ann", "EGI", ())]


def test_a_name_that_nobody_could_ask_for_is_mended_and_takes_nobody_elses() -> None:
    other = str(uuid.uuid4())
    done = convert_and_check(
        projects=[project("EGI ops/test"), project("EGI_ops_test", other)],
        topics=[topic("a b", project_uuid=P), topic("a_b", project_uuid=P), topic("a/b", project_uuid=P)],
        subscriptions=[subscription(topic="a b"), subscription("u", topic="a/b")],
    )

    assert [(each.name, each.id) for each in done.projects] == [("EGI_ops_test_2", P), ("EGI_ops_test", other)]
    assert [each.line.name for each in done.topics] == ["a_b_2", "a_b", "a_b_3"]
    assert [each.topic for each in done.subscriptions] == ["a_b_2", "a_b_3"]
    assert kinds(done) == ["name", "name", "name"]


def test_a_schema_is_decoded_and_attached() -> None:
    schema = {"type": "object", "required": ["site"]}
    raw = base64.b64encode(json.dumps(schema).encode()).decode()
    kept = document(uuid=str(uuid.uuid4()), project_uuid=P, name="x", type="JSON", raw_schema=raw)

    done = convert_and_check(
        schemas=[kept], topics=[topic(schema_uuid=kept["uuid"]), topic("u", schema_uuid="nobody's")]
    )

    assert json.loads(done.schemas[0].revisions[0].payload or "") == schema
    assert ([each.line.schema for each in done.topics], kinds(done)) == (["x", None], ["schema"])


def test_a_date_that_is_missing_is_when_the_document_was_made() -> None:
    old = topic(created_on=NEVER)
    done = convert_and_check(topics=[old])
    assert done.topics[0].line.created_on == int(old["_id"][:8], 16) * 1000
    assert kinds(done) == ["date"]


@pytest.mark.parametrize(("offset", "expected", "lost", "odd"), [
    (0, 40, 40, True), (39, 40, 1, True), (40, 40, 0, False), (55, 55, 0, False), (60, 60, 0, False),
    (61, 60, 0, True), (9999, 60, 0, True), (-1, 40, 0, True),
])  # fmt: skip
def test_a_subscription_stands_where_the_original_was(offset: int, expected: int, lost: int, odd: bool) -> None:
    done = convert_and_check(
        {"t": KafkaBounds(40, 60)}, topics=[topic(msg_num=60)], subscriptions=[subscription(offset=offset)]
    )
    [one] = done.subscriptions
    assert (one.offset, one.lost) == (expected, lost)
    assert kinds(done) == (["offset"] if odd else [])


def test_what_was_no_push_or_cannot_be_one_is_pulled_from_and_told() -> None:
    for fields in (
        {**PUSH, "push_type": ""}, {**PUSH, "push_endpoint": "http://endpoint.egi.example"},
        {**PUSH, "push_endpoint": "https://user:s3cret@endpoint.egi.example"},
        {"push_endpoint": "https://old.egi.example"},
    ):  # fmt: skip
        done = convert_and_check(topics=[topic()], subscriptions=[subscription(**fields)])
        assert (done.subscriptions[0].push, kinds(done)) == (None, ["push"])


def test_the_newest_of_several_pending_registrations_goes_over() -> None:
    def make_registration(name: str, status: str, **fields: Any) -> dict[str, Any]:
        return document(
            uuid=str(uuid.uuid4()), name=name, status=status, registered_at="2021-02-03T04:05:06Z", **fields
        )

    done = convert_and_check(
        user_registrations=[
            make_registration("eve", "pending", email="old"), make_registration("eve", "pending", email="new"),
            make_registration("dan", "declined", decline_comment="no", modified_by=ANN, modified_at=""),
        ]
    )  # fmt: skip

    assert [(each.name, each.email, each.status) for each in done.registrations] == [
        ("eve", "new", "pending"), ("dan", "", "declined"),
    ]  # fmt: skip
    assert (done.registrations[1].modified_by, done.registrations[1].modified_at) == ("ann", None)
    assert (done.registrations[0].registered_at, kinds(done)) == (1612325106000, ["registration"])


def test_a_rate_stays_and_one_that_is_none_leaves_the_last_time() -> None:
    def tally(**fields: Any) -> Any:
        return (
            convert_and_check({"t": KafkaBounds(0, 5)}, topics=[topic(msg_num=5, latest_publish=MADE, **fields)])
            .topics[0].line.tally
        )  # fmt: skip

    kept = tally(publish_rate=2.5)
    assert kept.last_messages / ((kept.last - kept.before) / 1000) == 2.5
    for rate in (float("inf"), -1.5, 0.0, None):
        none = tally(publish_rate=rate)
        assert (none.last, none.before, none.last_messages) == (MILLISECONDS, None, 0)


def test_messages_are_kept_as_long_as_kafka_kept_them_and_deadlines_are_cut_to_what_is_allowed() -> None:
    for age, expected in ((3_600_000, 3_600_000), (-1, 365 * 86_400_000), (None, None)):
        done = convert_and_check({"t": KafkaBounds(0, 5, age)}, topics=[topic(msg_num=5)])
        assert done.topics[0].line.retention == expected
    for ack, seconds in ((-5, 0), (0, 0), (600, 600), (86_400, 600), (12.0, 12), (None, 10)):
        done = convert_and_check(topics=[topic()], subscriptions=[subscription(ack=ack)])
        assert done.subscriptions[0].ack_deadline_seconds == seconds


def test_a_second_run_gives_the_same_ids() -> None:
    documents = {"projects": [project()], "users": [user()], "topics": [topic()], "subscriptions": [subscription()]}
    first, second = ([encode_line(line) for line in convert_and_check(**documents).lines()] for _ in range(2))
    assert first == second


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**62), st.floats(), st.text(max_size=8), st.just(P), st.just(ANN),
    st.lists(st.one_of(st.just(ANN), st.text(max_size=4)), max_size=3), st.datetimes(), st.just(NEVER),
)  # fmt: skip
FIELDS = {
    "topics": ["name", "acl", "schema_uuid", "created_on", "msg_num", "total_bytes", "latest_publish", "publish_rate"],
    "subscriptions": ["name", "topic", "acl", "offset", "ack", "msg_num", "push_type", "push_endpoint", "max_messages",
                      "retry_policy", "retry_period", "verified", "latest_consume", "consume_rate", "created_on"],
    "users": ["name", "uuid", "token", "email", "service_roles", "projects", "created_on", "created_by"],
    "schemas": ["name", "uuid", "type", "raw_schema"],
    "user_registrations": ["name", "uuid", "status", "registered_at", "modified_by"],
    "daily_topic_msg_count": ["date", "topic_name", "msg_count"],
}  # fmt: skip
rubbish = st.fixed_dictionaries({
    name: st.lists(
        st.dictionaries(st.sampled_from(fields), values, max_size=len(fields)).map(
            lambda found: document(**{"project_uuid": P, **found})
        ),
        max_size=4,
    )
    for name, fields in FIELDS.items()
})  # fmt: skip


@given(rubbish)
def test_whatever_the_documents_hold_what_comes_of_them_can_be_imported(collections: dict[str, Any]) -> None:
    collections["users"] = [user(), *collections["users"]]
    convert_and_check({"t": KafkaBounds(3, 9)}, **collections)
