"""A database of the registry: transactions, rollbacks in memory, a full disk, and retries of a dead one."""

import asyncio
import contextlib
import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Connection, func, insert, select, update

from ams.core.errors import NotFound, RegistryUnavailable, Unusable
from ams.storage.database import postgresql
from ams.storage.database.database import Database, sqlite_url
from ams.storage.database.invalidation import Invalidation
from ams.storage.database.postgresql import Patience, TransientFailure
from ams.storage.database.schema import prepare
from ams.storage.files import Disk
from ams.storage.free_space import FreeSpace
from ams.storage.registry.tables import REGISTRY, projects
from tests.support.loop_time import pass_loop_time
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async


@contextlib.asynccontextmanager
async def open_prepared(url: str) -> AsyncIterator[Database]:
    opened = Database(url, REGISTRY)
    await opened.run_long(lambda connection: prepare(connection, REGISTRY))
    yield opened
    await opened.close()


@pytest.fixture
async def database(registry_url: str) -> AsyncIterator[Database]:
    async with open_prepared(registry_url) as opened:
        yield opened


def add_project(name: str, connection: Connection) -> None:
    connection.execute(insert(projects).values(id=name, name=name, description="", created_on=0, modified_on=0))


def count_projects(connection: Connection) -> int | None:
    return connection.scalar(select(func.count()).select_from(projects))


async def test_work_that_fails_leaves_nothing_behind(database: Database) -> None:
    def work(connection: Connection) -> None:
        add_project("P", connection)
        raise NotFound("changed my mind")

    with pytest.raises(NotFound, match="changed my mind"):
        await database.write(work)

    assert await database.read(count_projects) == 0


async def test_a_broken_rule_no_client_can_meet_is_no_clients_fault(database: Database) -> None:
    await database.write(lambda connection: add_project("P", connection))
    same = insert(projects).values(id="P", name="Q", description="", created_on=0, modified_on=0)
    with pytest.raises(RegistryUnavailable):
        await database.write(lambda connection: connection.execute(same))


async def test_a_failing_statement_is_unavailability_and_the_next_one_works(database: Database) -> None:
    """17.4 O9."""
    with pytest.raises(RegistryUnavailable) as caught:
        await database.read(lambda connection: connection.exec_driver_sql("SELECT * FROM nowhere"))
    assert caught.value.message == "Internal error while querying datastore"
    assert await database.read(count_projects) == 0


async def test_caches_forget_before_anyone_sees_the_outcome(database: Database) -> None:
    told: list[str] = []
    database.invalidations.on("letter", told.append)

    await database.write(count_projects, Invalidation("letter", ("a",)), Invalidation("letter", ("b",)))
    told.append("caller")

    assert told == ["a", "b", "caller"]


async def test_caches_forget_also_when_the_caller_has_left(database: Database) -> None:
    forgotten = asyncio.Event()
    database.invalidations.on("letter", forgotten.set)
    writing = asyncio.create_task(
        database.write(lambda connection: add_project("P", connection), Invalidation("letter", ()))
    )
    await asyncio.sleep(0)

    writing.cancel()
    await forgotten.wait()

    assert writing.cancelled()
    assert await database.read(count_projects) == 1


async def test_many_writers_each_get_their_turn(database: Database) -> None:
    await asyncio.gather(
        *(database.write(lambda connection, name=f"P{n}": add_project(name, connection)) for n in range(50))
    )
    assert await database.read(count_projects) == 50


async def test_work_of_the_same_turn_runs_one_after_the_other(database: Database) -> None:
    """Each sees the changes of the one before, also when two nodes run them at the same time."""

    def count_up(connection: Connection) -> None:
        count = connection.scalar(select(projects.c.created_on)) or 0
        connection.execute(update(projects).values(created_on=count + 1))

    await database.write(lambda connection: add_project("P", connection))

    await asyncio.gather(*(database.put(count_up, turn=7) for _ in range(20)))

    assert await database.read(lambda connection: connection.scalar(select(projects.c.created_on))) == 20


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_prepared(sqlite_url(str(tmp_path / "registry.db"))) as opened:
        yield opened


def pragma(connection: Connection, name: str) -> object:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


@pytest.mark.parametrize(
    ("name", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5000)]
)
async def test_every_connection_is_durable_and_holds_the_rules(sqlite: Database, name: str, value: object) -> None:
    assert await sqlite.write(lambda connection: pragma(connection, name)) == value
    assert await sqlite.read(lambda connection: pragma(connection, name)) == value


