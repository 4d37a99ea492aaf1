"""What an administrator does with service types (contract 5)."""

from dataclasses import dataclass, replace

from ams.authn.rules import (
    SERVICE_TYPE_GONE,
    empty,
    known_service_type,
    require_fields,
    require_host,
    require_name,
    require_supported,
)
from ams.authn.store import Store
from ams.authn.store.paging import EVERYTHING, Page, PageRequest
from ams.authn.values import ServiceType, ServiceTypeId
from ams.core.errors import NotFound
from ams.core.names import new_uuid

WHAT = "service-type"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTypeFields:
    """What a request says of a service type; None says nothing."""

    name: str | None = None
    hosts: tuple[str, ...] | None = None
    auth_types: tuple[str, ...] | None = None
    auth_method: str | None = None
    type: str | None = None
    verify_client_host: bool | None = None


@dataclass(frozen=True, slots=True)
class Supported:
    """What the settings let service types have (contract 11)."""

    auth_types: tuple[str, ...]
    auth_methods: tuple[str, ...]
    types: tuple[str, ...]


class ServiceTypes:
    """Service types by name."""

    def __init__(self, store: Store, supported: Supported) -> None:
        self._store = store
        self._supported = supported

    async def get(self, name: str) -> ServiceType:
        """Return a service type; raise `NotFound`."""
        return known_service_type(await self._store.service_types.find(name))

    async def page(self, page: PageRequest = EVERYTHING) -> Page[ServiceType]:
        """Return service types, oldest first."""
        return await self._store.service_types.page(page)

    async def create(self, fields: ServiceTypeFields) -> ServiceType:
        """Make a service type. Raises `Unprocessable`, then `AlreadyExists`."""
        self._check(fields)
        require_name(WHAT, fields.name or "")
        hosts = _without_repetition(fields.hosts or ())
        _check_hosts(hosts)
        made = ServiceType(
            uuid=ServiceTypeId(new_uuid()),
            name=fields.name or "",
            hosts=hosts,
            auth_types=_without_repetition(fields.auth_types or ()),
            auth_method=fields.auth_method or "",
            type=fields.type or "",
            verify_client_host=bool(fields.verify_client_host),
            created_on=self._store.clock.wall(),
        )
        await self._store.service_types.create(made)
        return made

    async def update(self, found: ServiceType, fields: ServiceTypeFields) -> ServiceType:
        """Change what `fields` say, `type` aside, which stays (contract 5).

        Raises `NotFound`, `Unprocessable`, `AlreadyExists`, and `Conflict` for what is in use (15, A6).
        """
        return await self._store.service_types.change(
            found.uuid, self._store.clock.wall(), lambda present: self._merged(present, fields)
        )

    async def delete(self, name: str) -> None:
        """Remove a service type with all auth methods and bindings it has (15, A3); raise `NotFound`."""
        found = await self.get(name)
        if not await self._store.service_types.delete(found.uuid):
            raise NotFound(SERVICE_TYPE_GONE)

    def _merged(self, present: ServiceType, fields: ServiceTypeFields) -> ServiceType:
        name = present.name if fields.name is None else fields.name
        hosts = present.hosts if fields.hosts is None else _without_repetition(fields.hosts)
        auth_types = present.auth_types if fields.auth_types is None else _without_repetition(fields.auth_types)
        auth_method = present.auth_method if fields.auth_method is None else fields.auth_method
        verify = present.verify_client_host if fields.verify_client_host is None else fields.verify_client_host
        self._check(
            ServiceTypeFields(name=name, hosts=hosts, auth_types=auth_types, auth_method=auth_method, type=present.type)
        )
        if name != present.name:
            require_name(WHAT, name)
        _check_hosts(tuple(host for host in hosts if host not in present.hosts))
        return replace(
            present,
            name=name,
            hosts=hosts,
            auth_types=auth_types,
            auth_method=auth_method,
            verify_client_host=verify,
        )

    def _check(self, fields: ServiceTypeFields) -> None:
        names = ("name", "hosts", "auth_types", "auth_method", "type")
        require_fields(WHAT, [(name, getattr(fields, name)) for name in names])
        if not fields.hosts:
            raise empty(WHAT, "hosts")
        require_supported("auth_method", fields.auth_method or "", self._supported.auth_methods)
        for each in fields.auth_types or ("empty",):
            require_supported("auth_types", each, self._supported.auth_types)
        require_supported("type", fields.type or "", self._supported.types)


def _check_hosts(hosts: tuple[str, ...]) -> None:
    for host in hosts:
        require_host(WHAT, "hosts", host)


def _without_repetition(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
