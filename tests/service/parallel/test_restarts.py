"""Ids and leases from before a restart, and open leases when exactly-once delivery is switched on."""

import asyncio

import pytest

from ams.cluster.ownership import Ownership
from ams.core.ack_ids import AckId
from ams.core.clock import DAY
from ams.core.errors import AckTimeout, CursorsUnavailable, InvalidInput
from ams.core.names import Offset
from ams.core.retention_clock import RetentionClock
from ams.service.parallel.open_subscriptions import MAX_LEASE_MS
from ams.service.push.configurations import Pushing
from ams.service.subscription_offsets import Seeker, Snapshots
from ams.service.subscriptions import Subscriptions
from ams.storage.cursors.acks import AckUpdate
from tests.service.parallel.site import (
    DEAD_LETTER_POLICY,
    LEASE_PASSED_MS,
    SUB,
    ParallelSite,
    before_the_next_lease,
    offsets,
    with_options,
)
from tests.support.waiting import some_turns


async def test_after_a_restart_ids_are_good_until_the_message_is_given_again(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(0, 1, 2)
    site.begin_again()
    await site.acknowledge(ids[1:2])
    assert await site.offsets() == [0, 2]
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[:1])
    assert await site.floor() == 0


async def test_after_a_restart_ids_are_good_for_one_deadline(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(0)
    site.begin_again()
    await site.acknowledge([])
    site.engines.clock.advance(LEASE_PASSED_MS)
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids)


@with_options(enable_exactly_once_delivery=True)
async def test_exactly_once_withholds_what_may_be_out_after_a_restart(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(0, 1)
    site.begin_again()
    assert await site.pull() == []
    await site.publish(2)
    assert await site.offsets() == [2]
    await site.acknowledge(ids[:1])
    site.engines.clock.advance(2 * LEASE_PASSED_MS)
    again = await site.pull()
    assert offsets(again) == [1, 2]
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[1:])
    await site.acknowledge(again)
    assert await site.floor() == 3


