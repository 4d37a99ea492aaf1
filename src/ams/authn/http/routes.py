"""The routes of the certificate service (contract 3); keys and the audit log are ours."""

import platform
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

import ams
from ams.authn import values
from ams.authn.http.gate import Gate
from ams.authn.http.routing import Asked, Made, Row
from ams.authn.management import AuthMethods, Bindings, Keys, ServiceTypes, masked, require_kind, without_logins
from ams.authn.store.paging import Page
from ams.authn.values import Peer
from ams.core.clock import optional_date, resource_date
from ams.core.versions import version_of
from ams.storage.audit.event import LOGIN
from ams.wire import authn as wire
from ams.wire.authn import AuthMethodFields, BindingFields, KeyFields, ServiceTypeFields
from ams.wire.service import Version

TYPES = "/service-types"
TYPE = TYPES + "/{service-type}"
HOST = TYPE + "/hosts/{host}"

AuditRecords = Callable[[Asked, Collection[str]], Awaitable[object]]
"""Answers what is asked of the audit log, of which these are the actions, with what is written as JSON."""
Health = Callable[[], Awaitable[str]]
"""Returns what is wrong with the database; empty when it answers."""


class Login(Protocol):
    """Logs in by certificate (`ams.authn.login`)."""

    async def token(self, service_type: str, host: str, peer: Peer) -> str:
        """Return the service's token of the user that a certificate is bound to."""
        ...


class ServiceTypeRoutes:
    """Answers about service types."""

    def __init__(self, service_types: ServiceTypes) -> None:
        self._service_types = service_types

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("POST", TYPES, "service-types:create", self.create, changes=True),
            Row("GET", TYPES, "service-types:list", self.list),
            Row("GET", TYPE, "service-types:show", self.show),
            Row("PUT", TYPE, "service-types:update", self.update, changes=True),
            Row("DELETE", TYPE, "service-types:delete", self.delete, changes=True),
        ]

    async def create(self, asked: Asked) -> Made:
        """Make a service type."""
        made = await self._service_types.create(await asked.read(ServiceTypeFields))
        return Made(201, _service_type(made), f"/{made.name}")

    async def list(self, asked: Asked) -> Made:
        """List service types."""
        page = await self._service_types.page(asked.page())
        return Made(200, wire.ServiceTypes([_service_type(each) for each in page.items], page.next_token))

    async def show(self, asked: Asked) -> Made:
        """Show a service type."""
        found = await self._service_types.get(asked.names["service-type"])
        return Made(200, _service_type(found), version=version_of(found))

    async def update(self, asked: Asked) -> Made:
        """Change a service type."""
        found = await self._service_types.get(asked.names["service-type"])
        fields = await asked.read(ServiceTypeFields)
        return Made(200, _service_type(await self._service_types.update(found, fields, asked.expected)))

    async def delete(self, asked: Asked) -> Made:
        """Remove a service type, and all it has."""
        await self._service_types.delete(asked.names["service-type"])
        return Made(204)


