"""A service as a push server sees it: its delivery targets, and where messages come from."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ams.app.push_server import selection
from ams.app.push_server.selection import MAX_FAILURES, MIN_SUCCESSES, NO_WORKER_TEXT, OK, Condition, Follower
from ams.app.push_server.upstream import POLL_BACKOFF, SUBSCRIPTIONS_PER_WAIT, HttpUpstream, LongPoller, Poller, kind_of
from ams.client import AsyncClient
from ams.client import errors as client_errors
from ams.core.backoff import Backoff
from ams.core.messages import Fragment
from ams.core.names import SubscriptionId
from ams.core.push_config import GoogleForm, PushConfig
from ams.core.supervisor import Supervisor
from ams.push import lease_holder
from ams.push.upstream import Away, Gone, NotTaken, Pulled, Target, UpstreamError, UpstreamRefused, Verdict
from ams.wire.push import WorkerState
from tests.app.push_server.keepers import TargetTable
from tests.support.reference_ams import TOKEN, ReferenceAms, error, reference_ams
from tests.support.waiting import wait_until_async


@pytest.fixture
async def reference() -> AsyncIterator[ReferenceAms]:
    async with reference_ams() as running:
        yield running


SOON = Backoff(0.1, 8.0)
CONFIG = PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True)
HERE = Target("/projects/p/subscriptions/told", "/projects/p/topics/t", CONFIG, 10)


class FollowedService:
    def __init__(self, url: str) -> None:
        self.table = TargetTable()
        self.condition = Condition()
        self.client = AsyncClient(url, TOKEN, retry=None)
        self.follower = Follower(self.client, self.table, self.condition, random=random.Random(7))

    def names(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.table.targets)


@contextlib.asynccontextmanager
async def follow_service(url: str, *names: str) -> AsyncIterator[FollowedService]:
    """Follow a service; yields when these subscriptions are to be delivered."""
    made = FollowedService(url)
    await made.follower.start(Supervisor())
    try:
        if names:
            await wait_until_async(lambda: made.names() == [*names])
        yield made
    finally:
        await made.follower.stop(1)
        await made.client.close()


@pytest.fixture
def _frequent_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PROFILE_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(selection, "ACTIVATION_SECONDS", 0.3)


@pytest.mark.parametrize("leases", ["unknown", "forbidden"])
async def test_without_leases_the_profile_says_what_is_delivered(reference: ReferenceAms, leases: str) -> None:
    if leases == "forbidden":
        reference.faults["push:lease"] = [error(403, "Access to this resource is forbidden", "FORBIDDEN")]
    path = reference.add("a", deadline=30, base64Decode=True, maxMessages=5)
    reference.add("pull", type="", pushEndpoint="")
    reference.add("odd", type="carrier_pigeon")
    reference.add("unverified", verified=False)
    async with follow_service(reference.url, "a") as push:
        assert push.condition.text == OK
        found = push.table.targets[path]

    config = PushConfig(
        "http_endpoint", endpoint="https://example.com/in", max_messages=5, header_type="autogen",
        header_value="secret", retry_policy="linear", retry_period=3000, verified=True, base64_decode=True,
    )  # fmt: skip
    assert found == Target(path, "/projects/p/topics/t", config, 30)
    assert reference.asked[1][:2] == ("GET", "/v1/users/profile")
    assert push.table.stops == [1]


@pytest.mark.usefixtures("_frequent_polls")
async def test_p3_subscriptions_are_started_stopped_and_replaced_as_listed(reference: ReferenceAms) -> None:
    reference.add("a")
    async with follow_service(reference.url, "a") as push:
        b = reference.add("b")
        await wait_until_async(lambda: push.names() == ["a", "b"])
        reference.add("b", pushEndpoint="https://example.com/other")
        await wait_until_async(lambda: push.table.targets[b].config.endpoint == "https://example.com/other")
        reference.listed.discard(b)
        await wait_until_async(lambda: push.names() == ["a"])
        del reference.subscriptions["/projects/p/subscriptions/a"]
        await wait_until_async(lambda: push.names() == [])


@pytest.mark.usefixtures("_frequent_polls")
async def test_p3_a_single_failure_is_tried_again(reference: ReferenceAms) -> None:
    reference.add("a")
    reference.add("b")
    reference.faults["/subscriptions/a"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")] * 2
    async with follow_service(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a", "b"])


@pytest.mark.usefixtures("_frequent_polls")
async def test_what_is_told_counts_at_once_and_the_profile_after_a_while(reference: ReferenceAms) -> None:
    reference.add("a")
    async with follow_service(reference.url, "a") as push:
        push.follower.way.activate(HERE)
        push.follower.way.deactivate("/projects/p/subscriptions/a")
        assert push.names() == ["told"]
        reads = reference.count("/users/profile")
        await wait_until_async(lambda: reference.count("/users/profile") > reads)
        assert push.names() == ["told"]

        await wait_until_async(lambda: push.names() == ["a"])


async def test_p2_a_start_without_the_service_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "UNREACHED", SOON)
    async with reference_ams() as first:
        port = int(first.url.rpartition(":")[2])
    async with follow_service(first.url) as push:
        await wait_until_async(lambda: push.condition.text == NO_WORKER_TEXT)
        async with reference_ams(port) as reference:
            reference.add("a")
            await wait_until_async(lambda: push.names() == ["a"])
            assert push.condition.text == OK


async def test_a_lease_says_what_is_delivered_and_heartbeats_say_how_it_goes(reference: ReferenceAms) -> None:
    reference.leases, reference.leased = True, [reference.lease("a"), reference.lease("odd", type="carrier_pigeon")]
    async with follow_service(reference.url, "a") as push:
        assert push.condition.text == OK
        [target] = push.table.targets.values()
        assert (target.id, target.topic_id, target.secrets, target.ack_deadline_seconds) == (
            "id-of-a", "topic", ("whsec_x",), 20,
        )  # fmt: skip

        push.table.changes = {SubscriptionId("id-of-a"): WorkerState(delivered=7)}
        await wait_until_async(lambda: any(heartbeat["states"] for heartbeat in reference.heartbeats))
        [state] = [heartbeat["states"]["id-of-a"] for heartbeat in reference.heartbeats if heartbeat["states"]]
        assert state["delivered"] == 7
        await wait_until_async(lambda: reference.heartbeats[-1]["held"] == ["id-of-a"])

        google = {"wrapped": False, "writeMetadata": True, "countsAttempts": True, "serviceAccount": "a@b",
                  "identityToken": "eyJ"}  # fmt: skip
        reference.leased = [{**reference.lease("g"), "parallel": True, "google": google}]
        await wait_until_async(lambda: push.names() == ["g"])
        [target] = push.table.targets.values()
        assert target.config.google == GoogleForm(is_wrapped=False, write_metadata=True, service_account="a@b")
        assert (target.counts_attempts, target.identity_token) == (True, "eyJ")

        reference.leased = []
        await wait_until_async(lambda: push.names() == [])

    last = reference.heartbeats[-1]
    assert (last["held"], last["leaving"]) == ([], True)
    assert len({heartbeat["holder"] for heartbeat in reference.heartbeats}) == 1
    assert reference.count("/users/profile") == 0


async def test_states_that_did_not_arrive_are_told_again(reference: ReferenceAms) -> None:
    reference.leases, reference.leased = True, [reference.lease("a")]
    async with follow_service(reference.url, "a") as push:
        reference.faults["push:lease"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")]
        push.table.changes = {SubscriptionId("id-of-a"): WorkerState()}
        await wait_until_async(lambda: any(heartbeat["states"] for heartbeat in reference.heartbeats))


async def test_unanswered_it_stops_before_its_lease(reference: ReferenceAms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_holder, "_FINISH_SECONDS", 5.0)
    monkeypatch.setattr(lease_holder, "_BACKOFF", SOON)
    reference.leases, reference.leased = True, [reference.lease("a")]
    async with follow_service(reference.url, "a") as push:
        reference.faults["push:lease"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")] * 12
        await wait_until_async(lambda: push.names() == [])
        [finished] = push.table.stops
        assert 0 < finished <= 5.0
        assert push.condition.text == NO_WORKER_TEXT

        reference.faults.clear()
        await wait_until_async(lambda: push.names() == ["a"])


async def test_an_activation_with_leases_asks_at_once(reference: ReferenceAms, monkeypatch: pytest.MonkeyPatch) -> None:
    reference.leases = True
    async with follow_service(reference.url) as push:
        await wait_until_async(lambda: len(reference.heartbeats) > 2)
        reference.leased = [reference.lease("a")]
        push.follower.way.activate(HERE)
        await wait_until_async(lambda: push.names() == ["a"])
        assert push.table.state(HERE.path) is None
        assert push.table.state("/projects/p/subscriptions/a") == WorkerState()


async def test_a_service_that_knows_no_leases_any_more_is_followed_by_profile(reference: ReferenceAms) -> None:
    reference.leases, reference.leased = True, [reference.lease("a")]
    reference.add("b")
    async with follow_service(reference.url, "a") as push:
        reference.leases = False
        await wait_until_async(lambda: push.names() == ["b"])


def test_p26_a_service_that_is_away_for_long_is_told_and_one_failure_is_not() -> None:
    condition = Condition(OK)
    for _ in range(10):
        condition.note_failure()
        condition.note_success()
    for _ in range(MAX_FAILURES - 1):
        condition.note_failure()
    assert condition.is_ok
    condition.note_failure()
    assert condition.text == NO_WORKER_TEXT

    for _ in range(MIN_SUCCESSES - 1):
        condition.note_success()
    assert not condition.is_ok
    condition.note_success()
    assert condition.is_ok


def target(path: str, deadline: int = 10) -> Target:
    return Target(path, "/projects/p/topics/t", CONFIG, deadline, id=f"id-of-{path.rpartition('/')[2]}")


@contextlib.asynccontextmanager
async def open_upstream(reference: ReferenceAms) -> AsyncIterator[HttpUpstream]:
    async with AsyncClient(reference.url, TOKEN, retry=None) as client:
        waiting = LongPoller(client, random.Random(1), seconds=1)
        yield HttpUpstream(client, waiting)
        await waiting.close()


async def pull(upstream: HttpUpstream, of: Target, most: int = 10, size: int = 10**6) -> list[Pulled]:
    return list(await wait_until_async(lambda: upstream.pull(of, max_messages=most, max_bytes=size)))


@pytest.mark.parametrize("waits", [False, True])
async def test_messages_come_in_order_and_the_last_one_acknowledges_them(reference: ReferenceAms, waits: bool) -> None:
    reference.waits = waits
    path = reference.add("s")
    reference.ordering_key = 'bed "4"'
    reference.publish(path, "YQ==", "Yg==", "Yw==")
    async with open_upstream(reference) as upstream:
        first = await pull(upstream, target(path), 2)
        await upstream.acknowledge(target(path), first[-1])
        rest = await pull(upstream, target(path), 2)

    assert [message.offset for message in first + rest] == [0, 1, 2]
    fragment = Fragment(b'"orderingKey":"bed \\"4\\"","attributes":{"k":"v"},"data":"YQ=="')
    assert first[0] == Pulled(0, "0", "2026-01-01T00:00:00Z", fragment)
    assert reference.acked == {path: 2}


async def test_no_more_bytes_are_returned_than_fit_but_one_message_at_least(reference: ReferenceAms) -> None:
    path = reference.add("s")
    reference.publish(path, "a" * 100, "b" * 100, "c" * 100)
    async with open_upstream(reference) as upstream:
        assert len(await pull(upstream, target(path), size=300)) == 2
        assert len(await pull(upstream, target(path), size=1)) == 1


async def test_a_service_that_says_when_is_pulled_only_then(reference: ReferenceAms) -> None:
    reference.waits = True
    path = reference.add("s")
    async with open_upstream(reference) as upstream:
        waiting = asyncio.create_task(pull(upstream, target(path)))
        await wait_until_async(lambda: reference.count("push:wait"))
        assert reference.count(":pull") == 0

        reference.publish(path, "YQ==")
        [message] = await waiting
        await upstream.acknowledge(target(path), message)
        assert await upstream.pull(target(path), max_messages=10, max_bytes=1) == ()
        assert reference.count(":pull") == 1


async def test_many_idle_subscriptions_wait_in_few_requests(reference: ReferenceAms) -> None:
    reference.waits = True
    paths = [reference.add(f"s{number}") for number in range(3 * SUBSCRIPTIONS_PER_WAIT)]
    async with open_upstream(reference) as upstream:
        waiting = [asyncio.create_task(pull(upstream, target(path))) for path in paths]
        await wait_until_async(lambda: reference.count("push:wait") >= 3)
        assert reference.count("push:wait") <= 6

        reference.publish(paths[7], "YQ==")
        [message] = await waiting[7]
        assert message.offset == 0
        assert reference.count(":pull") == 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_service_that_cannot_say_when_is_asked_less_and_less_often(reference: ReferenceAms) -> None:
    path, clock = reference.add("s"), asyncio.get_running_loop().time
    async with open_upstream(reference) as upstream:
        began = clock()
        waiting = asyncio.create_task(pull(upstream, target(path)))
        await wait_until_async(lambda: reference.count(":pull") >= 4)
        took = clock() - began
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert reference.count("push:wait") == 1
    assert took >= 0.85 * sum(POLL_BACKOFF.nominal(number) for number in range(3))


@pytest.mark.parametrize(("answer", "kind"), [
    (error(404, "project doesn't exist", "NOT_FOUND"), Gone),
    (error(404, "Subscription doesn't exist", "NOT_FOUND"), Gone),
    (error(404, "Topic doesn't exist", "NOT_FOUND"), UpstreamRefused),
    (error(401, "Unauthorized", "UNAUTHORIZED"), UpstreamRefused),
    (error(403, "Access to this resource is forbidden", "FORBIDDEN"), UpstreamRefused),
    (error(409, "Push functionality is currently disabled", "CONFLICT"), UpstreamRefused),
    (error(409, "Subscription's topic doesn't exist", "CONFLICT"), UpstreamRefused),
    (error(409, "Message is not the next one of the subscription", "CONFLICT"), NotTaken),
    (error(400, "Invalid Pull Parameters Arguments", "INVALID_ARGUMENT"), UpstreamRefused),
    (error(500, "Backend Error", "INTERNAL_SERVER_ERROR"), Away), (error(503, "busy", "UNAVAILABLE"), Away),
    ((502, "<html>bad gateway"), Away), ((404, "404 page not found"), Away),
])  # fmt: skip
def test_p21_a_failed_pull_is_told_by_what_can_be_done_about_it(answer: tuple[int, str], kind: type[UpstreamError]):
    assert kind_of(client_errors.refusal(answer[0], answer[1].encode())) is kind
    assert kind_of(client_errors.Untrusted("x")) is UpstreamRefused


async def test_an_answer_that_is_none_is_told_without_the_token(reference: ReferenceAms) -> None:
    path = reference.add("s")
    reference.faults[":pull"] = [(200, "no JSON")]
    async with open_upstream(reference) as upstream:
        with pytest.raises(Away) as raised:
            await pull(upstream, target(path))

    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(("answer", "kind"), [
    (error(408, "ack timeout", "TIMEOUT"), NotTaken), (error(500, "no ack pending", "INTERNAL_SERVER_ERROR"), NotTaken),
    (error(500, "wrong ack", "INTERNAL_SERVER_ERROR"), NotTaken),
    (error(500, "Backend Error", "INTERNAL_SERVER_ERROR"), Away),
    (error(404, "Subscription doesn't exist", "NOT_FOUND"), Gone),
])  # fmt: skip
async def test_a_failed_ack_has_its_error(reference: ReferenceAms, answer: tuple[int, str], kind: type[UpstreamError]):
    path = reference.add("s")
    reference.publish(path, "YQ==")
    reference.faults[":acknowledge"] = [answer]
    async with open_upstream(reference) as upstream:
        [message] = await pull(upstream, target(path))
        with pytest.raises(kind) as raised:
            await upstream.acknowledge(target(path), message)

    said = (
        f"an error occurred while trying to acknowledge message with ackId {path[1:]}:0 from subscription {path} from"
    )
    assert str(raised.value).startswith(said)


async def test_a_service_that_is_not_there_is_away() -> None:
    async with reference_ams() as gone:
        path = gone.add("s")
    async with open_upstream(gone) as upstream:
        with pytest.raises(Away):
            await pull(upstream, target(path))
        with pytest.raises(Away):
            await upstream.dead_letter(target(path), Pulled(0, "0", "", b'"data":""'), Verdict("HTTP 422", 3, 422))  # type: ignore[arg-type]


def test_patience_is_the_deadline_and_never_nothing_and_endless_where_leases_are_extended() -> None:
    upstream = HttpUpstream(None, Poller(random.Random(1)))  # type: ignore[arg-type]  # asks nobody
    parallel = replace(target("s"), is_parallel=True)
    assert [upstream.patience(each) for each in (target("s", 600), target("s", 0), parallel)] == [600.0, 1.0, None]
