"""Cursors and acknowledgements as rows in PostgreSQL, and the statements for them.

Every statement is its own transaction, so no lock outlives one. Optimistic locking: every write raises the row's
version, and names the version it was computed from. If two writes race, the second one stores nothing and sees that. A
creation or seek begins a new series of versions at a random number. If its answer is lost, the caller recognises its
success by the series, also after later writes.

A *standing* is a cursor's row with its entries. One statement writes both, under the row's version. So a process with
an old run or epoch stores nothing, and nothing is stored twice. A seek writes only the cursor: entries have an epoch.
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
from ams.storage.cursors import acks, entries
from ams.storage.cursors.acks import AckProgress
from ams.storage.cursors.base import Cursor, CursorHandOut, Oldest
from ams.storage.cursors.entries import StoredProgress
from ams.storage.postgresql import Connection, Interrupted

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
SERIES_VERSIONS = 2**32  # versions per series: more than the writes of a cursor between two seeks
FIXED_LOCK_ORDER = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off"
"""Forces lookups by index, so that rows are locked in the order of the statement: no deadlock of two groups."""
NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
BEFORE_EXPIRY = "statement_timestamp() < to_timestamp(%(expires)s::float8 / 1000)"
"""Condition that makes a delayed statement do nothing once its caller got an error."""
_READ_CURSORS = f"""
SELECT subscription, topic, "offset", generation, handed, lost, version, {NOW_MS}
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
WHERE c.subscription = m.subscription COLLATE "C" AND c.version = m.read AND {BEFORE_EXPIRY}
RETURNING c.subscription, {NOW_MS}
"""
_CREATE = f"""
WITH forgotten AS (DELETE FROM acks WHERE subscription = %(subscription)s AND {BEFORE_EXPIRY})
INSERT INTO cursors (subscription, topic, "offset", generation, handed, lost, version)
SELECT %(subscription)s, %(topic)s::uuid, %(offset)s, 0, '{{}}', %(lost)s, %(version)s WHERE {BEFORE_EXPIRY}
ON CONFLICT (subscription) DO UPDATE SET
    topic = excluded.topic, "offset" = excluded."offset", generation = 0, handed = '{{}}',
    lost = excluded.lost, version = excluded.version
"""
DROP = """
WITH dropped AS (DELETE FROM cursors WHERE subscription = %s RETURNING lost)
UPDATE cursor_store SET lost = cursor_store.lost + dropped.lost FROM dropped WHERE dropped.lost > 0
"""


async def prepare(connection: Connection) -> None:
    """Create the tables if they are missing. Raises `Unusable` if that fails, or for a newer format."""
    try:
        if not await _is_there(connection):
            async with connection.transaction():  # several nodes may start at once; the first creates them
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
    # Query the catalogue: to_regclass may answer with the state before the wait for the lock.
    words = "SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'cursor_store'"
    return (await connection.execute(words)).rowcount == 1


class DatabaseTime:
    """Estimate of the database's clock: our monotonic clock plus a difference.

    An answer may be old when it is read, for example after a pause of this process. It only proves that the database's
    time was reached between the question and now. So an answer changes an estimate only if that contradicts it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = 0  # the database's time minus our monotonic clock, in milliseconds

    def note(self, now: int, asked: Milliseconds) -> None:
        """Correct the estimate by an answer: the database's time, and our time (`moment`) before the question."""
        self._ahead = min(max(self._ahead, now - self._clock.monotonic()), now - asked)

    def now(self) -> Milliseconds:
        """Return the database's time, for hand-outs and acknowledgements."""
        return self.after(0)

    def moment(self) -> Milliseconds:
        """Return the current monotonic time, for `at` and `note`."""
        return self._clock.monotonic()

    def at(self, moment: Milliseconds) -> Milliseconds:
        """Convert a monotonic time to the database's time, by the newest estimate."""
        return Milliseconds(moment + self._ahead)

    def after(self, seconds: float) -> Milliseconds:
        """Return the database's time in `seconds` from now."""
        return Milliseconds(self._clock.monotonic() + self._ahead + round(seconds * 1000))


class TableRow(NamedTuple, Generic[V]):
    """A cursor or a standing, with the version of its row."""

    value: V
    version: int

    def stems_from(self, series: int) -> bool:
        """Return whether the row's version belongs to a series, begun by a seek or creation."""
        return 0 <= self.version - series < SERIES_VERSIONS


TableRows = Mapping[SubscriptionId, TableRow[V]]
Moves = Mapping[SubscriptionId, tuple[TableRow[V], TableRow[V]]]  # rows as read, and as they shall become


def new_series() -> int:
    """Return a random first version of a series."""
    return secrets.randbits(62)


