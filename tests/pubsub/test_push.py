"""Push that Google's client configures: a real receiver checks tokens as Google's library does, and nothing is lost."""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import jwt
import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument, PermissionDenied
from google.cloud import pubsub_v1
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from ams.app.push_server.program import running
from ams.app.push_server.settings import PushSettings
from ams.core.supervisor import Supervisor
from tests.pubsub.conftest import World, world_at
from tests.support.documents import ROOT
from tests.support.receiving import Receiving, received
from tests.support.receiving.requests import Received
from tests.support.served import WORKER_TOKEN
from tests.support.service import LiveService, live_service

ACCOUNT = "pusher@garden.iam.gserviceaccount.com"
ISSUER = "ams.example"


@pytest.fixture(scope="module")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture
def receiver(running_receiver: Receiving) -> Receiving:
    running_receiver.forget()
    return running_receiver


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory, running_receiver: Receiving) -> Iterator[LiveService]:
    """A service that may deliver to the receiver."""
    environment = {
        "AMS_PUSH_CA_FILE": running_receiver.ca,
        "AMS_PUSH_ALLOW": "127.0.0.0/8",
        "AMS_PROXY_HOSTNAME": ISSUER,
    }
    data = tmp_path_factory.mktemp("pushing") / "data"
    with live_service(data, "--pubsub-port", "0", "--pubsub-emulator", environment=environment) as service:
        yield service


@pytest.fixture
def place(pushing: LiveService) -> Iterator[World]:
    """A project of its own there."""
    with grpc.insecure_channel(pushing.pubsub) as channel:
        yield world_at(channel, pushing)


def token_of(came: Received) -> str:
    kind, _, token = came.headers["authorization"].partition(" ")
    assert kind == "Bearer"
    return token


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