class AuthMethodRoutes:
    """Answers about auth methods."""

    def __init__(self, service_types: ServiceTypes, auth_methods: AuthMethods) -> None:
        self._service_types = service_types
        self._auth_methods = auth_methods

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("POST", TYPE + "/authm", "auth-methods:create", self.create, changes=True),
            Row("GET", HOST + "/authm", "auth-methods:show", self.show),
            Row("PUT", HOST + "/authm", "auth-methods:update", self.update, changes=True),
            Row("DELETE", HOST + "/authm", "auth-methods:delete", self.delete, changes=True),
            Row("GET", "/authm", "auth-methods:list", self.list),
        ]

    async def create(self, asked: Asked) -> Made:
        """Make the auth method of a host."""
        service_type = await self._type(asked)
        require_kind(service_type)
        made = await self._auth_methods.create(service_type, await asked.read(AuthMethodFields))
        return Made(201, _auth_method(made), f"/{made.host}")

    async def show(self, asked: Asked) -> Made:
        """Show the auth method of a host."""
        found = await self._auth_methods.get(await self._type(asked), asked.names["host"])
        return Made(200, _auth_method(found), version=version_of(masked(found)))

    async def update(self, asked: Asked) -> Made:
        """Change the auth method of a host."""
        found = await self._auth_methods.get(await self._type(asked), asked.names["host"])
        changed = await self._auth_methods.update(found, await asked.read(AuthMethodFields), asked.expected)
        return Made(200, _auth_method(changed))

    async def delete(self, asked: Asked) -> Made:
        """Remove the auth method of a host."""
        await self._auth_methods.delete(await self._auth_methods.get(await self._type(asked), asked.names["host"]))
        return Made(204)

    async def list(self, asked: Asked) -> Made:
        """List auth methods."""
        page = await self._auth_methods.page(asked.page())
        return Made(200, wire.AuthMethods([_auth_method(each) for each in page.items], page.next_token))

    async def _type(self, asked: Asked) -> values.ServiceType:
        return await self._service_types.get(asked.names["service-type"])


class BindingRoutes:
    """Answers about bindings."""

    def __init__(self, service_types: ServiceTypes, bindings: Bindings) -> None:
        self._service_types = service_types
        self._bindings = bindings

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/bindings/{name}"
        return [
            Row("GET", HOST + "/bindings", "bindings:list", self.of_host),
            Row("POST", one, "bindings:create", self.create, changes=True),
            Row("GET", "/bindings", "bindings:list", self.list),
            Row("GET", one, "bindings:show", self.show),
            Row("PUT", one, "bindings:update", self.update, changes=True),
            Row("DELETE", one, "bindings:delete", self.delete, changes=True),
        ]

    async def of_host(self, asked: Asked) -> Made:
        """List the bindings of a host, or find the one of a subject."""
        service_type = await self._service_types.get(asked.names["service-type"])
        host, identifier = asked.names["host"], asked.parameter("authID")
        if identifier:
            found = await self._bindings.of_identifier(service_type, host, identifier)
            return Made(200, wire.Bindings([_binding(found)]))
        return Made(200, _listed(await self._bindings.of_host(service_type, host, asked.page())))

    async def create(self, asked: Asked) -> Made:
        """Bind a subject to a user."""
        made = await self._bindings.create(asked.names["name"], await asked.read(BindingFields))
        return Made(201, _binding(made))

    async def list(self, asked: Asked) -> Made:
        """List bindings."""
        return Made(200, _listed(await self._bindings.page(asked.page())))

    async def show(self, asked: Asked) -> Made:
        """Show a binding."""
        found = await self._bindings.get(asked.names["name"])
        return Made(200, _binding(found), version=version_of(without_logins(found)))

    async def update(self, asked: Asked) -> Made:
        """Change a binding."""
        found = await self._bindings.get(asked.names["name"])
        fields = await asked.read(BindingFields)
        return Made(200, _binding(await self._bindings.update(found, fields, asked.expected)))

    async def delete(self, asked: Asked) -> Made:
        """Remove a binding."""
        await self._bindings.delete(asked.names["name"])
        return Made(204)


