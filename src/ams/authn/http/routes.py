"""The routes of the certificate service (contract 3) and their handlers; keys and the audit log are our extensions.

A variable of a path is one segment, decoded after the path was split.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import ams
from ams.authn import values
from ams.authn.http import json_bodies
from ams.authn.http.authentication import Caller, ManagementGate
from ams.authn.http.errors import MethodNotAllowed
from ams.authn.login import Login
from ams.authn.management import AuthMethods, ServiceTypes, SubjectBindings, create_key, mask_secrets, without_logins
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.records import Page, PageRequest
from ams.authn.values import Peer
from ams.core.clock import optional_date, resource_date
from ams.core.errors import BadRequest, NotFound, RegistryUnavailable
from ams.core.telemetry import describe_runtime
from ams.core.versions import Precondition, read_if_match, version_of
from ams.http.asgi import Header, query_value
from ams.storage.audit.event import LOGIN
from ams.storage.audit.records import event_filter
from ams.wire import authn as wire
from ams.wire.authn import AuthMethodFields, BindingFields, KeyFields, ServiceTypeFields
from ams.wire.base import Object, Request
from ams.wire.service import Version

T = TypeVar("T", bound=Request)
Shown = TypeVar("Shown", bound=Object)

TYPES = "/service-types"
TYPE = TYPES + "/{service-type}"
HOST = TYPE + "/hosts/{host}"
_KINDS, _VERBS = ("service-types", "auth-methods", "bindings"), ("create", "update", "delete")
# Audited actions: those of rows with `changes`.
CHANGE_ACTIONS = frozenset([f"{kind}:{verb}" for kind in _KINDS for verb in _VERBS] + ["keys:create", "keys:delete"])
HEALTH_SECONDS = 2.0
_MAX_DIGITS = 9


@dataclass(slots=True)
class AuthnCall:
    """A request; `names` are variables of the path. `body` reads its body."""

    path: str
    names: Mapping[str, str]
    query: bytes
    headers: Sequence[Header]
    peer: Peer
    body: Callable[["AuthnCall"], Awaitable[bytes]]
    caller: Caller | None = None  # None before admission

    @property
    def expected_version(self) -> Precondition:
        """The versions that a change is for (`If-Match`). Raises `InvalidInput`."""
        return read_if_match(",".join(value.decode("latin-1") for name, value in self.headers if name == b"if-match"))

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter; empty if absent."""
        return query_value(self.query, name) or ""

    async def read_body(self, fields: type[T]) -> T:
        """Return the parsed body. Raises `BadRequest`."""
        return json_bodies.read_body(await self.body(self), fields)

    def page(self) -> PageRequest:
        """Return the requested page; everything without `pageSize`. Raises `BadRequest`."""
        size = self.parameter("pageSize") or "0"
        if not size.isascii() or not size.isdigit() or len(size) > _MAX_DIGITS:
            raise BadRequest("Invalid page size")
        return PageRequest(int(size), self.parameter("pageToken"))


class Reply(NamedTuple):
    """An answer: its status, and its JSON object; none for a 204."""

    code: int
    body: object = None
    name: str = ""  # appended to the path in the audit log, if the path does not name the new object
    version: str = ""  # of the object, for `If-Match`; empty if it has none


Handler = Callable[[AuthnCall], Awaitable[Reply]]


class AuthnRoute(NamedTuple):
    """A method and path below `/v1`, its action, and its handler."""

    method: str
    path: str
    action: str
    handler: Handler
    open: bool = False  # True: no key needed
    changes: bool = False  # True: a read-only key is not enough, and the request is audited
    of_keys: bool = False  # True: about keys or the audit log, forbidden to named keys


class Routes:
    """The table of routes."""

    def __init__(self, rows: Iterable[AuthnRoute]) -> None:
        self._rows = [(row, tuple(f"/v1{row.path}".split("/"))) for row in rows]

    def find(self, method: str, scope: Mapping[str, Any]) -> tuple[AuthnRoute, dict[str, str]]:
        """Return the route of a request and its path variables. Raises `NotFound` or `MethodNotAllowed`."""
        raw = scope.get("raw_path")
        segments = [unquote(part) for part in raw.decode("latin-1").split("/")] if raw else scope["path"].split("/")
        found = [(row, names) for row, pattern in self._rows if (names := _match(pattern, segments)) is not None]
        if not found:
            raise NotFound("Page not found")
        for row, names in found:
            if row.method == method:
                return row, names
        raise MethodNotAllowed(tuple(row.method for row, _ in found))


