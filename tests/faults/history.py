"""The history checker: laws over everything clients tried and what they were answered.

    law 1  an acknowledged publish is readable, once, at exactly the ids it was answered
    law 2  a request is stored whole or not at all; ids of a topic are consecutive from 0, those of a request follow
           each other in its order, and nothing is there that nobody published
    law 3  nothing acknowledged is delivered again, nothing unacknowledged is skipped: a cursor moves only by an
           acknowledgement or a seek of the history, and an acknowledgement only of what was handed out since the last
           seek
    law 4  of the publishes to a topic, and of the pulls of a subscription, some have success

A history is checked when it is over, against what is then found: every topic read from its beginning and every
subscription's offset. The checker is pure: it knows no service, so it judges a campaign of kills, engines in one
process, and histories written by hand alike. It assumes that nothing was taken by retention and that subscriptions
were made before the first message, so they begin at 0.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TextIO

from tests.faults import cursor_law, topic_laws
from tests.faults.attempts import Ack, Attempt, Ending, Outcome, Publish, Pull, Seek

FEW = 5
"""So many requests of a kind without any success tell nothing yet."""


@dataclass(frozen=True, slots=True)
class History:
    subscriptions: Mapping[str, str]
    attempts: list[Attempt] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    """When the service was ready, each time; what it had handed out before is forgotten then."""

    def add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def violations(self, ending: Ending) -> list[str]:
        """Return what breaks a law, each as a sentence that names request and message; empty when all is well."""
        return [*self._of_topics(ending), *self._of_cursors(ending), *self._never_answered()]

    def write(self, file: TextIO) -> None:
        """Write one JSON line an attempt, in the order they began, for whoever looks into a violation."""
        for attempt in sorted(self.attempts, key=lambda each: each.started):
            line = {"kind": type(attempt).__name__.lower(), **asdict(attempt), "outcome": attempt.outcome.value}
            file.write(json.dumps(line) + "\n")

    def _of_topics(self, ending: Ending) -> Iterator[str]:
        publishes = [each for each in self.attempts if isinstance(each, Publish)]
        pulls = [each for each in self.attempts if isinstance(each, Pull)]
        for topic, held in ending.topics.items():
            yield from topic_laws.violations(topic, held, [each for each in publishes if each.topic == topic])
            readers = [each for each in pulls if self.subscriptions[each.subscription] == topic]
            yield from topic_laws.misdelivered(held, readers)

    def _of_cursors(self, ending: Ending) -> Iterator[str]:
        for subscription, offset in ending.cursors.items():
            known = cursor_law.KnownEnd(self._publishes(self.subscriptions[subscription]))
            uses = self._uses(subscription)
            yield from cursor_law.violations(subscription, uses, known, offset, self.restarts)

    def _never_answered(self) -> Iterator[str]:
        """Yield the topics and subscriptions where no publish or pull had success, whoever was killed meanwhile."""
        for topic in sorted(set(self.subscriptions.values())):
            yield from self._without_success(f"publishes to topic {topic}", self._publishes(topic))
        for subscription in self.subscriptions:
            pulls = [each for each in self._uses(subscription) if isinstance(each, Pull)]
            yield from self._without_success(f"pulls of subscription {subscription}", pulls)

    @staticmethod
    def _without_success(what: str, attempts: Sequence[Attempt]) -> Iterator[str]:
        cut_off = [each for each in attempts if each.outcome is Outcome.UNKNOWN and each.ended < float("inf")]
        tried = len(attempts) - len(cut_off)  # what the end of the service left without an answer tells nothing
        if tried > FEW and all(each.outcome is not Outcome.DONE for each in attempts):
            yield f"law 4: none of {tried} {what} had success"

    def _publishes(self, topic: str) -> list[Publish]:
        return [each for each in self.attempts if isinstance(each, Publish) and each.topic == topic]

    def _uses(self, subscription: str) -> list[Pull | Ack | Seek]:
        uses = [each for each in self.attempts if isinstance(each, Pull | Ack | Seek)]
        return [each for each in uses if each.subscription == subscription]
