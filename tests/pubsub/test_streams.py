"""Streams used as clients in other languages do, and wrongly; and streams on plain connections."""

import contextlib
import datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import PublisherClient, types

from ams.pubsub.streaming_pull import TURN_MESSAGES
from tests.pubsub.conftest import World
from tests.pubsub.streams import Stream, ask, get_refusal, open_stream
from tests.support.served import SERVICE_TOKEN, in_process_service
from tests.support.service import live_service
from tests.support.waiting import wait_until

Topic: Any = types.Topic.pb()
Subscription: Any = types.Subscription.pb()
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
PRECONDITION, UNAVAILABLE = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE


DEADLINE = "Invalid ack deadline given (ack_deadline="
NO_MESSAGE = "The request is no valid message of its type."


@pytest.mark.parametrize(("first", "code", "text"), [
    (b"\xff\xff\xff", INVALID, NO_MESSAGE),
    (b"\x0a\x02\xff\xfe", INVALID, NO_MESSAGE),
    *(
        ({"subscription": name}, INVALID, f"Invalid resource name given (name={name}). Refer to ")
        for name in ("", "subscription", "projects/p", "projects/p/topics/t")
    ),
    *(
        ({"stream_ack_deadline_seconds": each}, INVALID, f"{DEADLINE}{each}). The stream's ack deadline must")
        for each in (0, 9, 601, -1)
    ),
    *(
        ({"protocol_version": each}, INVALID, f"Invalid protocol_version given (protocol_version={each}). It must")
        for each in (-1, 2, 2**40)
    ),
    ({"subscription": "projects/P/subscriptions/absent"}, NOT_FOUND, "Resource not found (resource=absent)."),
    (None, INVALID, "The call ended before its first request."),
], ids=repr)  # fmt: skip
def test_bad_requests_end_streams(world: World, first: bytes | dict[str, Any] | None, code: grpc.StatusCode, text: str):
    _, subscription = world.make_subscription()
    stream = Stream(world.channel)
    if isinstance(first, bytes):
        stream.send(first)
    elif first is not None:
        stream.send(**{"subscription": subscription, "stream_ack_deadline_seconds": 10} | first)
    stream.close()
    assert (found := stream.end())[0] is code
    assert found[1].startswith(text)


def test_a_first_request_may_acknowledge(world: World) -> None:
    _, subscription = world.make_backlog(b"0", b"1")
    ids = [each.ack_id for each in world.pull()]
    stream = open_stream(
        world.channel, subscription, ack_ids=ids[:1], modify_deadline_ack_ids=ids[1:], modify_deadline_seconds=[0],
        protocol_version=1, client_id="me",
    )  # fmt: skip
    assert [each.message.data for each in stream.messages(1)] == [b"1"]


@pytest.mark.parametrize(("later", "text"), [
    (b"\xff\xff\xff", NO_MESSAGE),
    *(
        ({field: value}, f"The field {field} can only be set in the first request of a stream.")
        for field, value in {
            "subscription": "projects/p/subscriptions/s", "client_id": "me", "max_outstanding_messages": 5,
            "max_outstanding_bytes": 5, "protocol_version": 1,
        }.items()
    ),
    ({"modify_deadline_ack_ids": ["1-1"]}, "must have the same length"),
    ({"modify_deadline_seconds": [1]}, "must have the same length"),
    ({"modify_deadline_ack_ids": ["1-1"], "modify_deadline_seconds": [601]}, f"{DEADLINE}601)."),
    ({"modify_deadline_ack_ids": ["1-1"], "modify_deadline_seconds": [-1]}, f"{DEADLINE}-1)."),
    ({"stream_ack_deadline_seconds": 9}, f"{DEADLINE}9)."),
    ({"ack_ids": ["x"]}, "You have passed an invalid ack ID to the service "),
], ids=repr)  # fmt: skip
def test_a_bad_request_ends_its_stream_alone(world: World, later: bytes | dict[str, Any], text: str) -> None:
    world.make_subscription()
    other, stream = world.open_stream(), world.open_stream()
    if isinstance(later, bytes):
        stream.send(later)
    else:
        stream.send(**later)
    code, said = stream.end()
    assert code is INVALID
    assert text in said
    world.publish(b"x")
    assert len(other.messages(1)) == 1


