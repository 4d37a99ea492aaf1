"""The port of Google's Pub/Sub: clients that vanish or ping, relays, metrics, large requests, and memory."""

import asyncio
import contextlib
import gc
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import grpc
import httpx
import pytest
from google.api_core.exceptions import NotFound
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import types
from grpc._cython import cygrpc
from hypothesis import example, given
from hypothesis import strategies as st

from ams.core.errors import AmsError, InvalidInput, OwnedElsewhere
from ams.core.supervisor import Supervisor
from ams.pubsub import requests
from ams.pubsub.forwarding import Relays
from ams.pubsub.messages import messages_to_publish
from ams.pubsub.requests import read, scope_of
from ams.pubsub.rest import refusal_of
from ams.pubsub.server import answering
from ams.service.parallel.pulls import LeaseBatch, Puller
from ams.web.connection import Port
from ams.web.http2_relay import peer_name
from ams.web.listener import ListenerLimits
from tests.pubsub.conftest import World, world_at
from tests.pubsub.streams import SECONDS, STREAMING_PULL, ask, get_refusal, open_stream
from tests.support.after_change import fail_after_change
from tests.support.http2_pings import ping
from tests.support.served import InProcessService, in_process_service
from tests.support.service import running_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until


async def _forgotten_failure(error: BaseException) -> None:
    """Let a task fail that nobody awaits, as grpcio does."""

    async def fail() -> None:
        raise error

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    del task
    gc.collect()


@pytest.mark.parametrize(("error", "is_written"), [
    (cygrpc.ExecuteBatchError("Failed 'execute_batch'"), False), (grpc.aio.InternalError("the client is gone"), False),
    (RuntimeError("a defect"), True),
])  # fmt: skip
async def test_clients_may_vanish(error: Exception, is_written: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path):
    parts: Any = SimpleNamespace(stop=lambda: None)  # no calls
    port, limits = Port(parts, refusal_of), ListenerLimits(connections=10)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with answering(sock, str(tmp_path), {}, parts, parts, port, limits, Supervisor()):
            await _forgotten_failure(error)

    assert ("Task exception was never retrieved" in caplog.text) is is_written


@pytest.mark.long
async def test_a_client_that_pings_every_ten_seconds_stays(tmp_path: Path) -> None:
    async with running_service(tmp_path / "data", pubsub_port=0, pubsub_emulator=True) as (run, _):
        await ping(run.pubsub)


class Context:
    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer token"), ("x-forwarded-for", "203.0.113.9"), ("user-agent", "other"))

    def peer(self) -> str:
        return "unix-abstract:" + peer_name("192.0.2.5", 4711, is_secure=False)

    def time_remaining(self) -> None:
        return None


CALL_HEADERS = [(b"x-api-key", b"key"), (b"x-forwarded-for", b"203.0.113.9"), (b"user-agent", b"other")]
REST = {"headers": CALL_HEADERS, "query_string": b"", "client": ("192.0.2.5", 4711), "scheme": "https"}


