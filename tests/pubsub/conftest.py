"""The service with Google's Pub/Sub open like the emulator, and Google's own clients for it."""

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1 import SchemaServiceClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.pubsub.streams import SECONDS, Stream, get_refusal, open_stream
from tests.support.served import InProcessService
from tests.support.service import LiveService, live_service

_numbers = itertools.count()


@dataclass(frozen=True)
class World:
    project: str
    address: str
    publisher: pubsub_v1.PublisherClient
    subscriber: pubsub_v1.SubscriberClient
    schemas: SchemaServiceClient
    channel: grpc.Channel
    service: LiveService | InProcessService

    def http(self, method: str, path: str, body: object = None) -> Any:
        return self.service.ask(method, f"/projects/{self.project}{path}", body)

    def topic(self, name: str = "topic") -> str:
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str = "subscription") -> str:
        return f"projects/{self.project}/subscriptions/{name}"

    def snapshot(self, name: str = "snapshot") -> str:
        return f"projects/{self.project}/snapshots/{name}"

    def make_subscription(self, **options: object) -> tuple[str, str]:
        topic, subscription = self.topic(), self.subscription()
        self.publisher.create_topic(request={"name": topic})
        self.subscriber.create_subscription(request={"name": subscription, "topic": topic, **options})
        return topic, subscription

    def make_backlog(self, *data: bytes, **options: object) -> tuple[str, str]:
        names = self.make_subscription(**options)
        self.publish(*data)
        return names

    def publish(self, *data: bytes, **attributes: str) -> None:
        for each in [self.publisher.publish(self.topic(), each, **attributes) for each in data]:
            each.result(SECONDS)

    def pull(self, subscription: str = "", most: int = 100) -> list[pubsub_v1.types.ReceivedMessage]:
        of = subscription or self.subscription()
        request = {"subscription": of, "max_messages": most, "return_immediately": True}
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return list(self.subscriber.pull(request=request).received_messages)

    def acknowledge(self, *ids: str) -> None:
        self.subscriber.acknowledge(request={"subscription": self.subscription(), "ack_ids": list(ids)})

    def modify(self, seconds: int, *ids: str) -> None:
        """Set the remaining seconds of leases; 0 gives the messages back."""
        request = {"subscription": self.subscription(), "ack_ids": list(ids), "ack_deadline_seconds": seconds}
        self.subscriber.modify_ack_deadline(request=request)

    def open_stream(self, **fields: object) -> Stream:
        """Return a stream of the subscription, after its first response; it ends with the channel."""
        return open_stream(self.channel, self.subscription(), **fields)

    def get_refusal(self, method: str, request: object) -> tuple[str, str]:
        return get_refusal(self.channel, method, request)


@pytest.fixture(scope="package")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data = tmp_path_factory.mktemp("pubsub") / "data"
    with live_service(data, "--pubsub-port", "0", "--pubsub-emulator") as service:
        yield service


@pytest.fixture
def world(emulator: LiveService) -> Iterator[World]:
    with grpc.insecure_channel(emulator.pubsub) as channel:
        yield world_at(channel, emulator)


def world_at(channel: grpc.Channel, service: LiveService | InProcessService) -> World:
    publisher = pubsub_v1.PublisherClient(
        transport=PublisherGrpcTransport(channel=channel),
        publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True),
    )
    subscriber = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
    schemas = SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=channel))
    project = f"project-{next(_numbers)}"
    address = service.run.pubsub if isinstance(service, InProcessService) else service.pubsub
    return World(project, address, publisher, subscriber, schemas, channel, service)