@pytest.mark.parametrize("flags", [[], ["--tls-self-signed"]])
def test_without_a_host_name_receivers_check_a_token_by_the_url_that_the_service_says_it_has(
    flags: list[str], tmp_path: Path, receiver: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = {"AMS_PUSH_CA_FILE": receiver.ca, "AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PROXY_HOSTNAME": ""}
    flags = ["--pubsub-port", "0", "--pubsub-emulator", *flags]
    with (
        live_service(tmp_path / "data", *flags, environment=reach) as service,
        grpc.insecure_channel(service.pubsub) as channel,
    ):
        place = world_at(channel, service)
        endpoint = receiver.url("/ok/checked")
        topic, _ = place.made(push_config={"push_endpoint": endpoint, "oidc_token": {"service_account_email": ACCOUNT}})
        place.publisher.publish(topic, b"a rose").result(10)
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


def test_without_a_wrapper_a_body_is_the_data_and_headers_say_the_rest(place: World, receiver: Receiving) -> None:
    endpoint = receiver.url("/ok/plain")
    topic, subscription = place.made(push_config={"push_endpoint": endpoint, "no_wrapper": {"write_metadata": True}})

    sent = place.publisher.publish(topic, b"a tulip", color="red", host="elsewhere.example").result(10)
    [came] = receiver.wait(1, "/ok/plain")

    assert came.body == "a tulip"
    assert came.headers["x-goog-pubsub-subscription-name"] == subscription
    assert came.headers["x-goog-pubsub-message-id"] == sent
    assert came.headers["color"] == "red"
    assert came.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "authorization" not in came.headers


def test_a_message_that_is_refused_comes_again_and_then_goes_to_the_dead_letters(
    place: World, receiver: Receiving
) -> None:
    letters, held = place.topic("letters"), place.subscription("letters")
    place.publisher.create_topic(request={"name": letters})
    place.subscriber.create_subscription(request={"name": held, "topic": letters})
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    endpoint = receiver.url("/refuse/poison")
    retry = {"minimum_backoff": {"seconds": 0}, "maximum_backoff": {"seconds": 0}}
    topic, _ = place.made(push_config={"push_endpoint": endpoint}, dead_letter_policy=policy, retry_policy=retry)

    place.publisher.publish(topic, b"poison").result(10)
    came = receiver.wait(5, "/refuse/poison")

    assert [json.loads(each.body)["deliveryAttempt"] for each in came[:5]] == [1, 2, 3, 4, 5]
    assert place.subscriber.pull(request={"subscription": held, "max_messages": 1}).received_messages


def test_an_endpoint_that_is_gone_today_gets_the_message_tomorrow(place: World, receiver: Receiving) -> None:
    topic, subscription = place.made(push_config={"push_endpoint": receiver.url("/gone")})
    place.publisher.publish(topic, b"a rose").result(10)
    receiver.wait(2, "/gone")

    changed = {"push_endpoint": receiver.url("/fail/1")}
    place.subscriber.modify_push_config(request={"subscription": subscription, "push_config": changed})

    assert len(receiver.wait(2, "/fail/1")) == 2


def test_what_was_not_delivered_is_pulled_after_a_switch_and_what_was_not_pulled_is_delivered(
    place: World, receiver: Receiving
) -> None:
    topic, subscription = place.made(push_config={"push_endpoint": receiver.url("/status/500")})
    place.publisher.publish(topic, b"a rose").result(10)
    receiver.wait(1, "/status/500")
    with pytest.raises(FailedPrecondition):
        place.pulled(subscription)

    place.subscriber.modify_push_config(request={"subscription": subscription, "push_config": {}})
    shown = place.subscriber.get_subscription(request={"subscription": subscription})
    [pulled] = place.subscriber.pull(request={"subscription": subscription, "max_messages": 1}).received_messages
    request = {"subscription": subscription, "ack_ids": [pulled.ack_id], "ack_deadline_seconds": 0}
    place.subscriber.modify_ack_deadline(request=request)
    place.publisher.publish(topic, b"a tulip").result(10)
    update = {"name": subscription, "push_config": {"push_endpoint": receiver.url("/ok/again")}}
    place.subscriber.update_subscription(request={"subscription": update, "update_mask": {"paths": ["push_config"]}})

    assert not shown.push_config.push_endpoint
    came = [json.loads(each.body)["message"]["data"] for each in receiver.wait(2, "/ok/again")]
    assert {base64.b64decode(each) for each in came} == {b"a rose", b"a tulip"}


@pytest.mark.parametrize(
    ("push", "options"),
    [({"push_endpoint": "http://receiver.example"}, {}), ({"push_endpoint": "https://"}, {}),
     ({"push_endpoint": "https://a.example", "attributes": {"x-goog-version": "v2"}}, {}),
     ({"push_endpoint": "https://a.example", "attributes": {"other": "v1"}}, {}),
     ({"push_endpoint": "https://a.example", "oidc_token": {"audience": "me"}}, {}),
     ({"oidc_token": {"service_account_email": ACCOUNT}}, {}),
     ({"push_endpoint": "https://a.example"}, {"enable_exactly_once_delivery": True})],
)  # fmt: skip
def test_what_cannot_be_delivered_is_refused_and_changes_nothing(
    place: World, push: dict[str, object], options: dict[str, object]
) -> None:
    topic, subscription = place.made(**options)

    with pytest.raises(InvalidArgument):
        place.subscriber.create_subscription(
            request={"name": subscription + "-b", "topic": topic, "push_config": push, **options}
        )
    with pytest.raises(InvalidArgument):
        place.subscriber.modify_push_config(request={"subscription": subscription, "push_config": push})

    assert [
        each.name for each in place.subscriber.list_subscriptions(request={"project": f"projects/{place.project}"})
    ] == [subscription]
    assert place.pulled(subscription) == []


def test_push_is_not_switched_to_exactly_once(place: World) -> None:
    _, subscription = place.made(push_config={"push_endpoint": "https://a.example"})
    update = {"name": subscription, "enable_exactly_once_delivery": True}

    with pytest.raises(InvalidArgument, match="pull subscriptions only"):
        place.subscriber.update_subscription(
            request={"subscription": update, "update_mask": {"paths": ["enable_exactly_once_delivery"]}}
        )


def test_an_ordered_subscription_of_ams_is_not_pushed_from_here(place: World) -> None:
    topic, _ = place.made()
    ordered = place.subscription("ordered")
    place.http("PUT", "/subscriptions/ordered", {"topic": topic})

    with pytest.raises(FailedPrecondition, match="ordered"):
        place.subscriber.modify_push_config(
            request={"subscription": ordered, "push_config": {"push_endpoint": "https://a.example"}}
        )


def test_who_only_administers_a_project_names_its_own_service_accounts(tmp_path: Path) -> None:
    with live_service(tmp_path / "data", "--pubsub-port", "0", "--trusted-proxies", "127.0.0.1") as service:
        api = httpx.Client(base_url=service.base_url + "/v1", headers={"x-api-key": service.token}, trust_env=False)
        with api, grpc.insecure_channel(service.pubsub) as channel:
            api.post("/projects/garden", json={}).raise_for_status()
            roles = {"projects": [{"project": "garden", "roles": ["project_admin"]}]}
            gardener = api.post("/users/gardener", json=roles).raise_for_status().json()
            client = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
            api.put("/projects/garden/topics/plants").raise_for_status()
            name = "projects/garden/subscriptions/watering"
            metadata = [("x-goog-api-key", gardener["token"])]

            def subscribe(account: str) -> None:
                push = {"push_endpoint": "https://a.example", "oidc_token": {"service_account_email": account}}
                request = {"name": name, "topic": "projects/garden/topics/plants", "push_config": push}
                client.create_subscription(request=request, metadata=metadata)

            for other in ("pusher@forest.iam.gserviceaccount.com", "me@example.com", f"{ACCOUNT}.evil.example"):
                with pytest.raises(PermissionDenied):
                    subscribe(other)
            subscribe(ACCOUNT)


async def test_a_process_of_its_own_delivers_in_the_same_form(tmp_path: Path, receiver: Receiving) -> None:
    reach = {"AMS_PUSH_CA_FILE": receiver.ca, "AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PROXY_HOSTNAME": ISSUER}
    apart = {"AMS_PUSH_INSIDE": "false", "AMS_PUSH_WORKER_TOKEN": WORKER_TOKEN}
    data = tmp_path / "data"
    with (
        live_service(data, "--pubsub-port", "0", "--pubsub-emulator", environment={**reach, **apart}) as service,
        grpc.insecure_channel(service.pubsub) as channel,
    ):
        place = world_at(channel, service)
        push = {"push_endpoint": receiver.url("/fail/1"), "oidc_token": {"service_account_email": ACCOUNT}}
        policy = {"dead_letter_topic": place.topic("letters"), "max_delivery_attempts": 5}
        place.publisher.create_topic(request={"name": place.topic("letters")})
        topic, subscription = place.made(push_config=push, dead_letter_policy=policy)
        place.publisher.publish(topic, b"a rose").result(10)
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
