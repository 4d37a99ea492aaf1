"""A client that opens calls, streams or connections without end gets its share, and others are served."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from ams.http.limits import Bodies
from ams.outgoing.address_guard import networks
from ams.pubsub.bindings import BY_RPC
from ams.pubsub.calls import Calls, Rpc
from ams.pubsub.fields import TOPICS, read_name
from ams.service.delivery import UnreadAnswers
from ams.web.http2_relay import peer_name
from tests.pubsub.streams import SECONDS, STREAMING_PULL, Request
from tests.support.served import InProcessService, in_process_service
from tests.support.waiting import some_turns, wait_until_async

MAX_CONNECTIONS = 20  # limit of connections, calls and streams of this service
CALL_COUNT = 200
TOPIC, SUBSCRIPTION = "projects/P/topics/T", "projects/P/subscriptions/S"
NAME = read_name(TOPIC, TOPICS)
PULL = "/google.pubsub.v1.Subscriber/Pull"
PUBLISH = "/google.pubsub.v1.Publisher/Publish"
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
pb: Any = types
Metadata = tuple[tuple[str, str], ...]
Begin = Callable[[grpc.aio.Channel, Metadata], Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    data = tmp_path_factory.mktemp("places") / "ams-data"
    settings = {"max_connections": MAX_CONNECTIONS, "pull_wait": 8.0, "request_seconds": SECONDS}
    with in_process_service(
        data, host="127.0.0.1", pubsub_port=0, trusted_proxies="127.0.0.1/32", **settings
    ) as service:
        service.ask("POST", "/projects/P", {})
        for topic in ("T", "quiet"):
            service.ask("PUT", f"/projects/P/topics/{topic}")
        yield service


@pytest.fixture
def users(service: InProcessService) -> Iterator[tuple[str, str]]:
    """Two subscriptions, and tokens of two users who publish to one's topic and consume from both."""
    for name, topic in (("S", TOPIC), ("greedy", "projects/P/topics/quiet")):
        service.ask("PUT", f"/projects/P/subscriptions/{name}", {"topic": topic, "type": "parallel"})
    member = {"projects": [{"project": "P", "roles": ["publisher", "consumer"]}]}
    greedy, other = (service.ask("POST", f"/users/{name}", member)["token"] for name in ("greedy", "other"))
    for resource in ("topics/T", "subscriptions/S", "subscriptions/greedy"):
        service.ask("POST", f"/projects/P/{resource}:modifyAcl", {"authorized_users": ["greedy", "other"]})
    yield greedy, other
    for path in ("/projects/P/subscriptions/S", "/projects/P/subscriptions/greedy", "/users/greedy", "/users/other"):
        service.ask("DELETE", path)


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def stream(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    return channel.stream_stream(STREAMING_PULL)(metadata=metadata)


def silent_call(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    """Start a call without sending its request."""
    return channel.stream_unary(PUBLISH)(metadata=metadata)


def waiting_pull(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    request = pb.PullRequest.pb()(subscription="projects/P/subscriptions/greedy", max_messages=1).SerializeToString()
    return channel.unary_unary(PULL)(request, metadata=metadata)


@pytest.mark.parametrize("begin", [stream, silent_call, waiting_pull])
async def test_one_user_holds_up_no_other(begin: Begin, service: InProcessService, users: tuple[str, str]) -> None:
    greedy, other = users
    async with grpc.aio.insecure_channel(service.run.pubsub) as channel:
        with grpc.insecure_channel(service.run.pubsub) as plain:
            others = grpc.intercept_channel(plain, _TokenInterceptor(other))
            publisher = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=others))
            subscriber = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=others))
            came: list[bytes] = []

            def take(message: Any) -> None:
                came.append(message.data)
                message.ack()

            receiving = subscriber.subscribe(SUBSCRIPTION, take)
            await asyncio.to_thread(publisher.publish(TOPIC, b"before").result, SECONDS)
            await wait_until_async(lambda: came)
            calls = [begin(channel, bearer(greedy)) for _ in range(CALL_COUNT)]
            refused = await _wait_for_ends(calls, CALL_COUNT - MAX_CONNECTIONS // 2)
            await asyncio.to_thread(publisher.publish(TOPIC, b"after").result, SECONDS)
            await wait_until_async(lambda: len(came) == 2)
            assert not receiving.done()
            receiving.cancel()
            await asyncio.to_thread(receiving.result, SECONDS)

    assert {await each.code() for each in refused} == {UNAVAILABLE}
    whose = "calls of this user at a time", "streams of this user at a time", "calls of this address wait to be let in"
    assert {await each.details() for each in refused} <= {f"Too many {each}" for each in whose}


class _TokenInterceptor(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds a token to each call, as credentials do over TLS."""

    def __init__(self, token: str) -> None:
        self._metadata = bearer(token)

    def intercept_unary_unary(self, begin: Any, details: Any, request: Any) -> Any:
        return begin(self._add_token(details), request)

    def intercept_stream_stream(self, begin: Any, details: Any, requests: Any) -> Any:
        return begin(self._add_token(details), requests)

    def _add_token(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), *self._metadata))


async def _wait_for_ends(calls: list[Any], count: int) -> list[Any]:
    waiting = {asyncio.ensure_future(each.code()): each for each in calls}
    await wait_until_async(lambda: sum(each.done() for each in waiting) >= count, SECONDS)
    ended = [call for code, call in waiting.items() if code.done()]
    for each in waiting:
        each.cancel()
    return ended


async def test_a_connection_too_many_is_closed_and_others_go_on(service: InProcessService, users: tuple[str, str]):
    host, _, port = service.run.pubsub.rpartition(":")
    metadata = bearer(users[0])
    async with grpc.aio.insecure_channel(service.run.pubsub) as channel:
        opened = stream(channel, metadata)
        first = Request(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10).SerializeToString()
        await opened.write(first)
        await opened.read()
        with contextlib.ExitStack() as stack:
            for _ in range(MAX_CONNECTIONS - 1):
                stack.enter_context(socket.create_connection((host, int(port)), SECONDS))
            with socket.create_connection((host, int(port)), SECONDS) as late:
                assert (await asyncio.to_thread(late.recv, 4096)).startswith(b"HTTP/1.1 503 ")
            await opened.write(Request().SerializeToString())
            assert await opened.read()
        opened.cancel()


async def test_unread_answers_are_counted_until_their_client_leaves(service: InProcessService, users: tuple[str, str]):
    unread = service.run.service.deliverer.unread
    message = pb.PubsubMessage.pb()(data=b"x" * 1_000_000)
    request = pb.PublishRequest.pb()(topic=TOPIC, messages=[message] * 3).SerializeToString()
    pull = pb.PullRequest.pb()(subscription=SUBSCRIPTION, max_messages=100).SerializeToString()
    async with grpc.aio.insecure_channel(service.run.pubsub, options=[("grpc.http2.bdp_probe", 0)]) as channel:
        for _ in range(3):
            await channel.unary_unary(PUBLISH)(request, metadata=bearer(users[1]))
        pulls = [channel.unary_stream(PULL)(pull, metadata=bearer(users[0])) for _ in range(3)]
        # Each has two; each held one counts twice.
        await wait_until_async(lambda: unread.room("P") <= unread.capacity - 2 * 3 * 2_000_000)
        for each in pulls:
            each.cancel()
        await wait_until_async(lambda: unread.room("P") == unread.capacity)


# Before authentication


class SlowAuthenticator:
    """An authenticator that knows one token, and is slow with any other."""

    def __init__(self) -> None:
        self.going_on = asyncio.Event()
        self.admit = AsyncMock()
        self.know = AsyncMock()
        self._users = itertools.count()

    def cached_caller(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        return "user" if (b"x-api-key", b"known") in headers else None

    async def who(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str:
        await self.going_on.wait()
        return f"user-{next(self._users)}"


class CallStarter:
    """Starts calls of one method, from any address."""

    def __init__(self, door: SlowAuthenticator) -> None:
        auditor, bodies = MagicMock(), Bodies(2**20, 2**20, 5)
        auditor.turned_away = AsyncMock(side_effect=lambda error, scope: error)
        binding = BY_RPC["CreateTopic"]._replace(action="", about=lambda _: NAME)
        rpc = Rpc(binding, AsyncMock(return_value=pb.Topic.pb()()))
        limits: Any = {"most": 4, "seconds": 5, "proxies": networks("192.0.2.1", "trusted_proxies")}
        calls = Calls(door, auditor, bodies, lambda: b"1", MagicMock(), UnreadAnswers(1), **limits)
        self._handler: Any = calls.unary("S", rpc)

    async def begin(self, peer: tuple[str, int], *metadata: tuple[str, str]) -> str:
        context = MagicMock(abort=AsyncMock(side_effect=grpc.aio.AbortError), read=AsyncMock(return_value=b""))
        context.peer.return_value = "unix-abstract:" + peer_name(*peer, is_secure=True)
        context.invocation_metadata.return_value = metadata
        try:
            await self._handler.stream_unary(None, context)
        except grpc.aio.AbortError:
            return str(context.abort.call_args.args[0].name)
        return "OK"


@pytest.mark.parametrize(
    ("many", "other"),
    [([("198.51.100.7", 1)] * 3, ("198.51.100.8", 1)),  # two clients
     ([("192.0.2.1", 1)] * 3, ("192.0.2.1", 2))],  # two connections of a proxy that does not say whose they are
)  # fmt: skip
async def test_endless_logins_of_one_keep_no_other_out(many: list[tuple[str, int]], other: tuple[str, int]) -> None:
    door = SlowAuthenticator()
    asking = CallStarter(door)
    begun = [asyncio.create_task(asking.begin(each)) for each in many]
    while sum(each.done() for each in begun) < 1:
        await asyncio.sleep(0)
    assert [each.result() for each in begun if each.done()] == ["UNAVAILABLE"]
    another = asyncio.create_task(asking.begin(other))
    await some_turns()
    assert not another.done()
    known = asyncio.create_task(asking.begin(many[0], ("x-goog-api-key", "known")))
    assert await known == "OK"  # a token that is known waits for nothing
    door.going_on.set()
    assert await another == "OK"
    assert sorted([await each for each in begun]) == ["OK", "OK", "UNAVAILABLE"]
