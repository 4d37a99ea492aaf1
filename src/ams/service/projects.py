"""Administration of projects (HTTP contract 7), and the sweep of what a crash left of deleted ones."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import structlog

from ams.access.admission import Caller
from ams.access.quota_slots import ConnectionSlots, QuotaSlots
from ams.core.errors import AlreadyExists, InvalidInput, NotFound, Unusable
from ams.core.names import ProjectName, checked_name
from ams.core.quotas import QUOTAS, STORED_BYTES
from ams.service.push.pushing import no_push_server
from ams.service.stored_bytes import StoredBytes
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from ams.wire.projects import ProjectQuotas, Quota

K = TypeVar("K")

_AT_ONCE = 100
"""Logs, and cursors, dropped at the same time: one after the other, those of a large project take minutes."""

logger = structlog.get_logger("ams.projects")


class Projects:
    """What can be done with projects."""

    def __init__(
        self,
        registry: Registry,
        log: Log,
        cursors: Cursors,
        *,
        changed: Callable[[], Awaitable[None]] = no_push_server,
        stored: StoredBytes | None = None,
        slots: Sequence[QuotaSlots | ConnectionSlots] = (),
    ) -> None:
        """`changed` lets the push workers follow at once.

        `stored` knows how many bytes projects have, `slots` what lasts of theirs.
        """
        self._slots = slots
        self._stored = stored
        self._registry = registry
        self._log = log
        self._cursors = cursors
        self._changed = changed

    async def list(self) -> Sequence[Project]:
        """Return all projects, oldest first."""
        return await self._registry.projects.all()

    async def show(self, caller: Caller) -> Project:
        """Return the project of the path."""
        return caller.here

    async def create(self, caller: Caller, name: ProjectName, description: str = "") -> Project:
        """Make a project; raise `AlreadyExists` when the name is taken."""
        return await self._registry.projects.create(name, description, caller.user)

    async def update(
        self, caller: Caller, *, name: str = "", description: str = "", strict_data: bool | None = None
    ) -> Project:
        """Rename or describe the project, or say whether it refuses data that is not base64.

        What is empty or None stays as it is. Raises `InvalidInput` for a bad or taken name.

        All resource names and ack ids carry the new name from then on.
        """
        if name:
            checked_name("project", name)
        try:
            project = await self._registry.projects.update(
                caller.here.id, ProjectName(name), description, caller.expected, strict_data=strict_data
            )
        except AlreadyExists:
            raise InvalidInput("invalid project name change, name already exists") from None
        if project is None:
            raise NotFound("project doesn't exist")
        if name:
            await self._changed()
        return project

    async def quotas(self, caller: Caller) -> ProjectQuotas:
        """Return the quotas of the project, and what it uses of them."""
        return await self._quotas_of(caller.here)

    async def change_quotas(self, caller: Caller, changes: Mapping[str, int | None]) -> ProjectQuotas:
        """Change quotas of the project, None: the default again. In force for every request that begins after this.

        Raises `InvalidInput` for a quota that does not exist and a limit that cannot be, `NotFound`.
        """
        project = await self._registry.projects.change_quotas(caller.here.id, changes, caller.expected)
        if project is None:
            raise NotFound("project doesn't exist")
        if self._stored is not None:
            self._stored.follow(project.id, project.quotas)
        return await self._quotas_of(project)

    async def _quotas_of(self, project: Project) -> ProjectQuotas:
        rules, used = self._registry.quotas.rules, dict(await self._registry.quotas.used(project.id))
        if self._stored is not None:
            used[STORED_BYTES] = self._stored.used(project.id)
        used |= {each.name: each.used(project.id) for each in self._slots}
        return ProjectQuotas(
            [Quota(name, rules.limit(project.quotas, name), rules.defaults[name], used.get(name)) for name in QUOTAS]
        )

    async def delete(self, caller: Caller) -> None:
        """Remove the project with all it owns (U12).

        The registry forgets first, in one transaction: from then on the rest cannot be reached, and what a crash
        leaves of it is dropped by `sweep` at the next start. Raises `NotFound` when it was deleted meanwhile.
        """
        await self._registry.idempotency.lighten(await self._registry.topics.of_project(caller.here.id))
        owned = await self._registry.projects.delete(caller.here.id, caller.expected)
        if owned is None:
            raise NotFound("project doesn't exist")
        await _all(self._log.drop, owned.topics)
        await _all(self._cursors.drop, owned.subscriptions)
        await self._changed()

    async def require_registry(self) -> None:
        """Raise `Unusable` when the registry is empty while there are messages. For the start.

        Then the registry was lost, or an import is not finished: it must find the registry empty when it is.
        """
        topics = await self._log.topics()  # first: the user who makes one is in the registry before
        if topics and await self._registry.is_empty():
            raise Unusable(
                f"the registry is empty but the log is not (topics: {len(topics)}): restore the registry's database, "
                "finish the import, or start with another data folder or kafka_prefix"
            )

    async def sweep(self) -> None:
        """Drop logs and cursors whose owners the registry does not know. To be called at the start, before serving.

        Raises as `require_registry`: sweeping would lose the messages too.
        """
        await self.require_registry()
        topics = await self._log.topics() - await self._registry.topics.ids()
        subscriptions = await self._cursors.subscriptions() - await self._registry.subscriptions.ids()
        await _all(self._log.drop, topics)
        await _all(self._cursors.drop, subscriptions)
        if topics or subscriptions:
            logger.info("projects.swept", topics=len(topics), subscriptions=len(subscriptions))


async def _all(drop: Callable[[K], Awaitable[None]], identities: Iterable[K]) -> None:
    """Drop all, many at the same time; raise what one of them raised when all were tried."""
    remaining, failed = iter(identities), []
    while part := list(islice(remaining, _AT_ONCE)):
        outcomes = await asyncio.gather(*map(drop, part), return_exceptions=True)
        failed += [each for each in outcomes if isinstance(each, BaseException)]
    if failed:
        raise failed[0]
