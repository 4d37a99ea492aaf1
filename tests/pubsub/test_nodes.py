"""Google's port on two nodes: clients use either; a call about another node's subscription is relayed.

The nodes are in this process, over a real PostgreSQL and a real Kafka; a node to be killed is a process.
"""

import contextlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from local_cluster.node import Node
from local_cluster.ports import free_port
from tests.cluster.nodes import node_served, shared_settings
from tests.pubsub.streams import Stream, ask, get_refusal, open_stream
from tests.support.served import InProcessService
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.long]

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
SECONDS = 60
PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"
_numbers = count()
pb: Any = types


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[InProcessService, InProcessService]]:
    folder, settings = tmp_path_factory.mktemp("nodes"), shared_settings()
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(
                node_served(folder / name, settings, pubsub_port=free_port(), pubsub_emulator=True, host="127.0.0.1")
            )
            for name in ("one", "two")
        )
        yield one, two


@pytest.fixture
def channels(nodes: tuple[InProcessService, InProcessService]) -> Iterator[tuple[grpc.Channel, grpc.Channel]]:
    with grpc.insecure_channel(nodes[0].run.pubsub) as one, grpc.insecure_channel(nodes[1].run.pubsub) as two:
        yield one, two


def make(channel: grpc.Channel, **options: object) -> str:
    name = f"projects/P/subscriptions/own-{next(_numbers)}"
    ask(channel, PUBLISHER + "CreateTopic", pb.Topic.pb()(name=topic_of(name)))
    asked = pb.Subscription.pb()(name=name, topic=topic_of(name), **options)
    ask(channel, SUBSCRIBER + "CreateSubscription", asked)
    assert pull(channel, name) == {}
    return name


def topic_of(subscription: str) -> str:
    return subscription.replace("subscriptions", "topics")


def publish(channel: grpc.Channel, name: str, *data: bytes) -> None:
    messages = [pb.PubsubMessage.pb()(data=each) for each in data]
    ask(channel, PUBLISHER + "Publish", pb.PublishRequest.pb()(topic=topic_of(name), messages=messages))


def pull(channel: grpc.Channel, name: str, most: int = 100) -> dict[bytes, str]:
    request = pb.PullRequest.pb()(subscription=name, max_messages=most, return_immediately=True)
    answer = pb.PullResponse.pb().FromString(ask(channel, SUBSCRIBER + "Pull", request))
    return {each.message.data: each.ack_id for each in answer.received_messages}


def acknowledge(channel: grpc.Channel, name: str, *ids: str) -> tuple[str, str]:
    request = pb.AcknowledgeRequest.pb()(subscription=name, ack_ids=ids)
    return get_refusal(channel, SUBSCRIBER + "Acknowledge", request)


def test_what_is_published_on_one_node_comes_to_a_stream_on_the_other(channels: tuple[grpc.Channel, grpc.Channel]):
    one, two = channels
    name = make(one)
    stream = open_stream(two, name)
    data = [b"%d" % n for n in range(8)]
    publish(one, name, *data[:4])
    publish(two, name, *data[4:])
    assert [each.message.data for each in stream.messages(8)] == data
    assert pull(one, name) == pull(two, name) == {}
    stream.send()
    assert list(stream.next().received_messages) == []
    stream.call.cancel()


def test_a_lease_of_a_relayed_stream_is_acknowledged_on_either_node(channels: tuple[grpc.Channel, grpc.Channel]):
    one, two = channels
    name = make(one, enable_exactly_once_delivery=True)
    stream = open_stream(two, name)
    publish(one, name, b"0", b"1", b"2")
    first, second, third = (each.ack_id for each in stream.messages(3))
    assert acknowledge(one, name, first) == ("OK", "")
    assert acknowledge(two, name, second) == ("OK", "")
    stream.send(ack_ids=[third, "1-1.0.9.9.ffffff"])
    confirmed = stream.next().acknowledge_confirmation
    assert (list(confirmed.ack_ids), len(confirmed.invalid_ack_ids)) == ([third], 1)
    code, text = acknowledge(two, name, "2-1.0.9.9.ffffff")
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("Some acknowledgement ids in the request were invalid.")
    stream.close()
    assert stream.end() == (grpc.StatusCode.OK, "")
    assert pull(two, name) == {}


