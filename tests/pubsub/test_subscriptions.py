"""Google's client manages subscriptions, and push: a real receiver checks tokens with Google's library."""

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
from google.api_core.exceptions import FailedPrecondition, GoogleAPICallError, InvalidArgument, NotFound
from google.pubsub_v1 import types

from tests.pubsub.conftest import World, world_at
from tests.pubsub.streams import ask
from tests.support.documents import ROOT
from tests.support.publishing import Publishing
from tests.support.receiving import Receiving, run_receiver
from tests.support.receiving.requests import Received
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS

DAY = 86_400


def update_fields(world: World, paths: list[str], **fields: object) -> types.Subscription:
    subscription = {"name": world.subscription(), **fields}
    request = {"subscription": subscription, "update_mask": {"paths": paths}}
    return world.subscriber.update_subscription(request=request)


def show_subscription(world: World) -> types.Subscription:
    return world.subscriber.get_subscription(request={"subscription": world.subscription()})


def create(world: World, **options: object) -> types.Subscription:
    request = {"name": world.subscription(), "topic": world.topic(), **options}
    return world.subscriber.create_subscription(request=request)


@pytest.fixture
def topic(world: World) -> str:
    return str(world.publisher.create_topic(request={"name": world.topic()}).name)


def test_a_subscription_without_options_has_the_defaults_in_every_answer(world: World, topic: str) -> None:
    made = create(world)
    assert made == show_subscription(world)
    listed = list(world.subscriber.list_subscriptions(request={"project": f"projects/{world.project}"}))
    assert listed == [made]
    assert update_fields(world, ["labels"]) == made
    plain = types.Subscription.pb(made)
    assert (plain.topic, plain.ack_deadline_seconds) == (topic, 10)
    assert (plain.message_retention_duration.seconds, plain.expiration_policy.ttl.seconds) == (7 * DAY, 31 * DAY)
    assert plain.HasField("push_config")
    assert plain.push_config.push_endpoint == ""
    assert not plain.HasField("dead_letter_policy")
    assert not plain.HasField("retry_policy")
    assert (plain.filter, plain.enable_message_ordering, plain.enable_exactly_once_delivery) == ("", False, False)
    assert (plain.retain_acked_messages, plain.detached) == (False, False)
    assert made.state == types.Subscription.State.ACTIVE


def test_a_subscription_is_shown_as_it_was_made(world: World, topic: str) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    wanted: dict[str, Any] = {
        "ack_deadline_seconds": 600, "retain_acked_messages": True, "message_retention_duration": {"seconds": 600},
        "labels": {"a": "b"}, "enable_message_ordering": True, "expiration_policy": {"ttl": {"seconds": DAY}},
        "filter": 'attributes:kind AND attributes.kind != "x"', "dead_letter_policy": {"dead_letter_topic": letters},
        "retry_policy": {"minimum_backoff": {"seconds": 1, "nanos": 500_000_000}},
        "enable_exactly_once_delivery": True,
    }  # fmt: skip
    made = create(world, **wanted)
    assert made == show_subscription(world)
    wanted["dead_letter_policy"]["max_delivery_attempts"] = 5
    wanted["retry_policy"]["maximum_backoff"] = {"seconds": 600}
    for name, value in wanted.items():
        assert getattr(made, name) == getattr(types.Subscription({name: value}), name), name


def test_empty_policies_have_their_defaults_and_without_a_ttl_nothing_ends_a_subscription(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic(), "message_retention_duration": {"seconds": 900}})
    made = create(world, expiration_policy={}, retry_policy={})
    plain = types.Subscription.pb(made)
    assert plain.HasField("expiration_policy")
    assert not plain.expiration_policy.HasField("ttl")
    assert made == show_subscription(world)
    policy = made.retry_policy
    assert (policy.minimum_backoff.total_seconds(), policy.maximum_backoff.total_seconds()) == (10, 600)
    assert made.topic_message_retention_duration.total_seconds() == 900
    world.subscriber.delete_subscription(request={"subscription": made.name})
    brief = create(world, expiration_policy={"ttl": {"seconds": DAY}})
    assert brief.message_retention_duration.days == 1, "not kept longer than the subscription"


