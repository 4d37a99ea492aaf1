"""Messages published by Google's client and by the HTTP API, and their leases."""

import base64
import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import Aborted, FailedPrecondition, GoogleAPICallError, InvalidArgument
from google.cloud.pubsub_v1 import types
from google.cloud.pubsub_v1.publisher.exceptions import MessageTooLargeError
from google.cloud.pubsub_v1.subscriber._protocol import dispatcher
from google.cloud.pubsub_v1.subscriber._protocol.requests import AckRequest, ModAckRequest
from google.cloud.pubsub_v1.subscriber.message import Message
from grpc_status import rpc_status

from ams.core import messages
from ams.core.clock import Milliseconds
from ams.core.errors import TooLarge
from ams.core.messages import Stored
from ams.core.names import Offset
from ams.core.settings import Settings
from ams.pubsub.messages import messages_to_publish, received_messages
from ams.pubsub.requests import read, scope_of
from ams.pubsub.subscriber import takes_long_errors
from ams.service.parallel.pulls import LeaseBatch
from ams.web.http2_relay import peer_name
from tests.pubsub.conftest import World, world_at
from tests.pubsub.streams import open_stream
from tests.support.service import live_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

PUBLISH = "/google.pubsub.v1.Publisher/Publish"
PubsubMessage: Any = types.PubsubMessage.pb()
Request: Any = types.PublishRequest.pb()


def test_what_a_publisher_says_of_id_and_time_is_not_believed(world: World) -> None:
    topic, _ = world.make_subscription()
    own = PubsubMessage(data=b"x", message_id="99", publish_time={"seconds": 5})
    assert world.get_refusal(PUBLISH, Request(topic=topic, messages=[own])) == ("OK", "")
    came = world.pull()[0].message
    assert (came.message_id, came.publish_time.year > 1970) == ("0", True)


TRACING = ("traceparent", "tracestate", "OpenTelemetrySpanContext")
ALLOWED_MESSAGES: dict[str, list[dict[str, Any]]] = {
    "attributes of tracing": [{"attributes": {f"googclient_{each}": "v" for each in TRACING}}],
    "only an attribute": [{"attributes": {"k": ""}}],
    "100 attributes": [{"attributes": {f"k{n}": "v" for n in range(100)}}],
    "the longest attribute": [{"attributes": {"k" * 256: "v" * 1024}}],
    "the longest key": [{"data": b"x", "ordering_key": "k" * 1024}], "1,000 messages": [{"data": b"x"}] * 1000,
    "any bytes": [{"data": bytes(range(256))}],
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED_MESSAGES)
def test_what_is_within_the_limits_comes_as_it_was(world: World, name: str) -> None:
    topic, _ = world.make_subscription()
    request = Request(topic=topic, messages=[PubsubMessage(**each) for each in ALLOWED_MESSAGES[name]])
    assert world.get_refusal(PUBLISH, request) == ("OK", "")
    came = [each.message for each in world.pull(most=1000)]
    wanted = [(e.get("data", b""), e.get("attributes", {}), e.get("ordering_key", "")) for e in ALLOWED_MESSAGES[name]]
    assert [(each.data, dict(each.attributes), each.ordering_key) for each in came] == wanted


TOO_MANY = "The value for message_count is too large. You passed 1001 in the request, but the maximum value is 1000."
REFUSED_MESSAGES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no message": ([], "The value for message_count is too small."),
    "1,001 messages": ([{"data": b"x"}] * 1001, TOO_MANY),
    "several keys": ([{"data": b"x", "ordering_key": "a"}, {"data": b"x"}], "all messages must have no ordering key"),
    "an empty message": ([{"data": b"x"}, {}], "neither data nor attributes"),
    "101 attributes": ([{"attributes": {f"k{n}": "v" for n in range(101)}}], "too many attributes"),
    "a long attribute key": ([{"attributes": {"ü" * 129: "v"}}], "An attribute key is too long: it has 258 bytes"),
    "an empty attribute key": ([{"attributes": {"": "v"}}], "An attribute has an empty key"),
    "a long attribute": ([{"attributes": {"k": "ü" * 513}}], "An attribute value is too long: it has 1026 bytes"),
    **{
        f"the reserved attribute {each}": ([{"attributes": {each: "v"}}], f"The attribute key {each} is reserved")
        for each in ("goog-x", "GoogX", "GOOG", "googclient_deliveryattempt", "googclient_x", "Googclient_traceparent")
    },
    "a long key": ([{"data": b"x", "ordering_key": "ü" * 513}], "The ordering key is too long"),
    "20 MB": ([{"data": b"x" * 20_000_000}], "the maximum value is 20000000 (setting pubsub_max_message_bytes)."),
}


