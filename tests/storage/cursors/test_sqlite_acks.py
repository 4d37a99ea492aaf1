"""Acknowledgements one by one in SQLite: failing disks, files of an older version, damage, and what is left over."""

import asyncio
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, Unusable
from ams.core.names import Offset, SubscriptionId, new_uuid
from ams.core.offsets import ranges_of
from ams.storage.cursors import entries, sqlite
from ams.storage.cursors.acks import Change, Progress
from ams.storage.cursors.sqlite import SqliteCursors
from tests.storage.cursors.naive import Deed, Naive, answered, expected, facts_of, plans
from tests.storage.cursors.stores import SUB, TOPIC
from tests.storage.cursors.test_sqlite import Disk, opened


def done(*ranges: tuple[int, int]) -> Change:
    return Change([(Offset(begin), Offset(end)) for begin, end in ranges])


async def settle(cursors: SqliteCursors, taken: Progress, change: Change) -> bool:
    return await cursors.settle(SUB, taken.epoch, taken.run, change)


async def reopened(cursors: SqliteCursors, path: Path) -> SqliteCursors:
    await cursors.close()
    return await opened(path)


def rows_in(path: Path) -> Sequence[tuple[str, int, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT subscription, number, entry FROM acks").fetchall()


class Failing:
    """A store whose disk can be full, and the loop it lives in."""

    def __init__(self, runner: asyncio.Runner, path: Path, disk: Disk) -> None:
        self.runner, self.path, self.disk = runner, path, disk
        self.cursors = runner.run(opened(path))


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    with asyncio.Runner() as runner:
        made = Failing(runner, tmp_path / "cursors.db", Disk(monkeypatch))
        yield made
        runner.run(made.cursors.close())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_what_could_not_be_stored_is_as_if_it_was_never_asked(failing: Failing, plan: list[tuple[Deed, bool]]) -> None:
    failing.runner.run(follow(failing, plan))


async def follow(failing: Failing, plan: list[tuple[Deed, bool]]) -> None:
    subscription, model = SubscriptionId(new_uuid()), Naive()
    await failing.cursors.create(subscription, TOPIC, Offset(0))
    for place, (deed, fails) in enumerate(plan):
        failing.disk.full = fails
        answer = await answered(deed, failing.cursors, subscription, model)
        failing.disk.full = False
        if answer is not CursorsUnavailable:
            assert answer == expected(deed, model), deed
        if place % 7 == 6:
            failing.cursors = await reopened(failing.cursors, failing.path)
        if model.is_gone:
            continue
        progress = await failing.cursors.progress(subscription)
        assert facts_of(progress, await failing.cursors.lost(subscription, {})) == model.facts()
        model.epoch = progress.epoch  # a seek that failed raises it, in memory
    await failing.cursors.drop(subscription)


async def test_changes_that_build_on_one_that_failed_fail_too_and_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)
    await settle(cursors, taken, Change(done((2, 4)).done, {Offset(1): 1}))
    before = await cursors.progress(SUB)

    disk.full = True
    answers = await asyncio.gather(
        settle(cursors, taken, done((0, 1))),
        settle(cursors, taken, Change(done((6, 9)).done, {Offset(1): 2})),
        cursors.take_over(SUB, TOPIC),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 3
    assert await cursors.progress(SUB) == before
    disk.full = False
    assert await settle(cursors, taken, done((7, 8)))
    cursors = await reopened(cursors, path)
    assert ranges_of((await cursors.progress(SUB)).done) == [(2, 4), (7, 8)]
    await cursors.close()


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_there_is_what_was_answered_while_the_disk_is_full_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(entries, "MAX_DELTAS", 5)
    chance, path, store = random.Random(seed), tmp_path / "cursors.db", sqlite.store
    cursors = await opened(path, end=10_000)
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)
    stored: set[int] = set()

    async def consumer(first: int) -> None:
        for at in range(first, 1_000, 10):
            try:
                assert await settle(cursors, taken, Change(done((at, at + 1)).done, {Offset(0): at}))
            except CursorsUnavailable:
                await asyncio.sleep(0)
            else:
                stored.add(at)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)

    def full_now_and_then(*arguments: object) -> None:
        if chance.random() < 0.3:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        store(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as planted:
        planted.setattr(sqlite, "store", full_now_and_then)
        await asyncio.gather(*map(consumer, range(1, 10)))

    assert 100 < len(stored) < 899
    assert set((await cursors.progress(SUB)).done) == stored
    await cursors.close()
    cursors = await opened(path, end=10_000)
    progress = await cursors.progress(SUB)
    assert set(progress.done) == stored
    assert progress.failures[Offset(0)] in stored
    await cursors.close()


async def test_on_a_full_disk_the_reserve_is_released_and_the_change_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    path = tmp_path / "cursors.db"
    cursors = await opened(path, on_full=disk.release_reserve)
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)

    disk.full, disk.reserve = True, 1
    assert await settle(cursors, taken, done((5, 6)))

    cursors = await reopened(cursors, path)
    assert list((await cursors.progress(SUB)).done) == [5]
    await cursors.close()