def test_a_subscription_without_a_name_gets_one(world: World, topic: str) -> None:
    plain: Any = types.Subscription.pb(types.Subscription(topic=topic))
    made = type(plain).FromString(ask(world.channel, "/google.pubsub.v1.Subscriber/CreateSubscription", plain))
    assert made.name.startswith(f"projects/{world.project}/subscriptions/")
    assert world.subscriber.get_subscription(request={"subscription": made.name}).topic == topic


CHANGES: dict[str, Any] = {
    "ack_deadline_seconds": 20, "retain_acked_messages": True, "message_retention_duration": {"seconds": 3600},
    "labels": {"c": "d"}, "expiration_policy": {"ttl": {"seconds": 2 * DAY}},
    "retry_policy": {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 2}},
    "enable_exactly_once_delivery": True,
}  # fmt: skip


@pytest.mark.parametrize("field", CHANGES)
def test_each_changeable_field_changes_alone_and_goes_back_to_its_default(world: World, topic: str, field: str) -> None:
    before = create(world)
    shown = update_fields(world, [field], **CHANGES)
    assert shown == show_subscription(world)
    wanted = types.Subscription(before)
    setattr(wanted, field, CHANGES[field])
    assert shown == wanted
    cleared = update_fields(world, [field])
    if field == "expiration_policy":
        before = types.Subscription(before)
        assert cleared.expiration_policy.ttl.days == 31
    assert cleared == before


def test_dead_letters_are_turned_on_and_off(world: World, topic: str) -> None:
    before = create(world)
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 7}
    shown = update_fields(world, ["dead_letter_policy"], dead_letter_policy=policy)
    assert shown.dead_letter_policy.max_delivery_attempts == 7
    nine = {"max_delivery_attempts": 9}
    nested = update_fields(world, ["dead_letter_policy.max_delivery_attempts"], dead_letter_policy=nine)
    assert nested.dead_letter_policy.max_delivery_attempts == 9
    assert nested.dead_letter_policy.dead_letter_topic == letters
    assert update_fields(world, ["dead_letter_policy"]) == before


def test_a_nested_path_changes_what_it_names(world: World, topic: str) -> None:
    create(world, retry_policy={"minimum_backoff": {"seconds": 3}, "maximum_backoff": {"seconds": 30}})
    policy = {"minimum_backoff": {"seconds": 5}, "maximum_backoff": {"seconds": 50}}
    shown = update_fields(world, ["retry_policy.minimum_backoff"], retry_policy=policy)
    assert shown.retry_policy.minimum_backoff.total_seconds() == 5
    assert shown.retry_policy.maximum_backoff.total_seconds() == 30
    ttl = {"expiration_policy": {"ttl": {"seconds": 5 * DAY}}}
    assert update_fields(world, ["expiration_policy.ttl"], **ttl).expiration_policy.ttl.days == 5
    never = update_fields(world, ["expiration_policy.ttl"])
    assert not types.Subscription.pb(never).expiration_policy.HasField("ttl")
    assert never == show_subscription(world)


DEADLINE = "Invalid ack deadline given (ack_deadline={}). The ack deadline must be between 10 and 600"
RETENTION = "The value for message retention duration is out of"
TTL = "The value for expiration duration is too small"
BACKOFF = "The fields retry_policy.minimum_backoff and retry_policy.maximum_backoff must be between 0s and 600s."
ORDER = "retry_policy.minimum_backoff (10s if absent) must not be more than retry_policy.maximum_backoff."
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    *(({"ack_deadline_seconds": each}, DEADLINE.format(each)) for each in (-1, 9, 601)),
    *(({"message_retention_duration": {"seconds": each}}, RETENTION) for each in (0, 599, 2_678_401)),
    *(({"expiration_policy": {"ttl": {"seconds": each}}}, TTL) for each in (0, DAY - 1)),
    ({"retry_policy": {"minimum_backoff": {"seconds": -1}}}, BACKOFF),
    ({"retry_policy": {"maximum_backoff": {"seconds": 601}}}, BACKOFF),
    ({"retry_policy": {"minimum_backoff": {"seconds": 9}, "maximum_backoff": {"seconds": 8}}}, ORDER),
    ({"labels": {"A": ""}}, "Invalid labels: "),
    ({"filter": "attributes.a = 'x'"}, "Invalid filter"),
    ({"filter": "attributes:a AND attributes:b OR attributes:c"}, "Invalid filter"),
    ({"filter": f'attributes.a = "{"x" * 250}"'}, "Invalid filter: it has more than 256 bytes"),
    ({"name": "subscriptions/x"}, "Invalid resource name given (name=subscriptions/x). Refer to "),
    ({"topic": "topics/x"}, "Invalid resource name given (name=topics/x). Refer to "),
    ({"topic": "projects/elsewhere/topics/topic"}, "must be in the same project"),
]


