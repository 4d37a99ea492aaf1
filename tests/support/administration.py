"""A registry in a folder, and requests admitted by it, for tests above the registry."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import text

from ams.access.admission import Admission, Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core.clock import Clock
from ams.core.names import ProjectId, ProjectName, UserName
from ams.storage.audit.event import AuditEvent
from ams.storage.database.database import sqlite_url
from ams.storage.free_space import UNLIMITED, FreeSpace
from ams.storage.registry.records import Project, User, UserDetails
from ams.storage.registry.registry import Registry
from tests.support.clock import ManualClock

KEY = bytes(range(32))
SERVICE_TOKEN = "service-token"
ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))
"""Databases of a registry, to choose fixtures by."""


@dataclass
class KeptTrail:
    events: list[AuditEvent] = field(default_factory=list)

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)


def url_of(engine: str, folder: Path) -> str:
    if engine == "sqlite":
        return sqlite_url(str(folder / "registry.db"))
    from tests.support.databases import empty_registry  # it needs the driver

    return empty_registry(KEY)


@contextlib.asynccontextmanager
async def open_registry(folder: Path, clock: Clock | None = None) -> AsyncIterator[Registry]:
    async with open_registry_at(url_of("sqlite", folder), clock) as registry:
        yield registry


@contextlib.asynccontextmanager
async def open_registry_at(
    url: str, clock: Clock | None = None, space: FreeSpace = UNLIMITED
) -> AsyncIterator[Registry]:
    registry = await Registry.open(url, KEY, clock=clock or ManualClock(), space=space)
    try:
        yield registry
    finally:
        await registry.close()


async def age_leases(registry: Registry, milliseconds: float) -> None:
    """Move the start of leases back in a database whose clock cannot be moved."""
    older = text("UPDATE lease_holders SET until = until - :age")
    await registry._database.put(lambda connection: connection.execute(older, {"age": round(milliseconds)}))


async def make_project(registry: Registry, name: str = "P") -> Project:
    return await registry.projects.create(ProjectName(name), "", None)


async def make_user(
    registry: Registry, name: str, roles: dict[ProjectId, tuple[str, ...]] | None = None, *service_roles: str
) -> User:
    details = UserDetails(service_roles=service_roles)
    return await registry.users.create(registry.users.creation(UserName(name), details, roles or {}, None))


async def service(registry: Registry, project: str | None = None, *, per_resource_auth: bool = True) -> Caller:
    admission = Admission(registry, service_token=SERVICE_TOKEN, per_resource_auth=per_resource_auth)
    return await admission.admit("users:list", SERVICE_TOKEN, ProjectName(project) if project else None)


async def admit_user(registry: Registry, action: str, user: User, project: str | None = None) -> Caller:
    return await Admission(registry).admit(action, user.token, ProjectName(project) if project else None)


async def administrator(registry: Registry) -> Caller:
    return await admit_user(registry, "users:list", await make_user(registry, "root", None, SERVICE_ADMIN))
