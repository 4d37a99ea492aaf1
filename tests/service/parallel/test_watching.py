"""What is said of parallel subscriptions that a node works on."""

import pytest

from ams.core.names import Offset
from ams.service.parallel import watching
from ams.service.parallel.watching import Watched, findings, oldest_time, underway
from tests.service.parallel.site import Site


def gauges(watched: Watched) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {each.name: [(dict(labels), value) for labels, value in each.values] for each in watched.gauges()}


@pytest.mark.parametrize("by_name", [False, True])
async def test_figures_of_all_that_is_worked_on(site: Site, by_name: bool) -> None:
    clock = site.engines.clock
    watched = Watched(site.working, site.engines.log, clock, by_name=by_name)
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
        "ams_parallel_leased": [(labels, 2)],
        "ams_parallel_waiting": [(labels, 1)],
        "ams_parallel_blocked": [(labels, 0)],
        "ams_parallel_oldest_seconds": [(labels, 2.5)],
    }
    assert [(each.name, each.values[0][1]) for each in watched.counters()] == [
        ("ams_parallel_failures", 1),
        ("ams_parallel_dead_letters", 0),
    ]


async def test_a_subscription_without_messages_has_no_oldest(site: Site) -> None:
    watched = Watched(site.working, site.engines.log, site.engines.clock, by_name=False)
    await site.pull()
    await watched.look()

    assert gauges(watched)["ams_parallel_oldest_seconds"] == [({}, 0.0)]


async def test_room_that_is_used_up_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.publish(*range(3))
    await site.pull(3)
    opened = await site.opened()
    assert not any(each.wrong for each in findings(opened, names_holders=True))

    monkeypatch.setattr(watching, "MAX_OUT", 3)
    monkeypatch.setattr(watching, "MAX_HELD_BACK", 0)
    monkeypatch.setattr(watching, "MAX_SPAN", 3)
    wrong = [each.text for each in findings(opened, names_holders=True) if each.wrong]
    assert wrong == [
        "Its room is used up, 3 messages are out: pulls wait until some are acknowledged or their leases end.",
        "0 messages are to be given again or blocked: no new ones before some are done.",
        "Message 0 is 3 behind the newest that was given: no new ones before it is done.",
    ]


async def test_one_old_message_that_holds_up_many_is_wrong(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.publish(*range(4))
    ids = await site.pull(4)
    await site.acknowledge(ids[1:])
    opened = await site.opened()
    monkeypatch.setattr(watching, "MANY", 3)

    [wrong] = [each.text for each in findings(opened, names_holders=True) if each.wrong]
    assert wrong == (
        "Message 0 is the oldest that is not acknowledged, while 3 messages after it are: it is on lease to one."
    )
    assert underway(opened).acknowledged == 3
    assert await oldest_time(site.engines.log, opened.topic, Offset(4)) is None
