"""Delivering inside the service, end to end: the real service, its engines, and a receiver in a process of its own."""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from ams.push.upstream import Gone, Verdict
from ams.service.dead_letters import DeadLetters
from ams.service.push.upstream import EnginesUpstream
from tests.push.keepers import pulled, target
from tests.support.receiving import Receiving, received
from tests.support.served import Served, served
from tests.support.use_cases import SUB as SUBSCRIPTION
from tests.support.use_cases import open_use_cases

SECONDS = 20.0
TOPIC = "/projects/P/topics/T"
SUB = "/projects/P/subscriptions/S"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, receiver: Receiving) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("service") / "ams-data"
    with served(folder, push_allow="127.0.0.0/8", push_ca_file=receiver.ca) as made:
        yield made


class Client:
    """An administrator who asks, and fails when that fails."""

    def __init__(self, made: Served) -> None:
        self._http = httpx.Client(
            base_url=made.run.base_url + "/v1", headers={"x-api-key": made.token}, trust_env=False, timeout=30
        )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code == 200, f"{method} {path} gave {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def publish(self, *texts: str, topic: str = TOPIC, **attributes: str) -> None:
        messages = [{"data": b64encode(text.encode()).decode(), "attributes": attributes} for text in texts]
        self.ask("POST", topic + ":publish", {"messages": messages})

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def client(service: Served, receiver: Receiving) -> Iterator[Client]:
    client = Client(service)
    client.ask("POST", "/projects/P", {})
    client.ask("PUT", TOPIC)
    receiver.forget()
    yield client
    for project in client.ask("GET", "/projects")["projects"]:
        client.ask("DELETE", f"/projects/{project['name']}")
    client.close()


def subscribed(client: Client, receiver: Receiving, url: str, **config: object) -> None:
    """Make subscription S that is delivered to a URL of the receiver, and verify it."""
    wanted = {"pushEndpoint": url, "retryPolicy": {"type": "linear", "period": 50}, **config}
    made = client.ask("PUT", SUB, {"topic": TOPIC[1:], "pushConfig": wanted})
    verified(client, receiver, made["pushConfig"]["verificationHash"])


def verified(client: Client, receiver: Receiving, shown: str) -> None:
    receiver.show(shown)
    client.ask("POST", SUB + ":verifyPushEndpoint")


def status(client: Client) -> str:
    return str(client.ask("GET", SUB).get("pushStatus"))


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def acknowledged(client: Client, count: int) -> None:
    eventually(lambda: client.ask("GET", SUB + ":offsets")["current"] == count)


def ids(receiver: Receiving, path: str) -> Sequence[str]:
    return [json.loads(each.body)["message"]["messageId"] for each in receiver.requests(path)]


