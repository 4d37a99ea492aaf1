"""Cursors in the log: durability, a full disk, groups that fail, images, damage."""

import asyncio
import contextlib
import errno
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, InvalidInput, LogUnavailable, Unusable
from ams.core.names import SubscriptionId, new_topic_id, new_uuid
from ams.core.offsets import ranges_of
from ams.storage.cursors.acks import AckUpdate
from ams.storage.log.embedded import check
from tests.storage.cursors.naive import Deed, NaiveCursor, apply_deed, expect_answer, facts_of, plans
from tests.storage.cursors.stores import DEADLINE, SUB, TOPIC, CursorsInLog, cursors_in, make_change, settle
from tests.storage.log.engines import HOUR, Embedded, all_fragments, fragments, new_topic, texts
from tests.support.waiting import wait_until_async

OTHER_SUB = "sub-2"
MANY_FAILURES = 10**6  # calls that fail


class DiskCursors:
    def __init__(self, **options: Any) -> None:
        self.engine = Embedded(options=options)
        self.cursors: CursorsInLog

    @property
    def disk(self) -> Any:
        return self.engine.disk

    async def open(self, end: int = 100) -> CursorsInLog:
        self.cursors = await cursors_in(self.engine, {TOPIC: end})
        return self.cursors

    async def reopen(self, end: int = 100) -> CursorsInLog:
        await self.cursors.close()
        return await self.open(end)

    async def kill(self, end: int = 100, *, power: bool = True) -> CursorsInLog:
        """Close without an image, and open again."""
        self.disk.stop_at = self.disk.changes
        await self.cursors.close()
        if power:
            self.disk.power_loss()
        self.disk.stop_at = None
        self.disk.heal()
        return await self.open(end)

    def fail_once(self) -> None:
        """Let the next write fail after a part of it."""
        self.disk.fail("write", errno.ENOSPC)

    def images(self) -> Sequence[str]:
        return list(self.disk.paths(".img"))


@pytest.fixture
async def disk_cursors() -> AsyncIterator[DiskCursors]:
    """Cursors with one subscription, at the beginning of its topic."""
    made = DiskCursors()
    await (await made.open()).create(SUB, TOPIC, 0)
    yield made
    made.disk.heal()
    await made.cursors.close()


@contextlib.asynccontextmanager
async def busy_committer(kept: DiskCursors) -> AsyncIterator[None]:
    """Hold the committer in a sync, so that all tasks that are begun within are its next group."""
    is_busy, may_go_on, disk, log = threading.Event(), threading.Event(), kept.disk, kept.cursors.log

    def hold() -> None:
        disk.during_sync = None
        is_busy.set()
        assert may_go_on.wait(60)

    topic = await new_topic(log)
    disk.during_sync = hold
    earlier = asyncio.create_task(log.append(topic, texts("earlier")))
    assert await asyncio.to_thread(is_busy.wait, 60)
    yield
    await asyncio.sleep(0)  # until the tasks have submitted
    may_go_on.set()
    await earlier


async def position_of(cursors: CursorsInLog, subscription: SubscriptionId = SUB) -> int:
    return (await cursors.position(subscription, TOPIC)).offset


async def test_a_move_is_durable_when_it_is_answered_without_an_image(disk_cursors: DiskCursors) -> None:
    await disk_cursors.cursors.hand_out(SUB, 0, 9)
    await disk_cursors.cursors.acknowledge(SUB, 4, DEADLINE)
    cursors = await disk_cursors.kill()
    assert await position_of(cursors) == 5
    await settle(cursors, await cursors.take_over(SUB, TOPIC), make_change((7, 9)))
    assert ranges_of((await (await disk_cursors.kill()).progress(SUB)).done) == [(7, 9)]
    assert not disk_cursors.images()


