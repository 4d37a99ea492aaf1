"""How many requests a second a user may make, and a project may get. Off by default.

A rate lets a second's worth of requests come at once and then as many as it says. A refused request costs nothing: it
neither delays the next one of the same user nor takes from what others of the project may have.
"""

from typing import Self

from ams.access.admission import Caller
from ams.clock import Clock
from ams.errors import RateLimited

_REQUEST = 1000
"""What one request costs. A rate earns as much in a millisecond as it allows in a second, so all numbers are whole."""
_FEWEST = 1024
"""Keys that are kept without looking for those that can be forgotten."""


class Rate:
    """A number of requests a second for each key; the generic cell rate algorithm, which needs one number a key."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        """`per_second` is at least 1."""
        self._per_second = per_second
        self._clock = clock
        self._patience = (per_second - 1) * _REQUEST
        self._free_at: dict[str, int] = {}
        """When everything taken so far would be earned at exactly this rate; absent: it is already."""
        self._most = _FEWEST

    def __len__(self) -> int:
        """Return how many keys are kept: those that took something in the last second, and not many more."""
        return len(self._free_at)

    def allows(self, key: str) -> bool:
        """Whether there is a request left for `key`; takes nothing."""
        return self._free_at.get(key, 0) - self._now() <= self._patience

    def take(self, key: str) -> None:
        """Count a request of `key`, which must be allowed."""
        now = self._now()
        self._free_at[key] = max(self._free_at.get(key, 0), now) + _REQUEST
        if len(self._free_at) > self._most:
            self._free_at = {each: free for each, free in self._free_at.items() if free > now}
            self._most = max(2 * len(self._free_at), _FEWEST)

    def _now(self) -> int:
        return self._clock.monotonic() * self._per_second


class Rates:
    """The limits of users and projects together."""

    def __init__(self, users: Rate | None, projects: Rate | None) -> None:
        self._users = users
        self._projects = projects

    @classmethod
    def of(cls, *, users: int, projects: int, clock: Clock) -> Self | None:
        """Return the limits for so many requests a second, 0 for no limit; None when there is none at all."""
        if not users and not projects:
            return None
        return cls(Rate(users, clock) if users else None, Rate(projects, clock) if projects else None)

    def count(self, caller: Caller) -> None:
        """Count a request; raise `RateLimited`, and count nothing, when its user or its project has none left.

        The service token is no user: only the limit of the project holds for it.
        """
        user = self._users if caller.user is not None else None
        project = self._projects if caller.project is not None else None
        if user is not None and not user.allows(str(caller.user)):
            raise RateLimited("Too many requests of this user")
        if project is not None and not project.allows(caller.here.id):
            raise RateLimited("Too many requests to this project")
        if user is not None:
            user.take(str(caller.user))
        if project is not None:
            project.take(caller.here.id)
