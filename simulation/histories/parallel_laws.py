"""Laws over one parallel subscription, also with kills.

    came back      what was acknowledged, and answered so, is not given again. With an ordering key it counts when all
                   is acknowledged that the same consumer had before it; until then its process may forget it
    filter         what its filter passes over is not given
    forgotten      all that is published is acknowledged or put aside, once, and the subscription comes to its end
    given twice    as long as a lease runs, its message is given to nobody else; with exactly-once delivery not even
                   after a restart. A lease runs no longer than those of messages before it in its key that are out too
    late           only the newest lease acknowledges, until its deadline, or until one before it in its key failed
    counted down   the number of a delivery never falls, is higher after a nack, and no higher than attempts there are
    out of order   of an ordering key a message is given when those before it are settled, or out to the same consumer:
                   the same stream, or the same pull, in order
    left out       when a message of an ordering key is given again, so are those behind it that were given before

Times come from clients, so each doubt favours the service: it may have given a message at the beginning of a pull or at
its end. A request that began at the moment of an answer began after it: in a simulated world no time passes between
the two.

Leases are forgotten when another process takes the subscription over: after a kill, or as another node of a cluster.
The run in the ids tells when: between two deliveries of which the second has a higher run.
"""

from bisect import bisect_left
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
    passes_over: str = ""
    """Prefix of names that its filter passes over; empty without a filter."""

    def is_delivered(self, name: str) -> bool:
        """Return whether its filter lets a message through."""
        return not self.passes_over or not name.startswith(self.passes_over)


MORE_ATTEMPTS = 5
"""Redeliveries, one every ten seconds, while a lost node still claims the key of a dead letter: for half a minute."""


def with_more_attempts(kinds: Sequence[Parallel]) -> list[Parallel]:
    """Return the limits for a cluster: messages that cannot become dead letters yet are redelivered."""
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
    """All events of one message in one subscription."""

    given: list[Given] = field(default_factory=list)
    settles: list[tuple[Settle, str]] = field(default_factory=list)

    def of(self, verb: str) -> Iterator[tuple[Settle, str]]:
        return ((settle, ack_id) for settle, ack_id in self.settles if settle.verb == verb)

    def confirmed_acks(self) -> Iterator[tuple[Settle, str]]:
        return ((settle, ack_id) for settle, ack_id in self.of(ACK) if settle.is_confirmed(ack_id))

    def confirmed_by(self, ack_id: str) -> float:
        """Return the first confirmation of an acknowledgement by this id."""
        return min((settle.ended for settle, by in self.confirmed_acks() if by == ack_id), default=float("inf"))

    @property
    def may_be_done_since(self) -> float:
        """Start of the first acknowledgement that was not refused."""
        return min(
            (settle.started for settle, ack_id in self.of(ACK) if settle.may_have_happened(ack_id)),
            default=float("inf"),
        )


class TakeOvers:
    """Take-overs of a subscription, as far as deliveries show them."""

    def __init__(self, sub: Parallel, attempts: Sequence[Attempt]) -> None:
        self._last: dict[int, float] = {}  # by run: the last time it surely still ran
        for lease in attempts:
            if isinstance(lease, Lease) and lease.subscription == sub.name:
                for run in {message.run for message in lease.messages}:
                    self._last[run] = max(lease.started, self._last.get(run, lease.started))

    def __len__(self) -> int:
        return max(len(self._last) - 1, 0)

    def may_have_ended(self, run: int, moment: float) -> bool:
        """Return whether another process may have taken over from this run by a moment."""
        return self._last[run] <= moment and max(self._last) > run