def test_a_message_is_delivered_and_acknowledged(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/ok/one"))
    assert status(client) == f"Subscription {SUB} is currently active"
    header = client.ask("GET", SUB)["pushConfig"]["authorizationHeader"]["value"]

    client.publish("hi", kind="greeting")

    (request,) = receiver.wait(1, "/ok/one")
    delivered = json.loads(request.body)
    assert delivered.pop("subscription") == SUB[1:]
    published = delivered["message"].pop("publishTime")
    assert published.endswith("Z")
    assert delivered == {"message": {"messageId": "0", "attributes": {"kind": "greeting"}, "data": "aGk="}}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == header
    acknowledged(client, 1)


def test_a_new_secret_signs_from_the_next_delivery_on_and_the_one_before_with_it(
    client: Client, receiver: Receiving
) -> None:
    subscribed(client, receiver, receiver.url("/ok/signed"))
    secrets = []
    for number in range(2):
        secrets.append(Webhook(client.ask("POST", SUB + ":rotatePushSecret")["secret"]))
        client.publish("x")
        request = receiver.wait(number + 1, "/ok/signed")[-1]
        # The service's clock stands still here, so the age of a delivery cannot be looked at.
        moment = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
        signed = [secret.sign(request.headers["webhook-id"], moment, request.body) for secret in secrets]

        assert sorted(request.headers["webhook-signature"].split()) == sorted(signed)


def test_messages_come_in_order_and_together_when_many_are_wanted(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/ok/many"), maxMessages=50)

    client.publish(*[str(number) for number in range(300)])

    acknowledged(client, 300)
    bodies = [json.loads(each.body)["messages"] for each in receiver.requests("/ok/many")]
    assert [item["message"]["messageId"] for body in bodies for item in body] == [str(n) for n in range(300)]
    assert max(map(len, bodies)) <= 50
    assert len(bodies) < 100


def test_what_fails_is_tried_again_and_the_status_tells_it(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/status/500/a?body=out%20of%20order"))

    client.publish("x")

    eventually(lambda: "Could not send message, out of order" in status(client))
    config = {"pushEndpoint": receiver.url("/ok/instead")}
    client.ask("POST", SUB + ":modifyPushConfig", {"pushConfig": config})
    verified(client, receiver, client.ask("GET", SUB)["pushConfig"]["verificationHash"])
    acknowledged(client, 1)
    assert status(client) == f"Subscription {SUB} is currently active"
    assert ids(receiver, "/ok/instead") == ["0"]


def test_an_endpoint_that_fails_a_while_gets_everything_in_order(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/fail/3/b"))

    client.publish(*"abcde")

    acknowledged(client, 5)
    assert list(dict.fromkeys(ids(receiver, "/fail/3/b"))) == ["0", "1", "2", "3", "4"]


def test_a_subscription_that_is_sought_back_is_delivered_again(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/ok/back"))
    client.publish(*"ab")
    acknowledged(client, 2)

    client.ask("POST", SUB + ":modifyOffset", {"offset": 0})

    receiver.wait(4, "/ok/back")
    assert ids(receiver, "/ok/back") == ["0", "1", "0", "1"]


def test_a_topic_that_is_made_anew_is_delivered_from_its_beginning(client: Client, receiver: Receiving) -> None:
    """HTTP contract 17.2, A9; push contract 15, P31."""
    subscribed(client, receiver, receiver.url("/ok/anew"))
    client.publish("old")
    receiver.wait(1, "/ok/anew")
    client.ask("DELETE", TOPIC)
    eventually(lambda: "Could not consume message, Subscription's topic doesn't exist" in status(client))

    client.ask("PUT", TOPIC)
    client.publish("new")

    receiver.wait(2, "/ok/anew")
    assert ids(receiver, "/ok/anew") == ["0", "0"]


def test_a_project_that_is_renamed_goes_on_under_its_name(client: Client, receiver: Receiving) -> None:
    """Push contract 15, P31."""
    subscribed(client, receiver, receiver.url("/ok/name"))
    client.ask("PUT", "/projects/P", {"name": "Q"})

    client.publish("x", topic="/projects/Q/topics/T")

    (request,) = receiver.wait(1, "/ok/name")
    assert json.loads(request.body)["subscription"] == "projects/Q/subscriptions/S"
    eventually(
        lambda: (
            client.ask("GET", "/projects/Q/subscriptions/S")["pushStatus"]
            == "Subscription /projects/Q/subscriptions/S is currently active"
        )
    )


def test_nothing_is_delivered_after_going_back_to_pull(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/ok/pull"))
    client.ask("POST", SUB + ":modifyPushConfig", {"pushConfig": {}})

    client.publish("x")

    pulled = client.ask("POST", SUB + ":pull", {"maxMessages": "1"})["receivedMessages"]
    assert [each["message"]["messageId"] for each in pulled] == ["0"]
    assert receiver.requests("/ok/pull") == []


def test_a_deleted_subscription_says_that_it_is_deactivated(client: Client, receiver: Receiving) -> None:
    subscribed(client, receiver, receiver.url("/ok/deleted"))

    assert client.ask("DELETE", SUB) == {"message": f"Subscription {SUB} deactivated"}

    client.publish("x")
    client.ask("PUT", SUB, {"topic": TOPIC[1:]})
    client.publish("y")
    assert receiver.requests("/ok/deleted") == []


def test_an_endpoint_that_is_gone_gets_nothing_until_somebody_configures_it_anew(
    client: Client, receiver: Receiving
) -> None:
    """410 stops, and says so; the same configuration, given once more, begins anew."""
    config = {"pushEndpoint": receiver.url("/gone/a")}
    subscribed(client, receiver, config["pushEndpoint"])
    client.publish("x")
    eventually(lambda: "410" in status(client))
    assert client.ask("GET", SUB + ":pushStatus")["state"] == "stopped"
    asked = len(receiver.requests("/gone/a"))

    client.ask("POST", SUB + ":modifyPushConfig", {"pushConfig": config})

    receiver.wait(asked + 1, "/gone/a")


def test_mattermost_gets_one_text_at_a_time(client: Client, receiver: Receiving) -> None:
    """Push contract 15, P12."""
    hook = {"mattermostUrl": receiver.url("/mattermost/a"), "mattermostUsername": "ams", "base64Decode": True}
    client.ask("PUT", SUB, {"topic": TOPIC[1:], "pushConfig": {"type": "mattermost", **hook}})

    client.publish("one", "two")

    acknowledged(client, 2)
    bodies = [json.loads(each.body) for each in receiver.requests("/mattermost/a")]
    assert bodies == [{"text": "one", "username": "ams"}, {"text": "two", "username": "ams"}]


def test_what_was_not_delivered_at_a_stop_is_delivered_after_the_next_start(
    tmp_path: Path, receiver: Receiving
) -> None:
    receiver.forget()
    settings = {"push_allow": "127.0.0.0/8", "push_ca_file": receiver.ca}
    with served(tmp_path / "ams-data", **settings) as made:
        client = Client(made)
        client.ask("POST", "/projects/P", {})
        client.ask("PUT", TOPIC)
        subscribed(client, receiver, receiver.url("/ok/start"))
        client.publish("a")
        acknowledged(client, 1)
        client.close()

    with served(tmp_path / "ams-data", push_inside=False) as made:
        client = Client(made)
        client.publish("b")
        assert status(client) == "Push server is currently unavailable"
        assert client.ask("GET", "/status")["push_servers"] == [
            {"endpoint": "internal", "status": "Push server is currently unavailable"}
        ]
        client.close()

    with served(tmp_path / "ams-data", **settings) as made:
        client = Client(made)
        acknowledged(client, 2)
        assert client.ask("GET", "/status") == {
            "status": "ok", "push_servers": [{"endpoint": "internal", "status": "SERVING"}]
        }  # fmt: skip
        client.close()
    assert ids(receiver, "/ok/start") == ["0", "1"]


async def test_a_subscription_made_anew_is_not_the_one_that_was_to_be_delivered(tmp_path: Path) -> None:
    """Its worker may not have heard yet that the one before it is gone."""
    async with open_use_cases(tmp_path) as made:
        engines = made.engines
        dead_letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts)
        upstream = EnginesUpstream(engines.registry, made.deliverer(), dead_letters)
        before = target("/projects/P/subscriptions/s", identity="the one before")
        await made.publish(1)

        with pytest.raises(Gone):
            await upstream.pull(before, max_messages=1, max_bytes=100)
        await made.deliverer().pull(await made.deliverer().to_pull(made.caller, SUBSCRIPTION), 1, wait=False)
        with pytest.raises(Gone):
            await upstream.acknowledge(before, pulled(0))
        with pytest.raises(Gone):
            await upstream.dead_letter(before, pulled(0), Verdict("bad", 5, 422))
