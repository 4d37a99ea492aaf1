"""The history checker: laws over all attempts of clients and their answers.

    law 1  an acknowledged publish is readable, once, at exactly the ids it was answered
    law 2  a request is stored whole or not at all; ids of a topic are consecutive from 0, those of a request follow
           each other in its order, and nothing is there that nobody published
    law 3  nothing acknowledged is delivered again, nothing unacknowledged is skipped: a cursor moves only by an
           acknowledgement or a seek of the history, and an acknowledgement only of what was handed out since the last
           seek
    law 4  of the publishes to a topic, and of the pulls of a subscription, some have success

A finished history is checked against the final state: all messages of each topic and every subscription's offset. The
checker is pure and knows no service: it checks campaigns of kills, engines in one process, and histories written by
hand. It assumes that retention removed nothing and that subscriptions were made before the first message, so they
begin at 0.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TextIO

from simulation.histories import cursor_law
from simulation.histories.attempts import Ack, Attempt, Ending, Held, Outcome, Publish, Pull, Seek

MAX_UNJUDGED_REQUESTS = 5  # law 4 needs more requests of a kind than this


@dataclass(frozen=True, slots=True)
class History:
    subscriptions: Mapping[str, str]
    attempts: list[Attempt] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    """Times at which the service was ready; each start forgets what was handed out."""

    def add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def violations(self, ending: Ending) -> list[str]:
        """Return the violations, each as a sentence that names request and message."""
        return [*self._of_topics(ending), *self._of_cursors(ending), *self._never_answered()]

    def write(self, file: TextIO) -> None:
        """Write one JSON line for each attempt, by start, to investigate a violation."""
        for attempt in sorted(self.attempts, key=lambda each: each.started):
            line = {"kind": type(attempt).__name__.lower(), **asdict(attempt), "outcome": attempt.outcome.value}
            file.write(json.dumps(line) + "\n")

    def _of_topics(self, ending: Ending) -> Iterator[str]:
        publishes = [each for each in self.attempts if isinstance(each, Publish)]
        pulls = [each for each in self.attempts if isinstance(each, Pull)]
        for topic, held in ending.topics.items():
            yield from topic_violations(topic, held, [each for each in publishes if each.topic == topic])
            readers = [each for each in pulls if self.subscriptions[each.subscription] == topic]
            yield from delivery_violations(held, readers)

    def _of_cursors(self, ending: Ending) -> Iterator[str]:
        for subscription, offset in ending.cursors.items():
            known = cursor_law.KnownEnd(self._publishes(self.subscriptions[subscription]))
            uses = self._uses(subscription)
            yield from cursor_law.violations(subscription, uses, known, offset, self.restarts)

    def _never_answered(self) -> Iterator[str]:
        """Yield the topics and subscriptions where no publish or pull succeeded."""
        for topic in sorted(set(self.subscriptions.values())):
            yield from self._without_success(f"publishes to topic {topic}", self._publishes(topic))
        for subscription in self.subscriptions:
            pulls = [each for each in self._uses(subscription) if isinstance(each, Pull)]
            yield from self._without_success(f"pulls of subscription {subscription}", pulls)

    @staticmethod
    def _without_success(what: str, attempts: Sequence[Attempt]) -> Iterator[str]:
        cut_off = [each for each in attempts if each.outcome is Outcome.UNKNOWN and each.ended < float("inf")]
        tried = len(attempts) - len(cut_off)  # requests that a kill left unanswered do not count
        if tried > MAX_UNJUDGED_REQUESTS and all(each.outcome is not Outcome.DONE for each in attempts):
            yield f"law 4: none of {tried} {what} had success"

    def _publishes(self, topic: str) -> list[Publish]:
        return [each for each in self.attempts if isinstance(each, Publish) and each.topic == topic]

    def _uses(self, subscription: str) -> list[Pull | Ack | Seek]:
        uses = [each for each in self.attempts if isinstance(each, Pull | Ack | Seek)]
        return [each for each in uses if each.subscription == subscription]


Places = dict[str, list[int]]


def topic_violations(topic: str, held: Sequence[Held], publishes: Sequence[Publish]) -> Iterator[str]:
    """Yield violations of laws 1 and 2; `held`: all messages of the topic."""
    places = _places(held)
    yield from _not_consecutive(topic, held)
    yield from _invented_messages(topic, held, publishes)
    for publish in publishes:
        yield from _duplicates(publish, places)
        yield from _order_violations(publish, places)
        yield from _torn(publish, places)
    yield from _overtaken(topic, publishes)


def delivery_violations(held: Sequence[Held], pulls: Sequence[Pull]) -> Iterator[str]:
    """Yield pulls whose messages differ from the topic's, or have gaps."""
    names = dict(held)
    for pull in pulls:
        ids = [message.id for message in pull.messages]
        if ids and ids != list(range(ids[0], ids[0] + len(ids))):
            yield f"law 3: pull {pull.request} was given ids that do not follow each other: {_first_break(ids)}"
        wrong = [message for message in pull.messages if names.get(message.id) != message.name]
        if wrong:
            found = names.get(wrong[0].id, "nothing")
            yield f"law 2: pull {pull.request} was given {wrong[0].name} as id {wrong[0].id}, where {found} is" + more(
                wrong
            )


