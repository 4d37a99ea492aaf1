"""Ordering keys by streams: a batch of each is out to one of them, and comes again from the message on that failed."""

from typing import Any

from google.pubsub_v1 import PublisherClient

from tests.pubsub.conftest import World
from tests.support.waiting import wait_until


def publish(world: World, count: int) -> None:
    messages = [{"data": b"%d" % number, "ordering_key": "k"} for number in range(count)]
    PublisherClient.publish(world.publisher, request={"topic": world.topic(), "messages": messages})


def numbers(messages: list[Any]) -> list[int]:
    return [int(each.message.data) for each in messages]


def test_a_stream_gets_a_batch_of_a_key_and_more_as_it_acknowledges(world: World) -> None:
    world.made(enable_message_ordering=True)
    publish(world, 6)
    stream = world.opened(max_outstanding_messages=3)
    first = stream.messages(3)
    assert numbers(first) == [0, 1, 2]
    stream.send(ack_ids=[first[1].ack_id])
    assert numbers(stream.messages(1)) == [3]

    stream.send(modify_deadline_ack_ids=[first[0].ack_id], modify_deadline_seconds=[0])

    assert numbers(stream.messages(3)) == [0, 2, 3]


def test_googles_client_at_its_defaults_gets_a_key_in_order_also_again_behind_a_nack(world: World) -> None:
    _, subscription = world.made(enable_message_ordering=True)
    publish(world, 40)
    came: list[int] = []

    def take(message: Any) -> None:
        came.append(int(message.data))
        (message.nack if came == [*range(11)] else message.ack)()

    future = world.subscriber.subscribe(subscription, take)
    wait_until(lambda: world.http("GET", "/subscriptions/subscription:offsets")["current"] == 40)
    future.cancel()
    future.result()

    again = came.index(10, 11)
    assert came[:again] == [*range(again)]
    assert came[again:] == sorted({*came[again:]})
    assert {*came} == {*range(40)}