async def ask_time(connection: Connection, time: DatabaseTime) -> None:
    """Update `time` from the database's clock."""
    await _fetch(connection, time, f"SELECT {NOW_MS}")


async def read_cursors(
    connection: Connection, time: DatabaseTime, subscriptions: Iterable[SubscriptionId]
) -> TableRows[Cursor]:
    """Return the rows of subscriptions; those without a cursor are left out."""
    found = await _fetch(connection, time, _READ_CURSORS, (list(subscriptions),))
    known: dict[SubscriptionId, TableRow[Cursor]] = {}
    for subscription, topic, offset, generation, handed, lost, version, _ in found:
        pairs = tuple(map(CursorHandOut, map(Offset, handed[::2]), map(Milliseconds, handed[1::2])))
        known[subscription] = TableRow(Cursor(TopicId(topic.bytes), offset, generation, pairs, lost), version)
    return known


async def write_cursors(
    connection: Connection, time: DatabaseTime, moves: Moves[Cursor], seconds: float
) -> TableRows[Cursor]:
    """Write rows whose version is unchanged; return the written ones."""
    subscriptions = sorted(moves)
    before, after = zip(*(moves[each] for each in subscriptions), strict=True)
    cursors: list[Cursor] = [row.value for row in after]
    values = {
        "subscriptions": subscriptions,
        "read": pg_array(row.version for row in before),
        "topics": pg_array(cursor.topic.hex() for cursor in cursors),
        "offsets": pg_array(cursor.offset for cursor in cursors),
        "generations": pg_array(cursor.generation for cursor in cursors),
        "handed": [pg_array(number for pair in cursor.handed for number in pair) for cursor in cursors],
        "lost": pg_array(cursor.lost for cursor in cursors),
        "versions": pg_array(row.version for row in after),
        "expires": time.after(seconds),
    }
    written = await _fetch(connection, time, _WRITE_CURSORS, values)
    return {subscription: moves[subscription][1] for subscription, _ in written}


async def create(
    connection: Connection, time: DatabaseTime, subscription: SubscriptionId, row: TableRow[Cursor], seconds: float
) -> bool:
    """Create or replace a row; return whether that was done in time."""
    place = {"topic": topic_id_text(row.value.topic), "offset": row.value.offset, "lost": row.value.lost}
    values = {**place, "subscription": subscription, "version": row.version, "expires": time.after(seconds)}
    return (await connection.execute(_CREATE, values)).rowcount == 1


async def _fetch(
    connection: Connection, time: DatabaseTime, statement: str, values: Any = None, *, binary: bool = False
) -> list[tuple[Any, ...]]:
    """Return all rows that a statement returns. The last column is the database's time, which corrects `time`."""
    asked = time.moment()
    rows = await (await connection.execute(statement, values, binary=binary)).fetchall()
    if rows:
        time.note(rows[-1][-1], asked)
    return rows


def pg_array(numbers: Iterable[object]) -> str:
    """Format numbers as a PostgreSQL array. Unlike the driver, gives one type for all sizes of numbers."""
    return "{" + ",".join(map(str, numbers)) + "}"


MAX_STANDINGS_SEEN = 2_000  # cached standings: those of the subscriptions this process owns

_READ_STANDINGS = f"""
SELECT c.subscription, c.topic, c."offset", c.generation, c.lost, c.run, c.version, k.number, k.entry, {NOW_MS}
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
    WHERE c.subscription = m.subscription COLLATE "C" AND c.version = m.read AND {BEFORE_EXPIRY}
    RETURNING m.*
), cleared AS (
    DELETE FROM acks AS k USING moved AS m WHERE m.clears AND k.subscription = m.subscription COLLATE "C"
), added AS (
    INSERT INTO acks (subscription, number, entry)
    SELECT subscription, number, entry FROM moved WHERE entry IS NOT NULL
)
SELECT subscription, {NOW_MS} FROM moved
"""


class CursorStanding(NamedTuple):
    """A cursor and the acknowledgements above it (none for an ordered subscription)."""

    topic: TopicId
    lost: int
    progress: AckProgress
    kept: StoredProgress
    damage: str = ""  # why the entries cannot be read; empty: not damaged


def check_readable(standing: CursorStanding) -> CursorStanding:
    """Return the standing; raises `Damaged` if its entries cannot be read."""
    if standing.damage:
        raise Damaged(standing.damage)
    return standing


def raise_floor(standing: CursorStanding, oldest: Offset) -> CursorStanding:
    """Move up to the oldest kept message (`acks.raise_floor`, or `base.retain` for an ordered subscription)."""
    progress = standing.progress
    if oldest <= progress.floor:
        return standing
    lost = standing.lost + acks.count_lost(progress, oldest)
    if acks.is_parallel(progress):
        return standing._replace(progress=acks.raise_floor(progress, oldest), lost=lost)
    return standing._replace(progress=acks.apply_seek(progress, oldest, progress.epoch + 1), lost=lost)


