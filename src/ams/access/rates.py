"""Quotas of use: requests a second of users and projects, and what a project may have at a time.

Rates are off by default. A rate lets a second's worth of requests come at once and then as many as it says. A refused
request takes nothing, but that alone is not enough: a user who sends requests without pause would get every request
that a project earns. So each of the users who ask a project at the same time has an even share of its rate for certain.
Unused parts of shares go to those who want more, in turn, while enough is left for those who come for their shares.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.access.admission import Caller
from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.fair_share import UNLIMITED, FairShare
from ams.core.names import ProjectId, UserId
from ams.core.quotas import CONNECTIONS, REQUESTS, Quotas, exceeded
from ams.core.rate import Rate
from ams.storage.registry.records import Project

SHARE_MS = 2000
"""Users who ask a project within so long share its rate. Longer than the second after which refused clients retry."""
_FEWEST = 1024  # projects that are kept without looking for those that can be forgotten


@dataclass(slots=True)
class _Users:
    """Users who send requests to one project."""

    asking: dict[str, int] = field(default_factory=dict)  # when each user last sent a request, the most recent last
    line: dict[str, bool] = field(default_factory=dict)
    """Users who need more than a share, and whether they were refused since their last admitted request. The one who
    last had more than a share comes last."""

    def note(self, user: str, now: int) -> None:
        self.asking.pop(user, None)
        self.asking[user] = now
        self.forget_before(now - SHARE_MS)

    def forget_before(self, moment: int) -> None:
        while self.asking and self.asking[first := next(iter(self.asking))] < moment:
            del self.asking[first]
            self.line.pop(first, None)

    def is_next(self, user: str) -> bool:
        """Return whether no other user waits before this one."""
        first = next((each for each, waits in self.line.items() if waits or each == user), user)
        return first == user


class SharedRate:
    """A rate for each project, shared fairly by the users who ask it at the same time, refused or not."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        """`per_second` is at least 1."""
        self._whole = Rate(per_second, clock)
        self._shares = Rate(per_second, clock)
        self._clock, self._per_second = clock, per_second
        self._users: dict[str, _Users] = {}
        self._most = _FEWEST

    def allows(self, project: str, user: str) -> bool:
        """Return whether there is a request left for this user of the project; takes nothing."""
        users = self._asked(project, user)
        if self._has_share(project, user):
            return self._whole.allows(project)
        if self._whole.leaves(project, self._reserve(users, user)):
            return True
        users.line[user] = True
        return False

    def take(self, project: str, user: str) -> None:
        """Count a request that was just allowed."""
        users = self._users[project]
        if self._has_share(project, user):
            self._shares.take(f"{project} {user}", len(users.asking))
            if user in users.line:
                users.line[user] = False  # it does not hold up those behind it
        else:
            users.line.pop(user, None)
            users.line[user] = False  # last in the line
        self._whole.take(project)

    def _reserve(self, users: _Users, user: str) -> int:
        """Return how many requests a user who needs more than a share leaves to others.

        The user with the next turn leaves one for each of those who come for their shares, if there are not too many of
        them, and some more as they may come with several. Others leave more.
        """
        others, half = len(users.asking) - 1, self._per_second // 2
        if not others:
            return 0
        return max(half // 2, min(others, half), 1) if users.is_next(user) else max(half, 1)

    def _has_share(self, project: str, user: str) -> bool:
        return self._shares.allows(f"{project} {user}", len(self._users[project].asking))

    def _asked(self, project: str, user: str) -> _Users:
        """Note a request of a user, and return the users who send requests."""
        now = self._clock.monotonic()
        users = self._users.setdefault(project, _Users())
        users.note(user, now)
        if len(self._users) > self._most:
            for each in self._users.values():
                each.forget_before(now - SHARE_MS)
            self._users = {project: each for project, each in self._users.items() if each.asking}
            self._most = max(2 * len(self._users), _FEWEST)
        return users


class Rates:
    """The limits of users and projects together."""

    def __init__(self, *, users: int, clock: Clock, rules: Quotas) -> None:
        """`users` is so many requests a second of each user, 0 for no limit."""
        self._users = Rate(users, clock) if users else None
        self._rules, self._clock = rules, clock
        self._projects: dict[int, SharedRate] = {}
        self.is_usual = users > 0 or bool(rules.defaults[REQUESTS])

    def count(self, caller: Caller) -> None:
        """Count a request; raise `RateLimited`, and count nothing. The service token has no user limit."""
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
        if self._users is not None and not self._users.allows(user):
            raise RateLimited("Too many requests of this user")
        if self._users is not None:
            self._users.take(user)


class QuotaSlots:
    """Counts what each project has at a time on this node; without a limit it has a fair share. For one event loop."""

    def __init__(self, rules: Quotas, name: str, capacity: int = UNLIMITED) -> None:
        self.name, self._rules = name, rules
        self._share = FairShare[ProjectId](capacity)

    def used(self, project: ProjectId) -> int:
        """Return how many a project has."""
        return self._share.held_by(project)

    def share(self, project: ProjectId) -> int:
        """Return how many a project without a limit may have now."""
        return self._share.most_of(project)

    def take(self, project: Project) -> None:
        """Count one more for a project; raise `QuotaExceeded`, and count nothing, when it has as many as it may."""
        used = self.used(project.id)
        if self._rules.limit(project.quotas, self.name):
            self._rules.check(project.quotas, self.name, used + 1)
        elif not self._share.room(project.id):
            raise exceeded(self.name, f"it has {used}, and leaves fewer free")
        self._share.add(1, project.id)

    def give_back(self, project: ProjectId) -> None:
        """Count one less for a project."""
        self._share.give_back(project)

    @contextlib.contextmanager
    def taken(self, project: Project) -> Generator[None]:
        """Count one while the block runs; raise as `take`."""
        self.take(project)
        try:
            yield
        finally:
            self.give_back(project.id)


class ConnectionSlot(NamedTuple):
    """Slot of one connection in the quota of its project."""

    project: ProjectId
    slots: QuotaSlots

    def give_back(self) -> None:
        """Count the connection no more."""
        self.slots.give_back(self.project)


class ConnectionSlots(QuotaSlots):
    """Counts HTTP connections: each for the project whose request was last let in on it, until it is lost."""

    def __init__(self, rules: Quotas, capacity: int) -> None:
        super().__init__(rules, CONNECTIONS, capacity)

    def lower_capacity(self, capacity: int) -> None:
        """Share so many connections from now on: open files allow no more."""
        self._share.capacity = capacity

    def move(self, slot: ConnectionSlot | None, project: Project) -> ConnectionSlot:
        """Count a connection, which has `slot` by now, for a project; raise `QuotaExceeded`, and change nothing."""
        if slot is not None and slot.project == project.id:
            return slot
        self.take(project)
        if slot is not None:
            slot.give_back()
        return ConnectionSlot(project.id, self)


class ProjectSlots(NamedTuple):
    """Counters of the connections, waiting pulls and streams that each project has on this node."""

    connections: ConnectionSlots
    waiting_pulls: QuotaSlots
    streams: QuotaSlots  # of Google's clients
