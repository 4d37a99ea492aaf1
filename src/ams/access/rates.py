"""How many requests a second a user may make, and a project may get. Off by default.

A rate lets a second's worth of requests come at once and then as many as it says. A refused request takes nothing, but
that alone would not do: who asks without pause would meet every request that a project earns. So the users who ask a
project at the same time share its rate evenly.
"""

from typing import Self

from ams.access.admission import Caller
from ams.clock import Clock
from ams.errors import RateLimited
from ams.names import UserId

AT_THE_SAME_TIME = 2000
"""Milliseconds. Longer than the second after which refused clients are told to come back, or they would not count."""
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
        self._free_at: dict[str, int] = {}
        """When everything taken so far would be earned at exactly this rate; absent: it is already."""
        self._most = _FEWEST

    def __len__(self) -> int:
        """Return how many keys are kept: those that did not earn again what they took, and not many more."""
        return len(self._free_at)

    def allows(self, key: str, sharers: int = 1) -> bool:
        """Whether there is a request left for `key`, which has one of so many even shares; takes nothing."""
        patience = max((self._per_second - sharers) * _REQUEST, 0)
        return self._free_at.get(key, 0) - self._now() <= patience

    def take(self, key: str, sharers: int = 1) -> None:
        """Count a request of `key`, which must be allowed."""
        now = self._now()
        self._free_at[key] = max(self._free_at.get(key, 0), now) + sharers * _REQUEST
        if len(self._free_at) > self._most:
            self._free_at = {each: free for each, free in self._free_at.items() if free > now}
            self._most = max(2 * len(self._free_at), _FEWEST)

    def _now(self) -> int:
        return self._clock.monotonic() * self._per_second


class SharedRate:
    """A rate for each project, shared evenly by the users who ask it at the same time, refused or not."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        """`per_second` is at least 1."""
        self._whole = Rate(per_second, clock)
        self._shares = Rate(per_second, clock)
        self._clock = clock
        self._asking: dict[str, dict[str, int]] = {}
        """By project, who asked when; whoever asked last comes last."""
        self._most = _FEWEST

    def __len__(self) -> int:
        """Return how many projects are kept: those that were asked just now, and not many more."""
        return len(self._asking)

    def allows(self, project: str, user: str) -> bool:
        """Whether there is a request left for this user of the project; takes nothing."""
        sharers = self._sharers(project, user)
        return self._whole.allows(project) and self._shares.allows(_share(project, user), sharers)

    def take(self, project: str, user: str) -> None:
        """Count a request that was just allowed."""
        self._whole.take(project)
        self._shares.take(_share(project, user), len(self._asking[project]))

    def _sharers(self, project: str, user: str) -> int:
        """Note that a user asks, and return how many do."""
        now = self._clock.monotonic()
        asking = self._asking.setdefault(project, {})
        asking.pop(user, None)
        asking[user] = now
        _forget_before(now - AT_THE_SAME_TIME, asking)
        if len(self._asking) > self._most:
            self._forget_quiet_projects(now - AT_THE_SAME_TIME)
        return len(asking)

    def _forget_quiet_projects(self, moment: int) -> None:
        for asking in self._asking.values():
            _forget_before(moment, asking)
        self._asking = {project: asking for project, asking in self._asking.items() if asking}
        self._most = max(2 * len(self._asking), _FEWEST)


class Rates:
    """The limits of users and projects together."""

    def __init__(self, users: Rate | None, projects: SharedRate | None) -> None:
        self._users = users
        self._projects = projects

    @classmethod
    def of(cls, *, users: int, projects: int, clock: Clock) -> Self | None:
        """Return the limits for so many requests a second, 0 for no limit; None when there is none at all."""
        if not users and not projects:
            return None
        return cls(Rate(users, clock) if users else None, SharedRate(projects, clock) if projects else None)

    def count(self, caller: Caller) -> None:
        """Count a request; raise `RateLimited`, and count nothing, when its user or its project has none left.

        The service token is no user: only the limit of the project holds for it.
        """
        user = caller.user or ""
        users = self._users if user else None
        projects = self._projects if caller.project is not None else None
        if users is not None and not users.allows(user):
            raise RateLimited("Too many requests of this user")
        if projects is not None and not projects.allows(caller.here.id, user):
            raise RateLimited("Too many requests to this project")
        if users is not None:
            users.take(user)
        if projects is not None:
            projects.take(caller.here.id, user)

    def count_user(self, user: UserId) -> None:
        """Count a request that is to no project; raise `RateLimited`, and count nothing, when none is left."""
        if self._users is None:
            return
        if not self._users.allows(user):
            raise RateLimited("Too many requests of this user")
        self._users.take(user)


def _share(project: str, user: str) -> str:
    return f"{project} {user}"


def _forget_before(moment: int, asking: dict[str, int]) -> None:
    """Drop the first users while they asked before a moment."""
    while asking and asking[first := next(iter(asking))] < moment:
        del asking[first]
