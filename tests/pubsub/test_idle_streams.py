"""What the service looks at by itself while nobody says anything; and connections that come from elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from ams.pubsub import streaming
from tests.pubsub.streams import Stream, opened, refused
from tests.support.served import SERVICE_TOKEN, Served, served

SUBSCRIPTION = "projects/P/subscriptions/S"
AS_SERVICE = (("authorization", f"Bearer {SERVICE_TOKEN}"),)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "FIRST_SECONDS", 0.3)
        patch.setattr(streaming, "LOOK_SECONDS", 0.3)
        data = tmp_path_factory.mktemp("idle") / "ams-data"
        with served(data, host="127.0.0.1", pubsub_port=0, trusted_proxies="127.0.0.1/32") as service:
            service.ask("POST", "/projects/P", {})
            service.ask("PUT", "/projects/P/topics/T")
            yield service


@pytest.fixture
def channel(service: Served) -> Iterator[grpc.Channel]:
    service.ask("PUT", "/projects/P/subscriptions/S", {"topic": "projects/P/topics/T", "type": "parallel"})
    with grpc.insecure_channel(service.run.pubsub) as channel:
        yield channel
    service.ask("DELETE", "/projects/P/subscriptions/S")


def test_a_stream_that_never_says_what_it_wants_ends(channel: grpc.Channel) -> None:
    stream = Stream(channel, metadata=AS_SERVICE)
    assert stream.end() == (grpc.StatusCode.UNAVAILABLE, "The first request did not come in time")


def test_an_idle_stream_of_a_deleted_user_ends(service: Served, channel: grpc.Channel) -> None:
    member = {"projects": [{"project": "P", "roles": ["consumer"]}]}
    token = service.ask("POST", "/users/idle", member)["token"]
    service.ask("POST", "/projects/P/subscriptions/S:modifyAcl", {"authorized_users": ["idle"]})
    stream = opened(channel, SUBSCRIPTION, metadata=(("authorization", f"Bearer {token}"),))
    service.ask("DELETE", "/users/idle")
    assert stream.end()[0] is grpc.StatusCode.UNAUTHENTICATED


def test_an_idle_stream_of_a_subscription_that_is_turned_to_push_ends(service: Served, channel: grpc.Channel) -> None:
    stream = opened(channel, SUBSCRIPTION, metadata=AS_SERVICE)
    push = {"pushConfig": {"type": "http_endpoint", "pushEndpoint": "https://localhost:1/push"}}
    service.ask("POST", "/projects/P/subscriptions/S:modifyPushConfig", push)
    assert stream.end()[0] is grpc.StatusCode.FAILED_PRECONDITION


def test_a_plain_connection_is_taken_from_proxies_only(tmp_path: Path) -> None:
    elsewhere = {"host": "127.0.0.1", "pubsub_port": 0, "trusted_proxies": "192.0.2.1/32"}
    method, request = "/google.pubsub.v1.Publisher/GetTopic", b"\x0a\x13projects/P/topics/T"
    with served(tmp_path / "ams-data", **elsewhere) as service, grpc.insecure_channel(service.run.pubsub) as channel:
        code, text = refused(channel, method, request, metadata=AS_SERVICE)
        assert code == "UNAUTHENTICATED"
        assert "trusted_proxies" in text
        stream = Stream(channel, metadata=AS_SERVICE)
        stream.send(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10)
        assert stream.end()[0] is grpc.StatusCode.UNAUTHENTICATED
