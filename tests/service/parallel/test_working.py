"""What consumers do with a parallel subscription, over the real log and the real cursors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from ams.core.ack_ids import AckId, AckIds
from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, CursorsUnavailable, InvalidInput, LogUnavailable
from ams.core.messages import attributes_of, message
from ams.core.names import Offset, ProjectName, SubscriptionName, TopicId, TopicName
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import NO_TOPIC, DeadLetters
from ams.service.delivering import Deliverer
from ams.service.parallel.backlog import KEPT, MAX_OUT
from ams.service.parallel.ownership import Ownership
from ams.service.parallel.watching import findings
from ams.service.parallel.working import SHOWN_IDS, SLICE, Lot, Working
from ams.service.seeking import Seeker
from ams.storage.cursors.acks import Change
from ams.storage.log.base import Bounds
from ams.storage.registry.records import Subscription
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines

P = ProjectName("P")
TOPIC, LETTERS, SUB = TopicName("t"), TopicName("letters"), SubscriptionName("s")
LATE = 10_200
"""Milliseconds: more than the default deadline, by a little more than leases are looked at together."""
WAITS = RetryPolicy(Milliseconds(2000), Milliseconds(8000))
DIES = DeadLetterPolicy("letters", 5)


class Site:
    """One parallel subscription, and what consumers do with it."""

    def __init__(self, engines: Engines, options: ParallelOptions) -> None:
        self.engines, self.options = engines, options
        self.begin_again()

    def begin_again(self, ownership: Ownership | None = None) -> None:
        """Forget what only memory knows, as a process that is killed."""
        engines = self.engines
        letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts)
        self.deliverer = Deliverer(
            engines.registry, engines.log, engines.cursors, 1000, 2**24, 3.0, counts=engines.counts
        )
        self.working = Working(self.deliverer, engines.cursors, letters, engines.clock, ownership)

    async def made(self) -> "Site":
        """Make the topics and the subscription."""
        await make_project(self.engines.registry)
        self.caller = await self.engines.caller()
        for name in (TOPIC, LETTERS):
            await self.engines.topics.create(self.caller, name)
        await self.engines.subscriptions.create(self.caller, SUB, "projects/P/topics/t", options=self.options)
        return self

    async def subscription(self) -> Subscription:
        """Return it as it is now."""
        return await self.deliverer.to_acknowledge(self.caller, SUB)

    async def publish(self, *numbers: int, key: Callable[[int], str] = lambda _: "", topic: TopicName = TOPIC) -> None:
        """Publish messages, each with its number as an attribute."""
        found = await self.engines.registry.topics.find(self.caller.here.id, topic)
        assert found is not None
        await self.engines.log.append(
            found.id, [message("QQ==", {"n": str(each)}, ordering_key=key(each)) for each in numbers]
        )

    async def pull(self, most: int = 100, holder: str = "one") -> list[AckId]:
        """Lease messages; return their ids."""
        return ids_of(await self.working.pull(await self.subscription(), most, project=P, holder=holder))

    async def acknowledge(self, ids: Sequence[AckId]) -> None:
        """Acknowledge."""
        await self.working.acknowledge(await self.subscription(), P, grouped(ids))

    async def nack(self, ids: Sequence[AckId], wait: int | None = None) -> None:
        """Give back."""
        waits = None if wait is None else Milliseconds(wait)
        await self.working.nack(await self.subscription(), P, grouped(ids), waits)

    async def extend(self, ids: Sequence[AckId], seconds: int) -> None:
        """Extend."""
        await self.working.extend(await self.subscription(), P, grouped(ids), seconds, holder="one")

    async def look(self) -> None:
        """Let the keeper look."""
        await self.working.look(_raise)

    async def floor(self) -> int:
        """Return where the subscription stands."""
        subscription = await self.subscription()
        found = await self.engines.registry.topics.find(self.caller.here.id, TOPIC)
        assert found is not None
        return (await self.engines.cursors.position(subscription.id, found.id)).offset

    async def letters(self) -> list[dict[str, str]]:
        """Return the attributes of what was put aside."""
        found = await self.engines.registry.topics.find(self.caller.here.id, LETTERS)
        assert found is not None
        stored = await self.engines.log.read(found.id, Offset(0), max_messages=100, max_bytes=2**20)
        return [dict(attributes_of(each.fragment)) for each in stored]


def _raise(_: str) -> None:
    raise  # the exception at hand


def grouped(ids: Sequence[AckId]) -> AckIds:
    found: dict[str, list[Offset]] = {}
    for each in ids:
        found.setdefault(each.hand_out, []).append(each.offset)
    return found


def ids_of(lots: Sequence[Lot]) -> list[AckId]:
    return [AckId(each.offset, lot.hand_out) for lot in lots for each in lot.messages]


def offsets(ids: Sequence[AckId]) -> list[int]:
    return [each.offset for each in ids]


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A subscription with the options that a test asks for."""
    options = getattr(request, "param", ParallelOptions())
    async with open_engines(tmp_path) as engines:
        yield await Site(engines, options).made()


