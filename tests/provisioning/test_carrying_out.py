"""The calls of steps, and what comes of steps that fail."""

import functools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ams.cli.apply import KeptTokens
from ams.client import wire
from ams.client.errors import InvalidInput, Unavailable, Unreachable
from ams.client.wire import Call
from ams.provisioning.carrying_out import CarryingOut, carry_out
from ams.provisioning.declared import Change, Existing, Fields, Key, Kind, Step

P = "/v1/projects/p"
REFERENCE = {"schema": "projects/p/schemas/x"}


def sent(change: Change, kind: Kind, name: str, **fields: Any) -> list[tuple[str, str, Any]]:
    """Return method, path and body of each call of a step in project p; who asks for an access list finds a worker."""
    project = "" if kind in (Kind.USER, Kind.PROJECT) else "p"
    made: list[tuple[str, str, Any]] = []

    def ask(call: Call[Any]) -> Any:
        made.append((call.method, call.path, json.loads(call.body) if call.body else None))
        return call.read(b'{"authorized_users":["worker"]}') if call.path.endswith(":acl") else None

    CarryingOut(ask, print).do(Step(change, Key(kind, project, name), fields))
    return made


ADD, ALTER, REMOVE = Change.ADD, Change.ALTER, Change.REMOVE

ALTERED: list[tuple[Kind, Fields, tuple[str, str, Any]]] = [
    (Kind.USER, {"email": "a@site.example"}, ("PUT", "/v1/users/n", {"email": "a@site.example"})),
    (Kind.USER, {"service_roles": ()}, ("PUT", "/v1/users/n", {"service_roles": []})),
    (Kind.PROJECT, {"description": "d"}, ("PUT", "/v1/projects/n", {"description": "d"})),
    (Kind.PROJECT, {"retention": 60}, ("POST", "/v1/projects/n:modifyRetention", {"retentionSeconds": 60})),
    (Kind.MEMBER, {"roles": ("r",)}, ("PUT", f"{P}/members/n", {"projects": [{"project": "p", "roles": ["r"]}]})),
    (Kind.SCHEMA, {"schema": {"a": 1}}, ("PUT", f"{P}/schemas/n", {"schema": {"a": 1}})),
    (Kind.SCHEMA, {"attributes": {}}, ("PUT", f"{P}/schemas/n", {"attributes": {}})),
    (Kind.TOPIC, {"schema": "x"}, ("POST", f"{P}/topics/n:attachSchema", REFERENCE)),
    (Kind.TOPIC, {"schema": ""}, ("POST", f"{P}/topics/n:detachSchema", None)),
    (Kind.TOPIC, {"retention": 0}, ("POST", f"{P}/topics/n:modifyRetention", {"retentionSeconds": 0})),
    (Kind.TOPIC, {"access": ("u",)}, ("POST", f"{P}/topics/n:modifyAcl", {"authorized_users": ["u"]})),
    (
        Kind.SUBSCRIPTION,
        {"ackDeadline": 0},
        ("POST", f"{P}/subscriptions/n:modifyAckDeadline", {"ackDeadlineSeconds": 0}),
    ),
    (
        Kind.SUBSCRIPTION,
        {"retryPolicy": {}, "retainAckedMessages": False, "messageRetentionDuration": ""},
        (
            "POST",
            f"{P}/subscriptions/n:update",
            {"retryPolicy": None, "retainAckedMessages": False, "messageRetentionDuration": None},
        ),
    ),
    (
        Kind.SUBSCRIPTION,
        {"deadLetterPolicy": {"deadLetterTopic": "d", "maxDeliveryAttempts": 5}, "expirationPolicy": {"ttl": "1s"}},
        (
            "POST",
            f"{P}/subscriptions/n:update",
            {
                "deadLetterPolicy": {"deadLetterTopic": "d", "maxDeliveryAttempts": 5},
                "expirationPolicy": {"ttl": "1s"},
            },
        ),
    ),
    (Kind.SUBSCRIPTION, {"access": ()}, ("POST", f"{P}/subscriptions/n:modifyAcl", {"authorized_users": []})),
    (Kind.SUBSCRIPTION, {"push": {}}, ("POST", f"{P}/subscriptions/n:modifyPushConfig", {"pushConfig": {}})),
    (
        Kind.SUBSCRIPTION,
        {"push": {"type": "http_endpoint", "pushEndpoint": "https://a.example", "base64Decode": False}},
        (
            "POST",
            f"{P}/subscriptions/n:modifyPushConfig",
            {"pushConfig": {"type": "http_endpoint", "pushEndpoint": "https://a.example", "base64Decode": False}},
        ),
    ),
]


