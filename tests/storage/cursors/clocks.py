"""Time for cursor stores under test."""

from ams.core.clock import ManualClock, Milliseconds
from ams.storage.cursors.postgresql_rows import DatabaseTime


class StandingTime(DatabaseTime):
    """Deadlines go by a clock of ours, as nobody can move the database's."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._passing = clock

    def now(self) -> Milliseconds:
        return self._passing.monotonic()

    def at(self, moment: Milliseconds) -> Milliseconds:
        return moment
