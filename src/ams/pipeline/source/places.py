"""Where reading begins and ends, as offsets, found by asking the service."""

from collections.abc import Sequence
from datetime import datetime

from ams.client import wire
from ams.pipeline.errors import WrongOption
from ams.pipeline.options import Name
from ams.pipeline.service import Bounds, Service
from ams.pipeline.source.fetching import lost
from ams.pipeline.source.options import EARLIEST, LATEST, Positions, Reading

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
        found = {topic: self._service.bounds(topic, self._reading.through) for topic in self.topics}
        self.ids = {str(topic): bounds.id for topic, bounds in found.items() if bounds.id}
        return found

    def starts(self, default: int) -> Offsets:
        """Return where reading begins; `default`, `EARLIEST` or `LATEST`, is for topics of which nothing is said."""
        if self._reading.starting is None and self._reading.subscription is not None:
            current = self._service.call(wire.get_offsets(*self._reading.subscription)).current
            return {str(topic): current for topic in self.bounds()}
        return self._offsets("startingOffsets", self._reading.starting, default)

    def ends(self) -> Offsets:
        """Return where a batch ends."""
        return self._offsets("endingOffsets", self._reading.ending, LATEST)

    def _offsets(self, option: str, said: Positions | datetime | None, default: int) -> Offsets:
        bounds = self.bounds()
        if isinstance(said, datetime):
            return {str(topic): self._service.offset_at(topic, said, self._reading.through) for topic in bounds}
        positions = {"": default} if said is None else said
        return {str(topic): self._resolved(option, positions, topic, there) for topic, there in bounds.items()}

    def _resolved(self, option: str, positions: Positions, topic: Name, bounds: Bounds) -> int:
        offset = positions.get(str(topic), positions.get(""))
        if offset is None:
            raise WrongOption(option, f"nothing is said of {topic}")
        if offset in (EARLIEST, LATEST):
            return bounds.first if offset == EARLIEST else bounds.end
        if offset > bounds.end:
            raise WrongOption(option, f"{offset} is beyond the end of topic {topic}, which is {bounds.end}")
        if offset < bounds.first:
            lost(f"messages {offset} to {bounds.first - 1} of topic {topic}", fail=self._reading.fail_on_data_loss)
        return max(offset, bounds.first)
