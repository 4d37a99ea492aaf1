"""The official client library, unmodified, sends messages to an endpoint: what a newcomer does first with push."""

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from argo_ams_library import AmsMessage, ArgoMessagingService

from tests.support.receiving import Receiving, received
from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.acceptance


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiving]:
    with received(tmp_path) as running:
        yield running


@pytest.fixture
def service(tmp_path: Path, receiver: Receiving) -> Iterator[LiveService]:
    """A service as it comes, but for the private network and the CA of the receiver."""
    environment = {"AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PUSH_CA_FILE": receiver.ca}
    with live_service(tmp_path / "data", "--tls-self-signed", environment=environment) as service:
        yield service


def test_a_message_published_with_the_library_arrives_at_an_endpoint(
    service: LiveService, receiver: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    tls = {"verify": str(service.ca), "timeout": 10}
    ams = ArgoMessagingService(service.base_url.removeprefix("https://"), token=service.token, project="P")
    ams.create_project("P", "made by a test", **tls)
    ams.create_topic("t", **tls)

    ams.create_sub("s", "t", push_endpoint=receiver.url("/ok/s"), **tls)
    config = ams.get_sub("s", **tls)["pushConfig"]
    receiver.show(config["verificationHash"])
    _verify(service, "projects/P/subscriptions/s")  # the library does not know how
    ams.publish("t", AmsMessage(data="hello", attributes={"k": "v"}), **tls)
    [came] = receiver.wait(1, "/ok/s")

    assert came.method == "POST"
    assert came.headers["authorization"] == config["authorizationHeader"]["value"]
    body = json.loads(came.body)
    assert body["subscription"] == "projects/P/subscriptions/s"
    assert base64.b64decode(body["message"]["data"]) == b"hello"
    assert (body["message"]["messageId"], body["message"]["attributes"]) == ("0", {"k": "v"})
    assert ams.get_sub("s", **tls)["pushStatus"] == "Subscription /projects/P/subscriptions/s is currently active"


def _verify(service: LiveService, subscription: str) -> None:
    trust = ssl.create_default_context(cafile=service.ca)
    url = f"{service.base_url}/v1/{subscription}:verifyPushEndpoint"
    answer = httpx.post(url, headers={"x-api-key": service.token}, verify=trust, trust_env=False)
    assert answer.status_code == 200, answer.text
