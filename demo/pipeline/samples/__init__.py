"""Made-up messages in the shape of real ones, from a seed, with late, doubled and broken ones.

Each module is one world with `TOPICS`, the names of its topics, and `messages(seed, day, ...)`. The latter yields
`Sample`s in the order of publishing, and depends only on its arguments.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random


@dataclass(frozen=True, slots=True)
class Sample:
    topic: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)


Timed = tuple[datetime, Sample]  # a message, and when it is published if nothing happens to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishaps:
    """How large a share of messages each mishap meets, from 0 to 1."""

    late: float = 0.02  # published up to twelve hours after its time
    doubled: float = 0.02  # published again within the hour, as a publisher does that saw no answer
    broken: float = 0.005  # followed by one that cannot be read

    def applied(self, samples: Iterable[Timed], random: Random, spoilt: Callable[[Sample], bytes]) -> Iterator[Sample]:
        """Return messages in the order of publishing; `spoilt` makes the payload of a broken one."""
        waiting: list[tuple[datetime, int, Sample]] = []
        for number, (time, sample) in enumerate(samples):
            late = timedelta(seconds=random.randint(60, 43_200)) if random.random() < self.late else timedelta()
            copies = [time + late]
            if random.random() < self.doubled:
                copies.append(copies[0] + timedelta(seconds=random.randint(1, 3600)))
            for place, copy in enumerate(copies):
                heapq.heappush(waiting, (copy, 4 * number + place, sample))
            if random.random() < self.broken:
                heapq.heappush(waiting, (time, 4 * number + 3, replace(sample, data=spoilt(sample))))
        while waiting:
            yield heapq.heappop(waiting)[2]


NONE = Mishaps(late=0, doubled=0, broken=0)
