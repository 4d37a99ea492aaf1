"""What is done of parallel subscriptions, as rows that go by their cursors in PostgreSQL.

A standing is what the cursor's row and the entries say together, with the version of the row: whoever writes entries
writes the row too, in the same statement and from the version that was read. So nothing is stored by a process whose
run is over, or of an epoch that is, and nothing twice. A seek writes the cursor alone: entries name their epoch.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ams.core.errors import Damaged
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage.cursors import acks, base, entries
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.base import Cursor, Position
from ams.storage.cursors.entries import Entry, Kept
from ams.storage.cursors.postgresql_rows import IN_TIME, NOW, DatabaseTime, Moves, Row, array

if TYPE_CHECKING:
    from ams.storage.postgresql import Connection

T = TypeVar("T")
MAX_SEEN = 2_000
"""Standings remembered: those of the subscriptions that this process settles for."""

_READ = f"""
SELECT c.subscription, c.topic, c."offset", c.generation, c.lost, c.run, c.version, {NOW}, k.number, k.entry
FROM cursors AS c LEFT JOIN acks AS k USING (subscription)
WHERE c.subscription = ANY(%s) ORDER BY c.subscription, k.number
"""
_WRITE = f"""
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
    """What there is of a subscription, ordered or parallel."""

    topic: TopicId
    lost: int
    progress: Progress
    kept: Kept
    """What the entries hold."""
    damage: str = ""
    """Why the entries cannot be read."""


def step(work: Callable[[Standing], tuple[Standing, T]]) -> Callable[[Standing], tuple[Standing, T]]:
    """Return a step of a mover; it raises `Damaged` where the entries cannot be read."""

    def checked(standing: Standing) -> tuple[Standing, T]:
        return work(readable(standing))

    return checked


def readable(standing: Standing) -> Standing:
    """Return a standing whose entries could be read; raises `Damaged` otherwise."""
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


async def read(
    connection: "Connection", time: DatabaseTime, subscriptions: Iterable[SubscriptionId]
) -> dict[SubscriptionId, Row[Standing]]:
    """Return the standings of subscriptions that have a cursor."""
    found = await (await connection.execute(_READ, (list(subscriptions),), binary=True)).fetchall()
    rows: dict[SubscriptionId, Row[Standing]] = {}
    for subscription, group in groupby(found, key=itemgetter(0)):
        lines = list(group)
        _, topic, offset, generation, lost, run, version, now, _, _ = lines[0]
        time.note(now)
        start = acks.unsettled(offset, generation, run)
        kept, damage = replayed(subscription, start, [line[-2:] for line in lines])
        rows[subscription] = Row(Standing(TopicId(topic.bytes), lost, kept.progress, kept, damage), version)
    return rows


async def write(
    connection: "Connection", time: DatabaseTime, moves: Moves[Standing], seconds: float
) -> dict[SubscriptionId, Row[Standing]]:
    """Store standings in the place of those that were read, wherever those are still there; return what is there."""
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
    won = await (await connection.execute(_WRITE, values)).fetchall()
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