@with_options(dead_letter_policy=DEAD_LETTER_POLICY)
@pytest.mark.parametrize("what", ["acknowledged", "extended", "failed for the last time"])
async def test_an_old_id_settles_before_a_lease(site: ParallelSite, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    await site.publish(*range(4))
    await site.fail(4)
    ids = await site.pull()
    site.begin_again()
    act = {"acknowledged": site.acknowledge, "extended": lambda first: site.extend(first, 60)}.get(what, site.nack)
    before_the_next_lease(monkeypatch, lambda: act(ids[:1]))
    assert await site.offsets() == [1, 2, 3]


async def test_every_repeat_hears_that_it_cannot_be_stored(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await site.publish_and_pull(0)

    async def fail(*_: object) -> bool:
        await some_turns()
        raise CursorsUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", fail)
        found = await asyncio.gather(*[site.acknowledge(ids) for _ in range(8)], return_exceptions=True)
    assert [type(each) for each in found] == [CursorsUnavailable] * 8
    assert await site.pull() == [], "the lease is as it was"
    await site.acknowledge(ids)
    assert await site.floor() == 1


@with_options(message_retention=7 * DAY)
async def test_a_clock_leap_takes_nothing_of_a_subscription_with_a_retention_of_its_own(site: ParallelSite) -> None:
    engines, clock = site.engines, site.engines.clock
    retention_clock = RetentionClock(clock)
    seeker = Seeker(
        engines.registry, engines.log, engines.cursors, working=site.working, retention_clock=retention_clock
    )
    snapshots = Snapshots(engines.registry, engines.log, engines.cursors, clock, retention_clock)
    await site.publish(*range(3))
    assert await site.offsets(1) == [0]
    clock.step(8 * DAY)
    await site.look()
    await seeker.offsets(site.caller, SUB)
    await snapshots.create(site.caller, "N", f"projects/P/subscriptions/{SUB}")
    clock.step(-8 * DAY)

    assert (await site.offsets(), await site.floor()) == ([1, 2], 0)
    clock.step(8 * DAY)
    await site.look()
    clock.advance(DAY)
    await site.look()
    assert await site.floor() == 3, "what lasts a day is believed"


@with_options(message_retention=600_000)
async def test_where_it_stands_is_said_of_one_moment_also_when_retention_has_just_passed_it(site: ParallelSite) -> None:
    engines, working = site.engines, site.working
    retention_clock = RetentionClock(engines.clock)
    seeker = Seeker(engines.registry, engines.log, engines.cursors, working=working, retention_clock=retention_clock)
    ids = await site.publish_and_pull(*range(50))
    await site.extend(ids, 600)
    await site.acknowledge(ids[1:])
    engines.clock.advance(599_000)
    await site.publish(50, 51)
    engines.clock.advance(2_000)
    found = await seeker.offsets(site.caller, SUB)
    assert (found.min, found.current, found.max, found.acknowledged, found.leased) == (50, 50, 52, 0, 0)


async def test_what_is_done_beyond_the_end_of_a_log_that_was_put_back_is_forgotten(site: ParallelSite) -> None:
    await site.publish(0, 1)
    subscription = await site.subscription()
    progress = await site.engines.cursors.take_over(subscription.id, (await site.topic()).id)
    done = AckUpdate([(1, 2), (3, 5)])
    assert await site.engines.cursors.settle(subscription.id, progress.epoch, progress.run, done)
    assert await site.offsets() == [0]
    await site.publish(2, 3, 4)
    assert await site.offsets() == [2, 3, 4]


LEASE_END_MARGIN_MS = 10_000  # milliseconds by which the recorded end of a lease may be too late


async def switch_on(site: ParallelSite, *, has_cover: bool = True) -> None:
    engines, cover = site.engines, site.working.storer.cover if has_cover else None
    subscriptions = Subscriptions(
        engines.registry, engines.log, engines.cursors, Pushing(engines.registry), cover=cover
    )
    await subscriptions.change(site.caller, SUB, {"enable_exactly_once_delivery": True})


async def test_an_extension_that_is_refused_covers_nothing(site: ParallelSite) -> None:
    await switch_on(site)
    await site.publish(0, 1)
    [given] = await site.pull(1)
    await site.acknowledge([given])
    with pytest.raises(InvalidInput):
        await site.extend([AckId(Offset(77), given.hand_out)], 600)
    site.begin_again()
    site.engines.clock.advance(2 * LEASE_END_MARGIN_MS)
    assert await site.offsets() == [1]


async def test_leases_that_were_out_are_kept_although_nobody_asked_for_anything_since(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(0, 1)
    await site.extend(ids, 300)
    await switch_on(site)
    site.begin_again()
    site.engines.clock.advance(299_000)
    assert await site.pull() == []
    await site.acknowledge(ids[:1])
    site.engines.clock.advance(LEASE_END_MARGIN_MS + 2_000)
    assert await site.offsets() == [1]


async def test_leases_that_were_out_are_covered_by_the_next_hand_out(site: ParallelSite) -> None:
    await site.publish(0, 1)
    ids = await site.pull(1)
    await site.extend(ids, 300)
    await switch_on(site, has_cover=False)  # as a node that has not seen the change
    assert await site.offsets() == [1]
    site.begin_again()
    site.engines.clock.advance(250_000)
    assert await site.pull() == []
    await site.acknowledge(ids)


async def test_what_was_given_before_a_restart_is_out_for_as_long_as_a_lease_may_last(site: ParallelSite) -> None:
    await site.extend(await site.publish_and_pull(0), 600)
    site.begin_again()
    await switch_on(site)
    assert await site.pull() == []
    site.engines.clock.advance(MAX_LEASE_MS - 1_000)
    assert await site.pull() == []
    site.engines.clock.advance(LEASE_END_MARGIN_MS + 2_000)
    assert await site.offsets() == [0]


@with_options(enable_exactly_once_delivery=True)
async def test_nothing_is_withheld_longer_than_a_lease_where_the_time_of_day_was_set_back(site: ParallelSite) -> None:
    await site.publish_and_pull(0)
    site.engines.clock.step(-DAY)
    site.begin_again()
    assert await site.pull() == []
    site.engines.clock.advance(MAX_LEASE_MS + LEASE_PASSED_MS)
    assert await site.offsets() == [0]


async def test_what_came_after_the_start_of_the_only_process_is_given_at_once(site: ParallelSite) -> None:
    await site.acknowledge(await site.publish_and_pull(0, 1))
    site.begin_again(Ownership())
    await site.working.opened.note_ends()  # as `start` does
    await site.publish(2, 3)
    await switch_on(site)
    assert await site.offsets() == [2, 3]


async def test_what_came_after_this_process_took_over_is_given_at_once(site: ParallelSite) -> None:
    await site.acknowledge(await site.publish_and_pull(0, 1))
    site.begin_again()
    assert await site.pull() == []
    await site.publish(2, 3)
    await switch_on(site)
    assert await site.offsets(1) == [2]
    site.begin_again()
    site.engines.clock.advance(2 * LEASE_END_MARGIN_MS)
    assert await site.offsets() == [2, 3]


async def test_what_was_not_given_when_it_was_switched_on_is_given_at_once_after_a_restart(site: ParallelSite) -> None:
    await site.publish(0, 1)
    ids = await site.pull(1)
    await switch_on(site)
    await site.publish(2)
    site.begin_again()
    assert await site.offsets() == [1, 2]
    await site.acknowledge(ids)


async def test_what_is_out_at_the_start_of_the_only_process_is_withheld_and_the_rest_is_not(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(0)
    await site.extend(ids, 600)
    site.begin_again()
    await site.working.opened.note_ends()  # as `start` does
    site.engines.clock.advance(100_000)
    await site.publish(1)
    await switch_on(site)
    assert await site.offsets() == [1]
    site.engines.clock.advance(MAX_LEASE_MS - 102_000)
    assert await site.offsets() == [1]
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_what_is_opened_once_more_by_the_only_process_may_be_out_since_its_start(site: ParallelSite) -> None:
    await site.working.opened.note_ends()  # as `start` does
    await site.extend(await site.publish_and_pull(0), 600)
    site.working.opened.forget((await site.subscription()).id)
    await switch_on(site)
    assert await site.pull() == []


async def test_what_is_given_while_it_is_being_switched_on_is_covered(site: ParallelSite) -> None:
    await site.publish(0, 1)
    await site.working.storer.cover(await site.subscription())
    ids = await site.pull(1)  # before the options are changed
    await switch_on(site, has_cover=False)
    site.begin_again()
    assert await site.pull() == []
    await site.acknowledge(ids)