_LARGE_MESSAGE_MARK = pytest.mark.embedded("on Kafka no message has more than 10 MB")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=_LARGE_MESSAGE_MARK) if each == "20 MB" else each for each in REFUSED_MESSAGES]
)
def test_what_is_outside_the_limits_is_refused_and_nothing_is_stored(world: World, name: str) -> None:
    topic, _ = world.make_subscription()
    messages, text = REFUSED_MESSAGES[name]
    request = Request(topic=topic, messages=[PubsubMessage(**each) for each in messages])
    code, said = world.get_refusal(PUBLISH, request)
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert world.pull() == []


@pytest.mark.parametrize(("own", "most"), [
    ({}, 10_000_000), ({"pubsub_emulator": True}, 20_000_000), ({"pubsub_max_message_bytes": 7_000}, 7_000),
    ({"pubsub_emulator": True, "log": "kafka", "kafka_servers": "k:1"}, 10_000_000),
])  # fmt: skip
def test_a_request_may_have_10_mb_and_of_an_emulator_20(own: dict[str, Any], most: int) -> None:
    settings = Settings(pubsub_port=0, **own)
    assert [line for is_so, line in settings.mistakes() if is_so] == []
    request = Request(topic="t", messages=[PubsubMessage(data=b"x" * (most - 20))])
    assert len(messages_to_publish(request, settings.google_message_bytes)) == 1
    request.messages[0].data += b"x" * 20
    said = f"You passed {request.ByteSize()} in the request, but the maximum value is {most} "
    with pytest.raises(TooLarge, match=re.escape(said)):
        messages_to_publish(request, settings.google_message_bytes)


def test_another_request_may_have_10_mib() -> None:
    with pytest.raises(TooLarge, match=r"exceeds the limit: 10485760 bytes\. You passed 10485761 "):
        read(types.Topic.pb(), b"x" * 10_485_761)


def test_a_request_of_20_mib_is_ended_before_it_is_read(world: World) -> None:
    topic, _ = world.make_subscription()
    request = Request(topic=topic, messages=[PubsubMessage(data=b"x" * (20 * 2**20))])
    assert world.get_refusal(PUBLISH, request)[0] == "RESOURCE_EXHAUSTED"
    with pytest.raises(MessageTooLargeError):  # Google's client does not even send it
        world.publisher.publish(topic, b"x" * (20 * 2**20))
    assert world.pull() == []


