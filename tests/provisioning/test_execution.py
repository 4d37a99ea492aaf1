"""The calls of steps, and steps that fail or that somebody else overtakes."""

import functools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ams.cli.apply import KeptTokens
from ams.client import wire
from ams.client.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound, Unavailable, Unreachable
from ams.client.wire import Call
from ams.core.errors import BadSettings
from ams.core.quotas import QUOTAS
from ams.provisioning.declarations import Existing, Fields, ResourceKey, ResourceKind, Step, StepSign
from ams.provisioning.execution import LIST_ROUNDS, ROUNDS, CarryingOut, carry_out, change_list
from tests.provisioning.conftest import Project

P = "/v1/projects/p"
SUBSCRIPTION = f"{P}/subscriptions/n"


def calls_of_step(change: StepSign, kind: ResourceKind, name: str, **fields: Any) -> list[tuple[str, str, Any]]:
    """Return method, path and body of each call of a step in project p; access lists contain a worker."""
    project = "" if kind in (ResourceKind.USER, ResourceKind.PROJECT) else "p"
    made: list[tuple[str, str, Any]] = []

    def ask(call: Call[Any]) -> Any:
        made.append((call.method, call.path, json.loads(call.body) if call.body else None))
        return call.read(b'{"authorized_users":["worker"]}') if call.path.endswith(":acl") else None

    CarryingOut(ask, print).do(Step(change, ResourceKey(kind, project, name), fields))
    return made


ADD, ALTER, REMOVE = StepSign.ADD, StepSign.ALTER, StepSign.REMOVE

PUSH: Fields = {"type": "http_endpoint", "pushEndpoint": "https://a.example", "base64Decode": False}
SET: Fields = {
    "deadLetterPolicy": {"deadLetterTopic": "d", "maxDeliveryAttempts": 5}, "expirationPolicy": {"ttl": "1s"},
}  # fmt: skip
ALTERED: list[tuple[ResourceKind, Fields, tuple[str, str, Any]]] = [
    (ResourceKind.USER, {"email": "a@site.example"}, ("PUT", "/v1/users/n", {"email": "a@site.example"})),
    (ResourceKind.PROJECT, {"description": "d"}, ("PUT", "/v1/projects/n", {"description": "d"})),
    (ResourceKind.PROJECT, {"quotas": {"topics": 5}}, ("POST", "/v1/projects/n:modifyQuotas", {"quotas": {
        **dict.fromkeys(QUOTAS), "topics": 5}})),
    (ResourceKind.PROJECT, {"retention": 60}, ("POST", "/v1/projects/n:modifyRetention", {"retentionSeconds": 60})),
    (ResourceKind.MEMBER, {"roles": ("r",)},
        ("PUT", f"{P}/members/n", {"projects": [{"project": "p", "roles": ["r"]}]})),
    (ResourceKind.SCHEMA, {"schema": {"a": 1}}, ("PUT", f"{P}/schemas/n", {"schema": {"a": 1}})),
    (ResourceKind.TOPIC, {"schema": "x"}, ("POST", f"{P}/topics/n:attachSchema", {"schema": "projects/p/schemas/x"})),
    (ResourceKind.TOPIC, {"schema": ""}, ("POST", f"{P}/topics/n:detachSchema", None)),
    (ResourceKind.TOPIC, {"retention": 0}, ("POST", f"{P}/topics/n:modifyRetention", {"retentionSeconds": 0})),
    (ResourceKind.TOPIC, {"access": ("u",)}, ("POST", f"{P}/topics/n:modifyAcl", {"authorized_users": ["u"]})),
    (ResourceKind.SUBSCRIPTION, {"access": ()}, ("POST", f"{SUBSCRIPTION}:modifyAcl", {"authorized_users": []})),
    (ResourceKind.SUBSCRIPTION, {"push": PUSH}, ("POST", f"{SUBSCRIPTION}:modifyPushConfig", {"pushConfig": PUSH})),
    (ResourceKind.SUBSCRIPTION, {"ackDeadline": 0},
        ("POST", f"{SUBSCRIPTION}:modifyAckDeadline", {"ackDeadlineSeconds": 0})),
    (ResourceKind.SUBSCRIPTION, SET, ("POST", f"{SUBSCRIPTION}:update", SET)),
    (ResourceKind.SUBSCRIPTION, {"retryPolicy": {}, "retainAckedMessages": False, "messageRetentionDuration": ""},
     ("POST", f"{SUBSCRIPTION}:update",
      {"retryPolicy": None, "retainAckedMessages": False, "messageRetentionDuration": None})),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "call"), ALTERED)