async def test_the_file_is_for_its_owner_only(sqlite: Database, tmp_path: Path) -> None:
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


async def test_reads_do_not_wait_for_a_write_under_way(sqlite: Database, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "registry.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    assert await sqlite.read(count_projects) == 0

    other.execute("ROLLBACK")
    other.close()


class FullDisk(FreeSpace):
    def __init__(self, path: Path, *, helps: bool) -> None:
        super().__init__(Disk(), str(path), 0)
        self.asked = 0
        self.pages = 60
        self.database = Database(sqlite_url(str(path / "registry.db")), REGISTRY, self)
        self._helps = helps

    def release_reserve(self) -> bool:
        self.asked += 1
        if self._helps:
            self.pages = 1_000
        return self._helps

    def fill(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {self.pages}")
        for number in range(60):
            row = {"id": str(number), "name": str(number), "description": "x" * 8000, "created_on": 0, "modified_on": 0}
            connection.execute(insert(projects).values(row))


@pytest.mark.parametrize("helps", [True, False], ids=["which helps", "in vain"])
async def test_on_a_full_disk_room_is_asked_for_once_and_nothing_is_stored_by_half(tmp_path: Path, helps: bool) -> None:
    disk = FullDisk(tmp_path, helps=helps)
    await disk.database.write(lambda connection: prepare(connection, REGISTRY))

    with contextlib.nullcontext() if helps else pytest.raises(RegistryUnavailable, match="^Backend Error$"):
        await disk.database.write(disk.fill)

    assert (disk.asked, await disk.database.read(count_projects)) == (1, 60 if helps else 0)
    await disk.database.close()


def test_a_place_where_no_file_can_be_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be opened: No such file or directory"):
        Database(sqlite_url(str(tmp_path / "nowhere" / "registry.db")), REGISTRY)


class Server:
    """A database that may be down, and answers on demand; counts clients, and concurrent ones."""

    def __init__(self) -> None:
        self.away = False
        self.asked = self.at_once = self.most_at_once = 0

    async def attempt(self, asks: bool) -> str:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        began = time.monotonic()
        for _ in range(5):
            await asyncio.sleep(0)
        self.at_once -= 1
        if self.away:
            raise TransientFailure(away=True, since=began) from ConnectionError("refused")
        return "answer"


async def test_a_database_that_is_there_is_asked_by_all_at_once() -> None:
    server, patience = Server(), Patience()
    assert await asyncio.gather(*(patience.keep_trying(server.attempt) for _ in range(20))) == ["answer"] * 20
    assert (server.asked, server.most_at_once) == (20, 20)


async def test_one_asks_for_all_while_it_is_away_and_all_go_on_when_it_is_back() -> None:
    server, patience = Server(), Patience(60)
    server.away = True
    first = asyncio.create_task(patience.keep_trying(server.attempt))
    await wait_until_async(lambda: patience.away)
    server.most_at_once, enough = 0, server.asked + 20
    others = [asyncio.create_task(patience.keep_trying(server.attempt)) for _ in range(20)]
    await wait_until_async(lambda: server.asked >= enough)
    assert server.most_at_once == 1

    server.away = False

    assert await asyncio.gather(first, *others) == ["answer"] * 21
    assert patience.away is None


async def test_a_call_waits_so_long_the_reason_is_kept_and_then_only_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    server, patience = Server(), Patience(2 * PATIENCE_SECONDS)
    server.away = True
    call = asyncio.create_task(patience.keep_trying(server.attempt))
    for _ in range(2):
        server.asked = 0
        await wait_until_async(lambda: server.asked > 1 or call.done())
        assert not call.done()
        pass_loop_time(monkeypatch, PATIENCE_SECONDS)

    with pytest.raises(RegistryUnavailable) as caught:
        await call

    assert str(caught.value.__cause__) == "refused"
    now = time.monotonic
    monkeypatch.setattr(postgresql, "time", SimpleNamespace(monotonic=lambda: now() + 2 * PATIENCE_SECONDS))
    server.asked = 0
    failures = await asyncio.gather(*(patience.keep_trying(server.attempt) for _ in range(20)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {RegistryUnavailable}
    assert server.asked == 1  # whoever waits asks again
    server.away = False
    assert await patience.keep_trying(server.attempt) == "answer"
