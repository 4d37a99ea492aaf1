"""What a push server delivers: by leases, by the profile at a reference, through starts and failures of the service."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from ams.app.push_server import following
from ams.app.push_server.condition import HITS, MISSES, NO_WORKER, OK, Condition
from ams.app.push_server.following import Follower
from ams.client import AsyncClient
from ams.core.backoff import Backoff
from ams.core.google_push import GoogleForm
from ams.core.names import SubscriptionId
from ams.core.push_config import PushConfig
from ams.core.supervisor import Supervisor
from ams.push import holding
from ams.push.upstream import Target
from ams.wire.push import WorkerState
from tests.app.push_server.keepers import Table
from tests.support.reference_ams import TOKEN, ReferenceAms, error, reference_ams
from tests.support.waiting import wait_until_async

SOON = Backoff(0.1, 8.0)
HERE = Target(
    "/projects/p/subscriptions/told", "/projects/p/topics/t",
    PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True), 10,
)  # fmt: skip


class Followed:
    def __init__(self, url: str, token: str) -> None:
        self.table = Table()
        self.condition = Condition()
        self.client = AsyncClient(url, token, retry=None)
        self.follower = Follower(self.client, self.table, self.condition, random=random.Random(7))

    def names(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.table.targets)


@contextlib.asynccontextmanager
async def followed(url: str, token: str = TOKEN) -> AsyncIterator[Followed]:
    made = Followed(url, token)
    await made.follower.start(Supervisor())
    try:
        yield made
    finally:
        await made.follower.stop(1)
        await made.client.close()


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following.ByProfile.__init__, "__defaults__", (0.1, 0.3))


@pytest.mark.parametrize("leases", ["unknown", "forbidden"])
async def test_where_there_are_no_leases_the_profile_says_what_is_delivered(
    reference: ReferenceAms, leases: str
) -> None:
    if leases == "forbidden":
        reference.faults["push:lease"] = [error(403, "Access to this resource is forbidden", "FORBIDDEN")]
    path = reference.add("a", deadline=30, base64Decode=True, maxMessages=5)
    reference.add("pull", type="", pushEndpoint="")
    reference.add("odd", type="carrier_pigeon")
    reference.add("unverified", verified=False)
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])
        assert push.condition.text == OK
        found = push.table.targets[path]

    config = PushConfig(
        "http_endpoint", endpoint="https://example.com/in", max_messages=5, header_type="autogen",
        header_value="secret", retry_policy="linear", retry_period=3000, verified=True, base64_decode=True,
    )  # fmt: skip
    assert found == Target(path, "/projects/p/topics/t", config, 30)
    assert reference.asked[1][:2] == ("GET", "/v1/users/profile")
    assert push.table.stops == [1]


@pytest.mark.usefixtures("_often")
async def test_p3_subscriptions_are_started_stopped_and_replaced_as_listed(reference: ReferenceAms) -> None:
    reference.add("a")
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])
        b = reference.add("b")
        await wait_until_async(lambda: push.names() == ["a", "b"])
        reference.add("b", pushEndpoint="https://example.com/other")
        await wait_until_async(lambda: push.table.targets[b].config.endpoint == "https://example.com/other")
        reference.listed.discard(b)
        await wait_until_async(lambda: push.names() == ["a"])
        del reference.subscriptions["/projects/p/subscriptions/a"]
        await wait_until_async(lambda: push.names() == [])


@pytest.mark.usefixtures("_often")
async def test_p3_a_single_failure_is_tried_again(reference: ReferenceAms) -> None:
    reference.add("a")
    reference.add("b")
    reference.faults["/subscriptions/a"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")] * 2
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a", "b"])


@pytest.mark.usefixtures("_often")
async def test_what_is_told_counts_at_once_and_the_profile_after_a_while(reference: ReferenceAms) -> None:
    reference.add("a")
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])

        push.follower.activate(HERE)
        push.follower.deactivate("/projects/p/subscriptions/a")
        assert push.names() == ["told"]
        reads = reference.count("/users/profile")
        await wait_until_async(lambda: reference.count("/users/profile") > reads)
        assert push.names() == ["told"]

        await wait_until_async(lambda: push.names() == ["a"])


async def test_p2_a_start_without_the_service_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "UNREACHED", SOON)
    async with reference_ams() as first:
        port = int(first.url.rpartition(":")[2])
    async with followed(first.url) as push:
        await wait_until_async(lambda: push.condition.text == NO_WORKER)
        async with reference_ams(port) as reference:
            reference.add("a")
            await wait_until_async(lambda: push.names() == ["a"])
            assert push.condition.text == OK


async def test_a_token_that_is_nobodys_is_told(reference: ReferenceAms) -> None:
    async with followed(reference.url, "wrong") as push:
        await wait_until_async(lambda: push.condition.text == NO_WORKER)


async def test_a_lease_says_what_is_delivered_and_heartbeats_say_how_it_goes(reference: ReferenceAms) -> None:
    reference.leases, reference.leased = True, [reference.lease("a"), reference.lease("odd", type="carrier_pigeon")]
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])
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
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])
        reference.faults["push:lease"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")]
        push.table.changes = {SubscriptionId("id-of-a"): WorkerState()}
        await wait_until_async(lambda: any(heartbeat["states"] for heartbeat in reference.heartbeats))


async def test_without_answers_it_stops_before_its_lease(
    reference: ReferenceAms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "_FINISH_SECONDS", 5.0)
    monkeypatch.setattr(holding, "_BACKOFF", SOON)
    reference.leases, reference.leased = True, [reference.lease("a")]
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])
        reference.faults["push:lease"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")] * 12
        await wait_until_async(lambda: push.names() == [])
        [finished] = push.table.stops
        assert 0 < finished <= 5.0
        assert push.condition.text == NO_WORKER

        reference.faults.clear()
        await wait_until_async(lambda: push.names() == ["a"])


async def test_an_activation_with_leases_asks_at_once(reference: ReferenceAms, monkeypatch: pytest.MonkeyPatch) -> None:
    reference.leases = True
    async with followed(reference.url) as push:
        await wait_until_async(lambda: len(reference.heartbeats) > 2)
        reference.leased = [reference.lease("a")]
        push.follower.activate(HERE)
        await wait_until_async(lambda: push.names() == ["a"])
        assert push.follower.state(HERE.path) is None
        assert push.follower.state("/projects/p/subscriptions/a") == WorkerState()


async def test_a_service_that_knows_no_leases_any_more_is_followed_by_profile(reference: ReferenceAms) -> None:
    reference.leases, reference.leased = True, [reference.lease("a")]
    reference.add("b")
    async with followed(reference.url) as push:
        await wait_until_async(lambda: push.names() == ["a"])
        reference.leases = False
        await wait_until_async(lambda: push.names() == ["b"])


def test_a_start_says_nothing_then_what_is_missing_then_that_it_works() -> None:
    condition = Condition()
    seen = [condition.text]
    for happens in (condition.missed, condition.reached):
        happens()
        seen.append(condition.text)
    assert seen == ["", NO_WORKER, OK]


def test_p26_a_service_that_is_away_for_long_is_told_and_one_failure_is_not() -> None:
    condition = Condition(OK)
    for _ in range(10):
        condition.missed()
        condition.reached()
    for _ in range(MISSES - 1):
        condition.missed()
    assert condition.is_ok
    condition.missed()
    assert condition.text == NO_WORKER

    for _ in range(HITS - 1):
        condition.reached()
    assert not condition.is_ok
    condition.reached()
    assert condition.is_ok


async def test_a_change_wakes_those_who_wait_for_it() -> None:
    condition = Condition()
    waiting = asyncio.create_task(condition.changed.wait())
    await asyncio.sleep(0)
    condition.reached()

    await waiting
