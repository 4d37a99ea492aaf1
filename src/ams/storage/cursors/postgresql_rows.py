"""A cursor as a row, and the statements over such rows.

Every statement is a transaction of its own, so no lock outlives one. A row's version is raised by every write, and a
write names the version it was computed from: the second of two writes nothing, and sees that. A creation and a seek
begin a new series of versions at a random number; so a caller that lost the answer to one finds out by the row, also
after others have written it.
"""

import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from uuid import UUID

import psycopg

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Unusable
from ams.core.names import Offset, SubscriptionId, TopicId, topic_id_text
from ams.storage import postgresql
from ams.storage.cursors.base import Cursor, HandOut, TopicOffset

if TYPE_CHECKING:
    from ams.storage.postgresql import Connection

V = TypeVar("V")
FORMAT = 1
"""The format of the tables that this version makes and reads."""
_LOCK = 0x616D735F63757273
"""Key of the lock under which the tables are made: "ams_curs" in ASCII."""
_TABLES = """
CREATE TABLE cursors (
    subscription text COLLATE "C" PRIMARY KEY,
    topic uuid NOT NULL,
    "offset" bigint NOT NULL,
    generation bigint NOT NULL,
    handed bigint[] NOT NULL,  -- end, time, end, time, ...: the database's milliseconds since the epoch
    lost bigint NOT NULL,
    version bigint NOT NULL,
    run bigint NOT NULL DEFAULT 0  -- of a parallel subscription
) WITH (
    -- Rows change all the time and no index does. With space in its page, a new row takes the place of older ones and
    -- the table stays as small as it is.
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE cursor_store (
    number integer PRIMARY KEY CHECK (number = 1),
    format integer NOT NULL,
    lost bigint NOT NULL  -- messages lost that no cursor tells of any more
) WITH (fillfactor = 10);
CREATE TABLE acks (  -- what is done of parallel subscriptions (ams.storage.cursors.entries)
    subscription text COLLATE "C" NOT NULL REFERENCES cursors ON DELETE CASCADE,
    number bigint NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (subscription, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
"""
SERIES = 2**32
"""Versions of one series: more than a cursor is written between two seeks, and few of all the numbers there are."""
ORDERLY = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off"
"""For the connection that moves cursors: rows are found, and so locked, in the order they are named. Two groups that
lock the same rows in different orders would end each other."""
NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
IN_TIME = "statement_timestamp() < to_timestamp(%(expires)s::float8 / 1000)"
"""A statement that was held up, by a server that was stopped or a link that was cut, does nothing after its time: its
caller got an error long ago."""
_READ = f"""
SELECT subscription, topic, "offset", generation, handed, lost, version, {NOW}
FROM cursors WHERE subscription = ANY(%s)
"""
_WRITE = f"""
UPDATE cursors AS c SET
    topic = m.topic, "offset" = m."offset", generation = m.generation, handed = m.handed::bigint[], lost = m.lost,
    version = m.version
FROM unnest(
    %(subscriptions)s::text[], %(read)s::bigint[], %(topics)s::uuid[], %(offsets)s::bigint[], %(generations)s::bigint[],
    %(handed)s::text[], %(lost)s::bigint[], %(versions)s::bigint[]
) AS m(subscription, read, topic, "offset", generation, handed, lost, version)
WHERE c.subscription = m.subscription COLLATE "C" AND c.version = m.read AND {IN_TIME}
RETURNING c.subscription, {NOW}
"""
_CREATE = f"""
WITH forgotten AS (DELETE FROM acks WHERE subscription = %(subscription)s AND {IN_TIME})
INSERT INTO cursors (subscription, topic, "offset", generation, handed, lost, version)
SELECT %(subscription)s, %(topic)s::uuid, %(offset)s, 0, '{{}}', %(lost)s, %(version)s WHERE {IN_TIME}
ON CONFLICT (subscription) DO UPDATE SET
    topic = excluded.topic, "offset" = excluded."offset", generation = 0, handed = '{{}}',
    lost = excluded.lost, version = excluded.version
"""
_DROP = """
WITH dropped AS (DELETE FROM cursors WHERE subscription = %s RETURNING lost)
UPDATE cursor_store SET lost = cursor_store.lost + dropped.lost FROM dropped WHERE dropped.lost > 0
"""


async def prepare(connection: "Connection") -> None:
    """Make the tables unless they are there. Raises `Unusable` when that cannot be, or for a newer format."""
    try:
        if not await _is_there(connection):
            await _make(connection)
        found = await _format(connection)
    except psycopg.ProgrammingError as error:
        raise Unusable(f"the cursors' tables cannot be made in this database ({postgresql.reason(error)})") from error
    if found != FORMAT:
        raise Unusable("the cursors' tables were written by a newer version; install that one")


async def _is_there(connection: "Connection") -> bool:
    # A look into the catalogue, as a name resolved (to_regclass) may be answered from before the wait for the lock.
    words = "SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'cursor_store'"
    return (await connection.execute(words)).rowcount == 1


