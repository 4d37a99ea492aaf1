"""What Google's client publishes, and how that and what the HTTP API publishes come out on the other side."""

import base64
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1 import types
from google.cloud.pubsub_v1.publisher.exceptions import MessageTooLargeError, PublishToPausedOrderingKeyException
from google.pubsub_v1 import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport, PublisherGrpcTransport

from tests.pubsub.conftest import World
from tests.pubsub.streams import opened

PUBLISH = "/google.pubsub.v1.Publisher/Publish"
SECONDS = 20
Message: Any = types.PubsubMessage.pb()
Request: Any = types.PublishRequest.pb()


def test_a_key_that_failed_is_paused_until_it_is_resumed(world: World) -> None:
    topic, _ = world.made(enable_message_ordering=True)
    publisher = world.publisher
    publisher.publish(topic, b"1", ordering_key="key").result(SECONDS)
    with pytest.raises(InvalidArgument, match="attribute key google is reserved"):
        publisher.publish(topic, b"2", ordering_key="key", google="x").result(SECONDS)
    with pytest.raises(PublishToPausedOrderingKeyException):
        publisher.publish(topic, b"3", ordering_key="key").result(SECONDS)
    publisher.publish(topic, b"other", ordering_key="other").result(SECONDS)
    publisher.resume_publish(topic, "key")
    publisher.publish(topic, b"4", ordering_key="key").result(SECONDS)
    stream = world.opened()
    came: list[tuple[str, bytes]] = []
    while len(came) < 3:
        received = stream.messages(1)
        came += [(each.message.ordering_key, each.message.data) for each in received]
        ids = [each.ack_id for each in received]
        world.acknowledge(*ids)
    stream.call.cancel()
    assert [data for key, data in came if key == "key"] == [b"1", b"4"]


def test_batches_of_a_client_become_ids_one_each(world: World) -> None:
    topic, _ = world.made()
    batches = pubsub_v1.types.BatchSettings(max_messages=7, max_bytes=10_000, max_latency=0.05)
    publisher = pubsub_v1.PublisherClient(
        batch_settings=batches, transport=PublisherGrpcTransport(channel=world.channel)
    )
    futures = [publisher.publish(topic, b"%d" % n) for n in range(50)]
    ids = [each.result(SECONDS) for each in futures]
    assert sorted(map(int, ids)) == list(range(50))
    came = {each.message.message_id: each.message.data for each in world.pulled()}
    assert came == {message_id: b"%d" % n for n, message_id in enumerate(ids)}


async def test_the_async_client_publishes_and_administers(world: World) -> None:
    channel = grpc.aio.insecure_channel(world.address)
    client = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
    try:
        made = await client.create_topic(request={"name": world.topic()})
        assert made == await client.get_topic(request={"topic": world.topic()})
        for n in range(3):
            await client.create_topic(request={"name": world.topic(f"topic-{n}")})
        listed = await client.list_topics(request={"project": f"projects/{world.project}", "page_size": 2})
        assert len([each async for each in listed]) == 4
        answer = await client.publish(topic=world.topic(), messages=[{"data": b"a"}, {"attributes": {"k": ""}}])
        assert list(answer.message_ids) == ["0", "1"]
    finally:
        await channel.close()


def test_what_a_publisher_says_of_id_and_time_is_not_believed(world: World) -> None:
    topic, _ = world.made()
    own = Message(data=b"x", message_id="99", publish_time={"seconds": 5})
    assert world.refused(PUBLISH, Request(topic=topic, messages=[own])) == ("OK", "")
    came = world.pulled()[0].message
    assert (came.message_id, came.publish_time.year > 1970) == ("0", True)


