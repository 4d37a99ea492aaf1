"""The certificate service in this process: a store on either engine, its routes, and a login that knows only
bindings."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from ams.authn.http.app import AuthnApp
from ams.authn.http.authentication import AmsUsers, ManagementGate
from ams.authn.http.routes import Handlers
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.values import PEER, X509, Peer
from ams.core.errors import NotFound
from ams.core.rate import LoginLimit
from ams.storage.free_space import UNLIMITED, FreeSpace
from tests.support.administration import KeptTrail
from tests.support.clock import ManualClock

KEY = bytes(range(32))
MANAGEMENT_KEY = "the-management-key"
ADDRESS = "192.0.2.7"
HOST = "ams.example"
DN = "CN=*.einfra.example,O=NATIONAL INFRASTRUCTURES & TECHNOLOGY S.A.,ST=Attikí,C=GR"


@dataclass
class LoginOf:
    """Admits one subject everywhere: the token is made of the binding's user and of the host's arguments."""

    store: Store
    subject: str = DN

    async def token(self, service_type: str, host: str, peer: Peer) -> str:
        found = await self.store.service_types.find(service_type)
        if found is None:
            raise NotFound("Service-type was not found")
        method = await self.store.auth_methods.find(found.uuid, host)
        if method is None:
            raise NotFound("Auth method was not found")
        binding = await self.store.bindings.for_login(self.subject, found.uuid, host, X509)
        if binding is None:
            raise NotFound("Binding was not found")
        return f"{binding.unique_key} by {dict(method.headers) or method.access_key}"


@dataclass
class Service:
    store: Store
    clock: ManualClock
    trail: KeptTrail
    app: AuthnApp
    client: httpx.AsyncClient

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str = MANAGEMENT_KEY, if_match: str = ""
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else None
        return await self.client.request(
            method, f"/v1{path}", content=content, json=None if content is not None else body,
            headers=({"x-api-key": key} if key else {}) | ({"if-match": if_match} if if_match else {}),
        )  # fmt: skip

    async def service_type(self, name: str = "ams", *hosts: str, **more: Any) -> dict[str, Any]:
        body = {
            "name": name, "hosts": list(hosts or (HOST,)), "auth_types": ["x509"], "auth_method": "headers",
            "type": "ams",
        }  # fmt: skip
        return created_body(await self.call("POST", "/service-types", body | more))

    async def binding(self, name: str, of: dict[str, Any], /, **more: Any) -> dict[str, Any]:
        return created_body(await self.call("POST", f"/bindings/{name}", binding_of(of) | more))

    async def auth_method(self, of: dict[str, Any], **more: Any) -> dict[str, Any]:
        body = {"port": 443, "host": HOST, "headers": {"x-api-key": "a-secret-of-ams"}}
        return created_body(await self.call("POST", f"/service-types/{of['name']}/authm", body | more))

    async def login(self, name: str = "ams", host: str = HOST) -> httpx.Response:
        return await self.call("GET", f"/service-types/{name}/hosts/{host}:authx509", key="")


def binding_of(service_type: dict[str, Any]) -> dict[str, Any]:
    return {
        "service_uuid": service_type["uuid"], "host": HOST, "auth_identifier": DN, "unique_key": "a-user",
        "auth_type": "x509",
    }  # fmt: skip


def created_body(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 201, response.text
    body: dict[str, Any] = response.json()
    return body


def error(response: httpx.Response) -> tuple[int, str]:
    """Return code and text of an error, and check its envelope."""
    told = response.json()["error"]
    assert (list(told), told["code"]) == (["message", "code", "status"], response.status_code)
    return told["code"], told["message"]


@contextlib.asynccontextmanager
async def open_service(
    url: str, *, users: AmsUsers | None = None, failures: int = 0, settings: AuthnSettings | None = None,
    space: FreeSpace = UNLIMITED, **more: Any,
) -> AsyncIterator[Service]:  # fmt: skip
    clock, trail = ManualClock(), KeptTrail()
    store = await Store.open(url, KEY, clock=clock, space=space)
    gate = ManagementGate(store, MANAGEMENT_KEY, LoginLimit(failures, clock), users)
    login: Any = LoginOf(store)
    handlers = Handlers(gate, store, login, settings or AuthnSettings())
    app = AuthnApp(handlers, trail, clock, **{"deadline_seconds": 14.0, "body_seconds": 14.0, **more})

    async def with_peer(scope: Any, receive: Any, send: Any) -> None:
        scope[PEER] = Peer(ADDRESS)
        await app(scope, receive, send)

    try:
        transport = httpx.ASGITransport(with_peer)
        async with httpx.AsyncClient(transport=transport, base_url="https://authn.example", trust_env=False) as client:
            yield Service(store, clock, trail, app, client)
    finally:
        await store.close()