class KeyRoutes:
    """Answers about named keys (15, A15)."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/keys/{name}"
        return [
            Row("GET", "/keys", "keys:list", self.list, of_keys=True),
            Row("POST", one, "keys:create", self.create, changes=True, of_keys=True),
            Row("DELETE", one, "keys:delete", self.delete, changes=True, of_keys=True),
        ]

    async def list(self, asked: Asked) -> Made:
        """List keys, without their secrets."""
        return Made(200, wire.Keys([_key(each) for each in await self._keys.all()]))

    async def create(self, asked: Asked) -> Made:
        """Make a key, and show its secret this once."""
        fields = await asked.read(KeyFields)
        return Made(201, _key(*await self._keys.create(asked.names["name"], fields.scope)))

    async def delete(self, asked: Asked) -> Made:
        """Revoke a key."""
        await self._keys.delete(asked.names["name"])
        return Made(204)


class OpenRoutes:
    """What is answered without a key."""

    def __init__(self, gate: Gate, login: Login, health: Health) -> None:
        self._gate = gate
        self._login = login
        self._health = health

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("GET", HOST + ":authx509", LOGIN, self.login, open=True),
            Row("GET", "/version", "version:show", self.version, open=True),
            Row("GET", "/health", "health:show", self.health, open=True),
        ]

    async def login(self, asked: Asked) -> Made:
        """Return the token of the user that a certificate is bound to (contract 8)."""
        token = await self._login.token(asked.names["service-type"], asked.names["host"], asked.peer)
        return Made(200, wire.Token(token))

    async def version(self, asked: Asked) -> Made:
        """Return the version; the release only to callers with a valid key (contract 3)."""
        known = await self._gate.knows(asked.headers, asked.query, asked.peer.address)
        version = Version(
            build_time=ams.__released__,
            golang=f"Python {platform.python_version()}",
            compiler=platform.python_implementation(),
            os=platform.system().lower(),
            architecture=platform.machine(),
            release=ams.__version__ if known else "",
            distro=_distribution(),
        )
        return Made(200, version)

    async def health(self, asked: Asked) -> Made:
        """Return the state of the service and its database; 200 in any case (15, A19)."""
        wrong = await self._health()
        return Made(200, {"status": "warning" if wrong else "ok", "database": wrong or "ok"})


def _service_type(value: values.ServiceType) -> wire.ServiceType:
    """Return a service type as it is shown."""
    return wire.ServiceType(
        name=value.name,
        hosts=value.hosts,
        auth_types=value.auth_types,
        auth_method=value.auth_method,
        uuid=value.uuid,
        created_on=resource_date(value.created_on),
        updated_on=optional_date(value.updated_on),
        type=value.type,
        verify_client_host=value.verify_client_host,
    )


def _auth_method(value: values.AuthMethod) -> wire.AuthMethod:
    """Return an auth method as it is shown: without its secrets."""
    shown = masked(value)
    return wire.AuthMethod(
        service_uuid=shown.service_uuid,
        port=shown.port,
        host=shown.host,
        type=shown.type,
        uuid=shown.uuid,
        created_on=resource_date(shown.created_on),
        updated_on=optional_date(shown.updated_on),
        access_key=shown.access_key,
        headers=dict(shown.headers),
    )


def _binding(value: values.Binding) -> wire.Binding:
    """Return a binding as it is shown."""
    return wire.Binding(
        name=value.name,
        service_uuid=value.service_uuid,
        host=value.host,
        auth_identifier=value.auth_identifier,
        uuid=value.uuid,
        auth_type=value.auth_type,
        unique_key=value.unique_key,
        created_on=resource_date(value.created_on),
        updated_on=optional_date(value.updated_on),
        last_auth=optional_date(value.last_auth),
        issuer=value.issuer,
        subject_sha256=value.subject_sha256,
    )


def _listed(page: Page[values.Binding]) -> wire.Bindings:
    return wire.Bindings([_binding(each) for each in page.items], page.next_token)


def _key(value: values.Key, secret: str = "") -> wire.Key:
    """Return a key as it is shown."""
    return wire.Key(value.name, value.scope, resource_date(value.created_on), secret)


def audit_rows(audit: AuditRecords | None, rows: Iterable[Row]) -> list[Row]:
    """Return the route of the audit log, if there is one; of the changes that `rows` make there may be events."""
    if audit is None:
        return []
    records, actions = audit, frozenset(row.action for row in rows if row.changes)

    async def show(asked: Asked) -> Made:
        return Made(200, await records(asked, actions))

    return [Row("GET", "/audit", "audit:list", show, of_keys=True)]


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
