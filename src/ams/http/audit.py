"""Log lines of requests, and the audit log of changes and failed logins.

Tokens, bodies and queries are never logged. The only secret in a path is a token (17.3, U8): after `/users:`, or placed
there by mistake. Admitted publishes, pulls and acknowledgements never run this module, except at log level debug.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from ams.access.admission import Caller
from ams.core.clock import Clock
from ams.core.errors import Overloaded, QuotaExceeded, RateLimited, UnknownToken
from ams.core.telemetry import REQUEST
from ams.http.asgi import Application, Event, Receive, Send, client_address
from ams.http.errors import refusal
from ams.http.forwarding import Relayed
from ams.http.hot_routes import RequestGate
from ams.http.limits import ClientLeft
from ams.outgoing.address_guard import Network
from ams.storage.audit.event import new_event
from ams.storage.audit.trail import FailedLogins, Trail
from ams.wire.actions import UNRECORDED

SERVICE_TOKEN = "(service token)"  # noqa: S105 - placeholder in the log
_SECRET_PATH = re.compile(
    r"(^[/.]*(?:v1[/.]+)?users:(?:by(?:token|uuid)/)?|bytoken/).+|[0-9a-f]{40,}", re.IGNORECASE | re.DOTALL
)
_UUID_PATH = re.compile(r"/v1/users:byUUID/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A path after `/users:` without a secret."""
_UNRECORDED_ERRORS = (Overloaded, QuotaExceeded, UnknownToken, ClientLeft, Relayed)

logger = structlog.get_logger("ams.http")


def shown_path(path: str) -> str:
    """Return a path for logs, without secrets."""
    return path if _UUID_PATH.fullmatch(path) else _SECRET_PATH.sub(r"\1***", path)


def log_requests(app: Application) -> Application:
    """Return an application that also logs each request at debug. Used only at that level."""

    async def answer_logged(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            await app(scope, receive, send)
            return
        status = 0

        async def send_watched(event: Event) -> None:
            nonlocal status
            status = event.get("status", status)
            await send(event)

        began = time.perf_counter()
        try:
            await app(scope, receive, send_watched)
        finally:
            log_request(scope["method"], scope["path"], status, began)

    return answer_logged


def log_request(method: str, path: str, status: int, began: float) -> None:
    """Log one request at debug. `began` is from `time.perf_counter`; `status` 0: no answer."""
    spent = round((time.perf_counter() - began) * 1000, 1)
    logger.debug("request", method=method, path=shown_path(path), status=status or None, milliseconds=spent)


@dataclass(slots=True)
class AuditedRequest:
    """A request as a candidate for the audit log."""

    method: str
    action: str | None  # None: not recorded
    scope: MutableMapping[str, Any]
    caller: Caller | None = None  # the admitted user; None before admission

    @property
    def is_change(self) -> bool:
        """True if the request belongs in the audit log."""
        return self.action is not None and self.method != "GET" and self.action not in UNRECORDED

    @property
    def actor(self) -> str:
        """Name of the admitted user."""
        return (self.caller.name if self.caller else None) or SERVICE_TOKEN


SERVICE = "ams"
CUT_SHORT_REASON = "The service is stopping; it may have been carried out"


class Auditor:
    """Writes requests to the audit trail."""

    def __init__(
        self, trail: Trail, logins: FailedLogins, gate: RequestGate, clock: Clock, proxies: Sequence[Network]
    ) -> None:
        self._trail, self._logins, self._gate, self._clock, self._proxies = trail, logins, gate, clock, proxies

    @contextlib.asynccontextmanager
    async def recording(self, request: AuditedRequest) -> AsyncIterator[None]:
        """Record the outcome of a request if it belongs in the audit log; log successful changes too.

        Changes that fail, or are refused to a known user, are recorded. Not recorded are requests refused to protect
        the service (429, 503), which come by thousands without effect; requests without a known user, which are failed
        logins; requests whose client left before they began; and requests that another node answers and records.
        """
        try:
            yield
        except asyncio.CancelledError:  # its writes in progress still complete
            if request.is_change and request.caller is not None:
                await self._record(request, request.actor, 503, CUT_SHORT_REASON)
            raise
        except Exception as error:
            if request.is_change and not isinstance(error, _UNRECORDED_ERRORS):
                headers, query = request.scope["headers"], request.scope["query_string"]
                actor = request.actor if request.caller else await self._gate.name(headers, query)
                if actor:
                    reason = getattr(error, "message", "") or "Internal error"
                    await self._record(request, actor, refusal(error).code, reason)
            raise
        caller = request.caller
        if request.is_change and caller is not None:
            login = caller.login  # None: the user's own token
            reason = "" if login is None else f"by {'token' if login.token else 'issuer'} {login.name}"
            await self._record(request, request.actor, 200, reason)
            resource = _resource(request.scope)
            await logger.ainfo("changed", action=request.action, resource=resource, by=request.actor)

    async def turned_away(self, error: Exception, scope: MutableMapping[str, Any]) -> Exception:
        """Record a failed login and return its answer, which is `RateLimited` above the limit of the address.

        The limit is checked only here, so other clients of an address never block a valid token.
        """
        if not isinstance(error, UnknownToken):
            return error
        address = self._address(scope)
        try:
            self._logins.attempts.check(address)
        except RateLimited as limited:
            error = limited
        code, resource, is_counted = refusal(error).code, _resource(scope), not isinstance(error, RateLimited)
        await self._logins.record_failure(
            address, code=code, reason=error.message, resource=resource, request=_request(), is_counted=is_counted
        )
        return error

    def _address(self, scope: MutableMapping[str, Any]) -> str:
        """Return the client address: from the scope for calls other than HTTP requests, else as proxies report it."""
        return scope.get("address") or client_address(scope, self._proxies)

    async def _record(self, request: AuditedRequest, actor: str, code: int, reason: str) -> None:
        event = new_event(
            self._clock.wall(), SERVICE, request.action or "", _resource(request.scope), code=code, actor=actor,
            address=self._address(request.scope), reason=reason, request=_request(),
        )  # fmt: skip
        await self._trail.record(event)


def _request() -> str:
    return REQUEST.get().decode("latin-1")


def _resource(scope: MutableMapping[str, Any]) -> str:
    return shown_path(scope["path"]).removeprefix("/v1")
