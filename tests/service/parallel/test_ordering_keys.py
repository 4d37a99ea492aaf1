"""Ordering keys: how many messages of a key each consumer gets, and redelivery when one of them fails."""

import asyncio
from collections.abc import Sequence

import pytest

from ams.core.ack_ids import AckId, read_hand_out
from ams.core.errors import AckTimeout, CursorsUnavailable
from ams.core.names import Offset
from ams.core.parallel_options import DeadLetterPolicy
from ams.service.parallel import settlement
from ams.service.parallel.message_state import FlowWindow
from ams.service.parallel.settlement import LateIds
from ams.service.subscription_offsets import Seeker
from tests.service.interference import fail_calls
from tests.service.parallel.site import LEASE_PASSED_MS, SUB, ParallelSite, before_the_next_lease, offsets, with_options

with_ordering = with_options(enable_message_ordering=True)
MANY_BYTES = 2**24


async def publish(site: ParallelSite, *keys: str) -> None:
    """Publish one message for each of these keys."""
    await site.publish(*range(len(keys)), key=lambda number: keys[number])


async def given_of(site: ParallelSite, keys: str, most: int = 100) -> list[AckId]:
    """Publish one message for each of these keys, and pull so many of them."""
    await publish(site, *keys)
    return await site.pull(most)


def attempts(ids: Sequence[AckId]) -> list[int]:
    return [read_hand_out(each.hand_out).attempt for each in ids]


@with_ordering
async def test_what_one_pull_has_of_a_key_is_settled_before_another_one_gets_more(site: ParallelSite) -> None:
    first = await given_of(site, "aaabaa", 3)
    assert offsets(first) == [0, 1, 2]
    assert await site.offsets() == [3]
    await site.acknowledge(first[:2])
    assert await site.pull() == []
    await site.acknowledge(first[2:])
    assert await site.offsets() == [4, 5]


@with_ordering
async def test_an_acknowledgement_is_held_until_those_before_are_done_and_stored_with_them(site: ParallelSite) -> None:
    given = await given_of(site, "aaab", 4)
    await site.acknowledge(given[1:])
    assert (await site.open_subscription()).backlog.out == 3, "but for the other key"
    site.engines.clock.advance(5000)
    await site.extend(given[:2], 60)
    await site.nack(given[1:2])
    site.engines.clock.advance(LEASE_PASSED_MS)

    assert await site.pull() == []
    await site.acknowledge(given[:1])
    assert await site.floor() == 4
    await site.acknowledge(given)


@with_ordering
@pytest.mark.parametrize("ending", ["nack", "expiry", "given back"])
async def test_what_is_held_comes_again_behind_the_message_that_comes_again(site: ParallelSite, ending: str) -> None:
    given = await given_of(site, "aaa")
    await site.acknowledge(given[1:2])
    if ending == "nack":
        await site.nack(given[:1])
    elif ending == "expiry":
        site.engines.clock.advance(LEASE_PASSED_MS)
    else:
        await site.working.settler.give_back(await site.subscription(), {given[0].hand_out: [given[0].offset]})

    again = await site.pull()

    assert (offsets(again), attempts(again)) == ([0, 1, 2], [1 if ending == "given back" else 2, 1, 1])
    with pytest.raises(AckTimeout, match="^ack timeout: 1-"):
        await site.acknowledge(given[1:2])
    await site.acknowledge(again)
    assert await site.floor() == 3


@with_ordering
async def test_a_restart_forgets_what_is_held(site: ParallelSite) -> None:
    await site.acknowledge((await given_of(site, "aa"))[1:])
    site.begin_again()
    assert await site.offsets() == [0, 1]


@with_ordering
async def test_what_is_held_is_held_again_when_it_cannot_be_stored(site: ParallelSite) -> None:
    given = await given_of(site, "aaa")
    await site.acknowledge(given[1:2])
    with fail_calls(site.engines.cursors, "settle", CursorsUnavailable), pytest.raises(CursorsUnavailable):
        await site.acknowledge(given[:1])
    site.engines.clock.advance(LEASE_PASSED_MS)
    assert attempts(await site.pull()) == [2, 1, 1]


@with_ordering
async def test_what_is_held_behind_a_message_that_retention_takes_is_done(site: ParallelSite) -> None:
    await site.acknowledge((await given_of(site, "aaa"))[1:2])
    opened = await site.open_subscription()
    await site.engines.cursors.retain(opened.subscription.id, opened.backlog.epoch, Offset(1))
    assert opened.backlog.retain(Offset(1)) == 1
    await site.look()
    assert await site.floor() == 2


@with_ordering
async def test_a_held_message_is_out_and_its_lease_is_no_last_one(site: ParallelSite) -> None:
    await publish(site, *"aa")
    stream = FlowWindow(2, MANY_BYTES)
    await site.acknowledge((await site.pull(window=stream))[1:])
    backlog = (await site.open_subscription()).backlog
    assert (backlog.out, stream.messages) == (2, 0)
    now = site.engines.clock.monotonic()
    assert backlog.out_until(now) == now + 10_000


