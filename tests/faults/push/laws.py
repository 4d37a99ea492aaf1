"""Laws of deliveries under kills: nothing lost, all in order, duplicates only of deliveries in flight at a kill.

The laws hold for one subscription; one worker at a time delivers to its endpoint.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from simulation.histories.attempts import Held, Publish
from simulation.histories.history import topic_violations
from simulation.histories.payload import name_of
from tests.support.receiving.requests import Received

POISON = "poison"  # `/refuse/poison` refuses messages with this prefix (`tests.support.receiving`)


class Delivery(NamedTuple):
    subscription: str
    items: tuple[Held, ...]
    came: float  # seconds since the epoch

    @property
    def first(self) -> int:
        return self.items[0].id

    @property
    def last(self) -> int:
        return self.items[-1].id

    @property
    def is_refused(self) -> bool:
        """Return whether the endpoint refuses every body with poison."""
        return any(item.name.startswith(POISON) for item in self.items)


def read_deliveries(requests: Iterable[Received]) -> list[Delivery]:
    return [delivery(request.body, request.time) for request in sorted(requests, key=lambda each: each.time)]


def delivery(body: str, came: float) -> Delivery:
    document = json.loads(body)
    held: Sequence[dict[str, Any]] = document.get("messages", [document])
    items = tuple(
        Held(int(each["message"]["messageId"]), name_of(each["message"].get("attributes", {}), each["message"]["data"]))
        for each in held
    )
    [subscription] = {each["subscription"] for each in held}
    return Delivery(subscription.rpartition("/")[2], items, came)


SLACK = 0.01  # seconds by which the receiver's clock and its timers may differ


@dataclass(frozen=True)
class Story:
    subscription: str
    deliveries: Sequence[Delivery]
    topic: Mapping[int, str]  # names of all messages of its topic, by id
    breaks: int  # kills that may have interrupted a delivery
    takes: float  # seconds of an answer of its endpoint
    dead: Sequence[int] = ()
    publishes: Sequence[Publish] = ()


def violations(story: Story) -> Iterator[str]:
    """Yield violations of the laws, each as a sentence."""
    for law in (_publishes, _contents, _nothing_lost, _order, _one_at_a_time, _dead_letters):
        for broken in law(story):
            yield f"{story.subscription}: {broken}"


def count_repeats(deliveries: Sequence[Delivery]) -> int:
    """Return how many deliveries came again without a refusal."""
    return sum(after.first == before.first and not before.is_refused for before, after in pairwise(deliveries))


def _publishes(story: Story) -> Iterator[str]:
    """Compare the topic with the answers to publishers: deliveries of a missing message are not checked."""
    held = [Held(id_, name) for id_, name in sorted(story.topic.items())]
    return topic_violations(story.subscription, held, story.publishes)


def _contents(story: Story) -> Iterator[str]:
    for each in story.deliveries:
        ids = [item.id for item in each.items]
        if ids != list(range(ids[0], ids[0] + len(ids))):
            yield f"a delivery held the messages {ids}"
        for item in each.items:
            if story.topic.get(item.id) != item.name:
                yield f"message {item.id} is {story.topic.get(item.id)!r} and was delivered as {item.name!r}"


def _nothing_lost(story: Story) -> Iterator[str]:
    taken = {item.id for each in story.deliveries if not each.is_refused for item in each.items}
    lost = sorted(id_ for id_, name in story.topic.items() if id_ not in taken and not name.startswith(POISON))
    if lost:
        yield f"{len(lost)} messages never came, the first is {lost[0]}"


def _order(story: Story) -> Iterator[str]:
    for before, after in pairwise(story.deliveries):
        if after.first not in _next(before):
            yield f"after {before.first}-{before.last} came {after.first}-{after.last}"
    again = count_repeats(story.deliveries)
    if again > story.breaks:
        yield f"{again} deliveries came again, with {story.breaks} kills"


def _next(before: Delivery) -> set[int]:
    """Return possible first messages of the next delivery."""
    if before.is_refused and len(before.items) > 1:
        return {before.first}
    return {before.first, before.last + 1}


def _one_at_a_time(story: Story) -> Iterator[str]:
    for before, after in pairwise(story.deliveries):
        if after.came < before.came + story.takes - SLACK:
            yield f"{after.first}-{after.last} came while {before.first}-{before.last} was being answered"


def _dead_letters(story: Story) -> Iterator[str]:
    wanted = Counter(id_ for id_, name in story.topic.items() if name.startswith(POISON))
    found = Counter(story.dead)
    if missing := sorted((wanted - found).elements()):
        yield f"no dead letters of {missing}"
    if more := sorted((found - wanted).elements()):
        yield f"dead letters too many, of {more}"
    elif list(story.dead) != sorted(story.dead):
        yield f"dead letters out of order: {list(story.dead)}"