async def test_cursors_and_messages_of_one_moment_are_one_write_and_one_sync(disk_cursors: DiskCursors) -> None:
    cursors, log = disk_cursors.cursors, disk_cursors.cursors.log
    topic = await new_topic(log)
    await log.append(topic, texts("a"))
    await cursors.seek(SUB, TOPIC, 1)

    async with busy_committer(disk_cursors):
        before = disk_cursors.disk.changes
        group = asyncio.gather(log.append(topic, texts("b")), cursors.seek(SUB, TOPIC, 2))
    await group

    write, sync = 1, 1
    assert disk_cursors.disk.changes - before == write + sync
    assert await position_of(await disk_cursors.kill()) == 2


async def test_a_cursor_past_the_end_is_put_back(disk_cursors: DiskCursors, capsys: pytest.CaptureFixture[str]) -> None:
    await disk_cursors.cursors.seek(SUB, TOPIC, 100)
    assert await position_of(await disk_cursors.reopen(end=60)) == 60
    assert "cursors.past_the_end" in "".join(capsys.readouterr())
    assert await position_of(await disk_cursors.kill()) == 60
    assert await position_of(await disk_cursors.reopen(end=200)) == 60


async def test_what_is_past_the_end_is_forgotten(disk_cursors: DiskCursors, capsys: pytest.CaptureFixture[str]) -> None:
    await settle(
        disk_cursors.cursors, await disk_cursors.cursors.take_over(SUB, TOPIC),
        AckUpdate(make_change((40, 70)).done, {65: 1}),
    )  # fmt: skip

    for end in (60, 100):
        progress = await (await disk_cursors.reopen(end)).progress(SUB)
        assert (progress.floor, ranges_of(progress.done), progress.failures) == (0, [(40, 60)], {})
        assert ("cursors.past_the_end" in "".join(capsys.readouterr())) == (end == 60)


async def test_on_a_full_disk_the_reserve_is_released_and_what_is_asked_is_stored() -> None:
    kept = DiskCursors(reserve_bytes=8192)
    await (await kept.open()).create(SUB, TOPIC, 0)
    taken = await kept.cursors.take_over(SUB, TOPIC)
    kept.disk.stranger = kept.disk.free_bytes("/log")

    assert await settle(kept.cursors, taken, make_change((7, 8)))

    assert list((await (await kept.kill()).progress(SUB)).done) == [7]
    await kept.cursors.close()


async def test_while_publishes_are_refused_for_want_of_space_cursors_move() -> None:
    kept = DiskCursors(min_free_bytes=1 << 20)
    cursors = await kept.open()
    await cursors.create(SUB, TOPIC, 0)
    topic = await new_topic(cursors.log)
    kept.disk.stranger = kept.disk.free_bytes("/log") - (1 << 19)

    published, moved = await asyncio.gather(
        cursors.log.append(topic, texts("a")), cursors.seek(SUB, TOPIC, 2), return_exceptions=True
    )

    assert isinstance(published, Exception)
    assert moved is True
    assert await position_of(await kept.kill()) == 2
    await kept.cursors.close()


async def test_cursors_whose_write_beside_messages_fails_get_a_segment_of_their_own(disk_cursors: DiskCursors) -> None:
    topic = await new_topic(disk_cursors.cursors.log)
    disk_cursors.disk.fail("write", errno.EIO, where="/7d/")

    published, moved = await asyncio.gather(
        disk_cursors.cursors.log.append(topic, texts("a")), disk_cursors.cursors.seek(SUB, TOPIC, 2),
        return_exceptions=True,
    )  # fmt: skip

    assert isinstance(published, Exception)
    assert moved is True
    assert await position_of(await disk_cursors.kill()) == 2


