"""The database: transactions as functions of a connection, and invalidation of caches by them.

Work runs in a thread as one transaction: on SQLite (`ams.storage.database.sqlite`) or on PostgreSQL
(`ams.storage.database.postgresql`), where it may run several times until it is whole. A driver's exceptions never leave
those.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, Delete, Executable, Insert, Row, Select, Table, Update, insert, select

from ams.core.errors import RegistryUnavailable, Unusable
from ams.storage.database.invalidation import Invalidation, Invalidations
from ams.storage.database.schema import Schema, Work, prepare, reason
from ams.storage.database.sqlite import SqliteStore
from ams.storage.free_space import UNLIMITED, FreeSpace

if TYPE_CHECKING:
    from ams.storage.database.postgresql import PostgresStore

T = TypeVar("T")


def sqlite_url(path: str) -> str:
    """Return the URL of a SQLite database file; any path will do."""
    return URL.create("sqlite", database=path).render_as_string()


class Database:
    """Runs work against the database at a URL, SQLite's or PostgreSQL's (then without password).

    When the disk of a file is full, the reserve of `space` is given back, and the work is tried again.
    """

    def __init__(self, url: str, schema: Schema, space: FreeSpace = UNLIMITED, *, password: str = "") -> None:
        self.invalidations = Invalidations()  # where caches of what is in the database are made
        self._writing: set[asyncio.Future[Any]] = set()
        self._store: SqliteStore | PostgresStore
        if not is_postgresql(url):
            self._store = SqliteStore(url, schema, space)
            return
        try:
            from ams.storage.database import postgresql
        except ModuleNotFoundError as error:
            if error.name != "psycopg":
                raise
            missing = "registry names PostgreSQL, whose driver is missing: install argo-messaging[postgres]"
            raise Unusable(missing) from None
        self._store = postgresql.PostgresStore(url, schema, password, self.invalidations)

    async def prepare(self, work: Work[T]) -> T:
        """Run the work that makes or migrates the tables, on one node after the other. Raises `RegistryUnavailable`."""
        return await self._store.prepare(work)

    async def listen(self) -> None:
        """Begin to receive the changes of other nodes; only then are caches used, where there can be other nodes."""
        await self._store.listen()

    async def read(self, work: Work[T]) -> T:
        """Run work that changes nothing; it sees one state of the database. Raises `RegistryUnavailable`."""
        return await self._store.read(work)

    async def rows(self, query: Select[Any], make: Callable[[Row[Any]], T]) -> list[T]:
        """Return a value made of each row of a query. Raises as `read`."""
        return await self.read(lambda connection: [make(row) for row in connection.execute(query)])

    async def row(self, query: Select[Any], make: Callable[[Row[Any]], T]) -> T | None:
        """Return a value made of the first row of a query; None without one. Raises as `read`."""
        return await self.read(lambda connection: first(connection, query, make))

    async def value(self, query: Select[Any]) -> Any:
        """Return the first column of the first row of a query; None without one. Raises as `read`."""
        return await self.read(lambda connection: connection.scalar(query))

    async def change(self, statement: Delete | Update | Insert, *forgets: Invalidation, grows: bool = True) -> int:
        """Run one statement; return how many rows it changed. Otherwise as `write`."""
        return await self.write(lambda connection: connection.execute(statement).rowcount, *forgets, grows=grows)

    async def write(self, work: Work[T], *forgets: Invalidation, large: bool = False, grows: bool = True) -> T:
        """Run work and commit it; all of it is stored durably, or nothing. A `large` one is given more time.

        Work that `grows` the database is refused while its disk has little space left. `forgets` are forgotten before
        anyone sees the outcome, also when the caller has left meanwhile. Raises `AlreadyExists` for a name that is
        taken, `NotFound` for a project that is gone, `RegistryUnavailable`, and errors of the work.
        """
        writing = asyncio.ensure_future(self._store.write(work, forgets, large=large, grows=grows))
        writing.add_done_callback(lambda _: self.invalidations.apply(forgets))
        return await self._to_its_end(writing)

    async def put(self, work: Work[T], *, grows: bool = False) -> T:
        """Run one statement, which may run repeatedly, and commit it; cheaper than `write`. Raises as `write`."""
        return await self._to_its_end(asyncio.ensure_future(self._store.put(work, grows=grows)))

    async def in_turn(self, work: Work[T], turn: int) -> T:
        """Run work and commit it; work of the same `turn` runs on one node after the other. Raises as `write`.

        Cheaper than `write` for work that is in its own way often. It may run again after it was committed.
        """
        return await self._to_its_end(asyncio.ensure_future(self._store.in_turn(work, turn)))

    async def require_room(self) -> None:
        """Raise `RegistryUnavailable` while what grows is refused; for who makes something elsewhere first."""
        await self._store.require_room()

    @property
    def away(self) -> str | None:
        """Why the database cannot be asked now, as far as is known; None while it can, as always a file's."""
        return None if self.invalidations.trusted else "PostgreSQL does not answer"

    async def at_length(self, work: Work[T]) -> T:
        """Run work on the whole database, once, without a time limit; no process makes or migrates tables meanwhile.

        For an installation that no node serves. Raises `RegistryUnavailable`, and all that the work raises.
        """
        return await self._to_its_end(asyncio.ensure_future(self._store.prepare(work, waits=True)))

    async def alone(self, work: Work[T]) -> T:
        """Run work and commit it while no other node serves; else raise `Unusable`. Caches are not used afterwards."""
        return await self._to_its_end(asyncio.ensure_future(self._store.alone(work)))

    async def close(self) -> None:
        """Finish what was accepted and close all connections."""
        if self._writing:
            await asyncio.wait(self._writing)
        await self._store.close()

    async def _to_its_end(self, writing: "asyncio.Future[T]") -> T:
        """Wait for what is written; it goes on when the caller leaves."""
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await asyncio.shield(writing)


def first(connection: Connection, query: Executable, make: Callable[[Row[Any]], T]) -> T | None:
    """Return a value made of the first row of a statement; None without one."""
    row = connection.execute(query).first()
    return None if row is None else make(row)


def is_postgresql(url: str) -> bool:
    """Return whether a URL is PostgreSQL's."""
    return url.startswith(("postgresql://", "postgres://"))


async def opened(
    url: str,
    schema: Schema,
    keys: Table,
    fingerprint: str,
    *,
    other_key: str,
    password: str = "",
    space: FreeSpace = UNLIMITED,
) -> Database:
    """Open the database at `url`; `keys` is the table of the fingerprint of its secrets' key.

    Raises `Unusable` if it is not ours, or has another key (`other_key`); `RegistryUnavailable` if it does not answer.
    """
    database = Database(url, schema, space, password=password)

    def prepare_and_compare(connection: Connection) -> None:
        prepare(connection, schema)
        known = connection.scalar(select(keys.c.fingerprint))
        if known is None:
            connection.execute(insert(keys).values(fingerprint=fingerprint))
        elif known != fingerprint:
            raise Unusable(other_key)

    try:
        await database.prepare(prepare_and_compare)
        await database.listen()
    except RegistryUnavailable as error:
        await database.close()
        said = reason(error.__cause__)
        if is_postgresql(url):  # a server comes back by itself; a file does not
            raise RegistryUnavailable(f"the {schema.what}'s database does not answer: {said}") from None
        raise Unusable(f"the {schema.what}'s database is not usable: {said}") from None
    except BaseException:
        await database.close()
        raise
    return database
