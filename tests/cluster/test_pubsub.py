"""Google's client for Python through haproxy, which ends TLS, to nodes that are killed."""

import threading
import time
from collections.abc import Iterator

import google.auth.credentials
import grpc
import httpx
import pytest
from google.api_core.exceptions import Unauthenticated
from google.auth.transport.grpc import AuthMetadataPlugin
from google.auth.transport.requests import Request
from google.cloud import pubsub_v1
from google.oauth2.credentials import Credentials
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from cluster.certificates import Authority
from cluster.haproxy import Backend, Haproxy
from cluster.node import Node
from tests.cluster.nodes import processes
from tests.support.served import SERVICE_TOKEN

pytestmark = [pytest.mark.haproxy, pytest.mark.kafka, pytest.mark.postgres]
TOPIC, SUBSCRIPTION = "projects/P/topics/plants", "projects/P/subscriptions/beds"
SECONDS = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    with processes(tmp_path_factory.mktemp("nodes"), 2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def haproxy(nodes: list[Node], authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haproxy]:
    backends = [Backend(each.name, each.port, each.ops_port, each.pubsub_port) for each in nodes]
    folder = tmp_path_factory.mktemp("haproxy")
    with Haproxy(folder, backends, authority.sign("haproxy").both) as haproxy:
        all_up(haproxy)
        yield haproxy


def channel(haproxy: Haproxy, authority: Authority, token: str) -> grpc.Channel:
    """Return a connection of its own, as another program has it."""
    login: google.auth.credentials.Credentials = Credentials(token)  # type: ignore[no-untyped-call]
    plugin = AuthMetadataPlugin(login, Request())  # type: ignore[no-untyped-call]
    bearer = grpc.metadata_call_credentials(plugin)
    trust = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    return grpc.secure_channel(
        haproxy.pubsub,
        grpc.composite_channel_credentials(trust, bearer),
        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)],
    )


def all_up(haproxy: Haproxy) -> None:
    until = time.monotonic() + SECONDS
    while set(haproxy.states().values()) != {"UP"}:
        assert time.monotonic() < until, haproxy.states()
        time.sleep(0.05)


class Received:
    """What a callback got."""

    def __init__(self) -> None:
        self.data: set[bytes] = set()
        self._came = threading.Condition()

    def __call__(self, message: pubsub_v1.subscriber.message.Message) -> None:
        message.ack()
        with self._came:
            self.data.add(message.data)
            self._came.notify_all()

    def wait(self, data: set[bytes]) -> None:
        with self._came:
            assert self._came.wait_for(lambda: data <= self.data, SECONDS), data - self.data


def test_clients_go_on_when_the_node_they_are_connected_to_dies(
    nodes: list[Node], haproxy: Haproxy, authority: Authority
) -> None:
    headers = {"x-api-key": SERVICE_TOKEN}
    httpx.post(f"{nodes[0].url}/v1/projects/P", json={}, headers=headers, trust_env=False).raise_for_status()
    with (
        channel(haproxy, authority, SERVICE_TOKEN) as publishing,
        channel(haproxy, authority, SERVICE_TOKEN) as consuming,
    ):
        publisher = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=publishing))
        subscriber = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=consuming))
        publisher.create_topic(request={"name": TOPIC})
        subscriber.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})

        def published(part: str) -> set[bytes]:
            data = {f"{part} {number}".encode() for number in range(20)}
            for future in [publisher.publish(TOPIC, each) for each in data]:
                future.result(SECONDS)
            return data

        received = Received()
        streaming = subscriber.subscribe(SUBSCRIPTION, received)
        try:
            received.wait(published("first"))
            for node in nodes:  # one of them has the leases, and each has a connection
                node.kill()
                received.wait(published(f"without {node.name}"))
                node.start()
                all_up(haproxy)
            assert streaming.running()
        finally:
            streaming.cancel()
            streaming.result(SECONDS)


def test_a_token_that_is_none_is_refused_through_haproxy(haproxy: Haproxy, authority: Authority) -> None:
    with channel(haproxy, authority, "nobody") as asking:
        publisher = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=asking))
        with pytest.raises(Unauthenticated):
            publisher.get_topic(request={"topic": TOPIC}, retry=None, timeout=SECONDS)
