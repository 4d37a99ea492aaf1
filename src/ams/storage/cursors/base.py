"""Committed offsets (offset commits): protocol of a cursor store, and the state machine shared by all engines.

`tests/storage/cursors/test_contract.py` checks the protocol:

1. A move is durable before its call returns. Otherwise the call raises `CursorsUnavailable` and the cursor stays, also
   after a restart. With the text `OUTCOME_UNKNOWN` the move may have happened: the database's answer was lost, or a
   sync failed and only a restart shows the outcome.
2. Each call is atomic, also when many run at once.
3. A hand-out is recorded only if the generation is still the one its reader saw. If the position was only expected, the
   cursor must also still be there.
4. A seek moves the cursor only on the topic that its offset belongs to.

An unknown subscription is `SubscriptionGone`.

The state machine is pure: cursor, event, now -> cursor or error. Source: HTTP contract sections 10 and 11 in the wanted
form of 17.1 and 17.2 (M12, A1 to A4, A9). No I/O and no clock: time is the engine's monotonic milliseconds, so that
Hypothesis can explore it (`tests/storage/cursors/test_base.py`).

    offset      the next message to deliver; everything below is acknowledged
    handed      hand-outs that can still be acknowledged: pairs (end, time). Newer pairs have smaller ends: a newer
                hand-out replaces older ones with smaller ends
    generation  fencing token, raised by every move except acknowledgements: rejects hand-outs read before a seek
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, InvalidInput
from ams.core.names import Offset, SubscriptionId, TopicId

NO_DEADLINE = Milliseconds(2**62)  # for a process that owns the subscription by a lease
NO_HAND_OUT = Offset(0)
Oldest = Mapping[TopicId, Offset]  # oldest kept offsets of topics in which retention removed messages
MAX_HANDED = 8  # beyond this the oldest pairs are merged, in favour of the client: larger end, later time


class Position(NamedTuple):
    """Offset to read for a pull, and the generation of the cursor."""

    offset: Offset
    generation: int
    lost: int  # messages that retention removed before their acknowledgement, in total


class Outstanding(NamedTuple):
    """A hand-out that is not acknowledged."""

    end: Offset
    ago: Milliseconds


class TopicOffset(NamedTuple):
    """Where a cursor stands, and on which topic."""

    topic: TopicId
    offset: Offset


class Cursors(Protocol):
    """A cursor per subscription; the module's docstring is the contract."""

    async def create(
        self, subscription: SubscriptionId, topic: TopicId, offset: Offset, lost: int = 0, handed: Offset = NO_HAND_OUT
    ) -> None:
        """Create or replace a cursor at `offset`.

        Args:
            lost: lost messages of the cursor so far, if it moved here from another store.
            handed: messages below were handed out elsewhere and may still be acknowledged (embedded: after a restart).
        """

    async def drop(self, subscription: SubscriptionId) -> None:
        """Remove a cursor, but keep its count of lost messages. An unknown subscription is no error."""

    async def places(self) -> Mapping[SubscriptionId, TopicOffset]:
        """Return the stored offset of every cursor, without moving any, also if the topic is deleted."""

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        """Return where the cursor stands. A new topic id resets it to offset 0 (`follow_topic`).

        Stores of several nodes raise `TopicGone` if the new topic is deleted by now.
        """

    def cached_position(self, subscription: SubscriptionId, topic: TopicId) -> Position | None:
        """Return the cached position, for `hand_out` with `at` to confirm; None: call `position`."""

    async def lost_messages(self, subscription: SubscriptionId, oldest: Oldest) -> int:
        """Return how many messages retention removed before their acknowledgement, in total. Moves nothing."""

    async def lost_in_all(self, oldest: Oldest, least: int = 0) -> int:
        """Return the sum of `total_lost` over all subscriptions, also deleted ones; at least `least`.

        If no cursor accounts for the difference to `least`, it is added to the stored total, once, durably.
        """

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        """Move up to `oldest` if the cursor is below it and the generation is still this one."""

    async def hand_out(
        self, subscription: SubscriptionId, generation: int, end: Offset, at: Offset | None = None
    ) -> bool:
        """Record a hand-out. Returns False if the generation is old, or the cursor is not `at` this offset."""

    async def acknowledge(self, subscription: SubscriptionId, last: Offset, deadline: Milliseconds) -> None:
        """Acknowledge up to `last`; durable when it returns. Raises the errors of the function `acknowledge`."""

    async def newest_hand_out(self, subscription: SubscriptionId) -> Outstanding | None:
        """Return the newest hand-out since the start that is not acknowledged, or None."""

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        """Move to `offset` of `topic`, durably. Returns False and moves nothing if the cursor is on another topic."""

    async def close(self) -> None:
        """Finish accepted calls and close files and connections."""


