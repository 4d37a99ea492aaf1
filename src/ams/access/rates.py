"""How many requests a second a user may make, and a project may get. Off by default.

A rate lets a second's worth of requests come at once and then as many as it says. A refused request takes nothing, but
that alone is not enough: a user who sends requests without pause would get every request that a project earns. So each
of the users who ask a project at the same time has an even share of its rate for certain. What some leave of theirs
goes to those who want more, in turn, while enough is left for those who come for their shares.
"""

from dataclasses import dataclass, field
from typing import Self

from ams.access.admission import Caller
from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.names import UserId
from ams.core.quotas import REQUESTS, Quotas, exceeded

AT_THE_SAME_TIME = 2000
"""Milliseconds. Longer than the second after which refused clients are asked to retry, or they would not count."""
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

    def leaves(self, key: str, reserve: int) -> bool:
        """Whether so many requests are left for `key` beside one; takes nothing."""
        return self._free_at.get(key, 0) - self._now() <= (self._per_second - 1 - reserve) * _REQUEST

    def take(self, key: str, sharers: int = 1) -> None:
        """Count a request of `key`, which must be allowed."""
        now = self._now()
        self._free_at[key] = max(self._free_at.get(key, 0), now) + sharers * _REQUEST
        if len(self._free_at) > self._most:
            self._free_at = {each: free for each, free in self._free_at.items() if free > now}
            self._most = max(2 * len(self._free_at), _FEWEST)

    def _now(self) -> int:
        return self._clock.monotonic() * self._per_second


@dataclass(slots=True)
class _Users:
    """The users who send requests to a project."""

    asking: dict[str, int] = field(default_factory=dict)
    """By user: when they last sent a request. The most recent comes last."""
    line: dict[str, bool] = field(default_factory=dict)
    """Users who need more than a share, and whether they were refused since their last admitted request. The one who
    last had more than a share comes last."""

    def note(self, user: str, now: int) -> None:
        """Note a request of a user."""
        self.asking.pop(user, None)
        self.asking[user] = now
        self.forget_before(now - AT_THE_SAME_TIME)

    def forget_before(self, moment: int) -> None:
        """Drop those who asked before a moment."""
        while self.asking and self.asking[first := next(iter(self.asking))] < moment:
            del self.asking[first]
            self.line.pop(first, None)

    def refuse(self, user: str) -> None:
        """Let a user wait for more in its place in the line."""
        self.line[user] = True

    def had_share(self, user: str) -> None:
        """Let a user who had something not hold up those behind it."""
        if user in self.line:
            self.line[user] = False

    def had_turn(self, user: str) -> None:
        """Put a user who had more than a share last in the line."""
        self.line.pop(user, None)
        self.line[user] = False

    def is_next(self, user: str) -> bool:
        """Whether no other user waits before this one."""
        first = next((each for each, waits in self.line.items() if waits or each == user), user)
        return first == user


class SharedRate:
    """A rate for each project, shared fairly by the users who ask it at the same time, refused or not."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        """`per_second` is at least 1."""
        self._whole = Rate(per_second, clock)
        self._shares = Rate(per_second, clock)
        self._clock = clock
        self._per_second = per_second
        self._users: dict[str, _Users] = {}
        """By project."""
        self._most = _FEWEST

    def __len__(self) -> int:
        """Return how many projects are kept: those that were asked just now, and not many more."""
        return len(self._users)

    def allows(self, project: str, user: str) -> bool:
        """Whether there is a request left for this user of the project; takes nothing."""
        users = self._asked(project, user)
        if self._has_share(project, user):
            return self._whole.allows(project)
        if self._whole.leaves(project, self._reserve(users, user)):
            return True
        users.refuse(user)
        return False

    def take(self, project: str, user: str) -> None:
        """Count a request that was just allowed."""
        users = self._users[project]
        if self._has_share(project, user):
            self._shares.take(_share(project, user), len(users.asking))
            users.had_share(user)
        else:
            users.had_turn(user)
        self._whole.take(project)

    def _reserve(self, users: _Users, user: str) -> int:
        """Return how many requests a user who needs more than a share leaves to others.

        The user with the next turn leaves one for each of those who come for their shares, if there are not too many of
        them, and some more as they may come with several; who does not, leaves more.
        """
        others, half = len(users.asking) - 1, self._per_second // 2
        if not others:
            return 0
        return max(half // 2, min(others, half), 1) if users.is_next(user) else max(half, 1)

    def _has_share(self, project: str, user: str) -> bool:
        """Whether something is left of a user's even share; what was taken beyond it is not held against it."""
        return self._shares.allows(_share(project, user), len(self._users[project].asking))

    def _asked(self, project: str, user: str) -> _Users:
        """Note a request of a user, and return the users who send requests."""
        now = self._clock.monotonic()
        users = self._users.setdefault(project, _Users())
        users.note(user, now)
        if len(self._users) > self._most:
            self._forget_quiet_projects(now - AT_THE_SAME_TIME)
        return users

    def _forget_quiet_projects(self, moment: int) -> None:
        for users in self._users.values():
            users.forget_before(moment)
        self._users = {project: users for project, users in self._users.items() if users.asking}
        self._most = max(2 * len(self._users), _FEWEST)


class Rates:
    """The limits of users and projects together."""

    def __init__(self, users: Rate | None, rules: Quotas, clock: Clock) -> None:
        self._users = users
        self._rules = rules
        self._clock = clock
        self._projects: dict[int, SharedRate] = {}
        """By requests a second."""
        self.is_usual = users is not None or bool(rules.defaults[REQUESTS])
        """True if requests to a project without quotas of its own are counted."""

    @classmethod
    def of(cls, *, users: int, clock: Clock, rules: Quotas) -> Self:
        """Return the limits: so many requests a second of a user, 0 for no limit, and what `rules` say of projects."""
        return cls(Rate(users, clock) if users else None, rules, clock)

    def count(self, caller: Caller) -> None:
        """Count a request; raise `RateLimited`, and count nothing, when its user or its project has none left.

        The service token is no user: only the limit of the project holds for it.
        """
        user = caller.user or ""
        users = self._users if user else None
        limit = self._rules.limit(caller.project.quotas, REQUESTS) if caller.project is not None else 0
        if users is not None and not users.allows(user):
            raise RateLimited("Too many requests of this user")
        if limit:
            project = self._projects.get(limit) or self._projects.setdefault(limit, SharedRate(limit, self._clock))
            if not project.allows(caller.here.id, user):
                raise RateLimited(exceeded(REQUESTS, f"its limit is {limit}").message)
            project.take(caller.here.id, user)
        if users is not None:
            users.take(user)

    def count_user(self, user: UserId) -> None:
        """Count a request that is to no project; raise `RateLimited`, and count nothing, when none is left."""
        if self._users is None:
            return
        if not self._users.allows(user):
            raise RateLimited("Too many requests of this user")
        self._users.take(user)


def _share(project: str, user: str) -> str:
    return f"{project} {user}"
