"""What consumers settle by ids: what is acknowledged, extended, given back, and which ids count no more."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ams.core.ack_ids import AckId, NeverGiven
from ams.core.errors import AckTimeout, CursorsUnavailable, InvalidInput
from ams.core.names import Offset
from ams.core.parallel_options import ParallelOptions
from ams.service.parallel.settling import SHOWN_IDS, SLICE
from tests.service.parallel.site import (
    DIES,
    LATE,
    WAITS,
    Site,
    grouped,
    offsets,
    unavailable,
    with_options,
)


async def test_an_acknowledgement_that_is_repeated_is_accepted(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    await site.acknowledge(ids[1:])
    await site.acknowledge(ids[1:])
    await asyncio.gather(site.acknowledge(ids), site.acknowledge(ids))
    assert await site.floor() == 3


async def test_a_lease_that_is_extended_holds_longer_and_one_that_is_shortened_ends_sooner(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    await site.extend(ids[:1], 60)
    await site.extend(ids[1:2], 5)
    site.engines.clock.advance(5_100)
    assert offsets(await site.pull()) == [1]
    site.engines.clock.advance(LATE - 5_000)
    assert offsets(await site.pull()) == [2]
    site.engines.clock.advance(40_000)
    await site.acknowledge(ids[:1])
    assert await site.floor() == 1


async def test_a_message_that_is_given_back_comes_again_at_once(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull()
    await site.nack(ids[1:])
    assert offsets(await site.pull()) == [1]
    await site.extend(ids[:1], 0)
    assert offsets(await site.pull()) == [0]


@with_options(retry_policy=WAITS)
async def test_a_consumer_may_say_how_long_a_message_is_to_wait(site: Site) -> None:
    await site.publish(0)
    await site.nack(await site.pull(), 500)
    assert await site.pull() == []
    site.engines.clock.advance(600)
    assert offsets(await site.pull()) == [0]


@with_options(enable_exactly_once_delivery=True)
async def test_exactly_once_an_acknowledgement_is_late_when_another_consumer_finished_the_message(site: Site) -> None:
    await site.publish(0, 1)
    [first, other] = await site.pull()
    await site.acknowledge([other])
    site.engines.clock.advance(LATE)
    [second] = await site.pull(holder="two")
    await site.acknowledge([second])
    with pytest.raises(AckTimeout, match=f"ack timeout: 0-{first.hand_out}$"):
        await site.acknowledge([first, other])
    await site.acknowledge([second, other])


async def test_otherwise_a_late_acknowledgement_of_what_is_done_changes_nothing_and_is_good(site: Site) -> None:
    await site.publish(0)
    [first] = await site.pull()
    site.engines.clock.advance(LATE)
    await site.acknowledge(await site.pull(holder="two"))
    await site.acknowledge([first])
    assert await site.floor() == 1


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """Return how often something else had a turn of the event loop meanwhile."""
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_very_many_ids_are_dealt_with_in_slices_others_having_turns_in_between(site: Site) -> None:
    await site.publish(*range(4))
    many = await site.pull() * SLICE
    assert await turns_during(site.extend(many, 60)) >= 8
    assert await turns_during(site.nack(many, 0)) >= 8
    assert await turns_during(site.acknowledge(await site.pull() * SLICE)) >= 8
    assert await site.floor() == 4


async def test_of_very_many_ids_nothing_is_done_when_some_were_never_given(site: Site) -> None:
    await site.publish(*range(4))
    given = await site.pull()
    bad, worse = (AckId(Offset(offset), given[0].hand_out) for offset in (9, 10))
    for work in (site.acknowledge, site.nack, lambda ids: site.extend(ids, 30)):
        with pytest.raises(NeverGiven, match="^Invalid ack id$") as error:
            await work([bad, *given * SLICE, worse, bad])
        assert set(error.value.ids) == {bad, worse}
    assert (await site.floor(), await site.pull()) == (0, [])
    await site.acknowledge(given)


async def test_of_very_many_ids_those_that_are_late_are_counted_and_the_others_are_done(site: Site) -> None:
    await site.publish(*range(2 * SLICE + 2))
    late = await site.pull(SLICE + 1)
    site.engines.clock.advance(LATE)
    good = await site.pull(2 * SLICE + 2)
    with pytest.raises(AckTimeout, match=f"^ack timeout: 0-.* and {len(late) - SHOWN_IDS} more$"):
        await site.acknowledge([*late, *good])
    assert await site.floor() == len(good)


async def test_a_repeated_acknowledgement_is_stored_when_the_one_before_it_cannot_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()
    settle, fails = site.engines.cursors.settle, asyncio.Event()

    async def fail(*_: object) -> bool:
        monkeypatch.setattr(site.engines.cursors, "settle", settle)
        await fails.wait()
        raise CursorsUnavailable

    monkeypatch.setattr(site.engines.cursors, "settle", fail)
    first = asyncio.create_task(site.acknowledge(ids))
    await asyncio.sleep(0.01)
    repeated = asyncio.create_task(site.acknowledge(ids))
    await asyncio.sleep(0.01)
    fails.set()
    with pytest.raises(CursorsUnavailable):
        await first
    await repeated
    assert await site.floor() == 1


async def test_an_acknowledgement_that_could_not_be_stored_leaves_the_lease_as_it_was(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()
    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", unavailable)
        with pytest.raises(CursorsUnavailable):
            await site.acknowledge(ids)
    assert await site.pull() == []
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_an_acknowledgement_is_stored_also_when_its_client_leaves(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    leaving = asyncio.ensure_future(site.acknowledge(ids))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_ids_that_were_never_given_are_refused_and_change_nothing(site: Site) -> None:
    await site.publish(0, 1)
    [first] = await site.pull(1)
    attempt, epoch, run, number, identity = first.hand_out.split(".")
    for bad in (
        AckId(Offset(0), ".".join((attempt, epoch, run, number, "000000"))),
        AckId(Offset(0), ".".join((attempt, epoch, run, "99", identity))),
        AckId(Offset(0), ".".join((attempt, epoch, "99", number, identity))),
        AckId(Offset(0), ".".join((attempt, "99", run, number, identity))),
        AckId(Offset(1), first.hand_out),
        AckId(Offset(10**17), first.hand_out),
        AckId(Offset(0), "nonsense"),
    ):
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            await site.acknowledge([first, bad])
    site.begin_again()
    with pytest.raises(InvalidInput, match="^Invalid ack id$"):
        await site.acknowledge([AckId(Offset(10**17), first.hand_out)])
    assert await site.floor() == 0


@pytest.mark.parametrize("site", [ParallelOptions(dead_letter_policy=DIES)], indirect=True)
async def test_what_is_released_comes_again_at_once_and_has_not_failed(site: Site) -> None:
    await site.publish(0, 1)
    first = await site.pull()
    site.working.settler.release((await site.subscription()).id, grouped(first[:1]))
    again = await site.pull()

    assert offsets(again) == [0]
    assert again[0].hand_out.startswith("1.")
    await site.acknowledge([*again, *first[1:]])
    assert await site.floor() == 2
