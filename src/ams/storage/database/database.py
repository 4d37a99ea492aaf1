"""Databases: transactions as functions of a connection, with cache invalidation.

Work runs in a thread as one transaction, on SQLite (`ams.storage.database.sqlite`) or on PostgreSQL
(`ams.storage.database.postgresql`), where it may be retried. Exceptions of the drivers never leave these modules.
"""

import asyncio
import base64
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, Delete, Executable, Insert, Row, Select, Update, insert, select

from ams.core.errors import InvalidInput, RegistryUnavailable, Unusable
from ams.storage.database.invalidation import Invalidation, Invalidations
from ams.storage.database.schema import DatabaseSchema, Work, prepare, reason
from ams.storage.database.sqlite import SqliteStore
from ams.storage.free_space import UNLIMITED, FreeSpace

if TYPE_CHECKING:
    from ams.storage.database.postgresql import PostgresStore

T = TypeVar("T")


def sqlite_url(path: str) -> str:
    """Return the URL of a SQLite database file; `path` may have any characters."""
    return URL.create("sqlite", database=path).render_as_string()


class Database:
    """Runs work against a database, given by an SQLite or PostgreSQL URL without password.

    When the disk of an SQLite file is full, the reserve of `space` is released and the work is retried.
    """

    def __init__(self, url: str, schema: DatabaseSchema, space: FreeSpace = UNLIMITED, *, password: str = "") -> None:
        self.invalidations = Invalidations()  # makes caches of the database's records
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

    async def listen(self) -> None:
        """Start to receive changes of other nodes. With PostgreSQL, caches are disabled before."""
        await self._store.listen()

    async def read(self, work: Work[T]) -> T:
        """Run read-only work on one snapshot of the database. Raises `RegistryUnavailable`."""
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
        """Run one statement as `write` does; return the number of changed rows."""
        return await self.write(lambda connection: connection.execute(statement).rowcount, *forgets, grows=grows)

    async def write(self, work: Work[T], *forgets: Invalidation, large: bool = False, grows: bool = True) -> T:
        """Run work and commit it, atomically and durably.

        Args:
            work: the transaction; may run more than once.
            forgets: cache entries to drop before anyone sees the outcome, even if the caller is cancelled.
            large: allow more time.
            grows: refuse the work while the disk is nearly full.

        Raises:
            AlreadyExists: a name is taken.
            NotFound: a project is deleted.
            RegistryUnavailable: the database does not answer, or its disk is full.
        """
        return await self._finish_write(self._store.write(work, forgets, large=large, grows=grows), forgets)

    async def put(self, work: Work[T], *, grows: bool = False, turn: int | None = None) -> T:
        """Run work and commit it; cheaper than `write`. Raises as `write`. It may run again after it was committed.

        Without a `turn` (lock key) it is one statement. Work of the same turn, which often conflicts with itself, runs
        on one node at a time.
        """
        return await self._finish_write(self._store.put(work, grows=grows, turn=turn))

    async def require_room(self) -> None:
        """Raise `RegistryUnavailable` while growth is refused; to check before creating something elsewhere."""
        await self._store.require_room()

    @property
    def away(self) -> str | None:
        """Known reason why the database is unavailable; None if available, as always for SQLite."""
        return None if self.invalidations.validity.holds() else "PostgreSQL does not answer"

    async def run_long(self, work: Work[T], *, waits: bool = True) -> T:
        """Run work on a whole database that no node serves, or migrate it: once, one at a time, without time limit.

        Raises `RegistryUnavailable`, without `waits` also if other such work goes on, and errors of the work.
        """
        return await self._finish_write(self._store.run_long(work, waits=waits))

    async def alone(self, work: Work[T]) -> T:
        """Run work and commit it; raise `Unusable` if another node serves. Caches are not used afterwards."""
        return await self._finish_write(self._store.alone(work))

    async def close(self) -> None:
        """Finish accepted work and close all connections."""
        if self._writing:
            await asyncio.wait(self._writing)
        await self._store.close()

    async def _finish_write(self, write: Coroutine[Any, Any, T], forgets: Sequence[Invalidation] = ()) -> T:
        """Wait for a write, which continues if the caller is cancelled."""
        writing = asyncio.ensure_future(write)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        writing.add_done_callback(lambda _: self.invalidations.apply(forgets))
        return await asyncio.shield(writing)


def first(connection: Connection, query: Executable, make: Callable[[Row[Any]], T]) -> T | None:
    """Return a value made of the first row of a statement; None without one."""
    row = connection.execute(query).first()
    return None if row is None else make(row)


def page_token(*numbers: int) -> str:
    """Encode the token of the page that begins with the item of these numbers."""
    return base64.b64encode(".".join(map(str, numbers)).encode()).decode("ascii")


def page_start(token: str, count: int = 1) -> list[int]:
    """Parse the numbers of a token. Raises `InvalidInput` "Invalid page token"."""
    try:
        numbers = base64.b64decode(token, validate=True).split(b".")
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(each.isdigit() and len(each) <= 18 for each in numbers):
        raise InvalidInput("Invalid page token")
    return [int(each) for each in numbers]


def is_postgresql(url: str) -> bool:
    """Return whether this is a PostgreSQL URL."""
    return url.startswith(("postgresql://", "postgres://"))


async def open_database(
    url: str, schema: DatabaseSchema, fingerprint: str, *, password: str = "", space: FreeSpace = UNLIMITED
) -> Database:
    """Open the database at `url`; `fingerprint` is that of the key of its secrets.

    Raises `Unusable` if it is foreign or has another key, or `RegistryUnavailable`.
    """
    database = Database(url, schema, space, password=password)

    def prepare_and_compare(connection: Connection) -> None:
        prepare(connection, schema)
        known = connection.scalar(select(schema.keys.c.fingerprint))
        if known is None:
            connection.execute(insert(schema.keys).values(fingerprint=fingerprint))
        elif known != fingerprint:
            raise Unusable(schema.other_key)

    try:
        await database.run_long(prepare_and_compare, waits=False)
        await database.listen()
    except RegistryUnavailable as error:
        await database.close()
        said = reason(error.__cause__)
        if is_postgresql(url):  # a server may come back; a file does not
            raise RegistryUnavailable(f"the {schema.what}'s database does not answer: {said}") from None
        raise Unusable(f"the {schema.what}'s database is not usable: {said}") from None
    except BaseException:
        await database.close()
        raise
    return database
