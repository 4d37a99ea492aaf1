"""Single calls of a consumer: Pull, Acknowledge and ModifyAckDeadline."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.api_core.exceptions import Aborted, GoogleAPICallError, InvalidArgument
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.support.waiting import wait_until

SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
Acknowledge: Any = types.AcknowledgeRequest.pb()
Modify: Any = types.ModifyAckDeadlineRequest.pb()
Pull: Any = types.PullRequest.pb()


def test_each_message_is_acknowledged_by_itself_and_in_any_order(world: World) -> None:
    world.made()
    world.publish(b"0", b"1", b"2")
    ids = {each.message.data: each.ack_id for each in world.pulled()}
    world.acknowledge(ids[b"2"], ids[b"0"], ids[b"0"])
    world.modify(0, ids[b"1"], ids[b"2"])
    again = world.pulled()
    assert [each.message.data for each in again] == [b"1"]
    assert again[0].ack_id != ids[b"1"]


def test_a_message_that_comes_again_is_the_same_one(world: World) -> None:
    world.made()
    world.publish(b"x", k="v")
    first = world.pulled()[0]
    assert first.delivery_attempt == 0
    world.modify(1, first.ack_id)
    again = wait_until(lambda: world.pulled())
    assert again[0].message == first.message
    assert again[0].ack_id != first.ack_id


def test_a_pull_waits_for_a_message(world: World) -> None:
    _, subscription = world.made()
    with ThreadPoolExecutor() as pool:
        pulling = pool.submit(
            wait_until, lambda: world.subscriber.pull(subscription=subscription, max_messages=5).received_messages
        )
        world.publish(b"late")
        assert [each.message.data for each in pulling.result()] == [b"late"]


def test_a_pull_that_was_given_up_takes_nothing(world: World) -> None:
    _, subscription = world.made()
    with pytest.raises(GoogleAPICallError):
        world.subscriber.pull(subscription=subscription, max_messages=5, timeout=0.2, retry=None)
    world.publish(b"x")
    assert [each.message.data for each in world.pulled()] == [b"x"]


def test_an_answer_is_small_enough_for_all_clients(world: World) -> None:
    world.made()
    world.publish(*[b"%d" % n * 700_000 for n in range(9)])
    found: list[bytes] = []
    while some := world.pulled():
        assert sum(len(each.message.data) for each in some) < 4 * 2**20
        found += [each.message.data for each in some]
    assert len(set(found)) == 9


def test_a_push_subscription_is_not_for_consumers(world: World) -> None:
    _, subscription = world.made()
    push = {"type": "http_endpoint", "pushEndpoint": "https://localhost:1/push"}
    world.http("POST", "/subscriptions/subscription:modifyPushConfig", {"pushConfig": push})
    request = Pull(subscription=subscription, max_messages=1, return_immediately=True)
    assert world.refused(SUBSCRIBER + "Pull", request) == (
        "FAILED_PRECONDITION",
        "This method is not supported for this subscription type.",
    )


@pytest.mark.parametrize("seconds", [9, 600])
def test_all_deadlines_up_to_600_seconds_are_taken(world: World, seconds: int) -> None:
    world.made()
    world.publish(b"x")
    world.modify(seconds, world.pulled()[0].ack_id)
    assert world.pulled() == []


NO_ID = "You have not specified an ack ID in the request."
BAD_ID = "You have passed an invalid ack ID to the service "


BAD_DEADLINE = "Invalid ack deadline given (ack_deadline={}). The ack deadline must be between 0 and 600 seconds."


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize(
    ("method", "fields", "text"),
    [
        ("Acknowledge", {}, NO_ID),
        ("ModifyAckDeadline", {"ack_deadline_seconds": 10}, NO_ID),
        ("Acknowledge", {"ack_ids": ["x" * 600_000]}, "The request is too large: at most 524288 bytes"),
        *(
            ("ModifyAckDeadline", {"ack_ids": ["1-1"], "ack_deadline_seconds": each}, BAD_DEADLINE.format(each))
            for each in (601, -1)
        ),
    ],
)
def test_a_bad_request_is_refused(world: World, exactly: bool, method: str, fields: dict[str, Any], text: str) -> None:
    _, subscription = world.made(enable_exactly_once_delivery=exactly)
    kind = Acknowledge if method == "Acknowledge" else Modify
    code, said = world.refused(SUBSCRIBER + method, kind(subscription=subscription, **fields))
    assert (code, text in said) == ("INVALID_ARGUMENT", True), said


@pytest.mark.parametrize("bad", ["", "x", "1", "1-", "-1", "1-2-3", "projects/P/subscriptions/S:1", "9" * 400])
def test_one_bad_id_refuses_the_whole_request(world: World, bad: str) -> None:
    world.made()
    world.publish(b"x")
    good = world.pulled()[0].ack_id
    for each in (lambda: world.acknowledge(good, bad), lambda: world.modify(0, good, bad)):
        with pytest.raises(InvalidArgument) as error:
            each()
        assert error.value.message.startswith(BAD_ID)
    world.modify(0, good)
    assert len(world.pulled()) == 1


@pytest.mark.parametrize("most", [0, -1])
def test_a_pull_wants_at_least_one_message(world: World, most: int) -> None:
    _, subscription = world.made()
    code, text = world.refused(SUBSCRIBER + "Pull", Pull(subscription=subscription, max_messages=most))
    assert code == "INVALID_ARGUMENT"
    assert text == "You have passed an invalid argument to the service (argument=max_messages)."


def test_ids_of_messages_that_were_never_given_are_no_acknowledgement(world: World) -> None:
    world.made()
    world.publish(b"0", b"1")
    forged = "1" + world.pulled(most=1)[0].ack_id[1:]
    world.acknowledge(forged)
    world.modify(0, forged)
    assert [each.message.data for each in world.pulled()] == [b"1"]


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
    world.made()
    world.publish(b"0", b"1")
    first, second = (each.ack_id for each in world.pulled())
    bad = never_given(first)
    world.modify(0, bad[0], second, *bad[1:])
    assert [each.message.data for each in world.pulled()] == [b"1"]
    world.acknowledge(bad[0], first, *bad[1:])
    assert position(world) == 1


def test_with_exactly_once_delivery_an_id_that_was_never_given_is_named(world: World) -> None:
    world.made(enable_exactly_once_delivery=True)
    world.publish(b"0", b"1")
    first, second = (each.ack_id for each in world.pulled())
    bad = never_given(first)
    for ask in (
        lambda: world.modify(0, bad[0], second, *bad[1:]),
        lambda: world.acknowledge(bad[0], first, *bad[1:]),
    ):
        with pytest.raises(Aborted) as error:
            ask()
        assert dict(error.value.details[0].metadata) == dict.fromkeys(bad, "PERMANENT_FAILURE_INVALID_ACK_ID")
    assert [each.message.data for each in world.pulled()] == [b"1"]
    assert position(world) == 1


def test_of_very_many_ids_those_that_were_never_given_are_ignored(world: World) -> None:
    world.made()
    world.publish(b"0", b"1")
    good = [each.ack_id for each in world.pulled()]
    tail = good[0].partition("-")[2]
    bad = [f"{each}-{tail}" for each in range(1000, 5000)]
    world.acknowledge(*bad[:2500], *good, *bad[2500:])
    assert position(world) == 2


def test_a_method_that_there_is_not_is_refused(world: World) -> None:
    assert world.refused(SUBSCRIBER + "Invent", b"")[0] == "UNIMPLEMENTED"
    assert world.refused("/google.pubsub.v1.Inventor/Invent", b"")[0] == "UNIMPLEMENTED"


def test_an_id_has_one_spelling(world: World) -> None:
    world.made()
    world.publish(b"x")
    good = world.pulled()[0].ack_id
    offset, hand_out = good.split("-")
    for bad in (f"00{offset}-{hand_out}", f"{offset}-0{hand_out}", f"{offset}-{hand_out.replace('.', '.0', 1)}"):
        with pytest.raises(InvalidArgument) as error:
            world.acknowledge(bad)
        assert error.value.message.startswith(BAD_ID)
    world.modify(0, good)
    assert len(world.pulled()) == 1
