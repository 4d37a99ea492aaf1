"""Quotas of each project with their use: shown, changed, and as metrics."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from ams.access.admission import Caller
from ams.access.rates import ProjectSlots
from ams.core.errors import NotFound
from ams.core.names import ProjectId
from ams.core.observing import Figure
from ams.core.quotas import NO_LIMITS, QUOTAS, STORED_BYTES, Limits
from ams.core.supervisor import Rounds
from ams.service.lookup import required
from ams.service.projects import NO_PROJECT
from ams.service.stored_bytes import StoredBytes
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from ams.wire.projects import ProjectQuotas, Quota

COUNT_SECONDS = 15.0

logger = structlog.get_logger("ams.quotas")


class _Counted(Protocol):
    def used(self, project: ProjectId, /) -> int: ...

    def share(self, project: ProjectId, /) -> int | None: ...


class QuotaUse:
    """Limits of projects and what they use of them. Used from one event loop."""

    def __init__(self, registry: Registry, stored: StoredBytes, slots: ProjectSlots) -> None:
        self._registry = registry
        self._stored = stored
        self._in_memory: Mapping[str, _Counted] = {STORED_BYTES: stored, **{each.name: each for each in slots}}
        self._projects: Sequence[Project] = ()
        self._in_registry: Mapping[ProjectId, Limits] = {}
        self.rounds = Rounds("quota use", COUNT_SECONDS, self.count, partial(logger.warning, "quotas.uncounted"))

    async def show(self, caller: Caller) -> ProjectQuotas:
        """Return the quotas of the caller's project, and what it uses of them."""
        return ProjectQuotas(self._quotas(caller.here, await self._registry.quotas.used(caller.here.id)))

    async def change(self, caller: Caller, changes: Mapping[str, int | None]) -> ProjectQuotas:
        """Change quotas, None: the default again, for requests from now on; raise `InvalidInput`, `NotFound`."""
        used = await self._registry.quotas.used(caller.here.id)  # before: once it is changed, nothing may fail
        changed = await self._registry.projects.change_quotas(caller.here.id, changes, caller.expected)
        project = required(changed, NotFound(NO_PROJECT))
        self._stored.follow(project.id, project.quotas)
        return ProjectQuotas(self._quotas(project, used))

    async def count(self) -> None:
        """Count what all projects have in the registry, for `gauges`."""
        self._in_registry = await self._registry.quotas.all_used()
        self._projects = await self._registry.projects.all()

    def gauges(self) -> Iterator[Figure]:
        """Yield use and limit of each quota whose use is known, by project, as of the last count of the registry."""
        quotas = [
            ({"project": project.name, "quota": each.name}, each)
            for project in self._projects
            for each in self._quotas(project, self._in_registry.get(project.id, NO_LIMITS))
            if each.used is not None
        ]
        text = "Use of a quota by a project, approximate."
        yield Figure("ams_project_quota_used", text, [(labels, each.used or 0) for labels, each in quotas])
        text = "Limit or fair share of a project now; no sample where there is no limit."
        limits = [(labels, found) for labels, each in quotas if (found := each.limit or each.share) is not None]
        yield Figure("ams_project_quota_limit", text, limits)

    def _quotas(self, project: Project, in_registry: Limits) -> list[Quota]:
        rules, found = self._registry.quotas.rules, []
        for name in QUOTAS:
            limit, counted = rules.limit(project.quotas, name), self._in_memory.get(name)
            used = in_registry.get(name) if counted is None else counted.used(project.id)
            share = None if counted is None or limit else counted.share(project.id)
            found.append(Quota(name, limit, rules.defaults[name], used, share))
        return found