class CursorHandOut(NamedTuple):
    """Messages below `end` were handed out at `time`."""

    end: Offset
    time: Milliseconds


class Grace(NamedTuple):
    """Grace after a restart: messages below `end` count as handed out at `time`, because hand-outs are not stored."""

    end: Offset
    time: Milliseconds
    quiet: Milliseconds
    """Time from the last creation or seek to the restart. If it is shorter than the deadline, there is no grace."""


class Cursor(NamedTuple):
    """Where one subscription stands on one topic."""

    topic: TopicId
    offset: Offset
    generation: int = 0
    handed: tuple[CursorHandOut, ...] = ()
    lost: int = 0
    grace: Grace | None = None


def hand_out(cursor: Cursor, end: Offset, now: Milliseconds) -> Cursor:
    """Record that a consumer got the messages below `end`. An empty hand-out changes nothing."""
    if end <= cursor.offset:
        return cursor
    handed = (*[pair for pair in cursor.handed if pair.end > end], CursorHandOut(end, now))
    if len(handed) > MAX_HANDED:
        oldest, second = handed[:2]
        handed = (CursorHandOut(max(oldest.end, second.end), max(oldest.time, second.time)), *handed[2:])
    return Cursor(cursor.topic, cursor.offset, cursor.generation, handed, cursor.lost, cursor.grace)


def acknowledge(cursor: Cursor, last: Offset, deadline: Milliseconds, now: Milliseconds) -> Cursor:
    """Acknowledge everything up to and including `last`; an id below the offset changes nothing (A1).

    Raises:
        InvalidInput: "no ack pending" or "wrong ack".
        AckTimeout: the hand-out is older than `deadline`.
    """
    if last < cursor.offset:
        return cursor
    handed, end, count = cursor.handed, Offset(last + 1), len(cursor.handed)
    while count and handed[count - 1].end < end:  # newest last, with the smallest end
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
    """Move up to the oldest kept message if the cursor is below it, and count the lost messages."""
    if cursor.offset >= oldest:
        return cursor
    return seek(cursor, oldest)._replace(lost=cursor.lost + oldest - cursor.offset)


def total_lost(cursor: Cursor, oldest: Mapping[TopicId, Offset]) -> int:
    """Return all messages lost to retention, including those that `retain` has not counted yet."""
    return cursor.lost + max(oldest.get(cursor.topic, 0) - cursor.offset, 0)


def follow_topic(cursor: Cursor, topic: TopicId) -> Cursor:
    """Reset to offset 0 if the topic has a new id: it was created anew under the same name (A9)."""
    if cursor.topic == topic:
        return cursor
    return seek(cursor, Offset(0))._replace(topic=topic)


def undo(before: Cursor, moved: Cursor) -> Cursor:
    """Undo a move that could not be stored. Hand-outs of the same generation stay valid."""
    if moved.generation != before.generation:
        return before._replace(generation=max(before.generation, moved.generation) + 1)
    handed: list[CursorHandOut] = []
    for pair in sorted({*before.handed, *moved.handed}, key=lambda pair: (pair.time, -pair.end)):
        handed = [older for older in handed if older.end > pair.end] + [pair]
    return before._replace(handed=tuple(handed[-MAX_HANDED:]))


def position_of(cursor: Cursor) -> Position:
    """Return the position that a pull needs."""
    return Position(cursor.offset, cursor.generation, cursor.lost)