def _match(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    names: dict[str, str] = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if not wanted.startswith("{"):
            if wanted != given:
                return None
            continue
        name, _, suffix = wanted[1:].partition("}")
        value = given.removesuffix(suffix)
        if not value or (suffix and value == given):
            return None
        names[name] = value
    return names


class Handlers:
    """Handlers of all routes."""

    def __init__(self, gate: ManagementGate, store: Store, login: Login, settings: AuthnSettings) -> None:
        self.gate = gate
        self._store, self._login = store, login
        self._service_types = ServiceTypes(store, settings)
        self._auth_methods, self._bindings = AuthMethods(store), SubjectBindings(store)

    def rows(self) -> list[AuthnRoute]:
        """Return the rows of the route table."""
        method, binding, key, store = HOST + "/authm", "/bindings/{name}", "/keys/{name}", self._store
        return [
            AuthnRoute("POST", TYPES, "service-types:create", self._create_type, changes=True),
            AuthnRoute("GET", TYPES, "service-types:list", _all(store.service_types, wire.ServiceTypes, _service_type)),
            *_of_one(TYPE, "service-types", self._type, self._service_types, ServiceTypeFields, _service_type),
            AuthnRoute("POST", TYPE + "/authm", "auth-methods:create", self._create_method, changes=True),
            *_of_one(
                method, "auth-methods", self._stored_method, self._auth_methods, AuthMethodFields, _method, mask_secrets
            ),
            AuthnRoute("GET", "/authm", "auth-methods:list", _all(store.auth_methods, wire.AuthMethods, _method)),
            AuthnRoute("GET", HOST + "/bindings", "bindings:list", self._list_host_bindings),
            AuthnRoute("POST", binding, "bindings:create", self._create_binding, changes=True),
            AuthnRoute("GET", "/bindings", "bindings:list", _all(store.bindings, wire.Bindings, _binding)),
            *_of_one(binding, "bindings", self._binding, self._bindings, BindingFields, _binding, without_logins),
            AuthnRoute("GET", "/keys", "keys:list", self._list_keys, of_keys=True),
            AuthnRoute("POST", key, "keys:create", self._create_key, changes=True, of_keys=True),
            AuthnRoute("DELETE", key, "keys:delete", self._delete_key, changes=True, of_keys=True),
            AuthnRoute("GET", HOST + ":authx509", LOGIN, self._log_in, open=True),
            AuthnRoute("GET", "/version", "version:show", self._show_version, open=True),
            AuthnRoute("GET", "/health", "health:show", self._show_health, open=True),
            AuthnRoute("GET", "/audit", "audit:list", self._list_events, of_keys=True),
        ]

    async def _create_type(self, asked: AuthnCall) -> Reply:
        made = await self._service_types.create(await asked.read_body(ServiceTypeFields))
        return Reply(201, _service_type(made), f"/{made.name}")

    async def _type(self, asked: AuthnCall) -> values.ServiceType:
        return await self._service_types.get(asked.names["service-type"])

    async def _create_method(self, asked: AuthnCall) -> Reply:
        service_type = await self._type(asked)
        self._auth_methods.require_kind(service_type)
        made = await self._auth_methods.create(service_type, await asked.read_body(AuthMethodFields))
        return Reply(201, _method(made), f"/{made.host}")

    async def _stored_method(self, asked: AuthnCall) -> values.AuthMethod:
        return await self._auth_methods.get(await self._type(asked), asked.names["host"])

    async def _list_host_bindings(self, asked: AuthnCall) -> Reply:
        service_type, identifier = await self._type(asked), asked.parameter("authID")
        asked_page = PageRequest() if identifier else asked.page()
        page = await self._bindings.of_host(service_type, asked.names["host"], identifier, asked_page)
        return _listing(wire.Bindings, _binding, page)

    async def _create_binding(self, asked: AuthnCall) -> Reply:
        made = await self._bindings.create(asked.names["name"], await asked.read_body(BindingFields))
        return Reply(201, _binding(made))

    async def _binding(self, asked: AuthnCall) -> values.SubjectBinding:
        return await self._bindings.get(asked.names["name"])

    async def _list_keys(self, asked: AuthnCall) -> Reply:
        return Reply(200, wire.Keys([_key(each) for each in await self._store.keys.all()]))

    async def _create_key(self, asked: AuthnCall) -> Reply:
        fields = await asked.read_body(KeyFields)
        return Reply(201, _key(*await create_key(self._store, asked.names["name"], fields.scope)))

    async def _delete_key(self, asked: AuthnCall) -> Reply:
        await self._store.keys.delete(asked.names["name"])
        return Reply(204)

    async def _list_events(self, asked: AuthnCall) -> Reply:
        filters, page = event_filter(asked.parameter, CHANGE_ACTIONS), asked.page()
        return Reply(200, await self._store.events.list(filters, page.size, page.token))

    async def _log_in(self, asked: AuthnCall) -> Reply:
        token = await self._login.token(asked.names["service-type"], asked.names["host"], asked.peer)
        return Reply(200, wire.Token(token))

    async def _show_version(self, asked: AuthnCall) -> Reply:
        """Show the version; the release only to callers with a valid key (contract 3)."""
        known = await self.gate.knows(asked.headers, asked.query, asked.peer.address)
        return Reply(200, Version(**describe_runtime(), release=ams.__version__ if known else ""))

    async def _show_health(self, asked: AuthnCall) -> Reply:
        """Show the state of the service and its database; always 200 (15, A19)."""
        if (wrong := self._store.database.away) is None:
            try:
                async with asyncio.timeout(HEALTH_SECONDS):
                    await self._store.check()
            except (RegistryUnavailable, TimeoutError):
                wrong = "the database does not answer"
        wrong = wrong or self._store.refusal
        return Reply(200, {"status": "warning" if wrong else "ok", "database": wrong or "ok"})


def _of_one(
    path: str, kind: str, find: Callable[[AuthnCall], Awaitable[Any]], cases: Any, fields: type[Request],
    shape: Callable[[Any], object], seen: Callable[[Any], object] = lambda found: found,
) -> Iterable[AuthnRoute]:  # fmt: skip
    """Yield the rows that show, change and delete one object of a kind; `seen` is the part that has a version."""

    async def show(asked: AuthnCall) -> Reply:
        found = await find(asked)
        return Reply(200, shape(found), version=version_of(seen(found)))

    async def update(asked: AuthnCall) -> Reply:
        found, body, expected = await find(asked), await asked.read_body(fields), asked.expected_version
        return Reply(200, shape(await cases.update(found, body, expected.seen_by(seen))))

    async def delete(asked: AuthnCall) -> Reply:
        await cases.records.delete(await find(asked), asked.expected_version.seen_by(seen))
        return Reply(204)

    yield AuthnRoute("GET", path, f"{kind}:show", show)
    yield AuthnRoute("PUT", path, f"{kind}:update", update, changes=True)
    yield AuthnRoute("DELETE", path, f"{kind}:delete", delete, changes=True)


def _wire_record(kind: type[Shown], value: object) -> Shown:
    said = {name: getattr(value, name) for name in kind.__struct_fields__}
    times = {name: optional_date(said[name]) for name in ("created_on", "updated_on", "last_auth") if name in said}
    return kind(**said | times)


_service_type, _binding = partial(_wire_record, wire.ServiceType), partial(_wire_record, wire.Binding)


def _method(value: values.AuthMethod) -> wire.AuthMethod:
    return _wire_record(wire.AuthMethod, mask_secrets(value))


def _all(records: Any, kind: Callable[[list[Any], str], object], shape: Callable[[Any], object]) -> Handler:
    async def list_page(asked: AuthnCall) -> Reply:
        return _listing(kind, shape, await records.page(asked.page()))

    return list_page


def _listing(kind: Callable[[list[Any], str], object], shape: Callable[[Any], object], page: Page[Any]) -> Reply:
    return Reply(200, kind([shape(each) for each in page.items], page.next_token))


def _key(value: values.ManagementKey, secret: str = "") -> wire.Key:
    return wire.Key(value.name, value.scope, resource_date(value.created_on), secret)
