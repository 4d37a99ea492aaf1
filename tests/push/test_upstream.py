"""The upstream of a process that delivers by leases: what it may still do when its lease is over."""

import asyncio

import pytest

from ams.push.leased import Leased
from ams.push.upstream import Away, Verdict
from tests.push.keepers import MemoryUpstream, pulled, target, until

ONE = target()


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_what_came_after_the_end_of_the_lease_is_not_sent() -> None:
    upstream = MemoryUpstream()
    leased = Leased(upstream)
    leased.ends = now() + 60
    waiting = asyncio.create_task(leased.pull(ONE, max_messages=1, max_bytes=100))
    await until(lambda: upstream.waiting)

    leased.ends = now()
    upstream.append()

    with pytest.raises(Away):
        await waiting


async def test_after_the_end_of_the_lease_nothing_is_acknowledged_nor_put_aside() -> None:
    upstream = MemoryUpstream(1)
    leased = Leased(upstream)
    leased.ends = now()

    with pytest.raises(Away):
        await leased.acknowledge(ONE, pulled(0))
    with pytest.raises(Away):
        await leased.dead_letter(ONE, pulled(0), Verdict("bad", 5, 422))

    assert (upstream.acknowledged, upstream.dead_lettered) == ([], [])


async def test_during_the_lease_and_without_one_all_of_it_is_done() -> None:
    upstream = MemoryUpstream(2)
    leased = Leased(upstream)
    for ends, offset in ((now() + 60, 0), (None, 1)):
        leased.ends = ends
        assert await leased.pull(ONE, max_messages=1, max_bytes=100) == [pulled(offset)]
        await leased.acknowledge(ONE, pulled(offset))

    assert upstream.acknowledged == [0, 1]
