"""The client, asked of a real service."""

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ams.client import Client, Message, errors, wire
from tests.client.faces import open_client
from tests.support.service import LiveService, live_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data: Path = tmp_path_factory.mktemp("service") / "ams-data"
    with live_service(data, "--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0") as service:
        yield service


@pytest.fixture(scope="module")
def client(service: LiveService) -> Iterator[Client]:
    with Client(service.base_url, service.token, ca=str(service.ca)) as client:
        yield client


@pytest.fixture
def either(face: str, service: LiveService) -> Iterator[Any]:
    """Open a client of each face in turn."""
    with open_client(face, service.base_url, service.token, ca=str(service.ca)) as client:
        yield client


@pytest.fixture
def project(client: Client) -> str:
    """Make a project of the test's own."""
    name = f"p-{uuid.uuid4()}"
    assert client.call(wire.create_project(name, "for a test")).description == "for a test"
    return name


@pytest.mark.both_shapes
def test_positions_are_looked_up_and_moved(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    client.call(wire.create_subscription(project, "S", "T"))
    client.call(wire.publish(project, "T", [wire.message(b"one"), wire.message(b"two")]))

    assert client.call(wire.time_to_offset(project, "S", datetime.now(UTC) - timedelta(hours=1))).offset == 0
    client.call(wire.modify_offset(project, "S", 1))
    [received] = client.call(wire.pull(project, "S", max_messages=10)).received_messages
    assert received.ack_id == wire.ack_id(project, "S", 1)
    client.call(wire.acknowledge(project, "S", [received.ack_id]))
    offsets = client.call(wire.get_offsets(project, "S"))
    assert (offsets.min, offsets.current, offsets.max) == (0, 2, 2)


def test_a_deadline_of_0_is_one_of_0(either: Any, client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))

    made = either.project(project).subscription("S").create("T", ack_deadline=0)

    assert made.ack_deadline_seconds == 0
    assert client.call(wire.get_subscription(project, "S")) == made


def test_a_parallel_subscription_is_made_and_changed(either: Any, client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    there = either.project(project).subscription("S")

    made = there.create(
        "T", ack_deadline=0, parallel=wire.ParallelOptions(wire.RetryBackoff("1s"), filter="attributes:a")
    )
    changed = there.update(wire.SubscriptionChanges(retry_policy=None, enable_exactly_once_delivery=True))

    assert (made.type, made.ack_deadline_seconds, made.filter) == ("parallel", 10, "attributes:a")
    assert made.retry_policy is not None
    assert (made.retry_policy.minimum_backoff, made.retry_policy.maximum_backoff) == ("1s", "600s")
    assert changed == msgspec.structs.replace(made, retry_policy=None, enable_exactly_once_delivery=True)
    assert client.call(wire.get_subscription(project, "S")) == changed


@pytest.mark.both_shapes
def test_messages_go_in_and_come_out_of_a_loop(either: Any, project: str) -> None:
    topic, subscription = either.project(project).topic("T"), either.project(project).subscription("S")
    topic.create()
    subscription.create("T", ack_deadline=20)

    ids = topic.publish([Message(b"one", {"k": "v"}, "bed 4"), Message(b"two"), Message(attributes={"only": "these"})])
    [first] = subscription.pull()
    received = list(subscription.messages(batch=2, follow=False))

    assert (first.data, first.attributes, ids) == (b"one", {"k": "v"}, ["0", "1", "2"])
    assert [each.ordering_key for each in (first, *received)] == ["bed 4", "bed 4", "", ""]
    assert [(each.id, each.data, each.attributes) for each in received] == [
        ("0", b"one", {"k": "v"}),
        ("1", b"two", {}),
        ("2", b"", {"only": "these"}),
    ]
    assert abs(datetime.now(UTC) - received[0].publish_time) < timedelta(minutes=1)
    assert subscription.offsets().current == 3
    subscription.delete()
    topic.delete()


def test_a_parallel_subscription_says_what_is_under_way_until_it_is_detached(either: Any, project: str) -> None:
    topic, subscription = either.project(project).topic("T"), either.project(project).subscription("S")
    topic.create()
    subscription.create("T", parallel=wire.ParallelOptions())
    topic.publish([Message(b"%d" % number) for number in range(4)])
    _, second, third = subscription.pull(3)
    subscription.acknowledge([second, third])

    found = subscription.offsets()
    assert (found.current, found.acknowledged, found.leased, found.waiting, found.blocked) == (0, 2, 1, 0, 0)
    subscription.detach()
    with pytest.raises(errors.Conflict, match="Subscription is detached"):
        subscription.pull(wait=False)
    subscription.delete()
    subscription.create("T")
    with pytest.raises(errors.Conflict, match="Subscription is not of type parallel"):
        subscription.detach()


def test_what_a_loop_did_not_finish_comes_again(either: Any, project: str) -> None:
    topic, subscription = either.project(project).topic("T"), either.project(project).subscription("S")
    topic.create()
    subscription.create("T")
    topic.publish([Message(b"%d" % number) for number in range(5)])

    for message in subscription.messages(batch=2):
        if message.data == b"3":
            break
    assert subscription.offsets().current == 2

    for message in subscription.messages(batch=2):
        subscription.acknowledge(message)
        if message.data == b"2":
            break
    assert [each.data for each in subscription.pull(10)] == [b"3", b"4"]


def test_a_loop_that_follows_gets_what_is_published_later(either: Any, client: Client, project: str) -> None:
    client.project(project).topic("T").create()
    client.project(project).subscription("S").create("T")
    later = threading.Timer(0.2, client.project(project).topic("T").publish, [[Message(b"later")]])
    later.start()

    message = next(iter(either.project(project).subscription("S").messages()))

    later.join()
    assert message.data == b"later"
