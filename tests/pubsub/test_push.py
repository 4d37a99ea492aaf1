"""Push that Google's client configures: a real receiver checks tokens as Google's library does, and nothing is lost."""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import httpx
import jwt
import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument

from ams.app.push_server.program import running
from ams.app.push_server.settings import PushSettings
from ams.core.supervisor import Supervisor
from tests.pubsub.conftest import World, world_at
from tests.support.documents import ROOT
from tests.support.publishing import Publishing
from tests.support.receiving import Receiving, received
from tests.support.receiving.requests import Received
from tests.support.served import WORKER_TOKEN
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS

ACCOUNT = "pusher@garden.iam.gserviceaccount.com"
ISSUER = "ams.example"
EMULATOR = "--pubsub-port", "0", "--pubsub-emulator"


@pytest.fixture(scope="module")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture
def receiver(running_receiver: Receiving) -> Receiving:
    running_receiver.forget()
    return running_receiver


def reach(receiver: Receiving, name: str = ISSUER) -> dict[str, str]:
    """Settings with which a service delivers to the receiver, and says that it has this name."""
    return {"AMS_PUSH_CA_FILE": receiver.ca, "AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PROXY_HOSTNAME": name}


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory, running_receiver: Receiving) -> Iterator[LiveService]:
    """A service that may deliver to the receiver."""
    data = tmp_path_factory.mktemp("pushing") / "data"
    with live_service(data, *EMULATOR, environment=reach(running_receiver)) as service:
        yield service


@pytest.fixture
def place(pushing: LiveService) -> Iterator[World]:
    """A project of its own there."""
    with grpc.insecure_channel(pushing.pubsub) as channel:
        yield world_at(channel, pushing)


def test_an_emulator_delivers_by_http_to_this_machine_as_googles_does(world: World, publishing: Publishing) -> None:
    bodies: Queue[bytes] = Queue()
    url = publishing.answers("/in", lambda body: bodies.put(body) or b"")
    _, subscription = world.made(push_config={"push_endpoint": url.replace("127.0.0.1", "localhost")})

    world.publish(b"a rose")

    message = json.loads(bodies.get(timeout=PATIENCE_SECONDS))["message"]
    assert base64.b64decode(message["data"]) == b"a rose"
    world.subscriber.modify_push_config(request={"subscription": subscription, "push_config": {"push_endpoint": url}})
    world.publish(b"a tulip")
    assert base64.b64decode(json.loads(bodies.get(timeout=PATIENCE_SECONDS))["message"]["data"]) == b"a tulip"


def token_of(came: Received) -> str:
    kind, _, token = came.headers["authorization"].partition(" ")
    assert kind == "Bearer"
    return token


@pytest.mark.long
def test_a_delivery_is_wrapped_and_its_token_is_checked_by_the_published_keys(
    place: World, pushing: LiveService, receiver: Receiving
) -> None:
    endpoint = receiver.url("/ok/wrapped")
    token = {"service_account_email": ACCOUNT, "audience": "https://receiver.example"}
    push = {"push_endpoint": endpoint, "oidc_token": token, "attributes": {"x-goog-version": "v1"}}
    topic, subscription = place.made(push_config=push)
    shown = place.subscriber.get_subscription(request={"subscription": subscription}).push_config

    sent = place.publisher.publish(topic, b"a rose", color="red").result(10)
    [came] = receiver.wait(1, "/ok/wrapped")

    body = json.loads(came.body)
    message = body["message"]
    assert body["subscription"] == subscription
    assert "deliveryAttempt" not in body
    assert (message["messageId"], message["message_id"]) == (sent, sent)
    assert message["publishTime"] == message["publish_time"]
    assert (base64.b64decode(message["data"]), message["attributes"]) == (b"a rose", {"color": "red"})
    assert (came.method, came.headers["content-type"]) == ("POST", "application/json")
    assert came.headers["user-agent"] == "CloudPubSub-Google"
    said = checked(token_of(came), pushing, "https://receiver.example")
    assert (said["iss"], said["email"], said["email_verified"]) == (f"https://{ISSUER}", ACCOUNT, True)
    assert said["exp"] - said["iat"] == 3600
    assert (shown.push_endpoint, dict(shown.attributes)) == (endpoint, {"x-goog-version": "v1"})
    assert shown.oidc_token.service_account_email == ACCOUNT


