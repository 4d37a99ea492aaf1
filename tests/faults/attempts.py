"""What clients asked of a service and what it answered: the material a history is made of.

Times are seconds of one monotonic clock, shared by all clients of a history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypedDict


class Outcome(Enum):
    DONE = "done"
    """Answered with success: it happened."""
    REFUSED = "refused"
    """Answered with an error: nothing of it stays."""
    UNKNOWN = "unknown"
    """Not answered: it happened wholly, or not at all."""


class Held(NamedTuple):
    """A message as a reader sees it: its id, and a name that tells its content from all others of the history."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    request: str
    """Names the request in sentences; no other attempt of the history has it."""
    started: float
    ended: float
    """When it was answered; of an unanswered one, when it could happen no longer (infinity if that is not known)."""
    outcome: Outcome


class Facts(TypedDict):
    """What every attempt has: the fields of `Attempt`, to make one of."""

    request: str
    started: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Attempt):
    topic: str
    names: tuple[str, ...]
    ids: tuple[int, ...] = ()
    """As answered; empty when it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull(Attempt):
    subscription: str
    messages: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Attempt):
    """An acknowledgement of everything up to and including the id `last`."""

    subscription: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek(Attempt):
    """A wish to stand at `offset`."""

    subscription: str
    offset: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What is found when all attempts are over: every topic read from its beginning, and every cursor."""

    topics: Mapping[str, Sequence[Held]]
    cursors: Mapping[str, int]
