"""What is particular to cursors in SQLite: durability settings, a full disk, a foreign file."""

import asyncio
import errno
import sqlite3
import threading
from pathlib import Path

import pytest

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import CursorsUnavailable, InvalidInput, Unusable
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage import files
from ams.storage.cursors import sqlite
from ams.storage.cursors.sqlite import SqliteCursors

SUB = SubscriptionId("sub-1")
TOPIC = TopicId(b"t" * 16)
DEADLINE = Milliseconds(10_000)


class Disk:
    """Makes the store's statements fail as a full disk does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.reserve = 0
        self.attempts = 0
        store = sqlite.store

        def failing_store(*arguments: object) -> None:
            self.attempts += 1
            if self.full:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            store(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(sqlite, "store", failing_store)

    def release_reserve(self) -> bool:
        if not self.reserve:
            return False
        self.reserve -= 1
        self.full = False
        return True


async def opened(path: Path, end: int = 100, **options: object) -> SqliteCursors:
    return await SqliteCursors.open(str(path), ends={TOPIC: Offset(end)}, **options)  # type: ignore[arg-type]


async def test_the_database_is_in_wal_mode_and_syncs_every_commit(tmp_path: Path) -> None:
    cursors = await opened(tmp_path / "cursors.db")

    pragma = {
        name: cursors._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }

    assert pragma == {"journal_mode": "wal", "synchronous": 2}
    await cursors.close()


async def test_a_cursor_past_the_end_goes_back_to_the_end_and_this_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(100))
    await cursors.close()

    cursors = await opened(tmp_path / "cursors.db", end=60)

    assert (await cursors.position(SUB, TOPIC)).offset == 60
    assert "cursors.past_the_end" in "".join(capsys.readouterr())
    await cursors.close()
    cursors = await opened(tmp_path / "cursors.db", end=200)
    assert (await cursors.position(SUB, TOPIC)).offset == 60
    await cursors.close()


async def test_on_a_full_disk_the_reserve_is_released_and_the_acknowledgement_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db", on_full=disk.release_reserve)
    await cursors.create(SUB, TOPIC, Offset(0))
    await cursors.hand_out(SUB, 0, Offset(5))

    disk.full, disk.reserve = True, 1
    await cursors.acknowledge(SUB, Offset(4), DEADLINE)

    assert (await cursors.position(SUB, TOPIC)).offset == 5
    await cursors.close()


async def test_with_no_space_at_all_an_acknowledgement_fails_and_succeeds_when_there_is_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db", on_full=disk.release_reserve)
    await cursors.create(SUB, TOPIC, Offset(0))
    await cursors.hand_out(SUB, 0, Offset(5))

    disk.full = True
    with pytest.raises(CursorsUnavailable):
        await cursors.acknowledge(SUB, Offset(4), DEADLINE)
    assert (await cursors.position(SUB, TOPIC)).offset == 0

    disk.full = False
    await cursors.acknowledge(SUB, Offset(4), DEADLINE)
    await cursors.close()
    cursors = await opened(tmp_path / "cursors.db")
    assert (await cursors.position(SUB, TOPIC)).offset == 5
    await cursors.close()


async def test_no_acknowledgement_that_builds_on_a_failed_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(0))
    await cursors.hand_out(SUB, 0, Offset(9))

    disk.full = True
    answers = await asyncio.gather(
        *(cursors.acknowledge(SUB, Offset(last), DEADLINE) for last in (3, 3, 5, 1)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 4
    disk.full = False
    await cursors.acknowledge(SUB, Offset(8), DEADLINE)
    await cursors.close()


async def test_what_moved_while_a_group_was_being_written_that_failed_fails_too_and_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    other, written = SubscriptionId("sub-2"), threading.Event()
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(50))
    await cursors.create(other, TOPIC, Offset(60))
    store = sqlite.store

    def held_up(*changes: object) -> None:
        written.wait(30)
        store(*changes)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite, "store", held_up)
    disk.full = True
    first = asyncio.ensure_future(cursors.seek(SUB, TOPIC, Offset(7)))
    while cursors._writing is None:
        await asyncio.sleep(0)
    later = asyncio.ensure_future(cursors.seek(other, TOPIC, Offset(8)))
    await asyncio.sleep(0)
    written.set()
    answers = await asyncio.gather(first, later, return_exceptions=True)

    assert [type(answer) for answer in answers] == [CursorsUnavailable] * 2
    assert [(await cursors.position(each, TOPIC)).offset for each in (SUB, other)] == [50, 60]
    await cursors.close()


async def test_an_acknowledgement_that_failed_twice_succeeds_when_the_disk_is_fine_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(0))
    await cursors.hand_out(SUB, 0, Offset(5))

    disk.full = True
    for _ in range(2):
        with pytest.raises(CursorsUnavailable):
            await cursors.acknowledge(SUB, Offset(4), DEADLINE)
    disk.full = False

    await cursors.acknowledge(SUB, Offset(4), DEADLINE)
    await cursors.close()


async def test_after_a_seek_that_failed_what_was_handed_out_before_it_counts_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(5))
    await cursors.hand_out(SUB, 0, Offset(10))

    disk.full = True
    seeking = asyncio.ensure_future(cursors.seek(SUB, TOPIC, Offset(100)))
    await asyncio.sleep(0)
    during = await cursors.position(SUB, TOPIC)
    await cursors.hand_out(SUB, during.generation, Offset(110))
    with pytest.raises(CursorsUnavailable):
        await seeking
    disk.full = False

    assert not await cursors.hand_out(SUB, during.generation, Offset(110))
    with pytest.raises(InvalidInput, match="wrong ack"):
        await cursors.acknowledge(SUB, Offset(105), DEADLINE)
    await cursors.acknowledge(SUB, Offset(9), DEADLINE)
    await cursors.close()


async def test_a_seek_that_failed_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    clock = ManualClock()
    cursors = await opened(tmp_path / "cursors.db", clock=clock)
    await cursors.create(SUB, TOPIC, Offset(50))

    disk.full = True
    with pytest.raises(CursorsUnavailable):
        await cursors.seek(SUB, TOPIC, Offset(7))

    assert (await cursors.position(SUB, TOPIC)).offset == 50
    await cursors.close()


async def test_a_drop_that_failed_leaves_the_cursor_where_the_disk_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(50), lost=3)

    disk.full = True
    with pytest.raises(CursorsUnavailable):
        await cursors.drop(SUB)

    assert (await cursors.position(SUB, TOPIC)).offset == 50
    assert await cursors.lost_in_all({}) == 3
    disk.full = False
    await cursors.seek(SUB, TOPIC, Offset(60))
    await cursors.drop(SUB)
    assert await cursors.lost_in_all({}) == 3
    await cursors.close()
    cursors = await opened(tmp_path / "cursors.db")
    assert await cursors.subscriptions() == frozenset()
    assert await cursors.lost_in_all({}) == 3
    await cursors.close()


async def test_a_drop_that_failed_after_a_move_that_went_well_leaves_the_cursor_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    cursors = await opened(tmp_path / "cursors.db")
    await cursors.create(SUB, TOPIC, Offset(0))
    store = sqlite.store

    def storing(*changes: object) -> None:
        store(*changes)  # type: ignore[arg-type]
        disk.full = True

    monkeypatch.setattr(sqlite, "store", storing)
    moving = asyncio.ensure_future(cursors.seek(SUB, TOPIC, Offset(7)))
    while cursors._writing is None:
        await asyncio.sleep(0)
    dropping = asyncio.ensure_future(cursors.drop(SUB))
    await asyncio.sleep(0)
    making = asyncio.ensure_future(cursors.create(SUB, TOPIC, Offset(90)))
    await moving
    with pytest.raises(CursorsUnavailable):
        await dropping
    with pytest.raises(CursorsUnavailable):
        await making

    assert (await cursors.position(SUB, TOPIC)).offset == 7
    await cursors.close()


async def test_a_folder_that_cannot_be_synced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.Disk, "sync_folder", failing)

    with pytest.raises(Unusable, match="its folder cannot be synced: Input/output error"):
        await opened(tmp_path / "cursors.db")


async def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    path.write_bytes(b"something else entirely" * 100)

    with pytest.raises(Unusable, match="not a usable cursor database"):
        await opened(path)


@pytest.mark.parametrize("number", [1, 63, 64, 65, 200])
async def test_a_group_of_any_size_is_stored_whole(tmp_path: Path, number: int) -> None:
    cursors = await opened(tmp_path / "cursors.db")
    every = [SubscriptionId(f"many-{each}") for each in range(number)]
    await asyncio.gather(*(cursors.create(each, TOPIC, Offset(0)) for each in [*every, SUB]))
    for each in every:
        await cursors.hand_out(each, 0, Offset(100))

    await asyncio.gather(
        cursors.drop(SUB),
        *(cursors.acknowledge(each, Offset(place % 100), DEADLINE) for place, each in enumerate(every)),
    )

    await cursors.close()
    cursors = await opened(tmp_path / "cursors.db")
    assert {key: place.offset for key, place in (await cursors.places()).items()} == {
        each: place % 100 + 1 for place, each in enumerate(every)
    }
    await cursors.close()
