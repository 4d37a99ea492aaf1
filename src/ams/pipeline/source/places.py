"""Where reading begins and ends, as offsets, found by asking the service.

Filters on offsets and publish times say that less needs to be read. Spark looks at the rows all the same: a filter is
only used to leave out what cannot pass it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from ams.client import wire
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


PROBED = 100
"""Ids that are looked at to find a message among those that are none."""

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
        pattern = self._reading.pattern
        if pattern is not None:
            self.topics = [each for each in self._service.topics(pattern.project) if pattern.fits(each.name)]
        elif not self.topics:
            assert self._reading.subscription is not None, "topics or a subscription"
            self.topics = (self._service.topic_of(self._reading.subscription),)

    def bounds(self) -> dict[Name, Bounds]:
        """Ask what there is of each topic."""
        found = {topic: self._service.identified(topic, self.through) for topic in self.topics}
        self.ids = {str(topic): told for topic, (_, told) in found.items() if told}
        return {topic: bounds for topic, (bounds, _) in found.items()}

    @property
    def through(self) -> str:
        """The subscription by which consumers may read the topic; empty when topics are read."""
        return self._reading.subscription.name if self._reading.subscription else ""

    def starts(self, default: int) -> Offsets:
        """Return where reading begins; `default`, `EARLIEST` or `LATEST`, is for topics of which nothing is said."""
        bounds = self.bounds()
        starting = self._reading.starting
        if isinstance(starting, datetime):
            return {str(topic): self.at(topic, bounds[topic], starting) for topic in self.topics}
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
            here = Bounds(starts[name], ends[name])
            if window.since is not None and here.oldest < here.end:
                starts[name] = self.at(topic, here, window.since)
            if window.until is not None and here.oldest < here.end:
                ends[name] = min(ends[name], self.at(topic, here, window.until))
        return starts, ends

    def at(self, topic: Name, bounds: Bounds, moment: datetime) -> int:
        """Return the first offset published at a moment or later; the end when there is none."""
        return bisected(bounds.oldest, bounds.end, lambda low, high: self._published(topic, low, high), moment)

    def _published(self, topic: Name, low: int, high: int) -> tuple[int, datetime] | None:
        """Return the offset and the time of the first message from `low` on, before `high`."""
        most = 1
        while low < high:
            through = self.through
            call = wire.read_topic(topic.project, topic.name, start=low, stop=high, most=most, subscription=through)
            for message in self._service.call(call):
                return message.offset, datetime.fromisoformat(message.publish_time)
            low, most = low + most, PROBED
        return None

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


def bisected(
    low: int, high: int, published: Callable[[int, int], tuple[int, datetime] | None], moment: datetime
) -> int:
    """Return the first offset of `low` to `high` whose message is of `moment` or later; `high` when none is.

    `published` gives the first message of a range; times never go backwards.
    """

    def time_from(offset: int) -> datetime:
        found = published(offset, high)
        return found[1] if found else datetime.max.replace(tzinfo=UTC)

    return low + bisect_left(range(low, high), moment, key=time_from)
