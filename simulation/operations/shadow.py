"""Possible states of a resource that a single client changes."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from simulation.histories.attempts import Outcome

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Coming:
    """A resource that is created and deleted: it may exist, may be absent, or both."""

    may_be_there: bool = False
    may_be_gone: bool = True

    def settle(self, outcome: Outcome, status: int, *, is_there: bool) -> str:
        """Apply the answer to a creation or deletion; return what is wrong with it, or nothing."""
        if outcome is Outcome.UNKNOWN:
            self.may_be_there |= is_there
            self.may_be_gone |= not is_there
            return ""
        refused = {409: True, 404: False}
        if outcome is Outcome.REFUSED and status not in refused:
            return ""
        shown = is_there if outcome is Outcome.DONE else refused[status]
        was = not is_there if outcome is Outcome.DONE else shown
        wrong = not (self.may_be_there if was else self.may_be_gone)
        self.may_be_there, self.may_be_gone = shown, not shown
        return f"answered {status} though it was surely {'gone' if was else 'there'}" if wrong else ""

    def see(self, *, is_there: bool) -> bool:
        """Apply an observation; return whether it was possible."""
        was_possible = self.may_be_there if is_there else self.may_be_gone
        self.may_be_there, self.may_be_gone = is_there, not is_there
        return was_possible


class Possible(Generic[T]):
    """The possible states of a resource."""

    def __init__(self, *states: T) -> None:
        self.states = set(states)

    def change(self, outcome: Outcome, state: T) -> None:
        """Apply the answer to a request for another state."""
        if outcome is Outcome.DONE:
            self.states = {state}
        elif outcome is Outcome.UNKNOWN:
            self.states.add(state)

    def see(self, *states: T) -> bool:
        """Apply an observation of one of these states; return whether it was possible."""
        agreeing = self.states & set(states)
        self.states = agreeing or set(states)
        return bool(agreeing)