async def read_standings(
    connection: Connection, time: DatabaseTime, subscriptions: Iterable[SubscriptionId]
) -> TableRows[CursorStanding]:
    """Return the standings of subscriptions; those without a cursor are left out."""
    found = await _fetch(connection, time, _READ_STANDINGS, (list(subscriptions),), binary=True)
    rows: dict[SubscriptionId, TableRow[CursorStanding]] = {}
    for subscription, group in groupby(found, key=itemgetter(0)):
        lines = list(group)
        _, topic, offset, generation, lost, run, version, *_ = lines[0]
        start = acks.empty_progress(offset, generation, run)
        kept, damage = replay_entries(subscription, start, [line[-3:-1] for line in lines])
        rows[subscription] = TableRow(CursorStanding(TopicId(topic.bytes), lost, kept.progress, kept, damage), version)
    return rows


async def write_standings(
    connection: Connection, time: DatabaseTime, moves: Moves[CursorStanding], seconds: float
) -> TableRows[CursorStanding]:
    """Write standings whose version is unchanged; return the written ones."""
    subscriptions = sorted(moves)
    after: dict[SubscriptionId, TableRow[CursorStanding]] = {}
    writes = []
    for each in subscriptions:
        standing, version = moves[each][1]
        write = entries.next_write(standing.kept, standing.progress)
        after[each] = TableRow(standing._replace(kept=write.after), version)
        writes.append(write)
    progresses = [row.value.progress for row in after.values()]
    values: dict[str, Any] = {
        "subscriptions": subscriptions,
        "read": pg_array(moves[each][0].version for each in subscriptions),
        "offsets": pg_array(progress.floor for progress in progresses),
        "generations": pg_array(progress.epoch for progress in progresses),
        "lost": pg_array(row.value.lost for row in after.values()),
        "runs": pg_array(progress.run for progress in progresses),
        "versions": pg_array(row.version for row in after.values()),
        "clears": [write.clears for write in writes],
        "numbers": pg_array(write.after.number for write in writes),
        "entries": [write.entry for write in writes],
        "expires": time.after(seconds),
    }
    written = await _fetch(connection, time, _WRITE_STANDINGS, values)
    return {subscription: after[subscription] for subscription, _ in written}


def replay_entries(
    subscription: SubscriptionId, start: AckProgress, found: Iterable[tuple[int | None, bytes]]
) -> tuple[StoredProgress, str]:
    """Replay rows of entries (number and data; None: no entry); return the result, and any damage as text."""
    stored = {number: data for number, data in found if number is not None}  # in order
    try:
        return entries.replay_entries(start, [*stored.values()], max(stored, default=0)), ""
    except ValueError as error:
        return StoredProgress(start), f"the cursors' tables hold of subscription {subscription} {error}"


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
SELECT total.cursors, total.gone, behind.*, {NOW_MS} FROM total LEFT JOIN behind ON true
ORDER BY behind.subscription, behind.number
"""
_KEEP_LOST = f"""
{_TOTAL} UPDATE cursor_store SET lost = greatest(lost, %(least)s - (total.cursors - %(done)s)) FROM total
WHERE lost = total.gone AND total.cursors = %(cursors)s
RETURNING lost + total.cursors - %(done)s, {NOW_MS}
"""


async def lost_in_all(connection: Connection, time: DatabaseTime, oldest: Oldest, least: int) -> int:
    """Return and store the total of lost messages, at least `least`. Raises `Interrupted` if another node counted."""
    values: dict[str, Any] = {"topics": pg_array(topic.hex() for topic in oldest), "oldest": pg_array(oldest.values())}
    rows = await _fetch(connection, time, _LOST, values, binary=True)
    cursors, gone, *_ = rows[0]
    done = 0  # done messages between the floors and the oldest kept offsets
    for subscription, group in groupby([row[2:-1] for row in rows if row[2] is not None], key=itemgetter(0)):
        lines = list(group)
        _, floor, epoch, run, kept_from, _, _ = lines[0]
        kept, _ = replay_entries(subscription, acks.empty_progress(floor, epoch, run), [line[-2:] for line in lines])
        done += kept_from - floor - acks.count_lost(kept.progress, kept_from)
    if cursors - done + gone >= least:
        return int(cursors - done + gone)
    kept_lost = {**values, "least": least, "done": done, "cursors": cursors}
    found = await _fetch(connection, time, _KEEP_LOST, kept_lost)
    if not found:
        raise Interrupted
    return int(found[0][0])
