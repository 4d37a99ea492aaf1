"""What a client does, apart from how it waits: plans that both clients carry out, and when a call is sent again.

A plan is a generator of steps: a call to `Send`, a `Pause`, a message to `Deliver` to the loop. It is sent the outcome
of each step, and returns the result. `ams.client.transport` does the steps, for threads and for asyncio.

Waiting times between tries grow exponentially and are drawn at random between nothing and their bound ("full jitter"),
so that the many clients of a service that went away do not come back all at once.
"""

import math
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from uuid import uuid4

import msgspec

from ams.client import wire
from ams.client.errors import AckTimeout, ClientError, InvalidInput, NotAms, Refused, Unreachable, refusal
from ams.client.messages import Message, ReceivedMessage, ack_ids_of, incoming, outgoing
from ams.client.wire.call import Call, Versioned

T = TypeVar("T")

BREATH = 0.5  # seconds between two pulls of a service that answers at once that there is nothing
NAMED_IDS = 100  # ack ids of one request: an answer names no more that came too late
REFUSED_ACKS = 3  # acknowledgements in a row that may be refused before it is an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and for how long, a call that failed is sent again.

    Raises `ValueError` for a policy that cannot be.
    """

    attempts: int | None = 8
    """Most times a call is sent, the first included; None = as often as fits into `total`."""
    total: float = 30.0
    """Seconds after the first sending within which the last one begins."""
    first: float = 0.25
    """Seconds the first wait may last; each further one twice as long."""
    longest: float = 8.0
    """Seconds no wait is longer than, but one the service asked for."""

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ValueError("a call is sent at least once")
        if min(self.total, self.first, self.longest) < 0:
            raise ValueError("seconds of a policy are not negative")

    def pause(self, sent: int, elapsed: float, asked: float, chance: float) -> float | None:
        """Return the seconds to wait before sending again; None when it is time to give up.

        `sent` is how often the call was sent, `elapsed` the seconds since the first time, `asked` the seconds that the
        service asks to wait (Retry-After), and `chance` a random number from 0 to 1.
        """
        if self.attempts is not None and sent >= self.attempts:
            return None
        bound = min(self.longest, self.first * 2.0 ** min(sent - 1, 64))
        pause = asked + chance * bound
        return pause if elapsed + pause <= self.total else None


DEFAULT = Retry()  # a few tries in about half a minute


def may_send_again(error: ClientError, *, repeatable: bool) -> bool:
    """Return whether a call that failed like this may be sent again: it is repeatable, or was never sent."""
    return error.retriable and (repeatable or (isinstance(error, Unreachable) and not error.sent))


def seconds_asked(error: ClientError) -> float:
    """Return what the service's `Retry-After` says in seconds; 0 when it says nothing, or a date."""
    asked = error.retry_after if isinstance(error, Refused) else ""
    return float(asked) if asked.isascii() and asked.isdecimal() else 0.0


@dataclass(frozen=True, slots=True)
class Send:
    """Send a call once and come back with the answer, or with the reason why there is none."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give a message to the loop, and come back when the next one is wanted."""

    message: ReceivedMessage


@dataclass(frozen=True, slots=True)
class Response:
    """An answer as it came, not yet read."""

    status: int
    body: bytes
    retry_after: str = ""
    """Seconds to wait as the service asked for them; empty when it did not."""
    version: str = ""
    """The `ETag`; empty when there is none."""


