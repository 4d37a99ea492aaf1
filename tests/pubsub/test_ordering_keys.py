"""Ordering keys by streams: one stream gets a batch of a key, and a failed message is redelivered with the later
ones."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import Aborted
from google.cloud.pubsub_v1.subscriber._protocol import dispatcher
from google.pubsub_v1 import PublisherClient

from tests.pubsub.conftest import World
from tests.pubsub.test_messages import GOOD, acknowledge_ids, told_to_client


def publish(world: World, count: int) -> None:
    messages = [{"data": b"%d" % number, "ordering_key": "k"} for number in range(count)]
    PublisherClient.publish(world.publisher, request={"topic": world.topic(), "messages": messages})


def numbers(messages: list[Any]) -> list[int]:
    return [int(each.message.data) for each in messages]


def test_a_stream_gets_a_batch_of_a_key_and_more_as_it_acknowledges(world: World) -> None:
    world.make_subscription(enable_message_ordering=True)
    publish(world, 6)
    stream = world.open_stream(max_outstanding_messages=3)
    first = stream.messages(3)
    assert numbers(first) == [0, 1, 2]
    stream.send(ack_ids=[first[0].ack_id])
    assert numbers(stream.messages(1)) == [3]
    stream.send(ack_ids=[first[2].ack_id])

    stream.send(modify_deadline_ack_ids=[first[1].ack_id], modify_deadline_seconds=[0])

    assert numbers(stream.messages(3)) == [1, 2, 3]


def out_of_order(world: World) -> tuple[str, list[str]]:
    """Return a subscription with exactly-once delivery, and ids of three messages of one key."""
    _, subscription = world.make_subscription(enable_message_ordering=True, enable_exactly_once_delivery=True)
    publish(world, 3)
    return subscription, [each.ack_id for each in world.pull()]


def test_with_exactly_once_delivery_an_id_out_of_order_fails_for_now(world: World) -> None:
    _, (first, second, third) = out_of_order(world)
    with pytest.raises(Aborted, match="an earlier message of their ordering key is not acknowledged yet") as error:
        world.acknowledge(second, third)
    assert error.value.details[0].metadata == dict.fromkeys((second, third), "TRANSIENT_FAILURE_UNORDERED_ACK_ID")
    stream = world.open_stream()
    stream.send(ack_ids=[second, "9-1.0.1.1.abcdef"])
    confirmed = stream.next().acknowledge_confirmation
    assert (list(confirmed.ack_ids), list(confirmed.unordered_ack_ids)) == ([], [second])
    assert list(confirmed.invalid_ack_ids) == ["9-1.0.1.1.abcdef"]
    world.acknowledge(third, first, second)


def test_googles_client_acknowledges_an_id_out_of_order_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(**_: float) -> Iterator[float]:
        while True:
            pauses.append(0.01)
            if len(pauses) == 3:
                world.acknowledge(first)
            yield pauses[-1]

    monkeypatch.setattr(dispatcher, "exponential_sleep_generator", pause)
    subscription, (first, *others) = out_of_order(world)

    assert told_to_client(world, subscription, acknowledge_ids, others) == [GOOD, GOOD]
    assert len(pauses) == 3
    assert world.http("GET", "/subscriptions/subscription:offsets")["current"] == 3