def violations(
    sub: Parallel, held: Sequence[Held], attempts: Sequence[Attempt], ending: ParallelEnding
) -> Iterator[str]:
    """Yield violations, as sentences; `held`: all messages of the topic."""
    stories, take_overs = _stories(sub, attempts), TakeOvers(sub, attempts)
    letters = [each for each in ending.letters if each.subscription == sub.name]
    keys = _Keys(held if sub.ordered else (), stories)
    dead = {each.id for each in letters}
    yield from _other_messages(sub, held, stories)
    yield from _not_at_its_end(sub, held, stories, letters, ending.floors[sub.name])
    for offset, story in stories.items():
        said = f"message {offset} of subscription {sub.name}"
        yield from _come_again(said, story, keys, take_overs)
        yield from _given_twice(sub, said, story, keys)
        yield from _acknowledged_late(sub, said, story, take_overs, is_dead=offset in dead)
        yield from _acknowledged_when_taken_back(said, offset, story, keys, take_overs)
        yield from _counted_down(sub, said, story, take_overs)
    if sub.ordered:
        yield from _out_of_order(sub, stories, keys, dead)
        yield from _left_out(sub, stories, keys, take_overs, dead)


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
            if not sub.is_delivered(message.name):
                said = f"pull {lease.request} of {sub.name} was given {message.name}"
                yield f"filter: {said}, which its filter passes over"


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
    gone = settled | set(dead)
    passed = [each for each in held if each.id < floor and sub.is_delivered(each.name)]
    forgotten = [each for each in passed if each.id not in gone]
    if forgotten:
        first, given = forgotten[0], stories.get(forgotten[0].id, _Story()).given
        yield (
            f"forgotten: subscription {sub.name} has passed message {first.id} ({first.name}), which was given"
            f" {len(given)} times, and nobody acknowledged it nor is it put aside" + more(forgotten)
        )


def _come_again(said: str, story: _Story, keys: "_Keys", take_overs: TakeOvers) -> Iterator[str]:
    by_id = {given.message.ack_id: given for given in story.given}
    counting = [(_counts_since(each, by_id.get(by), keys, take_overs), each) for each, by in story.confirmed_acks()]
    if not counting:
        return
    since, confirmed = min(counting, key=lambda each: each[0])
    for lease, message in story.given:
        if lease.started >= since:
            yield (
                f"came back: {said} ({message.name}) was given by pull {lease.request}, and had been acknowledged by"
                f" {confirmed.request} before that began"
            )
            return


def _counts_since(acknowledged: Settle, given: Given | None, keys: "_Keys", take_overs: TakeOvers) -> float:
    """Return the time from which a confirmed acknowledgement surely counts; infinity if it may be forgotten."""
    if given is None:
        return acknowledged.ended
    last: dict[int, tuple[_Story, Given]] = {}
    for story, each in keys.out_with(given):
        if each.message.id not in last or last[each.message.id][1].lease.ended < each.lease.ended:
            last[each.message.id] = story, each
    since = max([story.confirmed_by(each.message.ack_id) for story, each in last.values()], default=0.0)
    if since <= acknowledged.started:
        return acknowledged.ended
    since = max(since, acknowledged.ended)
    return float("inf") if take_overs.may_have_ended(given.message.run, since) else since


class _Keys:
    """Earlier messages of each ordering key."""

    def __init__(self, held: Sequence[Held], stories: Mapping[int, _Story]) -> None:
        """`held`: the topic; empty for a subscription without ordering."""
        self._stories = stories
        self._messages: dict[str, list[int]] = {}
        self.key_of = {offset: ordering_key(name) for offset, name in held}
        for offset, key in self.key_of.items():
            self._messages.setdefault(key, []).append(offset)

    def before(self, offset: int) -> list[int]:
        """Return the earlier messages of its key."""
        several = self._messages.get(self.key_of.get(offset, ""), [])
        return several[: bisect_left(several, offset)]

    def stories_before(self, offset: int) -> Iterator[_Story]:
        """Yield the stories of earlier messages that were delivered."""
        return (self._stories[each] for each in self.before(offset) if each in self._stories)

    def out_with(self, given: Given) -> Iterator[tuple[_Story, Given]]:
        """Yield earlier messages of its key that the same consumer was given before or with it."""
        for story in self.stories_before(given.message.id):
            for each in story.given:
                if each.lease.consumer == given.lease.consumer and each.lease.ended <= given.lease.ended:
                    yield story, each


