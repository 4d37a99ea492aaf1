"""Streams as clients in other languages use them, and as nobody should."""

import asyncio
import contextlib
import datetime
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.pubsub.streams import STREAMING_PULL, Request, Response, Stream, ask, opened
from tests.support.service import live_service

SECONDS = 20
Topic: Any = types.Topic.pb()
Subscription: Any = types.Subscription.pb()
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
PRECONDITION, UNAVAILABLE = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
MANY = 1000


def publish(world: World, *data: bytes) -> None:
    for each in [world.publisher.publish(world.topic(), each) for each in data]:
        each.result(SECONDS)


def update(world: World, **fields: object) -> None:
    request = {"subscription": {"name": world.subscription(), **fields}, "update_mask": {"paths": list(fields)}}
    world.subscriber.update_subscription(request=request)


# The first request


@pytest.mark.parametrize("said", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe"])
def test_a_first_request_that_is_none_ends_the_stream(world: World, said: bytes) -> None:
    stream = Stream(world.channel)
    stream.send(said)
    assert stream.end() == (INVALID, "The request is no valid message of its type.")


@pytest.mark.parametrize("name", ["", "subscription", "projects/p", "projects/p/topics/t"])
def test_a_first_request_names_a_subscription(world: World, name: str) -> None:
    stream = Stream(world.channel)
    stream.send(subscription=name, stream_ack_deadline_seconds=10)
    code, text = stream.end()
    assert code is INVALID
    assert text.startswith(f"Invalid resource name given (name={name}). Refer to ")


@pytest.mark.parametrize("seconds", [0, 9, 601, -1])
def test_a_stream_has_a_deadline_of_10_to_600_seconds(world: World, seconds: int) -> None:
    _, subscription = world.made()
    stream = Stream(world.channel)
    stream.send(subscription=subscription, stream_ack_deadline_seconds=seconds)
    code, text = stream.end()
    assert code is INVALID
    assert text.startswith(f"Invalid ack deadline given (ack_deadline={seconds}).")


def test_a_stream_that_says_nothing_ends_with_an_error(world: World) -> None:
    stream = Stream(world.channel)
    stream.close()
    assert stream.end() == (INVALID, "The call ended before its first request.")


def test_a_stream_of_a_subscription_that_is_not_there_ends_at_once(world: World) -> None:
    stream = Stream(world.channel)
    stream.send(subscription=world.subscription("absent"), stream_ack_deadline_seconds=10)
    assert stream.end() == (NOT_FOUND, "Resource not found (resource=absent).")


def test_a_first_request_may_acknowledge(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"0", b"1")
    ids = [each.ack_id for each in world.pulled(subscription)]
    stream = opened(
        world.channel,
        subscription,
        ack_ids=ids[:1],
        modify_deadline_ack_ids=ids[1:],
        modify_deadline_seconds=[0],
        protocol_version=1,
        client_id="me",
    )
    assert [each.message.data for each in stream.messages(1)] == [b"1"]
    stream.call.cancel()


@pytest.mark.parametrize("version", [-1, 2, 2**40])
def test_a_version_of_the_protocol_that_is_not_known_is_refused(world: World, version: int) -> None:
    _, subscription = world.made()
    stream = Stream(world.channel)
    stream.send(subscription=subscription, stream_ack_deadline_seconds=10, protocol_version=version)
    said = f"Invalid protocol_version given (protocol_version={version}). It must be 0 or 1."
    assert stream.end() == (INVALID, said)


# Later requests


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subscription", "projects/p/subscriptions/s"),
        ("client_id", "me"),
        ("max_outstanding_messages", 5),
        ("max_outstanding_bytes", 5),
        ("protocol_version", 1),
    ],
)
def test_what_the_first_request_says_is_not_said_again(world: World, field: str, value: object) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    stream.send(**{field: value})
    assert stream.end() == (INVALID, f"The field {field} can only be set in the first request of a stream.")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"modify_deadline_ack_ids": ["1-1"]}, "must have the same length"),
        ({"modify_deadline_seconds": [1]}, "must have the same length"),
        (
            {"modify_deadline_ack_ids": ["1-1"], "modify_deadline_seconds": [601]},
            "Invalid ack deadline given (ack_deadline=601).",
        ),
        (
            {"modify_deadline_ack_ids": ["1-1"], "modify_deadline_seconds": [-1]},
            "Invalid ack deadline given (ack_deadline=-1).",
        ),
        ({"stream_ack_deadline_seconds": 9}, "Invalid ack deadline given (ack_deadline=9)."),
        ({"ack_ids": ["x"]}, "You have passed an invalid ack ID to the service "),
    ],
)
def test_a_bad_request_ends_its_stream_alone(world: World, fields: dict[str, Any], text: str) -> None:
    _, subscription = world.made()
    other = opened(world.channel, subscription)
    stream = opened(world.channel, subscription)
    stream.send(**fields)
    code, said = stream.end()
    assert code is INVALID
    assert text in said
    publish(world, b"x")
    assert len(other.messages(1)) == 1
    other.call.cancel()


