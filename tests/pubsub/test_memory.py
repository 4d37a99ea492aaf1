"""What a call held is free when it is over, also without the collector of cycles, which the service has run rarely."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from tests.pubsub.streams import SECONDS, STREAMING_PULL
from tests.support.served import Served, served

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
            topic = pb.Topic.pb()(name=TOPIC)
            assert _asked(channel, PUBLISHER + "CreateTopic", topic) == "OK"
            subscription = pb.Subscription.pb()(name=SUBSCRIPTION, topic=TOPIC)
            assert _asked(channel, SUBSCRIBER + "CreateSubscription", subscription) == "OK"
        yield service


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _asked(channel: grpc.Channel, method: str, request: Any) -> str:
    return _code(lambda: channel.unary_unary(method)(request.SerializeToString(), timeout=SECONDS))


def _code(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)  # type: ignore[attr-defined]
    return "OK"


def _held() -> Counter[str]:
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in KINDS)


def _publish(topic: str, **message: object) -> bytes:
    said: bytes = pb.PublishRequest.pb()(topic=topic, messages=[message]).SerializeToString()
    return said


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize(
    ("request_", "code"),
    [(_publish(TOPIC, data=b"x"), "OK"),
     (_publish(MISSING, data=b"x" * 500_000), "NOT_FOUND"),
     (_publish("nothing", data=b"x" * 500_000), "INVALID_ARGUMENT"),
     (_publish(TOPIC), "INVALID_ARGUMENT"),
     (b"\xff" * 500_000, "INVALID_ARGUMENT"),
     (b"\x12\x00" * 200_000, "INVALID_ARGUMENT"),
    ],
)  # fmt: skip
def test_nothing_is_held_of_calls_that_are_over(service: Served, request_: bytes, code: str) -> None:
    with grpc.insecure_channel(service.run.pubsub) as channel:
        call = channel.unary_unary(PUBLISHER + "Publish")
        assert _code(lambda: call(request_, timeout=SECONDS)) == code
        assert {_code(lambda: call(request_, timeout=SECONDS)) for _ in range(CALLS)} == {code}
    _check_nothing_is_held()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize(
    ("asked", "answers", "code"),
    [({"subscription": SUBSCRIPTION}, 1, "OK"),  # its client leaves
     ({"subscription": SUBSCRIPTION, "ack_ids": ["none"]}, 2, "INVALID_ARGUMENT"),
     ({"subscription": "projects/P/subscriptions/missing"}, 1, "NOT_FOUND"),
    ],
)  # fmt: skip
def test_nothing_is_held_of_streams_that_are_over(
    service: Served, asked: dict[str, object], answers: int, code: str
) -> None:
    said = pb.StreamingPullRequest.pb()(stream_ack_deadline_seconds=10, **asked).SerializeToString()
    with grpc.insecure_channel(service.run.pubsub) as channel:

        def stream() -> None:
            opened = channel.stream_stream(STREAMING_PULL)(iter([said]), timeout=SECONDS)
            for _ in range(answers):
                next(opened)
            opened.cancel()

        assert {_code(stream) for _ in range(CALLS)} == {code}
    _check_nothing_is_held()


def _check_nothing_is_held() -> None:
    until = time.monotonic() + SECONDS
    while sum(_held().values()) >= CALLS and time.monotonic() < until:
        time.sleep(0.05)
    assert sum(_held().values()) < CALLS, _held()  # gRPC has a few for calls that are to come


def test_an_answer_for_which_there_is_no_memory_is_not_sent(service: Served) -> None:
    definition = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}' + " " * 200_000
    with grpc.insecure_channel(service.run.pubsub) as channel:
        for number in range(3):
            schema = pb.Schema.pb()(type_=2, definition=definition)
            made = pb.CreateSchemaRequest.pb()(parent="projects/P", schema=schema, schema_id=f"schema{number}")
            assert _asked(channel, SCHEMAS + "CreateSchema", made) == "OK"  # also when it is answered with much
        every = pb.ListSchemasRequest.pb()(parent="projects/P", view=2)
        assert _asked(channel, SCHEMAS + "ListSchemas", every) == "UNAVAILABLE"
        every.page_size = 1
        assert _asked(channel, SCHEMAS + "ListSchemas", every) == "OK"
