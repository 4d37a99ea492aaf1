"""What programs say of working on a parallel subscription, and what they are told of it (`ams.client.worker`)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypedDict

from ams.client.messages import ReceivedMessage

Handler: TypeAlias = Callable[[ReceivedMessage], object]
"""Does what is to be done with a message; what it returns is not looked at."""
AsyncHandler: TypeAlias = Callable[[ReceivedMessage], Awaitable[object]]
"""The same for asyncio."""

MAX_DELAY = 600
"""Seconds after which a message that was given back may come again."""


class RetryLater(Exception):
    """Raised by a handler that cannot do with a message now: it is to come again after so many seconds, 0 to 600.

    Without a delay, after that of the retry policy. It counts as a failure of the message, as any other error does,
    but is not logged. Raises `ValueError` for a delay that cannot be.
    """

    def __init__(self, delay: float | None = None) -> None:
        if delay is not None and not 0 <= delay <= MAX_DELAY:
            raise ValueError(f"a delay is 0 to {MAX_DELAY} seconds")
        super().__init__("later" if delay is None else f"after {delay} seconds")
        self.delay = delay


class Stop(Protocol):
    """What says that work is to stop: an event of `threading` or of `asyncio`."""

    def is_set(self) -> bool:
        """Return whether the work is to stop."""


class WorkOptions(TypedDict, total=False):
    """How to work on a parallel subscription; what is absent is as `Limits` says."""

    concurrency: int
    prefetch: int
    max_lease: float
    grace: float
    max_messages: int | None
    until_empty: bool
    stop: Stop | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How work is done; raises `ValueError` for what cannot be."""

    concurrency: int = 8
    """Messages that are handled at a time."""
    prefetch: int | None = None
    """Messages that are fetched beyond these, so that none has to be waited for; None: as many as are handled."""
    max_lease: float = 3600.0
    """Seconds for which a message is kept; one whose handler takes longer is given to somebody else."""
    grace: float = 30.0
    """Seconds that handlers have to end when work is to stop."""
    max_messages: int | None = None
    """After so many messages work ends."""
    until_empty: bool = False
    """True if work ends when there is nothing more."""
    stop: Stop | None = None
    """Work ends when it is set; None: at SIGTERM or SIGINT, if it is done in the main thread."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency is at least 1")
        if self.prefetch is not None and self.prefetch < 0:
            raise ValueError("prefetch is not negative")
        if self.max_messages is not None and self.max_messages < 1:
            raise ValueError("max_messages is at least 1")
        if min(self.max_lease, self.grace) < 0:
            raise ValueError("seconds are not negative")

    @property
    def held(self) -> int:
        """The most messages that may be on lease."""
        return self.concurrency + self._ahead

    @property
    def least_room(self) -> int:
        """How many may be taken when more are pulled: half of those ahead are waited for, for fewer requests."""
        return max(1, self._ahead // 2)

    @property
    def _ahead(self) -> int:
        return self.concurrency if self.prefetch is None else self.prefetch


@dataclass(frozen=True, slots=True)
class Worked:
    """What was done with the messages of a subscription."""

    worked: int = 0
    """Handled and acknowledged."""
    failed: int = 0
    """Their handlers raised, so that they come again."""
    late: int = 0
    """Their lease had ended before they were acknowledged, or handled: they come again, perhaps have come already."""
    given_back: int = 0
    """Not handled, or not to the end, when the work was to stop."""
