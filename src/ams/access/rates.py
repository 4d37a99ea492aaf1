"""Rate limits and quotas: requests a second of users and projects, and concurrent use of each project.

Rates are off by default. Each is a token bucket with a burst of one second. A refused request costs no token, but a
user who retries without pause would still take every token of its project. So each active user of a project has a
guaranteed even share of its rate. Unused shares go round robin to users who need more, and a reserve stays for users
who come for their own share. Quotas: see `ams.core.quotas`.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.fair_share import FairShare
from ams.core.names import ProjectId
from ams.core.quotas import REQUESTS, Quotas, quota_exceeded
from ams.core.rate import Rate
from ams.storage.registry.records import Project

SHARE_WINDOW_MS = 2000  # users active within it share a project's rate; refused clients retry after a second
_MIN_PROJECTS_BEFORE_CLEANUP = 1024  # projects kept before idle ones are looked for and dropped


@dataclass(slots=True)
class _Users:
    """Users who send requests to one project."""

    asking: dict[str, int] = field(default_factory=dict)  # time of each user's last request, most recent last
    line: dict[str, bool] = field(default_factory=dict)
    """Users who need more than a share, and whether they were refused since their last admitted request. The user who
    last had more than a share comes last."""

    def forget_before(self, moment: int) -> None:
        while self.asking and self.asking[first := next(iter(self.asking))] < moment:
            del self.asking[first]
            self.line.pop(first, None)


class SharedRate:
    """A rate limit for each project, shared fairly by its active users, refused ones included."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._whole = Rate(per_second, clock)
        self._shares = Rate(per_second, clock)
        self._clock, self._per_second = clock, per_second
        self._users: dict[str, _Users] = {}
        self._most = _MIN_PROJECTS_BEFORE_CLEANUP

    def allows(self, project: str, user: str) -> bool:
        """Return whether this user of the project may send a request now; counts nothing."""
        users = self._note_request(project, user)
        if self._has_share(project, user):
            return self._whole.allows(project)
        if self._whole.leaves(project, self._reserve(users, user)):
            return True
        users.line[user] = True
        return False

    def take(self, project: str, user: str) -> None:
        """Count a request that `allows` has just allowed."""
        users = self._users[project]
        if self._has_share(project, user):
            self._shares.take(f"{project} {user}", len(users.asking))
            if user in users.line:
                users.line[user] = False  # it does not block those behind it in the queue
        else:
            users.line.pop(user, None)
            users.line[user] = False  # to the end of the queue
        self._whole.take(project)

    def _reserve(self, users: _Users, user: str) -> int:
        """Return how many requests to reserve for others from a user who needs more than a share.

        The user next in the queue leaves one for each user who comes for its own share, within limits, plus a margin
        for bursts. All others leave more.
        """
        others, half = len(users.asking) - 1, self._per_second // 2
        if not others:
            return 0
        first = next((each for each, waits in users.line.items() if waits or each == user), user)
        return max(half // 2, min(others, half), 1) if first == user else max(half, 1)

    def _has_share(self, project: str, user: str) -> bool:
        return self._shares.allows(f"{project} {user}", len(self._users[project].asking))

    def _note_request(self, project: str, user: str) -> _Users:
        now = self._clock.monotonic()
        users = self._users.setdefault(project, _Users())
        users.asking.pop(user, None)
        users.asking[user] = now
        users.forget_before(now - SHARE_WINDOW_MS)
        if len(self._users) > self._most:
            for each in self._users.values():
                each.forget_before(now - SHARE_WINDOW_MS)
            self._users = {project: each for project, each in self._users.items() if each.asking}
            self._most = max(2 * len(self._users), _MIN_PROJECTS_BEFORE_CLEANUP)
        return users


class Rates:
    """Rate limits of users and projects together."""

    def __init__(self, *, users: int, clock: Clock, rules: Quotas) -> None:
        self._users = Rate(users, clock) if users else None  # requests a second of each user; 0: no limit
        self._rules, self._clock = rules, clock
        self._projects: dict[int, SharedRate] = {}
        self.is_usual = users > 0 or bool(rules.defaults[REQUESTS])

    def count(self, user: str, project: Project | None) -> None:
        """Count a request; the service token has no user. Raises `RateLimited`, and counts nothing then."""
        users = self._users if user else None
        if users is not None and not users.allows(user):
            raise RateLimited("Too many requests of this user")
        if project is not None and (limit := self._rules.limit(project.quotas, REQUESTS)):
            shared = self._projects.get(limit) or self._projects.setdefault(limit, SharedRate(limit, self._clock))
            if not shared.allows(project.id, user):
                raise RateLimited(quota_exceeded(REQUESTS, f"its limit is {limit}").message)
            shared.take(project.id, user)
        if users is not None:
            users.take(user)


class ConnectionSlot(NamedTuple):
    """Slot of one connection in the quota of its project."""

    project: ProjectId
    slots: "QuotaSlots"

    def give_back(self) -> None:
        """Return the slot of a closed connection."""
        self.slots.give_back(self.project)


class QuotaSlots(FairShare[ProjectId]):
    """Concurrent use of each project on this node, within its quota or else a fair share. For one event loop."""

    def __init__(self, rules: Quotas, name: str, capacity: int) -> None:
        super().__init__(capacity)
        self.name, self._rules = name, rules

    def take(self, project: Project) -> None:
        """Take a slot. Raises `QuotaExceeded`, and takes none, above the quota."""
        used = self.held_by(project.id)
        if self._rules.limit(project.quotas, self.name):
            self._rules.check(project.quotas, self.name, used + 1)
        elif not self.room(project.id):
            raise quota_exceeded(self.name, f"it has {used}, and leaves fewer free")
        self.add(1, project.id)

    @contextlib.contextmanager
    def hold(self, project: Project) -> Generator[None]:
        """Hold a slot while the block runs. Raises as `take`."""
        self.take(project)
        try:
            yield
        finally:
            self.give_back(project.id)

    def move(self, slot: ConnectionSlot | None, project: Project) -> ConnectionSlot:
        """Move a connection from its present `slot` to a project. Raises `QuotaExceeded` and changes nothing."""
        if slot is not None and slot.project == project.id:
            return slot
        self.take(project)
        if slot is not None:
            slot.give_back()
        return ConnectionSlot(project.id, self)


class ProjectSlots(NamedTuple):
    """Connections, waiting pulls and streams of each project on this node."""

    connections: QuotaSlots  # HTTP: each counts for the project of its last admitted request until it closes
    waiting_pulls: QuotaSlots
    streams: QuotaSlots  # of Google's clients