async def test_a_change_whose_sync_and_whose_undoing_failed_is_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)

    def broken(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    with monkeypatch.context() as planted:
        planted.setattr(sqlite, "store", broken)
        planted.setattr(cursors, "_overwrite", broken)
        with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
            await settle(cursors, taken, done((5, 6)))

    assert not (await cursors.progress(SUB)).done
    assert await settle(cursors, taken, done((6, 7)))
    await cursors.close()


async def test_the_epoch_after_a_seek_that_failed_outlives_a_restart_with_what_was_done_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    await cursors.create(SUB, TOPIC, Offset(0))
    before = await cursors.take_over(SUB, TOPIC)
    await settle(cursors, before, done((3, 5)))
    disk.full = True
    with pytest.raises(CursorsUnavailable):
        await cursors.seek(SUB, TOPIC, Offset(9))
    disk.full = False
    assert not await settle(cursors, before, done((0, 1)))

    taken = await cursors.take_over(SUB, TOPIC)
    assert (ranges_of(taken.done), taken.epoch > before.epoch) == ([(3, 5)], True)
    await settle(cursors, taken, done((6, 7)))

    cursors = await reopened(cursors, path)
    progress = await cursors.progress(SUB)
    assert (ranges_of(progress.done), progress.epoch) == ([(3, 5), (6, 7)], taken.epoch)
    await cursors.close()


async def test_a_creation_that_failed_leaves_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)
    await settle(cursors, taken, done((3, 5)))

    disk.full = True
    for failing in (cursors.create(SUB, TOPIC, Offset(7)), cursors.drop(SUB)):
        with pytest.raises(CursorsUnavailable):
            await failing
    disk.full = False

    progress = await cursors.progress(SUB)
    assert (progress.floor, ranges_of(progress.done), progress.run) == (0, [(3, 5)], taken.run)
    await cursors.close()


async def test_what_is_done_in_the_group_in_which_a_subscription_is_made_again_is_all_there_is(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)
    await settle(cursors, taken, Change(done((3, 9)).done, {Offset(1): 2}))

    await asyncio.gather(cursors.create(SUB, TOPIC, Offset(1)), settle(cursors, taken, done((5, 6))))

    cursors = await reopened(cursors, path)
    assert facts_of(await cursors.progress(SUB), 0) == (1, taken.run, {5}, {}, None, 0)
    await cursors.close()


async def test_a_group_of_many_subscriptions_is_stored_whole(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    every = [SubscriptionId(f"many-{number}") for number in range(90)]
    await asyncio.gather(*(cursors.create(each, TOPIC, Offset(0)) for each in every))
    await asyncio.gather(*(cursors.take_over(each, TOPIC) for each in every))

    await asyncio.gather(
        *(cursors.settle(each, 0, 1, done((place + 1, place + 2))) for place, each in enumerate(every)),
        *(cursors.settle(each, 0, 1, done((place + 5, place + 6))) for place, each in enumerate(every)),
    )

    assert len(rows_in(path)) == 90
    cursors = await reopened(cursors, path)
    assert [list((await cursors.progress(each)).done) for each in every] == [[at + 1, at + 5] for at in range(90)]
    await cursors.close()


async def test_rows_go_when_all_is_done_and_with_their_subscription(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    await cursors.create(SUB, TOPIC, Offset(0))
    taken = await cursors.take_over(SUB, TOPIC)
    await settle(cursors, taken, done((0, 5)))
    assert not rows_in(path)
    await settle(cursors, taken, Change(done((6, 9)).done, {Offset(5): 1}))
    assert len(rows_in(path)) == 1
    await settle(cursors, taken, done((5, 6)))
    assert not rows_in(path)
    await settle(cursors, taken, done((20, 30)))
    await cursors.drop(SUB)
    assert not rows_in(path)
    await cursors.close()


async def test_a_database_of_an_older_version_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            'CREATE TABLE cursors (subscription TEXT PRIMARY KEY, topic TEXT NOT NULL, "offset" INTEGER NOT NULL,'
            " generation INTEGER NOT NULL, lost INTEGER NOT NULL, sought INTEGER NOT NULL) WITHOUT ROWID"
        )
        connection.execute("INSERT INTO cursors VALUES (?, ?, 7, 2, 1, 0)", (SUB, TOPIC.hex()))
        connection.commit()

    for run in (1, 2):
        cursors = await opened(path)
        position = await cursors.position(SUB, TOPIC)
        assert (position.offset, position.generation, position.lost) == (7, 2, 1)
        assert (await cursors.take_over(SUB, TOPIC)).run == run
        await cursors.close()


async def test_what_is_done_past_the_end_is_forgotten_as_the_log_is_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    await cursors.create(SUB, TOPIC, Offset(0))
    await settle(cursors, await cursors.take_over(SUB, TOPIC), Change(done((40, 70)).done, {Offset(65): 1}))
    await cursors.close()

    for end in (60, 100):
        cursors = await opened(path, end)
        progress = await cursors.progress(SUB)
        assert (progress.floor, ranges_of(progress.done), progress.failures) == (0, [(40, 60)], {})
        assert ("cursors.past_the_end" in "".join(capsys.readouterr())) == (end == 60)
        await cursors.close()


async def test_an_entry_that_is_damaged_is_refused_in_one_line_that_names_the_subscription(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    cursors = await opened(path)
    await cursors.create(SUB, TOPIC, Offset(0))
    await settle(cursors, await cursors.take_over(SUB, TOPIC), done((5, 6)))
    await cursors.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE acks SET entry = x'01aabbccdd90'")
        connection.commit()

    with pytest.raises(Unusable, match=f"subscription {SUB} an entry that does not match its checksum; restore it"):
        await opened(path)
