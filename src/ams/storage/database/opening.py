"""Opening a database: its tables made or migrated, its key the right one, and changes of others heard."""

from collections.abc import Callable

from sqlalchemy import Connection, Table, insert, select

from ams.core.errors import AmsError, RegistryUnavailable, Unusable
from ams.storage.database import preparing
from ams.storage.database.database import Database, is_postgresql, reason
from ams.storage.database.schema import Schema


async def opened(
    url: str,
    schema: Schema,
    keys: Table,
    fingerprint: str,
    *,
    other_key: str,
    password: str = "",
    on_full: Callable[[], bool] = lambda: False,
) -> Database:
    """Open the database at `url`, SQLite's or PostgreSQL's, whose secrets have the key of this fingerprint.

    `keys` is the table that holds it. Raises `Unusable` for a database that is not ours, and with the text `other_key`
    for one with another key; `RegistryUnavailable`, which says why, for a PostgreSQL that does not answer now.
    """
    database = Database(url, schema, on_full, password=password)

    def prepare(connection: Connection) -> None:
        preparing.prepare(connection, schema)
        known = connection.scalar(select(keys.c.fingerprint))
        if known is None:
            connection.execute(insert(keys).values(fingerprint=fingerprint))
        elif known != fingerprint:
            raise Unusable(other_key)

    try:
        await database.prepare(prepare)
        await database.listen()
    except RegistryUnavailable as error:
        await database.close()
        raise _not_opened(url, schema, error) from None
    except BaseException:
        await database.close()
        raise
    return database


def _not_opened(url: str, schema: Schema, error: RegistryUnavailable) -> AmsError:
    """A server comes back by itself; a file does not."""
    said = reason(error.__cause__)
    if is_postgresql(url):
        return RegistryUnavailable(f"the {schema.what}'s database does not answer: {said}")
    return Unusable(f"the {schema.what}'s database is not usable: {said}")
