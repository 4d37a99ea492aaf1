"""Rate limits by the generic cell rate algorithm, which stores one number per key.

`LoginLimit` limits failed logins by address.
"""

import math

from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.urls import client_of

_MIN_SWEEP_KEYS = 1024  # below this, expired keys are not removed


class Rate:
    """Rate limit per key: a burst of `number`, then `number` per period."""

    def __init__(self, number: int, clock: Clock, period_ms: int = 1000, max_keys: float = math.inf) -> None:
        """Take a `number` of at least 1. Beyond `max_keys` the least recently used key is dropped."""
        self._number, self._clock, self._max_keys = number, clock, max_keys
        # Time is in units of 1/number ms: each call costs `period_ms`, so all numbers are integers.
        self._cost = period_ms
        self._free_at: dict[str, int] = {}  # theoretical arrival time per key: when its debt is repaid; absent: no debt
        self._most = _MIN_SWEEP_KEYS

    def allows(self, key: str, count: int = 1) -> bool:
        """Return whether `key` may take `count`; takes nothing.

        A key without debt may take any count. A count of 0 is allowed until the debt exceeds one period.
        """
        patience = max((self._number - count) * self._cost, 0)
        return self._free_at.get(key, 0) - self._now() <= patience

    def leaves(self, key: str, reserve: int) -> bool:
        """Return whether `reserve` would be left for `key` after taking one; takes nothing."""
        return self._free_at.get(key, 0) - self._now() <= (self._number - 1 - reserve) * self._cost

    def take(self, key: str, count: int = 1) -> None:
        """Add `count` to the debt of `key`. The caller has checked `allows`."""
        now = self._now()
        self._free_at[key] = max(self._free_at.pop(key, 0), now) + count * self._cost
        if len(self._free_at) > self._most:
            self._free_at = {each: free for each, free in self._free_at.items() if free > now}
            self._most = max(2 * len(self._free_at), _MIN_SWEEP_KEYS)
        if len(self._free_at) > self._max_keys:
            del self._free_at[next(iter(self._free_at))]

    def _now(self) -> int:
        return self._clock.monotonic() * self._number


MINUTE = 60_000  # milliseconds
MAX_ADDRESSES = 100_000  # least recently failed ones are dropped first


class LoginLimit:
    """Limit of failures per minute and address (IPv6: per /64); 0: no limit."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._rate = Rate(per_minute, clock, MINUTE, MAX_ADDRESSES) if per_minute else None
        self.failures = 0

    def check(self, address: str) -> None:
        """Raise `RateLimited` for an address that has failed too often."""
        if self._rate is not None and not self._rate.allows(_holder(address)):
            raise RateLimited("Too many failed logins")

    def count_failure(self, address: str) -> None:
        """Count a failure of an address."""
        self.failures += 1
        # Concurrent failures count only up to the limit.
        if self._rate is not None and self._rate.allows(holder := _holder(address)):
            self._rate.take(holder)


def _holder(address: str) -> str:
    try:
        return client_of(address)
    except ValueError:
        return address
