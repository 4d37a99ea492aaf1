"""Log lines of requests, and the audit log: every change, and every login that failed.

Never a token, a body or a query. The only secret a path can hold is a token (17.3, U8): behind `/users:`, or where
one was put by mistake. Nothing here runs for a publish, a pull or an acknowledgement of a caller who is let in,
but for a line at debug where that is logged.
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
from ams.core.errors import AmsError, Overloaded, QuotaExceeded, RateLimited, UnknownToken
from ams.core.observing import REQUEST
from ams.http.asgi import Application, Event, Receive, Send, client_address
from ams.http.errors import refusal
from ams.http.fast import Gate
from ams.http.forwarding import Relayed
from ams.http.limits import ClientLeft
from ams.outgoing.guard import Network
from ams.storage.audit.event import new_event
from ams.storage.audit.trail import FailedLogins, Trail
from ams.wire.actions import UNRECORDED

SERVICE_TOKEN = "(service token)"  # noqa: S105 - what stands for it in the log
_SECRET = re.compile(
    r"(^[/.]*(?:v1[/.]+)?users:(?:by(?:token|uuid)/)?|bytoken/).+|[0-9a-f]{40,}", re.IGNORECASE | re.DOTALL
)
_BY_UUID = re.compile(r"/v1/users:byUUID/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A path behind `/users:` that holds no secret."""
_NOT_RECORDED = (Overloaded, QuotaExceeded, UnknownToken, ClientLeft, Relayed)

logger = structlog.get_logger("ams.http")


def shown_path(path: str) -> str:
    """Return a path as it may be logged."""
    return path if _BY_UUID.fullmatch(path) else _SECRET.sub(r"\1***", path)


class Traced:
    """ASGI middleware: a line at debug for each request. Only there when that is logged."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, and say how."""
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
            return
        status = 0

        async def watched(event: Event) -> None:
            nonlocal status
            status = event.get("status", status)
            await send(event)

        began = time.perf_counter()
        try:
            await self._app(scope, receive, watched)
        finally:
            log_request(scope["method"], scope["path"], status, began)


def log_request(method: str, path: str, status: int, began: float) -> None:
    """Log one request at debug; `began` is by `time.perf_counter`, `status` 0 without an answer."""
    spent = round((time.perf_counter() - began) * 1000, 1)
    logger.debug("request", method=method, path=shown_path(path), status=status or None, milliseconds=spent)


@dataclass(slots=True)
class AuditedRequest:
    """One request, as the audit log may get it."""

    method: str
    action: str | None  # None: it is not recorded
    scope: MutableMapping[str, Any]
    caller: Caller | None = None  # who was let in; None before that

    @property
    def is_change(self) -> bool:
        """True: it is for the audit log."""
        return self.action is not None and self.method != "GET" and self.action not in UNRECORDED

    @property
    def actor(self) -> str:
        """The user who was let in, by name."""
        return (self.caller.name if self.caller else None) or SERVICE_TOKEN


SERVICE = "ams"
CUT_SHORT = "The service is stopping; it may have been carried out"


class Auditor:
    """Writes requests to the audit trail."""

    def __init__(
        self, trail: Trail, logins: FailedLogins, gate: Gate, clock: Clock, proxies: Sequence[Network] = ()
    ) -> None:
        self._trail, self._logins, self._gate, self._clock = trail, logins, gate, clock
        self._proxies = proxies

    @contextlib.asynccontextmanager
    async def recording(self, request: AuditedRequest) -> AsyncIterator[None]:
        """Record how a request ends, if it is for the audit log; a change that was made is said in the log, too.

        A change that is refused to a known user, or fails, is recorded. Those are not that were turned away to protect
        the service (429, 503), which come by thousands and did nothing; those without a known user, which are failed
        logins; those whose client left before they began; and those that another node answers, which records them.
        """
        try:
            yield
        except asyncio.CancelledError:  # what it had begun to write is written all the same
            if request.is_change and request.caller is not None:
                await self._record(request, request.actor, 503, CUT_SHORT)
            raise
        except Exception as error:
            if request.is_change and not isinstance(error, _NOT_RECORDED):
                actor = request.actor if request.caller else await self._who(request.scope)
                if actor:
                    reason = getattr(error, "message", "") or "Internal error"
                    await self._record(request, actor, refusal(error).code, reason)
            raise
        caller = request.caller
        if request.is_change and caller is not None:
            login = caller.login  # None: by the user's own token
            reason = "" if login is None else f"by {'token' if login.token else 'issuer'} {login.name}"
            await self._record(request, request.actor, 200, reason)
            resource = _resource(request.scope)
            await logger.ainfo("changed", action=request.action, resource=resource, by=request.actor)

    async def turned_away(self, error: Exception, scope: MutableMapping[str, Any]) -> Exception:
        """Record a login that failed; return its answer, which is `RateLimited` beyond the limit of its address.

        The limit is looked at only now, so a token that is known is never refused for what others do at its address.
        """
        if not isinstance(error, UnknownToken):
            return error
        address = self._address(scope)
        said = {"resource": _resource(scope), "request": _request()}
        try:
            self._logins.attempts.check(address)
        except RateLimited as limited:
            await self._logins.refused(address, code=refusal(limited).code, reason=limited.message, **said)
            return limited
        await self._logins.failed(address, code=refusal(error).code, reason=error.message, **said)
        return error

    def _address(self, scope: MutableMapping[str, Any]) -> str:
        """Return where a client is: as the scope says of calls that are no HTTP requests, or as proxies say."""
        return scope.get("address") or client_address(scope, self._proxies)

    async def _who(self, scope: MutableMapping[str, Any]) -> str:
        """Return the name of the user whose roles did not do; empty without a known user."""
        try:
            return await self._gate.name(scope["headers"], scope["query_string"]) or ""
        except AmsError:  # the registry is away: the request failed for that already
            return ""

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