def with_options(**options: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", [ParallelOptions(**options)], indirect=True, ids=[""])


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


async def test_an_acknowledgement_that_is_repeated_is_accepted(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    await site.acknowledge(ids[1:])
    await site.acknowledge(ids[1:])
    await asyncio.gather(site.acknowledge(ids), site.acknowledge(ids))
    assert await site.floor() == 3


async def test_a_lease_that_is_extended_holds_longer_and_one_that_is_shortened_ends_sooner(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    await site.extend(ids[:1], 60)
    await site.extend(ids[1:2], 5)
    site.engines.clock.advance(5_100)
    assert offsets(await site.pull()) == [1]
    site.engines.clock.advance(LATE - 5_000)
    assert offsets(await site.pull()) == [2]
    site.engines.clock.advance(40_000)
    await site.acknowledge(ids[:1])
    assert await site.floor() == 1


async def test_a_message_that_is_given_back_comes_again_at_once(site: Site) -> None:
    await site.publish(0, 1)
    ids = await site.pull()
    await site.nack(ids[1:])
    assert offsets(await site.pull()) == [1]
    await site.extend(ids[:1], 0)
    assert offsets(await site.pull()) == [0]


@with_options(retry_policy=WAITS)
async def test_waits_after_failures_double_up_to_the_maximum_while_others_go_on(site: Site) -> None:
    await site.publish(0, 1)
    waits = []
    for _ in range(4):
        [failed] = await site.pull(1)
        await site.nack([failed])
        waited = 0
        while not site.working.opened((await site.subscription()).id).backlog.is_again_ready:  # type: ignore[union-attr]
            site.engines.clock.advance(100)
            waited += 100
            await site.look()
        waits.append(waited)
    assert waits == [2000, 4000, 8000, 8000]
    assert offsets(await site.pull(1)) == [0]
    assert offsets(await site.pull(1)) == [1]


@with_options(retry_policy=WAITS)
async def test_a_consumer_may_say_how_long_a_message_is_to_wait(site: Site) -> None:
    await site.publish(0)
    await site.nack(await site.pull(), 500)
    assert await site.pull() == []
    site.engines.clock.advance(600)
    assert offsets(await site.pull()) == [0]


async def test_a_waiting_pull_goes_on_when_a_message_is_given_back(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.wait(await site.subscription(), P, "two", until))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await site.nack(ids)
    assert await asyncio.wait_for(waiting, 5)
    assert offsets(await site.pull()) == [0]


async def test_a_waiting_pull_goes_on_when_the_keeper_finds_that_a_lease_has_ended(site: Site) -> None:
    await site.publish(0)
    await site.pull()
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.wait(await site.subscription(), P, "two", until))
    await asyncio.sleep(0.02)
    site.engines.clock.advance(LATE)
    await site.look()
    assert await asyncio.wait_for(waiting, 5)


async def test_a_waiting_pull_goes_on_when_the_topic_grows(site: Site) -> None:
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.wait(await site.subscription(), P, "two", until))
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


@with_options(dead_letter_policy=DIES)
async def test_a_message_that_failed_as_often_as_it_may_is_put_aside_once(site: Site) -> None:
    await site.publish(0, 1)
    for _ in range(5):
        [failed] = await site.pull(1)
        assert failed.offset == 0
        await site.nack([failed])
    await site.look()
    [letter] = await site.letters()
    assert (letter["n"], letter["deadLetterMessageId"], letter["deadLetterAttempts"]) == ("0", "0", "5")
    assert await site.floor() == 1
    assert offsets(await site.pull()) == [1]


@with_options(dead_letter_policy=DIES)
async def test_a_dead_letter_is_there_once_when_its_acknowledgement_is_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    for _ in range(5):
        await site.nack(await site.pull(1))
    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", _unavailable)
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
        for _ in range(5):
            await site.nack(await site.pull(1))
        site.begin_again()  # another process puts it aside
        await site.pull()
        await site.look()
        seeker = Seeker(site.engines.registry, site.engines.log, site.engines.cursors, moved=site.working.forget)
        await seeker.seek(site.caller, SUB, 0)
    assert [each["deadLetterAttempts"] for each in await site.letters()] == ["5", "5"]


@with_options(dead_letter_policy=DIES)
async def test_a_dead_letter_is_given_to_nobody_while_its_acknowledgement_cannot_be_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    for _ in range(5):
        await site.nack(await site.pull(1))
    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", _unavailable)
        await site.look()
    site.engines.clock.advance(KEPT + 200)
    assert await site.pull() == []
    await site.look()
    assert (len(await site.letters()), await site.floor()) == (1, 1)


@with_options(dead_letter_policy=DIES)
async def test_what_cannot_be_put_aside_stays_is_given_again_and_the_doctor_says_why(site: Site) -> None:
    await site.publish(0)
    for _ in range(5):
        await site.nack(await site.pull(1))
    await site.engines.topics.delete(site.caller, LETTERS)
    with structlog.testing.capture_logs() as said:
        await site.look()
    assert [each["reason"] for each in said if each["event"] == "dead_letter.put_off"] == [NO_TOPIC]
    assert await site.pull() == [], "not at once"
    opened = site.working.opened((await site.subscription()).id)
    assert opened is not None
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


@with_options(enable_exactly_once_delivery=True)
async def test_exactly_once_an_acknowledgement_is_late_when_another_consumer_finished_the_message(site: Site) -> None:
    await site.publish(0, 1)
    [first, other] = await site.pull()
    await site.acknowledge([other])
    site.engines.clock.advance(LATE)
    [second] = await site.pull(holder="two")
    await site.acknowledge([second])
    with pytest.raises(AckTimeout, match=f"ack timeout: 0-{first.hand_out}$"):
        await site.acknowledge([first, other])
    await site.acknowledge([second, other])


async def test_otherwise_a_late_acknowledgement_of_what_is_done_changes_nothing_and_is_good(site: Site) -> None:
    await site.publish(0)
    [first] = await site.pull()
    site.engines.clock.advance(LATE)
    await site.acknowledge(await site.pull(holder="two"))
    await site.acknowledge([first])
    assert await site.floor() == 1


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """Return how often something else had a turn of the event loop meanwhile."""
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_very_many_ids_are_dealt_with_in_slices_others_having_turns_in_between(site: Site) -> None:
    await site.publish(*range(4))
    many = await site.pull() * SLICE
    assert await turns_during(site.extend(many, 60)) >= 8
    assert await turns_during(site.nack(many, 0)) >= 8
    assert await turns_during(site.acknowledge(await site.pull() * SLICE)) >= 8
    assert await site.floor() == 4


async def test_of_very_many_ids_nothing_is_done_when_the_last_one_was_never_given(site: Site) -> None:
    await site.publish(*range(4))
    given = await site.pull()
    bad = AckId(Offset(9), given[0].hand_out)
    for work in (site.acknowledge, site.nack, lambda ids: site.extend(ids, 30)):
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            await work([*given * SLICE, bad])
    assert (await site.floor(), await site.pull()) == (0, [])
    await site.acknowledge(given)


async def test_of_very_many_ids_those_that_are_late_are_counted_and_the_others_are_done(site: Site) -> None:
    await site.publish(*range(2 * SLICE + 2))
    late = await site.pull(SLICE + 1)
    site.engines.clock.advance(LATE)
    good = await site.pull(2 * SLICE + 2)
    with pytest.raises(AckTimeout, match=f"^ack timeout: 0-.* and {len(late) - SHOWN_IDS} more$"):
        await site.acknowledge([*late, *good])
    assert await site.floor() == len(good)


async def test_a_repeated_acknowledgement_is_stored_when_the_one_before_it_cannot_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()
    settle, fails = site.engines.cursors.settle, asyncio.Event()

    async def fail(*_: object) -> bool:
        monkeypatch.setattr(site.engines.cursors, "settle", settle)
        await fails.wait()
        raise CursorsUnavailable

    monkeypatch.setattr(site.engines.cursors, "settle", fail)
    first = asyncio.create_task(site.acknowledge(ids))
    await asyncio.sleep(0.01)
    repeated = asyncio.create_task(site.acknowledge(ids))
    await asyncio.sleep(0.01)
    fails.set()
    with pytest.raises(CursorsUnavailable):
        await first
    await repeated
    assert await site.floor() == 1


@with_options(dead_letter_policy=DIES, enable_message_ordering=True)
async def test_a_message_that_failed_out_before_the_process_ended_is_not_given_again(site: Site) -> None:
    await site.publish(0, 1, key=lambda _: "k")
    for _ in range(5):
        await site.nack(await site.pull(1))
    site.begin_again()
    assert await site.pull() == []
    await site.look()
    assert [each["n"] for each in await site.letters()] == ["0"]
    assert offsets(await site.pull()) == [1]


async def _unavailable(*_: object) -> bool:
    raise CursorsUnavailable


async def test_an_acknowledgement_that_could_not_be_stored_leaves_the_lease_as_it_was(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()
    with monkeypatch.context() as broken:
        broken.setattr(site.engines.cursors, "settle", _unavailable)
        with pytest.raises(CursorsUnavailable):
            await site.acknowledge(ids)
    assert await site.pull() == []
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_an_acknowledgement_is_stored_also_when_its_client_leaves(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    leaving = asyncio.ensure_future(site.acknowledge(ids))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await site.acknowledge(ids)
    assert await site.floor() == 1


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


async def test_a_seek_makes_earlier_ids_late_and_gives_everything_again(site: Site) -> None:
    await site.publish(0, 1, 2)
    ids = await site.pull()
    await site.acknowledge(ids[:1])
    seeker = Seeker(site.engines.registry, site.engines.log, site.engines.cursors, moved=site.working.forget)
    await seeker.seek(site.caller, SUB, 0)
    with pytest.raises(AckTimeout):
        await site.acknowledge(ids[1:])
    assert offsets(await site.pull()) == [0, 1, 2]


async def test_ids_that_were_never_given_are_refused_and_change_nothing(site: Site) -> None:
    await site.publish(0, 1)
    [first] = await site.pull(1)
    attempt, epoch, run, number, identity = first.hand_out.split(".")
    for bad in (
        AckId(Offset(0), ".".join((attempt, epoch, run, number, "000000"))),
        AckId(Offset(0), ".".join((attempt, epoch, run, "99", identity))),
        AckId(Offset(0), ".".join((attempt, epoch, "99", number, identity))),
        AckId(Offset(0), ".".join((attempt, "99", run, number, identity))),
        AckId(Offset(1), first.hand_out),
        AckId(Offset(10**17), first.hand_out),
        AckId(Offset(0), "nonsense"),
    ):
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            await site.acknowledge([first, bad])
    site.begin_again()
    with pytest.raises(InvalidInput, match="^Invalid ack id$"):
        await site.acknowledge([AckId(Offset(10**17), first.hand_out)])
    assert await site.floor() == 0


async def test_a_consumer_that_never_comes_back_leaves_others_their_share(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.service.parallel.backlog.MAX_OUT", 8)
    assert MAX_OUT > 8
    await site.publish(*range(20))
    assert len(await site.pull(20, "greedy")) == 8
    site.engines.clock.advance(LATE)
    assert len(await site.pull(4, "greedy")) == 4
    assert await site.pull(20, "greedy") == []
    assert len(await site.pull(20, "other")) == 4


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


async def test_what_is_acknowledged_between_a_read_and_its_lease_is_not_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(*range(5))
    ids = await site.pull()
    site.begin_again()
    whole = site.working._afforded

    async def afforded(*given: Any) -> Any:
        found = await whole(*given)
        await site.acknowledge([ids[2]])
        return found

    monkeypatch.setattr(site.working, "_afforded", afforded)
    assert offsets(await site.pull()) == [0, 1, 3, 4]


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


@pytest.mark.parametrize("site", [ParallelOptions(dead_letter_policy=DIES)], indirect=True)
async def test_what_is_released_comes_again_at_once_and_has_not_failed(site: Site) -> None:
    await site.publish(0, 1)
    first = await site.pull()
    site.working.release((await site.subscription()).id, grouped(first[:1]))
    again = await site.pull()

    assert offsets(again) == [0]
    assert again[0].hand_out.startswith("1.")
    await site.acknowledge([*again, *first[1:]])
    assert await site.floor() == 2


async def test_a_pull_takes_as_many_bytes_as_it_may_and_one_message_at_least(site: Site) -> None:
    await site.publish(0, 1, 2)
    lots = await site.working.pull(await site.subscription(), 100, project=P, holder="one", max_bytes=1)

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
        offsets(ids_of(await site.working.pull(subscription, 9, project=P, holder="one", max_bytes=most)))
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
    assert site.working.coming(identity, 1, holder="one") is None  # nobody works on it
    pulled = await site.pull()

    nothing_comes = site.working.coming(identity, 0.01, holder="one")
    assert nothing_comes is not None
    with pytest.raises(TimeoutError):
        await nothing_comes

    for change in (lambda: site.publish(1), lambda: site.nack(pulled)):
        coming = site.working.coming(identity, 60, holder="one")
        assert coming is not None
        waiting = asyncio.create_task(coming)
        await asyncio.sleep(0)
        await change()
        await waiting
        await site.pull()


async def test_closing_ends_also_in_the_moment_in_which_something_becomes_due_sooner(site: Site) -> None:
    await site.working.start(Supervisor())
    await asyncio.sleep(0.02)
    site.working._sooner.set()
    await asyncio.wait_for(site.working.close(), 5)
