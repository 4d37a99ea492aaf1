"""Upstream: what a worker delivers, where it gets messages from, and where it leaves acknowledgements.

Two keepers of the same promise: the service's own engines in this process, and the HTTP API of a service elsewhere,
ours or the reference. A worker is the only one who delivers its subscription as long as it holds its lease: when that
is over, nothing is handed to workers or taken from them any more (`ams.push.workers.Leased`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment
from ams.core.push_config import PushConfig


@dataclass(frozen=True, slots=True)
class Target:
    """A subscription and its endpoint. Another value is another target: its worker starts anew."""

    path: str  # resource name of the subscription, `/projects/P/subscriptions/S`: the key of its worker
    topic: str
    config: PushConfig
    ack_deadline_seconds: int  # seconds, 0 to 600
    secrets: tuple[str, ...] = field(default=(), repr=False)  # signing secrets `whsec_...`, newest first
    id: str = ""  # identity of the subscription; empty where the service does not send it
    topic_id: str = ""  # identity of the topic: a topic made anew is another target; empty: none, or untold
    revision: int = 0  # of the configuration: what was modified is another target, as after a 410
    is_parallel: bool = False  # whether messages are leased one by one (`ams.push.parallel`)
    counts_attempts: bool = False  # whether deliveries in Google's form say which attempt they are
    identity_token: str = field(default="", repr=False, compare=False)
    """Of deliveries in Google's form. It is renewed while a worker goes on: another one makes no other target."""


class Pulled(NamedTuple):
    """A message to deliver."""

    offset: int
    message_id: str
    publish_time: str  # as the contract writes it (`ams.core.clock.publish_time`), or as a service wrote it
    fragment: Fragment  # JSON members: ordering key and attributes, if any, and data


class Verdict(NamedTuple):
    """Why a message is put aside."""

    reason: str  # for people: what the endpoint answered, without secrets, or its status where it said nothing
    attempts: int  # deliveries of it that the endpoint refused
    status: int  # the last status it was refused with


class UpstreamError(Exception):
    """A request to the upstream failed; the text is shown in `pushStatus`."""


class Gone(UpstreamError):
    """The subscription, or its project, does not exist any more: there is nothing to deliver."""


class Refused(UpstreamError):
    """It will not work until something is changed: rights, the topic, the service's settings."""


class Away(UpstreamError):
    """It may work later: the service, or something it needs, does not answer."""


class NotTaken(UpstreamError):
    """An acknowledgement that counts no more, as after its deadline or after a seek: the messages come again."""


class HandOut(NamedTuple):
    """Messages that were leased together, or some of them."""

    text: str  # what the upstream knows them by
    attempt: int  # the number of this delivery of each of them, from 1: how often they have failed, and one more
    messages: Sequence[Pulled]

    def part(self, begin: int, end: int) -> "HandOut":
        """Return some of them."""
        return self._replace(messages=self.messages[begin:end])


class HandOuts(Protocol):
    """Messages of targets whose subscription is parallel: each is leased by itself, so that several are under way.

    All calls but `release` raise `UpstreamError`. Of an ordering key one message at a time is leased, in order.
    """

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[HandOut]:
        """Lease what there is now, at most so many messages, and at most so many bytes but for one at least."""

    async def wait(self, target: Target) -> None:
        """Return when there may be something to lease."""

    async def extend(self, target: Target, hand_out: HandOut, seconds: int) -> None:
        """Let the leases end so many seconds from now; `NotTaken` when they ended before."""

    async def acknowledge(self, target: Target, hand_out: HandOut) -> None:
        """Acknowledge each; durable when it returns. `NotTaken` when some were leased no more; the others are done."""

    async def fail(self, target: Target, hand_out: HandOut, wait: Milliseconds, verdict: Verdict) -> None:
        """Note that each has failed once more; raises as `acknowledge`.

        They come again when the subscription's retry policy says so, or after `wait` if it has none. A message that
        failed as often as its dead letter policy allows is put aside instead.
        """

    def release(self, target: Target, hand_out: HandOut) -> None:
        """Let them be leased again at once, without a failure: nobody is to blame."""


class Upstream(Protocol):
    """Messages of targets; the module's docstring is its promise. All calls raise `UpstreamError`."""

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages in order, at most so many, and at most so many bytes but for one at least.

        Waits until there is one; may return nothing after a while. A pull without an acknowledgement in between returns
        the same messages.
        """

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge everything up to `last`; durable when it returns."""

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put a message into the target's dead letter topic, once however often this is asked, and acknowledge it."""

    def forget(self, target: Target) -> None:
        """Forget what is remembered of a target that is not delivered here any more."""

    def patience(self, target: Target) -> float | None:
        """Return the seconds from a pull within which its messages must be acknowledged; None: any time will do."""

    @property
    def hand_outs(self) -> HandOuts | None:
        """Messages of parallel subscriptions; None: they are not delivered from here."""
