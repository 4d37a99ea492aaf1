"""Administration of projects, members and quotas (HTTP contract 7), and the sweep of what a crash left of projects."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from ams.access.admission import Caller
from ams.access.permissions import PROJECT_ROLES, check_roles
from ams.access.rates import ProjectSlots, QuotaSlots
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound, Unusable
from ams.core.names import ProjectId, ProjectName, UserName, checked_name
from ams.core.quotas import NO_LIMITS, QUOTAS, STORED_BYTES, Limits
from ams.core.supervisor import Ticker
from ams.core.telemetry import Figure
from ams.service.leftovers import drop_or_leave, run_in_parts
from ams.service.lookup import NO_USER, find_user, require_found
from ams.service.push.configurations import no_push_server
from ams.service.stored_bytes import StoredBytes
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import Grant, Page, PageRequest, Project, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.wire.projects import ProjectQuotas, Quota

NO_PROJECT = "project doesn't exist"
ALREADY_A_MEMBER = "User is already a member of the project"
NOT_A_MEMBER = "Access to this resource is forbidden. User is not a member of the project"
MAX_CONCURRENT_DROPS = 100  # logs, or cursors: one after the other, those of a large project take minutes
logger = structlog.get_logger("ams.projects")


@dataclass(frozen=True, slots=True)
class Projects:
    """Administration of projects."""

    registry: Registry
    log: Log
    cursors: Cursors
    changed: Callable[[], Awaitable[None]] = no_push_server  # updates the push workers at once

    async def list(self) -> Sequence[Project]:
        """Return all projects, oldest first."""
        return await self.registry.projects.all()

    async def create(self, caller: Caller, name: ProjectName, description: str = "") -> Project:
        """Make a project; raise `AlreadyExists` when the name is taken."""
        return await self.registry.projects.create(name, description, caller.user)

    async def update(
        self, caller: Caller, *, name: str = "", description: str = "", strict_data: bool | None = None
    ) -> Project:
        """Rename or describe the project, or let it refuse data that is not base64; empty and None change nothing.

        Resource names and ack ids carry the new name. Raises `InvalidInput` for a bad or taken name.
        """
        if name:
            checked_name("project", name)
        try:
            project = await self.registry.projects.update(
                caller.here.id, ProjectName(name), description, caller.expected, strict_data=strict_data
            )
        except AlreadyExists:
            raise InvalidInput("invalid project name change, name already exists") from None
        found = require_found(project, NotFound(NO_PROJECT))
        if name:
            await self.changed()
        return found

    async def delete(self, caller: Caller) -> None:
        """Delete the project with all it owns (U12). Raises `NotFound` if it was deleted meanwhile.

        The registry deletes first, in one transaction. Logs and cursors that are left after a crash, or an unavailable
        log, are dropped by `sweep` at the next start.
        """
        await self.registry.idempotency.delete_old_claims(await self.registry.topics.of_project(caller.here.id))
        deleted = await self.registry.projects.delete(caller.here.id, caller.expected)
        owned = require_found(deleted, NotFound(NO_PROJECT))
        await run_in_parts(partial(drop_or_leave, self.log.drop), owned.topics, MAX_CONCURRENT_DROPS)
        await run_in_parts(partial(drop_or_leave, self.cursors.drop), owned.subscriptions, MAX_CONCURRENT_DROPS)
        await self.changed()

    async def require_registry(self) -> None:
        """Raise `Unusable` if the registry is empty but the log is not: it was lost, or an import is unfinished."""
        topics = await self.log.topics()  # first: the registry has a user before any topic is made
        if topics and await self.registry.is_empty():
            raise Unusable(
                f"the registry is empty but the log is not (topics: {len(topics)}): restore the registry's database, "
                "finish the import, or start with another data folder or kafka_prefix"
            )

    async def sweep(self) -> None:
        """Drop logs and cursors without an entry in the registry, before serving. Raises as `require_registry`."""
        await self.require_registry()
        topics = await self.log.topics() - await self.registry.topics.ids()
        subscriptions = (await self.cursors.places()).keys() - await self.registry.subscriptions.ids()
        await run_in_parts(self.log.drop, topics, MAX_CONCURRENT_DROPS)
        await run_in_parts(self.cursors.drop, subscriptions, MAX_CONCURRENT_DROPS)
        if topics or subscriptions:
            logger.info("projects.swept", topics=len(topics), subscriptions=len(subscriptions))


@dataclass(frozen=True, slots=True)
class Members:
    """Members of the caller's project (HTTP contract 7.1)."""

    registry: Registry

    async def list(self, caller: Caller, page: PageRequest, *, details: bool = False) -> Page[User]:
        """Return a page of the members, newest users first; raise `InvalidInput` "Invalid page token"."""
        return (await self.registry.users.page(page, project=caller.here.id, details=details)).map(caller.view)

    async def show(self, caller: Caller, name: UserName) -> User:
        """Return a member. Raises `NotFound` for an unknown user or a non-member."""
        return caller.view(await self._member(caller, name))

    async def create(self, caller: Caller, name: UserName, *, grants: Sequence[Grant] = (), email: str = "") -> User:
        """Make a member by this project's entry in `grants`, with a token; raise `AlreadyExists`, `InvalidInput`."""
        if await self.registry.users.by_name(name) is not None:
            raise AlreadyExists("User already exists")
        roles = _roles_here(caller, grants) or ()
        check_roles(roles, PROJECT_ROLES)
        details, places = UserDetails(email=email), {caller.here.id: roles}
        creation = self.registry.users.creation(name, details, places, caller.user, made_in=caller.here.id)
        return caller.view_made(await self.registry.users.create(creation))

    async def update(self, caller: Caller, name: UserName, grants: Sequence[Grant]) -> User:
        """Replace a member's roles by this project's in `grants`; raise `NotFound`, `NotAllowed`, `InvalidInput`."""
        user = await find_user(self.registry, name)
        roles = _roles_here(caller, grants)
        if roles is None or not _is_member(user, caller):
            raise NotAllowed(NOT_A_MEMBER)
        check_roles(roles, PROJECT_ROLES)
        expected = caller.expected.seen_by(caller.view)
        changed = await self.registry.users.set_roles(user.id, caller.here.id, roles, expected)
        return caller.view(require_found(changed, NotAllowed(NOT_A_MEMBER)))

    async def add(self, caller: Caller, name: UserName, roles: Sequence[str] = ()) -> User:
        """Make an existing user a member; raise `NotFound`, `Conflict`, or `InvalidInput` "invalid role: X"."""
        user = await find_user(self.registry, name)
        if _is_member(user, caller):
            raise Conflict(ALREADY_A_MEMBER)
        check_roles(roles, PROJECT_ROLES)
        try:
            added = await self.registry.users.add_member(user.id, caller.here.id, roles)
        except AlreadyExists:
            raise Conflict(ALREADY_A_MEMBER) from None
        return caller.view(require_found(added, NotFound(NO_USER)))

    async def remove(self, caller: Caller, name: UserName) -> None:
        """End a membership; raise `NotFound`, or `NotAllowed` when there is none. Access lists stay as they are."""
        user = await find_user(self.registry, name)
        if not await self.registry.users.remove_member(user.id, caller.here.id, caller.expected.seen_by(caller.view)):
            raise NotAllowed(NOT_A_MEMBER)

    async def refresh_token(self, caller: Caller, name: UserName) -> User:
        """Replace a member's token, and show the new one. Raises `NotFound`, `NotAllowed`."""
        user = await self._member(caller, name)
        if caller.is_weaker_than_own(user):
            raise NotAllowed

        def check(now: User) -> None:
            is_elsewhere = any(entry.project != caller.here.name for entry in now.memberships)
            if not caller.full_view and (now.service_roles or is_elsewhere or not _is_member(now, caller)):
                raise NotAllowed("The user has roles elsewhere: a service_admin can give it a new token")

        return require_found(await self.registry.users.refresh_token(user.id, check=check), NotFound(NO_USER))

    async def find(self, name: UserName) -> User:
        """Return a user, member or not, before the body of `:add` is read (contract 7.1); raise `NotFound`."""
        return await find_user(self.registry, name)

    async def _member(self, caller: Caller, name: UserName) -> User:
        user = await find_user(self.registry, name)
        if not _is_member(user, caller):
            raise NotFound(NO_USER)
        return user