def _given_twice(sub: Parallel, said: str, story: _Story, keys: _Keys) -> Iterator[str]:
    for place, first in enumerate(story.given):
        for second in story.given[place + 1 :]:
            begin = min(first.lease.started, second.lease.started)
            end = max(first.lease.ended, second.lease.ended)
            orders = [(first, second)]
            if second.lease.started < first.lease.ended:  # the later one may have been answered first
                orders.append((second, first))
            if any(end >= _runs_until(sub, story, *order) - ROUNDING for order in orders):
                continue
            if not sub.exactly_once and first.message.run != second.message.run:
                continue
            if any(_may_be_taken_back(sub, keys, *order, end) for order in orders):
                continue
            yield (
                f"given twice: {said} was given by pulls {first.lease.request} and {second.lease.request} within"
                f" {end - begin:.3f} seconds, and nobody had given it back"
            )
            return


def _may_be_taken_back(sub: Parallel, keys: _Keys, first: Given, second: Given, end: float) -> bool:
    """Return whether a failed earlier message of its key may have ended the first lease by a moment."""
    for story, other in keys.out_with(first):
        until = _runs_until(sub, story, other, second) - ROUNDING
        if end >= until and story.confirmed_by(other.message.ack_id) >= until:
            return True
    return False


def _runs_until(sub: Parallel, story: _Story, first: Given, second: Given) -> float:
    """Return the time until which the first lease surely ran, by events before the second."""
    until = first.lease.started + sub.deadline
    for settle, ack_id in story.settles:
        if ack_id != first.message.ack_id or settle.started > second.lease.ended:
            continue
        if settle.verb == NACK and settle.may_have_happened(ack_id):
            return 0.0
        if settle.verb == EXTEND and settle.may_have_happened(ack_id):
            extended = settle.started + settle.seconds
            is_sure = settle.is_confirmed(ack_id) and settle.ended <= second.lease.started
            until = extended if is_sure else min(until, extended)
    return until


def _acknowledged_late(
    sub: Parallel, said: str, story: _Story, take_overs: TakeOvers, *, is_dead: bool
) -> Iterator[str]:
    """Find confirmed acknowledgements of expired leases."""
    by_id = {given.message.ack_id: given for given in story.given}
    earliest = story.may_be_done_since  # it may be done from then on; a repeated acknowledgement is harmless
    for settle, ack_id in story.of(ACK):
        first = by_id.get(ack_id)
        if first is None or is_dead or settle.started > earliest or not settle.is_confirmed(ack_id):
            continue
        if take_overs.may_have_ended(first.message.run, settle.ended):
            continue
        if any(first.lease.ended < each.lease.started and each.lease.ended <= settle.started for each in story.given):
            yield f"late: {said} was acknowledged by {settle.request}, but had been given to another since"
        is_extended = any(other == ack_id for _, other in story.of(EXTEND))
        if not is_extended and settle.started > first.lease.ended + sub.deadline + ROUNDING:
            yield f"late: {said} was acknowledged by {settle.request}, but its lease had ended"


def _acknowledged_when_taken_back(
    said: str, offset: int, story: _Story, keys: _Keys, take_overs: TakeOvers
) -> Iterator[str]:
    """Find confirmed acknowledgements of messages behind one of their key that had failed."""
    by_id = {given.message.ack_id: given for given in story.given}
    earliest = min((settle.started for settle, _ in story.of(ACK)), default=0.0)
    for settle, ack_id in story.of(ACK):
        first = by_id.get(ack_id)
        if first is None or settle.started > earliest or not settle.is_confirmed(ack_id):
            continue
        if take_overs.may_have_ended(first.message.run, settle.ended):
            continue
        failed = min((_failed_since(other, first) for other in keys.stories_before(offset)), default=float("inf"))
        if failed < settle.started:
            yield f"late: {said} was acknowledged by {settle.request}, but one before it in its key had failed since"


