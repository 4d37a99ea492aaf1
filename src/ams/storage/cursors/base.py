"""The promise of a cursor store, and the rules of a cursor that every engine goes by.

The promise is checked by `tests/storage/cursors/test_contract.py`:

1. A cursor that moved is durable before the call that moved it returns; if it could not be stored the call raises
   `CursorsUnavailable` and the cursor stands where it stood, also after a restart. With the text `OUTCOME_UNKNOWN` it
   may have moved, as the call would have had it: where the store is another machine, whose answer was lost, it has or
   has not by now; where it is a file whose syncs fail, a restart shows it.
2. Each call is one atomic step of a cursor's rules, however many run at once.
3. A hand-out is recorded only if the generation is the one its reader saw; and, where the position was only expected,
   if the cursor still stands there.
4. A seek moves the cursor only on the topic its offset is of.

An unknown subscription is `SubscriptionGone`.

The rules are a pure value: cursor, event, now -> cursor or error. Source: HTTP contract sections 10 and 11 in the
wanted form of 17.1 and 17.2 (M12, A1 to A4, A9). No I/O and no clock: time is given as monotonic milliseconds of the
engine, so all engines share the rules and Hypothesis can walk them (`tests/storage/cursors/test_base.py`).

    offset      the next message to deliver; everything below is acknowledged
    handed      hand-outs still acknowledgeable: pairs (end, time); newer pairs have smaller ends, as a newer and
                larger one makes an older and smaller one needless
    generation  raised by each move of the cursor other than an acknowledgement, so that a hand-out read before a
                seek is not recorded after it
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, InvalidInput
from ams.core.names import Offset, SubscriptionId, TopicId

NO_DEADLINE = Milliseconds(2**62)  # for a process that has a subscription to itself, by a lease
NOTHING = Offset(0)
Oldest = Mapping[TopicId, Offset]  # the oldest kept offsets of topics from which retention took something
MAX_HANDED = 8  # more are merged, oldest first, in favour of the client: larger end, later time


class Position(NamedTuple):
    """Where to read for a pull, and the generation of the cursor."""

    offset: Offset
    generation: int
    lost: int  # messages that retention took before they were acknowledged, in all


class Outstanding(NamedTuple):
    """A hand-out that is not acknowledged."""

    end: Offset
    ago: Milliseconds


class TopicOffset(NamedTuple):
    """Where a cursor stands, and on which topic."""

    topic: TopicId
    offset: Offset


class Cursors(Protocol):
    """A cursor per subscription; the module's docstring is its promise."""

    async def create(
        self, subscription: SubscriptionId, topic: TopicId, offset: Offset, lost: int = 0, handed: Offset = NOTHING
    ) -> None:
        """Make a cursor at `offset`, replacing one that is there; `lost` is the loss of one that was elsewhere.

        Messages below `handed` were handed out elsewhere: they may still be acknowledged (a file: after the next
        start).
        """

    async def drop(self, subscription: SubscriptionId) -> None:
        """Remove a cursor, but keep its number of lost messages; no error when there is none."""

    async def subscriptions(self) -> frozenset[SubscriptionId]:
        """Return every subscription that has a cursor."""

    async def places(self) -> Mapping[SubscriptionId, TopicOffset]:
        """Return the stored offset of every cursor; nothing moves, also when the topic is gone."""

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        """Return where the cursor stands; another topic identity than before restarts it at 0 (`meet`).

        Where several nodes use the store, raises `TopicGone` instead of restarting on a topic that is deleted by now.
        """

    def expected(self, subscription: SubscriptionId, topic: TopicId) -> Position | None:
        """Return where the cursor most likely stands, for a `hand_out` with `at` to confirm; None: ask `position`."""

    async def lost(self, subscription: SubscriptionId, oldest: Oldest) -> int:
        """Return how many messages retention took before they were acknowledged, in all (`lost`); moves nothing."""

    async def lost_in_all(self, oldest: Oldest, least: int = 0) -> int:
        """Return the same of all subscriptions together, with those that are gone; never under `least`.

        A rest of `least` that no cursor accounts for is counted for good, durably, and once for several callers.
        """

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        """Move up to `oldest` if retention has passed the cursor (`retain`), and the generation is still this one."""

    async def hand_out(
        self, subscription: SubscriptionId, generation: int, end: Offset, at: Offset | None = None
    ) -> bool:
        """Record a hand-out (`hand_out`); False when the generation is another, or the cursor not `at` this offset."""

    async def acknowledge(self, subscription: SubscriptionId, last: Offset, deadline: Milliseconds) -> None:
        """Acknowledge up to `last` (`acknowledge`, whose errors it raises); durable when it returns."""

    async def handed(self, subscription: SubscriptionId) -> Outstanding | None:
        """Return the newest hand-out that is not acknowledged; None without one since this process started."""

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        """Move to `offset` of `topic` (`seek`), durably; False, and no move, when the cursor is on another topic."""

    async def close(self) -> None:
        """Finish what was accepted and let go."""


