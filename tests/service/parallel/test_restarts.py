"""What ids of before a restart are good for, and what is found when a subscription is opened anew."""

import asyncio

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, CursorsUnavailable
from ams.core.names import Offset
from ams.service.parallel.lease_table import Window
from ams.service.seeking import Seeker
from ams.storage.cursors.acks import Change
from tests.service.parallel.backlogs import grouped
from tests.service.parallel.site import DIES, LATE, SUB, Site, before_the_next_lease, offsets, with_options


async def test_after_a_restart_ids_are_good_until_the_message_is_given_again(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    site.begin_again()
    await site.acknowledge(ids[1:2])
    assert await site.offsets() == [0, 2]
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[:1])
    assert await site.floor() == 0


async def test_after_a_restart_ids_are_good_for_one_deadline(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    site.begin_again()
    await site.acknowledge([])
    site.engines.clock.advance(LATE)
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids)


@with_options(enable_exactly_once_delivery=True)
async def test_exactly_once_withholds_what_may_be_out_after_a_restart(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull()
    site.begin_again()
    assert await site.pull() == []
    await site.publish(2)
    assert await site.offsets() == [2]
    await site.acknowledge(ids[:1])
    site.engines.clock.advance(2 * LATE)
    again = await site.pull()
    assert offsets(again) == [1, 2]
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[1:])
    await site.acknowledge(again)
    assert await site.floor() == 3


@pytest.mark.parametrize("restarts", [1, 2])
async def test_the_id_of_the_first_run_is_late_after_a_restart_and_that_of_the_second_good(
    site: Site, restarts: int
) -> None:
    await site.publish(0)
    first = await site.pull()
    site.begin_again()
    second = await site.pull()
    if restarts == 2:
        site.begin_again()
    with pytest.raises(AckTimeout):
        await site.acknowledge(first)
    await site.acknowledge(second)
    assert await site.floor() == 1


@with_options(dead_letter_policy=DIES)
@pytest.mark.parametrize("what", ["acknowledged", "extended", "failed for the last time"])
async def test_what_is_settled_by_an_id_of_before_between_a_read_and_its_lease_is_not_given(
    site: Site, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await site.publish(*range(4))
    await site.fail(4)
    ids = await site.pull()
    site.begin_again()
    act = {"acknowledged": site.acknowledge, "extended": lambda first: site.extend(first, 60)}.get(what, site.nack)
    before_the_next_lease(monkeypatch, lambda: act(ids[:1]))
    assert await site.offsets() == [1, 2, 3]


async def test_all_that_repeat_an_acknowledgement_hear_that_it_cannot_be_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()

    async def fail(*_: object) -> bool:
        for _ in range(20):
            await asyncio.sleep(0)
        raise CursorsUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", fail)
        found = await asyncio.gather(*[site.acknowledge(ids) for _ in range(8)], return_exceptions=True)
    assert [type(each) for each in found] == [CursorsUnavailable] * 8
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_a_stream_that_is_full_has_room_again_when_its_subscription_is_let_go(site: Site) -> None:
    await site.publish(*range(5))
    subscription, window = await site.subscription(), Window(3, 10_000)
    turns: list[int] = []
    window.freed = lambda: turns.append(window.messages)
    ids = await site.pull(window=window)
    await site.acknowledge(ids[:1])
    opened = await site.opened()
    backlog = opened.backlog
    settling = backlog.acknowledge(grouped(ids[1:2]), site.engines.clock.monotonic())
    turns.clear()
    site.working.opened.forget(subscription.id)
    assert (window.messages, window.bytes, turns) == (3, 10_000, [3])
    backlog.not_stored(settling)
    assert (window.messages, window.bytes) == (3, 10_000)


@with_options(message_retention=Milliseconds(600_000))
async def test_where_it_stands_is_said_of_one_moment_also_when_retention_has_just_passed_it(site: Site) -> None:
    engines, working = site.engines, site.working
    seeker = Seeker(engines.registry, engines.log, engines.cursors, working=working, clock=engines.clock)
    await site.publish(*range(50))
    ids = await site.pull()
    await site.extend(ids, 600)
    await site.acknowledge(ids[1:])
    engines.clock.advance(599_000)
    await site.publish(50, 51)
    engines.clock.advance(2_000)
    found = await seeker.offsets(site.caller, SUB)
    assert (found.min, found.current, found.max, found.acknowledged, found.leased) == (50, 50, 52, 0, 0)


async def test_what_is_done_beyond_the_end_of_a_log_that_was_put_back_is_forgotten(site: Site) -> None:
    await site.publish(0, 1)
    subscription = await site.subscription()
    topic = await site.topic()
    progress = await site.engines.cursors.take_over(subscription.id, topic.id)
    done = Change([(Offset(1), Offset(2)), (Offset(3), Offset(5))])
    assert await site.engines.cursors.settle(subscription.id, progress.epoch, progress.run, done)
    assert await site.offsets() == [0]
    await site.publish(2, 3, 4)
    assert await site.offsets() == [2, 3, 4]