def test_a_later_request_that_is_none_ends_the_stream(world: World) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    stream.send(b"\xff\xff\xff")
    assert stream.end() == (INVALID, "The request is no valid message of its type.")


def test_each_ping_is_answered_with_the_properties(world: World) -> None:
    _, subscription = world.made(enable_message_ordering=True, enable_exactly_once_delivery=True)
    stream = opened(world.channel, subscription)
    for _ in range(20):
        stream.send()
        answer = stream.next()
        assert list(answer.received_messages) == []
        assert answer.subscription_properties.message_ordering_enabled
        assert answer.subscription_properties.exactly_once_delivery_enabled
    stream.call.cancel()


def test_a_flag_that_is_switched_shows_in_the_next_response(world: World) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    for flag in (True, False):
        update(world, enable_exactly_once_delivery=flag)
        stream.send()
        assert stream.next().subscription_properties.exactly_once_delivery_enabled is flag
        publish(world, b"x")
        answer = stream.next()
        assert len(answer.received_messages) == 1
        assert answer.subscription_properties.exactly_once_delivery_enabled is flag
    stream.call.cancel()


def test_with_exactly_once_delivery_acknowledgements_on_the_stream_are_confirmed(world: World) -> None:
    _, subscription = world.made(enable_exactly_once_delivery=True)
    publish(world, b"x")
    stream = opened(world.channel, subscription)
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
    assert world.pulled(subscription) == []


def test_a_stream_takes_as_many_ids_at_a_time_as_a_call_does(world: World) -> None:
    _, subscription = world.made(enable_exactly_once_delivery=True)
    publish(world, b"x")
    stream = opened(world.channel, subscription)
    tail = stream.messages(1)[0].ack_id.partition("-")[2]
    stream.send(ack_ids=[f"{each}-{tail}" for each in range(1000, 11_000)])
    assert len(stream.next().acknowledge_confirmation.invalid_ack_ids) == 10_000
    stream.send(ack_ids=[f"{each}-{tail}" for each in range(1000, 61_000)])
    code, text = stream.end()
    assert code.name == "INVALID_ARGUMENT"
    assert "at most 524288 bytes" in text


def test_a_stream_acknowledges_what_another_was_given(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"0", b"1")
    one = opened(world.channel, subscription)
    ids = [each.ack_id for each in one.messages(2)]
    other = opened(world.channel, subscription)
    other.send(ack_ids=ids)
    other.send()
    other.next()
    one.send(modify_deadline_ack_ids=ids, modify_deadline_seconds=[0, 0])
    one.send()
    assert list(one.next().received_messages) == []
    one.call.cancel()
    other.call.cancel()


# Many, large, fast, slow


def test_responses_are_small_enough_for_all_clients(world: World) -> None:
    _, subscription = world.made()
    publish(world, *[b"%d" % n * 900_000 for n in range(10)])
    stream = opened(world.channel, subscription)  # this channel takes 4 MiB at most
    assert len({each.message.data for each in stream.messages(10)}) == 10
    stream.call.cancel()


