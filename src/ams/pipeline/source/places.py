"""Where reading begins and ends, as offsets, found by asking the service.

Filters on offsets and publish times say that less needs to be read. Spark looks at the rows all the same: a filter is
only used to leave out what cannot pass it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from ams.pipeline.errors import WrongOption
from ams.pipeline.options import Name
from ams.pipeline.service import Bounds, Service
from ams.pipeline.source.fetching import lost
from ams.pipeline.source.options import EARLIEST, LATEST, Positions, Reading

SKEW = timedelta(minutes=1)
"""How far the clocks of Kafka's brokers may be apart, and so the times of messages out of order."""

_EQUAL = (EqualTo, EqualNullSafe)
_LOWER = (GreaterThan, GreaterThanOrEqual, *_EQUAL)
_UPPER = (LessThan, LessThanOrEqual, *_EQUAL)


@dataclass(frozen=True, slots=True)
class Window:
    """What may pass the filters: offsets from `start` on, before `stop`, of messages published `since` to `until`."""

    start: int = 0
    stop: int | None = None
    since: datetime | None = None
    until: datetime | None = None


def window(filters: Iterable[Filter]) -> Window:
    """Return what may pass all the filters, taken a little too wide."""
    starts, stops, sinces, untils = [0], list[int](), list[datetime](), list[datetime]()
    for each in filters:
        lower, upper = isinstance(each, _LOWER), isinstance(each, _UPPER)
        match getattr(each, "attribute", ()), getattr(each, "value", None):
            case ("offset",), int(offset):
                starts += [offset] if lower else []
                stops += [offset + 1] if upper else []
            case ("publish_time",), datetime(tzinfo=zone) as moment if zone is not None:
                sinces += [moment - SKEW] if lower else []
                untils += [moment + SKEW] if upper else []
    return Window(max(starts), min(stops, default=None), max(sinces, default=None), min(untils, default=None))


Offsets = dict[str, int]
"""Offsets by `PROJECT/TOPIC`, as they stand in checkpoints and in the progress of queries."""


class Places:
    """The offsets of what is to be read."""

    def __init__(self, service: Service, reading: Reading) -> None:
        self._service = service
        self._reading = reading
        self.topics: Sequence[Name] = reading.topics
        self.ids: dict[str, str] = {}
        """Which topic each name stands for, as it was seen last; without those of which the service does not tell."""
        if not reading.topics:
            self.look_again()

    def look_again(self) -> None:
        """Find out which topics there are now, where they are not named."""
        if self._reading.patterns:
            self.topics = self._service.topics(self._reading.project, self._reading.patterns)
        elif not self.topics:
            assert self._reading.subscription is not None, "topics or a subscription"
            self.topics = (self._service.topic_of(self._reading.subscription),)

    def bounds(self) -> dict[Name, Bounds]:
        """Ask what there is of each topic."""
        found = {topic: self._service.bounds(topic, self.through) for topic in self.topics}
        self.ids = {str(topic): bounds.id for topic, bounds in found.items() if bounds.id}
        return found

    @property
    def through(self) -> str:
        """The subscription by which consumers may read the topic; empty when topics are read."""
        return self._reading.subscription.name if self._reading.subscription else ""

    def starts(self, default: int) -> Offsets:
        """Return where reading begins; `default`, `EARLIEST` or `LATEST`, is for topics of which nothing is said."""
        bounds = self.bounds()
        starting = self._reading.starting
        if isinstance(starting, datetime):
            return {str(topic): self._at(topic, starting) for topic in self.topics}
        if starting is None and self._reading.subscription is not None:
            current = self._service.offsets(self._reading.subscription).current
            return {str(topic): current for topic in self.topics}
        positions = starting or Positions(default)
        return {str(topic): self._resolved("startingOffsets", positions, topic, bounds[topic]) for topic in self.topics}

    def ends(self) -> Offsets:
        """Return where a batch ends."""
        bounds = self.bounds()
        ending = self._reading.ending or Positions(LATEST)
        return {str(topic): self._resolved("endingOffsets", ending, topic, bounds[topic]) for topic in self.topics}

    def within(self, window: Window, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """Return starts and ends of what may be in a window."""
        for topic in self.topics:
            name = str(topic)
            starts[name] = max(starts[name], window.start)
            if window.stop is not None:
                ends[name] = min(ends[name], window.stop)
            if window.since is not None:
                starts[name] = max(starts[name], self._at(topic, window.since))
            if window.until is not None:
                ends[name] = min(ends[name], self._at(topic, window.until))
        return starts, ends

    def _at(self, topic: Name, moment: datetime) -> int:
        return self._service.offset_at(topic, moment, self.through)

    def _resolved(self, option: str, positions: Positions, topic: Name, bounds: Bounds) -> int:
        offset = positions.of(topic)
        if offset is None:
            raise WrongOption(option, f"nothing is said of {topic}")
        if offset in (EARLIEST, LATEST):
            return bounds.oldest if offset == EARLIEST else bounds.end
        if offset > bounds.end:
            raise WrongOption(option, f"{offset} is beyond the end of topic {topic}, which is {bounds.end}")
        if offset < bounds.oldest:
            lost(f"messages {offset} to {bounds.oldest - 1} of topic {topic}", fail=self._reading.fail_on_data_loss)
        return max(offset, bounds.oldest)
