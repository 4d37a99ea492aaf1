"""Single calls of a consumer: Pull, Acknowledge and ModifyAckDeadline."""

import threading
import time
from typing import Any

import pytest
from google.api_core.exceptions import Aborted, GoogleAPICallError, InvalidArgument, NotFound
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.pubsub.streams import refused

SECONDS = 20
SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
Acknowledge: Any = types.AcknowledgeRequest.pb()
Modify: Any = types.ModifyAckDeadlineRequest.pb()
Pull: Any = types.PullRequest.pb()


def publish(world: World, *data: bytes) -> None:
    for each in [world.publisher.publish(world.topic(), each, k="v") for each in data]:
        each.result(SECONDS)


def acknowledge(world: World, *ids: str) -> None:
    world.subscriber.acknowledge(request={"subscription": world.subscription(), "ack_ids": list(ids)})


def modify(world: World, seconds: int, *ids: str) -> None:
    request = {"subscription": world.subscription(), "ack_ids": list(ids), "ack_deadline_seconds": seconds}
    world.subscriber.modify_ack_deadline(request=request)


def test_each_message_is_acknowledged_by_itself_and_in_any_order(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"0", b"1", b"2")
    ids = {each.message.data: each.ack_id for each in world.pulled(subscription)}
    acknowledge(world, ids[b"2"], ids[b"0"], ids[b"0"])
    modify(world, 0, ids[b"1"], ids[b"2"])
    again = world.pulled(subscription)
    assert [each.message.data for each in again] == [b"1"]
    assert again[0].ack_id != ids[b"1"]


def test_a_message_that_comes_again_is_the_same_one(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"x")
    first = world.pulled(subscription)[0]
    assert first.delivery_attempt == 0
    modify(world, 1, first.ack_id)
    assert world.pulled(subscription) == []
    ended = time.monotonic() + SECONDS
    while not (again := world.pulled(subscription)) and time.monotonic() < ended:
        time.sleep(0.05)
    assert again[0].message == first.message
    assert again[0].ack_id != first.ack_id


def test_deliveries_are_counted_where_there_are_dead_letters(world: World) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    _, subscription = world.made(dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5})
    publish(world, b"x")
    for attempt in range(1, 5):
        received = world.pulled(subscription)[0]
        assert received.delivery_attempt == attempt
        modify(world, 0, received.ack_id)


def test_a_pull_waits_for_a_message(world: World) -> None:
    _, subscription = world.made()
    timer = threading.Timer(0.3, lambda: publish(world, b"late"))
    timer.start()
    found: list[Any] = []
    while not found:
        found = list(world.subscriber.pull(subscription=subscription, max_messages=5).received_messages)
    timer.join()
    assert [each.message.data for each in found] == [b"late"]


def test_a_pull_that_was_given_up_takes_nothing(world: World) -> None:
    _, subscription = world.made()
    with pytest.raises(GoogleAPICallError):
        world.subscriber.pull(subscription=subscription, max_messages=5, timeout=0.2, retry=None)
    publish(world, b"x")
    assert [each.message.data for each in world.pulled(subscription)] == [b"x"]


def test_pulls_share_the_backlog(world: World) -> None:
    _, subscription = world.made()
    publish(world, *[b"%d" % n for n in range(50)])
    first, second = world.pulled(subscription, 30), world.pulled(subscription, 2_000_000_000)
    found = [each.message.data for each in (*first, *second)]
    assert len(first) == 30
    assert sorted(found) == sorted(b"%d" % n for n in range(50))
    acknowledge(world, *[each.ack_id for each in (*first, *second)])


def test_an_answer_is_small_enough_for_all_clients(world: World) -> None:
    _, subscription = world.made()
    publish(world, *[b"%d" % n * 700_000 for n in range(9)])
    found: list[bytes] = []
    while some := world.pulled(subscription):
        assert sum(len(each.message.data) for each in some) < 4 * 2**20
        found += [each.message.data for each in some]
    assert len(set(found)) == 9


