"""Pulling from a parallel subscription: which messages a consumer gets, and how it waits for some."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ams.core.errors import AckTimeout, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.service.parallel.shares import MAX_OUT
from ams.storage.log.base import Bounds
from tests.service.parallel.site import (
    LATE,
    TOPIC,
    P,
    Site,
    ids_of,
    offsets,
    with_options,
)


async def test_two_consumers_get_different_messages_and_acknowledge_each_for_itself(site: Site) -> None:
    await site.publish(*range(6))
    first, second = await site.pull(3), await site.pull(3)
    assert (offsets(first), offsets(second)) == ([0, 1, 2], [3, 4, 5])
    await site.acknowledge([*second, first[1]])
    assert await site.floor() == 0
    await site.acknowledge([first[0]])
    assert await site.floor() == 2
    site.engines.clock.advance(LATE)
    assert offsets(await site.pull()) == [2]


async def test_a_message_comes_again_when_its_lease_has_ended_and_the_old_id_is_late(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull(1)
    site.engines.clock.advance(LATE)
    again = await site.pull(1)
    assert offsets(again) == [0]
    assert again[0].hand_out.startswith("2.")
    other = await site.pull(1)
    with pytest.raises(AckTimeout, match=f"^ack timeout: 0-{ids[0].hand_out}$"):
        await site.acknowledge([*ids, *other])
    assert await site.floor() == 0
    await site.acknowledge(again)
    assert await site.floor() == 2


async def test_a_waiting_pull_goes_on_when_a_message_is_given_back(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.puller.wait(await site.subscription(), P, "two", until))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await site.nack(ids)
    assert await asyncio.wait_for(waiting, 5)
    assert offsets(await site.pull()) == [0]


async def test_a_waiting_pull_goes_on_when_the_keeper_finds_that_a_lease_has_ended(site: Site) -> None:
    await site.publish(0)
    await site.pull()
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.puller.wait(await site.subscription(), P, "two", until))
    await asyncio.sleep(0.02)
    site.engines.clock.advance(LATE)
    await site.look()
    assert await asyncio.wait_for(waiting, 5)


async def test_a_waiting_pull_goes_on_when_the_topic_grows(site: Site) -> None:
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.puller.wait(await site.subscription(), P, "two", until))
    await asyncio.sleep(0.02)
    await site.publish(0)
    assert await asyncio.wait_for(waiting, 5)


@with_options(filter='attributes.n = "7" OR attributes.n = "8"')
async def test_what_the_filter_leaves_out_is_done_and_the_floor_moves(site: Site) -> None:
    await site.publish(*range(20))
    ids = await site.pull()
    assert offsets(ids) == [7, 8]
    await site.acknowledge(ids[:1])
    assert await site.floor() == 8
    await site.acknowledge(ids[1:])
    assert await site.floor() == 20


@with_options(enable_message_ordering=True)
async def test_one_message_of_a_key_is_under_way_at_a_time_in_order(site: Site) -> None:
    await site.publish(*range(6), key=lambda n: "even" if n % 2 == 0 else "")
    ids = await site.pull()
    assert offsets(ids) == [0, 1, 3, 5]
    assert await site.pull() == []
    await site.nack(ids[:1])
    [again] = await site.pull()
    assert again.offset == 0
    await site.acknowledge([again])
    following = await site.pull()
    assert offsets(following) == [2]
    site.begin_again()
    assert offsets(await site.pull()) == [1, 2, 3, 5]


async def test_a_consumer_that_never_comes_back_leaves_others_their_share(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.service.parallel.shares.MAX_OUT", 8)
    assert MAX_OUT > 8
    await site.publish(*range(20))
    assert len(await site.pull(20, "greedy")) == 8
    site.engines.clock.advance(LATE)
    assert len(await site.pull(4, "greedy")) == 4
    assert await site.pull(20, "greedy") == []
    assert len(await site.pull(20, "other")) == 4


async def test_what_is_done_while_a_pull_reads_after_a_restart_is_not_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(*range(5))
    ids = await site.pull()
    await site.acknowledge([ids[1], ids[2]])
    site.begin_again()
    whole = site.engines.log.read

    async def read(*given: Any, **more: Any) -> Any:
        found = await whole(*given, **more)
        await site.acknowledge([ids[0]])
        return found

    monkeypatch.setattr(site.engines.log, "read", read)
    assert offsets(await site.pull()) == [3, 4]


async def test_what_is_acknowledged_between_a_read_and_its_lease_is_not_given(site: Site) -> None:
    await site.publish(*range(5))
    ids = await site.pull()
    site.begin_again()
    site.before_the_next_lease(lambda: site.acknowledge([ids[2]]))
    assert offsets(await site.pull()) == [0, 1, 3, 4]


async def test_a_pull_takes_as_many_bytes_as_it_may_and_one_message_at_least(site: Site) -> None:
    await site.publish(0, 1, 2)
    lots = await site.working.puller.pull(await site.subscription(), 100, project=P, holder="one", max_bytes=1)

    assert offsets(ids_of(lots)) == [0]


async def test_behind_messages_that_come_again_a_pull_has_new_ones(site: Site) -> None:
    await site.publish(*range(6))
    first = await site.pull(3)
    await site.nack(first[1:])
    found = await site.pull(4)

    assert offsets(found) == [1, 2, 3, 4]
    assert [each.hand_out.split(".")[0] for each in found] == ["2", "2", "1", "1"]
    assert offsets(await site.pull()) == [5]
    await site.acknowledge([first[0], *found])
    assert await site.floor() == 5


async def test_a_new_message_that_fits_no_more_behind_one_that_comes_again_is_the_next(site: Site) -> None:
    await site.publish(0, 1, 2)
    await site.nack(await site.pull(1))
    topic = await site.engines.registry.topics.find(site.caller.here.id, TOPIC)
    assert topic is not None
    size = len((await site.engines.log.read(topic.id, Offset(0), max_messages=1, max_bytes=1))[0].fragment)
    subscription = await site.subscription()
    pulls = [
        offsets(ids_of(await site.working.puller.pull(subscription, 9, project=P, holder="one", max_bytes=most)))
        for most in (2 * size - 1, size, 2 * size)
    ]

    assert pulls == [[0], [1], [2]]


async def test_what_comes_again_is_given_back_when_new_messages_cannot_be_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert offsets(await site.pull()) == [0, 1]


@with_options(enable_message_ordering=True)
async def test_behind_a_message_that_comes_again_a_pull_has_none_of_its_key(site: Site) -> None:
    await site.publish(0, 1, 2, 3, key=lambda each: "a" if each in {0, 2} else "")
    await site.nack(await site.pull(1))

    assert offsets(await site.pull()) == [0, 1, 3]


async def test_what_is_published_while_a_pull_looks_for_it_is_not_passed_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.pull()
    bounds, is_published = site.engines.log.bounds, False

    async def after_a_publish(topic: TopicId) -> Bounds:
        nonlocal is_published
        if not is_published:
            is_published = True
            await site.publish(1, 2)
        return await bounds(topic)

    monkeypatch.setattr(site.engines.log, "bounds", after_a_publish)
    assert offsets(await site.pull()) == [0, 1]


async def test_what_cannot_be_read_for_a_moment_comes_again_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.publish(0, 1)
    await site.nack(await site.pull())
    with monkeypatch.context() as empty:
        empty.setattr(site.engines.log, "read", _nothing)
        assert await site.pull() == []
    assert offsets(await site.pull()) == [0, 1]


async def _nothing(*_: object, **__: object) -> Sequence[object]:
    return ()


async def test_what_waits_for_something_to_lease_is_woken_by_new_messages_and_by_failures(site: Site) -> None:
    await site.publish(0)
    identity = (await site.subscription()).id
    assert site.working.puller.coming(identity, 1, holder="one") is None  # nobody works on it
    pulled = await site.pull()

    nothing_comes = site.working.puller.coming(identity, 0.01, holder="one")
    assert nothing_comes is not None
    with pytest.raises(TimeoutError):
        await nothing_comes

    for change in (lambda: site.publish(1), lambda: site.nack(pulled)):
        coming = site.working.puller.coming(identity, 60, holder="one")
        assert coming is not None
        waiting = asyncio.create_task(coming)
        await asyncio.sleep(0)
        await change()
        await waiting
        await site.pull()