async def _make(connection: "Connection") -> None:
    """Make the tables; of several nodes that start at once the first does."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not await _is_there(connection):
            await connection.execute(_TABLES)
            await connection.execute("INSERT INTO cursor_store VALUES (1, %s, 0)", (FORMAT,))


async def _format(connection: "Connection") -> int:
    found = await (await connection.execute("SELECT format FROM cursor_store")).fetchone()
    return FORMAT + 1 if found is None else int(found[0])


class DatabaseTime:
    """The database's clock as it was last read, and the monotonic time that has passed here since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = 0
        """Milliseconds the database's time of day is ahead of our monotonic clock."""

    def note(self, now: int) -> None:
        """Take note of what time the database just said it was: milliseconds since the epoch."""
        self._ahead = now - self._clock.monotonic()

    def now(self) -> Milliseconds:
        """Return the time that hand-outs and acknowledgements are judged by."""
        return self.after(0)

    def moment(self) -> Milliseconds:
        """Return this moment, for `at`."""
        return self._clock.monotonic()

    def at(self, moment: Milliseconds) -> Milliseconds:
        """Return what the database's clock showed at a moment, by what was read last: it may be another one by now."""
        return Milliseconds(moment + self._ahead)

    def after(self, seconds: float) -> Milliseconds:
        """Return what the database's clock will show then, as well as it is known here."""
        return Milliseconds(self._clock.monotonic() + self._ahead + round(seconds * 1000))


class Row(NamedTuple, Generic[V]):
    """A cursor, or more that stands in its row or goes by it, as it was read or written."""

    value: V
    version: int

    def stems_from(self, series: int) -> bool:
        """Say whether the seek or creation that began a series of versions is what put the cursor where it is."""
        return 0 <= self.version - series < SERIES


Moves = Mapping[SubscriptionId, tuple[Row[V], Row[V]]]
"""Rows as they were read, and as they are to be."""


def new_series() -> int:
    """Return a number for the versions of a series to begin at."""
    return secrets.randbits(62)


async def ask_time(connection: "Connection", time: DatabaseTime) -> None:
    """Ask what time it is."""
    answer = await (await connection.execute(f"SELECT {NOW}")).fetchone()
    if answer is not None:
        time.note(answer[0])


async def read(
    connection: "Connection", time: DatabaseTime, subscriptions: Iterable[SubscriptionId]
) -> dict[SubscriptionId, Row[Cursor]]:
    """Return the rows of subscriptions that have one."""
    found = await (await connection.execute(_READ, (list(subscriptions),))).fetchall()
    if found:
        time.note(found[-1][-1])
    return {subscription: _row(*values) for subscription, *values, _ in found}


async def write(
    connection: "Connection", time: DatabaseTime, moves: Moves[Cursor], seconds: float
) -> dict[SubscriptionId, Row[Cursor]]:
    """Put rows in the place of those that were read, wherever they are still the same; return those."""
    subscriptions = sorted(moves)
    before, after = zip(*(moves[each] for each in subscriptions), strict=True)
    cursors: list[Cursor] = [row.value for row in after]
    answer = await connection.execute(
        _WRITE,
        {
            "subscriptions": subscriptions,
            "read": array(row.version for row in before),
            "topics": array(cursor.topic.hex() for cursor in cursors),
            "offsets": array(cursor.offset for cursor in cursors),
            "generations": array(cursor.generation for cursor in cursors),
            "handed": [array(number for pair in cursor.handed for number in pair) for cursor in cursors],
            "lost": array(cursor.lost for cursor in cursors),
            "versions": array(row.version for row in after),
            "expires": time.after(seconds),
        },
    )
    won = await answer.fetchall()
    if won:
        time.note(won[-1][1])
    return {subscription: moves[subscription][1] for subscription, _ in won}


async def create(
    connection: "Connection", time: DatabaseTime, subscription: SubscriptionId, row: Row[Cursor], seconds: float
) -> bool:
    """Make or replace a row, and return whether that was done in time."""
    values = {
        "subscription": subscription,
        "topic": topic_id_text(row.value.topic),
        "offset": row.value.offset,
        "lost": row.value.lost,
        "version": row.version,
        "expires": time.after(seconds),
    }
    return (await connection.execute(_CREATE, values)).rowcount == 1


async def drop(connection: "Connection", subscription: SubscriptionId) -> None:
    """Remove a row, and keep what it had lost."""
    await connection.execute(_DROP, (subscription,))


async def subscriptions(connection: "Connection") -> frozenset[SubscriptionId]:
    """Return all that have a row."""
    return frozenset(
        [row[0] for row in await (await connection.execute("SELECT subscription FROM cursors")).fetchall()]
    )


async def places(connection: "Connection") -> dict[SubscriptionId, TopicOffset]:
    """Return where all rows stand."""
    found = await (await connection.execute('SELECT subscription, topic, "offset" FROM cursors')).fetchall()
    return {subscription: TopicOffset(TopicId(topic.bytes), offset) for subscription, topic, offset in found}


def array(numbers: Iterable[object]) -> str:
    """Write an array of numbers as PostgreSQL reads it; as the driver would, but in one type for all sizes."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _row(topic: UUID, offset: int, generation: int, handed: list[int], lost: int, version: int) -> Row[Cursor]:
    pairs = tuple(map(HandOut, map(Offset, handed[::2]), map(Milliseconds, handed[1::2])))
    return Row(Cursor(TopicId(topic.bytes), Offset(offset), generation, pairs, lost), version)