async def test_no_acknowledgement_that_builds_on_a_failed_one_succeeds(disk_cursors: DiskCursors) -> None:
    await disk_cursors.cursors.hand_out(SUB, 0, 9)

    disk_cursors.fail_once()
    answers = await asyncio.gather(
        *(disk_cursors.cursors.acknowledge(SUB, last, DEADLINE) for last in (3, 3, 5, 1)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 4
    assert await position_of(disk_cursors.cursors) == 0
    await disk_cursors.cursors.acknowledge(SUB, 8, DEADLINE)
    assert await position_of(await disk_cursors.reopen()) == 9


async def test_a_failed_group_undoes_what_moved(disk_cursors: DiskCursors, monkeypatch: pytest.MonkeyPatch) -> None:
    cursors, is_begun, may_end = disk_cursors.cursors, threading.Event(), threading.Event()
    await cursors.create(OTHER_SUB, TOPIC, 60)

    def held_up(*_: object) -> None:
        is_begun.set()
        may_end.wait(60)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk_cursors.disk, "write_through", held_up)
    first = asyncio.ensure_future(cursors.seek(SUB, TOPIC, 7))
    await wait_until_async(is_begun.is_set)
    later = asyncio.ensure_future(cursors.seek(OTHER_SUB, TOPIC, 8))
    await asyncio.sleep(0)
    may_end.set()
    answers = await asyncio.gather(first, later, return_exceptions=True)

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 2
    assert [await position_of(cursors, each) for each in (SUB, OTHER_SUB)] == [0, 60]
    monkeypatch.undo()


async def test_after_a_failed_seek_only_what_was_handed_out_before_it_counts(disk_cursors: DiskCursors) -> None:
    cursors = disk_cursors.cursors
    await cursors.hand_out(SUB, 0, 10)

    disk_cursors.fail_once()
    seeking = asyncio.ensure_future(cursors.seek(SUB, TOPIC, 100))
    await asyncio.sleep(0)
    during = await cursors.position(SUB, TOPIC)
    await cursors.hand_out(SUB, during.generation, 110)
    with pytest.raises(CursorsUnavailable):
        await seeking

    assert not await cursors.hand_out(SUB, during.generation, 110)
    with pytest.raises(InvalidInput, match="wrong ack"):
        await cursors.acknowledge(SUB, 105, DEADLINE)
    await cursors.acknowledge(SUB, 9, DEADLINE)


async def test_a_failed_drop_leaves_a_cursor_moved(disk_cursors: DiskCursors, monkeypatch: pytest.MonkeyPatch) -> None:
    cursors, is_begun, may_end = disk_cursors.cursors, threading.Event(), threading.Event()
    whole = disk_cursors.disk.write_through

    def store_last(*given: Any) -> None:
        is_begun.set()
        may_end.wait(60)
        whole(*given)
        disk_cursors.disk.fail("write", times=MANY_FAILURES)

    monkeypatch.setattr(disk_cursors.disk, "write_through", store_last)
    moving = asyncio.ensure_future(cursors.seek(SUB, TOPIC, 7))
    await wait_until_async(is_begun.is_set)
    dropping = asyncio.ensure_future(cursors.drop(SUB))
    await asyncio.sleep(0)
    making = asyncio.ensure_future(cursors.create(SUB, TOPIC, 90))
    await asyncio.sleep(0)
    may_end.set()
    await moving
    for failing in (dropping, making):
        with pytest.raises(CursorsUnavailable):
            await failing

    assert await position_of(cursors) == 7
    monkeypatch.undo()


@pytest.fixture
def steady_cursors() -> Iterator[tuple[asyncio.Runner, DiskCursors]]:
    """Cursors for many examples of Hypothesis, and their loop."""
    with asyncio.Runner() as runner:
        made = DiskCursors(segment_bytes=2000)
        runner.run(made.open())
        yield runner, made
        runner.run(made.cursors.close())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_failures_do_nothing(steady_cursors: tuple[asyncio.Runner, DiskCursors], plan: list[tuple[Deed, bool]]) -> None:
    steady_cursors[0].run(follow_plan_on_disk(steady_cursors[1], plan))


async def follow_plan_on_disk(kept: DiskCursors, plan: list[tuple[Deed, bool]]) -> None:
    subscription, model = new_uuid(), NaiveCursor()
    await kept.cursors.create(subscription, TOPIC, 0)
    for place, (deed, fails) in enumerate(plan):
        if fails:
            kept.fail_once()
        answer = await apply_deed(deed, kept.cursors, subscription, model)
        kept.disk.heal()
        if answer is not CursorsUnavailable:
            assert answer == expect_answer(deed, model), deed.name
        if place % 7 == 2:
            await kept.cursors.log.journal.store_checkpoint()
        if place % 7 == 6:
            await (kept.reopen() if place % 2 else kept.kill())
        if model.is_gone:
            continue
        progress = await kept.cursors.progress(subscription)
        assert facts_of(progress, await kept.cursors.lost_messages(subscription, {})) == model.facts()
        model.epoch = progress.epoch  # a seek that failed raises it, in memory
    await kept.cursors.drop(subscription)


@pytest.mark.parametrize("seed", range(6))
async def test_a_full_disk_keeps_answers(disk_cursors: DiskCursors, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance, cursors = random.Random(seed), await disk_cursors.reopen(end=10_000)
    whole = disk_cursors.disk.write_through
    taken = await cursors.take_over(SUB, TOPIC)
    stored: set[int] = set()

    async def consumer(first: int) -> None:
        for at in range(first, 1_000, 10):
            try:
                assert await settle(cursors, taken, AckUpdate(make_change((at, at + 1)).done, {0: at}))
            except CursorsUnavailable:
                await asyncio.sleep(0)
            else:
                stored.add(at)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)

    def full_now_and_then(*arguments: Any) -> None:
        if chance.random() < 0.3:
            disk_cursors.fail_once()
        whole(*arguments)

    with monkeypatch.context() as planted:
        planted.setattr(disk_cursors.disk, "write_through", full_now_and_then)
        await asyncio.gather(*map(consumer, range(1, 10)), cursors.log.journal.store_checkpoint())

    assert 100 < len(stored) < 899
    assert set((await cursors.progress(SUB)).done) == stored
    progress = await (await disk_cursors.kill(end=10_000)).progress(SUB)
    assert set(progress.done) == stored
    assert progress.failures[0] in stored


async def test_a_change_that_cannot_be_undone_is_unknown_and_undone_by_the_next(disk_cursors: DiskCursors) -> None:
    cursors = disk_cursors.cursors
    taken = await cursors.take_over(SUB, TOPIC)

    disk_cursors.disk.fail("sync", times=MANY_FAILURES)
    disk_cursors.disk.fail("open", times=MANY_FAILURES)
    with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
        await settle(cursors, taken, make_change((5, 6)))
    assert not (await cursors.progress(SUB)).done
    disk_cursors.disk.heal()

    assert await settle(cursors, taken, make_change((6, 7)))
    assert list((await (await disk_cursors.kill(power=False)).progress(SUB)).done) == [6]


async def test_a_later_group_cancels_an_unknown_one(disk_cursors: DiskCursors) -> None:
    cursors = disk_cursors.cursors
    await cursors.create(OTHER_SUB, TOPIC, 60)
    topic = await new_topic(cursors.log)
    async with busy_committer(disk_cursors):
        disk_cursors.disk.fail("sync", times=2)  # beside the message, and alone
        disk_cursors.disk.fail("open", times=MANY_FAILURES, where="/7d/")  # so what was written there is not cut off
        works = cursors.log.append(topic, texts("a")), cursors.seek(SUB, TOPIC, 2)
        group = asyncio.gather(*works, return_exceptions=True)

    *_, moved = await group
    assert isinstance(moved, CursorsUnavailable)
    assert moved.message == OUTCOME_UNKNOWN
    await cursors.seek(OTHER_SUB, TOPIC, 70)

    cursors = await disk_cursors.kill(power=False)
    assert [await position_of(cursors, each) for each in (SUB, OTHER_SUB)] == [0, 70]


async def test_what_is_done_in_the_group_that_makes_a_subscription_again_is_all(disk_cursors: DiskCursors) -> None:
    taken = await disk_cursors.cursors.take_over(SUB, TOPIC)
    await settle(disk_cursors.cursors, taken, AckUpdate(make_change((3, 9)).done, {1: 2}))
    await asyncio.gather(
        disk_cursors.cursors.create(SUB, TOPIC, 1), settle(disk_cursors.cursors, taken, make_change((5, 6)))
    )
    assert facts_of(await (await disk_cursors.kill()).progress(SUB), 0) == (1, taken.run, {5}, {}, None, {}, 0)


@pytest.mark.parametrize("number", [1, 257, 600])
async def test_a_group_and_an_image_of_any_size_are_stored_whole(disk_cursors: DiskCursors, number: int) -> None:
    cursors = disk_cursors.cursors
    every = [f"many-{each}" for each in range(number)]
    await asyncio.gather(*(cursors.create(each, TOPIC, 0) for each in every))
    for each in every:
        await cursors.hand_out(each, 0, 100)
    await asyncio.gather(
        cursors.drop(SUB), *(cursors.acknowledge(each, place % 98, DEADLINE) for place, each in enumerate(every))
    )
    await asyncio.gather(*(cursors.take_over(each, TOPIC) for each in every))
    await asyncio.gather(*(cursors.settle(each, 0, 1, make_change((99, 100))) for each in every))

    for restart in (disk_cursors.kill, disk_cursors.reopen):
        cursors = await restart()
        assert {key: place.offset for key, place in (await cursors.places()).items()} == {
            each: place % 98 + 1 for place, each in enumerate(every)
        }
        assert [list((await cursors.progress(each)).done) for each in every] == [[99]] * number
        assert await cursors.lost_in_all({}) == 0


async def test_an_image_lets_segments_of_cursors_go_and_comes_before_the_index_of_one_with_messages() -> None:
    kept = DiskCursors(segment_bytes=2000)
    cursors = await kept.open()
    await cursors.create(SUB, TOPIC, 0)
    topic = await new_topic(cursors.log)
    for offset in range(40):
        await asyncio.gather(cursors.log.append(topic, texts("x" * 100)), cursors.seek(SUB, TOPIC, offset))
        await cursors.seek(SUB, TOPIC, offset)
    assert len(kept.disk.paths(".log")) > 6

    await cursors.log.retain()
    await cursors.log.retain()

    assert (len(kept.images()), len([path for path in kept.disk.paths(".log") if "/cursors/" in path])) == (1, 1)
    assert await position_of(await kept.kill()) == 39
    await kept.cursors.close()


async def test_a_seek_that_failed_before_an_image_forgets_nothing(disk_cursors: DiskCursors) -> None:
    cursors = disk_cursors.cursors
    await settle(cursors, await cursors.take_over(SUB, TOPIC), make_change((5, 9)))
    disk_cursors.fail_once()
    with pytest.raises(CursorsUnavailable):
        await cursors.seek(SUB, TOPIC, 50)

    cursors = await disk_cursors.reopen()

    assert ranges_of((await cursors.progress(SUB)).done) == [(5, 9)]


async def test_an_unreadable_entry_is_refused_in_a_line_that_names_the_subscription(disk_cursors: DiskCursors) -> None:
    ended = asyncio.get_running_loop().create_future()
    body = msgspec.msgpack.encode([[], [], 0, [[SUB, False, b"\x01\xaa\xbb\xcc\xdd\x90"]]])
    disk_cursors.cursors.log.journal.submit(body, ended.set_result)
    assert await ended is None

    with pytest.raises(Unusable, match=f"subscription {SUB} an entry that does not match its checksum; restore it"):
        await disk_cursors.kill()


async def test_a_damaged_image_is_an_error_at_the_start_and_in_a_check(disk_cursors: DiskCursors) -> None:
    await disk_cursors.cursors.seek(SUB, TOPIC, 7)
    await disk_cursors.cursors.close()
    (image,) = disk_cursors.images()
    disk_cursors.disk.damage(image, 200)

    with pytest.raises(Unusable, match="is not a whole image of cursors .* or move its folder cursors away"):
        await disk_cursors.open()
    assert any("is not a whole image" in str(each) for each in check("/log", files=disk_cursors.disk).damage)
    disk_cursors.disk.damage(image, 200)
    assert await position_of(await disk_cursors.open()) == 7


async def test_groups_whose_image_is_missing_are_not_taken_for_all_there_is() -> None:
    kept = DiskCursors(segment_bytes=1000)
    cursors = await kept.open()
    await cursors.create(SUB, TOPIC, 0)
    for offset in range(30):
        await cursors.seek(SUB, TOPIC, offset)
    await cursors.log.journal.store_checkpoint()
    await cursors.log.retain()
    await cursors.seek(SUB, TOPIC, 99)
    await cursors.log.close()
    (image,) = kept.images()
    kept.disk.unlink(image)

    with pytest.raises(Unusable, match="groups of cursors are missing, or their image is older"):
        await kept.open()
    assert any("groups of cursors are missing" in str(each) for each in check("/log", files=kept.disk).damage)


async def test_after_cursors_were_set_aside_none_is_left_and_messages_are(disk_cursors: DiskCursors) -> None:
    cursors, topic = disk_cursors.cursors, await new_topic(disk_cursors.cursors.log)
    async with busy_committer(disk_cursors):
        group = asyncio.gather(cursors.log.append(topic, texts("a")), cursors.seek(SUB, TOPIC, 7))
    await group
    await disk_cursors.cursors.log.close()
    for path in disk_cursors.disk.paths():
        if "/cursors/" in path:
            disk_cursors.disk.unlink(path)

    cursors = await disk_cursors.open()

    assert not await cursors.places()
    assert "set aside" in cursors.log.damage[0].reason
    await cursors.create(SUB, TOPIC, 3)
    cursors = await disk_cursors.kill()
    assert not cursors.log.damage
    assert await position_of(cursors) == 3
    assert await all_fragments(cursors.log, topic) == fragments(texts("a"))


async def test_old_messages_go_while_the_disk_has_no_room_for_an_image(disk_cursors: DiskCursors) -> None:
    cursors, log, topic = disk_cursors.cursors, disk_cursors.cursors.log, new_topic_id()
    await log.create(topic, HOUR)
    await log.append(topic, texts("old"))
    disk_cursors.engine.clock.advance(HOUR // 4)
    await log.retain()
    async with busy_committer(disk_cursors):
        group = asyncio.gather(log.append(topic, texts("newer")), cursors.seek(SUB, TOPIC, 7))
    await group
    disk_cursors.engine.clock.advance(2 * HOUR)
    disk_cursors.disk.fail("write", errno.ENOSPC, times=MANY_FAILURES, where=".img", after=1)

    with pytest.raises(LogUnavailable):
        await log.retain()

    assert len([path for path in disk_cursors.disk.paths(".log") if "/1h/" in path]) == 1
    assert not disk_cursors.disk.paths(".new")
    disk_cursors.disk.heal()
    await log.retain()
    assert len(disk_cursors.images()) == 1
    assert not [path for path in disk_cursors.disk.paths(".log") if "/1h/" in path]
    assert await position_of(await disk_cursors.kill()) == 7


async def test_an_image_after_cancellation_is_whole(disk_cursors: DiskCursors, monkeypatch: pytest.MonkeyPatch) -> None:
    is_begun, may_end = threading.Event(), threading.Event()
    journal, rename = disk_cursors.cursors.log.journal, disk_cursors.disk.rename
    await disk_cursors.cursors.seek(SUB, TOPIC, 7)

    def held_up(*paths: str) -> None:
        is_begun.set()
        may_end.wait(60)
        rename(*paths)

    monkeypatch.setattr(disk_cursors.disk, "rename", held_up)
    cancelled = asyncio.ensure_future(journal.store_checkpoint())
    await wait_until_async(is_begun.is_set)
    cancelled.cancel()
    storing = asyncio.ensure_future(journal.store_checkpoint())
    await asyncio.wait((cancelled,))
    may_end.set()
    await storing

    assert await position_of(await disk_cursors.kill()) == 7


async def test_a_damaged_group_is_reported_and_what_follows_it_counts(disk_cursors: DiskCursors) -> None:
    for offset in (5, 6):
        await disk_cursors.cursors.seek(SUB, TOPIC, offset)
    await disk_cursors.cursors.seek(SUB, TOPIC, 7)
    (segment,) = [path for path in disk_cursors.disk.paths(".log") if "/cursors/" in path]
    disk_cursors.disk.damage(segment, 128 + 200)

    cursors = await disk_cursors.kill()

    assert {each.reason for each in cursors.log.damage} >= {"groups of cursors are missing"}
    assert await position_of(cursors) == 7