@with_options(enable_message_ordering=True, enable_exactly_once_delivery=True)
async def test_with_exactly_once_delivery_an_id_out_of_order_is_refused_until_its_turn(site: ParallelSite) -> None:
    given = await given_of(site, "aaab")
    with pytest.raises(LateIds, match="^ack out of order: 1-[^ ]*, 2-[^ ]*$") as refused:
        await site.acknowledge(given[1:])
    assert {each.offset for each in refused.value.out_of_order} == {1, 2}
    assert (await site.open_subscription()).backlog.out == 3, "the other key's is done"
    await site.acknowledge(given[:1])
    await site.acknowledge(given[1:])
    assert await site.floor() == 4


@with_options(enable_message_ordering=True, enable_exactly_once_delivery=True)
async def test_with_exactly_once_delivery_a_refused_message_expires_and_its_id_is_late_then(site: ParallelSite) -> None:
    given = await given_of(site, "aa")
    with pytest.raises(LateIds):
        await site.acknowledge(given[1:])
    site.engines.clock.advance(LEASE_PASSED_MS)
    again = await site.pull()
    assert attempts(again) == [2, 1]
    with pytest.raises(LateIds, match="^ack timeout: 1-[^ ]*, 1-[^ ]*$") as refused:
        await site.acknowledge([given[1], again[1]])
    assert {*refused.value.out_of_order} == {again[1]}


@with_options(enable_message_ordering=True, enable_exactly_once_delivery=True)
async def test_a_request_of_many_ids_is_done_in_any_order(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "SLICE", 2)
    given = [*await given_of(site, "aabaa", 3), *await site.pull()]
    stream = FlowWindow(9, MANY_BYTES)
    await site.nack(given[:1])
    again = await site.pull(window=stream)
    assert attempts(again) == [2, 1, 1, 1]
    await site.acknowledge([*again[::-1], given[2]])
    assert await site.floor() == 5


@with_ordering
async def test_what_is_held_when_exactly_once_delivery_is_turned_on_is_not_confirmed_again(site: ParallelSite) -> None:
    given = await given_of(site, "aa")
    await site.acknowledge(given[1:])
    opened = await site.open_subscription()
    opened.backlog.set_rules(opened.backlog.failures.rules._replace(exactly_once=True))

    with pytest.raises(LateIds, match="^ack out of order: 1-"):
        await site.acknowledge(given[1:])
    await site.acknowledge(given[:1])
    assert await site.floor() == 2


@with_ordering
async def test_a_nack_takes_back_what_is_out_behind_it_and_counts_one_failure(site: ParallelSite) -> None:
    first = await given_of(site, "aaaa", 3)
    await site.nack(first[1:2])

    for work in (site.acknowledge, site.nack, lambda ids: site.extend(ids, 60)):
        with pytest.raises(AckTimeout, match="^ack timeout: 2-"):
            await work(first[2:])
    assert await site.pull() == [], "the first one is still out"
    await site.acknowledge(first[:1])
    again = await site.pull()
    assert (offsets(again), attempts(again)) == ([1, 2, 3], [2, 1, 1])
    await site.acknowledge(again)
    assert await site.floor() == 4


@with_ordering
async def test_of_leases_that_end_together_the_first_of_its_key_has_failed(site: ParallelSite) -> None:
    await publish(site, "a", "b", "a", "", "a")
    await site.acknowledge((await site.pull())[-1:])
    site.engines.clock.advance(LEASE_PASSED_MS)

    again = await site.pull()

    assert (offsets(again), attempts(again)) == ([0, 1, 2, 3, 4], [2, 2, 1, 2, 1])


@with_ordering
async def test_what_is_answered_is_in_order_whatever_has_failed(site: ParallelSite) -> None:
    await site.nack((await given_of(site, "aaa"))[1:2])
    site.engines.clock.advance(LEASE_PASSED_MS)

    assert attempts(await site.pull()) == [2, 2, 1]


@with_ordering
async def test_a_stream_gets_more_of_its_keys_up_to_its_window_and_others_get_none(site: ParallelSite) -> None:
    await publish(site, *"aaaaaa")
    told: list[None] = []
    one, other = FlowWindow(2, MANY_BYTES, freed=lambda: told.append(None)), FlowWindow(9, MANY_BYTES)

    first = await site.pull(window=one)
    assert offsets(first) == [0, 1]
    assert await site.pull(window=other) == []
    assert told, "there is something for it alone"
    await site.acknowledge(first[:1])
    assert (await site.pull(window=other), await site.offsets(window=one)) == ([], [2])
    await site.nack(first[1:])
    assert await site.offsets(window=other) == [1, 2, 3, 4, 5]


@with_ordering
async def test_push_has_one_message_of_a_key(site: ParallelSite) -> None:
    await publish(site, *"aaba")
    given = await site.pull(one_of_each_key=True)
    assert offsets(given) == [0, 2]
    await site.acknowledge(given)
    assert await site.offsets(one_of_each_key=True) == [1]


