"""The time of day for whatever goes by age, which follows no sudden leap ahead."""

import structlog

from ams.core.clock import Clock, Milliseconds

LEAP = Milliseconds(3_600_000)  # a longer step ahead of the time of day is not believed at once
LEAP_WAIT = Milliseconds(24 * 3_600_000)  # how long such a step has to last until it is

logger = structlog.get_logger("ams.log")


class RetentionClock:
    """The time of day for whatever removes or forgets by age: a process has one, which all of them share.

    A sudden leap ahead, as of a clock set wrong, is followed a day later only, and logged. A step back is followed at
    once, as it removes nothing. A start follows whatever the time is then. Callable from every thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._believed = clock.wall(), clock.monotonic()  # one value, so that a thread never reads half of a change
        self._leapt_at: Milliseconds | None = None

    def wall(self) -> Milliseconds:
        """Return the time; look often, as only what comes between two looks is a leap."""
        return self._look()[0]

    def monotonic(self) -> Milliseconds:
        """Return the time of the clock below."""
        return self._clock.monotonic()

    @property
    def leap(self) -> Milliseconds:
        """How far the time of day is ahead of this one; 0 while it is believed."""
        return self._look()[1]

    def _look(self) -> tuple[Milliseconds, Milliseconds]:
        now, at = self._clock.wall(), self._clock.monotonic()
        wall, since = self._believed
        expected = Milliseconds(wall + at - since)
        leap = Milliseconds(now - expected)
        if leap > LEAP:
            if self._leapt_at is None:
                self._leapt_at = at
                logger.warning("log.clock_leapt", seconds=leap // 1000)
            if at - self._leapt_at < LEAP_WAIT:
                return expected, leap
        self._believed, self._leapt_at = (now, at), None
        return now, Milliseconds(0)
