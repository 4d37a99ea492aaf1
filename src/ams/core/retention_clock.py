"""Wall clock for retention: a sudden leap ahead has no effect for a day."""

import structlog

from ams.core.clock import Clock, Milliseconds

MAX_LEAP_MS = Milliseconds(3_600_000)  # longer steps of the wall clock ahead are delayed
LEAP_WAIT_MS = Milliseconds(24 * 3_600_000)  # delay until such a step takes effect

logger = structlog.get_logger("ams.log")


class RetentionClock:
    """Wall clock for everything that deletes by age. One per process. Thread safe.

    A sudden leap ahead, such as a wrongly set clock, takes effect a day later and is logged. A step back deletes
    nothing and takes effect at once. A start accepts the current time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._believed = clock.wall(), clock.monotonic()  # one tuple: threads never see half of a change
        self._leapt_at: Milliseconds | None = None

    def wall(self) -> Milliseconds:
        """Return the time. Call it often: steps are measured between two calls."""
        return self._look()[0]

    def monotonic(self) -> Milliseconds:
        """Return the monotonic time of the underlying clock."""
        return self._clock.monotonic()

    @property
    def leap(self) -> Milliseconds:
        """How far the wall clock is ahead of this clock; 0 normally."""
        return self._look()[1]

    def _look(self) -> tuple[Milliseconds, Milliseconds]:
        now, at = self._clock.wall(), self._clock.monotonic()
        wall, since = self._believed
        expected = Milliseconds(wall + at - since)
        leap = Milliseconds(now - expected)
        if leap > MAX_LEAP_MS:
            if self._leapt_at is None:
                self._leapt_at = at
                logger.warning("log.clock_leapt", seconds=leap // 1000)
            if at - self._leapt_at < LEAP_WAIT_MS:
                return expected, leap
        self._believed, self._leapt_at = (now, at), None
        return now, Milliseconds(0)