@with_ordering
async def test_what_is_given_back_unused_takes_what_is_behind_along_and_counts_no_failure(site: ParallelSite) -> None:
    given = await given_of(site, "aaa")
    await site.working.settler.give_back(await site.subscription(), {given[1].hand_out: [given[1].offset]})

    with pytest.raises(AckTimeout):
        await site.acknowledge(given[2:])
    await site.acknowledge(given[:1])
    again = await site.pull()
    assert (offsets(again), attempts(again)) == ([1, 2], [1, 1])


@with_options(enable_message_ordering=True, dead_letter_policy=DeadLetterPolicy("letters", 5))
async def test_behind_a_message_that_was_put_aside_its_key_goes_on_in_order(site: ParallelSite) -> None:
    await publish(site, *"aaaa")
    for _ in range(5):
        given = await site.pull()
        await site.nack(given[-3:-2] if offsets(given)[0] == 0 else given[:1])
        if offsets(given)[0] == 0:
            await site.acknowledge(given[:1])
    assert await site.pull() == []
    await site.look()

    again = await site.pull()

    assert [each["n"] for each in await site.letters()] == ["1"]
    assert (offsets(again), attempts(again)) == ([2, 3], [1, 1])


@with_options(enable_message_ordering=True, enable_exactly_once_delivery=True)
async def test_after_a_restart_an_id_of_before_a_taking_back_counts_no_more(site: ParallelSite) -> None:
    first = await given_of(site, "aa")
    await site.nack(first[:1])
    second = await site.pull()
    assert offsets(second) == [0, 1]
    site.begin_again()

    with pytest.raises(AckTimeout):
        await site.acknowledge(first[1:])
    await site.acknowledge(second)
    assert await site.floor() == 2


@with_options(enable_message_ordering=True, enable_exactly_once_delivery=True)
async def test_after_a_restart_nothing_of_a_batch_is_given_before_its_leases_end(site: ParallelSite) -> None:
    first = await given_of(site, "aaa")
    site.begin_again()
    await site.acknowledge(first[:1])
    assert await site.pull() == []
    site.engines.clock.advance(2 * LEASE_PASSED_MS)
    assert await site.offsets() == [1, 2]


@with_ordering
async def test_leases_of_before_a_restart_hold_up_what_is_behind_them(site: ParallelSite) -> None:
    first = await given_of(site, "aaa", 2)
    site.begin_again()
    await site.extend(first[1:], 60)
    given = await site.pull()
    assert offsets(given) == [0]
    await site.acknowledge(given)
    assert await site.pull() == []
    await site.acknowledge(first[1:])
    assert await site.offsets() == [2]


@with_ordering
async def test_a_nack_that_cannot_be_stored_takes_nothing_back(site: ParallelSite) -> None:
    given = await given_of(site, "aaa", 2)
    with fail_calls(site.engines.cursors, "settle", CursorsUnavailable), pytest.raises(CursorsUnavailable):
        await site.nack(given[:1])
    assert await site.pull() == []
    await site.acknowledge(given)
    assert await site.offsets() == [2]


@with_ordering
async def test_a_retry_between_read_and_lease_comes_first(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    await publish(site, *"aaa")
    stream = FlowWindow(9, MANY_BYTES)
    first = await site.pull(1, window=stream)
    before_the_next_lease(monkeypatch, lambda: site.nack(first))

    assert (await site.pull(window=stream), await site.offsets(window=stream)) == ([], [0, 1, 2])


@with_ordering
async def test_nacks_of_a_key_that_cannot_be_stored_leave_it_in_order(site: ParallelSite) -> None:
    given = await given_of(site, "aaa", 2)
    with fail_calls(site.engines.cursors, "settle", CursorsUnavailable):
        found = await asyncio.gather(site.nack(given[1:]), site.nack(given[:1]), return_exceptions=True)
    assert [type(each) for each in found] == [CursorsUnavailable] * 2
    await site.acknowledge(given[:1])
    site.engines.clock.advance(LEASE_PASSED_MS)
    assert await site.offsets() == [1, 2]


@with_ordering
async def test_a_stream_forgets_what_was_ready_for_it_before_a_move(site: ParallelSite) -> None:
    await publish(site, *"aaaa")
    stream = FlowWindow(1, MANY_BYTES)
    assert (await site.offsets(window=stream), await site.pull(window=FlowWindow(9, MANY_BYTES))) == ([0], [])
    assert stream.ready
    site.working.opened.forget((await site.subscription()).id)
    stream.messages = 4

    assert await site.offsets(window=stream) == [0, 1, 2, 3]


@with_ordering
async def test_a_move_lets_a_key_begin_anew(site: ParallelSite) -> None:
    given = await given_of(site, "aaa")
    await site.acknowledge(given[:1])
    engines = site.engines
    seeker = Seeker(engines.registry, engines.log, engines.cursors, moved=site.working.opened.forget)
    await seeker.seek(site.caller, SUB, 0)

    with pytest.raises(AckTimeout):
        await site.acknowledge(given[1:])
    assert await site.offsets() == [0, 1, 2]
