"""What operators see of Google's clients: figures, and what the doctor says of streams."""

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.api_core.exceptions import NotFound

from tests.pubsub.conftest import World, world_at
from tests.support.served import Served, served
from tests.support.waiting import wait_until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A service of its own: its figures are of all that it serves."""
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with (
        served(tmp_path / "data", pubsub_port=0, pubsub_emulator=True, max_message_bytes=10_000_000) as service,
        grpc.insecure_channel(service.run.pubsub, options=limits) as channel,
    ):
        yield world_at(channel, service)


def figures(world: World) -> dict[str, float]:
    assert isinstance(world.service, Served)
    text = httpx.get(world.service.run.operations_url + "/metrics", trust_env=False).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ams_pubsub")]
    return {name: float(value) for name, value in lines}


def findings(world: World) -> list[tuple[bool, str]]:
    found = world.http("GET", "/subscriptions/subscription:doctor")["findings"]
    return [(each["wrong"], each["text"]) for each in found]


def test_calls_are_counted_by_their_codes(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic()})
    world.publisher.get_topic(request={"topic": world.topic()})
    with pytest.raises(NotFound):
        world.publisher.get_topic(request={"topic": world.topic("gone")})

    wait_until(lambda: sum(figures(world).values()) == 3)
    assert figures(world) == {
        "ams_pubsub_streams": 0,
        'ams_pubsub_calls_total{code="OK"}': 2,
        'ams_pubsub_calls_total{code="INTERNAL"}': 0,
        'ams_pubsub_calls_total{code="UNAVAILABLE"}': 0,
        'ams_pubsub_calls_total{code="NOT_FOUND"}': 1,
    }


def test_streams_are_counted_and_the_doctor_says_of_them(world: World) -> None:
    world.made()
    streams = [world.opened() for _ in range(2)]
    world.publish(b"x")
    assert figures(world)["ams_pubsub_streams"] == 2
    wait_until(lambda: any(re.match("1 message on lease: ", text) for _, text in findings(world)))
    assert "2 streams are open to consumers." in [text for _, text in findings(world)]

    for each in streams:
        each.call.cancel()
    wait_until(lambda: figures(world)["ams_pubsub_streams"] == 0)
    assert not any("stream" in text for _, text in findings(world))
    wait_until(lambda: figures(world).get('ams_pubsub_calls_total{code="CANCELLED"}') == 2)


def test_the_doctor_says_of_a_message_that_is_too_large_for_some_until_it_is_acknowledged(world: World) -> None:
    topic, _ = world.made()
    stream = world.opened()
    world.publisher.publish(topic, b"x" * 4_000_001).result(60)
    [message] = stream.messages(1)
    size = message.ByteSize()  # where times have milliseconds they take a few bytes more
    assert [text[:42] for wrong, text in findings(world) if wrong] == [f"Message 0 has {size} bytes on a stream, a"]

    world.acknowledge(message.ack_id)
    assert [text for wrong, text in findings(world) if wrong] == []
    stream.call.cancel()
