"""The routes of the certificate service (contract 3), and which one a request is for; keys and the audit log are ours.

Values of a path are single segments, decoded after the path was cut.
"""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import ams
from ams.authn import values
from ams.authn.http import json_bodies
from ams.authn.http.errors import MethodNotAllowed
from ams.authn.http.gate import Gate
from ams.authn.login import Login
from ams.authn.management import AuthMethods, Bindings, Keys, ServiceTypes, masked, require_kind, without_logins
from ams.authn.store import Store
from ams.authn.store.records import Page, PageRequest
from ams.authn.values import Peer
from ams.core.clock import optional_date, resource_date
from ams.core.errors import BadRequest, NotFound, RegistryUnavailable
from ams.core.versions import Precondition, read_if_match, version_of
from ams.http.asgi import Header, query_value
from ams.storage.audit.event import LOGIN
from ams.wire import authn as wire
from ams.wire.authn import AuthMethodFields, BindingFields, KeyFields, ServiceTypeFields
from ams.wire.base import Object, Request
from ams.wire.service import Version

T = TypeVar("T", bound=Request)
Shown = TypeVar("Shown", bound=Object)

TYPES = "/service-types"
TYPE = TYPES + "/{service-type}"
HOST = TYPE + "/hosts/{host}"
CHANGES = frozenset(
    f"{kind}:{verb}"
    for kind, verbs in {
        "service-types": ("create", "update", "delete"), "auth-methods": ("create", "update", "delete"),
        "bindings": ("create", "update", "delete"), "keys": ("create", "delete"),
    }.items()
    for verb in verbs
)  # fmt: skip
"""Actions of which there may be events: those of rows with `changes`."""
NOWHERE = "Page not found"
HEALTH_SECONDS = 2.0
_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was admitted; `names` are values of the path by variable."""

    names: Mapping[str, str]
    query: bytes
    headers: Sequence[Header]
    peer: Peer
    body: Callable[[], Awaitable[bytes]]

    @property
    def expected(self) -> Precondition:
        """The versions that a change is meant for; raises `InvalidInput`."""
        return read_if_match(",".join(value.decode("latin-1") for name, value in self.headers if name == b"if-match"))

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter, empty without one."""
        return query_value(self.query, name) or ""

    async def read(self, fields: type[T]) -> T:
        """Return the body as what its fields say; raise `BadRequest`."""
        return json_bodies.read(await self.body(), fields)

    def page(self) -> PageRequest:
        """Return which page is asked for; everything unless `pageSize` says otherwise. Raises `BadRequest`."""
        size = self.parameter("pageSize") or "0"
        if not size.isascii() or not size.isdigit() or len(size) > _MAX_DIGITS:
            raise BadRequest("Invalid page size")
        return PageRequest(int(size), self.parameter("pageToken"))


class Made(NamedTuple):
    """An answer: its status, and the object that is written as JSON; nothing for a 204."""

    code: int
    body: object = None
    name: str = ""  # follows the path in the audit log, where the path does not name what was made
    version: str = ""  # of the object, for `If-Match`; empty for one that has none


Handler = Callable[[Asked], Awaitable[Made]]


class Row(NamedTuple):
    """A method and path below `/v1`, its action, and its handler."""

    method: str
    path: str
    action: str
    handler: Handler
    open: bool = False  # whether no key is needed
    changes: bool = False  # whether a read-only key is not enough, and the request goes into the audit log
    of_keys: bool = False  # whether it is about keys or the audit log, which named keys may not use


