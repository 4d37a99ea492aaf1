"""Leased messages of a parallel subscription for the workers of this process, on the real engines."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ams.core.errors import OwnedElsewhere
from ams.core.names import SubscriptionId
from ams.core.parallel_options import ParallelOptions, RetryPolicy
from ams.push.upstream import Away, Gone, NotTaken, PushHandOut, Target, Verdict
from ams.service.push.runner import HOLDER, EngineHandOuts
from tests.push.keepers import target
from tests.service.parallel.site import ParallelSite
from tests.support.engines import open_engines

REFUSAL = Verdict("no such bed", 1, 422)
OWN_RETRY_OPTIONS = ParallelOptions(retry_policy=RetryPolicy(7000, 7000))


class Leasing:
    def __init__(self, site: ParallelSite, of: Target) -> None:
        self.site, self.target = site, of
        self.hand_outs = EngineHandOuts(site.engines.registry, site.working)

    async def lease(self, most: int = 10) -> Sequence[PushHandOut]:
        return await self.hand_outs.lease(self.target, max_messages=most, max_bytes=2**20)

    async def lease_published(self, *numbers: int) -> PushHandOut:
        await self.site.publish(*numbers)
        (hand_out,) = await self.lease()
        return hand_out

    async def fail(self, hand_out: PushHandOut, wait: int = 3000) -> None:
        await self.hand_outs.fail(self.target, hand_out, wait, REFUSAL)


@pytest.fixture
async def leasing(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Leasing]:
    async with open_engines(tmp_path) as engines:
        site = await ParallelSite(engines, getattr(request, "param", ParallelOptions())).prepare()
        identity = (await site.subscription()).id
        yield Leasing(site, target("/projects/P/subscriptions/s", identity=identity, parallel=True))


def offsets(hand_outs: Sequence[PushHandOut]) -> list[int]:
    return [each.offset for hand_out in hand_outs for each in hand_out.messages]


async def test_what_is_leased_is_acknowledged_one_by_one(leasing: Leasing) -> None:
    hand_out = await leasing.lease_published(0, 1, 2)
    assert (hand_out.attempt, offsets([hand_out])) == (1, [0, 1, 2])
    assert leasing.site.working.opened.get(leasing.target.id).backlog.leases.holders == {HOLDER: 3}

    await leasing.hand_outs.acknowledge(leasing.target, hand_out.part(1, 3))

    assert await leasing.site.floor() == 0
    await leasing.hand_outs.acknowledge(leasing.target, hand_out.part(0, 1))
    assert await leasing.site.floor() == 3


@pytest.mark.parametrize(
    ("leasing", "seconds"), [(ParallelOptions(), 3), (OWN_RETRY_OPTIONS, 7)], indirect=["leasing"],
    ids=["of push", "its own"],
)  # fmt: skip
async def test_what_failed_waits_by_the_policy_of_the_subscription_or_else_of_push(leasing: Leasing, seconds: int):
    await leasing.fail(await leasing.lease_published(0))
    leasing.site.engines.clock.advance(seconds * 1000 - 200)
    assert await leasing.lease() == []

    leasing.site.engines.clock.advance(400)
    (again,) = await leasing.lease()
    assert (again.attempt, offsets([again])) == (2, [0])


async def test_what_is_released_comes_again_at_once(leasing: Leasing) -> None:
    leasing.hand_outs.release(leasing.target, await leasing.lease_published(0))
    (again,) = await leasing.lease()
    assert (again.attempt, offsets([again])) == (1, [0])


async def test_leases_that_are_over_are_not_taken(leasing: Leasing) -> None:
    hand_out = await leasing.lease_published(0)
    await leasing.hand_outs.extend(leasing.target, hand_out, 40)
    leasing.site.engines.clock.advance(39_000)
    await leasing.hand_outs.extend(leasing.target, hand_out, 40)
    leasing.site.engines.clock.advance(41_000)

    for late in (
        leasing.hand_outs.acknowledge(leasing.target, hand_out), leasing.fail(hand_out),
        leasing.hand_outs.extend(leasing.target, hand_out, 40),
    ):  # fmt: skip
        with pytest.raises(NotTaken):
            await late


@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_a_node_takes_over_leases(leasing: Leasing, monkeypatch: pytest.MonkeyPatch, is_taken_back: bool) -> None:
    await leasing.site.publish(0)
    working, taken = leasing.site.working, []
    pull = working.puller.pull

    async def pull_elsewhere(*given: Any, **more: Any) -> Any:
        if is_taken_back or not taken:
            raise OwnedElsewhere
        return await pull(*given, **more)

    async def note_owner(subscription: SubscriptionId, *, seizes: bool = False) -> None:
        taken.append((subscription, seizes))

    monkeypatch.setattr(working.puller, "pull", pull_elsewhere)
    monkeypatch.setattr(working.opened, "own", note_owner)

    if is_taken_back:
        with pytest.raises(Away):
            await leasing.lease()
    else:
        assert offsets(await leasing.lease()) == [0]
    assert taken[0] == (leasing.target.id, True)


async def test_another_subscription_of_the_name_is_not_the_target(leasing: Leasing) -> None:
    leasing.target = target(leasing.target.path, identity="another", parallel=True)
    with pytest.raises(Gone):
        await leasing.lease()
