"""What is out when exactly-once delivery is switched on is not given to others after a restart."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.parallel_options import ParallelOptions
from ams.service.parallel.working import COVERED_LONGER, LONGEST_LEASE
from ams.service.subscriptions import Subscriptions
from tests.service.parallel.test_working import SUB, Site, offsets
from tests.support.engines import open_engines


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_engines(tmp_path) as engines:
        yield await Site(engines, ParallelOptions()).made()


async def switch_on(site: Site, *, has_cover: bool = True) -> None:
    engines, cover = site.engines, site.working.cover if has_cover else None
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
    assert offsets(await site.pull()) == [1]


async def test_leases_that_were_out_are_covered_by_the_next_hand_out(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull(1)
    await site.extend(ids, 300)
    await switch_on(site, has_cover=False)  # as a node does that has not heard of it yet
    assert offsets(await site.pull()) == [1]
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
    assert offsets(await site.pull()) == [0]


async def test_nothing_is_withheld_of_what_nobody_was_given(site: Site) -> None:
    await site.publish(0, 1)
    await switch_on(site)
    assert offsets(await site.pull(1)) == [0]
    site.begin_again()
    site.engines.clock.advance(2 * COVERED_LONGER)
    assert offsets(await site.pull()) == [0, 1]