def _places(held: Sequence[Held]) -> Places:
    places: Places = {}
    for message in held:
        places.setdefault(message.name, []).append(message.id)
    return places


def _not_consecutive(topic: str, held: Sequence[Held]) -> Iterator[str]:
    for expected, message in enumerate(held):
        if message.id != expected:
            yield f"law 2: topic {topic} has id {message.id} ({message.name}) where id {expected} should be"
            return


def _invented_messages(topic: str, held: Sequence[Held], publishes: Sequence[Publish]) -> Iterator[str]:
    published = {name for publish in publishes for name in publish.names}
    invented = [message for message in held if message.name not in published]
    if invented:
        yield f"law 2: topic {topic} holds {invented[0].name} as id {invented[0].id}, which nobody published" + more(
            invented
        )


def _duplicates(publish: Publish, places: Places) -> Iterator[str]:
    repeated = [name for name in publish.names if len(places.get(name, ())) > 1]
    if repeated:
        ids = " and ".join(str(each) for each in places[repeated[0]])
        yield f"law 1: message {repeated[0]} of request {publish.request} is stored as ids {ids}" + more(repeated)


def _order_violations(publish: Publish, places: Places) -> Iterator[str]:
    if publish.outcome is Outcome.DONE:
        yield from _not_as_answered(publish, places)
    elif publish.outcome is Outcome.REFUSED:
        stored = [name for name in publish.names if name in places]
        if stored:
            yield (
                f"law 2: request {publish.request} was refused, yet its message {stored[0]} is stored as id"
                f" {places[stored[0]][0]}" + more(stored)
            )


def _not_as_answered(publish: Publish, places: Places) -> Iterator[str]:
    if len(publish.ids) != len(publish.names):
        yield f"law 1: request {publish.request} of {len(publish.names)} messages was answered {len(publish.ids)} ids"
        return
    if list(publish.ids) != list(range(publish.ids[0], publish.ids[0] + len(publish.ids))):
        yield f"law 2: request {publish.request} was answered ids that do not follow each other: " + _first_break(
            publish.ids
        )
    answered = list(zip(publish.names, publish.ids, strict=True))
    lost = [(name, number) for name, number in answered if name not in places]
    if lost:
        name, number = lost[0]
        yield f"law 1: message {name} of request {publish.request}, acknowledged as id {number}, is lost" + more(lost)
    moved = [(name, number) for name, number in answered if name in places and number not in places[name]]
    if moved:
        name, number = moved[0]
        yield (
            f"law 1: message {name} of request {publish.request}, acknowledged as id {number}, is stored as id"
            f" {places[name][0]}" + more(moved)
        )


def _torn(publish: Publish, places: Places) -> Iterator[str]:
    """Find requests that are stored in part or out of order."""
    stored = [places[name][0] for name in publish.names if name in places]
    if not stored:
        return
    if len(stored) < len(publish.names):
        missing = next(name for name in publish.names if name not in places)
        yield (
            f"law 2: {len(stored)} of {len(publish.names)} messages of request {publish.request} are stored;"
            f" {missing} is not"
        )
    elif stored != list(range(stored[0], stored[0] + len(stored))):
        yield f"law 2: request {publish.request} is not stored in its order: " + _first_break(stored)


def _overtaken(topic: str, publishes: Sequence[Publish]) -> Iterator[str]:
    """Find requests with lower ids than a request that was answered before they began."""
    done = [each for each in publishes if each.outcome is Outcome.DONE and each.ids]
    earlier = iter(sorted(done, key=lambda each: each.ended))
    candidate = next(earlier, None)
    highest: Publish | None = None
    for publish in sorted(done, key=lambda each: each.started):
        while candidate is not None and candidate.ended <= publish.started:
            if highest is None or candidate.ids[-1] > highest.ids[-1]:
                highest = candidate
            candidate = next(earlier, None)
        if highest is not None and publish.ids[0] <= highest.ids[-1]:
            yield (
                f"law 2: request {publish.request} to topic {topic} was answered id {publish.ids[0]}, but request"
                f" {highest.request} had been answered id {highest.ids[-1]} before it began"
            )


def _first_break(ids: Sequence[int]) -> str:
    before, after = next((before, after) for before, after in pairwise(ids) if after != before + 1)
    return f"after {before} comes {after}"


def more(found: Sequence[object]) -> str:
    """Return the number of further findings, as the end of a sentence."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""
