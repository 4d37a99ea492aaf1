"""Cursors in SQLite: durability settings, a full disk, files of before or of somebody else, damage."""

import asyncio
import errno
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, InvalidInput, Unusable
from ams.core.names import SubscriptionId, new_uuid
from ams.core.offsets import ranges_of
from ams.storage import files
from ams.storage.cursors import entries, sqlite
from ams.storage.cursors.acks import Change
from ams.storage.cursors.sqlite import SqliteCursors
from tests.storage.cursors.naive import Deed, Naive, answered, expected, facts_of, plans
from tests.storage.cursors.stores import DEADLINE, SUB, TOPIC, done, settle
from tests.support.waiting import wait_until_async

OTHER_SUB = "sub-2"


def failure(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


class Kept:
    """Cursors in a file, on a disk that can be full."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.is_full = False
        self.reserve = 0
        self.cursors: SqliteCursors
        store = sqlite.store

        def store_unless_full(*changes: object) -> None:
            if self.is_full:
                raise failure(sqlite3.SQLITE_FULL, "database or disk is full")
            store(*changes)

        monkeypatch.setattr(sqlite, "store", store_unless_full)

    async def open(self, end: int = 100) -> SqliteCursors:
        ends = {TOPIC: end}
        self.cursors = await SqliteCursors.open(str(self.path), ends=ends, on_full=self._release_reserve)
        return self.cursors

    async def reopen(self, end: int = 100) -> SqliteCursors:
        await self.cursors.close()
        return await self.open(end)

    def rows(self) -> Sequence[tuple[str, int, bytes]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT subscription, number, entry FROM acks").fetchall()

    def _release_reserve(self) -> bool:
        if not self.reserve:
            return False
        self.reserve -= 1
        self.is_full = False
        return True


@pytest.fixture
async def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
    """Cursors with one subscription, at the beginning of its topic."""
    made = Kept(tmp_path / "cursors.db", monkeypatch)
    await (await made.open()).create(SUB, TOPIC, 0)
    yield made
    await made.cursors.close()


async def where(cursors: SqliteCursors, subscription: SubscriptionId = SUB) -> int:
    return (await cursors.position(subscription, TOPIC)).offset


async def test_the_database_syncs_every_commit(kept: Kept) -> None:
    connection = kept.cursors._connection
    modes = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert modes == ["wal", 2]


async def test_a_cursor_past_the_end_goes_back_and_this_is_said(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    await kept.cursors.seek(SUB, TOPIC, 100)
    assert await where(await kept.reopen(end=60)) == 60
    assert "cursors.past_the_end" in "".join(capsys.readouterr())
    assert await where(await kept.reopen(end=200)) == 60


async def test_what_is_done_past_the_end_is_forgotten_and_said(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    await settle(kept.cursors, await kept.cursors.take_over(SUB, TOPIC), Change(done((40, 70)).done, {65: 1}))

    for end in (60, 100):
        progress = await (await kept.reopen(end)).progress(SUB)
        assert (progress.floor, ranges_of(progress.done), progress.failures) == (0, [(40, 60)], {})
        assert ("cursors.past_the_end" in "".join(capsys.readouterr())) == (end == 60)


async def test_on_a_full_disk_the_reserve_is_released_and_what_is_asked_is_stored(kept: Kept) -> None:
    await kept.cursors.hand_out(SUB, 0, 5)
    kept.is_full, kept.reserve = True, 1

    await kept.cursors.acknowledge(SUB, 4, DEADLINE)

    assert await where(await kept.reopen()) == 5
    taken = await kept.cursors.take_over(SUB, TOPIC)
    kept.is_full, kept.reserve = True, 1
    assert await settle(kept.cursors, taken, done((7, 8)))
    assert list((await (await kept.reopen()).progress(SUB)).done) == [7]


async def test_no_acknowledgement_that_builds_on_a_failed_one_succeeds(kept: Kept) -> None:
    await kept.cursors.hand_out(SUB, 0, 9)

    kept.is_full = True
    answers = await asyncio.gather(
        *(kept.cursors.acknowledge(SUB, last, DEADLINE) for last in (3, 3, 5, 1)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 4
    assert await where(kept.cursors) == 0
    kept.is_full = False
    await kept.cursors.acknowledge(SUB, 8, DEADLINE)
    assert await where(await kept.reopen()) == 9


async def test_what_moves_during_a_group_that_fails_is_undone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    cursors, is_begun, may_end, store = kept.cursors, threading.Event(), threading.Event(), sqlite.store
    await cursors.create(OTHER_SUB, TOPIC, 60)

    def held_up(*changes: object) -> None:
        is_begun.set()
        may_end.wait(60)
        store(*changes)

    monkeypatch.setattr(sqlite, "store", held_up)
    kept.is_full = True
    first = asyncio.ensure_future(cursors.seek(SUB, TOPIC, 7))
    await wait_until_async(is_begun.is_set)
    later = asyncio.ensure_future(cursors.seek(OTHER_SUB, TOPIC, 8))
    await asyncio.sleep(0)
    may_end.set()
    answers = await asyncio.gather(first, later, return_exceptions=True)

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 2
    assert [await where(cursors, each) for each in (SUB, OTHER_SUB)] == [0, 60]


async def test_after_a_seek_that_failed_what_was_handed_out_before_it_counts_and_nothing_else(kept: Kept) -> None:
    cursors = kept.cursors
    await cursors.hand_out(SUB, 0, 10)

    kept.is_full = True
    seeking = asyncio.ensure_future(cursors.seek(SUB, TOPIC, 100))
    await asyncio.sleep(0)
    during = await cursors.position(SUB, TOPIC)
    await cursors.hand_out(SUB, during.generation, 110)
    with pytest.raises(CursorsUnavailable):
        await seeking
    kept.is_full = False

    assert not await cursors.hand_out(SUB, during.generation, 110)
    with pytest.raises(InvalidInput, match="wrong ack"):
        await cursors.acknowledge(SUB, 105, DEADLINE)
    await cursors.acknowledge(SUB, 9, DEADLINE)


async def test_a_drop_that_fails_after_a_move_leaves_it_moved(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    cursors, is_begun, store = kept.cursors, threading.Event(), sqlite.store

    def store_last(*changes: object) -> None:
        is_begun.set()
        store(*changes)
        kept.is_full = True

    monkeypatch.setattr(sqlite, "store", store_last)
    moving = asyncio.ensure_future(cursors.seek(SUB, TOPIC, 7))
    await wait_until_async(is_begun.is_set)
    dropping = asyncio.ensure_future(cursors.drop(SUB))
    await asyncio.sleep(0)
    making = asyncio.ensure_future(cursors.create(SUB, TOPIC, 90))
    await moving
    for failing in (dropping, making):
        with pytest.raises(CursorsUnavailable):
            await failing

    assert await where(cursors) == 7


@pytest.fixture
def steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[asyncio.Runner, Kept]]:
    """Cursors for many examples of Hypothesis, and their loop."""
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    with asyncio.Runner() as runner:
        made = Kept(tmp_path / "cursors.db", monkeypatch)
        runner.run(made.open())
        yield runner, made
        runner.run(made.cursors.close())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_what_is_not_stored_was_never_asked(steady: tuple[asyncio.Runner, Kept], plan: list[tuple[Deed, bool]]) -> None:
    steady[0].run(follow(steady[1], plan))


async def follow(kept: Kept, plan: list[tuple[Deed, bool]]) -> None:
    subscription, model = new_uuid(), Naive()
    await kept.cursors.create(subscription, TOPIC, 0)
    for place, (deed, fails) in enumerate(plan):
        kept.is_full = fails
        answer = await answered(deed, kept.cursors, subscription, model)
        kept.is_full = False
        if answer is not CursorsUnavailable:
            assert answer == expected(deed, model), deed.name
        if place % 7 == 6:
            await kept.reopen()
        if model.is_gone:
            continue
        progress = await kept.cursors.progress(subscription)
        assert facts_of(progress, await kept.cursors.lost(subscription, {})) == model.facts()
        model.epoch = progress.epoch  # a seek that failed raises it, in memory
    await kept.cursors.drop(subscription)


@pytest.mark.parametrize("seed", range(6))
async def test_a_disk_full_at_times_keeps_all_answered(kept: Kept, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(entries, "MAX_DELTAS", 5)
    chance, store, cursors = random.Random(seed), sqlite.store, await kept.reopen(end=10_000)
    taken = await cursors.take_over(SUB, TOPIC)
    stored: set[int] = set()

    async def consumer(first: int) -> None:
        for at in range(first, 1_000, 10):
            try:
                assert await settle(cursors, taken, Change(done((at, at + 1)).done, {0: at}))
            except CursorsUnavailable:
                await asyncio.sleep(0)
            else:
                stored.add(at)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)

    def full_now_and_then(*arguments: object) -> None:
        if chance.random() < 0.3:
            raise failure(sqlite3.SQLITE_FULL, "database or disk is full")
        store(*arguments)

    with monkeypatch.context() as planted:
        planted.setattr(sqlite, "store", full_now_and_then)
        await asyncio.gather(*map(consumer, range(1, 10)))

    assert 100 < len(stored) < 899
    assert set((await cursors.progress(SUB)).done) == stored
    progress = await (await kept.reopen(end=10_000)).progress(SUB)
    assert set(progress.done) == stored
    assert progress.failures[0] in stored


async def test_a_change_that_cannot_be_undone_is_told_as_unknown(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    cursors = kept.cursors
    taken = await cursors.take_over(SUB, TOPIC)

    def broken(*_: object) -> None:
        raise failure(sqlite3.SQLITE_IOERR, "disk I/O error")

    with monkeypatch.context() as planted:
        planted.setattr(sqlite, "store", broken)
        planted.setattr(sqlite, "OVERWRITE", "no statement")
        with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
            await settle(cursors, taken, done((5, 6)))

    assert not (await cursors.progress(SUB)).done
    assert await settle(cursors, taken, done((6, 7)))


async def test_what_is_done_in_the_group_in_which_a_subscription_is_made_again_is_all_there_is(kept: Kept) -> None:
    taken = await kept.cursors.take_over(SUB, TOPIC)
    await settle(kept.cursors, taken, Change(done((3, 9)).done, {1: 2}))
    await asyncio.gather(kept.cursors.create(SUB, TOPIC, 1), settle(kept.cursors, taken, done((5, 6))))
    assert facts_of(await (await kept.reopen()).progress(SUB), 0) == (1, taken.run, {5}, {}, None, 0)


@pytest.mark.parametrize("number", [1, 63, 64, 65, 200])
async def test_a_group_of_any_size_is_stored_whole(kept: Kept, number: int) -> None:
    cursors = kept.cursors
    every = [f"many-{each}" for each in range(number)]
    await asyncio.gather(*(cursors.create(each, TOPIC, 0) for each in every))
    for each in every:
        await cursors.hand_out(each, 0, 100)

    await asyncio.gather(
        cursors.drop(SUB), *(cursors.acknowledge(each, place % 99, DEADLINE) for place, each in enumerate(every))
    )
    await asyncio.gather(*(cursors.take_over(each, TOPIC) for each in every))
    await asyncio.gather(*(cursors.settle(each, 0, 1, done((99, 100))) for each in every))

    cursors = await kept.reopen()
    assert {key: place.offset for key, place in (await cursors.places()).items()} == {
        each: place % 99 + 1 if place % 99 != 98 else 100 for place, each in enumerate(every)
    }
    assert len(kept.rows()) == sum(place % 99 != 98 for place in range(number))


async def test_a_damaged_entry_is_refused_in_one_line_that_names_the_subscription(kept: Kept) -> None:
    await settle(kept.cursors, await kept.cursors.take_over(SUB, TOPIC), done((5, 6)))
    with closing(sqlite3.connect(kept.path)) as connection:
        connection.execute("UPDATE acks SET entry = x'01aabbccdd90'")
        connection.commit()

    with pytest.raises(Unusable, match=f"subscription {SUB} an entry that does not match its checksum; restore it"):
        await kept.reopen()


async def test_a_folder_that_cannot_be_synced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.Disk, "sync_folder", failing)

    with pytest.raises(Unusable, match="its folder cannot be synced: Input/output error"):
        await SqliteCursors.open(str(tmp_path / "cursors.db"), ends={})


async def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cursors.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(Unusable, match="not a usable cursor database"):
        await SqliteCursors.open(str(tmp_path / "cursors.db"), ends={})
