"""Google's client for Python publishes and consumes, as programs do."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core.exceptions import Aborted
from google.cloud.pubsub_v1 import types
from google.cloud.pubsub_v1.subscriber.message import Message

from tests.pubsub.conftest import World

SECONDS = 20


class Received:
    """What callbacks got."""

    def __init__(self, act: Callable[[Message], None] = lambda message: message.ack()) -> None:
        self.messages: list[Message] = []
        self._act = act
        self._came = threading.Condition()

    def __call__(self, message: Message) -> None:
        self._act(message)
        with self._came:
            self.messages.append(message)
            self._came.notify_all()

    def wait(self, count: int) -> list[Message]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.messages) >= count, SECONDS), len(self.messages)
            return list(self.messages)


@contextlib.contextmanager
def streaming(world: World, subscription: str, received: Received, **options: Any) -> Iterator[None]:
    """Consume until the block ends."""
    future = world.subscriber.subscribe(subscription, received, **options)
    try:
        yield
    finally:
        future.cancel()
        future.result(SECONDS)


def test_what_is_published_comes_to_callbacks_as_it_was(world: World) -> None:
    topic, subscription = world.made()
    received = Received()
    with streaming(world, subscription, received):
        ids = [world.publisher.publish(topic, b"%d" % n, n=str(n)).result(SECONDS) for n in range(3)]
        came = received.wait(3)
    assert ids == ["0", "1", "2"]
    assert {(each.message_id, each.data, each.attributes["n"]) for each in came} == {
        (str(n), b"%d" % n, str(n)) for n in range(3)
    }
    assert world.pulled(subscription) == []


def test_messages_of_a_key_come_in_order_and_after_a_nack_again_in_order(world: World) -> None:
    topic, subscription = world.made(enable_message_ordering=True)
    futures = [world.publisher.publish(topic, b"%d" % n, ordering_key=f"key-{n % 2}") for n in range(40)]
    for each in futures:
        each.result(SECONDS)
    nacked: set[str] = set()

    def act(message: Message) -> None:
        if message.data in (b"6", b"11") and message.message_id not in nacked:
            nacked.add(message.message_id)
            message.nack()
            return
        message.ack()
        order.setdefault(message.ordering_key, []).append(int(message.data))

    order: dict[str, list[int]] = {}
    received = Received(act)
    with streaming(world, subscription, received):
        received.wait(42)
    assert order == {"key-0": list(range(0, 40, 2)), "key-1": list(range(1, 40, 2))}


def test_an_acknowledgement_with_exactly_once_delivery_says_that_it_holds(world: World) -> None:
    topic, subscription = world.made(enable_exactly_once_delivery=True)
    for n in range(20):
        world.publisher.publish(topic, b"%d" % n)
    answers = []
    received = Received(lambda message: answers.append(message.ack_with_response()))
    with streaming(world, subscription, received):
        received.wait(20)
        assert {str(each.result(SECONDS)) for each in answers} == {"AcknowledgeStatus.SUCCESS"}
    assert world.pulled(subscription) == []


def test_with_exactly_once_delivery_an_id_of_an_earlier_delivery_is_refused(world: World) -> None:
    topic, subscription = world.made(enable_exactly_once_delivery=True)
    world.publisher.publish(topic, b"once").result(SECONDS)
    first = world.pulled(subscription)[0].ack_id
    world.subscriber.modify_ack_deadline(
        request={"subscription": subscription, "ack_ids": [first], "ack_deadline_seconds": 0}
    )
    second = world.pulled(subscription)[0].ack_id
    with pytest.raises(Aborted) as refused:
        world.subscriber.acknowledge(request={"subscription": subscription, "ack_ids": [first, second]})
    assert [each.reason for each in refused.value.details] == ["EXACTLY_ONCE_ACKID_FAILURE"]
    assert dict(refused.value.details[0].metadata) == {first: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    assert world.pulled(subscription) == []


def test_without_exactly_once_delivery_a_late_acknowledgement_is_no_error(world: World) -> None:
    topic, subscription = world.made()
    world.publisher.publish(topic, b"late").result(SECONDS)
    first = world.pulled(subscription)[0].ack_id
    request = {"subscription": subscription, "ack_ids": [first], "ack_deadline_seconds": 0}
    world.subscriber.modify_ack_deadline(request=request)
    world.subscriber.acknowledge(request={"subscription": subscription, "ack_ids": [first]})
    world.subscriber.modify_ack_deadline(request={**request, "ack_deadline_seconds": 30})


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(world: World) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    topic, subscription = world.made(dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5})
    world.subscriber.create_subscription(request={"name": world.subscription("letters"), "topic": letters})
    world.publisher.publish(topic, b"poison", kind="bad").result(SECONDS)
    attempts: list[int] = []

    def act(message: Message) -> None:
        attempts.append(message.delivery_attempt)
        message.nack()

    with streaming(world, subscription, Received(act)):
        ended = time.monotonic() + SECONDS
        while not (letter := world.pulled(world.subscription("letters"))) and time.monotonic() < ended:
            time.sleep(0.05)
    assert attempts == [1, 2, 3, 4, 5]
    assert letter[0].message.data == b"poison"
    attributes = dict(letter[0].message.attributes)
    published = attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", published)
    assert {name: value for name, value in attributes.items() if not name.startswith("deadLetter")} == {
        "kind": "bad",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "subscription",
        "CloudPubSubDeadLetterSourceSubscriptionProject": world.project,
    }


def test_a_backlog_is_spread_over_streams(world: World) -> None:
    topic, subscription = world.made()
    consumers = [Received() for _ in range(4)]
    futures = [world.subscriber.subscribe(subscription, each) for each in consumers]
    time.sleep(1)  # all streams are open by then
    for future in [world.publisher.publish(topic, b"x" * 100) for _ in range(2000)]:
        future.result(SECONDS)
    ended = time.monotonic() + SECONDS
    while sum(len(each.messages) for each in consumers) < 2000 and time.monotonic() < ended:
        time.sleep(0.05)
    for each in futures:
        each.cancel()
        each.result(SECONDS)
    counts = [len(each.messages) for each in consumers]
    assert sum(counts) == 2000
    assert min(counts) >= 200, counts


def test_flow_control_holds_more_back_than_a_stream_asks_for(world: World) -> None:
    topic, subscription = world.made()
    for future in [world.publisher.publish(topic, b"x") for _ in range(50)]:
        future.result(SECONDS)
    held: list[Message] = []
    control = types.FlowControl(max_messages=10)
    received = Received(held.append)
    with streaming(world, subscription, received, flow_control=control):
        received.wait(10)
        time.sleep(0.5)
        assert len(held) == 10
        for each in held[:5]:
            each.ack()
        received.wait(15)


def test_a_stream_of_a_deleted_subscription_ends_for_good(world: World) -> None:
    _, subscription = world.made()
    future = world.subscriber.subscribe(subscription, Received())
    time.sleep(0.3)
    world.subscriber.delete_subscription(request={"subscription": subscription})
    with pytest.raises(Exception, match="Resource not found"):
        future.result(SECONDS)
