"""What is in memory of a cursor in SQLite and what the disk holds of it, and groups of changes on their way there."""

import asyncio
from dataclasses import dataclass, field

from ams.core.clock import Milliseconds
from ams.core.names import SubscriptionId
from ams.storage.cursors import base
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.base import Cursor
from ams.storage.cursors.sqlite_acks import AckChange
from ams.storage.cursors.sqlite_rows import Row


@dataclass(slots=True, eq=False)
class Entry:
    """A cursor."""

    cursor: Cursor
    sought: Milliseconds
    change: int
    """The number of its last change that the disk is to hold; no two changes have the same."""
    settled: Cursor
    """The cursor as it was when it last stood where the disk says."""
    settled_sought: Milliseconds
    stored: int = 0
    """The number of the change that the disk holds; 0: nothing of it is there."""
    progress: Progress | None = None
    """Of a parallel subscription; floor and epoch are those of the cursor."""
    settled_progress: Progress | None = None
    """What the disk holds of it."""

    @property
    def row(self) -> Row:
        """What the disk is to hold."""
        return self.cursor, self.sought, self.change

    def move(self, cursor: Cursor, change: int) -> None:
        """Move in memory; the disk follows."""
        if self.change == self.stored:
            self.settled = self.cursor
        self.cursor, self.change = cursor, change

    def settle(self, row: Row) -> None:
        """Take note that a row is on the disk."""
        self.settled, self.settled_sought, self.stored = row

    def fall_back(self) -> None:
        """Stand again where the disk says.

        The generation is a new one, known to no one but this process: that of the disk need not follow.
        """
        self.cursor = self.settled = base.undo(self.settled, self.cursor)
        self.sought, self.change = self.settled_sought, self.stored
        self.progress = self.settled_progress and self.settled_progress._replace(epoch=self.cursor.generation)


@dataclass(slots=True)
class Group:
    """Changes that become durable together; None is a cursor that is gone."""

    rows: dict[SubscriptionId, Row | None] = field(default_factory=dict)
    acks: dict[SubscriptionId, AckChange] = field(default_factory=dict)
    lost: int = 0
    """Messages that are lost though no cursor counts them."""
    dropped: set[SubscriptionId] = field(default_factory=set)
    dropped_lost: int = 0
    """Messages that the dropped cursors had lost."""
    unknown: bool = False
    """Whether it failed and may be there after a restart all the same."""
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """One for each caller: one that leaves must not end it for the others."""

    def end(self, error: Exception | None = None) -> None:
        """Tell all who still wait."""
        for each in self.waiting:
            if each.done():
                continue
            if error is None:
                each.set_result(None)
            else:
                each.set_exception(error)
