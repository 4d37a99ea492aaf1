import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ams.client import Client, Message, wire
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
def client_of_face(face: str, service: LiveService) -> Iterator[Any]:
    with open_client(face, service.base_url, service.token, ca=str(service.ca)) as client:
        yield client


@pytest.fixture
def project(client: Client) -> str:
    name = f"p-{uuid.uuid4()}"
    assert client.call(wire.create_project(name, "for a test")).description == "for a test"
    return name


def test_a_parallel_subscription_is_made_and_changed(client_of_face: Any, client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    there = client_of_face.project(project).subscription("S")

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
def test_messages_go_in_and_come_out_of_a_loop(client_of_face: Any, project: str) -> None:
    topic, subscription = client_of_face.project(project).topic("T"), client_of_face.project(project).subscription("S")
    topic.create()
    subscription.create("T", ack_deadline=20)

    ids = topic.publish([Message(b"one", {"k": "v"}, "bed 4"), Message(b"two"), Message(attributes={"only": "these"})])
    [first] = subscription.pull()
    received = list(subscription.messages(batch=2, follow=False))

    assert (first.data, first.attributes, ids) == (b"one", {"k": "v"}, ["0", "1", "2"])
    assert [each.ordering_key for each in (first, *received)] == ["bed 4", "bed 4", "", ""]
    assert [(each.id, each.data, each.attributes) for each in received] == [
        ("0", b"one", {"k": "v"}), ("1", b"two", {}), ("2", b"", {"only": "these"}),
    ]  # fmt: skip
    assert abs(datetime.now(UTC) - received[0].publish_time) < timedelta(minutes=1)
    assert subscription.offsets().current == 3
    subscription.delete()
    topic.delete()