TRACING = ("traceparent", "tracestate", "OpenTelemetrySpanContext")
GOOD: dict[str, list[dict[str, Any]]] = {
    "attributes of tracing": [{"attributes": {f"googclient_{each}": "v" for each in TRACING}}],
    "only an attribute": [{"attributes": {"k": ""}}],
    "100 attributes": [{"attributes": {f"k{n}": "v" for n in range(100)}}],
    "the longest attribute": [{"attributes": {"k" * 256: "v" * 1024}}],
    "the longest key": [{"data": b"x", "ordering_key": "k" * 1024}],
    "1,000 messages": [{"data": b"x"}] * 1000,
    "any bytes": [{"data": bytes(range(256))}],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_within_the_limits_comes_as_it_was(world: World, name: str) -> None:
    topic, _ = world.made()
    request = Request(topic=topic, messages=[Message(**each) for each in GOOD[name]])
    assert world.refused(PUBLISH, request) == ("OK", "")
    came = [each.message for each in world.pulled(most=1000)]
    wanted = [(each.get("data", b""), each.get("attributes", {}), each.get("ordering_key", "")) for each in GOOD[name]]
    assert [(each.data, dict(each.attributes), each.ordering_key) for each in came] == wanted


MANY = "The value for message_count is too large. You passed 1001 in the request, but the maximum value is 1000."
LARGE = "Request payload size exceeds the limit: 10485760 bytes."
BAD: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no message": ([], "The value for message_count is too small."),
    "1,001 messages": ([{"data": b"x"}] * 1001, MANY),
    "several keys": ([{"data": b"x", "ordering_key": "a"}, {"data": b"x"}], "all messages must have no ordering key"),
    "an empty message": ([{"data": b"x"}, {}], "neither data nor attributes"),
    "101 attributes": ([{"attributes": {f"k{n}": "v" for n in range(101)}}], "too many attributes"),
    "a long attribute key": ([{"attributes": {"ü" * 129: "v"}}], "An attribute is too long"),
    "an empty attribute key": ([{"attributes": {"": "v"}}], "An attribute is too long"),
    "a long attribute": ([{"attributes": {"k": "ü" * 513}}], "An attribute is too long"),
    **{
        f"the reserved attribute {each}": ([{"attributes": {each: "v"}}], f"The attribute key {each} is reserved")
        for each in ("goog-x", "GoogX", "GOOG", "googclient_deliveryattempt", "googclient_x", "Googclient_traceparent")
    },
    "a long key": ([{"data": b"x", "ordering_key": "ü" * 513}], "The ordering key is too long"),
    "10 MB": ([{"data": b"x" * 10_000_000}], "The value for request_size is too large."),
    "10 MiB": ([{"data": b"x" * 5_300_000}] * 2, LARGE),
    "19 MiB": ([{"data": b"x" * (19 * 2**20)}], LARGE),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_outside_the_limits_is_refused_and_nothing_is_stored(world: World, name: str) -> None:
    topic, _ = world.made()
    messages, text = BAD[name]
    request = Request(topic=topic, messages=[Message(**each) for each in messages])
    code, said = world.refused(PUBLISH, request)
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert world.pulled() == []


def test_a_request_of_20_mib_is_ended_before_it_is_read(world: World) -> None:
    topic, _ = world.made()
    request = Request(topic=topic, messages=[Message(data=b"x" * (20 * 2**20))])
    assert world.refused(PUBLISH, request)[0] == "RESOURCE_EXHAUSTED"
    with pytest.raises(MessageTooLargeError):  # Google's client does not even send it
        world.publisher.publish(topic, b"x" * (20 * 2**20))
    assert world.pulled() == []


def test_text_that_is_no_utf_8_is_refused_for_good(world: World) -> None:
    topic, _ = world.made()
    name, bad = topic.encode(), b"\x12\x04\x2a\x02\xff\xfe"  # a message with an ordering key of two bad bytes
    request = b"\x0a" + bytes([len(name)]) + name + bad
    code, text = world.refused(PUBLISH, request)
    assert (code, text) == ("INVALID_ARGUMENT", "The request is no valid message of its type.")


def test_a_message_of_9_mb_is_stored_and_received(world: World) -> None:
    topic, subscription = world.made()
    data = bytes(range(250)) * 36_000
    world.publisher.publish(topic, data).result(SECONDS)
    with grpc.insecure_channel(world.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        stream = opened(channel, subscription)
        assert stream.messages(1)[0].message.data == data
        stream.call.cancel()


def test_compressed_requests_are_taken(world: World) -> None:
    topic, _ = world.made()
    call: Any = world.channel.unary_unary(PUBLISH, lambda each: each.SerializeToString())
    request = Request(topic=topic, messages=[Message(data=b"a" * 100_000)])
    call(request, timeout=SECONDS, compression=grpc.Compression.Gzip)
    assert world.pulled()[0].message.data == b"a" * 100_000


def test_a_message_of_the_http_api_is_received(world: World) -> None:
    world.made(enable_message_ordering=True)
    published = [
        {"data": base64.b64encode(b"\x00\xff").decode(), "attributes": {"k": "v", "google": "x"}, "orderingKey": "o"},
        {"data": "this is no base64!"},
        {"data": "", "attributes": {"k": ""}},
    ]
    said = world.http("POST", "/topics/topic:publish", {"messages": published})
    came = {each.message.message_id: each.message for each in world.pulled()}
    assert sorted(came) == sorted(said["messageIds"])
    first, second, third = (came[each] for each in said["messageIds"])
    assert (first.data, dict(first.attributes), first.ordering_key) == (b"\x00\xff", {"k": "v", "google": "x"}, "o")
    assert second.data == b"this is no base64!"
    assert third.data == b""


def test_a_message_of_this_api_is_pulled_by_the_http_api(world: World) -> None:
    topic = world.topic()
    world.publisher.create_topic(request={"name": topic})
    world.http("PUT", "/subscriptions/ordered", {"topic": f"projects/{world.project}/topics/topic"})
    world.publish(b"\x00\xff", ordering_key="o", k="v")
    came = world.http("POST", "/subscriptions/ordered:pull", {"maxMessages": "10"})["receivedMessages"]
    assert [each["message"]["data"] for each in came] == [base64.b64encode(b"\x00\xff").decode()]
    assert came[0]["message"]["attributes"] == {"k": "v"}
    assert came[0]["orderingKey"] == "o"