def test_each_ping_is_answered_with_the_properties_of_that_moment(world: World) -> None:
    world.make_subscription(enable_message_ordering=True)
    stream = world.open_stream()
    for flag in (True, False):
        change = {"name": world.subscription(), "enable_exactly_once_delivery": flag}
        mask = {"paths": ["enable_exactly_once_delivery"]}
        world.subscriber.update_subscription(request={"subscription": change, "update_mask": mask})
        for data in (b"", b"x"):
            world.publish(data) if data else stream.send()
            answer = stream.next()
            assert [each.message.data for each in answer.received_messages] == ([data] if data else [])
            assert answer.subscription_properties.message_ordering_enabled
            assert answer.subscription_properties.exactly_once_delivery_enabled is flag


def test_with_exactly_once_delivery_acknowledgements_on_the_stream_are_confirmed(world: World) -> None:
    world.make_backlog(b"x", enable_exactly_once_delivery=True)
    stream = world.open_stream()
    first = stream.messages(1)[0].ack_id
    stream.send(modify_deadline_ack_ids=[first], modify_deadline_seconds=[30])
    assert list(stream.next().modify_ack_deadline_confirmation.ack_ids) == [first]
    stream.send(modify_deadline_ack_ids=[first], modify_deadline_seconds=[0])
    second = ""
    confirmed: list[str] = []
    while not (second and confirmed):
        answer = stream.next()
        confirmed += answer.modify_ack_deadline_confirmation.ack_ids
        second = answer.received_messages[0].ack_id if answer.received_messages else second
    assert confirmed == [first]
    stream.send(ack_ids=[first, second])
    answer = stream.next()
    assert list(answer.acknowledge_confirmation.ack_ids) == [second]
    assert list(answer.acknowledge_confirmation.invalid_ack_ids) == [first]
    stream.call.cancel()
    assert world.pull() == []


def test_a_stream_takes_as_many_ids_at_a_time_as_a_call_does(world: World) -> None:
    world.make_backlog(b"x", enable_exactly_once_delivery=True)
    stream = world.open_stream()
    tail = stream.messages(1)[0].ack_id.partition("-")[2]
    stream.send(ack_ids=[f"{each}-{tail}" for each in range(1000, 11_000)])
    assert len(stream.next().acknowledge_confirmation.invalid_ack_ids) == 10_000
    stream.send(ack_ids=[f"{each}-{tail}" for each in range(1000, 61_000)])
    code, text = stream.end()
    assert code.name == "INVALID_ARGUMENT"
    assert "at most 524288 bytes" in text


def test_a_stream_acknowledges_what_another_was_given(world: World) -> None:
    world.make_backlog(b"0", b"1")
    one = world.open_stream()
    ids = [each.ack_id for each in one.messages(2)]
    other = world.open_stream()
    other.send(ack_ids=ids)
    other.send()
    other.next()
    one.send(modify_deadline_ack_ids=ids, modify_deadline_seconds=[0, 0])
    one.send()
    assert list(one.next().received_messages) == []


# Many, large, fast, slow streams


def test_responses_are_small_enough_for_all_clients(world: World) -> None:
    world.make_backlog(*[b"%d" % n * 900_000 for n in range(10)])
    stream = world.open_stream()  # this channel takes 4 MiB at most
    assert len({each.message.data for each in stream.messages(10)}) == 10


def test_a_client_that_pings_a_thousand_times_a_second_is_read_later_and_others_are_not(world: World) -> None:
    world.make_subscription()
    loud, other = world.open_stream(max_outstanding_messages=1), None
    for _ in range(1000):
        loud.send()
    world.publish(b"0")
    answers = 0
    while not loud.next().received_messages:  # what it gets does not wait for its pings
        answers += 1
    assert answers < 1000
    other = world.open_stream()
    world.publish(b"1")
    assert [each.message.data for each in other.messages(1)] == [b"1"]