def test_a_message_of_9_mb_is_stored_and_received(world: World) -> None:
    topic, subscription = world.make_subscription()
    data = bytes(range(250)) * 36_000
    world.publisher.publish(topic, data).result(PATIENCE_SECONDS)
    with grpc.insecure_channel(world.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        stream = open_stream(channel, subscription)
        assert stream.messages(1)[0].message.data == data
        stream.call.cancel()


def test_a_message_of_the_http_api_is_received(world: World) -> None:
    world.make_subscription(enable_message_ordering=True)
    messages_to_publish = [
        {"data": base64.b64encode(b"\x00\xff").decode(), "attributes": {"k": "v", "google": "x"}, "orderingKey": "o"},
        {"data": "this is no base64!"}, {"data": "", "attributes": {"k": ""}},
    ]  # fmt: skip
    said = world.http("POST", "/topics/topic:publish", {"messages": messages_to_publish})
    came = {each.message.message_id: each.message for each in world.pull()}
    assert sorted(came) == sorted(said["messageIds"])
    first, second, third = (came[each] for each in said["messageIds"])
    assert (first.data, dict(first.attributes), first.ordering_key) == (b"\x00\xff", {"k": "v", "google": "x"}, "o")
    assert second.data == b"this is no base64!"
    assert third.data == b""


def test_a_message_of_this_api_is_pulled_by_the_http_api(world: World) -> None:
    topic = world.topic()
    world.publisher.create_topic(request={"name": topic})
    world.http("PUT", "/subscriptions/ordered", {"topic": f"projects/{world.project}/topics/topic"})
    world.publish(b"\x00\xff", ordering_key="o", k="v")
    came = world.http("POST", "/subscriptions/ordered:pull", {"maxMessages": "10"})["receivedMessages"]
    assert [each["message"]["data"] for each in came] == [base64.b64encode(b"\x00\xff").decode()]
    assert came[0]["message"]["attributes"] == {"k": "v"}
    assert came[0]["orderingKey"] == "o"


@contextlib.contextmanager
def consume_messages(world: World, act: Callable[[Message], object] = Message.ack) -> Iterator[list[Message]]:
    """Consume until the block ends; yields the messages of callbacks, each of which acts first."""
    came: list[Message] = []

    def take(message: Message) -> None:
        act(message)
        came.append(message)

    future = world.subscriber.subscribe(world.subscription(), take)
    try:
        yield came
    finally:
        future.cancel()
        future.result(PATIENCE_SECONDS)


def test_a_nack_brings_its_key_again_in_order_and_no_other(world: World) -> None:
    topic, _ = world.make_subscription(enable_message_ordering=True)
    for each in [world.publisher.publish(topic, b"%d" % n, ordering_key=f"key-{n % 2}") for n in range(40)]:
        each.result(PATIENCE_SECONDS)
    order: dict[str, list[int]] = {"key-0": [], "key-1": []}

    def act(message: Message) -> None:
        order[message.ordering_key].append(int(message.data))
        (message.nack if order["key-0"] == [0, 2, 4, 6] and message.data == b"6" else message.ack)()

    with consume_messages(world, act):
        wait_until(lambda: world.http("GET", "/subscriptions/subscription:offsets")["current"] == 40)
    again = order["key-0"].index(6, 4)
    assert order["key-0"][:again] == [*range(0, 2 * again, 2)]
    assert order["key-0"][again:] == [*range(6, 40, 2)]
    assert order["key-1"] == [*range(1, 40, 2)]


def test_a_dead_letter_may_come_again_from_the_subscriptions_own_topic(world: World) -> None:
    world.make_backlog(b"bad", dead_letter_policy={"dead_letter_topic": world.topic(), "max_delivery_attempts": 5})
    for attempt in [*range(1, 6), 1]:
        (came,) = wait_until(world.pull)
        assert (came.message.data, came.delivery_attempt) == (b"bad", attempt)
        world.modify(0, came.ack_id)
    assert came.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert came.message.message_id == "1"


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(world: World) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    world.make_subscription(dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5})
    world.subscriber.create_subscription(request={"name": world.subscription("letters"), "topic": letters})
    world.publish(b"poison", kind="bad")
    attempts: list[int] = []

    def act(message: Message) -> None:
        attempts.append(message.delivery_attempt)
        message.nack()

    with consume_messages(world, act):
        letter = wait_until(lambda: world.pull(world.subscription("letters")))
    assert attempts == [1, 2, 3, 4, 5]
    assert letter[0].message.data == b"poison"
    attributes = dict(letter[0].message.attributes)
    messages_to_publish = attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", messages_to_publish)
    assert {name: value for name, value in attributes.items() if not name.startswith("deadLetter")} == {
        "kind": "bad", "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "subscription",
        "CloudPubSubDeadLetterSourceSubscriptionProject": world.project,
    }  # fmt: skip


SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
Acknowledge: Any = types.AcknowledgeRequest.pb()
Modify: Any = types.ModifyAckDeadlineRequest.pb()
Pull: Any = types.PullRequest.pb()


def test_each_message_is_acknowledged_by_itself_and_in_any_order(world: World) -> None:
    world.make_backlog(b"0", b"1", b"2")
    ids = {each.message.data: each.ack_id for each in world.pull()}
    world.acknowledge(ids[b"2"], ids[b"0"], ids[b"0"])
    world.modify(0, ids[b"1"], ids[b"2"])
    again = world.pull()
    assert [each.message.data for each in again] == [b"1"]
    assert again[0].ack_id != ids[b"1"]


