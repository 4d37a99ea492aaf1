"""Ack ids of parallel subscriptions, and the ack deadline of all subscriptions.

    projects/P/subscriptions/S:17-1.0.4.208.9f3c21

After the colon stands the message's offset, as in ordered subscriptions. After the dash stands the hand-out id:
attempt, epoch and run of the subscription, number of the hand-out in that run, and the first characters of the
subscription's identity. All messages of one hand-out share it. It suffices to judge ack ids after a restart.
Clients must not parse it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ams.core.errors import InvalidInput
from ams.core.names import Offset, SubscriptionId

DEFAULT_ACK_DEADLINE = 10
MIN_ACK_DEADLINE = 10  # seconds, of parallel subscriptions and of Google's streams; others may have 0
MAX_ACK_DEADLINE = 600  # seconds (HTTP contract 9.3); also the longest lease, and the longest delay of a nack
BAD_ACK_DEADLINE = f"Invalid ackDeadlineSeconds(needs value between 0 and {MAX_ACK_DEADLINE}) Arguments"

MAX_HAND_OUT = 400  # characters of a hand-out id; ours are much shorter
MAX_DIGITS = 18  # of an offset
_NUMBER = r"(0|[1-9][0-9]{0,17})"
_HAND_OUT = re.compile(rf"(0|[1-9][0-9]{{0,8}})\.{_NUMBER}\.{_NUMBER}\.{_NUMBER}\.([0-9a-f]{{6}})")
"""Each number has one spelling."""
_ID_LENGTH = 6  # characters of a subscription's identity

AckIds = Mapping[str, Sequence[Offset]]  # messages as consumers name them, by the text of their hand-out


class HandOutId(NamedTuple):
    """Hand-out that an ack id belongs to."""

    attempt: int  # 1 at the first delivery
    epoch: int
    run: int
    number: int
    identity: str

    @property
    def text(self) -> str:
        """The part of an ack id behind the dash."""
        return f"{self.attempt}.{self.epoch}.{self.run}.{self.number}.{self.identity}"


class AckId(NamedTuple):
    """An ack id: one message of one hand-out."""

    offset: Offset
    hand_out: str  # the text behind the dash


class NeverGiven(InvalidInput):
    """Some ack ids are well-formed, but the subscription never issued them."""

    def __init__(self, ids: Sequence[AckId]) -> None:
        super().__init__("Invalid ack id")
        self.ids = ids


def exclude_ids(ids: AckIds, some: Iterable[AckId]) -> AckIds:
    """Return the ids except `some`."""
    left_out = frozenset(some)
    kept = {text: [each for each in offsets if (each, text) not in left_out] for text, offsets in ids.items()}
    return {text: offsets for text, offsets in kept.items() if offsets}


def identity_of(subscription: SubscriptionId) -> str:
    """Return the end of a subscription's ack ids. A subscription created again under the same name gets another."""
    return subscription.replace("-", "")[:_ID_LENGTH]


def ack_ids_of(prefix: str, ids: Sequence[str]) -> AckIds:
    """Parse ack ids that begin with `prefix`, without parsing their hand-outs. Raises `InvalidInput`."""
    if not ids:
        return {}
    hand_out = ids[0].rpartition("-")[2]
    same = _of_one_hand_out(prefix, f"-{hand_out}", ids)
    if same is not None:
        return {hand_out: same}
    found: dict[str, list[Offset]] = {}
    for each in ids:
        digits, dash, hand_out = each[len(prefix) :].partition("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS
        if not dash or not is_number or len(hand_out) > MAX_HAND_OUT or not each.startswith(prefix):
            raise InvalidInput("Invalid ack id")
        found.setdefault(hand_out, []).append(Offset(int(digits)))
    return found


def _of_one_hand_out(prefix: str, tail: str, ids: Sequence[str]) -> list[Offset] | None:
    begin, end = len(prefix), -len(tail)
    digits = [each[begin:end] for each in ids if each.startswith(prefix) and each.endswith(tail)]
    lengths, together = [*map(len, digits)], "".join(digits)
    is_usual = len(digits) == len(ids) and min(lengths) > 0 and max(lengths) <= MAX_DIGITS and -end <= MAX_HAND_OUT
    if not is_usual or not (together.isascii() and together.isdigit()):
        return None
    return list(map(Offset, map(int, digits)))


def sort_by_hand_out(ids: AckIds) -> AckIds:
    """Return ids in the order of delivery. Raises as `read_hand_out`."""
    return {text: sorted(ids[text]) for text in sorted(ids, key=lambda text: read_hand_out(text)[1:])}


def slice_ids(ids: AckIds, most: int) -> Iterator[AckIds]:
    """Yield slices of `most` ids, in order, without duplicates; a slice of duplicates only is empty."""
    slice_: dict[str, Sequence[Offset]] = {}
    room = most
    for text, offsets in ids.items():
        if len(offsets) < room:
            slice_[text] = offsets
            room -= len(offsets)
            continue
        seen: set[Offset] = set()
        begin = 0
        while begin < len(offsets):
            end = begin + room
            part = [each for each in dict.fromkeys(offsets[begin:end]) if each not in seen]
            seen.update(part)
            if part:
                slice_[text] = part
            room = max(end - len(offsets), 0)
            begin = end
            if not room:
                yield slice_
                slice_, room = {}, most
    if slice_:
        yield slice_


def read_hand_out(text: str) -> HandOutId:
    """Parse a hand-out id. Raises `InvalidInput` "Invalid ack id"."""
    if (match := _HAND_OUT.fullmatch(text)) is None:
        raise InvalidInput("Invalid ack id")
    attempt, epoch, run, number, identity = match.groups()
    return HandOutId(int(attempt), int(epoch), int(run), int(number), identity)