class HandOut(NamedTuple):
    """Messages below `end` were handed out at `time`."""

    end: Offset
    time: Milliseconds


class Grace(NamedTuple):
    """After a restart: the stored end at the start counts as handed out then, as hand-outs are not stored."""

    end: Offset
    time: Milliseconds
    quiet: Milliseconds
    """Time from the last creation or seek to the restart. Within a deadline of these there is no grace."""


class Cursor(NamedTuple):
    """Where one subscription stands on one topic."""

    topic: TopicId
    offset: Offset
    generation: int = 0
    handed: tuple[HandOut, ...] = ()
    lost: int = 0
    grace: Grace | None = None


def hand_out(cursor: Cursor, end: Offset, now: Milliseconds) -> Cursor:
    """Record that messages below `end` were given to a consumer. An empty hand-out changes nothing."""
    if end <= cursor.offset:
        return cursor
    handed = (*[pair for pair in cursor.handed if pair.end > end], HandOut(end, now))
    if len(handed) > MAX_HANDED:
        oldest, second = handed[:2]
        handed = (HandOut(max(oldest.end, second.end), max(oldest.time, second.time)), *handed[2:])
    return Cursor(cursor.topic, cursor.offset, cursor.generation, handed, cursor.lost, cursor.grace)


def acknowledge(cursor: Cursor, last: Offset, deadline: Milliseconds, now: Milliseconds) -> Cursor:
    """Acknowledge everything up to and including `last`; the cursor stays for an id below the offset (A1).

    Raises `InvalidInput` "no ack pending" or "wrong ack", `AckTimeout` when the hand-out is older than `deadline`.
    """
    if last < cursor.offset:
        return cursor
    handed, end, count = cursor.handed, Offset(last + 1), len(cursor.handed)
    while count and handed[count - 1].end < end:  # the newer, the smaller
        count -= 1
    grace = cursor.grace
    if grace and (grace.quiet <= deadline or now - grace.time > deadline):
        grace = None
    if not count and not (grace and grace.end >= end):
        raise InvalidInput("wrong ack" if handed or grace else "no ack pending")
    if count:
        deciding = handed[count - 1]
        if now - deciding.time > deadline:
            raise AckTimeout
        if deciding.end == end:
            count -= 1
    kept = grace if grace and grace.end > end else None
    return Cursor(cursor.topic, end, cursor.generation, handed[:count], cursor.lost, kept)


def seek(cursor: Cursor, offset: Offset) -> Cursor:
    """Move to `offset`; messages handed out before can no longer be acknowledged (contract 11.5)."""
    return cursor._replace(offset=offset, generation=cursor.generation + 1, handed=(), grace=None)


def retain(cursor: Cursor, oldest: Offset) -> Cursor:
    """Move up to the oldest kept message when retention has passed the cursor; what it took is counted."""
    if cursor.offset >= oldest:
        return cursor
    return seek(cursor, oldest)._replace(lost=cursor.lost + oldest - cursor.offset)


def lost(cursor: Cursor, oldest: Mapping[TopicId, Offset]) -> int:
    """Return what retention took before it was acknowledged, also what it took since the cursor was last moved up."""
    return cursor.lost + max(oldest.get(cursor.topic, 0) - cursor.offset, 0)


def meet(cursor: Cursor, topic: TopicId) -> Cursor:
    """Follow the topic: another identity under the same name means a new log, delivered from its beginning (A9)."""
    if cursor.topic == topic:
        return cursor
    return seek(cursor, Offset(0))._replace(topic=topic)


def undo(before: Cursor, moved: Cursor) -> Cursor:
    """Stand again where `before` stood: the move could not be stored. Hand-outs of the same generation stay good."""
    if moved.generation != before.generation:
        return before._replace(generation=max(before.generation, moved.generation) + 1)
    handed: list[HandOut] = []
    for pair in sorted({*before.handed, *moved.handed}, key=lambda pair: (pair.time, -pair.end)):
        handed = [older for older in handed if older.end > pair.end] + [pair]
    return before._replace(handed=tuple(handed[-MAX_HANDED:]))


def position_of(cursor: Cursor) -> Position:
    """Return the position that a pull needs."""
    return Position(cursor.offset, cursor.generation, cursor.lost)
