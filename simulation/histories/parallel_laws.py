"""Laws over one parallel subscription, whatever was killed meanwhile.

    came back      what was acknowledged, and answered so, is not given again
    forgotten      all that is published is acknowledged or put aside, once, and the subscription comes to its end
    given twice    as long as a lease runs, its message is given to nobody else; with exactly-once delivery not even
                   after a restart
    late           only the newest lease acknowledges, until its deadline
    counted down   the number of a delivery never falls, is higher after a nack, and no higher than attempts there are
    out of order   of an ordering key a message is first given when the one before it is settled, which never comes
                   again then

Clients judge by their own clocks, so always for the service: it may have given a message at the beginning of a pull or
at its end, whichever excuses it.

What a process has leased is forgotten when another one takes the subscription over, after a kill or as a node of a
cluster does. When that was tell the runs in the ids: between two deliveries of which the second has a higher one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.histories.attempts import ACK, EXTEND, NACK, Attempt, Held, Lease, Leased, Letter, Settle, offset_of
from simulation.histories.history import more
from simulation.histories.payload import ordering_key

ROUNDING = 0.005  # seconds: the service counts in milliseconds


class Parallel(NamedTuple):
    name: str
    topic: str
    deadline: float  # seconds of a lease
    most_attempts: int
    exactly_once: bool = False
    ordered: bool = False


MORE_ATTEMPTS = 5
"""How often a message comes again, every ten seconds, while a node that was lost has the claim on the key of its dead
letter, which is half a minute."""


def with_more_attempts(kinds: Sequence[Parallel]) -> list[Parallel]:
    """Return what subscriptions of a cluster are held to: what cannot be put aside now comes again meanwhile."""
    return [each._replace(most_attempts=each.most_attempts + MORE_ATTEMPTS) for each in kinds]


@dataclass(frozen=True, slots=True)
class ParallelEnding:
    letters: Sequence[Letter]
    floors: Mapping[str, int]


class Given(NamedTuple):
    lease: Lease
    message: Leased


@dataclass(slots=True)
class _Story:
    """All that happened to one message of one subscription."""

    given: list[Given] = field(default_factory=list)
    settles: list[tuple[Settle, str]] = field(default_factory=list)

    def of(self, verb: str) -> Iterator[tuple[Settle, str]]:
        return ((settle, ack_id) for settle, ack_id in self.settles if settle.verb == verb)

    @property
    def confirmed(self) -> Settle | None:
        """The first acknowledgement that was answered."""
        found = [settle for settle, ack_id in self.of(ACK) if settle.is_confirmed(ack_id)]
        return min(found, key=lambda each: each.ended, default=None)

    @property
    def may_be_done_since(self) -> float:
        """When the first acknowledgement was sent that was not refused."""
        return min(
            (settle.started for settle, ack_id in self.of(ACK) if settle.may_have_happened(ack_id)),
            default=float("inf"),
        )


class TakeOvers:
    """When processes took a subscription over, as far as what they gave tells."""

    def __init__(self, sub: Parallel, attempts: Sequence[Attempt]) -> None:
        self._last: dict[int, float] = {}  # of each run, when it surely had not ended yet
        for lease in attempts:
            if isinstance(lease, Lease) and lease.subscription == sub.name:
                for run in {message.run for message in lease.messages}:
                    self._last[run] = max(lease.started, self._last.get(run, lease.started))

    def __len__(self) -> int:
        return max(len(self._last) - 1, 0)

    def may_have_ended(self, run: int, moment: float) -> bool:
        """Whether another process may have taken over from this run by a moment."""
        return self._last[run] <= moment and max(self._last) > run


def violations(
    sub: Parallel, held: Sequence[Held], attempts: Sequence[Attempt], ending: ParallelEnding
) -> Iterator[str]:
    """Yield what breaks a law, as sentences; `held` is the topic, read from the beginning."""
    stories, take_overs = _stories(sub, attempts), TakeOvers(sub, attempts)
    letters = [each for each in ending.letters if each.subscription == sub.name]
    dead = {each.id for each in letters}
    yield from _other_messages(sub, held, stories)
    yield from _not_at_its_end(sub, held, stories, letters, ending.floors[sub.name])
    for offset, story in stories.items():
        said = f"message {offset} of subscription {sub.name}"
        yield from _come_again(said, story)
        yield from _given_twice(sub, said, story)
        yield from _acknowledged_late(sub, said, story, take_overs, is_dead=offset in dead)
        yield from _counted_down(sub, said, story, take_overs)
    if sub.ordered:
        yield from _out_of_order(sub, held, stories, dead)


def _stories(sub: Parallel, attempts: Sequence[Attempt]) -> dict[int, _Story]:
    stories: defaultdict[int, _Story] = defaultdict(_Story)
    for attempt in sorted(attempts, key=lambda each: each.started):
        if isinstance(attempt, Lease) and attempt.subscription == sub.name:
            for message in attempt.messages:
                stories[message.id].given.append(Given(attempt, message))
        elif isinstance(attempt, Settle) and attempt.subscription == sub.name:
            for ack_id in attempt.ids:
                stories[offset_of(ack_id)].settles.append((attempt, ack_id))
    return dict(stories)


def _other_messages(sub: Parallel, held: Sequence[Held], stories: Mapping[int, _Story]) -> Iterator[str]:
    names = dict(held)
    for offset, story in stories.items():
        for lease, message in story.given:
            if names.get(offset) != message.name:
                found = names.get(offset, "nothing")
                yield f"forgotten: pull {lease.request} was given {message.name} as id {offset}, where {found} is"


def _not_at_its_end(
    sub: Parallel, held: Sequence[Held], stories: Mapping[int, _Story], letters: Sequence[Letter], floor: int
) -> Iterator[str]:
    if floor != len(held):
        yield f"forgotten: subscription {sub.name} stands at {floor} of {len(held)}: it never came to its end"
    dead = [each.id for each in letters]
    twice = sorted({each for each in dead if dead.count(each) > 1}) if len(set(dead)) < len(dead) else []
    if twice:
        yield f"forgotten: message {twice[0]} of subscription {sub.name} was put aside {dead.count(twice[0])} times"
    never = float("inf")
    settled = {offset for offset, story in stories.items() if story.may_be_done_since < never}
    forgotten = [each for each in held if each.id < floor and each.id not in settled and each.id not in set(dead)]
    if forgotten:
        first, given = forgotten[0], stories.get(forgotten[0].id, _Story()).given
        yield (
            f"forgotten: subscription {sub.name} has passed message {first.id} ({first.name}), which was given"
            f" {len(given)} times, and nobody acknowledged it nor is it put aside" + more(forgotten)
        )


def _come_again(said: str, story: _Story) -> Iterator[str]:
    confirmed = story.confirmed
    if confirmed is None:
        return
    for lease, message in story.given:
        if lease.started > confirmed.ended:
            yield (
                f"came back: {said} ({message.name}) was given by pull {lease.request}, and had been acknowledged by"
                f" {confirmed.request} before that began"
            )
            return


def _given_twice(sub: Parallel, said: str, story: _Story) -> Iterator[str]:
    for place, first in enumerate(story.given):
        for second in story.given[place + 1 :]:
            begin = min(first.lease.started, second.lease.started)
            end = max(first.lease.ended, second.lease.ended)
            orders = [(first, second)]
            if second.lease.started < first.lease.ended:  # the one that began later may have been answered first
                orders.append((second, first))
            if any(end >= _runs_until(sub, story, *order) - ROUNDING for order in orders):
                continue
            if not sub.exactly_once and first.message.run != second.message.run:
                continue
            yield (
                f"given twice: {said} was given by pulls {first.lease.request} and {second.lease.request} within"
                f" {end - begin:.3f} seconds, and nobody had given it back"
            )
            return


def _runs_until(sub: Parallel, story: _Story, first: Given, second: Given) -> float:
    """Return until when the first lease surely ran, as far as what happened before the second tells."""
    until = first.lease.started + sub.deadline
    for settle, ack_id in story.settles:
        if ack_id != first.message.ack_id or settle.started > second.lease.ended:
            continue
        if settle.verb == NACK and settle.may_have_happened(ack_id):
            return 0.0
        if settle.verb == EXTEND and settle.may_have_happened(ack_id):
            extended = settle.started + settle.seconds
            is_sure = settle.is_confirmed(ack_id) and settle.ended < second.lease.started
            until = extended if is_sure else min(until, extended)
    return until


def _acknowledged_late(
    sub: Parallel, said: str, story: _Story, take_overs: TakeOvers, *, is_dead: bool
) -> Iterator[str]:
    """Find acknowledgements that were confirmed, of leases that were over."""
    by_id = {given.message.ack_id: given for given in story.given}
    earliest = min((settle.started for settle, _ in story.of(ACK)), default=0.0)
    for settle, ack_id in story.of(ACK):
        first = by_id.get(ack_id)
        if first is None or is_dead or settle.started > earliest or not settle.is_confirmed(ack_id):
            continue
        if take_overs.may_have_ended(first.message.run, settle.ended):
            continue
        if any(first.lease.ended < each.lease.started and each.lease.ended < settle.started for each in story.given):
            yield f"late: {said} was acknowledged by {settle.request}, but had been given to another since"
        is_extended = any(other == ack_id for _, other in story.of(EXTEND))
        if not is_extended and settle.started > first.lease.ended + sub.deadline + ROUNDING:
            yield f"late: {said} was acknowledged by {settle.request}, but its lease had ended"


def _counted_down(sub: Parallel, said: str, story: _Story, take_overs: TakeOvers) -> Iterator[str]:
    for lease, message in story.given:
        if message.attempt > sub.most_attempts:
            yield f"counted down: {said} was given by pull {lease.request} as delivery {message.attempt}"
            return
    known = sorted((given.lease.ended, given.message.attempt) for given in story.given)
    attempts = {given.message.ack_id: given for given in story.given}
    for settle, ack_id in story.of(NACK):
        first = attempts.get(ack_id)
        if first is None or not settle.is_confirmed(ack_id):
            continue
        if not take_overs.may_have_ended(first.message.run, settle.ended):  # one of before is only over
            known.append((settle.ended, first.message.attempt + 1))
    for lease, message in story.given:
        before = max((attempt for ended, attempt in known if ended < lease.started), default=0)
        if message.attempt < before:
            yield (
                f"counted down: {said} was given by pull {lease.request} as delivery {message.attempt}, after it had"
                f" come to delivery {before}"
            )
            return


def _out_of_order(sub: Parallel, held: Sequence[Held], stories: Mapping[int, _Story], dead: set[int]) -> Iterator[str]:
    last: dict[str, int] = {}
    for offset, name in held:
        key = ordering_key(name)
        before, last[key] = last.get(key), offset
        story = stories.get(offset)
        if before is None or story is None or not story.given:
            continue
        first = min(story.given, key=lambda each: each.lease.ended).lease
        earlier = stories.get(before, _Story())
        said = f"of key {key} in subscription {sub.name}, message"
        if before not in dead and earlier.may_be_done_since > first.ended:
            yield f"out of order: {said} {offset} was given by pull {first.request} before message {before} was settled"
        again = [each.lease for each in earlier.given if each.lease.started > first.ended]
        if again:
            yield (
                f"out of order: {said} {before} was given by pull {again[0].request} after message {offset} had been"
                f" given by pull {first.request}"
            )