def test_a_push_subscription_is_not_for_consumers(world: World) -> None:
    _, subscription = world.made()
    push = {"type": "http_endpoint", "pushEndpoint": "https://localhost:1/push"}
    world.http("POST", "/subscriptions/subscription:modifyPushConfig", {"pushConfig": push})
    request = Pull(subscription=subscription, max_messages=1, return_immediately=True)
    assert refused(world.channel, SUBSCRIBER + "Pull", request) == (
        "FAILED_PRECONDITION",
        "This method is not supported for this subscription type.",
    )


@pytest.mark.parametrize("seconds", [1, 9, 600])
def test_all_deadlines_up_to_600_seconds_are_taken(world: World, seconds: int) -> None:
    _, subscription = world.made()
    publish(world, b"x")
    modify(world, seconds, world.pulled(subscription)[0].ack_id)
    assert world.pulled(subscription) == []


NO_ID = "You have not specified an ack ID in the request."
BAD_ID = "You have passed an invalid ack ID to the service "


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize(
    ("method", "fields", "text"),
    [
        ("Acknowledge", {}, NO_ID),
        ("ModifyAckDeadline", {"ack_deadline_seconds": 10}, NO_ID),
        ("Acknowledge", {"ack_ids": ["x" * 600_000]}, "The request is too large: at most 524288 bytes"),
        (
            "ModifyAckDeadline",
            {"ack_ids": ["1-1"], "ack_deadline_seconds": 601},
            "Invalid ack deadline given (ack_deadline=601). The ack deadline must be between 0 and 600 seconds.",
        ),
        (
            "ModifyAckDeadline",
            {"ack_ids": ["1-1"], "ack_deadline_seconds": -1},
            "Invalid ack deadline given (ack_deadline=-1). The ack deadline must be between 0 ",
        ),
    ],
)
def test_a_bad_request_is_refused(world: World, exactly: bool, method: str, fields: dict[str, Any], text: str) -> None:
    _, subscription = world.made(enable_exactly_once_delivery=exactly)
    kind = Acknowledge if method == "Acknowledge" else Modify
    code, said = refused(world.channel, SUBSCRIBER + method, kind(subscription=subscription, **fields))
    assert (code, text in said) == ("INVALID_ARGUMENT", True), said


@pytest.mark.parametrize("bad", ["", "x", "1", "1-", "-1", "1-2-3", "projects/P/subscriptions/S:1", "9" * 400])
def test_one_bad_id_refuses_the_whole_request(world: World, bad: str) -> None:
    _, subscription = world.made()
    publish(world, b"x")
    good = world.pulled(subscription)[0].ack_id
    for each in (lambda: acknowledge(world, good, bad), lambda: modify(world, 0, good, bad)):
        with pytest.raises(InvalidArgument) as error:
            each()
        assert error.value.message.startswith(BAD_ID)
    modify(world, 0, good)
    assert len(world.pulled(subscription)) == 1


@pytest.mark.parametrize("most", [0, -1])
def test_a_pull_wants_at_least_one_message(world: World, most: int) -> None:
    _, subscription = world.made()
    code, text = refused(world.channel, SUBSCRIBER + "Pull", Pull(subscription=subscription, max_messages=most))
    assert code == "INVALID_ARGUMENT"
    assert text == "You have passed an invalid argument to the service (argument=max_messages)."


def test_ids_of_messages_that_were_never_given_are_no_acknowledgement(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"0", b"1")
    given = world.pulled(subscription, 1)[0].ack_id
    forged = "1" + given[1:]
    acknowledge(world, forged)
    modify(world, 0, forged)
    assert [each.message.data for each in world.pulled(subscription)] == [b"1"]


def position(world: World) -> int:
    """Return below which message all are acknowledged."""
    found: int = world.http("GET", "/subscriptions/subscription:offsets")["current"]
    return found


def never_given(good: str) -> list[str]:
    """Return ids that can be read, and were never given: of another offset, hand-out, epoch and subscription."""
    offset, _, hand_out = good.partition("-")
    attempt, epoch, run, number, identity = hand_out.split(".")
    return [
        f"99999-{hand_out}",
        f"{offset}-{attempt}.{epoch}.{run}.999.{identity}",
        f"{offset}-{attempt}.999.{run}.{number}.{identity}",
        f"{offset}-{attempt}.{epoch}.{run}.{number}.000000",
    ]