def test_a_relayed_stream_ends_as_the_owner_ends_it(channels: tuple[grpc.Channel, grpc.Channel]) -> None:
    one, two = channels
    name = make(one)
    stream = open_stream(two, name)
    stream.send(client_id="again")
    assert stream.end() == (grpc.StatusCode.INVALID_ARGUMENT,
                            "The field client_id can only be set in the first request of a stream.")  # fmt: skip
    stream = open_stream(two, name)
    request = pb.DeleteSubscriptionRequest.pb()(subscription=name)
    ask(one, SUBSCRIBER + "DeleteSubscription", request)
    assert stream.end() == (grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={name.rpartition('/')[2]}).")


def test_a_relayed_client_that_does_not_read_is_ended(
    nodes: tuple[InProcessService, InProcessService], channels: tuple[grpc.Channel, grpc.Channel]
) -> None:
    one, two = channels
    name = make(one)
    stream = open_stream(two, name)
    for n in range(10):
        publish(one, name, *[b"%d" % n * 300_000] * 4)
    wait_until(lambda: "stream" not in str(nodes[0].ask("GET", f"/{name}:doctor")["findings"]))
    assert stream.end() == (UNAVAILABLE, "The stream is not read by its client")


def test_a_marked_call_is_not_relayed_again(channels: tuple[grpc.Channel, grpc.Channel]) -> None:
    one, two = channels
    name = make(one)
    publish(one, name, b"x")
    ack_id = pull(one, name)[b"x"]
    request = pb.AcknowledgeRequest.pb()(subscription=name, ack_ids=[ack_id])
    mark = (("x-ams-forwarded-by", "me"),)
    assert get_refusal(two, SUBSCRIBER + "Acknowledge", request, metadata=mark)[0] == "UNAVAILABLE"
    assert acknowledge(two, name, ack_id) == ("OK", "")


@contextlib.contextmanager
def two_processes(folder: Path) -> Iterator[tuple[Node, grpc.Channel, grpc.Channel]]:
    """Run two nodes, each as its own process; yield the first one, and channels to both."""
    settings = shared_settings() | {"log_level": "warning", "pubsub_emulator": "true"}
    ports = free_port(), free_port()
    owner, other = (Node(f"node{port}", folder, settings | {"pubsub_port": str(port)}) for port in ports)
    with contextlib.ExitStack() as stack:
        for each in (owner, other):
            stack.callback(each.kill)
            each.launch()
        for each in (owner, other):
            each.wait_ready()
        at_owner, at_other = (stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}")) for port in ports)
        yield owner, at_owner, at_other


def test_a_stream_that_is_full_ends_when_its_node_was_away_for_too_long(tmp_path: Path) -> None:
    with two_processes(tmp_path) as (owner, at_owner, at_other):
        name = make(at_owner)
        stream = Stream(at_owner, seconds=2 * SECONDS)
        stream.send(subscription=name, stream_ack_deadline_seconds=10, max_outstanding_messages=1)
        publish(at_owner, name, b"x")
        assert stream.messages(1)[0].message.data == b"x"
        owner.freeze()
        request = pb.PullRequest.pb()(subscription=name, max_messages=1, return_immediately=True)
        # Until the other node sees that there is no owner.
        wait_until(lambda: get_refusal(at_other, SUBSCRIBER + "Pull", request)[0] == "OK")
        owner.thaw()
        assert stream.end()[0] is UNAVAILABLE


def test_a_relayed_stream_ends_when_nothing_is_heard_of_the_owner(tmp_path: Path) -> None:
    with two_processes(tmp_path) as (owner, at_owner, at_other):
        name = make(at_owner)
        stream = Stream(at_other, seconds=2 * SECONDS)
        stream.send(subscription=name, stream_ack_deadline_seconds=10)
        publish(at_other, name, b"x")
        assert stream.messages(1)[0].message.data == b"x"
        owner.freeze()
        assert stream.end()[0] is UNAVAILABLE
        again = open_stream(at_other, name)
        assert again.messages(1)[0].message.data == b"x"
        again.call.cancel()
