"""Upstream: targets of workers, and the protocol by which they get and acknowledge messages.

Two implementations: the engines of this process, and the HTTP API of a service elsewhere, ours or the reference. Only
the worker that holds the lease of a subscription delivers it: after the lease it calls no more
(`WorkerDependencies.require_lease`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment
from ams.core.push_config import PushConfig


@dataclass(frozen=True, slots=True)
class Target:
    """A subscription and its endpoint. A changed value is another target, with a new worker."""

    path: str  # resource name of the subscription, `/projects/P/subscriptions/S`: the key of its worker
    topic: str
    config: PushConfig
    ack_deadline_seconds: int  # seconds, 0 to 600
    secrets: tuple[str, ...] = field(default=(), repr=False)  # signing secrets `whsec_...`, newest first
    id: str = ""  # identity of the subscription; empty where the service does not send it
    topic_id: str = ""  # identity of the topic: a recreated topic is another target; empty: unknown, or no topic
    revision: int = 0  # of the configuration: a modified one is another target, also after a 410
    is_parallel: bool = False  # whether messages are leased one by one (`ams.push.parallel`)
    counts_attempts: bool = False  # whether deliveries in Google's form say which attempt they are
    identity_token: str = field(default="", repr=False, compare=False)
    """Bearer token of deliveries in Google's form. It is renewed while a worker runs, so it is not compared."""


class Pulled(NamedTuple):
    """A message to deliver."""

    offset: int
    message_id: str
    publish_time: str  # as the contract writes it (`ams.core.clock.publish_time`), or as a service wrote it
    fragment: Fragment  # JSON members: ordering key and attributes, if any, and data


class Verdict(NamedTuple):
    """Why a message becomes a dead letter."""

    reason: str  # the endpoint's answer, without secrets, or its status if the answer was empty
    attempts: int  # deliveries that the endpoint refused
    status: int  # of the last refusal


class UpstreamError(Exception):
    """A request to the upstream failed; the text is shown in `pushStatus`."""


class Gone(UpstreamError):
    """The subscription, or its project, is deleted."""


class UpstreamRefused(UpstreamError):
    """It fails until rights, the topic or the service's settings are changed."""


class Away(UpstreamError):
    """It may work later: the service, or one of its engines, does not answer."""


class NotTaken(UpstreamError):
    """The acknowledgement is late, as after its deadline or a seek: the messages are redelivered."""


class PushHandOut(NamedTuple):
    """Messages that were leased together, or some of them."""

    text: str  # id of the lease in the upstream
    attempt: int  # delivery attempt of each message, from 1
    messages: Sequence[Pulled]

    def part(self, begin: int, end: int) -> "PushHandOut":
        """Return some of them."""
        return self._replace(messages=self.messages[begin:end])


class HandOuts(Protocol):
    """Leased messages of parallel subscriptions, for concurrent deliveries.

    All calls but `release` raise `UpstreamError`. One message of an ordering key is leased at a time, in order.
    """

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:
        """Lease available messages, at most so many, and at most so many bytes, but at least one message."""

    async def wait(self, target: Target) -> None:
        """Wait until there may be messages to lease."""

    async def extend(self, target: Target, hand_out: PushHandOut, seconds: int) -> None:
        """Let the leases end in so many seconds. Raises `NotTaken` if they have expired."""

    async def acknowledge(self, target: Target, hand_out: PushHandOut) -> None:
        """Acknowledge each; durable when it returns. Raises `NotTaken` if some have expired; the others are done."""

    async def fail(self, target: Target, hand_out: PushHandOut, wait: Milliseconds, verdict: Verdict) -> None:
        """Count a failure of each. Raises as `acknowledge`.

        They are redelivered by the subscription's retry policy, or after `wait` if it has none. A message without
        attempts left becomes a dead letter.
        """

    def release(self, target: Target, hand_out: PushHandOut) -> None:
        """End the leases without counting a failure."""


class Upstream(Protocol):
    """Source of messages. All calls raise `UpstreamError`."""

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages in order, at most so many, and at most so many bytes, but at least one.

        Waits for one; may return nothing after a while. A repeated pull without an acknowledgement returns the same.
        """

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge everything up to `last`; durable when it returns."""

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put a message into the target's dead letter topic, and acknowledge it. Idempotent."""

    def forget(self, target: Target) -> None:
        """Drop the state of a target that is not delivered here any more."""

    def patience(self, target: Target) -> float | None:
        """Return the acknowledgement deadline in seconds from a pull; None: no deadline."""

    @property
    def hand_outs(self) -> HandOuts | None:
        """Leased messages of parallel subscriptions; None: not supported here."""
