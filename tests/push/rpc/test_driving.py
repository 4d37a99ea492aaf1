"""Driving a push server: it delivers what is wanted after any failure on either side (P3, P28, P31)."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import grpc
import pytest

from ams.core.errors import RegistryUnavailable
from ams.core.push_config import PushConfig
from ams.core.supervisor import Supervisor
from ams.push.rpc.channel import PushServerAddress
from ams.push.rpc.client import GrpcPushServer, Outcome
from ams.push.rpc.driving import AT_ONCE, DrivenPushServer, Driving
from ams.push.upstream import Target
from tests.support.reference_push_server import ReferencePushServer, reference_push_server
from tests.support.waiting import wait_until_async

CONFIG = PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True)


def target(name: str, config: PushConfig = CONFIG) -> Target:
    return Target(f"/projects/p/subscriptions/{name}", "/projects/p/topics/t", config, 10)


@dataclass
class Wanted:
    targets: list[Target] = field(default_factory=list)
    fails: bool = False

    async def __call__(self) -> Sequence[Target]:
        if self.fails:
            raise RegistryUnavailable
        return list(self.targets)


@dataclass
class Drive:
    server: ReferencePushServer
    wanted: Wanted
    driving: Driving

    async def follow(self, *targets: Target) -> bool:
        self.wanted.targets = list(targets)
        return await self.driving.round()

    def active(self) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.server.active)


@pytest.fixture
async def drive() -> AsyncIterator[Drive]:
    async with reference_push_server() as server:
        client = GrpcPushServer(PushServerAddress(host="127.0.0.1", port=server.port, tls=False), 60.0)
        wanted = Wanted()
        yield Drive(server, wanted, Driving(client, wanted))
        await client.close()


async def test_what_is_wanted_is_activated_and_what_is_wanted_no_more_deactivated(drive: Drive) -> None:
    assert await drive.follow(target("a"), target("b"))
    assert drive.active() == ["a", "b"]

    assert await drive.follow(target("b"))
    assert drive.active() == ["b"]
    assert list(drive.driving.results) == ["/projects/p/subscriptions/b"]


async def test_what_is_as_wanted_is_only_looked_at(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.server.calls.clear()

    await drive.driving.round()

    assert [method for method, _ in drive.server.calls] == ["SubscriptionStatus"]
    assert drive.driving.results[target("a").path].text.endswith("is currently active")


async def test_a_changed_target_is_deactivated_and_activated(drive: Drive) -> None:
    await drive.follow(target("a"))

    await drive.follow(target("a", replace(CONFIG, endpoint="https://example.com/other")))

    assert drive.server.active[target("a").path][1] == b"https://example.com/other"


@pytest.mark.parametrize("others", [{}, {target("a").path: {1: b"https://example.com/old"}}], ids=["new", "told"])
async def test_a_push_server_that_forgot_everything_or_was_told_by_another_process_is_told_again(
    drive: Drive, others: dict[str, dict[int, bytes]]
) -> None:
    drive.server.active.update(others)
    await drive.follow(target("a"))
    assert drive.server.active[target("a").path][1] == b"https://example.com/in"
    drive.server.active.clear()

    await drive.driving.round()

    assert drive.active() == ["a"]


async def test_what_nobody_here_activated_is_left_alone(drive: Drive) -> None:
    drive.server.active["/projects/other/subscriptions/x"] = {}

    await drive.driving.round()

    assert drive.active() == ["x"]


async def test_p28_a_refusal_is_kept_and_repaired_later(drive: Drive) -> None:
    drive.wanted.targets = [target("a")]
    drive.server.fault = grpc.StatusCode.INTERNAL, "not yet"
    assert await drive.driving.round()
    assert drive.driving.results[target("a").path].worded() == "Error: not yet"

    drive.server.fault = None
    await drive.driving.round()
    assert drive.active() == ["a"]


async def test_a_target_that_cannot_be_told_keeps_no_other_from_being_driven(drive: Drive) -> None:
    """P4: one target's fault."""
    assert await drive.follow(target("a", replace(CONFIG, endpoint="https://\ud800/")), target("b"))

    assert drive.active() == ["b"]
    assert drive.driving.results[target("a").path].worded() == "Error: unexpected UnicodeEncodeError"


async def test_a_deactivation_that_failed_is_repaired_later(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.wanted.targets = []
    drive.server.fault = grpc.StatusCode.UNAVAILABLE, "not now"
    assert not await drive.driving.round()
    assert drive.driving.results[target("a").path].is_away

    drive.server.fault = None
    assert await drive.driving.round()
    assert drive.active() == []
    assert dict(drive.driving.results) == {}


async def test_a_registry_that_does_not_answer_changes_nothing(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.wanted.fails = True

    assert not await drive.driving.round()
    assert drive.active() == ["a"]


async def test_a_push_server_that_is_away_is_not_asked_about_each_subscription() -> None:
    class Away(GrpcPushServer):
        asked = 0

        async def look(self, path: str) -> Outcome:
            self.asked += 1
            return Outcome(grpc.StatusCode.UNAVAILABLE, "nobody is there")

    server = Away(PushServerAddress(host="127.0.0.1", port=1, tls=False))
    driving = Driving(server, Wanted([target(f"s{number}") for number in range(100)]))

    for _ in range(2):
        assert not await driving.round()
    assert server.asked <= 2 * AT_ONCE
    assert all(each.is_away for each in driving.results.values())
    assert len(driving.results) == 100


async def test_no_more_than_a_few_calls_are_under_way_at_once(drive: Drive) -> None:
    await drive.follow(*(target(f"s{number}") for number in range(60)))

    assert len(drive.active()) == 60
    assert 1 < drive.server.most <= AT_ONCE


async def test_a_change_is_followed_at_once(drive: Drive) -> None:
    await drive.driving.start(Supervisor())
    drive.wanted.targets = [target("a")]
    drive.driving.changed()
    await wait_until_async(lambda: drive.active() == ["a"])
    await drive.driving.close()


async def test_p31_what_has_no_topic_is_not_delivered_until_it_has_one_again() -> None:
    async with reference_push_server() as server:
        driven = DrivenPushServer(PushServerAddress(host="127.0.0.1", port=server.port, tls=False))
        wanted = Wanted([replace(target("a"), topic_id="first"), target("b")])
        await driven.start(wanted, Supervisor())
        for topic_id in ("first", "", "second"):
            wanted.targets[0] = replace(target("a"), topic_id=topic_id)
            await driven.settle()
            assert list(server.active) == ([target("a").path] if topic_id else [])
        await driven.close()
