"""What is found when a subscription is opened anew: after a seek, for a topic made again, with a log put back."""

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout
from ams.core.names import Offset
from ams.service.parallel.leases import Window
from ams.service.seeking import Seeker
from ams.storage.cursors.acks import Change
from tests.service.parallel.site import SUB, TOPIC, P, Site, grouped, ids_of, offsets, with_options


async def test_a_seek_makes_earlier_ids_late_and_gives_everything_again(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    await site.acknowledge(ids[:1])
    seeker = Seeker(site.engines.registry, site.engines.log, site.engines.cursors, moved=site.working.opened.forget)
    await seeker.seek(site.caller, SUB, 0)
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[1:])
    assert offsets(await site.pull()) == [0, 1, 2]


async def test_a_stream_that_is_full_has_room_again_when_its_subscription_is_let_go(site: Site) -> None:
    await site.publish(*range(5))
    subscription, window = await site.subscription(), Window(3, 10_000)
    turns: list[int] = []
    window.freed = lambda: turns.append(window.messages)
    lots = await site.working.puller.pull(subscription, 100, project=P, holder="one", window=window)
    ids = ids_of(lots)
    await site.acknowledge(ids[:1])
    opened = site.working.opened.get(subscription.id)
    assert opened is not None
    backlog = opened.backlog
    settling = backlog.acknowledge(grouped(ids[1:2]), site.engines.clock.monotonic())
    turns.clear()
    site.working.opened.forget(subscription.id)
    assert (window.messages, window.bytes, turns) == (3, 10_000, [3])
    backlog.not_stored(settling)
    assert (window.messages, window.bytes) == (3, 10_000)


@with_options(message_retention=Milliseconds(600_000))
async def test_where_it_stands_is_said_of_one_moment_also_when_retention_has_just_passed_it(site: Site) -> None:
    engines, working = site.engines, site.working
    seeker = Seeker(engines.registry, engines.log, engines.cursors, working=working, clock=engines.clock)
    await site.publish(*range(50))
    ids = await site.pull()
    await site.extend(ids, 600)
    await site.acknowledge(ids[1:])
    engines.clock.advance(599_000)
    await site.publish(50, 51)
    engines.clock.advance(2_000)
    found = await seeker.offsets(site.caller, SUB)
    assert (found.min, found.current, found.max, found.acknowledged, found.leased) == (50, 50, 52, 0, 0)


async def test_a_topic_made_again_begins_at_its_beginning(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull()
    await site.acknowledge(ids[:1])
    await site.engines.topics.delete(site.caller, TOPIC)
    await site.engines.topics.create(site.caller, TOPIC)
    await site.publish(5)
    assert offsets(await site.pull()) == [0]
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[1:])


async def test_what_is_done_beyond_the_end_of_a_log_that_was_put_back_is_forgotten(site: Site) -> None:
    await site.publish(0, 1)
    subscription = await site.subscription()
    topic = await site.engines.registry.topics.find(site.caller.here.id, TOPIC)
    assert topic is not None
    progress = await site.engines.cursors.take_over(subscription.id, topic.id)
    done = Change([(Offset(1), Offset(2)), (Offset(3), Offset(5))])
    assert await site.engines.cursors.settle(subscription.id, progress.epoch, progress.run, done)
    assert offsets(await site.pull()) == [0]
    await site.publish(2, 3, 4)
    assert offsets(await site.pull()) == [2, 3, 4]