def test_each_field_has_its_call(kind: ResourceKind, fields: Fields, call: tuple[str, str, Any]) -> None:
    assert calls_of_step(ALTER, kind, "n", **fields) == [call]


HOOK: Fields = {"type": "mattermost", "mattermostUrl": "https://chat.example"}
OPTIONS = {"filter": "attributes:a", "retryPolicy": {"minimumBackoff": "1s", "maximumBackoff": "2s"}}
ON_T = {"topic": "projects/p/topics/t"}
MADE: dict[str, tuple[ResourceKind, Fields, list[tuple[str, str, Any]]]] = {
    "a project, and then its retention": (ResourceKind.PROJECT, {"description": "d", "retention": 60}, [
        ("POST", "/v1/projects/n", {"description": "d"}),
        ("POST", "/v1/projects/n:modifyRetention", {"retentionSeconds": 60})]),
    "a topic, and then what its making cannot say": (ResourceKind.TOPIC, {"retention": 60, "access": ("u",)}, [
        ("PUT", f"{P}/topics/n", None),
        ("POST", f"{P}/topics/n:modifyRetention", {"retentionSeconds": 60}),
        ("POST", f"{P}/topics/n:modifyAcl", {"authorized_users": ["u"]})]),
    "a topic without what is so from the beginning": (ResourceKind.TOPIC, {"schema": "", "retention": 0, "access": ()},
        [
        ("PUT", f"{P}/topics/n", None)]),
    "a subscription without what is so from the beginning": (
        ResourceKind.SUBSCRIPTION, {"topic": "t", "push": {}, "access": (), "type": "ordered"},
        [("PUT", SUBSCRIPTION, ON_T)]),
    "a subscription with its push, whose worker stays on the access list": (
        ResourceKind.SUBSCRIPTION, {"topic": "t", "ackDeadline": 5, "push": HOOK, "access": ("u",)}, [
            ("PUT", SUBSCRIPTION, {**ON_T, "ackDeadlineSeconds": 5, "pushConfig": HOOK}),
            ("GET", f"{SUBSCRIPTION}:acl", None),
            ("POST", f"{SUBSCRIPTION}:modifyAcl", {"authorized_users": ["u", "worker"]})]),
    "a parallel subscription": (ResourceKind.SUBSCRIPTION, {
        "topic": "t", "type": "parallel", "expirationPolicy": {}, **OPTIONS}, [
            ("PUT", SUBSCRIPTION, {**ON_T, "type": "parallel", **OPTIONS})]),
    "a deadline of 0 after the making, which takes it as nothing said": (
        ResourceKind.SUBSCRIPTION, {"topic": "t", "ackDeadline": 0}, [
            ("PUT", SUBSCRIPTION, {**ON_T, "ackDeadlineSeconds": 0}),
            ("POST", f"{SUBSCRIPTION}:modifyAckDeadline", {"ackDeadlineSeconds": 0})]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "calls"), MADE.values(), ids=MADE)
def test_a_new_resource_is_made_then_given_more(
    kind: ResourceKind, fields: Fields, calls: list[tuple[str, str, Any]]
) -> None:
    assert calls_of_step(ADD, kind, "n", **fields) == calls


def test_push_is_altered_after_the_access_list_on_which_it_puts_its_worker() -> None:
    made = calls_of_step(
        ALTER, ResourceKind.SUBSCRIPTION, "n", ackDeadline=5, push={"type": "mattermost"}, access=("u",)
    )
    verbs = [path.rpartition("/n")[2] for _, path, _ in made]
    assert verbs == [":modifyAckDeadline", ":modifyAcl", ":modifyPushConfig"]


def test_what_may_be_removed_has_its_call() -> None:
    assert calls_of_step(REMOVE, ResourceKind.MEMBER, "n") == [("POST", f"{P}/members/n:remove", None)]
    for kind, path in (
        (ResourceKind.SCHEMA, "schemas/n"),
        (ResourceKind.TOPIC, "topics/n"),
        (ResourceKind.SUBSCRIPTION, "subscriptions/n"),
    ):
        assert calls_of_step(REMOVE, kind, "n") == [("DELETE", f"{P}/{path}", None)]


