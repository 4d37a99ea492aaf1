"""How many messages retention took before they were acknowledged, of all subscriptions in PostgreSQL.

What the cursors tell by themselves the database adds up. Messages above a floor that were done are no loss; which those
are is in the entries of the few parallel subscriptions that retention has just passed, and these are read with it.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ams.storage.cursors import acks
from ams.storage.cursors.base import Oldest
from ams.storage.cursors.postgresql_acks import replayed
from ams.storage.cursors.postgresql_rows import NOW, DatabaseTime, array

if TYPE_CHECKING:
    from ams.storage.postgresql import Connection

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


async def lost_in_all(connection: "Connection", time: DatabaseTime, oldest: Oldest, least: int) -> int | None:
    """Return what all have lost, at least `least`, and see to it that it stays; None when it must be asked again."""
    values: dict[str, Any] = {"topics": array(topic.hex() for topic in oldest), "oldest": array(oldest.values())}
    rows = await (await connection.execute(_LOST, values, binary=True)).fetchall()
    cursors, gone, now, *_ = rows[0]
    time.note(now)
    done = _done(row[3:] for row in rows if row[3] is not None)
    if cursors - done + gone >= least:
        return int(cursors - done + gone)
    kept = await connection.execute(_KEEP_LOST, {**values, "least": least, "done": done, "cursors": cursors})
    found = await kept.fetchone()
    if found is None:
        return None
    time.note(found[1])
    return int(found[0])


def _done(behind: Iterable[tuple[Any, ...]]) -> int:
    """Return how many messages above floors, and below the oldest that are kept, were done."""
    done = 0
    for subscription, group in groupby(behind, key=itemgetter(0)):
        lines = list(group)
        _, floor, epoch, run, oldest, _, _ = lines[0]
        kept, _ = replayed(subscription, acks.unsettled(floor, epoch, run), [line[-2:] for line in lines])
        done += oldest - floor - acks.lost(kept.progress, oldest)
    return done
