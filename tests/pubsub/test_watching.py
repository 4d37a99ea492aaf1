"""What operators see of Google's clients: figures, and what the doctor says of streams."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1 import StreamingPullRequest
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.support.served import SERVICE_TOKEN, Served, served

TOPIC, SUBSCRIPTION = "projects/garden/topics/plants", "projects/garden/subscriptions/beds"
SECONDS = 20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "data", pubsub_port=0, pubsub_emulator=True, max_message_bytes=10_000_000) as service:
        yield service


@pytest.fixture
def channel(service: Served) -> Iterator[grpc.Channel]:
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(service.run.pubsub, options=limits) as channel:
        yield channel


@pytest.fixture
def publisher(channel: grpc.Channel) -> pubsub_v1.PublisherClient:
    return pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))


@pytest.fixture
def subscriber(channel: grpc.Channel, publisher: pubsub_v1.PublisherClient) -> pubsub_v1.SubscriberClient:
    """A client with a subscription."""
    subscriber = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
    publisher.create_topic(request={"name": TOPIC})
    subscriber.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})
    return subscriber


class Stream:
    """A stream as clients have it, without what their libraries do by themselves."""

    def __init__(self, subscriber: pubsub_v1.SubscriberClient) -> None:
        self._left = threading.Event()
        self._answers: Any = subscriber.streaming_pull(requests=self._requests())

    def _requests(self) -> Iterator[StreamingPullRequest]:
        yield StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60)
        self._left.wait()

    def received(self) -> Any:
        """Return the next answer with messages."""
        return next(each for each in self._answers if each.received_messages)

    def leave(self) -> None:
        self._answers.cancel()
        self._left.set()


def figures(service: Served) -> dict[str, float]:
    text = httpx.get(service.run.operations_url + "/metrics", trust_env=False).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ams_pubsub")]
    return {name: float(value) for name, value in lines}


def findings(service: Served) -> list[tuple[bool, str]]:
    url = f"{service.run.base_url}/v1/projects/garden/subscriptions/beds:doctor"
    found = httpx.get(url, headers={"x-api-key": SERVICE_TOKEN}, trust_env=False).raise_for_status().json()["findings"]
    return [(each["wrong"], each["text"]) for each in found]


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_calls_are_counted_by_their_codes(service: Served, publisher: pubsub_v1.PublisherClient) -> None:
    publisher.create_topic(request={"name": TOPIC})
    publisher.get_topic(request={"topic": TOPIC})
    with pytest.raises(NotFound):
        publisher.get_topic(request={"topic": TOPIC + "-gone"})

    eventually(lambda: sum(figures(service).values()) == 3)
    assert figures(service) == {
        "ams_pubsub_streams": 0,
        'ams_pubsub_calls_total{code="OK"}': 2,
        'ams_pubsub_calls_total{code="INTERNAL"}': 0,
        'ams_pubsub_calls_total{code="UNAVAILABLE"}': 0,
        'ams_pubsub_calls_total{code="NOT_FOUND"}': 1,
    }


def test_streams_are_counted_and_the_doctor_says_of_them(
    service: Served, publisher: pubsub_v1.PublisherClient, subscriber: pubsub_v1.SubscriberClient
) -> None:
    streams = [Stream(subscriber) for _ in range(2)]
    publisher.publish(TOPIC, b"x").result(SECONDS)
    eventually(lambda: figures(service)["ams_pubsub_streams"] == 2)
    said = [text for _, text in findings(service)]
    assert "2 streams are open to consumers." in said
    assert any(re.match("1 message on lease: ", text) for text in said)

    for each in streams:
        each.leave()
    eventually(lambda: figures(service)["ams_pubsub_streams"] == 0)
    assert not any("stream" in text for _, text in findings(service))
    eventually(lambda: figures(service).get('ams_pubsub_calls_total{code="CANCELLED"}') == 2)


def test_the_doctor_says_of_a_message_that_is_too_large_for_some_until_it_is_acknowledged(
    service: Served, publisher: pubsub_v1.PublisherClient, subscriber: pubsub_v1.SubscriberClient
) -> None:
    stream = Stream(subscriber)
    publisher.publish(TOPIC, b"x" * 4_000_001).result(SECONDS)
    message = stream.received().received_messages[0]
    size = type(message).pb(message).ByteSize()  # where times have milliseconds they take a few bytes more
    assert [text[:42] for wrong, text in findings(service) if wrong] == [f"Message 0 has {size} bytes on a stream, a"]

    subscriber.acknowledge(request={"subscription": SUBSCRIPTION, "ack_ids": [message.ack_id]})
    assert [text for wrong, text in findings(service) if wrong] == []
    stream.leave()