def checked(token: str, service: LiveService, audience: str) -> dict[str, object]:
    """Check a token as a receiver does that knows the issuer's URL only."""
    told = httpx.get(service.base_url + "/.well-known/openid-configuration", trust_env=False).json()
    keys = httpx.get(service.base_url + told["jwks_uri"].removeprefix(told["issuer"]), trust_env=False).json()
    known = {each.key_id: each for each in jwt.PyJWKSet.from_dict(keys).keys}
    key = known[jwt.get_unverified_header(token)["kid"]]
    return dict(jwt.decode(token, key, algorithms=["RS256"], audience=audience, issuer=told["issuer"]))


@pytest.mark.long
@pytest.mark.parametrize("flags", [[], ["--tls-self-signed"]])
def test_without_a_host_name_receivers_check_a_token_by_the_url_that_the_service_says_it_has(
    flags: list[str], tmp_path: Path, receiver: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        live_service(tmp_path / "data", *EMULATOR, *flags, environment=reach(receiver, "")) as service,
        grpc.insecure_channel(service.pubsub) as channel,
    ):
        place = world_at(channel, service)
        endpoint = receiver.url("/ok/checked")
        place.made(push_config={"push_endpoint": endpoint, "oidc_token": {"service_account_email": ACCOUNT}})
        place.publish(b"a rose")
        token = token_of(receiver.wait(1, "/ok/checked")[0])
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(name, str(service.ca))
        senders = list(documented(service.base_url, endpoint))

        assert [sender(token) for sender in senders] == [ACCOUNT] * 2
        for sender in documented(service.base_url, "https://other.example"):
            with pytest.raises(jwt.InvalidAudienceError):
                sender(token)


def documented(issuer: str, audience: str) -> Iterator[Callable[[str], str]]:
    """Yield what the reference has for receivers, for another issuer and audience."""
    text = (ROOT / "docs" / "reference" / "pubsub.md").read_text()
    for program in re.findall(r"^```python\n(.*?def sender.*?)^```$", text, re.MULTILINE | re.DOTALL):
        said: dict[str, Any] = {}
        exec(program.replace("https://ams.example", issuer).replace("https://me.example/in", audience), said)
        yield said["sender"]


@pytest.mark.long
def test_what_was_not_delivered_is_pulled_after_a_switch_and_what_was_not_pulled_is_delivered(
    place: World, receiver: Receiving
) -> None:
    _, subscription = place.made(push_config={"push_endpoint": receiver.url("/status/500")})
    place.publish(b"a rose")
    receiver.wait(1, "/status/500")
    with pytest.raises(FailedPrecondition):
        place.pulled()

    place.subscriber.modify_push_config(request={"subscription": subscription, "push_config": {}})
    shown = place.subscriber.get_subscription(request={"subscription": subscription})
    [pulled] = place.subscriber.pull(request={"subscription": subscription, "max_messages": 1}).received_messages
    place.modify(0, pulled.ack_id)
    place.publish(b"a tulip")
    update = {"name": subscription, "push_config": {"push_endpoint": receiver.url("/ok/again")}}
    place.subscriber.update_subscription(request={"subscription": update, "update_mask": {"paths": ["push_config"]}})

    assert not shown.push_config.push_endpoint
    came = [json.loads(each.body)["message"]["data"] for each in receiver.wait(2, "/ok/again")]
    assert {base64.b64decode(each) for each in came} == {b"a rose", b"a tulip"}