@pytest.mark.parametrize(("kind", "fields", "call"), ALTERED)
def test_each_field_has_its_call(kind: Kind, fields: Fields, call: tuple[str, str, Any]) -> None:
    assert sent(ALTER, kind, "n", **fields) == [call]


def test_a_new_resource_is_made_and_then_given_what_its_making_cannot_say() -> None:
    assert [path for _, path, _ in sent(ADD, Kind.PROJECT, "n", description="d", retention=60)] == [
        "/v1/projects/n",
        "/v1/projects/n:modifyRetention",
    ]
    assert [path for _, path, _ in sent(ADD, Kind.TOPIC, "n", retention=60, access=("u",))] == [
        f"{P}/topics/n",
        f"{P}/topics/n:modifyRetention",
        f"{P}/topics/n:modifyAcl",
    ]


def test_a_schema_is_made_whole() -> None:
    made = sent(ADD, Kind.SCHEMA, "n", type="json", schema={"a": 1}, attributes={"required": ["b"]})

    body = {"type": "json", "schema": {"a": 1}, "attributes": {"required": ["b"]}}
    assert made == [("POST", f"{P}/schemas/n", body)]


def test_what_is_so_from_the_beginning_is_not_said() -> None:
    assert len(sent(ADD, Kind.TOPIC, "n", schema="", retention=0, access=())) == 1
    assert len(sent(ADD, Kind.SUBSCRIPTION, "n", topic="t", push={}, access=())) == 1


def test_a_topic_is_made_with_its_schema() -> None:
    assert sent(ADD, Kind.TOPIC, "n", schema="x") == [("PUT", f"{P}/topics/n", REFERENCE)]


def test_a_subscription_is_made_with_its_push_and_the_worker_stays_on_its_access_list() -> None:
    push = {"type": "mattermost", "mattermostUrl": "https://chat.example"}
    made = sent(ADD, Kind.SUBSCRIPTION, "n", topic="t", ackDeadline=5, push=push, access=("u",))

    body = {"topic": "projects/p/topics/t", "ackDeadlineSeconds": 5, "pushConfig": push}
    assert made == [
        ("PUT", f"{P}/subscriptions/n", body),
        ("GET", f"{P}/subscriptions/n:acl", None),
        ("POST", f"{P}/subscriptions/n:modifyAcl", {"authorized_users": ["u", "worker"]}),
    ]


def test_a_parallel_subscription_is_made_with_its_options() -> None:
    options = {"filter": "attributes:a", "retryPolicy": {"minimumBackoff": "1s", "maximumBackoff": "2s"}}
    made = sent(ADD, Kind.SUBSCRIPTION, "n", topic="t", type="parallel", expirationPolicy={}, **options)

    body = {"topic": "projects/p/topics/t", "type": "parallel", **options}
    assert made == [("PUT", f"{P}/subscriptions/n", body)]
    assert sent(ADD, Kind.SUBSCRIPTION, "n", topic="t", type="ordered") == [
        ("PUT", f"{P}/subscriptions/n", {"topic": "projects/p/topics/t"})
    ]


def test_push_is_altered_after_the_access_list_on_which_it_puts_its_worker() -> None:
    made = sent(ALTER, Kind.SUBSCRIPTION, "n", ackDeadline=5, push={"type": "mattermost"}, access=("u",))

    verbs = [path.rpartition("/n")[2] for _, path, _ in made]
    assert verbs == [":modifyAckDeadline", ":modifyAcl", ":modifyPushConfig"]