def test_a_pull_that_was_given_up_takes_nothing(world: World) -> None:
    _, subscription = world.make_subscription()
    with pytest.raises(GoogleAPICallError):
        world.subscriber.pull(subscription=subscription, max_messages=5, timeout=0.2, retry=None)
    world.publish(b"x")
    assert [each.message.data for each in world.pull()] == [b"x"]


def test_an_answer_is_small_enough_for_all_clients(world: World) -> None:
    world.make_backlog(*[b"%d" % n * 700_000 for n in range(9)])
    found: list[bytes] = []
    while some := world.pull():
        assert sum(len(each.message.data) for each in some) < 4 * 2**20
        found += [each.message.data for each in some]
    assert len(set(found)) == 9


NO_ID = "You have not specified an ack ID in the request."
BAD_DEADLINE = "Invalid ack deadline given (ack_deadline={}). The ack deadline must be between 0 and 600 seconds."
BAD_COUNT = "You have passed an invalid argument to the service (argument=max_messages)."
KINDS = {"Acknowledge": Acknowledge, "ModifyAckDeadline": Modify, "Pull": Pull}


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize(("method", "fields", "text"), [
    ("Acknowledge", {}, NO_ID), ("ModifyAckDeadline", {"ack_deadline_seconds": 10}, NO_ID),
    ("Acknowledge", {"ack_ids": ["x" * 600_000]}, "The request is too large: at most 524288 bytes"),
    ("ModifyAckDeadline", {"ack_ids": ["1-1"], "ack_deadline_seconds": 601}, BAD_DEADLINE.format(601)),
    ("ModifyAckDeadline", {"ack_ids": ["1-1"], "ack_deadline_seconds": -1}, BAD_DEADLINE.format(-1)),
    ("Pull", {"max_messages": 0}, BAD_COUNT), ("Pull", {"max_messages": -1}, BAD_COUNT),
])  # fmt: skip
def test_a_bad_request_is_refused(world: World, exactly: bool, method: str, fields: dict[str, Any], text: str) -> None:
    _, subscription = world.make_subscription(enable_exactly_once_delivery=exactly)
    code, said = world.get_refusal(SUBSCRIBER + method, KINDS[method](subscription=subscription, **fields))
    assert (code, text in said) == ("INVALID_ARGUMENT", True), said


def test_one_bad_id_refuses_the_whole_request_and_an_id_has_one_spelling(world: World) -> None:
    world.make_backlog(b"x")
    good = world.pull()[0].ack_id
    offset, hand_out = good.split("-")
    misspelled = [f"00{offset}-{hand_out}", f"{offset}-0{hand_out}", f"{offset}-{hand_out.replace('.', '.0', 1)}"]
    for bad in ("", "x", "1", "1-", "-1", "1-2-3", "projects/P/subscriptions/S:1", "9" * 400, *misspelled):
        for each in (partial(world.acknowledge, good, bad), partial(world.modify, 0, good, bad)):
            with pytest.raises(InvalidArgument) as error:
                each()
            assert error.value.message.startswith("You have passed an invalid ack ID to the service ")
    world.modify(0, good)
    assert len(world.pull()) == 1


def position(world: World) -> int:
    """Return the first offset that is not acknowledged."""
    found: int = world.http("GET", "/subscriptions/subscription:offsets")["current"]
    return found


def never_given(good: str) -> list[str]:
    """Return well-formed ids that were never given: of another offset, hand-out, epoch and subscription."""
    offset, _, hand_out = good.partition("-")
    attempt, epoch, run, number, identity = hand_out.split(".")
    return [
        f"99999-{hand_out}", f"{offset}-{attempt}.{epoch}.{run}.999.{identity}",
        f"{offset}-{attempt}.999.{run}.{number}.{identity}", f"{offset}-{attempt}.{epoch}.{run}.{number}.000000",
    ]  # fmt: skip


