"""What time it is for the database, so that nodes whose clocks differ agree on every deadline."""

from ams.core.clock import Clock, Milliseconds


class DatabaseTime:
    """The database's clock as it last told it, and the monotonic time that has passed here since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = 0
        """Milliseconds the database's time of day is ahead of our monotonic clock."""

    def told(self, now: int) -> None:
        """Take note of what time the database just said it was: milliseconds since the epoch."""
        self._ahead = now - self._clock.monotonic()

    def now(self) -> Milliseconds:
        """Return the time that hand-outs and acknowledgements are judged by."""
        return self.after(0)

    def moment(self) -> Milliseconds:
        """Return this moment, for `at`."""
        return self._clock.monotonic()

    def at(self, moment: Milliseconds) -> Milliseconds:
        """Return what the database's clock showed at a moment, by what it told last: it may be another one by now."""
        return Milliseconds(moment + self._ahead)

    def after(self, seconds: float) -> Milliseconds:
        """Return what the database's clock will show then, as well as it is known here."""
        return Milliseconds(self._clock.monotonic() + self._ahead + round(seconds * 1000))