def _failed_since(story: _Story, first: Given) -> float:
    """Return when a message surely failed after a later one of its key was given, in the same run."""
    given = {each.message.ack_id: each for each in story.given}
    nacked = [
        settle.ended
        for settle, ack_id in story.of(NACK)
        if settle.is_confirmed(ack_id) and settle.started > first.lease.ended and ack_id in given
        if given[ack_id].message.run == first.message.run
    ]
    again = [
        each.lease.ended
        for each in story.given
        if each.lease.started > first.lease.ended and each.message.run == first.message.run
    ]
    return min([*nacked, *again], default=float("inf"))


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
        if not take_overs.may_have_ended(first.message.run, settle.ended):  # a lease of an earlier run is only expired
            known.append((settle.ended, first.message.attempt + 1))
    for lease, message in story.given:
        before = max((attempt for ended, attempt in known if ended <= lease.started), default=0)
        if message.attempt < before:
            yield (
                f"counted down: {said} was given by pull {lease.request} as delivery {message.attempt}, after it had"
                f" come to delivery {before}"
            )
            return


def _out_of_order(sub: Parallel, stories: Mapping[int, _Story], keys: _Keys, dead: set[int]) -> Iterator[str]:
    never = float("inf")
    done_since = {offset: story.may_be_done_since for offset, story in stories.items()}
    given_last = {at: max([each.lease.started for each in story.given], default=0) for at, story in stories.items()}
    for offset, story in stories.items():
        for given in story.given:
            for before in keys.before(offset):
                if before in dead:
                    continue
                was_done = given_last.get(before, never) < given.lease.ended  # else it was redelivered
                if was_done and done_since.get(before, never) < given.lease.ended:
                    continue
                if not _is_out_to_same(stories.get(before, _Story()), given):
                    said = (
                        f"of key {keys.key_of[offset]} in subscription {sub.name}, message {offset} was given by pull"
                    )
                    yield f"out of order: {said} {given.lease.request} before message {before} was settled"
                    break


def _left_out(
    sub: Parallel, stories: Mapping[int, _Story], keys: _Keys, take_overs: TakeOvers, dead: set[int]
) -> Iterator[str]:
    """Find unacknowledged messages that were not redelivered after an earlier one of their key was."""
    for offset, story in stories.items():
        last = max(story.given, key=lambda each: each.lease.ended, default=None)
        if last is None or offset in dead or take_overs.may_have_ended(last.message.run, float("inf")):
            continue
        for before in keys.stories_before(offset):
            again = [
                each
                for each in before.given
                if last.lease.ended < each.lease.started and each.message.run == last.message.run
            ]
            if again and all(settle.started >= again[0].lease.started for settle, _ in before.of(ACK)):
                said = f"message {again[0].message.id} was given again by pull {again[0].lease.request}"
                yield (
                    f"left out: of key {keys.key_of[offset]} in subscription {sub.name}, {said}, and message {offset}"
                    f" behind it, which pull {last.lease.request} had been given, was not"
                )
                break


def _is_out_to_same(earlier: _Story, given: Given) -> bool:
    """Return whether the consumer of a later message may hold an earlier one, by their times."""
    place = given.lease.messages.index(given.message)
    same = [
        each
        for each in earlier.given
        if each.lease.consumer == given.lease.consumer
        and (each.lease.ended <= given.lease.ended)
        and (each.lease is not given.lease or each.lease.messages.index(each.message) < place)
    ]
    if not same:
        return False
    last = max(each.lease.ended for each in same)
    others = (each.lease for each in earlier.given if each.lease.consumer != given.lease.consumer)
    return not any(last < each.started and each.ended < given.lease.started for each in others)
