"""Tokens of issuers that are refused: each is looked at once a request, answered with why, and recorded."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ams.access.admission import Admission
from ams.access.rates import Rates
from ams.core.attempts import Attempts
from ams.core.clock import ManualClock
from ams.core.errors import TokenRefused
from ams.core.quotas import REQUESTS, Quotas
from ams.http.app import App
from ams.http.auditing import Auditor
from ams.http.fast import Gate
from ams.http.limits import Bodies
from ams.http.routing import Call, Row
from ams.service.delivering import UnreadAnswers
from ams.storage.audit.event import AuditEvent
from ams.storage.audit.logins import FailedLogins
from ams.storage.registry.records import Principal

JWT, OPAQUE = b"Bearer e30.e30.c2ln", b"Bearer opaque"


@dataclass
class Issuers:
    """Believes no token."""

    later: bool = False
    asked: list[str] = field(default_factory=list)

    def known(self, token: str) -> Principal | None:
        return None

    async def principal(self, token: str) -> Principal:
        self.asked.append(token)
        raise TokenRefused("The audience is another", later=self.later)


@dataclass
class Application:
    """An application of three routes, and what it recorded."""

    issuers: Issuers
    app: App
    events: list[AuditEvent]

    async def ask(self, method: str, path: str, authorization: bytes) -> tuple[int, dict[bytes, bytes]]:
        headers, send = [(b"authorization", authorization)], AsyncMock()
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
        receive = AsyncMock(return_value={"type": "http.request"})
        await self.app({**scope, "client": ("192.0.2.1", 1)}, receive, send)
        start = send.call_args_list[0].args[0]
        return start["status"], dict(start["headers"])


def application(*, rates: bool = False, later: bool = False) -> Application:
    issuers, clock, events = Issuers(later), ManualClock(), list[AuditEvent]()

    class Trail:
        async def record(self, event: AuditEvent) -> None:
            events.append(event)

    registry: Any = SimpleNamespace(
        users=SimpleNamespace(known_principal=lambda _: None, principal=AsyncMock(return_value=None))
    )
    admission = Admission(registry, logins=issuers)

    async def profile(call: Call) -> bytes:
        await admission.oneself(call.token)
        return b""

    async def version(call: Call) -> bytes:
        assert await admission.user_of(call.token) is None
        return b"{}"

    rows = [
        Row("GET", "/users", "users:list", version),
        Row("POST", "/users/{user}", "users:create", version),
        Row("GET", "/users/profile", None, profile, counted=True),
        Row("GET", "/version", None, version),
    ]
    gate = Gate(admission, "both", Rates.of(users=9, clock=clock, rules=Quotas({REQUESTS: 9})) if rates else None)
    logins = FailedLogins("ams", Trail(), Attempts(0, clock), clock)
    fast: Any = SimpleNamespace(answer=lambda *_: None)
    auditor = Auditor(Trail(), logins, gate, clock)
    return Application(issuers, App(gate, Bodies(1, 1, 1), UnreadAnswers(1), fast, rows, auditor), events)


@pytest.mark.parametrize("rates", [False, True])
@pytest.mark.parametrize("token", [JWT, OPAQUE])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/users"), ("POST", "/v1/users/x"), ("GET", "/v1/users/profile")]
)
async def test_a_refused_token_is_looked_at_once_and_recorded_with_why(
    rates: bool, token: bytes, method: str, path: str
) -> None:
    asked = application(rates=rates)

    status, headers = await asked.ask(method, path, token)

    assert status == 401
    assert headers[b"www-authenticate"] == (
        b'Bearer realm="ams", error="invalid_token", error_description="The audience is another"'
    )
    assert len(asked.issuers.asked) == 1
    assert [(each.action, each.code, each.reason, each.actor) for each in asked.events] == [
        ("login", 401, "The audience is another", "")
    ]


async def test_an_issuer_that_does_not_answer_is_a_401_to_be_tried_again_and_opens_what_is_open() -> None:
    asked = application(later=True)

    assert (await asked.ask("GET", "/v1/version", JWT))[0] == 200
    assert asked.events == []
    status, headers = await asked.ask("GET", "/v1/users", JWT)
    assert (status, headers[b"retry-after"]) == (401, b"2")
    assert len(asked.issuers.asked) == 2
