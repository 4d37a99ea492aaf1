"""What clients are told with exactly-once delivery when very many ids of a call count no more."""

import itertools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import Aborted, FailedPrecondition, InvalidArgument
from google.cloud.pubsub_v1 import types
from google.cloud.pubsub_v1.subscriber._protocol import dispatcher
from google.cloud.pubsub_v1.subscriber._protocol.requests import AckRequest, ModAckRequest
from grpc_status import rpc_status

from ams.pubsub.leasing import takes_long_errors
from tests.pubsub.conftest import World, world_at
from tests.support.service import live_service
from tests.support.waiting import wait_until

GetTopic: Any = types.GetTopicRequest.pb()
SECONDS = 60
MANY, LATE = 1000, 700
GOOD, BAD = "AcknowledgeStatus.SUCCESS", "AcknowledgeStatus.INVALID_ACK_ID"
Acknowledged = Callable[[Any, list[str], list["Future[Any]"]], None]


def acknowledged(client: Any, ids: list[str], futures: list["Future[Any]"]) -> None:
    """Have Google's client acknowledge ids in one call, as it does with those that come together."""
    asked: list[Any] = [AckRequest(each, 0, 0.0, None, future) for each, future in zip(ids, futures, strict=True)]
    client.ack(asked)


def extended(client: Any, ids: list[str], futures: list["Future[Any]"], seconds: int = 60) -> None:
    """Have it extend their leases."""
    asked: list[Any] = [ModAckRequest(each, seconds, future) for each, future in zip(ids, futures, strict=True)]
    client.modify_ack_deadline(asked)


given_back = partial(extended, seconds=0)
"""Has it give messages back as failed."""


@pytest.mark.parametrize("ask", [acknowledged, extended, given_back])
def test_googles_client_learns_of_each_of_a_thousand_ids_whether_it_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, ask: Acknowledged
) -> None:
    monkeypatch.setattr(dispatcher, "exponential_sleep_generator", lambda **_: itertools.repeat(0.01))
    _, subscription = world.made(enable_exactly_once_delivery=True)
    ids = leased(world)
    if ask is given_back:
        world.acknowledge(*ids[:LATE])
    else:
        world.modify(0, *ids[:LATE])
    told = told_to_client(world, subscription, ask, ids)
    assert Counter(told[:LATE]) == {BAD: LATE}
    assert Counter(told[LATE:]) == {GOOD: MANY - LATE}


@pytest.mark.parametrize("seconds", [0, 30])
def test_exactly_once_an_id_that_was_acknowledged_has_no_deadline_any_more(world: World, seconds: int) -> None:
    world.made(enable_exactly_once_delivery=True)
    world.publish(b"x")
    [each] = [each.ack_id for each in world.pulled()]
    world.acknowledge(each)
    with pytest.raises(InvalidArgument) as error:
        world.modify(seconds, each)
    assert error.value.details[0].metadata == {each: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    stream = world.opened()
    stream.send(modify_deadline_ack_ids=[each], modify_deadline_seconds=[seconds])
    confirmed = stream.next().modify_ack_deadline_confirmation
    assert (list(confirmed.ack_ids), list(confirmed.invalid_ack_ids)) == ([], [each])


def test_an_error_names_as_many_ids_as_a_plain_connection_takes(world: World) -> None:
    world.made(enable_exactly_once_delivery=True)
    ids = leased(world)
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
    world.made(enable_exactly_once_delivery=True)
    world.publish(b"x")
    ids = [each.ack_id for each in world.pulled()]
    world.modify(0, *ids)
    with pytest.raises(InvalidArgument) as error:
        world.acknowledge(*ids, *ids)
    assert set(error.value.details[0].metadata) == set(ids)


def test_the_library_for_java_is_told_of_all_at_once(world: World) -> None:
    options = [("grpc.primary_user_agent", "grpc-java-netty/1.70"), ("grpc.max_metadata_size", 4 * 2**20)]
    with grpc.insecure_channel(world.address, [*options, ("grpc.absolute_max_metadata_size", 4 * 2**20)]) as channel:
        java = world_at(channel, world.service)
        java.made(enable_exactly_once_delivery=True)
        ids = leased(java)
        java.modify(0, *ids[:LATE])
        with pytest.raises(Aborted) as error:
            java.acknowledge(*ids)
        assert set(error.value.details[0].metadata) == set(ids[:LATE])


@pytest.mark.long
def test_by_tls_all_are_named_at_once(tmp_path: Path) -> None:
    with live_service(tmp_path / "data", "--pubsub-port", "0", "--tls-self-signed", "--min-free-bytes", "0") as service:
        authority, token = service.ca.read_bytes(), grpc.access_token_call_credentials(service.token)
        credentials = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(authority), token)
        options = [("grpc.max_metadata_size", 4 * 2**20)]  # as the library has it for its own connections
        with grpc.secure_channel(service.pubsub, credentials, options) as channel:
            world = world_at(channel, service)
            service.ask("POST", f"/projects/{world.project}", {})
            world.made(enable_exactly_once_delivery=True)
            ids = leased(world)
            world.modify(0, *ids)
            with pytest.raises(InvalidArgument) as error:
                world.acknowledge(*ids)
    assert set(error.value.details[0].metadata) == set(ids)