def _is_member(user: User, caller: Caller) -> bool:
    return any(entry.project == caller.here.name for entry in user.memberships)


def _roles_here(caller: Caller, grants: Sequence[Grant]) -> tuple[str, ...] | None:
    return next((grant.roles for grant in grants if grant.project == caller.here.name), None)


class QuotaUse:
    """Quotas of projects and their use. Used from one event loop."""

    def __init__(self, registry: Registry, stored: StoredBytes, slots: ProjectSlots) -> None:
        self._registry, self._stored = registry, stored
        self._in_memory: Mapping[str, StoredBytes | QuotaSlots] = {
            STORED_BYTES: stored,
            **{each.name: each for each in slots},
        }
        self._projects: Sequence[Project] = ()
        self._in_registry: Mapping[ProjectId, Limits] = {}
        put_off = partial(structlog.get_logger("ams.quotas").warning, "quotas.uncounted")
        self.rounds = Ticker("quota use", 15.0, self.count, put_off)

    async def show(self, caller: Caller) -> ProjectQuotas:
        """Return the quotas of the caller's project, and their use."""
        return ProjectQuotas(self._quotas(caller.here, await self._registry.quotas.quota_usage(caller.here.id)))

    async def change(self, caller: Caller, changes: Mapping[str, int | None]) -> ProjectQuotas:
        """Change quotas for requests from now on; None restores the default. Raises `InvalidInput`, `NotFound`."""
        used = await self._registry.quotas.quota_usage(caller.here.id)  # first: after the change nothing may fail
        changed = await self._registry.projects.change_quotas(caller.here.id, changes, caller.expected)
        project = require_found(changed, NotFound(NO_PROJECT))
        self._stored.follow(project.id, project.quotas)
        return ProjectQuotas(self._quotas(project, used))

    async def count(self) -> None:
        """Count the use of all projects in the registry, for `gauges`."""
        self._in_registry = await self._registry.quotas.all_used()
        self._projects = await self._registry.projects.all()

    def gauges(self) -> Iterator[Figure]:
        """Yield use and limit of quotas by project, as of the last count."""
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
            used = in_registry.get(name) if counted is None else counted.held_by(project.id)
            share = None if counted is None or limit else counted.steady_share(project.id)
            found.append(Quota(name, limit, rules.defaults[name], used, share))
        return found