STEPS = [
    Step(StepSign.ADD, ResourceKey(ResourceKind.TOPIC, "p", "t"), {"retention": 60}),
    Step(StepSign.ADD, ResourceKey(ResourceKind.TOPIC, "p", "u"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "said"), [
    (0, ["not done: + topic p/t", "not done: + topic p/u"]), (1, ["half done: + topic p/t", "not done: + topic p/u"]),
    (2, ["done: + topic p/t", "not done: + topic p/u"]),
])  # fmt: skip
def test_a_step_of_which_a_call_succeeded_is_half_done(answers: int, said: list[str]) -> None:
    told: list[str] = []
    left = iter(range(answers))

    def ask(_: Call[Any]) -> None:
        if next(left, None) is None:
            raise Unavailable("no more")

    with pytest.raises(Unavailable):
        carry_out(STEPS, ask, KeptTokens(None), list, told.append)

    assert told == said


class Ams:
    """An AMS that accepts all users but one, and stores one access list."""

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
            return wire.Versioned(wire.Acl(authorized_users=list(self.listed)), '"1"')
        return SimpleNamespace(uuid="u")


def test_a24_who_could_not_join_is_kept_off_the_list_that_the_others_get_on() -> None:
    ams = Ams(refused="bad")
    steps = [Step(StepSign.ADD, ResourceKey(ResourceKind.MEMBER, "p", "bad"), {"roles": ("publisher",)}, "one"),
             Step(StepSign.ADD, ResourceKey(ResourceKind.BINDING, "", "bad"), {"user": "bad"}, "one"),
             Step(StepSign.ADD, ResourceKey(ResourceKind.MEMBER, "p", "good"), {"roles": ("publisher",)}, "two"),
             Step(StepSign.ADD, ResourceKey(ResourceKind.PUBLISHERS, "p", "shared"),
                 {"users": ("bad", "good")})]  # fmt: skip

    outcome = CarryingOut(ams, print, each_alone=True).run(steps)

    assert ams.listed == ["good"]
    assert outcome.failed == [(steps[0], "no")]
    assert outcome.done == steps[2:]


@pytest.mark.parametrize(("user", "asked"), [
    (NotFound("no"), ["GET /v1/users/n", f"POST {P}/members/n"]),
    (None, ["GET /v1/users/n", f"POST {P}/members/n:add"]),
    (NotAllowed("no"), ["GET /v1/users/n", f"POST {P}/members/n"]),
])  # fmt: skip
def test_a_new_member_asks_for_nothing_that_is_refused(user: Exception | None, asked: list[str]) -> None:
    """Each refusal would be an event in the audit log."""
    found: list[str] = []

    def ask(call: Call[Any]) -> Any:
        found.append(f"{call.method} {call.path}")
        if call.method == "GET" and user is not None:
            raise user
        return SimpleNamespace(uuid="u")

    CarryingOut(ask, print).do(Step(ADD, ResourceKey(ResourceKind.MEMBER, "p", "n"), {"roles": ("publisher",)}))

    assert found == asked


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

    binding = ResourceKey(ResourceKind.BINDING, "", "b")
    existing = Existing({binding: {"auth_identifier": "CN=x", "unique_key": "u", "user": ""}})
    find_user = functools.partial(wire.get_member, "p")
    carrying_out = CarryingOut(ask, print, existing=existing, find_user=find_user, each_alone=True)

    outcome = carrying_out.run([Step(StepSign.ALTER, binding, {"user": "adopted"})])

    assert (outcome.done, outcome.failed) == ([], [])
    assert asked == ["GET /v1/projects/p/members/adopted"]


TOPIC = Step(StepSign.ADD, ResourceKey(ResourceKind.TOPIC, "p", "t"), {"access": ("m",)})
MEMBER = Step(StepSign.ADD, ResourceKey(ResourceKind.MEMBER, "p", "m"), {"roles": ("publisher",)})
TAKEN = AlreadyExists("Topic already exists", 409)
GONE = Step(StepSign.REMOVE, ResourceKey(ResourceKind.TOPIC, "p", "old"), {})


class Service:
    """Refuses calls whose method or path ends so, and remembers the rest."""

    def __init__(self, refused: dict[str, Exception]) -> None:
        self.refused = refused
        self.done: list[str] = []

    def __call__(self, call: Call[Any]) -> None:
        place = f"{call.method} {call.path}"
        for part, error in self.refused.items():
            if place.startswith(part) or place.endswith(part):
                raise error
        if call.method != "GET":
            self.done.append(place)


def test_what_somebody_else_made_does_not_end_it_and_what_differs_then_is_done() -> None:
    said: list[str] = []
    service = Service({"PUT": TAKEN, "DELETE": NotFound("Topic doesn't exist", 404)})
    plans = iter([[Step(StepSign.ALTER, TOPIC.key, TOPIC.fields)], []])

    carry_out([TOPIC, GONE], service, KeptTokens(None), lambda: next(plans), said.append)

    assert service.done == ["POST /v1/projects/p/topics/t:modifyAcl"]
    assert said == ["done by somebody else: + topic p/t", "done by somebody else: - topic p/old", "done: ~ topic p/t"]
    joined = Service({"m:add": Conflict("User is already a member of the project", 409)})
    carry_out([MEMBER], joined, KeptTokens(None), list, print)
    assert joined.done == []


def test_it_is_given_up_when_somebody_else_never_ends() -> None:
    plans: list[Step] = []

    def plan_steps() -> list[Step]:
        plans.append(TOPIC)
        return [TOPIC]

    with pytest.raises(BadSettings, match="somebody else"):
        carry_out([TOPIC], Service({"PUT": TAKEN}), KeptTokens(None), plan_steps, print)

    assert len(plans) == ROUNDS


SHARED = "shared"


@pytest.fixture
def users(project: Project) -> list[str]:
    project.topic(SHARED)
    users = [f"{name}-{project.name}" for name in ("ours", "other", "third")]
    for user in users:
        project.client.call(wire.create_member(project.name, user, ["publisher"]))
    return users


def interrupt_after(project: Project, after: str, times: int, act: Callable[[], Any]) -> Callable[[Call[Any]], Any]:
    """Call the service, and let somebody else act each time after a call of this kind was answered."""
    left = [times]

    def ask(call: Call[Any]) -> Any:
        answer = project.client.call(call)
        if call.path.endswith(after) and left[0]:
            left[0] -= 1
            act()
        return answer

    return ask


def replace_acl(project: Project, *users: str) -> Callable[[], None]:
    return lambda: project.client.call(wire.modify_topic_acl(project.name, SHARED, users))


def test_a26_somebody_elses_list_that_came_after_ours_gets_our_users_too(project: Project, users: list[str]) -> None:
    ours, other, _ = users
    ask = interrupt_after(project, ":modifyAcl", 2, replace_acl(project, other))
    change_list(ask, ResourceKey(ResourceKind.PUBLISHERS, project.name, SHARED), add=[ours])
    assert project.on_list(SHARED) == sorted([ours, other])


def test_a26_a_list_that_was_changed_after_it_was_read_is_not_replaced(project: Project, users: list[str]) -> None:
    ours, other, third = users
    replace_acl(project, other)()
    ask = interrupt_after(project, ":acl", 1, replace_acl(project, other, third))

    change_list(ask, ResourceKey(ResourceKind.PUBLISHERS, project.name, SHARED), add=[ours])

    assert project.on_list(SHARED) == sorted([ours, other, third])


def test_a26_a_list_that_others_change_all_the_time_is_told(project: Project, users: list[str]) -> None:
    ours, other, _ = users
    ask = interrupt_after(project, ":modifyAcl", LIST_ROUNDS, replace_acl(project, other))
    with pytest.raises(Unavailable):
        change_list(ask, ResourceKey(ResourceKind.PUBLISHERS, project.name, SHARED), add=[ours])


def test_a26_users_of_others_stay_on_the_list_but_for_who_left_the_project(project: Project, users: list[str]) -> None:
    ours, other, third = users
    publishers = ResourceKey(ResourceKind.PUBLISHERS, project.name, SHARED)
    replace_acl(project, other, third)()
    change_list(project.client.call, publishers, add=[ours], remove=[third])
    assert project.on_list(SHARED) == sorted([ours, other])

    replace_acl(project, other, third)()
    project.client.call(wire.remove_member(project.name, third))

    change_list(project.client.call, publishers, add=[ours])
    assert project.on_list(SHARED) == sorted([ours, other])
    with pytest.raises(NotFound):
        change_list(project.client.call, publishers, add=["nobody"])
