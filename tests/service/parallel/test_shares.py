"""What one consumer may take of a parallel subscription, and what it leaves to the others."""

import pytest

from ams.core.names import Offset
from ams.service.parallel import shares
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.watching import findings
from tests.service.parallel.site import P, Site, ids_of, offsets


async def backlog_of(site: Site) -> Backlog:
    opened = site.working.opened.get((await site.subscription()).id)
    assert opened is not None
    return opened.backlog


async def test_of_the_bytes_that_may_be_out_a_consumer_gets_as_many_as_it_leaves_free(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(*range(40))
    [first] = await site.pull(1)
    size = (await backlog_of(site)).leases.bytes
    await site.acknowledge([first])
    monkeypatch.setattr("ams.service.parallel.shares.MAX_OUT_BYTES", 8 * size)
    greedy = await site.pull(4, "greedy")
    assert len(greedy) == 4
    assert await site.pull(40, "greedy") == []
    lots = await site.working.puller.pull(await site.subscription(), 40, project=P, holder="other")
    assert 1 <= len(ids_of(lots)) <= 4
    await site.acknowledge(greedy)
    assert shares.room_bytes(await backlog_of(site), "greedy") > 0


async def test_who_gives_everything_back_for_later_leaves_others_their_share(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.service.parallel.shares.MAX_HELD_BACK", 8)
    monkeypatch.setattr("ams.service.parallel.watching.MAX_HELD_BACK", 8)
    await site.publish(*range(20))
    for _ in range(4):
        await site.nack(await site.pull(1, "greedy"), 600_000)
    assert await site.pull(20, "greedy") == []
    opened = site.working.opened.get((await site.subscription()).id)
    assert opened is not None
    said = "4 messages wait to be given again that failed with one consumer: it gets no new ones before."
    assert said in [each.text for each in findings(opened, names_holders=True) if each.wrong]

    others = await site.pull(3, "other")
    assert offsets(others) == [4, 5, 6]
    await site.nack(others[:1], 0)
    assert offsets(await site.pull(1, "greedy")) == [4], "what comes again at once is for everybody"


async def test_a_consumer_gets_new_messages_again_when_those_that_failed_with_it_have_waited(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.service.parallel.shares.MAX_HELD_BACK", 4)
    await site.publish(*range(9))
    await site.nack(await site.pull(2, "greedy"), 5_000)
    assert await site.pull(9, "greedy") == []
    site.engines.clock.advance(5_200)
    assert offsets(await site.pull(2, "greedy")) == [0, 1]
    assert offsets(await site.pull(9, "greedy")) == [*range(2, 9)]


async def test_what_a_seek_forward_or_retention_takes_of_the_waiting_is_nobodys_share_any_more(site: Site) -> None:
    await site.publish(*range(4))
    await site.nack(await site.pull(4, "greedy"), 60_000)
    backlog = await backlog_of(site)
    assert backlog.leases.most_waits == 4
    backlog.retain(Offset(3))
    assert (backlog.leases.most_waits, backlog.held_back) == (1, 1)
