"""Pulling from a parallel subscription: the messages of each consumer, and waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import Offset, TopicId
from ams.service.parallel.backlog import MAX_OUT
from ams.service.parallel.metrics import findings
from ams.service.parallel.pulls import MAX_READ_MESSAGES, MAX_SCAN_MS
from tests.service.interference import interrupt_call
from tests.service.parallel.site import LEASE_PASSED_MS, ParallelSite, offsets, with_options
from tests.support.waiting import some_turns, wait_until_async


async def test_a_consumer_that_is_gone_leaves_others_their_share(site: ParallelSite, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ams.service.parallel.backlog.MAX_OUT", 8)
    assert MAX_OUT > 8
    await site.publish(*range(20))
    assert len(await site.pull(20, "greedy")) == 8
    site.engines.clock.advance(LEASE_PASSED_MS)
    assert (len(await site.pull(4, "greedy")), await site.pull(20, "greedy")) == (4, [])
    assert len(await site.pull(20, "other")) == 4


async def test_what_is_done_while_a_pull_reads_after_a_restart_is_not_given(site: ParallelSite) -> None:
    ids = await site.publish_and_pull(*range(5))
    await site.acknowledge([ids[1], ids[2]])
    site.begin_again()
    with interrupt_call(site.engines.log, "read", after=lambda: site.acknowledge([ids[0]])):
        assert await site.offsets() == [3, 4]


async def test_a_new_message_that_fits_no_more_behind_one_that_comes_again_is_the_next(site: ParallelSite) -> None:
    """A pull takes as many bytes as fit, and one message at least."""
    await site.publish(0, 1, 2, 3)
    await site.nack(await site.pull(1))
    topic = await site.topic()
    size = len((await site.engines.log.read(topic.id, 0, max_messages=1, max_bytes=1))[0].fragment)

    assert [await site.offsets(9, max_bytes=most) for most in (2 * size - 1, size, 1)] == [[0], [1], [2]]


async def test_retries_are_given_back_when_a_read_fails(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.publish(0, 1)
    await site.nack(await site.pull(1))
    read = site.engines.log.read

    async def fails_behind(topic: TopicId, start: Offset, **limits: int) -> Sequence[object]:
        if start > 0:
            raise LogUnavailable("not now")
        return await read(topic, start, **limits)

    with monkeypatch.context() as broken:
        broken.setattr(site.engines.log, "read", fails_behind)
        with pytest.raises(LogUnavailable):
            await site.pull()
    assert await site.offsets() == [0, 1]


async def test_what_is_published_while_a_pull_looks_for_it_is_not_passed_over(site: ParallelSite) -> None:
    await site.pull()
    with interrupt_call(site.engines.log, "bounds", lambda: site.publish(1, 2)):
        assert await site.offsets() == [0, 1]


async def test_what_waits_for_something_to_lease_is_woken_by_new_messages_and_by_failures(site: ParallelSite) -> None:
    await site.publish(0)
    identity = (await site.subscription()).id
    assert site.working.puller.message_waiter(identity, 1, holder="one") is None  # nobody works on it
    pulled = await site.pull()

    nothing_comes = site.working.puller.message_waiter(identity, 0.01, holder="one")
    assert nothing_comes is not None
    with pytest.raises(TimeoutError):
        await nothing_comes

    for change in (lambda: site.publish(1), lambda: site.nack(pulled)):
        waiting = asyncio.create_task(site.working.puller.message_waiter(identity, 60, holder="one"))
        await asyncio.sleep(0)
        await change()
        await waiting
        await site.pull()


# A filter that excludes most messages

with_filter = with_options(filter='hasPrefix(attributes.n, "9999")')


@with_filter
@pytest.mark.parametrize("most", [1, 10, 3000])
async def test_a_pull_looks_behind_all_that_the_filter_passes_over(site: ParallelSite, most: int) -> None:
    await site.publish(*range(5 * MAX_READ_MESSAGES), 9999, 99990, 99991)

    assert await site.offsets(most) == [5000, 5001, 5002][:most]
    left = await site.pull(most) if most == 1 else []
    assert [each.offset for each in left] == ([5001] if most == 1 else [])


@with_filter
async def test_a_pull_ends_in_time_and_the_next_goes_on(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.publish(*range(3 * MAX_READ_MESSAGES), 9999)
    read, starts = site.engines.log.read, []

    async def pull_slowly(topic: Any, start: Any, **limits: int) -> Any:
        starts.append(start)
        site.engines.clock.advance(MAX_SCAN_MS // 2)
        return await read(topic, start, **limits)

    monkeypatch.setattr(site.engines.log, "read", pull_slowly)
    assert await site.pull(MAX_READ_MESSAGES) == []
    assert starts == [0, MAX_READ_MESSAGES]
    assert await site.offsets(MAX_READ_MESSAGES) == [3 * MAX_READ_MESSAGES]


@with_options(enable_message_ordering=True)
async def test_a_pull_looks_behind_all_that_is_blocked_by_its_key(site: ParallelSite) -> None:
    await site.publish(*range(2 * MAX_READ_MESSAGES), key=lambda n: "k" if n < 2 * MAX_READ_MESSAGES - 1 else "other")

    assert (await site.offsets(1), await site.offsets(1)) == ([0], [2 * MAX_READ_MESSAGES - 1])


# Waiting pulls


@contextlib.asynccontextmanager
async def waiting_for(site: ParallelSite, holder: str) -> AsyncIterator["asyncio.Future[bool]"]:
    """Let a consumer wait in a pull."""
    before = site.deliverer.waiting
    until = asyncio.get_running_loop().time() + 60
    waiting = asyncio.ensure_future(site.working.puller.wait(await site.subscription(), holder, until))
    await wait_until_async(lambda: site.deliverer.waiting > before)
    await some_turns()
    yield waiting
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("change", ["nack", "end of a lease", "publish"])
async def test_a_waiting_pull_goes_on_when_there_is_something_to_lease(site: ParallelSite, change: str) -> None:
    ids = await site.publish_and_pull(0)
    async with waiting_for(site, "two") as waiting:
        assert not waiting.done()
        if change == "nack":
            await site.nack(ids)
        elif change == "publish":
            await site.publish(1)
        else:
            site.engines.clock.advance(LEASE_PASSED_MS)
            await site.look()
        assert await waiting
    assert len(await site.pull()) == 1


async def test_an_acknowledgement_wakes_who_had_no_room(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.service.parallel.backlog.MAX_OUT", 4)
    await site.publish(*range(9))
    ids = await site.pull(2, "one")
    assert await site.pull(9, "one") == []
    async with waiting_for(site, "one") as waiting:
        await site.acknowledge(ids[:1])
        assert await waiting
    assert len(await site.pull(9, "one")) == 2


async def test_an_acknowledgement_wakes_waiting_consumers(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.service.parallel.backlog.MAX_SPAN", 2)
    await site.publish(*range(4))
    ids = await site.pull(2)
    assert await site.pull(2) == []
    async with waiting_for(site, "two") as waiting:
        await site.acknowledge(ids[1:])
        await some_turns()
        assert not waiting.done(), "the oldest is not done"
        await site.acknowledge(ids[:1])
        assert await waiting


async def test_a_pull_that_waits_leaves_nothing_behind(site: ParallelSite) -> None:
    await site.pull()
    opened = await site.open_subscription()
    async with waiting_for(site, "one"), waiting_for(site, "one"), waiting_for(site, "two"):
        assert [len(each) for each in opened.waiting.values()] == [2, 1]
    assert not opened.waiting


# One consumer's share, and the others'


async def test_a_consumer_may_take_half_of_the_free_bytes(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.publish(*range(40))
    [first] = await site.pull(1)
    backlog = (await site.open_subscription()).backlog
    size = backlog.leases.bytes
    await site.acknowledge([first])
    monkeypatch.setattr("ams.service.parallel.backlog.MAX_OUT_BYTES", 8 * size)
    greedy = await site.pull(4, "greedy")
    assert len(greedy) == 4
    assert await site.pull(40, "greedy") == []
    assert 1 <= len(await site.pull(40, "other")) <= 4
    await site.acknowledge(greedy)
    assert backlog.room_bytes("greedy") > 0


@pytest.mark.parametrize(("limit", "most", "said"), [
    ("MAX_OUT", 3, "Its room is used up, 3 messages are out: pulls wait until some are acknowledged or their"
     " leases end."),
    ("MAX_OUT_BYTES", 1, "Its room is used up, 1 bytes of messages are out: pulls wait until some are acknowledged"
     " or their leases end."),
    ("MAX_HELD_BACK", 0, "0 messages are to be given again or blocked: no new ones before some are done."),
    ("MAX_SPAN", 4, "Message 0 is 4 behind the newest that was given: no new ones before it is done."),
    ("MANY_MESSAGES", 1, "Message 0 is the oldest that is not acknowledged, while 1 message after it is: it is on"
     " lease to one."),
])  # fmt: skip
async def test_room_that_is_used_up_is_said(
    site: ParallelSite, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, said: str
) -> None:
    await site.publish(*range(4))
    await site.acknowledge((await site.pull(4))[1:2])
    opened = await site.open_subscription()
    assert not any(each.wrong for each in findings(opened, names_holders=True))

    monkeypatch.setattr(f"ams.service.parallel.metrics.{limit}", most)

    assert [each.text for each in findings(opened, names_holders=True) if each.wrong] == [said]


async def test_a_consumer_that_returns_all_leaves_a_share(site: ParallelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.service.parallel.backlog.MAX_HELD_BACK", 8)
    monkeypatch.setattr("ams.service.parallel.metrics.MAX_HELD_BACK", 8)
    await site.publish(*range(20))
    for _ in range(4):
        await site.nack(await site.pull(1, "greedy"), 600_000)
    assert await site.pull(20, "greedy") == []
    opened = await site.open_subscription()
    said = "4 messages wait to be given again that failed with one consumer: it gets no new ones before."
    assert said in [each.text for each in findings(opened, names_holders=True) if each.wrong]

    others = await site.pull(3, "other")
    assert offsets(others) == [4, 5, 6]
    await site.nack(others[:1], 0)
    assert await site.offsets(1, "greedy") == [4], "what comes again at once is for everybody"
