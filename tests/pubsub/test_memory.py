"""What a call held is free when it is over, also without the collector of cycles, which the service has run rarely."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from tests.pubsub.streams import SECONDS, STREAMING_PULL, ask, refused
from tests.support.served import Served, served
from tests.support.waiting import wait_until

TOPIC, MISSING = "projects/P/topics/Topic", "projects/P/topics/missing"
SUBSCRIPTION = "projects/P/subscriptions/Subscription"
PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"
SCHEMAS = "/google.pubsub.v1.SchemaService/"
UNREAD = {"max_message_bytes": 100_000, "max_unread_bytes": 400_000}
CALLS = 20
KINDS = ("RPCState", "_ServicerContext", "AbortError", "_Stream", "_Spread")
"""What there is of each call: from there its request can be reached, and from its frames."""
pb: Any = types


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("memory") / "ams-data"
    with served(data, host="127.0.0.1", pubsub_port=0, pubsub_emulator=True, **UNREAD) as service:
        with grpc.insecure_channel(service.run.pubsub) as channel:
            ask(channel, PUBLISHER + "CreateTopic", pb.Topic.pb()(name=TOPIC))
            subscription = pb.Subscription.pb()(name=SUBSCRIPTION, topic=TOPIC)
            ask(channel, SUBSCRIBER + "CreateSubscription", subscription)
        yield service


@pytest.fixture
def held_before() -> Iterator[int]:
    """How much there is of calls that other tests made, while the collector does not run."""
    gc.collect()
    gc.disable()
    yield sum(_held().values())
    gc.enable()


def _held() -> Counter[str]:
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in KINDS)


def _publish(topic: str, **message: object) -> bytes:
    said: bytes = pb.PublishRequest.pb()(topic=topic, messages=[message]).SerializeToString()
    return said


@pytest.mark.parametrize(
    ("request_", "code"),
    [(_publish(TOPIC, data=b"x"), "OK"), (_publish(MISSING, data=b"x" * 500_000), "NOT_FOUND"),
     (_publish("nothing", data=b"x" * 500_000), "INVALID_ARGUMENT"), (_publish(TOPIC), "INVALID_ARGUMENT"),
     (b"\xff" * 500_000, "INVALID_ARGUMENT"), (b"\x12\x00" * 200_000, "INVALID_ARGUMENT")],
)  # fmt: skip
def test_nothing_is_held_of_calls_that_are_over(service: Served, held_before: int, request_: bytes, code: str) -> None:
    with grpc.insecure_channel(service.run.pubsub) as channel:
        assert {refused(channel, PUBLISHER + "Publish", request_)[0] for _ in range(CALLS + 1)} == {code}
    _check_nothing_is_held(held_before)


@pytest.mark.parametrize(
    ("asked", "code"),
    [({"subscription": SUBSCRIPTION}, "CANCELLED"), ({"subscription": "projects/P/subscriptions/missing"}, "NOT_FOUND"),
     ({"subscription": SUBSCRIPTION, "ack_ids": ["none"]}, "INVALID_ARGUMENT")],
)  # fmt: skip
def test_nothing_is_held_of_streams_that_are_over(
    service: Served, held_before: int, asked: dict[str, object], code: str
) -> None:
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
    # A client that has said all may have been answered with OK before it leaves.
    assert codes <= ({"OK", code} if code == "CANCELLED" else {code})
    _check_nothing_is_held(held_before)


def _check_nothing_is_held(before: int) -> None:
    wait_until(lambda: sum(_held().values()) - before < CALLS)  # gRPC has a few for calls that are to come


def test_an_answer_for_which_there_is_no_memory_is_not_sent(service: Served) -> None:
    definition = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}' + " " * 200_000
    with grpc.insecure_channel(service.run.pubsub) as channel:
        for number in range(3):
            schema = pb.Schema.pb()(type_=2, definition=definition)
            made = pb.CreateSchemaRequest.pb()(parent="projects/P", schema=schema, schema_id=f"schema{number}")
            ask(channel, SCHEMAS + "CreateSchema", made)  # also when it is answered with much
        every = pb.ListSchemasRequest.pb()(parent="projects/P", view=2)
        assert refused(channel, SCHEMAS + "ListSchemas", every)[0] == "UNAVAILABLE"
        every.page_size = 1
        assert refused(channel, SCHEMAS + "ListSchemas", every)[0] == "OK"