def test_a_client_that_pings_a_thousand_times_a_second_is_read_later_and_others_are_not(world: World) -> None:
    _, subscription = world.made()
    loud, other = opened(world.channel, subscription, max_outstanding_messages=1), None
    for _ in range(1000):
        loud.send()
    publish(world, b"0")
    answers = 0
    while not loud.next().received_messages:  # what it gets does not wait for its pings
        answers += 1
    assert answers < 1000
    other = opened(world.channel, subscription)
    publish(world, b"1")
    assert [each.message.data for each in other.messages(1)] == [b"1"]
    loud.call.cancel()
    other.call.cancel()


def test_a_client_that_does_not_read_is_ended_and_others_get_everything_else(world: World) -> None:
    _, subscription = world.made()
    with grpc.insecure_channel(world.address, options=[("grpc.http2.bdp_probe", 0)]) as channel:
        lazy = opened(channel, subscription)
        publish(world, *[b"%03d" % n * 10_000 for n in range(300)])
        other = opened(world.channel, subscription)
        came = {each.message.data[:3] for each in other.messages(100)}
        while len(came) < 300:  # what the lazy one was given comes when it is ended
            came |= {each.message.data[:3] for each in other.messages(1)}
        code, text = lazy.end()
        assert (code, text) == (UNAVAILABLE, "The stream is not read by its client")
        other.call.cancel()


async def test_a_thousand_streams_share_a_backlog(world: World) -> None:
    _, subscription = world.made()
    channel = grpc.aio.insecure_channel(world.address)
    begin: Any = channel.stream_stream(STREAMING_PULL, lambda each: each.SerializeToString(), Response.FromString)
    streams = [begin(timeout=60) for _ in range(MANY)]

    async def first(stream: Any) -> None:
        await stream.write(Request(subscription=subscription, stream_ack_deadline_seconds=60))
        assert not (await stream.read()).received_messages

    await asyncio.gather(*[first(each) for each in streams])
    await asyncio.to_thread(publish, world, *[b"%d" % n for n in range(MANY)])
    came: set[bytes] = set()

    async def take(stream: Any) -> None:
        while (answer := await stream.read()) is not grpc.aio.EOF:
            came.update([each.message.data for each in answer.received_messages])

    readers = [asyncio.create_task(take(each)) for each in streams]
    ended = time.monotonic() + SECONDS
    while len(came) < MANY and time.monotonic() < ended:
        await asyncio.sleep(0.05)
    assert len(came) == MANY
    await asyncio.gather(*[each.done_writing() for each in streams])
    await asyncio.gather(*readers)
    assert {await each.code() for each in streams} == {grpc.StatusCode.OK}
    await channel.close()


# How a stream ends


def test_a_stream_that_its_client_closes_ends_ok(world: World) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    stream.close()
    assert stream.end() == (grpc.StatusCode.OK, "")


def test_what_was_not_acknowledged_on_a_stream_that_ended_comes_on_another(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"x")
    stream = opened(world.channel, subscription)
    ack_id = stream.messages(1)[0].ack_id
    stream.call.cancel()
    world.subscriber.modify_ack_deadline(
        request={"subscription": subscription, "ack_ids": [ack_id], "ack_deadline_seconds": 0}
    )
    other = opened(world.channel, subscription)
    assert [each.message.data for each in other.messages(1)] == [b"x"]
    other.call.cancel()