@dataclass(frozen=True)
class Context:
    """A call that came by such a connection from such a client."""

    security: str
    agent: str
    name: str = "user-agent"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [self.security.encode()]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer grpc-java"), (self.name, self.agent))


@pytest.mark.parametrize(
    ("context", "takes"),
    [(Context("ssl", "grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)"), True),
     (Context("insecure", "grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)"), False),
     (Context("insecure", "grpc-go/1.71.0"), False), (Context("insecure", "grpc-java-netty/1.70.0"), True),
     (Context("insecure", "gcloud grpc-java-netty/1.70.0", "x-ams-user-agent"), True)],
)  # fmt: skip
def test_long_errors_are_for_connections_by_tls_and_for_java(context: Any, takes: bool) -> None:
    assert takes_long_errors(context) is takes


def told_to_client(world: World, subscription: str, ask: Acknowledged, ids: list[str]) -> list[str]:
    """Return what Google's client tells of each id that it asks for."""
    few = types.FlowControl(max_messages=1)
    streaming = world.subscriber.subscribe(subscription, lambda _: None, flow_control=few)
    try:
        futures: list[Future[Any]] = [Future() for _ in ids]
        ask(manager_of(streaming)._dispatcher, ids, futures)
        errors = [each.exception(SECONDS) for each in futures]
        answers = zip(errors, futures, strict=True)
        return [str(getattr(error, "error_code", "") or each.result()) for error, each in answers]
    finally:
        streaming.cancel()
        streaming.result(SECONDS)


def leased(world: World) -> list[str]:
    """Publish messages, and return the ids by which they are leased."""
    world.publish(*[b"x"] * MANY)
    found: list[str] = []
    while len(found) < MANY:
        found += [each.ack_id for each in world.pulled(most=MANY)]
    return found


def test_every_refusal_has_details_without_which_the_library_for_python_takes_it_for_success(world: World) -> None:
    _, subscription = world.made(enable_exactly_once_delivery=True)
    world.publisher.detach_subscription(request={"subscription": subscription})
    with pytest.raises(FailedPrecondition) as error:
        world.acknowledge("1-1.0.1.1.abcdef")
    status: Any = rpc_status.from_call(error.value.response)
    assert (status.code, status.message) == (9, f"Subscription {subscription} is detached.")


def test_what_is_said_of_a_very_long_name_is_short(world: World) -> None:
    name = "x" * 100_000
    code, text = world.refused("/google.pubsub.v1.Publisher/GetTopic", GetTopic(topic=name))
    assert (code, len(text)) == ("INVALID_ARGUMENT", 1000)


def manager_of(streaming: Any) -> Any:
    """Return what works for a subscriber, when it knows of exactly-once delivery."""
    manager: Any = vars(streaming)["_StreamingPullFuture__manager"]
    wait_until(manager._exactly_once_delivery_enabled)  # the first response says so
    return manager