@pytest.mark.long
def test_a_client_that_does_not_read_is_ended_and_others_get_everything_else(world: World) -> None:
    _, subscription = world.make_subscription()
    with grpc.insecure_channel(world.address, options=[("grpc.http2.bdp_probe", 0)]) as channel:
        lazy = open_stream(channel, subscription)
        world.publish(*[b"%03d" % n * 10_000 for n in range(300)])
        other = world.open_stream()
        came = {each.message.data[:3] for each in other.messages(100)}
        while len(came) < 300:  # what the lazy one was given comes when it is ended
            came |= {each.message.data[:3] for each in other.messages(1)}
        doctor = "/subscriptions/subscription:doctor"
        wait_until(lambda: "2 streams are open" not in str(world.http("GET", doctor)))  # reading it would let it go on
        assert lazy.end() == (UNAVAILABLE, "The stream is not read by its client")
        other.call.cancel()


# Ends of a stream


def test_a_stream_ends_by_its_client_and_the_next_one_goes_on(world: World) -> None:
    _, subscription = world.make_subscription()
    stream = world.open_stream()
    stream.close()
    assert stream.end() == (grpc.StatusCode.OK, "")
    stream = Stream(world.channel, seconds=0.5)
    stream.send(subscription=subscription, stream_ack_deadline_seconds=10)
    assert stream.end()[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    world.publish(b"x")
    stream = world.open_stream()
    ack_id = stream.messages(1)[0].ack_id
    stream.call.cancel()
    world.modify(0, ack_id)
    assert [each.message.data for each in world.open_stream().messages(1)] == [b"x"]


def test_a_stream_that_is_full_goes_on_after_a_seek(world: World) -> None:
    _, subscription = world.make_backlog(b"x")
    stream = world.open_stream(max_outstanding_messages=1)
    assert [each.message.data for each in stream.messages(1)] == [b"x"]
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    world.subscriber.seek(request={"subscription": subscription, "time": long_ago})
    assert [each.message.data for each in stream.messages(1)] == [b"x"]


def test_a_stream_of_a_subscription_that_is_detached_deleted_or_made_again_ends(world: World) -> None:
    topic, subscription = world.make_subscription()
    again = partial(world.subscriber.create_subscription, request={"name": subscription, "topic": topic})
    delete = partial(world.subscriber.delete_subscription, request={"subscription": subscription})
    stream = world.open_stream()
    world.publisher.detach_subscription(request={"subscription": subscription})
    assert stream.end() == (PRECONDITION, f"Subscription {subscription} is detached.")
    delete()
    again()
    stream = world.open_stream()
    delete()
    assert stream.end() == (NOT_FOUND, "Resource not found (resource=subscription).")
    again()
    stream = world.open_stream()
    delete()
    again()
    world.publish(b"x")
    assert stream.end()[0] is NOT_FOUND
    assert [each.message.data for each in world.pull()] == [b"x"]


def test_a_stream_of_a_subscription_that_is_turned_to_push_ends(world: World) -> None:
    _, subscription = world.make_subscription()
    stream = world.open_stream()
    push = {"type": "http_endpoint", "pushEndpoint": "https://localhost:1/push"}
    world.http("POST", "/subscriptions/subscription:modifyPushConfig", {"pushConfig": push})
    stream.send()
    assert stream.end()[0] is PRECONDITION
    later = Stream(world.channel)
    later.send(subscription=subscription, stream_ack_deadline_seconds=10)
    assert later.end() == (PRECONDITION, "This method is not supported for this subscription type.")


@pytest.mark.long
def test_streams_of_a_service_that_stops_are_to_be_opened_again(tmp_path: Path) -> None:
    topic, subscription = "projects/project/topics/topic", "projects/project/subscriptions/sub"
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(live_service(tmp_path / "data", "--pubsub-port", "0", "--pubsub-emulator"))
        channel = stack.enter_context(grpc.insecure_channel(service.pubsub))
        ask(channel, "/google.pubsub.v1.Publisher/CreateTopic", Topic(name=topic))
        ask(channel, "/google.pubsub.v1.Subscriber/CreateSubscription", Subscription(name=subscription, topic=topic))
        stream = open_stream(channel, subscription)
        assert service.stop() == 0
        assert stream.end() == (UNAVAILABLE, "The service is stopping")


def test_of_an_id_that_is_there_twice_the_last_deadline_counts(world: World) -> None:
    world.make_backlog(b"x", enable_exactly_once_delivery=True)
    stream = world.open_stream()
    [each] = [each.ack_id for each in stream.messages(1)]
    stream.send(modify_deadline_ack_ids=[each, each], modify_deadline_seconds=[0, 20])
    confirmed = stream.next().modify_ack_deadline_confirmation
    assert (list(confirmed.ack_ids), list(confirmed.invalid_ack_ids)) == ([each], [])


def test_a_stream_holds_no_more_than_it_asks_for(world: World) -> None:
    world.make_backlog(*[b"x"] * 50)
    stream = world.open_stream(max_outstanding_messages=10)
    held = [each.ack_id for each in stream.messages(10)]
    for done in (held[:5], held[5:]):
        stream.send()
        assert list(stream.next().received_messages) == []
        stream.send(ack_ids=done)
        assert len(stream.messages(5)) == 5


def test_a_backlog_is_spread_over_streams(world: World) -> None:
    world.make_subscription()
    streams = [world.open_stream() for _ in range(4)]
    messages = [{"data": b"%d" % n} for n in range(4 * TURN_MESSAGES)]
    PublisherClient.publish(world.publisher, request={"topic": world.topic(), "messages": messages})
    assert len({e.message.data for s in streams for e in s.messages(TURN_MESSAGES)}) == 4 * TURN_MESSAGES
    for stream in streams:
        stream.call.cancel()


def test_a_project_has_as_many_streams_as_its_quota_allows(world: World) -> None:
    """A client reopens its stream after UNAVAILABLE, so it gets messages as soon as another stream ends."""
    world.make_subscription()
    world.http("POST", ":modifyQuotas", {"quotas": {"streams": 1}})
    stream = world.open_stream()

    beyond = Stream(world.channel)
    beyond.send(subscription=world.subscription(), stream_ack_deadline_seconds=10)
    assert beyond.end() == (UNAVAILABLE, "Quota streams of the project is exceeded: its limit is 1")

    stream.close()
    stream.end()
    world.open_stream().close()


def test_a_pull_that_waits_counts_for_the_quota_of_its_project(world: World) -> None:
    world.make_subscription()
    world.http("POST", ":modifyQuotas", {"quotas": {"waitingPulls": 1}})
    method, request = "/google.pubsub.v1.Subscriber/Pull", {"subscription": world.subscription(), "max_messages": 1}
    body = types.PullRequest.pb()(**request).SerializeToString()
    waiting = world.channel.unary_unary(method).future(body)
    wait_until(lambda: [q for q in world.http("GET", ":quotas")["quotas"] if q["name"] == "waitingPulls" and q["used"]])
    said = "Quota waitingPulls of the project is exceeded: its limit is 1"
    assert world.get_refusal(method, body) == ("RESOURCE_EXHAUSTED", said)
    world.publish(b"x")
    assert len(types.PullResponse.pb().FromString(waiting.result()).received_messages) == 1


def test_a_plain_connection_is_taken_from_proxies_only(tmp_path: Path) -> None:
    elsewhere = {"host": "127.0.0.1", "pubsub_port": 0, "trusted_proxies": "192.0.2.1/32"}
    method, request = "/google.pubsub.v1.Publisher/GetTopic", b"\x0a\x13projects/P/topics/T"
    as_service = (("authorization", f"Bearer {SERVICE_TOKEN}"),)
    with (in_process_service(tmp_path / "ams-data", **elsewhere) as service,
          grpc.insecure_channel(service.run.pubsub) as channel):  # fmt: skip
        code, text = get_refusal(channel, method, request, metadata=as_service)
        assert code == "UNAUTHENTICATED"
        assert "trusted_proxies" in text
        stream = Stream(channel, metadata=as_service)
        stream.send(subscription="projects/P/subscriptions/S", stream_ack_deadline_seconds=10)
        assert stream.end()[0] is grpc.StatusCode.UNAUTHENTICATED