@pytest.mark.embedded("calls between nodes have nothing to do with engines")
@pytest.mark.parametrize(("scope", "token"), [(scope_of(Context(), "", ()), "Bearer token"), (REST, "key")])
async def test_the_owner_is_told_the_token_and_where_and_what_the_client_is(scope: Any, token: str) -> None:
    async def answer(_: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        given = dict(context.invocation_metadata() or ())
        wanted = ("authorization", "x-goog-api-key", "x-forwarded-for", "x-ams-forwarded-by", "x-ams-user-agent")
        return "|".join(str(given[name]) for name in wanted if name in given).encode()

    handler = grpc.method_handlers_generic_handler("Service", {"Call": grpc.unary_unary_rpc_method_handler(answer)})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    relays = Relays("node1", lambda _: None)
    elsewhere = OwnedElsewhere(subscription="s", node="node2", pubsub=f"127.0.0.1:{port}")
    try:
        said = await relays.unary(elsewhere, "/Service/Call", b"", scope, None)
    finally:
        await relays.close()
        await server.stop(None)
    assert said == f"{token}|203.0.113.9, 192.0.2.5|node1|other".encode()


@pytest.fixture
def lone_world(tmp_path: Path) -> Iterator[World]:
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with (in_process_service(tmp_path / "data", pubsub_port=0, pubsub_emulator=True) as service,
          grpc.insecure_channel(service.run.pubsub, options=limits) as channel):  # fmt: skip
        yield world_at(channel, service)


def test_a_stored_change_is_done_whatever_comes_after_it(lone_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise clients retry, and get an error that it exists already."""
    topic, subscription = lone_world.make_subscription()
    lone_world.subscriber.create_snapshot(request={"name": lone_world.snapshot(), "subscription": subscription})
    names, mask = {"name": topic}, {"paths": ["labels"]}
    changes = {
        "Publisher/CreateTopic": types.Topic(
            name=lone_world.topic("new"), message_retention_duration={"seconds": 3600}
        ),
        "Subscriber/CreateSubscription": types.Subscription(name=lone_world.subscription("new"), topic=topic),
        "Publisher/UpdateTopic": types.UpdateTopicRequest(topic=names, update_mask=mask),
        "Subscriber/UpdateSubscription": types.UpdateSubscriptionRequest(
            subscription={"name": subscription, "topic": topic}, update_mask=mask
        ),
        "Subscriber/UpdateSnapshot": types.UpdateSnapshotRequest(
            snapshot={"name": lone_world.snapshot()}, update_mask=mask
        ),
        "Publisher/DetachSubscription": types.DetachSubscriptionRequest(subscription=subscription),
    }
    fail_after_change(monkeypatch, lambda _: True)

    refusals = {
        name: get_refusal(lone_world.channel, f"/google.pubsub.v1.{name}", type(each).serialize(each))
        for name, each in changes.items()
    }

    assert refusals == dict.fromkeys(changes, ("OK", ""))


def figures(alone: World) -> dict[str, float]:
    assert isinstance(alone.service, InProcessService)
    text = httpx.get(alone.service.run.operations_url + "/metrics", trust_env=False, timeout=PATIENCE_SECONDS).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ams_pubsub")]
    return {name: float(value) for name, value in lines}


def findings(alone: World) -> list[tuple[bool, str]]:
    found = alone.http("GET", "/subscriptions/subscription:doctor")["findings"]
    return [(each["wrong"], each["text"]) for each in found]


def test_calls_are_counted_by_their_codes(lone_world: World) -> None:
    lone_world.publisher.create_topic(request={"name": lone_world.topic()})
    lone_world.publisher.get_topic(request={"topic": lone_world.topic()})
    with pytest.raises(NotFound):
        lone_world.publisher.get_topic(request={"topic": lone_world.topic("gone")})

    wait_until(lambda: sum(figures(lone_world).values()) == 3)
    assert figures(lone_world) == {
        "ams_pubsub_streams": 0, 'ams_pubsub_calls_total{code="OK"}': 2, 'ams_pubsub_calls_total{code="INTERNAL"}': 0,
        'ams_pubsub_calls_total{code="UNAVAILABLE"}': 0, 'ams_pubsub_calls_total{code="NOT_FOUND"}': 1,
    }  # fmt: skip


def test_streams_are_counted_and_the_doctor_says_of_them(lone_world: World) -> None:
    lone_world.make_subscription()
    streams = [lone_world.open_stream() for _ in range(2)]
    lone_world.publish(b"x")
    assert figures(lone_world)["ams_pubsub_streams"] == 2
    wait_until(lambda: any(re.match("1 message on lease: ", text) for _, text in findings(lone_world)))
    assert "2 streams are open to consumers." in [text for _, text in findings(lone_world)]

    def count_ended() -> float:
        """Count calls that ended well or were cancelled: gRPC may show the end of requests before the cancellation."""
        return sum(
            figures(lone_world).get(f'ams_pubsub_calls_total{{code="{each}"}}', 0) for each in ("OK", "CANCELLED")
        )

    ended = count_ended()
    for each in streams:
        each.call.cancel()
    wait_until(lambda: figures(lone_world)["ams_pubsub_streams"] == 0)
    wait_until(lambda: not any("stream" in text for _, text in findings(lone_world)))
    wait_until(lambda: count_ended() == ended + 2)


def test_the_doctor_says_of_a_message_that_is_too_large_for_some_until_it_is_acknowledged(lone_world: World) -> None:
    topic, _ = lone_world.make_subscription()
    stream = lone_world.open_stream()
    lone_world.publisher.publish(topic, b"x" * 4_000_001).result(60)
    [message] = stream.messages(1)
    size = message.ByteSize()  # where times have milliseconds they take a few bytes more
    assert [text[:42] for wrong, text in findings(lone_world) if wrong] == [
        f"Message 0 has {size} bytes on a stream, a"
    ]

    lone_world.acknowledge(message.ack_id)
    assert [text for wrong, text in findings(lone_world) if wrong] == []
    stream.call.cancel()


pb: Any = types
Publish: Any = pb.PublishRequest.pb()
Message: Any = pb.PubsubMessage.pb()
KINDS = [Publish, pb.UpdateTopicRequest.pb(), pb.AcknowledgeRequest.pb(), iam_policy_pb2.SetIamPolicyRequest]
EMPTY_MESSAGE, EMPTY_ATTRIBUTE = b"\x12\x00", b"\x12\x00"
LARGEST_PUBLISH = Publish(
    topic="T",
    messages=[
        Message(data=b"x", attributes={f"{i}": "" for i in range(100)}, ordering_key="k", message_id="1",
                publish_time={"seconds": 1, "nanos": 1})
    ] * 1000,
)  # fmt: skip
texts = st.text(max_size=5)
publishes = st.builds(
    lambda messages, topic: Publish(topic=topic, messages=messages),
    st.lists(
        st.builds(
            lambda data, attributes, key: Message(data=data, attributes=attributes, ordering_key=key),
            st.binary(max_size=200), st.dictionaries(texts, texts, max_size=5), texts
        ),
        max_size=20
    ),
    texts,
)  # fmt: skip


def looked_at(kind: Any, said: bytes) -> None:
    with patch.object(requests, "SMALL", -1):
        requests.check_fields(kind.DESCRIPTOR, said)


@given(publishes)
@example(LARGEST_PUBLISH)
def test_no_publish_that_is_served_is_refused(request: Any) -> None:
    looked_at(Publish, request.SerializeToString())


@given(st.sampled_from(KINDS), st.one_of(st.binary(max_size=60), publishes.map(lambda each: each.SerializeToString())),
       st.integers(0, 100), st.integers(0, 255))  # fmt: skip
def test_what_is_no_message_is_refused_as_such_or_left_to_the_parser(kind: Any, said: bytes, at: int, to: int) -> None:
    changed = bytearray(said)
    if at < len(said):
        changed[at] = to
    try:
        looked_at(kind, bytes(changed))
    except InvalidInput:
        return


@pytest.mark.parametrize("count", [101, 117, 100_000])
def test_what_is_over_the_limits_of_a_publish_is_refused_before_it_is_parsed_or_after(count: int) -> None:
    many = Publish(messages=[Message(data=b"x" * 200)] * (900 + count))
    attributes = Publish(messages=[Message(attributes={f"{i}": "" for i in range(count)})])
    for each in (many, attributes):
        with pytest.raises(AmsError):
            messages_to_publish(read(Publish, each.SerializeToString()), 10_000_000)


@pytest.mark.parametrize(("kind", "said", "why"), [
    (Publish, EMPTY_MESSAGE * 1017, "message_count"),
    (Publish, b"\x12\x80\x80\x01" + EMPTY_ATTRIBUTE * 2**13, "too many attributes"),
    (Publish, b"\x0a\x00" * 2000, "message_count"),
    (KINDS[1], b"\x12\x00" * 10_001, "too much in it"),
    (KINDS[3], b"\x12\x80\x80\x08" + b"\x22\x00" * 2**16, "too much in it"),
    (KINDS[2], b"\x12\x00" * 262_145, "too large"),
    (Publish, b"\x0b" * 10, "no valid message"),  # a group
    (Publish, b"\x12\x05a", "no valid message"),
    (Publish, b"\x12" + b"\x80" * 20, "no valid message"),
])  # fmt: skip
def test_much_in_a_request_is_refused_before_it_is_parsed(kind: Any, said: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        looked_at(kind, said)


def test_a_small_request_and_one_of_ids_is_not_looked_at() -> None:
    requests.check_fields(Publish.DESCRIPTOR, EMPTY_MESSAGE * (requests.SMALL // 2))
    requests.check_fields(KINDS[2].DESCRIPTOR, b"\x12\x00" * (requests.MOST_FLAT // 2))


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_client_is_told_so(world: World, compression: Any) -> None:
    publish = world.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    with pytest.raises(grpc.RpcError) as refused:
        publish(EMPTY_MESSAGE * 2_500_000, timeout=20, compression=compression)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "The value for message_count is too large. The maximum value is 1000."


TOPIC, MISSING = "projects/P/topics/Topic", "projects/P/topics/missing"
SUBSCRIPTION = "projects/P/subscriptions/Subscription"
PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"
SCHEMAS = "/google.pubsub.v1.SchemaService/"
UNREAD_LIMITS = {"max_message_bytes": 100_000, "pubsub_max_message_bytes": 66_000, "max_unread_bytes": 400_000}
CALLS = 20
HELD_KINDS = ("RPCState", "_ServicerContext", "AbortError", "_Stream", "_Spread")
"""Objects of each call: its request is reachable from there, and from its frames."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    data = tmp_path_factory.mktemp("memory") / "ams-data"
    with in_process_service(data, host="127.0.0.1", pubsub_port=0, pubsub_emulator=True, **UNREAD_LIMITS) as service:
        with grpc.insecure_channel(service.run.pubsub) as channel:
            ask(channel, PUBLISHER + "CreateTopic", pb.Topic.pb()(name=TOPIC))
            subscription = pb.Subscription.pb()(name=SUBSCRIPTION, topic=TOPIC)
            ask(channel, SUBSCRIBER + "CreateSubscription", subscription)
        yield service


@pytest.fixture
def held_before() -> Iterator[int]:
    """Count the objects of other tests' calls, while the collector is off."""
    gc.collect()
    gc.disable()
    yield sum(_count_held().values())
    gc.enable()


def _count_held() -> Counter[str]:
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in HELD_KINDS)


def _publish(topic: str, **message: object) -> bytes:
    said: bytes = pb.PublishRequest.pb()(topic=topic, messages=[message]).SerializeToString()
    return said


@pytest.mark.parametrize(("request_", "code"), [
    (_publish(TOPIC, data=b"x"), "OK"), (_publish(MISSING, data=b"x" * 500_000), "NOT_FOUND"),
    (_publish("nothing", data=b"x" * 500_000), "INVALID_ARGUMENT"), (_publish(TOPIC), "INVALID_ARGUMENT"),
    (b"\xff" * 500_000, "INVALID_ARGUMENT"), (b"\x12\x00" * 200_000, "INVALID_ARGUMENT"),
])  # fmt: skip
def test_finished_calls_hold_nothing(service: InProcessService, held_before: int, request_: bytes, code: str) -> None:
    with grpc.insecure_channel(service.run.pubsub) as channel:
        assert {get_refusal(channel, PUBLISHER + "Publish", request_)[0] for _ in range(CALLS + 1)} == {code}
    _check_nothing_is_held(held_before)


@pytest.mark.parametrize(("asked", "code"), [
    ({"subscription": SUBSCRIPTION}, "CANCELLED"), ({"subscription": "projects/P/subscriptions/missing"}, "NOT_FOUND"),
    ({"subscription": SUBSCRIPTION, "ack_ids": ["none"]}, "INVALID_ARGUMENT"),
])  # fmt: skip
def test_ended_streams_hold_nothing(service: InProcessService, held_before: int, asked: dict[str, object], code: str):
    said = pb.StreamingPullRequest.pb()(stream_ack_deadline_seconds=10, **asked).SerializeToString()
    with grpc.insecure_channel(service.run.pubsub) as channel:

        def stream() -> str:
            opened = channel.stream_stream(STREAMING_PULL)(iter([said]), timeout=SECONDS)
            with contextlib.suppress(grpc.RpcError):
                for _ in opened:
                    if code == "CANCELLED":
                        opened.cancel()
            return str(opened.code().name)

        codes = {stream() for _ in range(CALLS)}
    # A half-closed client may have been answered with OK before it leaves.
    assert codes <= ({"OK", code} if code == "CANCELLED" else {code})
    _check_nothing_is_held(held_before)


def _check_nothing_is_held(before: int) -> None:
    wait_until(lambda: sum(_count_held().values()) - before < CALLS)  # gRPC keeps a few for future calls


def test_a_stream_says_that_its_subscription_was_detached_before_a_pull(service: InProcessService) -> None:
    name, pull = "projects/P/subscriptions/detached", Puller.pull

    async def detach_and_pull(puller: Puller, *args: Any, **options: Any) -> list[LeaseBatch]:
        request = pb.DetachSubscriptionRequest.pb()(subscription=name)
        await asyncio.to_thread(ask, channel, PUBLISHER + "DetachSubscription", request)
        return await pull(puller, *args, **options)

    with grpc.insecure_channel(service.run.pubsub) as channel:
        ask(channel, SUBSCRIBER + "CreateSubscription", pb.Subscription.pb()(name=name, topic=TOPIC))
        with patch.object(Puller, "pull", detach_and_pull):
            stream = open_stream(channel, name)
            assert stream.end() == (grpc.StatusCode.FAILED_PRECONDITION, f"Subscription {name} is detached.")


def test_an_answer_for_which_there_is_no_memory_is_not_sent(service: InProcessService) -> None:
    definition = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}' + " " * 200_000
    with grpc.insecure_channel(service.run.pubsub) as channel:
        for number in range(3):
            schema = pb.Schema.pb()(type_=2, definition=definition)
            made = pb.CreateSchemaRequest.pb()(parent="projects/P", schema=schema, schema_id=f"schema{number}")
            ask(channel, SCHEMAS + "CreateSchema", made)  # also when it is answered with much
        every = pb.ListSchemasRequest.pb()(parent="projects/P", view=2)
        assert get_refusal(channel, SCHEMAS + "ListSchemas", every)[0] == "UNAVAILABLE"
        every.page_size = 1
        assert get_refusal(channel, SCHEMAS + "ListSchemas", every)[0] == "OK"
