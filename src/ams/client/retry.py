"""When a call is sent again: a policy, as a value.

Waiting times grow exponentially and are drawn at random between nothing and their bound ("full jitter"), so that the
many clients of a service that went away do not come back all at once.
"""

from dataclasses import dataclass

from ams.client.errors import ClientError, Refused, Unreachable


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
        service wants to be left alone, and `chance` a random number from 0 to 1.
        """
        if self.attempts is not None and sent >= self.attempts:
            return None
        bound = min(self.longest, self.first * 2.0 ** min(sent - 1, 64))
        pause = asked + chance * bound
        return pause if elapsed + pause <= self.total else None


DEFAULT = Retry()
"""A few tries in about half a minute."""


def may_send_again(error: ClientError, *, repeatable: bool) -> bool:
    """Whether a call that failed like this may be sent again.

    What was never sent can do no harm twice; anything else must be repeatable.
    """
    if not error.retriable:
        return False
    return repeatable or (isinstance(error, Unreachable) and not error.sent)


def seconds_asked(error: ClientError) -> float:
    """Return what the service's `Retry-After` says in seconds; 0 when it says nothing, or a date."""
    asked = error.retry_after if isinstance(error, Refused) else ""
    return float(asked) if asked.isascii() and asked.isdecimal() else 0.0
