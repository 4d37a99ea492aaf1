"""Google's client for Python publishes and consumes, as programs do."""

import contextlib
import re
from collections.abc import Callable, Iterator

import pytest
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.pubsub.conftest import World
from tests.support.waiting import PATIENCE_SECONDS, wait_until


@contextlib.contextmanager
def streaming(world: World, act: Callable[[Message], object] = Message.ack) -> Iterator[list[Message]]:
    """Consume until the block ends; gives what callbacks got, each of which acts first."""
    came: list[Message] = []

    def take(message: Message) -> None:
        act(message)
        came.append(message)

    future = world.subscriber.subscribe(world.subscription(), take)
    try:
        yield came
    finally:
        future.cancel()
        future.result(PATIENCE_SECONDS)


def test_what_is_published_comes_to_callbacks_as_it_was(world: World) -> None:
    topic, _ = world.made()
    with streaming(world) as came:
        ids = [world.publisher.publish(topic, b"%d" % n, n=str(n)).result(PATIENCE_SECONDS) for n in range(3)]
        wait_until(lambda: len(came) == 3)
    assert ids == ["0", "1", "2"]
    assert {(each.message_id, each.data, each.attributes["n"]) for each in came} == {
        (str(n), b"%d" % n, str(n)) for n in range(3)
    }
    assert world.pulled() == []


def test_a_client_with_tracing_on_publishes_and_the_consumer_goes_on_with_its_trace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, _ = world.made()
    monkeypatch.setattr(trace, "get_tracer", TracerProvider().get_tracer)
    publisher = pubsub_v1.PublisherClient(
        transport=world.publisher.transport,
        publisher_options=pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=True),
    )
    with streaming(world) as came:
        publisher.publish(topic, b"a rose", color="red").result(PATIENCE_SECONDS)
        wait_until(lambda: came)

    parent = came[0].attributes["googclient_traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", parent)
    assert dict(came[0].attributes) == {"color": "red", "googclient_traceparent": parent}


def test_messages_of_a_key_come_in_order_and_after_a_nack_again_in_order(world: World) -> None:
    topic, _ = world.made(enable_message_ordering=True)
    for each in [world.publisher.publish(topic, b"%d" % n, ordering_key=f"key-{n % 2}") for n in range(40)]:
        each.result(PATIENCE_SECONDS)
    nacked: set[str] = set()

    def act(message: Message) -> None:
        if message.data in (b"6", b"11") and message.message_id not in nacked:
            nacked.add(message.message_id)
            message.nack()
            return
        message.ack()
        order.setdefault(message.ordering_key, []).append(int(message.data))

    order: dict[str, list[int]] = {}
    with streaming(world, act) as came:
        wait_until(lambda: len(came) == 42)
    assert order == {"key-0": list(range(0, 40, 2)), "key-1": list(range(1, 40, 2))}


def test_an_acknowledgement_with_exactly_once_delivery_says_that_it_holds(world: World) -> None:
    topic, _ = world.made(enable_exactly_once_delivery=True)
    for n in range(20):
        world.publisher.publish(topic, b"%d" % n)
    answers = []
    with streaming(world, lambda message: answers.append(message.ack_with_response())) as came:
        wait_until(lambda: len(came) == 20)
        assert {str(each.result(PATIENCE_SECONDS)) for each in answers} == {"AcknowledgeStatus.SUCCESS"}
    assert world.pulled() == []


def test_without_exactly_once_delivery_a_late_acknowledgement_is_no_error(world: World) -> None:
    world.made()
    world.publish(b"late")
    first = world.pulled()[0].ack_id
    world.modify(0, first)
    world.acknowledge(first)
    world.modify(30, first)


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(world: World) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    world.made(dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5})
    world.subscriber.create_subscription(request={"name": world.subscription("letters"), "topic": letters})
    world.publish(b"poison", kind="bad")
    attempts: list[int] = []

    def act(message: Message) -> None:
        attempts.append(message.delivery_attempt)
        message.nack()

    with streaming(world, act):
        letter = wait_until(lambda: world.pulled(world.subscription("letters")))
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
