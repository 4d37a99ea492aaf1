"""What clients asked of a service and what it answered: the material a history is made of.

Times are seconds of one monotonic clock, shared by all clients of a history.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypedDict

from ams.core.ack_ids import HandOutId, read_hand_out

ACK, NACK, EXTEND = "acknowledge", "nack", "modifyAckDeadline"  # verbs of parallel subscriptions


class Outcome(Enum):
    DONE = "done"  # answered with success: it happened
    REFUSED = "refused"  # answered with an error: nothing of it stays
    UNKNOWN = "unknown"  # not answered: it happened wholly, or not at all


class Held(NamedTuple):
    """A message as a reader sees it: its id, and a name that tells its content from all others of the history."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    request: str  # names the request in sentences; no other attempt of the history has it
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
    ids: tuple[int, ...] = ()  # as answered; empty when it was not


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


class Leased(NamedTuple):
    """A message as a consumer was given it."""

    id: int
    name: str
    ack_id: str

    @property
    def attempt(self) -> int:
        """The number of this delivery. Clients are not to read it from the id; nothing else tells it."""
        return _hand_out_of(self.ack_id).attempt

    @property
    def run(self) -> int:
        """Which process gave it: raised each time one takes the subscription over."""
        return run_of(self.ack_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Attempt):
    subscription: str
    messages: tuple[Leased, ...] = ()
    stream: str = ""  # which stream brought them; empty: they are the answer to a pull

    @property
    def consumer(self) -> str:
        """Who has them, as far as ordering keys are bound to consumers."""
        return self.stream or self.request


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Attempt):
    """An acknowledgement, a nack, or another deadline; it is done, but for the ids that came late."""

    subscription: str
    verb: str
    ids: tuple[str, ...]
    late: tuple[str, ...] = ()  # which of the ids were named as those that came after their deadline
    seconds: float = 0.0  # of another deadline: from when the service has it

    def is_confirmed(self, ack_id: str) -> bool:
        """Whether the service said that this is done."""
        return self.outcome is Outcome.DONE and ack_id not in self.late

    def may_have_happened(self, ack_id: str) -> bool:
        """Whether it was not refused."""
        return self.outcome is not Outcome.REFUSED and ack_id not in self.late


class Letter(NamedTuple):
    subscription: str
    id: int
    name: str


def offset_of(ack_id: str) -> int:
    return int(ack_id.rpartition(":")[2].partition("-")[0])


def run_of(ack_id: str) -> int:
    """Return which process gave the message that an id means."""
    return _hand_out_of(ack_id).run


def _hand_out_of(ack_id: str) -> HandOutId:
    return read_hand_out(ack_id.rpartition("-")[2])


def worked(attempts: Iterable[Attempt], *subscriptions: str) -> int:
    """Return how many messages of these subscriptions, none: of any, were acknowledged for sure."""
    acks = [each for each in attempts if isinstance(each, Settle) and each.verb == ACK]
    acks = [each for each in acks if not subscriptions or each.subscription in subscriptions]
    done = {(each.subscription, offset_of(id_)) for each in acks for id_ in each.ids if each.is_confirmed(id_)}
    return len(done)
