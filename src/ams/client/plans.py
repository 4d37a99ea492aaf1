"""Plans of calls without I/O, shared by both clients, and the retry policy.

A plan is a generator of steps: a call to send once, seconds to pause, a message to give to the loop. It receives the
outcome of each step and returns the result. `Connections` of a client carry out the steps.

Retries use exponential backoff with full jitter: a random pause between 0 and a growing bound. So the clients of a
service that was away do not return all at once.
"""

import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast
from uuid import uuid4

import msgspec

from ams.client import wire
from ams.client.errors import AckTimeout, ClientError, InvalidInput, NotAms, Refused, Unreachable, refusal
from ams.client.messages import Message, ReceivedMessage, ack_ids_of, incoming, outgoing
from ams.client.wire.call import Call, Versioned

T = TypeVar("T")

EMPTY_PULL_PAUSE_SECONDS = 0.5  # between pulls if the service answers at once without messages
MAX_REQUEST_ACK_IDS = 100  # an answer names at most so many late ids
MAX_REFUSED_ACKS = 3  # refused acknowledgements in a row before an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retry policy of calls. Raises `ValueError` if it is invalid."""

    attempts: int | None = 8
    """Maximum number of tries, including the first; None = limited by `total` only."""
    total: float = 30.0
    """Seconds from the first try within which the last one begins."""
    first: float = 0.25
    """Seconds; bound of the first pause. Doubles each time."""
    longest: float = 8.0
    """Seconds; bound of every pause, except one that the service asked for."""

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ValueError("a call is sent at least once")
        if min(self.total, self.first, self.longest) < 0:
            raise ValueError("seconds of a policy are not negative")

    def pause(self, sent: int, elapsed: float, asked: float, chance: float) -> float | None:
        """Return the seconds to wait before the next try; None to give up.

        Args:
            sent: Number of tries so far.
            elapsed: Seconds since the first try.
            asked: Seconds from the service's Retry-After.
            chance: Random number from 0 to 1.
        """
        if self.attempts is not None and sent >= self.attempts:
            return None
        bound = min(self.longest, self.first * 2.0 ** min(sent - 1, 64))
        pause = asked + chance * bound
        return pause if elapsed + pause <= self.total else None


DEFAULT = Retry()  # a few tries in about half a minute


def may_send_again(error: ClientError, *, repeatable: bool) -> bool:
    """Return whether a failed call may be retried: it is repeatable, or was never sent."""
    return error.retriable and (repeatable or (isinstance(error, Unreachable) and not error.sent))


def seconds_asked(error: ClientError) -> float:
    """Return the seconds of the service's `Retry-After`; 0 if absent or a date."""
    asked = error.retry_after if isinstance(error, Refused) else ""
    return float(asked) if asked.isascii() and asked.isdecimal() else 0.0


class Response(NamedTuple):
    """An undecoded answer."""

    status: int
    body: bytes
    retry_after: str = ""  # seconds to wait, from the service; may be empty
    version: str = ""  # the `ETag`; may be empty


Step = Call[Any] | float  # a call to send, or seconds to pause
Outcome = Response | Unreachable | None  # outcome of a step: of a call a response or an error, else None
Plan = Generator[Step, Outcome, T]
Consuming = Generator[Step | ReceivedMessage, Outcome, None]  # resumed when the loop asks for the next message
OnRetry = Callable[[ClientError, int, float], None]
"""Called with the error, the number of tries, and the seconds until the next one."""