def test_without_exactly_once_delivery_an_id_that_was_never_given_is_ignored(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"0", b"1")
    first, second = (each.ack_id for each in world.pulled(subscription))
    bad = never_given(first)
    modify(world, 0, bad[0], second, *bad[1:])
    assert [each.message.data for each in world.pulled(subscription)] == [b"1"]
    acknowledge(world, bad[0], first, *bad[1:])
    assert position(world) == 1


def test_with_exactly_once_delivery_an_id_that_was_never_given_is_named(world: World) -> None:
    _, subscription = world.made(enable_exactly_once_delivery=True)
    publish(world, b"0", b"1")
    first, second = (each.ack_id for each in world.pulled(subscription))
    bad = never_given(first)
    for ask in (
        lambda: modify(world, 0, bad[0], second, *bad[1:]),
        lambda: acknowledge(world, bad[0], first, *bad[1:]),
    ):
        with pytest.raises(Aborted) as error:
            ask()
        assert dict(error.value.details[0].metadata) == dict.fromkeys(bad, "PERMANENT_FAILURE_INVALID_ACK_ID")
    assert [each.message.data for each in world.pulled(subscription)] == [b"1"]
    assert position(world) == 1


def test_of_very_many_ids_those_that_were_never_given_are_ignored(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"0", b"1")
    good = [each.ack_id for each in world.pulled(subscription)]
    tail = good[0].partition("-")[2]
    bad = [f"{each}-{tail}" for each in range(1000, 5000)]
    acknowledge(world, *bad[:2500], *good, *bad[2500:])
    assert position(world) == 2


def test_what_is_not_there_is_named(world: World) -> None:
    for each in (
        lambda: world.pulled(world.subscription("absent")),
        lambda: world.subscriber.acknowledge(
            request={"subscription": world.subscription("absent"), "ack_ids": ["1-1"]}
        ),
        lambda: world.subscriber.delete_subscription(request={"subscription": world.subscription("absent")}),
        lambda: world.publisher.get_topic(request={"topic": world.topic("absent")}),
        lambda: world.publisher.delete_topic(request={"topic": world.topic("absent")}),
        lambda: world.publisher.detach_subscription(request={"subscription": world.subscription("absent")}),
    ):
        with pytest.raises(NotFound) as error:
            each()
        assert error.value.message == "Resource not found (resource=absent)."


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("Publisher/ListTopics", types.ListTopicsRequest),
        ("Subscriber/ListSubscriptions", types.ListSubscriptionsRequest),
        ("Subscriber/ListSnapshots", types.ListSnapshotsRequest),
    ],
)
def test_a_bad_page_is_refused(world: World, method: str, kind: Any) -> None:
    ask = kind.pb()
    project = f"projects/{world.project}"
    for fields in ({"page_size": -1}, {"page_token": "?"}):
        code, _ = refused(world.channel, f"/google.pubsub.v1.{method}", ask(project=project, **fields))
        assert code == "INVALID_ARGUMENT"
    assert refused(world.channel, f"/google.pubsub.v1.{method}", ask(project=project, page_size=100_000))[0] == "OK"
    for name in ("", "projects/", "projects/a/b", "topics/a"):
        code, text = refused(world.channel, f"/google.pubsub.v1.{method}", ask(project=name))
        assert (code, text.startswith(f"Invalid resource name given (name={name}). Refer to ")) == (
            "INVALID_ARGUMENT",
            True,
        )


def test_a_method_that_there_is_not_is_refused(world: World) -> None:
    assert refused(world.channel, SUBSCRIBER + "Invent", b"")[0] == "UNIMPLEMENTED"
    assert refused(world.channel, "/google.pubsub.v1.Inventor/Invent", b"")[0] == "UNIMPLEMENTED"


def test_an_id_has_one_spelling(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"x")
    good = world.pulled(subscription)[0].ack_id
    offset, hand_out = good.split("-")
    for bad in (f"00{offset}-{hand_out}", f"{offset}-0{hand_out}", f"{offset}-{hand_out.replace('.', '.0', 1)}"):
        with pytest.raises(InvalidArgument) as error:
            acknowledge(world, bad)
        assert error.value.message.startswith(BAD_ID)
    modify(world, 0, good)
    assert len(world.pulled(subscription)) == 1
