"""Cursors, and what is done of parallel subscriptions, as rows in PostgreSQL, and the statements over such rows.

Every statement is a transaction of its own, so no lock outlives one. A row's version is raised by every write, and a
write names the version it was computed from: the second of two writes nothing, and sees that. A creation and a seek
begin a new series of versions at a random number; so a caller that lost the answer to one finds out by the row, also
after others have written it.

A *standing* is a cursor's row and its entries together, with the version of the row: entries are written with the row,
in the same statement. So nothing is stored by a process whose run or epoch is over, and nothing twice. A seek writes
the cursor alone: entries name their epoch.
"""

import secrets
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Damaged, Unusable
from ams.core.names import Offset, SubscriptionId, TopicId, topic_id_text
from ams.storage import postgresql
from ams.storage.cursors import acks, base, entries
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.base import Cursor, HandOut, Oldest, Position
from ams.storage.cursors.entries import Entry, Kept
from ams.storage.postgresql import Connection

T = TypeVar("T")
V = TypeVar("V")
FORMAT = 1
_LOCK = 0x616D735F63757273  # "ams_curs" in ASCII
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
SERIES = 2**32  # versions of one series: more than a cursor is written between two seeks
ORDERLY = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off"
"""Rows are found, and so locked, in the order they are named: no two groups wait for each other."""
NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
IN_TIME = "statement_timestamp() < to_timestamp(%(expires)s::float8 / 1000)"
"""A statement that was held up does nothing after its time: its caller got an error long ago."""
_READ_CURSORS = f"""
SELECT subscription, topic, "offset", generation, handed, lost, version, {NOW}
FROM cursors WHERE subscription = ANY(%s)
"""
_WRITE_CURSORS = f"""
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
DROP = """
WITH dropped AS (DELETE FROM cursors WHERE subscription = %s RETURNING lost)
UPDATE cursor_store SET lost = cursor_store.lost + dropped.lost FROM dropped WHERE dropped.lost > 0
"""


async def prepare(connection: Connection) -> None:
    """Make the tables unless they are there. Raises `Unusable` when that cannot be, or for a newer format."""
    try:
        if not await _is_there(connection):
            async with connection.transaction():  # of several nodes that start at once the first makes them
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                if not await _is_there(connection):
                    await connection.execute(_TABLES)
                    await connection.execute("INSERT INTO cursor_store VALUES (1, %s, 0)", (FORMAT,))
        found = await (await connection.execute("SELECT format FROM cursor_store")).fetchone()
    except psycopg.ProgrammingError as error:
        raise Unusable(f"the cursors' tables cannot be made in this database ({postgresql.reason(error)})") from error
    if found is None or found[0] != FORMAT:
        raise Unusable("the cursors' tables were written by a newer version; install that one")


async def _is_there(connection: Connection) -> bool:
    # A look into the catalogue, as a name resolved (to_regclass) may be answered from before the wait for the lock.
    words = "SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'cursor_store'"
    return (await connection.execute(words)).rowcount == 1


class DatabaseTime:
    """The database's clock as it was last read, and the monotonic time that has passed here since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = 0  # milliseconds of the database's time of day before our monotonic clock

    def note(self, now: int) -> None:
        """Take note of the database's time: milliseconds since the epoch."""
        self._ahead = now - self._clock.monotonic()

    def now(self) -> Milliseconds:
        """Return the time that hand-outs and acknowledgements are judged by."""
        return self.after(0)

    def moment(self) -> Milliseconds:
        """Return this moment, for `at`."""
        return self._clock.monotonic()

    def at(self, moment: Milliseconds) -> Milliseconds:
        """Return the database's time at a moment, by what was read last: that may be another one by now."""
        return Milliseconds(moment + self._ahead)

    def after(self, seconds: float) -> Milliseconds:
        """Return the database's time in so many seconds, as well as it is known here."""
        return Milliseconds(self._clock.monotonic() + self._ahead + round(seconds * 1000))


class Row(NamedTuple, Generic[V]):
    """A cursor, or more that stands in its row or goes by it, as it was read or written."""

    value: V
    version: int

    def stems_from(self, series: int) -> bool:
        """Return whether the seek or creation that began a series of versions put the cursor where it is."""
        return 0 <= self.version - series < SERIES


Moves = Mapping[SubscriptionId, tuple[Row[V], Row[V]]]  # rows as they were read, and as they are to be


def new_series() -> int:
    """Return a number for the versions of a series to begin at."""
    return secrets.randbits(62)


async def ask_time(connection: Connection, time: DatabaseTime) -> None:
    """Ask what time it is."""
    answer = await (await connection.execute(f"SELECT {NOW}")).fetchone()
    if answer is not None:
        time.note(answer[0])