class _Refused(NamedTuple):
    """A handled batch whose acknowledgement was refused."""

    first: str
    last: int
    late: bool  # only too late: the same messages come again first
    times: int  # refused acknowledgements in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Makes the plans of one client. `now`: monotonic seconds; `chance`: random number from 0 to 1."""

    endpoint: str
    retry: Retry | None
    on_retry: OnRetry | None = None
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def ask(self, call: Call[T]) -> Plan[T]:
        """Send a call, with retries if policy and call allow them. Raises the last `ClientError`."""
        began = self.now()
        sent = 0
        while True:
            outcome = yield call
            sent += 1
            try:
                if isinstance(outcome, Unreachable):
                    raise outcome
                assert outcome is not None, "a call brings something"
                return read(call, outcome, self.endpoint)
            except ClientError as error:
                if self.retry is None or not may_send_again(error, repeatable=call.may_repeat):
                    raise
                pause = self.retry.pause(sent, self.now() - began, seconds_asked(error), self.chance())
                if pause is None:
                    raise
                if self.on_retry is not None:
                    self.on_retry(error, sent, pause)
            yield pause

    def publish(self, project: str, topic: str, messages: Sequence[Message], key: str | None) -> Plan[list[str]]:
        """Publish under `key` or a new idempotency key, so that it can be retried; return the ids."""
        outward = [outgoing(message) for message in messages]
        published = yield from self.ask(wire.publish(project, topic, outward, key=key or str(uuid4())))
        return published.message_ids

    def subscribe(
        self, project: str, subscription: str, topic: str, deadline: int | None, parallel: wire.ParallelOptions | None
    ) -> Plan[wire.Subscription]:
        """Make a subscription. A deadline of 0 is set afterwards: at creation it means the default (9.3).

        A parallel one cannot have 0.
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

    def in_parts(self, ids: Sequence[str], call: Callable[[Sequence[str]], Call[None]]) -> Plan[None]:
        """Send a call for all ids, in parts; then raise `AckTimeout` with the late ones."""
        refused: AckTimeout | None = None
        for start in range(0, len(ids), MAX_REQUEST_ACK_IDS):
            part = ids[start : start + MAX_REQUEST_ACK_IDS]
            try:
                yield from self.ask(call(part))
            except AckTimeout as error:
                refused = refused or error
                # Errors name an id by the part after its colon.
                named = set(error.message.partition(": ")[2].split(", "))
                refused.late = (*refused.late, *(each for each in part if each.rpartition(":")[2] in named))
        if refused is not None:
            raise refused

    def consume(self, project: str, subscription: str, batch: int, follow: bool) -> Consuming:
        """Deliver messages and acknowledge each batch after its last one; without `follow`, end when there are no more.

        A batch that was acknowledged too late comes again, and its delivered messages are skipped. If the next batch
        begins at another offset, a seek moved the subscription, and nothing is skipped. A parallel subscription
        delivers repeated messages to the loop again.
        """
        refused: _Refused | None = None
        while True:
            asked = self.now()
            received = yield from self.pull(project, subscription, batch, follow)
            if received:
                comes_again = refused is not None and refused.late and received[0].id == refused.first
                for message in received:
                    if refused is None or not comes_again or int(message.id) > refused.last:
                        yield message
                refused = yield from self._acknowledge_batch(project, subscription, received, refused)
            elif not follow:
                return
            elif self.now() - asked < EMPTY_PULL_PAUSE_SECONDS:
                yield EMPTY_PULL_PAUSE_SECONDS

    def _acknowledge_batch(
        self, project: str, subscription: str, batch: Sequence[ReceivedMessage], before: _Refused | None
    ) -> Plan[_Refused | None]:
        times = before.times + 1 if before else 1
        last = batch[-1]
        # An ordered subscription needs only the last id: its ids are offsets.
        ids = [last.ack_id] if last.ack_id.endswith(f":{last.id}") else ack_ids_of(batch)
        try:
            yield from self.in_parts(ids, lambda part: wire.acknowledge(project, subscription, part))
        except (AckTimeout, InvalidInput) as error:
            if times == MAX_REFUSED_ACKS:
                raise
            all_come_again = isinstance(error, AckTimeout) and not error.late
            return _Refused(batch[0].id, int(last.id), all_come_again, times)
        return None


def read(call: Call[T], answer: Response, endpoint: str) -> T:
    """Decode the answer to a call; raise its error unless it is a success."""
    if answer.status >= 400:
        raise refusal(answer.status, answer.body, answer.retry_after)
    try:
        if answer.status in call.successes:
            value = call.read(answer.body)
            return cast("T", Versioned(value, answer.version)) if call.versioned else value
    except msgspec.DecodeError:
        pass
    raise NotAms(f"{endpoint} does not answer as AMS (status {answer.status})")
