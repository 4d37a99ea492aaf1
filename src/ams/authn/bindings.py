"""What an administrator does with bindings (contract 7)."""

import re
from dataclasses import dataclass, replace

from ams.authn.rules import (
    BINDING_GONE,
    invalid,
    known_service_type,
    require_fields,
    require_host_of,
    require_name,
    require_supported,
)
from ams.authn.store import Store
from ams.authn.store.auth_methods import Types
from ams.authn.store.paging import EVERYTHING, Page, PageRequest
from ams.authn.values import X509, Binding, BindingId, ServiceType, ServiceTypeId
from ams.core import distinguished_names
from ams.core.errors import NotFound
from ams.core.names import new_uuid

WHAT = "binding"

_SHA256 = re.compile(r"([0-9a-f]{64})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingFields:
    """What a request says of a binding; None says nothing."""

    name: str | None = None
    """Only heard in an update: a new binding has the name of its path."""
    service_uuid: str | None = None
    host: str | None = None
    auth_identifier: str | None = None
    unique_key: str | None = None
    auth_type: str | None = None
    issuer: str | None = None
    subject_sha256: str | None = None


class Bindings:
    """Bindings by name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, name: str) -> Binding:
        """Return a binding; raise `NotFound`."""
        found = await self._store.bindings.find(name)
        if found is None:
            raise NotFound(BINDING_GONE)
        return found

    async def page(self, page: PageRequest = EVERYTHING) -> Page[Binding]:
        """Return all bindings, oldest first."""
        return await self._store.bindings.page(page)

    async def of_host(self, service_type: ServiceType, host: str, page: PageRequest = EVERYTHING) -> Page[Binding]:
        """Return the bindings of one host, oldest first; raise `NotFound` for the host."""
        require_host_of(service_type, host)
        return await self._store.bindings.page(page, service_type.uuid, host)

    async def of_identifier(self, service_type: ServiceType, host: str, identifier: str) -> Binding:
        """Return the binding of a certificate's subject on one host; raise `NotFound` for the host, then for it."""
        require_host_of(service_type, host)
        found = await self._store.bindings.for_login(identifier, service_type.uuid, host, X509)
        return await self.get(found.name if found else "")

    async def create(self, name: str, fields: BindingFields) -> Binding:
        """Make a binding. Raises `Unprocessable`, `NotFound`, `AlreadyExists`, in the order of contract 7."""
        made = Binding(
            uuid=BindingId(new_uuid()),
            name=name,
            service_uuid=ServiceTypeId(fields.service_uuid or ""),
            host=fields.host or "",
            auth_identifier=fields.auth_identifier or "",
            unique_key=fields.unique_key or "",
            auth_type=fields.auth_type or "",
            issuer=fields.issuer or "",
            subject_sha256=fields.subject_sha256 or "",
            created_on=self._store.clock.wall(),
        )
        _require_fields(made)
        service_type = await self._store.service_types.find_by_uuid(made.service_uuid)
        made = _checked(made, service_type)
        require_name(WHAT, name)
        await self._store.bindings.create(made)
        return made

    async def update(self, found: Binding, fields: BindingFields) -> Binding:
        """Change what `fields` say, `unique_key` too (15, A1). Raises as `create`."""
        return await self._store.bindings.change(
            found.name, self._store.clock.wall(), lambda present, types: _merged(present, fields, types)
        )

    async def delete(self, name: str) -> None:
        """Remove a binding; raise `NotFound`."""
        if not await self._store.bindings.delete(name):
            raise NotFound(BINDING_GONE)


def _merged(present: Binding, fields: BindingFields, types: Types) -> Binding:
    given = {name: getattr(fields, name) for name in BindingFields.__slots__}
    changed = replace(present, **{name: value for name, value in given.items() if value is not None})
    if fields.subject_sha256 is None and changed.auth_identifier != present.auth_identifier:
        changed = replace(changed, subject_sha256="")  # that was another's; scripts of the reference know of none
    _require_fields(changed)
    changed = _checked(changed, types(changed.service_uuid))
    if changed.name != present.name:
        require_name(WHAT, changed.name)
    return changed


def _require_fields(binding: Binding) -> None:
    names = ("name", "service_uuid", "host", "auth_identifier", "unique_key", "auth_type")
    require_fields(WHAT, [(name, getattr(binding, name)) for name in names])


def _checked(binding: Binding, service_type: ServiceType | None) -> Binding:
    """Return a binding that belongs where it says, its issuer in normal form."""
    service_type = known_service_type(service_type)
    require_host_of(service_type, binding.host)
    require_supported("Auth type", binding.auth_type, service_type.auth_types)
    if not _SHA256.fullmatch(binding.subject_sha256):
        raise invalid(WHAT, "subject_sha256", "Allowed: 64 hex digits in small letters, or nothing")
    return replace(binding, issuer=_normal(binding.issuer)) if binding.issuer else binding


def _normal(issuer: str) -> str:
    try:
        return distinguished_names.normalised(issuer)
    except ValueError:
        raise invalid(WHAT, "issuer", "Allowed: a distinguished name, or nothing") from None
