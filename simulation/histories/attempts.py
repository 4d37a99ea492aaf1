"""Records of a history: requests of clients and the answers of the service.

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
    UNKNOWN = "unknown"  # not answered: it happened completely or not at all


class Held(NamedTuple):
    """A message as a reader sees it: its id, and a name that stands for its content and is unique in the history."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    request: str  # unique in the history; violations name it
    started: float
    ended: float
    """Time of the answer. Without one: the time when it could no longer happen, or infinity."""
    outcome: Outcome


class Facts(TypedDict):
    """The fields of `Attempt`."""

    request: str
    started: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Attempt):
    topic: str
    names: tuple[str, ...]
    ids: tuple[int, ...] = ()  # ids of the answer; empty without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull(Attempt):
    subscription: str
    messages: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Attempt):
    """An acknowledgement up to and including the id `last`."""

    subscription: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek(Attempt):
    """A seek to `offset`."""

    subscription: str
    offset: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The state when all attempts are over: all messages of each topic, and all cursors."""

    topics: Mapping[str, Sequence[Held]]
    cursors: Mapping[str, int]


class Leased(NamedTuple):
    """A delivered message with its ack id."""

    id: int
    name: str
    ack_id: str

    @property
    def attempt(self) -> int:
        """Number of this delivery, read from the ack id, as nothing else has it. Real clients must not do that."""
        return _hand_out_of(self.ack_id).attempt

    @property
    def run(self) -> int:
        """Number of the process that delivered it: higher after each take-over of the subscription."""
        return run_of(self.ack_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Attempt):
    subscription: str
    messages: tuple[Leased, ...] = ()
    stream: str = ""  # the stream that delivered them; empty for a pull

    @property
    def consumer(self) -> str:
        """The consumer to which ordering keys are bound: a stream or a pull."""
        return self.stream or self.request


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Attempt):
    """An acknowledgement, a nack or an extension. When done, it counts for all ids but the late ones."""

    subscription: str
    verb: str
    ids: tuple[str, ...]
    late: tuple[str, ...] = ()  # ids that the answer named as expired
    seconds: float = 0.0  # new deadline of an extension, counted from its arrival

    def is_confirmed(self, ack_id: str) -> bool:
        """Return whether the service confirmed it for this id."""
        return self.outcome is Outcome.DONE and ack_id not in self.late

    def may_have_happened(self, ack_id: str) -> bool:
        """Return whether it may have happened for this id: it was not refused."""
        return self.outcome is not Outcome.REFUSED and ack_id not in self.late


class Letter(NamedTuple):
    subscription: str
    id: int
    name: str


def offset_of(ack_id: str) -> int:
    return int(ack_id.rpartition(":")[2].partition("-")[0])


def run_of(ack_id: str) -> int:
    """Return the number of the process that granted an ack id."""
    return _hand_out_of(ack_id).run


def _hand_out_of(ack_id: str) -> HandOutId:
    return read_hand_out(ack_id.rpartition("-")[2])


def count_acknowledged(attempts: Iterable[Attempt], *subscriptions: str) -> int:
    """Return the number of messages surely acknowledged, of these subscriptions or, without any, of all."""
    acks = [each for each in attempts if isinstance(each, Settle) and each.verb == ACK]
    acks = [each for each in acks if not subscriptions or each.subscription in subscriptions]
    done = {(each.subscription, offset_of(id_)) for each in acks for id_ in each.ids if each.is_confirmed(id_)}
    return len(done)
