"""Law 3 over one subscription: a cursor moves only by an acknowledgement or a seek of the history.

Requests overlap, and unanswered ones may have happened or not. So the checker keeps every standing of the cursor that
agrees with the answers so far. Each answer removes the standings that it contradicts; when none is left, the law is
violated.

A pull may see more than the disk has: an acknowledgement can be visible while it is being stored. It is undone if the
service dies or the disk fails before the answer. So a standing keeps its `trail`: the moves that may still be undone.
The answer of a move settles it and all earlier ones.

The service accepts acknowledgements only of messages handed out since the last seek. An unanswered pull may have handed
out anything. A restarted service has forgotten what it handed out. It accepts all acknowledgements for a while
(`ams.storage.cursors.base.Grace`), unless a seek came shortly before.

The number of standings grows with concurrent requests: use a handful of clients for each subscription.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from simulation.histories.attempts import Ack, Outcome, Publish, Pull, Seek

Use = Pull | Ack | Seek
ANYTHING = float("inf")  # everything may have been handed out
DEADLINE_SECONDS = 10.0  # the service's default deadline of acknowledgements


class KnownEnd:
    def __init__(self, publishes: Iterable[Publish]) -> None:
        done = sorted((each.ended, each.ids[-1] + 1) for each in publishes if each.ids)
        self._times = [time for time, _ in done]
        self._ends = [0, *accumulate((end for _, end in done), max)]

    def at(self, time: float) -> int:
        """Return the smallest end that the topic can have had at `time`."""
        return self._ends[bisect_right(self._times, time)]


class _Move(NamedTuple):
    """A request that moved the cursor, and its target."""

    request: str
    offset: int
    is_seek: bool = False
    handed_end: float = 0  # end of messages handed out since the last seek, while this move was the newest


class _Standing(NamedTuple):
    """One possible state: the last settled move, the unsettled moves after it, and the pulls that have read."""

    trail: tuple[_Move, ...]
    read: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    """Moves without an answer that the answer to a later move has settled."""

    @property
    def offset(self) -> int:
        return self.trail[-1].offset

    @property
    def handed_end(self) -> float:
        return self.trail[-1].handed_end

    def handing_out(self, end: float) -> "_Standing":
        """Hand out up to `end`. Undoing an acknowledgement keeps this; undoing the last seek does not."""
        trail = list(self.trail)
        for place in reversed(range(len(trail))):
            trail[place] = trail[place]._replace(handed_end=max(trail[place].handed_end, end))
            if trail[place].is_seek:
                break
        return self._replace(trail=tuple(trail))

    def after_restart(self, end: float) -> "_Standing":
        """Return the standing after a restart, which accepts everything up to `end` as handed out."""
        return self._replace(trail=tuple(move._replace(handed_end=end) for move in self.trail))

    def has(self, use: Use) -> bool:
        return use.request in self.read | self.kept or any(move.request == use.request for move in self.trail)


_BEGINNING = _Standing((_Move("its creation", 0),))


def violations(
    subscription: str, uses: Sequence[Use], known_end: KnownEnd, final: int, restarts: Sequence[float] = ()
) -> Iterator[str]:
    """Yield each answer, and the final offset, that no correct service could give.

    `restarts`: times at which the service was ready again.
    """
    walk = _Walk(known_end)
    # An answer comes before a request that began at the same time.
    for time, is_end, use in sorted(_events(uses, restarts), key=lambda event: (event[0], not event[1])):
        if use is None:
            walk.restart(everything=not _sought_shortly_before(time, uses))
            continue
        if not is_end:
            walk.pending[use.request] = use
            continue
        wrong = walk.end(use)
        if wrong:
            yield f"law 3: {wrong} (subscription {subscription})"
    last = walk.reachable()
    if all(standing.offset != final for standing in last):
        yield f"law 3: the cursor of subscription {subscription} ended at {final}; {_describe(last)}"


def _sought_shortly_before(time: float, uses: Sequence[Use]) -> bool:
    return any(
        isinstance(use, Seek) and use.outcome is Outcome.DONE and time - DEADLINE_SECONDS < use.started < time
        for use in uses
    )


def _events(uses: Sequence[Use], restarts: Sequence[float]) -> Iterator[tuple[float, bool, Use | None]]:
    for time in restarts:
        yield time, False, None
    for use in uses:
        yield use.started, False, use
        if use.ended != float("inf"):
            yield use.ended, True, use


class _Walk:
    def __init__(self, known_end: KnownEnd) -> None:
        self.pending: dict[str, Use] = {}
        self._known_end = known_end
        self._standings = {_BEGINNING}

    def end(self, use: Use) -> str | None:
        reachable = self.reachable()
        del self.pending[use.request]
        if isinstance(use, Pull) and use.outcome is not Outcome.DONE:
            reachable = {standing.handing_out(ANYTHING) for standing in reachable}
        if use.outcome is Outcome.REFUSED:
            agreeing = {standing for standing in reachable if not standing.has(use)}
        elif use.outcome is Outcome.DONE:
            agreeing = {self._settle_after(standing, use) for standing in reachable if standing.has(use)}
        else:
            agreeing = {_without(standing, use) for standing in reachable}
        self._standings = {self._compact(standing) for standing in agreeing or self._believing(use, reachable)}
        return None if agreeing else _complaint(use, reachable)

    def restart(self, *, everything: bool) -> None:
        end = ANYTHING if everything else 0
        self._standings = {standing.after_restart(end) for standing in self.reachable()}

    def reachable(self) -> set[_Standing]:
        """Return the standings, extended by every pending use that may have happened."""
        found = set(self._standings)
        todo = list(found)
        while todo:
            for standing in self._next(todo.pop()):
                if standing not in found:
                    found.add(standing)
                    todo.append(standing)
        return found

    def _next(self, standing: _Standing) -> Iterator[_Standing]:
        for use in self.pending.values():
            if standing.has(use):
                continue
            if isinstance(use, Pull):
                if self._agrees(use, standing.offset):
                    read = standing._replace(read=standing.read | {use.request})
                    yield read.handing_out(use.messages[-1].id + 1 if use.messages else 0)
            elif isinstance(use, Seek):
                yield standing._replace(trail=(*standing.trail, _Move(use.request, use.offset, is_seek=True)))
            elif self._may_take(use, standing):
                yield standing._replace(trail=(*standing.trail, _move_by_ack(use, standing)))
        for place, move in enumerate(standing.trail):
            if move.request in self.pending and self.pending[move.request].outcome is not Outcome.DONE:
                yield standing._replace(trail=standing.trail[:place])

    def _may_take(self, ack: Ack, standing: _Standing) -> bool:
        """Return whether an acknowledgement is of messages handed out or acknowledged before."""
        if ack.last < max(standing.offset, standing.handed_end):
            return True
        return any(isinstance(use, Pull) and use.outcome is not Outcome.DONE for use in self.pending.values())

    def _agrees(self, pull: Pull, offset: int) -> bool:
        if pull.outcome is not Outcome.DONE:
            return False  # no answer, so no evidence
        if pull.messages:
            return pull.messages[0].id == offset
        return offset >= self._known_end.at(pull.started)

    def _compact(self, standing: _Standing) -> _Standing:
        """Drop the moves that can no longer be undone to."""
        trail = standing.trail
        kept = tuple(
            move
            for place, move in enumerate(trail)
            if place == len(trail) - 1 or move.request in self.pending or trail[place + 1].request in self.pending
        )
        return standing._replace(trail=kept)

    def _settle_after(self, standing: _Standing, use: Use) -> _Standing:
        """Settle an answered move and all earlier ones, whose answers may come later."""
        for place, move in enumerate(standing.trail):
            if move.request == use.request:
                before = {each.request for each in standing.trail[:place]} & self.pending.keys()
                return standing._replace(trail=standing.trail[place:], kept=standing.kept | before)
        return _without(standing, use)

    def _believing(self, use: Use, reachable: set[_Standing]) -> set[_Standing]:
        """Go on after a violation as if the answer were right, to report it once."""
        if isinstance(use, Pull) and use.messages:
            return {_Standing((_Move(f"pull {use.request}", use.messages[0].id, handed_end=ANYTHING),))}
        if isinstance(use, Ack):
            return {_Standing((_move_by_ack(use, standing)._replace(handed_end=ANYTHING),)) for standing in reachable}
        return reachable


def _move_by_ack(ack: Ack, standing: _Standing) -> _Move:
    return _Move(ack.request, max(standing.offset, ack.last + 1), handed_end=standing.handed_end)


def _without(standing: _Standing, use: Use) -> _Standing:
    """Drop a use that was answered or never will be."""
    return standing._replace(read=standing.read - {use.request}, kept=standing.kept - {use.request})


def _complaint(use: Use, reachable: set[_Standing]) -> str:
    if isinstance(use, Ack) and all(use.last >= max(standing.offset, standing.handed_end) for standing in reachable):
        return (
            f"{use.request} acknowledged message {use.last}, which was not handed out since the last seek, and was"
            f" answered as if it had happened; {_describe(reachable)}"
        )
    if not isinstance(use, Pull):
        return f"{use.request} was answered as if it had happened; {_describe(reachable)}"
    if not use.messages:
        return f"pull {use.request} was given nothing while messages were there; {_describe(reachable)}"
    first = use.messages[0]
    begins = f"pull {use.request} began at message {first.id} ({first.name})"
    offsets = [standing.offset for standing in reachable]
    if first.id < min(offsets):
        return f"{begins}, which had been acknowledged or passed; {_describe(reachable)}"
    if first.id > max(offsets):
        return f"{begins} and so skipped messages nobody had acknowledged; {_describe(reachable)}"
    return f"{begins}; {_describe(reachable)}"


def _describe(reachable: set[_Standing]) -> str:
    moves = sorted({(standing.offset, standing.trail[-1].request) for standing in reachable})
    return "it could only stand at " + " or ".join(f"{offset} (by {request})" for offset, request in moves)
