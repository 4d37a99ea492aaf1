"""Possible states of a thing that one client alone changes."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from simulation.histories.attempts import Outcome

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Coming:
    """Something that comes and goes: whether it may be there, and whether it may not."""

    may_be_there: bool = False
    may_be_gone: bool = True

    def settle(self, outcome: Outcome, status: int, *, is_there: bool) -> str:
        """Take what a request to make or to remove it was answered; return what is wrong with that, or nothing."""
        if outcome is Outcome.UNKNOWN:
            self.may_be_there = self.may_be_gone = True
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
        """Take a look at it; return whether it may have been so."""
        was_possible = self.may_be_there if is_there else self.may_be_gone
        self.may_be_there, self.may_be_gone = is_there, not is_there
        return was_possible


class Possible(Generic[T]):
    """States of which a thing has one."""

    def __init__(self, *states: T) -> None:
        self.states = set(states)

    def change(self, outcome: Outcome, state: T) -> None:
        """Take what a request for another state was answered."""
        if outcome is Outcome.DONE:
            self.states = {state}
        elif outcome is Outcome.UNKNOWN:
            self.states.add(state)

    def see(self, *states: T) -> bool:
        """Take a look that found one of these; return whether that was possible."""
        agreeing = self.states & set(states)
        self.states = agreeing or set(states)
        return bool(agreeing)
