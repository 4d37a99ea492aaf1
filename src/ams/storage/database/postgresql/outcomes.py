"""Finding out how a transaction ended whose COMMIT was not answered.

Each transaction leaves a mark of its own in a table. Once the transaction is surely not under way any more, the mark
is there or it is not. Its number alone would not do: a standby that took over may never have heard of the transaction
and give its number to another.
"""

from typing import Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, Table, delete, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from ams.core.names import new_uuid
from ams.storage.database.failures import driver_error

T = TypeVar("T")

_NUMBER = text("SELECT CAST(pg_current_xact_id() AS text)")
_STATE = text("SELECT pg_xact_status(CAST(CAST(:number AS text) AS xid8))")
_NEVER_HEARD_OF = "22023"
"""SQLSTATE for the number of a transaction that is to come."""
_AN_HOUR = text("interval '1 hour'")


class Asked(NamedTuple, Generic[T]):
    """A transaction that was asked to commit."""

    mark: str
    number: str
    result: T
    """What its work returned."""


def mark(connection: Connection, outcomes: Table, result: T) -> Asked[T]:
    """Leave a mark: the last thing a transaction does."""
    asked = Asked(new_uuid(), connection.execute(_NUMBER).scalar_one(), result)
    connection.execute(insert(outcomes).values(id=asked.mark))
    return asked


def is_under_way(connection: Connection, asked: Asked[T]) -> bool:
    """Whether the server may still be at work on a transaction. To be asked outside any transaction."""
    try:
        return bool(connection.scalar(_STATE, {"number": asked.number}) == "in progress")
    except DBAPIError as error:
        if driver_error(error).sqlstate == _NEVER_HEARD_OF:
            return False
        raise


def is_committed(connection: Connection, outcomes: Table, asked: Asked[T]) -> bool:
    """Whether a transaction was committed that is not under way any more."""
    return connection.scalar(select(outcomes.c.id).where(outcomes.c.id == asked.mark)) is not None


def prune(connection: Connection, outcomes: Table) -> None:
    """Remove marks that are so old that nobody can be in doubt about their transactions."""
    connection.execute(delete(outcomes).where(outcomes.c.made_at < func.now() - _AN_HOUR))
