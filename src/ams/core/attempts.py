"""Failed logins by address: counted, and beyond a limit refused before anything is looked at."""

import ipaddress

from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.rate import Rate

MINUTE = 60_000  # milliseconds
REMEMBERED = 100_000  # most addresses that are remembered; those that failed longest ago are forgotten first
_OF_ONE = 64  # bits of the IPv6 prefix that counts as one client: the smallest network of a provider


class Attempts:
    """Counts failures by address, and allows so many a minute; 0 allows all.

    A failure takes one, and a minute earns all of them. Addresses of an IPv6 network (/64) share them.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._rate = Rate(per_minute, clock, MINUTE, REMEMBERED) if per_minute else None
        self.failures = 0

    def check(self, address: str) -> None:
        """Raise `RateLimited` for an address that has failed too often."""
        if self._rate is not None and not self._rate.allows(_holder(address)):
            raise RateLimited("Too many failed logins")

    def failed(self, address: str) -> None:
        """Count a failure of an address."""
        self.failures += 1
        # Of those that failed at the same time, as many count as were allowed.
        if self._rate is not None and self._rate.allows(holder := _holder(address)):
            self._rate.take(holder)


def _holder(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address, _OF_ONE), strict=False))
    except ValueError:
        return address
