"""What consumers can do after a restart with ids of before."""

import asyncio

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, CursorsUnavailable
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from tests.service.parallel.site import LATE, Site, offsets, with_options


async def test_after_a_restart_ids_are_good_until_the_message_is_given_again(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    site.begin_again()
    await site.acknowledge(ids[1:2])
    assert offsets(await site.pull()) == [0, 2]
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
    assert offsets(await site.pull()) == [2]
    await site.acknowledge(ids[:1])
    site.engines.clock.advance(2 * LATE)
    again = await site.pull()
    assert offsets(again) == [1, 2]
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[1:])
    await site.acknowledge(again)
    assert await site.floor() == 3


@pytest.mark.parametrize("rests", [0, 1])
async def test_after_two_restarts_the_id_of_the_first_run_is_late_and_that_of_the_second_good(
    site: Site, rests: int
) -> None:
    await site.publish(0)
    first = await site.pull()
    site.begin_again()
    second = await site.pull()
    if rests:
        site.begin_again()
    with pytest.raises(AckTimeout):
        await site.acknowledge(first)
    await site.acknowledge(second)
    assert await site.floor() == 1


@with_options(enable_message_ordering=True)
async def test_after_two_restarts_an_old_id_lets_nothing_of_its_key_out(site: Site) -> None:
    await site.publish(0, 1, key=lambda _: "k")
    first = await site.pull()
    site.begin_again()
    second = await site.pull()
    site.begin_again()
    with pytest.raises(AckTimeout):
        await site.acknowledge(first)
    await site.extend(second, 60)
    assert await site.pull() == []


@pytest.mark.parametrize("site", [ParallelOptions(), ParallelOptions(enable_exactly_once_delivery=True)], indirect=True)
async def test_a_lease_that_is_extended_after_a_restart_is_kept(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull()
    site.begin_again()
    for _ in range(3):
        await site.extend(ids[:1], 60)
        site.engines.clock.advance(4 * LATE)
        assert 0 not in offsets(await site.pull())
    await site.acknowledge(ids[:1])
    assert await site.floor() == 1


@with_options(retry_policy=RetryPolicy(Milliseconds(2000), Milliseconds(8000)))
async def test_a_nack_after_a_restart_counts_and_its_delay_too(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    site.begin_again()
    await site.nack(ids, 30_000)
    assert await site.pull() == []
    site.engines.clock.advance(30_200)
    [again] = await site.pull()
    assert again.hand_out.startswith("2.")


@with_options(dead_letter_policy=DeadLetterPolicy("letters", 5))
async def test_a_last_nack_after_a_restart_puts_the_message_aside(site: Site) -> None:
    await site.publish(0, 1)
    for _ in range(4):
        await site.nack((await site.pull(1))[:1])
    ids = await site.pull(1)
    site.begin_again()
    await site.nack(ids)
    assert offsets(await site.pull()) == [1]
    await site.look()
    assert [each["n"] for each in await site.letters()] == ["0"]


async def test_what_is_extended_between_a_read_and_its_lease_is_not_given(site: Site) -> None:
    await site.publish(*range(4))
    ids = await site.pull()
    site.begin_again()
    site.before_the_next_lease(lambda: site.extend([ids[2]], 60))
    assert offsets(await site.pull()) == [0, 1, 3]
    await site.acknowledge([ids[2]])


@with_options(dead_letter_policy=DeadLetterPolicy("letters", 5))
async def test_what_fails_for_the_last_time_between_a_read_and_its_lease_is_not_given(site: Site) -> None:
    await site.publish(0, 1)
    await site.fail(4)
    ids = await site.pull()
    site.begin_again()
    site.before_the_next_lease(lambda: site.nack(ids[:1]))
    assert offsets(await site.pull()) == [1]
    await site.look()
    assert [each["n"] for each in await site.letters()] == ["0"]


async def test_all_that_repeat_an_acknowledgement_hear_that_it_cannot_be_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()

    async def fail(*_: object) -> bool:
        await asyncio.sleep(0.01)
        raise CursorsUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", fail)
        found = await asyncio.gather(*[site.acknowledge(ids) for _ in range(8)], return_exceptions=True)
    assert [type(each) for each in found] == [CursorsUnavailable] * 8
    await site.acknowledge(ids)
    assert await site.floor() == 1
