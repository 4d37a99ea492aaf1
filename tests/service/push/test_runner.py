"""Delivering inside the service, end to end: the real service, its engines, and a receiver in a process of its own."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ams.core.push_config import AskedPush, new_push_config
from ams.core.quotas import STORED_BYTES
from ams.push.upstream import Away, Gone, Verdict
from ams.service.dead_letters import DeadLetters
from ams.service.push.runner import EnginesUpstream
from ams.service.stored_bytes import StoredBytes
from tests.push.keepers import make_pulled, target
from tests.support.receiving import Receiving
from tests.support.served import InProcessService, in_process_service
from tests.support.use_cases import SUB as SUBSCRIPTION
from tests.support.use_cases import TOPIC as TOPIC_NAME
from tests.support.use_cases import open_use_cases
from tests.support.waiting import wait_until

TOPIC = "/projects/P/topics/T"
SUB = "/projects/P/subscriptions/S"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, running_receiver: Receiving) -> Iterator[InProcessService]:
    with in_process_service(tmp_path_factory.mktemp("service") / "ams-data", **settings_for(running_receiver)) as made:
        yield made


def settings_for(receiver: Receiving) -> dict[str, str]:
    return {"push_allow": "127.0.0.0/8", "push_ca_file": receiver.ca}


def publish(service: InProcessService, *texts: str, topic: str = TOPIC, **attributes: str) -> None:
    messages = [{"data": b64encode(text.encode()).decode(), "attributes": attributes} for text in texts]
    service.ask("POST", topic + ":publish", {"messages": messages})


@pytest.fixture
def client(service: InProcessService, receiving: Receiving) -> Iterator[InProcessService]:
    service.ask("POST", "/projects/P", {})
    service.ask("PUT", TOPIC)
    yield service
    for project in service.ask("GET", "/projects")["projects"]:
        service.ask("DELETE", f"/projects/{project['name']}")


def make_subscription(client: InProcessService, receiver: Receiving, path: str) -> dict[str, object]:
    """Create subscription S, pushed to a path of the receiver, and verify it; return its configuration."""
    config = {"pushEndpoint": receiver.url(path), "retryPolicy": {"type": "linear", "period": 50}}
    client.ask("PUT", SUB, {"topic": TOPIC[1:], "pushConfig": config})
    verify(client, receiver)
    return config


def verify(client: InProcessService, receiver: Receiving) -> None:
    receiver.show(client.ask("GET", SUB)["pushConfig"]["verificationHash"])
    client.ask("POST", SUB + ":verifyPushEndpoint")


def configure(client: InProcessService, config: object) -> None:
    client.ask("POST", SUB + ":modifyPushConfig", {"pushConfig": config})


def status(client: InProcessService) -> str:
    return str(client.ask("GET", SUB).get("pushStatus"))


def wait_for_acknowledgements(client: InProcessService, count: int) -> None:
    wait_until(lambda: client.ask("GET", SUB + ":offsets")["current"] == count)


def ids(receiver: Receiving, path: str) -> Sequence[str]:
    return [json.loads(each.body)["message"]["messageId"] for each in receiver.requests(path)]


def test_a_message_is_delivered_and_acknowledged(client: InProcessService, receiving: Receiving) -> None:
    make_subscription(client, receiving, "/ok/one")
    assert status(client) == f"Subscription {SUB} is currently active"
    header = client.ask("GET", SUB)["pushConfig"]["authorizationHeader"]["value"]

    publish(client, "hi", kind="greeting")

    (request,) = receiving.wait(1, "/ok/one")
    delivered = json.loads(request.body)
    assert delivered.pop("subscription") == SUB[1:]
    assert delivered["message"].pop("publishTime").endswith("Z")
    assert delivered == {"message": {"messageId": "0", "attributes": {"kind": "greeting"}, "data": "aGk="}}
    assert (request.headers["content-type"], request.headers["authorization"]) == ("application/json", header)
    wait_for_acknowledgements(client, 1)


def test_what_fails_is_tried_again_and_the_status_tells_it(client: InProcessService, receiving: Receiving) -> None:
    make_subscription(client, receiving, "/status/500/a?body=out%20of%20order")

    publish(client, "x")

    wait_until(lambda: "Could not send message, out of order" in status(client))
    configure(client, {"pushEndpoint": receiving.url("/ok/instead")})
    verify(client, receiving)
    wait_for_acknowledgements(client, 1)
    wait_until(lambda: status(client) == f"Subscription {SUB} is currently active")
    assert ids(receiving, "/ok/instead") == ["0"]


def test_after_a_seek_and_with_a_topic_made_anew_delivery_goes_on_there(client: InProcessService, receiving: Receiving):
    """HTTP contract 17.2, A9; push contract 15, P31."""
    make_subscription(client, receiving, "/ok/back")
    publish(client, *"ab")
    wait_for_acknowledgements(client, 2)
    client.ask("POST", SUB + ":modifyOffset", {"offset": 0})
    receiving.wait(4, "/ok/back")
    wait_for_acknowledgements(client, 2)

    client.ask("DELETE", TOPIC)
    wait_until(lambda: "Could not consume message, Subscription's topic doesn't exist" in status(client))
    client.ask("PUT", TOPIC)
    publish(client, "new")

    receiving.wait(5, "/ok/back")
    assert ids(receiving, "/ok/back") == ["0", "1", "0", "1", "0"]


def test_a_project_that_is_renamed_goes_on_under_its_name(client: InProcessService, receiving: Receiving) -> None:
    """Push contract 15, P31."""
    make_subscription(client, receiving, "/ok/name")
    client.ask("PUT", "/projects/P", {"name": "Q"})

    publish(client, "x", topic="/projects/Q/topics/T")

    (request,) = receiving.wait(1, "/ok/name")
    assert json.loads(request.body)["subscription"] == "projects/Q/subscriptions/S"
    renamed = "/projects/Q/subscriptions/S"
    wait_until(lambda: client.ask("GET", renamed)["pushStatus"] == f"Subscription {renamed} is currently active")


def test_nothing_is_delivered_after_going_back_to_pull_or_a_deletion(client: InProcessService, receiving: Receiving):
    config = make_subscription(client, receiving, "/ok/pull")
    configure(client, {})
    publish(client, "x")
    pulled = client.ask("POST", SUB + ":pull", {"maxMessages": "1"})["receivedMessages"]
    assert [each["message"]["messageId"] for each in pulled] == ["0"]
    client.ask("POST", SUB + ":acknowledge", {"ackIds": [each["ackId"] for each in pulled]})

    configure(client, config)
    verify(client, receiving)
    assert client.ask("DELETE", SUB) == {"message": f"Subscription {SUB} deactivated"}
    publish(client, "y")
    client.ask("PUT", SUB, {"topic": TOPIC[1:]})
    publish(client, "z")
    assert receiving.requests("/ok/pull") == []


@pytest.mark.long
def test_what_was_not_delivered_at_a_stop_is_delivered_after_the_next_start(tmp_path: Path, receiving: Receiving):
    settings = settings_for(receiving)
    with in_process_service(tmp_path / "ams-data", **settings) as client:
        client.ask("POST", "/projects/P", {})
        client.ask("PUT", TOPIC)
        make_subscription(client, receiving, "/ok/start")
        publish(client, "a")
        wait_for_acknowledgements(client, 1)

    with in_process_service(tmp_path / "ams-data", push_inside=False) as client:
        publish(client, "b")
        assert status(client) == "Push server is currently unavailable"
        assert client.ask("GET", "/status")["push_servers"] == [
            {"endpoint": "internal", "status": "Push server is currently unavailable"}
        ]

    with in_process_service(tmp_path / "ams-data", **settings) as client:
        wait_for_acknowledgements(client, 2)
        assert client.ask("GET", "/status") == {
            "status": "ok", "push_servers": [{"endpoint": "internal", "status": "SERVING"}]
        }  # fmt: skip
    assert ids(receiving, "/ok/start") == ["0", "1"]


async def test_a_subscription_made_anew_is_not_the_one_that_was_to_be_delivered(tmp_path: Path) -> None:
    """Its worker may not know yet that the old one is gone."""
    async with open_use_cases(tmp_path) as made:
        engines = made.engines
        dead_letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts, engines.stored)
        upstream = EnginesUpstream(made.deliverer(), dead_letters)
        before = target("/projects/P/subscriptions/s", identity="the one before")
        await made.publish(1)

        with pytest.raises(Gone):
            await upstream.pull(before, max_messages=1, max_bytes=100)
        await made.deliverer().pull(await made.deliverer().to_pull(made.caller, SUBSCRIPTION), 1, wait=False)
        with pytest.raises(Gone):
            await upstream.acknowledge(before, make_pulled(0))
        with pytest.raises(Gone):
            await upstream.dead_letter(before, make_pulled(0), Verdict("bad", 5, 422))


async def test_a_dead_letter_without_room_is_tried_again_later_and_the_worker_is_told_why(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as made:
        engines = made.engines
        await engines.topics.create(made.caller, "dead")
        config = new_push_config(
            AskedPush(mattermost_url="https://chat.example/hooks/x", dead_letter_topic="dead"), str
        )
        here = made.caller.here.id
        await engines.registry.subscriptions.change(here, SUBSCRIPTION, config=lambda _: config)
        stored = StoredBytes(engines.registry, engines.log, engines.clock)
        stored.follow(here, {STORED_BYTES: 1})
        dead_letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts, stored)
        upstream = EnginesUpstream(made.deliverer(), dead_letters)
        subscription = await engines.registry.subscriptions.find(here, SUBSCRIPTION)
        told = target("/projects/P/subscriptions/s", identity=subscription.id)
        await made.publish(1)

        with pytest.raises(Away, match="^Quota storedBytes of the project is exceeded: its limit is 1$"):
            await upstream.dead_letter(told, make_pulled(0), Verdict("bad", 5, 422))
        stored.follow(here, {})
        await upstream.dead_letter(told, make_pulled(0), Verdict("bad", 5, 422))
        topic = await made.publisher.topic(made.caller, TOPIC_NAME)
        assert (await engines.cursors.position(subscription.id, topic.id)).offset == 1
