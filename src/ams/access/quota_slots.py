"""Quotas of concurrent use: how many waiting pulls, streams or connections a project may have at a time."""

import contextlib
from collections import Counter
from collections.abc import Generator
from typing import NamedTuple

from ams.core.fair_share import FairShare
from ams.core.names import ProjectId
from ams.core.quotas import CONNECTIONS, Quotas, exceeded
from ams.storage.registry.records import Project


class QuotaSlots:
    """Counts what each project has now of one quota, on this node. Used from one event loop."""

    def __init__(self, rules: Quotas, name: str) -> None:
        self._rules = rules
        self.name = name
        self._taken: Counter[ProjectId] = Counter()

    def used(self, project: ProjectId) -> int:
        """Return how many a project has."""
        return self._taken.get(project, 0)

    @contextlib.contextmanager
    def taken(self, project: Project) -> Generator[None]:
        """Count one while the block runs; raise `QuotaExceeded` when the project has as many as it may."""
        self._rules.check(project.quotas, self.name, self.used(project.id) + 1)
        self._taken[project.id] += 1
        try:
            yield
        finally:
            self._taken[project.id] -= 1
            if not self._taken[project.id]:
                del self._taken[project.id]


class ConnectionSlot(NamedTuple):
    """The place of one connection among those of its project."""

    project: ProjectId
    share: FairShare[ProjectId]

    def give_back(self) -> None:
        """Count the connection no more."""
        self.share.give_back(self.project)


class ConnectionSlots:
    """Counts the HTTP connections of each project, on this node. Used from one event loop.

    A connection counts for the project whose request was last let in, until it is lost. A project without a quota has
    a fair share of all connections that the port takes.
    """

    name = CONNECTIONS

    def __init__(self, rules: Quotas, capacity: int) -> None:
        self._rules = rules
        self._share = FairShare[ProjectId](capacity)

    def used(self, project: ProjectId) -> int:
        """Return how many a project has."""
        return self._share.held_by(project)

    def take(self, slot: ConnectionSlot | None, project: Project) -> ConnectionSlot:
        """Count a connection for a project; `slot` is what it has by now.

        Raises `QuotaExceeded`, and counts nothing, when the project has as many as it may.
        """
        if slot is not None and slot.project == project.id:
            return slot
        if self._rules.limit(project.quotas, self.name):
            self._rules.check(project.quotas, self.name, self.used(project.id) + 1)
        elif not self._share.room(project.id):
            raise exceeded(self.name, f"it has {self.used(project.id)}, and leaves fewer free")
        if slot is not None:
            slot.give_back()
        self._share.add(1, project.id)
        return ConnectionSlot(project.id, self._share)