@pytest.mark.parametrize(("options", "text"), BAD_FIELDS, ids=str)
def test_a_value_outside_its_limits_is_refused(world: World, topic: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        create(world, **options)
    assert text in error.value.message
    assert not re.search("[a-z][A-Z]|docs/", error.value.message), "fields are spelled as the protocol does"
    with pytest.raises(NotFound):
        show_subscription(world)


def test_dead_letters_go_to_a_topic_after_5_to_100_attempts(world: World, topic: str) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    too_small, too_large = (f"The value for max_delivery_attempts is too {size}" for size in ("small", "large"))
    for other, attempts, text in (*((letters, each, too_small) for each in (-1, 1, 4)), (letters, 101, too_large)):
        with pytest.raises(InvalidArgument) as error:
            create(world, dead_letter_policy={"dead_letter_topic": other, "max_delivery_attempts": attempts})
        assert error.value.message.startswith(text)


def test_a_topic_that_is_not_there_is_named(world: World, topic: str) -> None:
    absent = world.topic("absent")
    for options in ({"topic": absent}, {"dead_letter_policy": {"dead_letter_topic": absent}}):
        with pytest.raises(NotFound) as error:
            create(world, **options)
        assert error.value.message == "Resource not found (resource=absent)."


def test_a_detached_subscription_is_shown_so_and_gives_nothing(world: World, topic: str) -> None:
    create(world)
    other = world.subscription("other")
    world.subscriber.create_subscription(request={"name": other, "topic": topic})
    world.publisher.detach_subscription(request={"subscription": world.subscription()})
    assert show_subscription(world).detached
    assert list(world.publisher.list_topic_subscriptions(request={"topic": topic})) == [other]
    with pytest.raises(FailedPrecondition) as error:
        world.pull(world.subscription())
    assert error.value.message == f"Subscription {world.subscription()} is detached."
    world.subscriber.delete_subscription(request={"subscription": world.subscription()})
    with pytest.raises(NotFound):
        show_subscription(world)


def test_an_ordered_subscription_of_ams_is_shown_and_refuses_consumers_with_why(world: World, topic: str) -> None:
    world.http("PUT", "/subscriptions/subscription", {"topic": topic})
    assert show_subscription(world).topic == topic
    assert update_fields(world, ["labels"], labels={"a": "b"}) == show_subscription(world)
    with pytest.raises(InvalidArgument, match="An ordered subscription has labels and an ack deadline only"):
        update_fields(world, ["retry_policy"], retry_policy={})
    assert dict(show_subscription(world).labels) == {"a": "b"}
    calls = (
        lambda: world.pull(world.subscription()), lambda: world.acknowledge("1-2"), lambda: world.modify(0, "1-2"),
    )  # fmt: skip
    for each in calls:
        with pytest.raises(FailedPrecondition, match="ordered one of AMS.*AMS API"):
            each()
    with pytest.raises(GoogleAPICallError) as error:
        world.subscriber.subscribe(world.subscription(), print).result(PATIENCE_SECONDS)
    assert "ordered one of AMS" in str(error.value)


def test_what_one_api_makes_the_other_shows(world: World, topic: str) -> None:
    made = {"topic": topic, "type": "parallel", "enableMessageOrdering": True}
    world.http("PUT", "/subscriptions/subscription", made)
    assert show_subscription(world).enable_message_ordering
    assert update_fields(world, ["ack_deadline_seconds"], ack_deadline_seconds=33).ack_deadline_seconds == 33
    assert world.http("GET", "/subscriptions/subscription")["ackDeadlineSeconds"] == 33


ACCOUNT = "pusher@garden.iam.gserviceaccount.com"
ISSUER = "ams.example"
EMULATOR = "--pubsub-port", "0", "--pubsub-emulator"


@pytest.fixture(scope="module")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with run_receiver(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture
def receiver(running_receiver: Receiving) -> Receiving:
    running_receiver.forget()
    return running_receiver


def push_settings(receiver: Receiving, name: str = ISSUER) -> dict[str, str]:
    """Settings of a service that delivers to the receiver, and is known by this name."""
    return {"AMS_PUSH_CA_FILE": receiver.ca, "AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PROXY_HOSTNAME": name}


@pytest.fixture(scope="module")
def pushing_service(tmp_path_factory: pytest.TempPathFactory, running_receiver: Receiving) -> Iterator[LiveService]:
    data = tmp_path_factory.mktemp("pushing") / "data"
    with live_service(data, *EMULATOR, environment=push_settings(running_receiver)) as service:
        yield service


@pytest.fixture
def pushing_world(pushing_service: LiveService) -> Iterator[World]:
    with grpc.insecure_channel(pushing_service.pubsub) as channel:
        yield world_at(channel, pushing_service)


def test_an_emulator_delivers_by_http_to_this_machine_as_googles_does(world: World, publishing: Publishing) -> None:
    bodies: Queue[bytes] = Queue()
    url = publishing.answers("/in", lambda body: bodies.put(body) or b"")
    _, subscription = world.make_subscription(push_config={"push_endpoint": url.replace("127.0.0.1", "localhost")})

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
def test_a_delivery_is_wrapped_and_signed(pushing_world: World, pushing_service: LiveService, receiver: Receiving):
    endpoint = receiver.url("/ok/wrapped")
    token = {"service_account_email": ACCOUNT, "audience": "https://receiver.example"}
    push = {"push_endpoint": endpoint, "oidc_token": token, "attributes": {"x-goog-version": "v1"}}
    topic, subscription = pushing_world.make_subscription(push_config=push)
    shown = pushing_world.subscriber.get_subscription(request={"subscription": subscription}).push_config

    sent = pushing_world.publisher.publish(topic, b"a rose", color="red").result(PATIENCE_SECONDS)
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
    said = check_token(token_of(came), pushing_service, "https://receiver.example")
    assert (said["iss"], said["email"], said["email_verified"]) == (f"https://{ISSUER}", ACCOUNT, True)
    assert said["exp"] - said["iat"] == 3600
    assert (shown.push_endpoint, dict(shown.attributes)) == (endpoint, {"x-goog-version": "v1"})
    assert shown.oidc_token.service_account_email == ACCOUNT


def check_token(token: str, service: LiveService, audience: str) -> dict[str, object]:
    """Check a token as a receiver does that knows only the issuer's URL."""
    with httpx.Client(base_url=service.base_url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        told = client.get("/.well-known/openid-configuration").json()
        keys = client.get(told["jwks_uri"].removeprefix(told["issuer"])).json()
    known = {each.key_id: each for each in jwt.PyJWKSet.from_dict(keys).keys}
    key = known[jwt.get_unverified_header(token)["kid"]]
    return dict(jwt.decode(token, key, algorithms=["RS256"], audience=audience, issuer=told["issuer"]))


@pytest.mark.long
@pytest.mark.parametrize("flags", [[], ["--tls-self-signed"]])
def test_without_a_host_name_receivers_check_a_token_by_the_url_that_the_service_says_it_has(
    flags: list[str], tmp_path: Path, receiver: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (live_service(tmp_path / "data", *EMULATOR, *flags, environment=push_settings(receiver, "")) as service,
          grpc.insecure_channel(service.pubsub) as channel):  # fmt: skip
        place = world_at(channel, service)
        endpoint = receiver.url("/ok/checked")
        place.make_subscription(
            push_config={"push_endpoint": endpoint, "oidc_token": {"service_account_email": ACCOUNT}}
        )
        place.publish(b"a rose")
        token = token_of(receiver.wait(1, "/ok/checked")[0])
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(name, str(service.ca))
        senders = list(documented_checks(service.base_url, endpoint))

        assert [sender(token) for sender in senders] == [ACCOUNT] * 2
        for sender in documented_checks(service.base_url, "https://other.example"):
            with pytest.raises(jwt.InvalidAudienceError):
                sender(token)


def documented_checks(issuer: str, audience: str) -> Iterator[Callable[[str], str]]:
    text = (ROOT / "docs" / "reference" / "pubsub.md").read_text()
    for program in re.findall(r"^```python\n(.*?def sender.*?)^```$", text, re.MULTILINE | re.DOTALL):
        said: dict[str, Any] = {}
        exec(program.replace("https://ams.example", issuer).replace("https://me.example/in", audience), said)
        yield said["sender"]


@pytest.mark.long
def test_a_switch_between_push_and_pull_leaves_no_message_behind(pushing_world: World, receiver: Receiving) -> None:
    _, subscription = pushing_world.make_subscription(push_config={"push_endpoint": receiver.url("/status/500")})
    pushing_world.publish(b"a rose")
    receiver.wait(1, "/status/500")
    with pytest.raises(FailedPrecondition):
        pushing_world.pull()

    pushing_world.subscriber.modify_push_config(request={"subscription": subscription, "push_config": {}})
    shown = pushing_world.subscriber.get_subscription(request={"subscription": subscription})
    [pulled] = pushing_world.subscriber.pull(
        request={"subscription": subscription, "max_messages": 1}
    ).received_messages
    pushing_world.modify(0, pulled.ack_id)
    pushing_world.publish(b"a tulip")
    update = {"name": subscription, "push_config": {"push_endpoint": receiver.url("/ok/again")}}
    pushing_world.subscriber.update_subscription(
        request={"subscription": update, "update_mask": {"paths": ["push_config"]}}
    )

    assert not shown.push_config.push_endpoint
    came = [json.loads(each.body)["message"]["data"] for each in receiver.wait(2, "/ok/again")]
    assert {base64.b64decode(each) for each in came} == {b"a rose", b"a tulip"}


@pytest.mark.parametrize(("push", "options"), [
    ({"push_endpoint": "http://receiver.example"}, {}), ({"push_endpoint": "https://"}, {}),
    ({"push_endpoint": "https://user:s3cret@a.example"}, {}), ({"push_endpoint": "http://user:s3cret@[a"}, {}),
    ({"push_endpoint": "https://a.example", "attributes": {"x-goog-version": "v2"}}, {}),
    ({"push_endpoint": "https://a.example", "attributes": {"other": "v1"}}, {}),
    ({"push_endpoint": "https://a.example", "oidc_token": {"audience": "me"}}, {}),
    ({"oidc_token": {"service_account_email": ACCOUNT}}, {}),
    ({"push_endpoint": "https://a.example"}, {"enable_exactly_once_delivery": True}),
])  # fmt: skip
def test_a_bad_push_config_changes_nothing(world: World, push: dict[str, object], options: dict[str, object]) -> None:
    topic, subscription = world.make_subscription(**options)

    with pytest.raises(InvalidArgument) as creating:
        world.subscriber.create_subscription(
            request={"name": subscription + "-b", "topic": topic, "push_config": push, **options}
        )
    with pytest.raises(InvalidArgument) as changing:
        world.subscriber.modify_push_config(request={"subscription": subscription, "push_config": push})
    assert "s3cret" not in f"{creating.value} {changing.value}"

    listed = world.subscriber.list_subscriptions(request={"project": f"projects/{world.project}"})
    assert [each.name for each in listed] == [subscription]
    assert world.pull() == []


def test_push_has_neither_exactly_once_delivery_nor_the_order_of_ams(world: World) -> None:
    push = {"push_endpoint": "https://a.example"}
    topic, subscription = world.make_subscription(push_config=push)
    update = {"name": subscription, "enable_exactly_once_delivery": True}
    mask = {"paths": ["enable_exactly_once_delivery"]}
    with pytest.raises(InvalidArgument, match="pull subscriptions only"):
        world.subscriber.update_subscription(request={"subscription": update, "update_mask": mask})
    world.http("PUT", "/subscriptions/ordered", {"topic": topic})
    with pytest.raises(FailedPrecondition, match="ordered"):
        world.subscriber.modify_push_config(
            request={"subscription": world.subscription("ordered"), "push_config": push}
        )