async def read_cursors(
    connection: Connection, time: DatabaseTime, subscriptions: Iterable[SubscriptionId]
) -> dict[SubscriptionId, Row[Cursor]]:
    """Return the rows of subscriptions that have one."""
    found = await fetch(connection, _READ_CURSORS, (list(subscriptions),))
    if found:
        time.note(found[-1][-1])
    known: dict[SubscriptionId, Row[Cursor]] = {}
    for subscription, topic, offset, generation, handed, lost, version, _ in found:
        pairs = tuple(map(HandOut, map(Offset, handed[::2]), map(Milliseconds, handed[1::2])))
        known[subscription] = Row(Cursor(TopicId(topic.bytes), offset, generation, pairs, lost), version)
    return known


async def write_cursors(
    connection: Connection, time: DatabaseTime, moves: Moves[Cursor], seconds: float
) -> dict[SubscriptionId, Row[Cursor]]:
    """Put rows in the place of those that were read, wherever they are still the same; return those."""
    subscriptions = sorted(moves)
    before, after = zip(*(moves[each] for each in subscriptions), strict=True)
    cursors: list[Cursor] = [row.value for row in after]
    won = await fetch(
        connection,
        _WRITE_CURSORS,
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
    if won:
        time.note(won[-1][1])
    return {subscription: moves[subscription][1] for subscription, _ in won}


async def create(
    connection: Connection, time: DatabaseTime, subscription: SubscriptionId, row: Row[Cursor], seconds: float
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


async def fetch(connection: Connection, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
    """Return all rows that a statement returns."""
    return await (await connection.execute(statement, values)).fetchall()


def array(numbers: Iterable[object]) -> str:
    """Write an array of numbers as PostgreSQL reads it; as the driver would, but in one type for all sizes."""
    return "{" + ",".join(map(str, numbers)) + "}"


MAX_STANDINGS_SEEN = 2_000  # standings remembered: those of the subscriptions that this process settles for

_READ_STANDINGS = f"""
SELECT c.subscription, c.topic, c."offset", c.generation, c.lost, c.run, c.version, {NOW}, k.number, k.entry
FROM cursors AS c LEFT JOIN acks AS k USING (subscription)
WHERE c.subscription = ANY(%s) ORDER BY c.subscription, k.number
"""
_WRITE_STANDINGS = f"""
WITH moved AS (
    UPDATE cursors AS c SET
        "offset" = m."offset", generation = m.generation, lost = m.lost, run = m.run, version = m.version,
        handed = CASE WHEN c.generation = m.generation THEN c.handed ELSE '{{}}' END
    FROM unnest(
        %(subscriptions)s::text[], %(read)s::bigint[], %(offsets)s::bigint[], %(generations)s::bigint[],
        %(lost)s::bigint[], %(runs)s::bigint[], %(versions)s::bigint[], %(clears)s::boolean[], %(numbers)s::bigint[],
        %(entries)s::bytea[]
    ) AS m(subscription, read, "offset", generation, lost, run, version, clears, number, entry)
    WHERE c.subscription = m.subscription COLLATE "C" AND c.version = m.read AND {IN_TIME}
    RETURNING m.*
), cleared AS (
    DELETE FROM acks AS k USING moved AS m WHERE m.clears AND k.subscription = m.subscription COLLATE "C"
), added AS (
    INSERT INTO acks (subscription, number, entry)
    SELECT subscription, number, entry FROM moved WHERE entry IS NOT NULL
)
SELECT subscription, {NOW} FROM moved
"""


class Standing(NamedTuple):
    """A cursor, and acknowledgements above it; of an ordered subscription none."""

    topic: TopicId
    lost: int
    progress: Progress
    kept: Kept
    damage: str = ""  # why the entries cannot be read; empty: they can


def readable(standing: Standing) -> Standing:
    """Return the standing; raises `Damaged` when its entries cannot be read."""
    if standing.damage:
        raise Damaged(standing.damage)
    return standing


def retained(standing: Standing, oldest: Offset) -> Standing:
    """Move up to the oldest kept message; an ordered subscription by the rule of its cursor."""
    progress = standing.progress
    if oldest <= progress.floor:
        return standing
    lost = standing.lost + acks.lost(progress, oldest)
    if acks.is_parallel(progress):
        return standing._replace(progress=acks.retained(progress, oldest), lost=lost)
    cursor = base.retain(Cursor(standing.topic, progress.floor, progress.epoch), oldest)
    return standing._replace(progress=acks.sought(progress, cursor.offset, cursor.generation), lost=lost)


def position_of(standing: Standing) -> Position:
    """Return what a pull needs to know."""
    return Position(standing.progress.floor, standing.progress.epoch, standing.lost)


async def read_standings(
    connection: Connection, time: DatabaseTime, subscriptions: Iterable[SubscriptionId]
) -> dict[SubscriptionId, Row[Standing]]:
    """Return the standings of subscriptions that have a cursor."""
    found = await (await connection.execute(_READ_STANDINGS, (list(subscriptions),), binary=True)).fetchall()
    rows: dict[SubscriptionId, Row[Standing]] = {}
    for subscription, group in groupby(found, key=itemgetter(0)):
        lines = list(group)
        _, topic, offset, generation, lost, run, version, now, _, _ = lines[0]
        time.note(now)
        start = acks.unsettled(offset, generation, run)
        kept, damage = replayed(subscription, start, [line[-2:] for line in lines])
        rows[subscription] = Row(Standing(TopicId(topic.bytes), lost, kept.progress, kept, damage), version)
    return rows


async def write_standings(
    connection: Connection, time: DatabaseTime, moves: Moves[Standing], seconds: float
) -> dict[SubscriptionId, Row[Standing]]:
    """Store standings in the place of those that were read, wherever those are still there; return those."""
    subscriptions = sorted(moves)
    after: dict[SubscriptionId, Row[Standing]] = {}
    writes = []
    for each in subscriptions:
        standing, version = moves[each][1]
        write = entries.written(standing.kept, standing.progress)
        after[each] = Row(standing._replace(kept=write.after), version)
        writes.append(write)
    progresses = [row.value.progress for row in after.values()]
    values: dict[str, Any] = {
        "subscriptions": subscriptions,
        "read": array(moves[each][0].version for each in subscriptions),
        "offsets": array(progress.floor for progress in progresses),
        "generations": array(progress.epoch for progress in progresses),
        "lost": array(row.value.lost for row in after.values()),
        "runs": array(progress.run for progress in progresses),
        "versions": array(row.version for row in after.values()),
        "clears": [write.clears for write in writes],
        "numbers": array(write.after.number for write in writes),
        "entries": [write.entry and write.entry.data for write in writes],
        "expires": time.after(seconds),
    }
    won = await fetch(connection, _WRITE_STANDINGS, values)
    if won:
        time.note(won[-1][1])
    return {subscription: after[subscription] for subscription, _ in won}


def replayed(
    subscription: SubscriptionId, start: Progress, found: Iterable[tuple[int | None, bytes]]
) -> tuple[Kept, str]:
    """Return what entries hold, as they were read (number and data, None when there are none), and what damage."""
    try:
        return entries.replayed(start, [Entry(number, data) for number, data in found if number is not None]), ""
    except ValueError as error:
        return Kept(start), f"the cursors' tables hold of subscription {subscription} {error}"


_TOTAL = """
WITH oldest AS (
    SELECT * FROM unnest(%(topics)s::uuid[], %(oldest)s::bigint[]) AS t(topic, oldest)
), total AS (
    SELECT
        coalesce((
            SELECT sum(c.lost + greatest(t.oldest - c."offset", 0))
            FROM cursors AS c LEFT JOIN oldest AS t USING (topic)
        ), 0)::bigint AS cursors,
        (SELECT lost FROM cursor_store) AS gone
)
"""
_LOST = f"""
{_TOTAL}, behind AS (
    SELECT c.subscription, c."offset", c.generation, c.run, t.oldest, k.number, k.entry
    FROM cursors AS c JOIN oldest AS t USING (topic) JOIN acks AS k USING (subscription) WHERE c."offset" < t.oldest
)
SELECT total.cursors, total.gone, {NOW}, behind.* FROM total LEFT JOIN behind ON true
ORDER BY behind.subscription, behind.number
"""
_KEEP_LOST = f"""
{_TOTAL} UPDATE cursor_store SET lost = greatest(lost, %(least)s - (total.cursors - %(done)s)) FROM total
WHERE lost = total.gone AND total.cursors = %(cursors)s
RETURNING lost + total.cursors - %(done)s, {NOW}
"""


async def lost_in_all(connection: Connection, time: DatabaseTime, oldest: Oldest, least: int) -> int | None:
    """Return the lost messages of all, at least `least`, and store that; None when it must be asked again."""
    values: dict[str, Any] = {"topics": array(topic.hex() for topic in oldest), "oldest": array(oldest.values())}
    rows = await (await connection.execute(_LOST, values, binary=True)).fetchall()
    cursors, gone, now, *_ = rows[0]
    time.note(now)
    done = 0  # above floors, and below the oldest that are kept
    for subscription, group in groupby([row[3:] for row in rows if row[3] is not None], key=itemgetter(0)):
        lines = list(group)
        _, floor, epoch, run, kept_from, _, _ = lines[0]
        kept, _ = replayed(subscription, acks.unsettled(floor, epoch, run), [line[-2:] for line in lines])
        done += kept_from - floor - acks.lost(kept.progress, kept_from)
    if cursors - done + gone >= least:
        return int(cursors - done + gone)
    found = await fetch(connection, _KEEP_LOST, {**values, "least": least, "done": done, "cursors": cursors})
    if not found:
        return None
    time.note(found[0][1])
    return int(found[0][0])
