"""Upstream: where a worker gets messages from, and where it leaves acknowledgements.

Two keepers of the same promise: the service's own engines in this process, and the HTTP API of a service elsewhere,
ours or the reference. A worker is the only one who delivers its subscription as long as it holds its lease.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ams.core.messages import Fragment
from ams.push.target import Target


class Pulled(NamedTuple):
    """A message to deliver."""

    offset: int
    message_id: str
    publish_time: str
    """As the contract writes it (`ams.core.clock.publish_time`), or as a service wrote it."""
    fragment: Fragment
    """JSON members: attributes, if any, and data."""


class Verdict(NamedTuple):
    """Why a message is put aside."""

    reason: str
    """For people: what the endpoint answered, without secrets, or its status where it said nothing."""
    attempts: int
    """Deliveries of it that the endpoint refused."""
    status: int
    """The last status it was refused with."""


class UpstreamError(Exception):
    """What was asked of the upstream did not succeed; the text is shown in `pushStatus`."""


class Gone(UpstreamError):
    """The subscription, or its project, does not exist any more: there is nothing to deliver."""


class Refused(UpstreamError):
    """It will not work until somebody changes something: rights, the topic, the service's settings."""


class Away(UpstreamError):
    """It may work later: the service, or something it needs, does not answer."""


class NotTaken(UpstreamError):
    """An acknowledgement that counts no more, as after its deadline or after a seek: the messages come again."""


class Upstream(Protocol):
    """Messages of targets; the module's docstring is its promise. All calls raise `UpstreamError`."""

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages in order, at most so many, and at most so many bytes but for one at least.

        Waits until there is one; may return nothing after a while. A pull without an acknowledgement in between returns
        the same messages.
        """
        ...

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge everything up to `last`; durable when it returns."""
        ...

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put a message into the target's dead letter topic, once however often this is asked, and acknowledge it."""
        ...

    def forget(self, target: Target) -> None:
        """Forget what is remembered of a target that is not delivered here any more."""
        ...

    def patience(self, target: Target) -> float | None:
        """Return the seconds from a pull within which its messages must be acknowledged; None: any time will do."""
        ...
