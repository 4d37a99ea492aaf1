"""What comes of messages without anybody asking: waits after failures, and dead letters."""

import asyncio

import structlog.testing

from ams.core.errors import CursorsUnavailable
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import NO_TOPIC
from ams.service.parallel.backlog import KEPT
from ams.service.parallel.watching import findings
from ams.service.seeking import Seeker
from tests.service.interference import failing
from tests.service.parallel.site import DIES, LETTERS, SUB, WAITS, Site, with_options


@with_options(retry_policy=WAITS)
async def test_waits_after_failures_double_up_to_the_maximum_while_others_go_on(site: Site) -> None:
    await site.publish(0, 1)
    waits = []
    for _ in range(4):
        [failed] = await site.pull(1)
        await site.nack([failed])
        waited = 0
        while not (await site.opened()).backlog.is_again_ready:
            site.engines.clock.advance(100)
            waited += 100
            await site.look()
        waits.append(waited)
    assert waits == [2000, 4000, 8000, 8000]
    assert await site.offsets(1) == [0]
    assert await site.offsets(1) == [1]


@with_options(dead_letter_policy=DIES)
async def test_a_dead_letter_is_there_once_when_its_acknowledgement_is_lost(site: Site) -> None:
    await site.publish(0)
    await site.fail(5)
    with failing(site.engines.cursors, "settle", CursorsUnavailable):
        await site.look()
    assert len(await site.letters()) == 1
    site.begin_again()
    assert await site.pull() == []
    await site.look()
    assert len(await site.letters()) == 1
    assert await site.floor() == 1


@with_options(dead_letter_policy=DIES)
async def test_a_message_that_fails_again_after_a_seek_is_put_aside_again(site: Site) -> None:
    await site.publish(0)
    for _ in range(2):
        await site.fail(5)
        site.begin_again()  # another process puts it aside
        await site.pull()
        await site.look()
        seeker = Seeker(site.engines.registry, site.engines.log, site.engines.cursors, moved=site.working.opened.forget)
        await seeker.seek(site.caller, SUB, 0)
    assert [each["deadLetterAttempts"] for each in await site.letters()] == ["5", "5"]


@with_options(dead_letter_policy=DIES)
async def test_what_cannot_be_put_aside_stays_is_given_again_and_the_doctor_says_why(site: Site) -> None:
    await site.publish(0)
    await site.fail(5)
    await site.engines.topics.delete(site.caller, LETTERS)
    with structlog.testing.capture_logs() as said:
        await site.look()
    assert [each["reason"] for each in said if each["event"] == "dead_letter.put_off"] == [NO_TOPIC]
    assert await site.pull() == [], "not at once"
    opened = await site.opened()
    reason = (
        f"Message 0 failed 5 times, and comes again and again: what failed 5 times could not be put aside, {NO_TOPIC}."
    )
    assert reason in [each.text for each in findings(opened, names_holders=True) if each.wrong]
    site.engines.clock.advance(KEPT + 200)
    [again] = await site.pull()
    assert again.hand_out.startswith("6.")
    await site.engines.topics.create(site.caller, LETTERS)
    await site.nack([again])
    await site.look()
    assert (len(await site.letters()), await site.floor()) == (1, 1)
    assert not opened.kept_because


@with_options(dead_letter_policy=DIES, enable_message_ordering=True)
async def test_a_message_that_failed_out_before_the_process_ended_is_not_given_again(site: Site) -> None:
    await site.publish(0, 1, key=lambda _: "k")
    await site.fail(5)
    site.begin_again()
    assert await site.pull() == []
    await site.look()
    assert [each["n"] for each in await site.letters()] == ["0"]
    assert await site.offsets() == [1]


async def test_closing_ends_also_in_the_moment_in_which_something_becomes_due_sooner(site: Site) -> None:
    await site.working.start(Supervisor())
    for _ in range(20):
        await asyncio.sleep(0)
    site.working.due.look_now()
    await site.working.close()
