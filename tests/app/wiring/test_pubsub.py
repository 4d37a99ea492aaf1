"""How the port of Google's Pub/Sub is protected."""

from pathlib import Path

import grpc
import pytest
from google.api_core.exceptions import NotFound, Unauthenticated
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from ams.core.errors import BadSettings
from ams.core.settings import Settings
from tests.support.served import served
from tests.support.service import running_service

pytestmark = pytest.mark.embedded("which connections are taken has nothing to do with engines")
TOPIC = "projects/garden/topics/plants"


def client(channel: grpc.Channel) -> pubsub_v1.PublisherClient:
    return pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))


def test_an_emulator_asks_for_no_token_and_makes_projects(tmp_path: Path) -> None:
    with (
        served(tmp_path / "data", pubsub_port=0, pubsub_emulator=True) as service,
        grpc.insecure_channel(service.run.pubsub) as channel,
    ):
        assert client(channel).create_topic(request={"name": TOPIC}).name == TOPIC


def test_with_tls_a_token_of_ams_is_a_bearer_or_an_api_key(tmp_path: Path) -> None:
    with served(tmp_path / "data", pubsub_port=0, tls_self_signed=True) as service:
        trust = grpc.ssl_channel_credentials((tmp_path / "data" / "ca.pem").read_bytes())
        address = service.run.pubsub.replace("127.0.0.1", "localhost")
        with grpc.secure_channel(address, trust) as channel:
            with pytest.raises(Unauthenticated):
                client(channel).get_topic(request={"topic": TOPIC})
            with pytest.raises(NotFound):
                client(channel).get_topic(request={"topic": TOPIC}, metadata=[("x-goog-api-key", service.token)])
        bearer = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(service.token))
        with grpc.secure_channel(address, bearer) as channel, pytest.raises(NotFound, match="resource=garden"):
            client(channel).get_topic(request={"topic": TOPIC})


async def test_a_port_without_protection_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="pubsub_port needs TLS"):
        async with running_service(tmp_path / "data", pubsub_port=0):
            pass


def test_an_emulator_is_for_this_machine_only() -> None:
    lines = [line for is_so, line in Settings(host="0.0.0.0", pubsub_port=0, pubsub_emulator=True).mistakes() if is_so]
    assert lines == ["pubsub_emulator is for a host of this machine only"]
