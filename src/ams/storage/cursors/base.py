"""The promise of a cursor store, kept by every engine and checked by `tests/storage/cursors/test_contract.py`.

1. A cursor that moved is durable before the call that moved it returns; if it could not be stored the call raises
   `CursorsUnavailable` and the cursor stands where it stood, also after a restart. With the text `OUTCOME_UNKNOWN` it
   may have moved, as the call would have had it: where the store is another machine, whose answer was lost, it has or
   has not by now; where it is a file whose syncs fail, a restart shows it.
2. Each call is one atomic step of `ams.storage.cursors.state`, however many run at once.
3. A hand-out is recorded only if the generation is the one its reader saw.
4. A seek moves the cursor only on the topic its offset is of.

An unknown subscription is `SubscriptionGone`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId

NO_DEADLINE = Milliseconds(2**62)
"""For acknowledgements of who has a subscription to itself, by a lease."""

Oldest = Mapping[TopicId, Offset]
"""The oldest kept offsets of topics from which retention took something."""


class Position(NamedTuple):
    """What a pull needs to know: where to read, and which generation of the cursor that is."""

    offset: Offset
    generation: int
    lost: int
    """Messages that retention took before they were acknowledged, ever."""


class Handed(NamedTuple):
    """A hand-out that is not acknowledged."""

    end: Offset
    ago: Milliseconds
    """How long ago it was."""


class Place(NamedTuple):
    """Where a cursor stands, and on which topic."""

    topic: TopicId
    offset: Offset


class Cursors(Protocol):
    """A cursor per subscription; the module's docstring is its promise."""

    async def create(self, subscription: SubscriptionId, topic: TopicId, offset: Offset, lost: int = 0) -> None:
        """Make a cursor at `offset`, replacing one that is there; `lost` is what one that was elsewhere had lost."""
        ...

    async def drop(self, subscription: SubscriptionId) -> None:
        """Forget a cursor, but for what it had lost; no error when there is none."""
        ...

    async def subscriptions(self) -> frozenset[SubscriptionId]:
        """Return every subscription that has a cursor."""
        ...

    async def places(self) -> Mapping[SubscriptionId, Place]:
        """Return where every cursor stands, as it is stored: nothing moves, whatever became of the topic."""
        ...

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        """Return where the cursor stands; another topic identity than before restarts it at 0 (state.meet).

        Where several nodes use the store, raises `TopicGone` instead of restarting on a topic that is deleted by now.
        """
        ...

    async def lost(self, subscription: SubscriptionId, oldest: Oldest) -> int:
        """Return how many messages retention took before they were acknowledged, ever (state.lost); moves nothing."""
        ...

    async def lost_in_all(self, oldest: Oldest, least: int = 0) -> int:
        """Return the same of all subscriptions together, with what those that are gone had lost.

        It is never under `least`, which somebody was told before: what no cursor tells of any more is then counted for
        good, durably and in one step, so that several who were told the same count it once.
        """
        ...

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        """Move up to `oldest` if retention has passed the cursor, counting what was lost (state.retain).

        Nothing moves when the generation has moved on: whoever saw the loss saw an older position.
        """
        ...

    async def hand_out(self, subscription: SubscriptionId, generation: int, end: Offset) -> bool:
        """Record a hand-out (state.hand_out); False, and nothing recorded, when the generation has moved on."""
        ...

    async def acknowledge(self, subscription: SubscriptionId, last: Offset, deadline: Milliseconds) -> None:
        """Acknowledge up to `last` (state.acknowledge, whose errors it raises); durable when it returns."""
        ...

    async def handed(self, subscription: SubscriptionId) -> Handed | None:
        """Return the newest hand-out that is not acknowledged; None without one since this process started."""
        ...

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        """Move to `offset` of `topic` (state.seek); durable when it returns.

        False, and nothing moves, when the cursor is on another topic: who worked the offset out must do so again there.
        """
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go."""
        ...