Outcome = Response | Unreachable | None
"""What came of a step: of a `Send` a response or why there is none, of the others nothing."""
Plan = Generator[Send | Pause, Outcome, T]
Consuming = Generator[Send | Pause | Deliver, Outcome, None]
OnRetry = Callable[[ClientError, int, float], None]
"""Called with the error, how often the call was sent, and the seconds before it is sent again."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """A batch that was dealt with, but whose acknowledgement was not taken."""

    first: str
    last: int
    late: bool  # true if it only came too late, so that the same messages come again, and no others before them
    times: int  # how many acknowledgements in a row were refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Makes the plans of one client; `now` are seconds that only grow, `chance` draws from 0 to 1."""

    endpoint: str
    retry: Retry | None
    on_retry: OnRetry | None = None
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def ask(self, call: Call[T]) -> Plan[T]:
        """Send a call, again if the policy and the call allow it; raise the last `ClientError`."""
        began = self.now()
        sent = 0
        while True:
            outcome = yield Send(call)
            sent += 1
            try:
                if isinstance(outcome, Unreachable):
                    raise outcome
                assert outcome is not None, "a Send brings something"
                return read(call, outcome, self.endpoint)
            except ClientError as error:
                pause = self._pause(call, error, sent, began)
                if pause is None:
                    raise
            yield Pause(pause)

    def publish(self, project: str, topic: str, messages: Sequence[Message], key: str | None) -> Plan[list[str]]:
        """Publish under a key, a new one unless there is one, so that it may be sent again; return the ids."""
        outward = [outgoing(message) for message in messages]
        published = yield from self.ask(wire.publish(project, topic, outward, key=key or str(uuid4())))
        return published.message_ids

    def subscribe(
        self, project: str, subscription: str, topic: str, deadline: int | None, parallel: wire.ParallelOptions | None
    ) -> Plan[wire.Subscription]:
        """Make a subscription; a deadline of 0 is set afterwards, as the making takes it for nothing said (9.3).

        A parallel one, with its options, has none of 0.
        """
        call = wire.create_subscription(project, subscription, topic, ack_deadline=deadline, parallel=parallel)
        made = yield from self.ask(call)
        if deadline != 0 or parallel is not None:
            return made
        yield from self.ask(wire.modify_ack_deadline(project, subscription, 0))
        return msgspec.structs.replace(made, ack_deadline_seconds=0)

    def pull(self, project: str, subscription: str, max_messages: int, wait: bool) -> Plan[list[ReceivedMessage]]:
        """Pull; return the messages in the order of the topic."""
        received = yield from self.ask(wire.pull(project, subscription, max_messages=max_messages, wait=wait))
        try:
            return [incoming(each) for each in received.received_messages]
        except ValueError:
            raise NotAms(f"{self.endpoint} gives messages without a time") from None

    def acknowledge(self, project: str, subscription: str, ids: Sequence[str]) -> Plan[None]:
        """Acknowledge messages by their ack ids; of an ordered subscription, all before them too."""
        yield from self._in_parts(ids, lambda part: wire.acknowledge(project, subscription, part))

    def nack(self, project: str, subscription: str, ids: Sequence[str], delay: float | None) -> Plan[None]:
        """Give messages of a parallel subscription back, to come again after so many seconds."""
        seconds = None if delay is None else math.ceil(delay)
        yield from self._in_parts(ids, lambda part: wire.nack(project, subscription, part, delay=seconds))

    def release(self, project: str, subscription: str, ids: Sequence[str]) -> Plan[None]:
        """Give messages of a parallel subscription back that nobody has worked on."""
        yield from self._in_parts(ids, lambda part: wire.nack(project, subscription, part, failed=False))

    def extend(self, project: str, subscription: str, ids: Sequence[str], seconds: int) -> Plan[None]:
        """Let leases of a parallel subscription end so many seconds from now."""
        yield from self._in_parts(ids, lambda part: wire.extend(project, subscription, part, seconds))

    def _in_parts(self, ids: Sequence[str], call: Callable[[Sequence[str]], Call[None]]) -> Plan[None]:
        """Ask something for ids, for all of them also when some come too late; then raise `AckTimeout` naming these."""
        refused: AckTimeout | None = None
        for start in range(0, len(ids), NAMED_IDS):
            part = ids[start : start + NAMED_IDS]
            try:
                yield from self.ask(call(part))
            except AckTimeout as error:
                refused = refused or error
                # An id is named by the part behind its colon.
                named = set(error.message.partition(": ")[2].split(", "))
                refused.late = (*refused.late, *(each for each in part if each.rpartition(":")[2] in named))
        if refused is not None:
            raise refused

    def consume(self, project: str, subscription: str, batch: int, follow: bool) -> Consuming:
        """Deliver messages, acknowledging each batch when all of it was taken; end at nothing unless to `follow`.

        A batch that was acknowledged too late comes again, and what was taken of it is passed over. Only if it comes
        again: when the next batch begins at another offset, the subscription was moved by a seek, and its messages are
        wanted. Of a parallel subscription, what comes again is given to the loop again.
        """
        refused: _Refused | None = None
        while True:
            asked = self.now()
            received = yield from self.pull(project, subscription, batch, follow)
            if received:
                comes_again = refused is not None and refused.late and received[0].id == refused.first
                for message in received:
                    if refused is None or not comes_again or int(message.id) > refused.last:
                        yield Deliver(message)
                refused = yield from self._acknowledge_batch(project, subscription, received, refused)
            elif not follow:
                return
            elif self.now() - asked < BREATH:
                yield Pause(BREATH)

    def _acknowledge_batch(
        self, project: str, subscription: str, batch: Sequence[ReceivedMessage], before: _Refused | None
    ) -> Plan[_Refused | None]:
        times = before.times + 1 if before else 1
        last = batch[-1]
        # The last id is enough of an ordered subscription, whose ids name a place alone.
        ids = [last.ack_id] if last.ack_id.endswith(f":{last.id}") else ack_ids_of(batch)
        try:
            yield from self.acknowledge(project, subscription, ids)
        except (AckTimeout, InvalidInput) as error:
            if times == REFUSED_ACKS:
                raise
            all_come_again = isinstance(error, AckTimeout) and not error.late
            return _Refused(batch[0].id, int(last.id), all_come_again, times)
        return None

    def _pause(self, call: Call[T], error: ClientError, sent: int, began: float) -> float | None:
        if self.retry is None or not may_send_again(error, repeatable=call.may_repeat):
            return None
        pause = self.retry.pause(sent, self.now() - began, seconds_asked(error), self.chance())
        if pause is not None and self.on_retry is not None:
            self.on_retry(error, sent, pause)
        return pause


def read(call: Call[T], answer: Response, endpoint: str) -> T:
    """Read an answer to a call: the value of a success, an error raised for everything else."""
    if answer.status >= 400:
        raise refusal(answer.status, answer.body, answer.retry_after)
    try:
        if answer.status in call.successes:
            value = call.read(answer.body)
            return cast("T", Versioned(value, answer.version)) if call.versioned else value
    except msgspec.DecodeError:
        pass
    raise NotAms(f"{endpoint} does not answer as AMS (status {answer.status})")
