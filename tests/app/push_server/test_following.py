"""What a push server delivers: by leases, by the profile at a reference, through starts and failures of the service."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

import pytest

from ams.app.push_server import following
from ams.app.push_server.condition import NO_WORKER, OK, Condition
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

SOON = Backoff(0.1, 8.0)
HERE = Target(
    "/projects/p/subscriptions/told", "/projects/p/topics/t",
    PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True), 10,
)  # fmt: skip


async def until(true: Callable[[], bool], seconds: float = 10) -> None:
    """Return when this holds."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


class Followed:
    def __init__(self, url: str) -> None:
        self.table = Table()
        self.condition = Condition()
        self.client = AsyncClient(url, TOKEN, retry=None)
        self.follower = Follower(self.client, self.table, self.condition, random=random.Random(7))

    def names(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.table.targets)


@contextlib.asynccontextmanager
async def followed(url: str) -> AsyncIterator[Followed]:
    made = Followed(url)
    await made.follower.start(Supervisor())
    try:
        yield made
    finally:
        await made.follower.stop(1)
        await made.client.close()


@pytest.fixture
async def service() -> AsyncIterator[ReferenceAms]:
    async with reference_ams() as running:
        yield running


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following.ByProfile.__init__, "__defaults__", (0.1, 0.3))


async def test_at_a_reference_the_profile_says_what_is_delivered(service: ReferenceAms) -> None:
    path = service.add("a", deadline=30, base64Decode=True, maxMessages=5)
    service.add("pull", type="", pushEndpoint="")
    service.add("odd", type="carrier_pigeon")
    service.add("unverified", verified=False)
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])
        assert push.condition.text == OK

    target = push.table.targets.get(path) or Target(path, "", HERE.config, 0)
    assert service.asked[1][:2] == ("GET", "/v1/users/profile")
    assert push.table.stops == [1]
    assert target.path == path


async def test_a_target_of_a_reference_is_what_its_answer_says(service: ReferenceAms) -> None:
    path = service.add("a", deadline=30, base64Decode=True, maxMessages=5)
    async with followed(service.url) as push:
        await until(lambda: bool(push.table.targets))
        found = push.table.targets[path]

    config = PushConfig(
        "http_endpoint", endpoint="https://example.com/in", max_messages=5, header_type="autogen",
        header_value="secret", retry_policy="linear", retry_period=3000, verified=True, base64_decode=True,
    )  # fmt: skip
    assert found == Target(path, "/projects/p/topics/t", config, 30)


@pytest.mark.usefixtures("_often")
async def test_p3_what_is_missing_is_started_what_is_gone_stopped_what_changed_replaced(service: ReferenceAms) -> None:
    service.add("a")
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])
        b = service.add("b")
        await until(lambda: push.names() == ["a", "b"])
        service.add("b", pushEndpoint="https://example.com/other")
        await until(lambda: push.table.targets[b].config.endpoint == "https://example.com/other")
        service.listed.discard(b)
        await until(lambda: push.names() == ["a"])
        del service.subscriptions["/projects/p/subscriptions/a"]
        await until(lambda: push.names() == [])


@pytest.mark.usefixtures("_often")
async def test_p3_a_single_failure_is_tried_again(service: ReferenceAms) -> None:
    service.add("a")
    service.add("b")
    service.faults["/subscriptions/a"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")] * 2
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a", "b"])


@pytest.mark.usefixtures("_often")
async def test_what_is_told_counts_at_once_and_the_profile_after_a_while(service: ReferenceAms) -> None:
    service.add("a")
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])

        push.follower.activate(HERE)
        push.follower.deactivate("/projects/p/subscriptions/a")
        assert push.names() == ["told"]
        reads = service.count("/users/profile")
        await until(lambda: service.count("/users/profile") > reads)
        assert push.names() == ["told"]

        await until(lambda: push.names() == ["a"])


async def test_p2_a_start_without_the_service_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "UNREACHED", SOON)
    async with reference_ams() as first:
        port = int(first.url.rpartition(":")[2])
    async with followed(first.url) as push:
        await until(lambda: push.condition.text == NO_WORKER)
        async with reference_ams(port) as service:
            service.add("a")
            await until(lambda: push.names() == ["a"])
            assert push.condition.text == OK