@pytest.mark.parametrize("exactly_once", [False, True])
def test_an_unknown_id_is_named_with_exactly_once_delivery_and_else_ignored(world: World, exactly_once: bool) -> None:
    world.make_backlog(b"0", b"1", enable_exactly_once_delivery=exactly_once)
    first, second = (each.ack_id for each in world.pull())
    bad = never_given(first)
    for ask in (lambda: world.modify(0, bad[0], second, *bad[1:]), lambda: world.acknowledge(bad[0], first, *bad[1:])):
        with pytest.raises(Aborted) if exactly_once else contextlib.nullcontext() as error:
            ask()
        if exactly_once:
            assert dict(error.value.details[0].metadata) == dict.fromkeys(bad, "PERMANENT_FAILURE_INVALID_ACK_ID")
    assert [each.message.data for each in world.pull()] == [b"1"]
    assert position(world) == 1


GetTopic: Any = types.GetTopicRequest.pb()
SECONDS = 60
MANY, LATE = 1000, 700
GOOD, BAD = "AcknowledgeStatus.SUCCESS", "AcknowledgeStatus.INVALID_ACK_ID"
Acknowledged = Callable[[Any, list[str], list["Future[Any]"]], None]


def acknowledge_ids(client: Any, ids: list[str], futures: list["Future[Any]"]) -> None:
    asked: list[Any] = [AckRequest(each, 0, 0.0, None, future) for each, future in zip(ids, futures, strict=True)]
    client.ack(asked)


def extend_ids(client: Any, ids: list[str], futures: list["Future[Any]"], seconds: int = 60) -> None:
    asked: list[Any] = [ModAckRequest(each, seconds, future) for each, future in zip(ids, futures, strict=True)]
    client.modify_ack_deadline(asked)


given_back = partial(extend_ids, seconds=0)  # makes it give messages back as failed


@pytest.mark.parametrize("ask", [acknowledge_ids, extend_ids, given_back])
def test_googles_client_learns_of_each_id(world: World, monkeypatch: pytest.MonkeyPatch, ask: Acknowledged) -> None:
    monkeypatch.setattr(dispatcher, "exponential_sleep_generator", lambda **_: itertools.repeat(0.01))
    ids = lease_messages(world)
    if ask is given_back:
        world.acknowledge(*ids[:LATE])
    else:
        world.modify(0, *ids[:LATE])
    told = told_to_client(world, world.subscription(), ask, ids)
    assert Counter(told[:LATE]) == {BAD: LATE}
    assert Counter(told[LATE:]) == {GOOD: MANY - LATE}


@pytest.mark.parametrize("seconds", [0, 30])
def test_exactly_once_an_id_that_was_acknowledged_has_no_deadline_any_more(world: World, seconds: int) -> None:
    world.make_backlog(b"x", enable_exactly_once_delivery=True)
    [each] = [each.ack_id for each in world.pull()]
    world.acknowledge(each)
    with pytest.raises(InvalidArgument) as error:
        world.modify(seconds, each)
    assert error.value.details[0].metadata == {each: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    stream = world.open_stream()
    stream.send(modify_deadline_ack_ids=[each], modify_deadline_seconds=[seconds])
    confirmed = stream.next().modify_ack_deadline_confirmation
    assert (list(confirmed.ack_ids), list(confirmed.invalid_ack_ids)) == ([], [each])


def test_an_error_names_as_many_ids_as_a_plain_connection_takes(world: World) -> None:
    ids = lease_messages(world)
    world.modify(0, *ids[:LATE])
    left, named = set(ids), set[str]()
    while named != set(ids[:LATE]):
        with pytest.raises(Aborted) as error:
            world.acknowledge(*sorted(left))
        some = set(error.value.details[0].metadata)
        assert len(some) > 50 or left - some == set(ids[LATE:])
        named, left = named | some, left - some
    world.acknowledge(*sorted(left))
    assert left == set(ids[LATE:])


def test_a_call_of_which_every_id_counts_no_more_is_not_asked_again(world: World) -> None:
    world.make_backlog(b"x", enable_exactly_once_delivery=True)
    ids = [each.ack_id for each in world.pull()]
    world.modify(0, *ids)
    with pytest.raises(InvalidArgument) as error:
        world.acknowledge(*ids, *ids)
    assert set(error.value.details[0].metadata) == set(ids)


@pytest.mark.long
def test_by_tls_all_are_named_at_once(tmp_path: Path) -> None:
    with live_service(tmp_path / "data", "--pubsub-port", "0", "--tls-self-signed", "--min-free-bytes", "0") as service:
        authority, token = service.ca.read_bytes(), grpc.access_token_call_credentials(service.token)
        credentials = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(authority), token)
        options = [("grpc.max_metadata_size", 4 * 2**20)]  # as the library sets it for its own connections
        with grpc.secure_channel(service.pubsub, credentials, options) as channel:
            world = world_at(channel, service)
            service.ask("POST", f"/projects/{world.project}", {})
            ids = lease_messages(world)
            world.modify(0, *ids)
            with pytest.raises(InvalidArgument) as error:
                world.acknowledge(*ids)
    assert set(error.value.details[0].metadata) == set(ids)


