"""Push as newcomers meet it: with the official library, unmodified."""

import base64
import json
from pathlib import Path

import pytest
from argo_ams_library import AmsMessage, ArgoMessagingService

from tests.support.receiving import Receiving, received
from tests.support.service import live_service
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.long]


def test_a_message_published_with_the_library_arrives_at_an_endpoint_as_long_as_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is as it comes, but for the private network and the CA of the receiver."""
    monkeypatch.setenv("NO_PROXY", "localhost")
    with received(tmp_path) as receiver:
        trusted = {"AMS_PUSH_CA_FILE": receiver.ca}
        deliver_one(tmp_path / "data", trusted | {"AMS_PUSH_ALLOW": "127.0.0.0/8"}, receiver)
        with live_service(tmp_path / "data", environment=trusted) as service:
            service.ask("POST", "/projects/P/topics/t:publish", {"messages": [{"data": "aGVsbG8="}]})
            path = "/projects/P/subscriptions/s"
            wait_until(lambda: service.ask("GET", path)["pushStatus"].endswith("is not a public address"))

        assert len(receiver.requests("/ok/s")) == 1


def deliver_one(data: Path, environment: dict[str, str], receiver: Receiving) -> None:
    with live_service(data, "--tls-self-signed", environment=environment) as service:
        tls = {"verify": str(service.ca), "timeout": 60}
        ams = ArgoMessagingService(service.base_url.removeprefix("https://"), token=service.token, project="P")
        ams.create_project("P", "made by a test", **tls)
        ams.create_topic("t", **tls)
        ams.create_sub("s", "t", push_endpoint=receiver.url("/ok/s"), **tls)
        config = ams.get_sub("s", **tls)["pushConfig"]
        receiver.show(config["verificationHash"])
        service.ask("POST", "/projects/P/subscriptions/s:verifyPushEndpoint")  # the library does not know how
        ams.publish("t", AmsMessage(data="hello", attributes={"k": "v"}), **tls)
        [came] = receiver.wait(1, "/ok/s")
        status = ams.get_sub("s", **tls)["pushStatus"]

    assert came.method == "POST"
    assert came.headers["authorization"] == config["authorizationHeader"]["value"]
    body = json.loads(came.body)
    assert body["subscription"] == "projects/P/subscriptions/s"
    assert base64.b64decode(body["message"]["data"]) == b"hello"
    assert (body["message"]["messageId"], body["message"]["attributes"]) == ("0", {"k": "v"})
    assert status == "Subscription /projects/P/subscriptions/s is currently active"
