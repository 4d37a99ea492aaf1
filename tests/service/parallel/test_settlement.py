"""Settling by ids, expiry of leases, and changes of the options meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import structlog.testing

from ams.core.ack_ids import AckId, NeverGiven
from ams.core.errors import AckTimeout, CursorsUnavailable
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import NO_TOPIC
from ams.service.parallel.backlog import DEAD_LETTER_RETRY_MS
from ams.service.parallel.metrics import ParallelMetrics, findings
from ams.service.parallel.settlement import SHOWN_IDS, SLICE
from ams.service.subscription_offsets import Seeker
from tests.service.interference import fail_calls
from tests.service.parallel.site import (
    DEAD_LETTER_POLICY,
    LEASE_PASSED_MS,
    LETTERS,
    RETRY_POLICY,
    SUB,
    ParallelSite,
    with_options,
)
from tests.support.waiting import PATIENCE_SECONDS, some_turns


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """Return how many other callbacks of the event loop ran meanwhile."""
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_very_many_ids_are_dealt_with_in_slices_others_having_turns_in_between(site: ParallelSite) -> None:
    many = await site.publish_and_pull(*range(4)) * SLICE
    assert await turns_during(site.extend(many, 60)) >= 8
    assert await turns_during(site.nack(many, 0)) >= 8
    assert await turns_during(site.acknowledge(await site.pull() * SLICE)) >= 8
    assert await site.floor() == 4


async def test_of_very_many_ids_nothing_is_done_when_some_were_never_given(site: ParallelSite) -> None:
    given = await site.publish_and_pull(*range(4))
    bad, worse = (AckId(offset, given[0].hand_out) for offset in (9, 10))
    for work in (site.acknowledge, site.nack, lambda ids: site.extend(ids, 30)):
        with pytest.raises(NeverGiven, match="^Invalid ack id$") as error:
            await work([bad, *given * SLICE, worse, bad])
        assert set(error.value.ids) == {bad, worse}
    assert (await site.floor(), await site.pull()) == (0, [])
    await site.acknowledge(given)


async def test_of_very_many_ids_those_that_are_late_are_counted_and_the_others_are_done(site: ParallelSite) -> None:
    await site.publish(*range(2 * SLICE + 2))
    late = await site.pull(SLICE + 1)
    site.engines.clock.advance(LEASE_PASSED_MS)
    good = await site.pull(2 * SLICE + 2)
    with pytest.raises(AckTimeout, match=f"^ack timeout: 0-.* and {len(late) - SHOWN_IDS} more$"):
        await site.acknowledge([*late, *good])
    assert await site.floor() == len(good)


async def test_a_repeat_is_stored_when_the_first_cannot_be(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await site.publish_and_pull(0)
    settle, begun, fails = site.engines.cursors.settle, asyncio.Event(), asyncio.Event()

    async def fail(*_: object) -> bool:
        begun.set()
        monkeypatch.setattr(site.engines.cursors, "settle", settle)
        await fails.wait()
        raise CursorsUnavailable

    monkeypatch.setattr(site.engines.cursors, "settle", fail)
    first = asyncio.create_task(site.acknowledge(ids))
    await begun.wait()
    repeated = asyncio.create_task(site.acknowledge(ids))
    await some_turns()
    fails.set()
    with pytest.raises(CursorsUnavailable):
        await first
    await repeated
    assert await site.floor() == 1


async def test_an_acknowledgement_is_stored_also_when_its_client_leaves(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(0)
    leaving = asyncio.ensure_future(site.acknowledge(ids))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await site.acknowledge(ids)
    assert await site.floor() == 1


@with_options(retry_policy=RETRY_POLICY)
async def test_waits_after_failures_double_up_to_the_maximum_while_others_go_on(site: ParallelSite) -> None:
    await site.publish(0, 1)
    waits = []
    for _ in range(4):
        [failed] = await site.pull(1)
        await site.nack([failed])
        waited = 0
        while not (await site.open_subscription()).backlog.has_ready:
            site.engines.clock.advance(100)
            waited += 100
            await site.look()
        waits.append(waited)
    assert waits == [2000, 4000, 8000, 8000]
    assert (await site.offsets(1), await site.offsets(1)) == ([0], [1])


@with_options(dead_letter_policy=DEAD_LETTER_POLICY)
async def test_a_dead_letter_is_there_once_when_its_acknowledgement_is_lost(site: ParallelSite) -> None:
    await site.publish(0)
    await site.fail(5)
    with fail_calls(site.engines.cursors, "settle", CursorsUnavailable):
        await site.look()
    assert len(await site.letters()) == 1
    site.begin_again()
    assert await site.pull() == []
    await site.look()
    assert (len(await site.letters()), await site.floor()) == (1, 1)


@with_options(dead_letter_policy=DEAD_LETTER_POLICY)
async def test_a_message_that_fails_again_after_a_seek_is_put_aside_again(site: ParallelSite) -> None:
    await site.publish(0)
    for _ in range(2):
        await site.fail(5)
        site.begin_again()  # another process puts it aside
        await site.pull()
        await site.look()
        seeker = Seeker(site.engines.registry, site.engines.log, site.engines.cursors, moved=site.working.opened.forget)
        await seeker.seek(site.caller, SUB, 0)
    assert [each["deadLetterAttempts"] for each in await site.letters()] == ["5", "5"]


@with_options(dead_letter_policy=DEAD_LETTER_POLICY)
async def test_what_cannot_be_put_aside_stays_is_given_again_and_the_doctor_says_why(site: ParallelSite) -> None:
    await site.publish(0)
    await site.fail(5)
    await site.engines.topics.delete(site.caller, LETTERS)
    with structlog.testing.capture_logs() as said:
        await site.look()
    assert [each["reason"] for each in said if each["event"] == "dead_letter.put_off"] == [NO_TOPIC]
    assert await site.pull() == [], "not at once"
    opened = await site.open_subscription()
    reason = (
        f"Message 0 failed 5 times, and comes again and again: what failed 5 times could not be put aside, {NO_TOPIC}."
    )
    assert reason in [each.text for each in findings(opened, names_holders=True) if each.wrong]
    site.engines.clock.advance(DEAD_LETTER_RETRY_MS - 200)
    assert await site.pull() == []
    site.engines.clock.advance(400)
    [again] = await site.pull()
    assert again.hand_out.startswith("6.")
    await site.engines.topics.create(site.caller, LETTERS)
    await site.nack([again])
    await site.look()
    assert (len(await site.letters()), await site.floor()) == (1, 1)
    assert not opened.kept_because


@with_options(dead_letter_policy=DEAD_LETTER_POLICY, enable_message_ordering=True)
async def test_a_message_that_failed_out_before_the_process_ended_is_not_given_again(site: ParallelSite) -> None:
    await site.publish(0, 1, key=lambda _: "k")
    await site.fail(5)
    site.begin_again()
    assert await site.pull() == []
    await site.look()
    assert ([each["n"] for each in await site.letters()], await site.offsets()) == (["0"], [1])


async def test_closing_ends_also_in_the_moment_in_which_something_becomes_due_sooner(site: ParallelSite) -> None:
    await site.working.start(Supervisor())
    await some_turns()
    site.working.opened.wake_sweeper()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await site.working.close()


def gauges(watched: ParallelMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {each.name: [(dict(labels), value) for labels, value in each.values] for each in watched.gauges()}


@pytest.mark.parametrize("by_name", [False, True])
async def test_figures_of_all_that_is_worked_on(site: ParallelSite, by_name: bool) -> None:
    clock = site.engines.clock
    watched = ParallelMetrics(site.working, site.engines.log, clock, by_name=by_name)
    assert gauges(watched)["ams_parallel_subscriptions"] == [({}, 0)]
    await site.publish(*range(5))
    ids = await site.pull(4)
    await site.nack(ids[:1])
    await site.acknowledge(ids[1:2])
    await watched.look()
    clock.advance(2500)

    found = gauges(watched)
    labels = {"project": "P", "subscription": "s"} if by_name else {}
    assert found.pop("ams_parallel_subscriptions") == [({}, 1)]
    assert found == {
        "ams_parallel_leased": [(labels, 2)], "ams_parallel_waiting": [(labels, 1)],
        "ams_parallel_blocked": [(labels, 0)], "ams_parallel_oldest_seconds": [(labels, 2.5)],
    }  # fmt: skip
    assert [(each.name, each.values[0][1]) for each in watched.counters()] == [
        ("ams_parallel_failures", 1),
        ("ams_parallel_dead_letters", 0),
    ]
