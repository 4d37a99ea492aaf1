"""What an administrator does with auth methods (contract 6).

Their secrets are written, never read: answers show `MASK` in their place, and an update that sends it back keeps what
is stored (15, A16).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ams.authn.rules import (
    AUTH_METHOD_GONE,
    empty,
    invalid,
    known_service_type,
    require_fields,
    require_host_of,
)
from ams.authn.store import Store
from ams.authn.store.auth_methods import Types
from ams.authn.store.paging import EVERYTHING, Page, PageRequest
from ams.authn.values import API_KEY, HEADERS, AuthMethod, ServiceType, ServiceTypeId
from ams.core.errors import NotFound, Unavailable
from ams.core.names import new_uuid

WHAT = "auth method"
MASK = "***"
"""What is shown in the place of a secret."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthMethodFields:
    """What a request says of an auth method; None says nothing. What the kind does not have is passed over."""

    host: str | None = None
    port: int | None = None
    access_key: str | None = None
    headers: Mapping[str, str] | None = None
    service_uuid: str | None = None
    """Only heard in an update."""


class AuthMethods:
    """Auth methods by service type and host."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, service_type: ServiceType, host: str) -> AuthMethod:
        """Return the auth method of a host, with its secrets; raise `NotFound` for the host, then for it."""
        require_host_of(service_type, host)
        found = await self._store.auth_methods.find(service_type.uuid, host)
        if found is None:
            raise NotFound(AUTH_METHOD_GONE)
        return found

    async def page(self, page: PageRequest = EVERYTHING) -> Page[AuthMethod]:
        """Return auth methods, oldest first, with their secrets."""
        return await self._store.auth_methods.page(page)

    async def create(self, service_type: ServiceType, fields: AuthMethodFields) -> AuthMethod:
        """Make an auth method of the service type's kind. Raises `Unprocessable`, `NotFound`, `AlreadyExists`."""
        require_fields(WHAT, [("port", fields.port), ("host", fields.host)])
        require_host_of(service_type, fields.host or "")
        made = AuthMethod(
            uuid=new_uuid(),
            service_uuid=service_type.uuid,
            host=fields.host or "",
            port=fields.port or 0,
            type=service_type.auth_method,
            access_key=fields.access_key or "",
            headers=dict(fields.headers or {}),
            created_on=self._store.clock.wall(),
        )
        made = _of_its_kind(made)
        _check_secrets(made)
        _check_port(made.port)
        await self._store.auth_methods.create(made)
        return made

    async def update(self, found: AuthMethod, fields: AuthMethodFields) -> AuthMethod:
        """Change what `fields` say; headers are replaced as a whole (15, A2).

        Raises `Unprocessable`, `NotFound` for the service type or host it shall belong to, `AlreadyExists`, and
        `Conflict` for a service type of another kind.
        """
        return await self._store.auth_methods.change(
            found.uuid, self._store.clock.wall(), lambda present, types: _merged(present, fields, types)
        )

    async def delete(self, found: AuthMethod) -> None:
        """Remove an auth method; raise `NotFound`."""
        if not await self._store.auth_methods.delete(found.uuid):
            raise NotFound(AUTH_METHOD_GONE)


def require_kind(service_type: ServiceType) -> None:
    """Raise `Unavailable` for a kind that the settings allow and nobody has written (contract 6)."""
    if service_type.auth_method not in (API_KEY, HEADERS):
        raise Unavailable("Type is supported but not found")


def masked(method: AuthMethod) -> AuthMethod:
    """Return an auth method as it may be shown."""
    return replace(method, access_key=MASK if method.access_key else "", headers=dict.fromkeys(method.headers, MASK))


def _merged(present: AuthMethod, fields: AuthMethodFields, types: Types) -> AuthMethod:
    changed = replace(
        present,
        service_uuid=ServiceTypeId(present.service_uuid if fields.service_uuid is None else fields.service_uuid),
        host=present.host if fields.host is None else fields.host,
        port=present.port if fields.port is None else fields.port,
        access_key=_kept(fields.access_key, present.access_key),
        headers=present.headers if fields.headers is None else _kept_headers(fields.headers, present.headers),
    )
    require_fields(WHAT, [("service_uuid", changed.service_uuid), ("port", changed.port), ("host", changed.host)])
    require_host_of(known_service_type(types(changed.service_uuid)), changed.host)
    changed = _of_its_kind(changed)
    _check_secrets(changed)
    _check_port(changed.port)
    return changed


def _kept(given: str | None, stored: str) -> str:
    return stored if given is None or given == MASK else given


def _kept_headers(given: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Return the headers as given, with stored values where the mask came back."""
    known = {name.lower(): value for name, value in stored.items()}
    return {name: _kept(value, known.get(name.lower(), MASK)) for name, value in given.items()}


def _of_its_kind(method: AuthMethod) -> AuthMethod:
    return replace(method, headers={}) if method.type == API_KEY else replace(method, access_key="")


def _check_secrets(method: AuthMethod) -> None:
    if method.type == API_KEY:
        if not method.access_key:
            raise empty(WHAT, "access_key")
        if method.access_key == MASK:
            raise invalid(WHAT, "access_key", f"{MASK} stands for a secret that is stored, and none is")
        return
    if not method.headers:
        raise empty(WHAT, "headers")
    for name, value in method.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise invalid(WHAT, "headers", "Allowed: names and values as HTTP has them")
        if value == MASK:
            raise invalid(WHAT, "headers", f"{MASK} stands for a secret that is stored, and none is")


def _check_port(port: int) -> None:
    if not 1 <= port <= 65535:
        raise invalid(WHAT, "port", "Allowed: 1 to 65535")