async def test_a_token_that_is_nobodys_is_told(service: ReferenceAms) -> None:
    condition = Condition()
    async with AsyncClient(service.url, "wrong", retry=None) as client:
        follower = Follower(client, Table(), condition, random=random.Random(1))
        await follower.start(Supervisor())
        await until(lambda: condition.text == NO_WORKER)
        await follower.stop(1)


async def test_a_lease_says_what_is_delivered_and_heartbeats_say_how_it_goes(service: ReferenceAms) -> None:
    service.leases, service.leased = True, [service.lease("a"), service.lease("odd", type="carrier_pigeon")]
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])
        assert push.condition.text == OK
        [target] = push.table.targets.values()
        assert (target.id, target.topic_id, target.secrets, target.ack_deadline_seconds) == (
            "id-of-a", "topic", ("whsec_x",), 20,
        )  # fmt: skip

        push.table.changes = {SubscriptionId("id-of-a"): WorkerState(delivered=7)}
        await until(lambda: any(heartbeat["states"] for heartbeat in service.heartbeats))
        [state] = [heartbeat["states"]["id-of-a"] for heartbeat in service.heartbeats if heartbeat["states"]]
        assert state["delivered"] == 7
        await until(lambda: service.heartbeats[-1]["held"] == ["id-of-a"])

        google = {"wrapped": False, "writeMetadata": True, "countsAttempts": True, "serviceAccount": "a@b",
                  "identityToken": "eyJ"}  # fmt: skip
        service.leased = [{**service.lease("g"), "parallel": True, "google": google}]
        await until(lambda: push.names() == ["g"])
        [target] = push.table.targets.values()
        assert target.config.google == GoogleForm(is_wrapped=False, write_metadata=True, service_account="a@b")
        assert (target.counts_attempts, target.identity_token) == (True, "eyJ")

        service.leased = []
        await until(lambda: push.names() == [])

    last = service.heartbeats[-1]
    assert (last["held"], last["leaving"]) == ([], True)
    assert len({heartbeat["holder"] for heartbeat in service.heartbeats}) == 1
    assert service.count("/users/profile") == 0


async def test_states_that_did_not_arrive_are_told_again(service: ReferenceAms) -> None:
    service.leases, service.leased = True, [service.lease("a")]
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])
        service.faults["push:lease"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")]
        push.table.changes = {SubscriptionId("id-of-a"): WorkerState()}
        await until(lambda: any(heartbeat["states"] for heartbeat in service.heartbeats))


async def test_who_is_not_answered_stops_before_the_lease_ends(
    service: ReferenceAms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "_FINISH_SECONDS", 5.0)
    monkeypatch.setattr(holding, "_BACKOFF", SOON)
    service.leases, service.leased = True, [service.lease("a")]
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])
        service.faults["push:lease"] = [error(500, "Backend Error", "INTERNAL_SERVER_ERROR")] * 12
        await until(lambda: push.names() == [])
        [finished] = push.table.stops
        assert 4.0 < finished <= 5.0
        assert push.condition.text == NO_WORKER

        service.faults.clear()
        await until(lambda: push.names() == ["a"])


async def test_an_activation_with_leases_asks_at_once(service: ReferenceAms, monkeypatch: pytest.MonkeyPatch) -> None:
    service.leases = True
    async with followed(service.url) as push:
        await until(lambda: len(service.heartbeats) > 2)
        service.leased = [service.lease("a")]
        push.follower.activate(HERE)
        await until(lambda: push.names() == ["a"])
        assert push.follower.state(HERE.path) is None
        assert push.follower.state("/projects/p/subscriptions/a") == WorkerState()


async def test_a_service_that_knows_no_leases_any_more_is_followed_by_profile(service: ReferenceAms) -> None:
    service.leases, service.leased = True, [service.lease("a")]
    service.add("b")
    async with followed(service.url) as push:
        await until(lambda: push.names() == ["a"])
        service.leases = False
        await until(lambda: push.names() == ["b"])
