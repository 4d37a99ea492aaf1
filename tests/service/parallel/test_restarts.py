"""What ids of before a restart are worth after it."""

import asyncio

import pytest
from pyroaring import BitMap64

from ams.core.ack_ids import AckId, AckIds
from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, CursorsUnavailable
from ams.core.names import Offset
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.service.parallel.backlog import SOMEBODY, Backlog, Rules
from ams.storage.cursors.acks import Progress
from tests.service.parallel.site import LATE, Site, offsets, with_options

RULES = Rules(Milliseconds(200), Milliseconds(3000))
GRACE = 2000
X, Y = "1.1.2.1.abcdef", "1.1.2.2.abcdef"
"""Hand-outs of the run before."""
NOW = Milliseconds(1)


def after_a_restart(rules: Rules = RULES) -> Backlog:
    """Return a subscription of four messages, in its third run, that may all be out by now."""
    progress = Progress(Offset(0), 1, 3, BitMap64(), {}, None)
    return Backlog(progress, "abcdef", rules, end=Offset(4), grace_until=Milliseconds(GRACE))


def ids_of(text: str, *numbers: int) -> AckIds:
    return {text: [Offset(each) for each in numbers]}


def looked_at(backlog: Backlog, key: str = "", now: int = NOW) -> list[Offset]:
    """Look at all that was not seen yet; return what may be given."""
    here = backlog.undone(backlog.scan, Offset(4))
    found = [each for each in here if backlog.may_give(each, key, Milliseconds(now))]
    backlog.scanned(Offset(4))
    return found


def test_ids_of_the_run_before_the_last_one_are_late() -> None:
    backlog = after_a_restart()
    old = "1.1.1.1.abcdef"
    for settled in (backlog.acknowledge, backlog.nack):
        assert settled(ids_of(old, 0, 3), NOW).late == [AckId(Offset(0), old), AckId(Offset(3), old)]
    assert len(backlog.release(ids_of(old, 0), NOW)) == 1
    assert len(backlog.extend(ids_of(old, 0), Milliseconds(GRACE), NOW)) == 1

    assert looked_at(backlog) == [0, 1, 2, 3]


def test_a_message_that_two_ids_name_is_acknowledged_once() -> None:
    backlog = after_a_restart()
    settling = backlog.acknowledge({**ids_of(X, 0, 1, 3), **ids_of(Y, 0)}, NOW)
    backlog.stored(settling, NOW)

    assert settling.done == [0, 1, 3]
    assert settling.late == [AckId(Offset(0), Y)]
    assert backlog.floor == 2


def test_an_id_counts_no_more_once_the_message_was_given_and_released() -> None:
    backlog = after_a_restart()
    text = backlog.give([Offset(0)], 1, 10, Milliseconds(1000), "somebody")
    backlog.scanned(Offset(1))
    backlog.release({text: [Offset(0)]}, NOW)

    assert backlog.acknowledge(ids_of(X, 0), NOW).late
    assert backlog.again(1) == [0]


def test_a_lease_that_is_extended_holds_until_its_new_deadline_also_behind_the_time_for_ids_of_before() -> None:
    backlog = after_a_restart()
    until = Milliseconds(10 * GRACE)
    assert not backlog.extend(ids_of(X, 1), until, NOW, "one")
    assert not backlog.may_give_all(Offset(0), Offset(4))
    assert looked_at(backlog) == [0, 2, 3]
    assert (backlog.holder_of(Offset(1)), backlog.out) == ("one", 1)

    assert backlog.expire(until).is_empty
    assert len(backlog.acknowledge(ids_of(Y, 1), until).late) == 1
    assert backlog.acknowledge(ids_of(X, 1), until).done == [1]


def test_a_lease_that_was_extended_ends_as_any_other() -> None:
    backlog = after_a_restart()
    backlog.extend(ids_of(X, 1), Milliseconds(500), NOW)
    backlog.extend(ids_of(X, 1), Milliseconds(1000), NOW)
    assert looked_at(backlog) == [0, 2, 3]
    settling = backlog.expire(Milliseconds(1200))
    assert settling.failures == {1: 1}
    backlog.stored(settling, Milliseconds(1200))

    assert len(backlog.acknowledge(ids_of(X, 1), Milliseconds(1200)).late) == 1
    backlog.expire(Milliseconds(1400))
    assert backlog.again(4) == [1]


def test_what_is_withheld_and_extended_is_given_to_nobody_before_its_lease_ends() -> None:
    backlog = after_a_restart()
    backlog.withhold(Offset(4), Milliseconds(GRACE))
    assert looked_at(backlog) == []
    backlog.extend(ids_of(X, 2), Milliseconds(10 * GRACE), NOW)
    assert backlog.expire(Milliseconds(2 * GRACE)).is_empty

    assert backlog.again(4) == [0, 1, 3]


