"""What is out when exactly-once delivery is switched on is not given to others after a restart."""

import pytest

from ams.core.ack_ids import AckId
from ams.core.errors import InvalidInput
from ams.core.names import Offset
from ams.service.parallel.opened import LONGEST_LEASE
from ams.service.parallel.ownership import Alone
from ams.service.subscriptions import Subscriptions
from tests.service.parallel.site import SUB, P, Site

COVERED_LONGER = 10_000
"""Milliseconds by which a lease may be taken to last longer than it does."""


async def switch_on(site: Site, *, has_cover: bool = True) -> None:
    engines, cover = site.engines, site.working.coverer.cover if has_cover else None
    subscriptions = Subscriptions(engines.registry, engines.log, engines.cursors, cover=cover)
    await subscriptions.change(site.caller, SUB, {"enable_exactly_once_delivery": True})


async def test_leases_that_were_out_are_kept_although_nobody_asked_for_anything_since(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull()
    await site.extend(ids, 300)
    await switch_on(site)
    site.begin_again()
    site.engines.clock.advance(299_000)
    assert await site.pull() == []
    await site.acknowledge(ids[:1])
    site.engines.clock.advance(COVERED_LONGER + 2_000)
    assert await site.offsets() == [1]


async def test_leases_that_were_out_are_covered_by_the_next_hand_out(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull(1)
    await site.extend(ids, 300)
    await switch_on(site, has_cover=False)  # as a node does that has not heard of it yet
    assert await site.offsets() == [1]
    site.begin_again()
    site.engines.clock.advance(250_000)
    assert await site.pull() == []
    await site.acknowledge(ids)


async def test_what_was_given_before_a_restart_is_out_for_as_long_as_a_lease_may_last(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    await site.extend(ids, 600)
    site.begin_again()
    await switch_on(site)
    assert await site.pull() == []
    site.engines.clock.advance(LONGEST_LEASE - 1_000)
    assert await site.pull() == []
    site.engines.clock.advance(COVERED_LONGER + 2_000)
    assert await site.offsets() == [0]


async def test_nothing_is_withheld_of_what_nobody_was_given(site: Site) -> None:
    await site.publish(0, 1)
    await switch_on(site)
    assert await site.offsets(1) == [0]
    site.begin_again()
    site.engines.clock.advance(2 * COVERED_LONGER)
    assert await site.offsets() == [0, 1]


async def emptied_and_begun_again(site: Site) -> None:
    """Let the process begin again when all was acknowledged, and let messages come before anybody asks for some."""
    await site.publish(0, 1)
    await site.acknowledge(await site.pull())
    site.begin_again(Alone())
    await site.working.opened.note_ends()  # as `start` does


async def test_what_came_after_the_start_of_the_only_process_is_given_at_once(site: Site) -> None:
    await emptied_and_begun_again(site)
    await site.publish(2, 3)
    await switch_on(site)
    assert await site.offsets() == [2, 3]


async def test_what_came_after_this_process_took_over_is_given_at_once(site: Site) -> None:
    await site.publish(0, 1)
    await site.acknowledge(await site.pull())
    site.begin_again()
    assert await site.pull() == []
    await site.publish(2, 3)
    await switch_on(site)
    assert await site.offsets(1) == [2]
    site.begin_again()
    site.engines.clock.advance(2 * COVERED_LONGER)
    assert await site.offsets() == [2, 3]


async def test_what_was_not_given_when_it_was_switched_on_is_given_at_once_after_a_restart(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull(1)
    await switch_on(site)
    await site.publish(2)
    site.begin_again()
    assert await site.offsets() == [1, 2]
    await site.acknowledge(ids)


async def test_what_is_out_at_the_start_of_the_only_process_is_withheld_and_the_rest_is_not(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    await site.extend(ids, 600)
    site.begin_again()
    await site.working.opened.note_ends()  # as `start` does
    site.engines.clock.advance(100_000)
    await site.publish(1)
    await switch_on(site)
    assert await site.offsets() == [1]
    site.engines.clock.advance(LONGEST_LEASE - 102_000)
    assert await site.offsets() == [1]
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_what_is_opened_once_more_by_the_only_process_may_be_out_since_its_start(site: Site) -> None:
    await site.working.opened.note_ends()  # as `start` does
    await site.publish(0)
    await site.extend(await site.pull(), 600)
    site.working.opened.forget((await site.subscription()).id)
    await switch_on(site)
    assert await site.pull() == []


async def test_what_is_given_while_it_is_being_switched_on_is_covered(site: Site) -> None:
    await site.publish(0, 1)
    await site.working.coverer.cover(await site.subscription(), P)
    ids = await site.pull(1)  # before the options are changed
    await switch_on(site, has_cover=False)
    site.begin_again()
    assert await site.pull() == []
    await site.acknowledge(ids)


async def test_an_extension_that_is_refused_covers_nothing(site: Site) -> None:
    await switch_on(site)
    await site.publish(0, 1)
    [given] = await site.pull(1)
    await site.acknowledge([given])
    with pytest.raises(InvalidInput):
        await site.extend([AckId(Offset(77), given.hand_out)], 600)
    site.begin_again()
    site.engines.clock.advance(2 * COVERED_LONGER)
    assert await site.offsets() == [1]