class Routes:
    """The table of routes."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = [(row, tuple(f"/v1{row.path}".split("/"))) for row in rows]

    def find(self, method: str, scope: Mapping[str, Any]) -> tuple[Row, dict[str, str]]:
        """Return the route of a request and the values of its path; raise `NotFound` or `MethodNotAllowed`."""
        raw = scope.get("raw_path")
        segments = [unquote(part) for part in raw.decode("latin-1").split("/")] if raw else scope["path"].split("/")
        found = [(row, names) for row, pattern in self._rows if (names := _match(pattern, segments)) is not None]
        if not found:
            raise NotFound(NOWHERE)
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


AuditAnswer = Callable[[Asked, Collection[str]], Awaitable[object]]
"""Answers a request for the audit log, whose actions are these, with the object that is written as JSON."""


@dataclass(slots=True, kw_only=True)
class Handlers:
    """Answers each route by a use case."""

    gate: Gate
    store: Store
    service_types: ServiceTypes
    auth_methods: AuthMethods
    bindings: Bindings
    keys: Keys
    login: Login
    audit: AuditAnswer | None = None

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        method, binding, key = HOST + "/authm", "/bindings/{name}", "/keys/{name}"
        rows = [
            Row("POST", TYPES, "service-types:create", self._create_type, changes=True),
            Row("GET", TYPES, "service-types:list", self._list_types),
            *_of_one(TYPE, "service-types", self._type, self.service_types, ServiceTypeFields, _service_type),
            Row("POST", TYPE + "/authm", "auth-methods:create", self._create_method, changes=True),
            *_of_one(method, "auth-methods", self._stored_method, self.auth_methods, AuthMethodFields, _method, masked),
            Row("GET", "/authm", "auth-methods:list", self._list_methods),
            Row("GET", HOST + "/bindings", "bindings:list", self._list_host_bindings),
            Row("POST", binding, "bindings:create", self._create_binding, changes=True),
            Row("GET", "/bindings", "bindings:list", self._list_bindings),
            *_of_one(binding, "bindings", self._binding, self.bindings, BindingFields, _binding, without_logins),
            Row("GET", "/keys", "keys:list", self._list_keys, of_keys=True),
            Row("POST", key, "keys:create", self._create_key, changes=True, of_keys=True),
            Row("DELETE", key, "keys:delete", self._delete_key, changes=True, of_keys=True),
            Row("GET", HOST + ":authx509", LOGIN, self._log_in, open=True),
            Row("GET", "/version", "version:show", self._show_version, open=True),
            Row("GET", "/health", "health:show", self._show_health, open=True),
        ]
        if self.audit is not None:
            audit = self.audit

            async def show_audit(asked: Asked) -> Made:
                return Made(200, await audit(asked, CHANGES))

            rows.append(Row("GET", "/audit", "audit:list", show_audit, of_keys=True))
        return rows

    async def _create_type(self, asked: Asked) -> Made:
        made = await self.service_types.create(await asked.read(ServiceTypeFields))
        return Made(201, _service_type(made), f"/{made.name}")

    async def _list_types(self, asked: Asked) -> Made:
        page = await self.store.service_types.page(asked.page())
        return Made(200, wire.ServiceTypes([_service_type(each) for each in page.items], page.next_token))

    async def _type(self, asked: Asked) -> values.ServiceType:
        return await self.service_types.get(asked.names["service-type"])

    async def _create_method(self, asked: Asked) -> Made:
        service_type = await self._type(asked)
        require_kind(service_type)
        made = await self.auth_methods.create(service_type, await asked.read(AuthMethodFields))
        return Made(201, _method(made), f"/{made.host}")

    async def _stored_method(self, asked: Asked) -> values.AuthMethod:
        return await self.auth_methods.get(await self._type(asked), asked.names["host"])

    async def _list_methods(self, asked: Asked) -> Made:
        page = await self.store.auth_methods.page(asked.page())
        return Made(200, wire.AuthMethods([_method(each) for each in page.items], page.next_token))

    async def _list_host_bindings(self, asked: Asked) -> Made:
        service_type = await self._type(asked)
        host, identifier = asked.names["host"], asked.parameter("authID")
        if identifier:
            found = await self.bindings.of_identifier(service_type, host, identifier)
            return _binding_page(Page([found]))
        return _binding_page(await self.bindings.of_host(service_type, host, asked.page()))

    async def _create_binding(self, asked: Asked) -> Made:
        made = await self.bindings.create(asked.names["name"], await asked.read(BindingFields))
        return Made(201, _binding(made))

    async def _list_bindings(self, asked: Asked) -> Made:
        return _binding_page(await self.store.bindings.page(asked.page()))

    async def _binding(self, asked: Asked) -> values.Binding:
        return await self.bindings.get(asked.names["name"])

    async def _list_keys(self, asked: Asked) -> Made:
        return Made(200, wire.Keys([_key(each) for each in await self.store.keys.all()]))

    async def _create_key(self, asked: Asked) -> Made:
        fields = await asked.read(KeyFields)
        return Made(201, _key(*await self.keys.create(asked.names["name"], fields.scope)))

    async def _delete_key(self, asked: Asked) -> Made:
        await self.keys.delete(asked.names["name"])
        return Made(204)

    async def _log_in(self, asked: Asked) -> Made:
        token = await self.login.token(asked.names["service-type"], asked.names["host"], asked.peer)
        return Made(200, wire.Token(token))

    async def _show_version(self, asked: Asked) -> Made:
        """Show the version; the release only to callers with a valid key (contract 3)."""
        known = await self.gate.knows(asked.headers, asked.query, asked.peer.address)
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

    async def _show_health(self, asked: Asked) -> Made:
        """Show the state of the service and its database; 200 in any case (15, A19)."""
        wrong = self.store.away
        if wrong is None:
            try:
                async with asyncio.timeout(HEALTH_SECONDS):
                    await self.store.check()
            except (RegistryUnavailable, TimeoutError):
                wrong = "the database does not answer"
        wrong = wrong or self.store.refusal
        return Made(200, {"status": "warning" if wrong else "ok", "database": wrong or "ok"})


def _of_one(
    path: str, kind: str, find: Callable[[Asked], Awaitable[Any]], cases: Any, fields: type[Request],
    shape: Callable[[Any], object], seen: Callable[[Any], object] = lambda found: found,
) -> Iterable[Row]:  # fmt: skip
    """Yield the rows that show, change and remove one of a kind; `seen` is what its version is of."""

    async def show(asked: Asked) -> Made:
        found = await find(asked)
        return Made(200, shape(found), version=version_of(seen(found)))

    async def update(asked: Asked) -> Made:
        return Made(200, shape(await cases.update(await find(asked), await asked.read(fields), asked.expected)))

    async def delete(asked: Asked) -> Made:
        await cases.delete(await find(asked), asked.expected)
        return Made(204)

    yield Row("GET", path, f"{kind}:show", show)
    yield Row("PUT", path, f"{kind}:update", update, changes=True)
    yield Row("DELETE", path, f"{kind}:delete", delete, changes=True)


def _shown(kind: type[Shown], value: object) -> Shown:
    """Return a record as it is shown: its fields of the same names, and its times as dates."""
    said = {name: getattr(value, name) for name in kind.__struct_fields__}
    times = {name: optional_date(said[name]) for name in ("created_on", "updated_on", "last_auth") if name in said}
    return kind(**said | times)


_service_type, _binding = partial(_shown, wire.ServiceType), partial(_shown, wire.Binding)


def _method(value: values.AuthMethod) -> wire.AuthMethod:
    return _shown(wire.AuthMethod, masked(value))


def _binding_page(page: Page[values.Binding]) -> Made:
    return Made(200, wire.Bindings([_binding(each) for each in page.items], page.next_token))


def _key(value: values.Key, secret: str = "") -> wire.Key:
    return wire.Key(value.name, value.scope, resource_date(value.created_on), secret)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