@dataclass(frozen=True)
class Context:
    """A call on such a connection from such a client."""

    is_secure: bool
    agent: str
    name: str = "user-agent"

    def peer(self) -> str:
        return peer_name("192.0.2.5", 4711, is_secure=self.is_secure)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer grpc-java"), (self.name, self.agent))


@pytest.mark.parametrize(("context", "takes"), [
    (Context(True, "grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)"), True),
    (Context(False, "grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)"), False),
    (Context(False, "grpc-go/1.71.0"), False), (Context(False, "grpc-java-netty/1.70.0"), True),
    (Context(False, "gcloud grpc-java-netty/1.70.0", "x-ams-user-agent"), True),
])  # fmt: skip
def test_long_errors_are_for_connections_by_tls_and_for_java(context: Any, takes: bool) -> None:
    assert takes_long_errors(scope_of(context, "", ())) is takes


def told_to_client(world: World, subscription: str, ask: Acknowledged, ids: list[str]) -> list[str]:
    """Return the result that Google's client reports for each id."""
    few = types.FlowControl(max_messages=1)
    streaming = world.subscriber.subscribe(subscription, lambda _: None, flow_control=few)
    try:
        futures: list[Future[Any]] = [Future() for _ in ids]
        manager: Any = vars(streaming)["_StreamingPullFuture__manager"]
        wait_until(manager._exactly_once_delivery_enabled)  # the first response says so
        ask(manager._dispatcher, ids, futures)
        errors = [each.exception(SECONDS) for each in futures]
        answers = zip(errors, futures, strict=True)
        return [str(getattr(error, "error_code", "") or each.result()) for error, each in answers]
    finally:
        streaming.cancel()
        streaming.result(SECONDS)


def lease_messages(world: World) -> list[str]:
    """Return ids of so many messages of a subscription with exactly-once delivery."""
    world.make_backlog(*[b"x"] * MANY, enable_exactly_once_delivery=True)
    found: list[str] = []
    while len(found) < MANY:
        found += [each.ack_id for each in world.pull(most=MANY)]
    return found


def test_every_refusal_has_details_without_which_the_library_for_python_takes_it_for_success(world: World) -> None:
    _, subscription = world.make_subscription(enable_exactly_once_delivery=True)
    world.publisher.detach_subscription(request={"subscription": subscription})
    with pytest.raises(FailedPrecondition) as error:
        world.acknowledge("1-1.0.1.1.abcdef")
    status: Any = rpc_status.from_call(error.value.response)
    assert (status.code, status.message) == (9, f"Subscription {subscription} is detached.")


def test_what_is_said_of_a_very_long_name_is_short(world: World) -> None:
    name = "x" * 100_000
    code, text = world.get_refusal("/google.pubsub.v1.Publisher/GetTopic", GetTopic(topic=name))
    assert (code, len(text)) == ("INVALID_ARGUMENT", 1000)


def test_messages_of_an_answer_are_in_the_order_in_which_they_were_leased() -> None:
    stored = [Stored(Offset(each), Milliseconds(0), messages.message("aGk=", {}).fragment) for each in range(5)]

    found = received_messages([LeaseBatch("1.a", 1, stored[:3]), LeaseBatch("2.b", 2, stored[3:])], with_attempt=True)

    assert [each.ack_id for each in found] == ["0-1.a", "1-1.a", "2-1.a", "3-2.b", "4-2.b"]
