"""What a call held is free when it is over, also without the collector of cycles, which the service has run rarely."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from tests.pubsub.streams import SECONDS
from tests.support.served import Served, served

TOPIC, MISSING = "projects/P/topics/Topic", "projects/P/topics/missing"
PUBLISHER = "/google.pubsub.v1.Publisher/"
CALLS = 20
KINDS = ("RPCState", "_ServicerContext", "AbortError")
"""What gRPC has of each call: from there its request can be reached, and from its frames."""
pb: Any = types


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("memory") / "ams-data"
    with served(data, host="127.0.0.1", pubsub_port=0, pubsub_emulator=True) as service:
        with grpc.insecure_channel(service.run.pubsub) as channel:
            topic = pb.Topic.pb()(name=TOPIC).SerializeToString()
            assert _code(lambda: channel.unary_unary(PUBLISHER + "CreateTopic")(topic, timeout=SECONDS)) == "OK"
        yield service


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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
    until = time.monotonic() + SECONDS
    while sum(_held().values()) >= CALLS and time.monotonic() < until:
        time.sleep(0.05)
    assert sum(_held().values()) < CALLS, _held()  # gRPC has a few for calls that are to come