@pytest.mark.parametrize(
    ("push", "options"),
    [({"push_endpoint": "http://receiver.example"}, {}), ({"push_endpoint": "https://"}, {}),
     ({"push_endpoint": "https://user:s3cret@a.example"}, {}), ({"push_endpoint": "http://user:s3cret@[a"}, {}),
     ({"push_endpoint": "https://a.example", "attributes": {"x-goog-version": "v2"}}, {}),
     ({"push_endpoint": "https://a.example", "attributes": {"other": "v1"}}, {}),
     ({"push_endpoint": "https://a.example", "oidc_token": {"audience": "me"}}, {}),
     ({"oidc_token": {"service_account_email": ACCOUNT}}, {}),
     ({"push_endpoint": "https://a.example"}, {"enable_exactly_once_delivery": True})],
)  # fmt: skip
def test_what_cannot_be_delivered_is_refused_and_changes_nothing(
    world: World, push: dict[str, object], options: dict[str, object]
) -> None:
    topic, subscription = world.made(**options)

    with pytest.raises(InvalidArgument) as creating:
        world.subscriber.create_subscription(
            request={"name": subscription + "-b", "topic": topic, "push_config": push, **options}
        )
    with pytest.raises(InvalidArgument) as changing:
        world.subscriber.modify_push_config(request={"subscription": subscription, "push_config": push})
    assert "s3cret" not in f"{creating.value} {changing.value}"

    listed = world.subscriber.list_subscriptions(request={"project": f"projects/{world.project}"})
    assert [each.name for each in listed] == [subscription]
    assert world.pulled() == []


def test_push_is_not_switched_to_exactly_once(world: World) -> None:
    _, subscription = world.made(push_config={"push_endpoint": "https://a.example"})
    update = {"name": subscription, "enable_exactly_once_delivery": True}

    with pytest.raises(InvalidArgument, match="pull subscriptions only"):
        world.subscriber.update_subscription(
            request={"subscription": update, "update_mask": {"paths": ["enable_exactly_once_delivery"]}}
        )


def test_an_ordered_subscription_of_ams_is_not_pushed_from_here(world: World) -> None:
    topic, _ = world.made()
    ordered = world.subscription("ordered")
    world.http("PUT", "/subscriptions/ordered", {"topic": topic})

    with pytest.raises(FailedPrecondition, match="ordered"):
        world.subscriber.modify_push_config(
            request={"subscription": ordered, "push_config": {"push_endpoint": "https://a.example"}}
        )


@pytest.mark.long
async def test_a_process_of_its_own_delivers_in_the_same_form(tmp_path: Path, receiver: Receiving) -> None:
    apart = {"AMS_PUSH_INSIDE": "false", "AMS_PUSH_WORKER_TOKEN": WORKER_TOKEN}
    with (
        live_service(tmp_path / "data", *EMULATOR, environment=reach(receiver) | apart) as service,
        grpc.insecure_channel(service.pubsub) as channel,
    ):
        place = world_at(channel, service)
        push = {"push_endpoint": receiver.url("/fail/1"), "oidc_token": {"service_account_email": ACCOUNT}}
        policy = {"dead_letter_topic": place.topic("letters"), "max_delivery_attempts": 5}
        place.publisher.create_topic(request={"name": place.topic("letters")})
        _, subscription = place.made(push_config=push, dead_letter_policy=policy)
        place.publish(b"a rose")
        settings = PushSettings(
            endpoint=service.base_url, token=WORKER_TOKEN, port=0, ops_port=0, tls_enabled=False,
            push_allow="127.0.0.0/8", push_ca_file=receiver.ca,
        )  # fmt: skip
        async with running(settings, Supervisor()):
            first, second = (await asyncio.to_thread(receiver.wait, 2, "/fail/1"))[:2]

        bodies = [json.loads(each.body) for each in (first, second)]
        assert [each["deliveryAttempt"] for each in bodies] == [1, 2]
        assert bodies[1]["subscription"] == subscription
        assert checked(token_of(second), service, receiver.url("/fail/1"))["email"] == ACCOUNT