def test_a_deadline_of_0_is_set_after_the_making_which_takes_it_as_nothing_said() -> None:
    made = sent(ADD, Kind.SUBSCRIPTION, "n", topic="t", ackDeadline=0)

    assert made[-1] == ("POST", f"{P}/subscriptions/n:modifyAckDeadline", {"ackDeadlineSeconds": 0})


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (Kind.MEMBER, ("POST", f"{P}/members/n:remove", None)),
        (Kind.SCHEMA, ("DELETE", f"{P}/schemas/n", None)),
        (Kind.TOPIC, ("DELETE", f"{P}/topics/n", None)),
        (Kind.SUBSCRIPTION, ("DELETE", f"{P}/subscriptions/n", None)),
    ],
)
def test_what_may_be_removed_has_its_call(kind: Kind, call: tuple[str, str, Any]) -> None:
    assert sent(REMOVE, kind, "n") == [call]


STEPS = [
    Step(Change.ADD, Key(Kind.TOPIC, "p", "t"), {"retention": 60}),
    Step(Change.ADD, Key(Kind.TOPIC, "p", "u"), {}),
]


class Failing:
    """Answers so many calls, and no more."""

    def __init__(self, answers: int) -> None:
        self._left = answers

    def __call__(self, call: Call[object]) -> None:
        if self._left == 0:
            raise Unavailable("no more")
        self._left -= 1


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (0, ["not done: + topic p/t", "not done: + topic p/u"]),
        (1, ["half done: + topic p/t", "not done: + topic p/u"]),
        (2, ["done: + topic p/t", "not done: + topic p/u"]),
    ],
)
def test_a_step_of_which_a_call_succeeded_is_half_done(answers: int, said: list[str]) -> None:
    told: list[str] = []
    with pytest.raises(Unavailable):
        carry_out(STEPS, Failing(answers), KeptTokens(None), list, told.append)

    assert told == said


class Ams:
    """An AMS that takes all users but one, and keeps one access list."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.listed: list[str] = []

    def __call__(self, call: Call[Any], /) -> Any:
        if call.path.endswith(f"/members/{self.refused}:add"):
            raise InvalidInput("no")
        if call.path.endswith(":modifyAcl"):
            self.listed = json.loads(call.body or b"")["authorized_users"]
            return None
        if call.path.endswith(":acl"):
            return wire.Acl(authorized_users=list(self.listed))
        return SimpleNamespace(uuid="u")


def test_a24_who_could_not_join_is_kept_off_the_list_that_the_others_get_on() -> None:
    ams = Ams(refused="bad")
    steps = [
        Step(Change.ADD, Key(Kind.MEMBER, "p", "bad"), {"roles": ("publisher",)}, "one"),
        Step(Change.ADD, Key(Kind.BINDING, "", "bad"), {"user": "bad"}, "one"),
        Step(Change.ADD, Key(Kind.MEMBER, "p", "good"), {"roles": ("publisher",)}, "two"),
        Step(Change.ADD, Key(Kind.PUBLISHERS, "p", "shared"), {"users": ("bad", "good")}),
    ]

    outcome = CarryingOut(ams, print, each_alone=True).run(steps)

    assert ams.listed == ["good"]
    assert outcome.failed == [(steps[0], "no")]
    assert outcome.done == steps[2:]


def test_a_service_that_is_away_ends_everything() -> None:
    def away(call: Call[Any]) -> Any:
        raise Unreachable("no connection")

    with pytest.raises(Unreachable):
        CarryingOut(away, print, each_alone=True).run(STEPS)


def test_a_binding_of_a_user_who_was_no_member_before_is_left_as_it_is() -> None:
    asked: list[str] = []

    def ask(call: Call[Any]) -> Any:
        asked.append(f"{call.method} {call.path}")
        return SimpleNamespace(uuid="u")

    binding = Key(Kind.BINDING, "", "b")
    existing = Existing({binding: {"auth_identifier": "CN=x", "unique_key": "u", "user": ""}})
    find_user = functools.partial(wire.get_member, "p")
    carrying_out = CarryingOut(ask, print, existing=existing, find_user=find_user, each_alone=True)

    outcome = carrying_out.run([Step(Change.ALTER, binding, {"user": "adopted"})])

    assert (outcome.done, outcome.failed) == ([], [])
    assert asked == ["GET /v1/projects/p/members/adopted"]