def test_a_stream_ends_at_the_deadline_of_its_client_and_the_next_one_goes_on(world: World) -> None:
    _, subscription = world.made()
    stream = Stream(world.channel, seconds=0.5)
    stream.send(subscription=subscription, stream_ack_deadline_seconds=10)
    assert stream.end()[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    publish(world, b"x")
    other = opened(world.channel, subscription)
    assert [each.message.data for each in other.messages(1)] == [b"x"]
    other.call.cancel()


def test_a_stream_that_is_full_goes_on_after_a_seek(world: World) -> None:
    _, subscription = world.made()
    publish(world, b"x")
    stream = opened(world.channel, subscription, max_outstanding_messages=1)
    assert [each.message.data for each in stream.messages(1)] == [b"x"]
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    world.subscriber.seek(request={"subscription": subscription, "time": long_ago})
    assert [each.message.data for each in stream.messages(1)] == [b"x"]
    stream.call.cancel()


def test_a_stream_of_a_deleted_subscription_ends(world: World) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    world.subscriber.delete_subscription(request={"subscription": subscription})
    assert stream.end() == (NOT_FOUND, "Resource not found (resource=subscription).")


def test_a_stream_of_a_subscription_that_was_made_again_ends(world: World) -> None:
    topic, subscription = world.made()
    stream = opened(world.channel, subscription)
    world.subscriber.delete_subscription(request={"subscription": subscription})
    world.subscriber.create_subscription(request={"name": subscription, "topic": topic})
    publish(world, b"x")
    assert stream.end()[0] is NOT_FOUND
    assert [each.message.data for each in world.pulled(subscription)] == [b"x"]


def test_a_stream_of_a_detached_subscription_ends(world: World) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    world.publisher.detach_subscription(request={"subscription": subscription})
    assert stream.end() == (PRECONDITION, f"Subscription {subscription} is detached.")


def test_a_stream_of_a_subscription_that_is_turned_to_push_ends(world: World) -> None:
    _, subscription = world.made()
    stream = opened(world.channel, subscription)
    push = {"type": "http_endpoint", "pushEndpoint": "https://localhost:1/push"}
    world.http("POST", "/subscriptions/subscription:modifyPushConfig", {"pushConfig": push})
    stream.send()
    assert stream.end()[0] is PRECONDITION
    later = Stream(world.channel)
    later.send(subscription=subscription, stream_ack_deadline_seconds=10)
    assert later.end() == (PRECONDITION, "This method is not supported for this subscription type.")


def test_a_stream_of_an_ordered_subscription_is_refused_with_why(world: World) -> None:
    topic = world.topic()
    world.publisher.create_topic(request={"name": topic})
    world.http("PUT", "/subscriptions/subscription", {"topic": f"projects/{world.project}/topics/topic"})
    stream = Stream(world.channel)
    stream.send(subscription=world.subscription(), stream_ack_deadline_seconds=10)
    code, text = stream.end()
    assert code is PRECONDITION
    assert "an ordered one of AMS" in text


def test_streams_of_a_service_that_stops_are_to_be_opened_again(tmp_path: Path) -> None:
    topic, subscription = "projects/project/topics/topic", "projects/project/subscriptions/sub"
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(live_service(tmp_path / "data", "--pubsub-port", "0", "--pubsub-emulator"))
        channel = stack.enter_context(grpc.insecure_channel(service.pubsub))
        ask(channel, "/google.pubsub.v1.Publisher/CreateTopic", Topic(name=topic))
        ask(channel, "/google.pubsub.v1.Subscriber/CreateSubscription", Subscription(name=subscription, topic=topic))
        stream = opened(channel, subscription)
        assert service.stop() == 0
        assert stream.end() == (UNAVAILABLE, "The service is stopping")


def test_of_an_id_that_is_there_twice_the_last_deadline_counts(world: World) -> None:
    topic, subscription = world.made(enable_exactly_once_delivery=True)
    world.publisher.publish(topic, b"x").result(20)
    stream = opened(world.channel, subscription)
    [each] = [each.ack_id for each in stream.messages(1)]
    stream.send(modify_deadline_ack_ids=[each, each], modify_deadline_seconds=[0, 20])
    confirmed = stream.next().modify_ack_deadline_confirmation
    assert (list(confirmed.ack_ids), list(confirmed.invalid_ack_ids)) == ([each], [])
    stream.call.cancel()
