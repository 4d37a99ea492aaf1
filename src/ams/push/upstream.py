"""Upstream: what a worker delivers, where it gets messages from, and where it leaves acknowledgements.

Two keepers of the same promise: the service's own engines in this process, and the HTTP API of a service elsewhere,
ours or the reference. A worker is the only one who delivers its subscription as long as it holds its lease: when that
is over, nothing is handed to workers or taken from them any more (`Leased`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ams.core.messages import Fragment
from ams.core.push_config import PushConfig


@dataclass(frozen=True, slots=True)
class Target:
    """What a worker delivers where. Another value is another target: its worker starts anew."""

    path: str
    """Resource name of the subscription, `/projects/P/subscriptions/S`: the key of its worker."""
    topic: str
    """Resource name of its topic."""
    config: PushConfig
    ack_deadline_seconds: int
    """Seconds, 0 to 600."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What deliveries are signed with, newest first, as `whsec_...` (`ams.push.delivery`); empty: they are not."""
    id: str = ""
    """Identity of the subscription; empty where the service does not send it."""
    topic_id: str = ""
    """Identity of the topic, so that a topic made anew is another target; empty while there is none, or untold."""
    revision: int = 0
    """Of the configuration: what was modified is another target, also if it is the same, as after a 410."""


class Pulled(NamedTuple):
    """A message to deliver."""

    offset: int
    message_id: str
    publish_time: str
    """As the contract writes it (`ams.core.clock.publish_time`), or as a service wrote it."""
    fragment: Fragment
    """JSON members: ordering key and attributes, if any, and data."""


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
    """It will not work until something is changed: rights, the topic, the service's settings."""


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


OVER = "the lease of this process is over"


class Leased:
    """Keeps the promise of `ams.push.upstream.Upstream` until `ends`."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.ends: float | None = None
        """When the lease ends, by the loop's clock; None: there is none, and no other process delivers."""

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return messages that may be sent now."""
        found = await self._upstream.pull(target, max_messages=max_messages, max_bytes=max_bytes)
        self._require()
        return found

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge what is still this process's to deliver."""
        self._require()
        await self._upstream.acknowledge(target, last)

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put aside what is still this process's to deliver."""
        self._require()
        await self._upstream.dead_letter(target, message, verdict)

    def forget(self, target: Target) -> None:
        """Forget what the upstream remembers."""
        self._upstream.forget(target)

    def patience(self, target: Target) -> float | None:
        """Return what the upstream says."""
        return self._upstream.patience(target)

    def _require(self) -> None:
        if self.ends is not None and asyncio.get_running_loop().time() >= self.ends:
            raise Away(OVER)