def test_a_lease_goes_on_when_what_its_id_of_before_settles_cannot_be_stored() -> None:
    backlog = after_a_restart()
    backlog.withhold(Offset(4), Milliseconds(GRACE))
    looked_at(backlog)
    backlog.not_stored(backlog.acknowledge(ids_of(X, 0), NOW))

    assert not backlog.is_again_ready
    assert backlog.holder_of(Offset(0)) == SOMEBODY
    assert backlog.acknowledge(ids_of(X, 0), Milliseconds(GRACE)).done == [0]


def test_the_key_of_a_message_on_lease_is_under_way_when_it_is_looked_at() -> None:
    backlog = after_a_restart()
    backlog.extend(ids_of(X, 0), Milliseconds(GRACE), NOW)
    assert looked_at(backlog, "key") == []
    assert backlog.blocked == 3
    backlog.stored(backlog.acknowledge(ids_of(X, 0), NOW), NOW)

    assert backlog.again(4) == [1]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_nack_is_a_failure_that_is_stored_and_waits(is_seen: bool) -> None:
    backlog = after_a_restart()
    if is_seen:
        backlog.withhold(Offset(4), Milliseconds(GRACE))
        looked_at(backlog)
    settling = backlog.nack(ids_of(X, 1), NOW, Milliseconds(5 * GRACE))
    assert settling.failures == {1: 1}
    backlog.stored(settling, NOW)
    assert 1 not in looked_at(backlog)
    backlog.expire(Milliseconds(2 * GRACE))
    assert 1 not in backlog.again(4)

    backlog.expire(Milliseconds(5 * GRACE + 100))
    assert backlog.again(4) == [1]
    assert backlog.attempt_of(Offset(1)) == 2


def test_what_a_nack_lets_come_at_once_is_given_once() -> None:
    backlog = after_a_restart()
    backlog.stored(backlog.nack(ids_of(X, 1), NOW, Milliseconds(0)), NOW)

    assert not backlog.is_again_ready
    assert looked_at(backlog) == [0, 1, 2, 3]


def test_what_is_nacked_while_it_waits_to_be_given_comes_after_its_delay() -> None:
    backlog = after_a_restart()
    backlog.give_back(looked_at(backlog))  # as its consumer could not get it
    backlog.stored(backlog.nack(ids_of(X, 1), NOW, Milliseconds(500)), NOW)

    assert backlog.taken_of([Offset(0), Offset(1)]) == {1}
    assert backlog.again(4) == [0, 2, 3]


def test_a_nack_of_the_last_attempt_puts_a_message_aside_once() -> None:
    backlog = after_a_restart(RULES._replace(most_attempts=1))
    backlog.stored(backlog.nack(ids_of(X, 1), NOW), NOW)
    assert backlog.dead == []
    assert looked_at(backlog) == [0, 2, 3]

    assert backlog.dead == [1]


def test_what_is_given_back_unused_comes_at_once_also_before_leases_of_then_have_ended() -> None:
    backlog = after_a_restart()
    backlog.withhold(Offset(4), Milliseconds(GRACE))
    looked_at(backlog)
    assert not backlog.release(ids_of(X, 1), NOW)

    assert backlog.again(4) == [1]
    assert len(backlog.acknowledge(ids_of(X, 1), NOW).late) == 1


def test_exactly_once_the_id_of_before_that_finished_a_message_may_say_so_again() -> None:
    backlog = after_a_restart(RULES._replace(exactly_once=True))
    backlog.stored(backlog.acknowledge(ids_of(X, 1), NOW), NOW)

    assert not backlog.acknowledge(ids_of(X, 1), NOW).late
    assert len(backlog.acknowledge(ids_of(Y, 1), NOW).late) == 1


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


async def test_what_is_extended_between_a_read_and_its_lease_is_not_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(*range(4))
    ids = await site.pull()
    site.begin_again()
    whole = site.working.puller._afforded

    async def afforded(*given: object) -> object:
        found = await whole(*given)  # type: ignore[arg-type]
        await site.extend([ids[2]], 60)
        return found

    monkeypatch.setattr(site.working.puller, "_afforded", afforded)
    assert offsets(await site.pull()) == [0, 1, 3]
    await site.acknowledge([ids[2]])


@with_options(dead_letter_policy=DeadLetterPolicy("letters", 5))
async def test_what_fails_for_the_last_time_between_a_read_and_its_lease_is_not_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0, 1)
    for _ in range(4):
        await site.nack(await site.pull(1))
    ids = await site.pull()
    site.begin_again()
    whole = site.working.puller._afforded

    async def afforded(*given: object) -> object:
        found = await whole(*given)  # type: ignore[arg-type]
        await site.nack(ids[:1])
        return found

    monkeypatch.setattr(site.working.puller, "_afforded", afforded)
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
