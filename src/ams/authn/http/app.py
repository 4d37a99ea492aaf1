"""The ASGI application of the certificate service: sends every answer and error, and writes the audit log."""

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog

from ams.authn.http.authentication import key_of
from ams.authn.http.errors import MethodNotAllowed, refusal
from ams.authn.http.json_bodies import encode_body
from ams.authn.http.routes import AuthnCall, AuthnRoute, Handlers, Reply, Routes
from ams.authn.values import PEER, Peer, without_secrets
from ams.core.clock import Clock
from ams.core.errors import AmsError, NotAllowed, NotFound, Overloaded, ServiceTimeout
from ams.core.telemetry import REQUEST
from ams.http.asgi import JSON, Header, Receive, Send, answer
from ams.http.limits import RECHECK_AFTER_SECONDS, Bodies, ClientLeft
from ams.storage.audit.event import new_event
from ams.storage.audit.trail import Trail
from ams.web.answers import Refusal
from ams.wire.actions import SMALL_BODY

MAX_BUFFERED_BYTES = 64 * 2**20
REQUEST_ID = b"x-request-id"
ANY_ORIGIN: Header = (b"access-control-allow-origin", b"*")
PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"OPTIONS, POST, GET, PUT, DELETE, HEAD"),
    (b"access-control-allow-headers", b"X-Requested-With, Content-Type, Authorization, X-Api-Key, If-Match"),
)
"""Answer to a preflight: pages of any origin may use the management routes with a key (contract 2; 15, A20)."""
_GOOD_ID = re.compile(rb"[!-~]{1,128}")

logger = structlog.get_logger("ams.authn")


class AuthnApp:
    """API v1 of the certificate service."""

    def __init__(
        self, handlers: Handlers, trail: Trail, clock: Clock, *, deadline_seconds: float, body_seconds: float
    ) -> None:
        self._gate, self._trail, self._clock, self._deadline = handlers.gate, trail, clock, deadline_seconds
        self._bodies = Bodies(SMALL_BODY, MAX_BUFFERED_BYTES, body_seconds)
        self._routes = Routes(handlers.rows())
        self._prefix = secrets.token_hex(4)
        self._count = itertools.count()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        headers: Sequence[Header] = scope["headers"]
        good_ids = (value for name, value in headers if name == REQUEST_ID and _GOOD_ID.fullmatch(value))
        request_id = next(good_ids, None) or f"{self._prefix}-{next(self._count):x}".encode()
        REQUEST.set(request_id)
        try:
            code, body, more = await self._answer(scope, receive)
        except ClientLeft:
            return
        leaving = [*more, *_cross_origin(headers), (REQUEST_ID, request_id)]
        if code == 204:  # no body, and so no length (15, A19)
            await send({"type": "http.response.start", "status": code, "headers": leaving})
            await send({"type": "http.response.body", "body": b""})
        else:
            await answer(send, code, body, [JSON, *leaving])
        path, spent = without_secrets(scope["path"]), round((time.perf_counter() - began) * 1000, 1)
        logger.debug("request", method=scope["method"], path=path, status=code, milliseconds=spent)

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> tuple[int, bytes, Sequence[Header]]:
        if scope["method"] == "OPTIONS":
            return (200, b"", PREFLIGHT if _cross_origin(scope["headers"]) else ((b"allow", PREFLIGHT[0][1]),))
        try:
            row, names = self._routes.find(scope["method"], scope)
        except (MethodNotAllowed, NotFound) as error:
            refused = refusal(error)
            return refused.code, refused.body, refused.headers
        peer: Peer = scope.get(PEER) or Peer((scope.get("client") or ("",))[0])
        body = partial(self._read_body, row, receive)
        call = AuthnCall(scope["path"], names, scope["query_string"], scope["headers"], peer, body)
        made, failure = await self._outcome(row, call)
        if _is_audited(row, call, made.code):
            resource = without_secrets(call.path.removeprefix("/v1") + made.name)
            event = new_event(
                self._clock.wall(), "authn", row.action, resource, code=made.code,
                actor=call.caller.name if call.caller else "", address=peer.address,
                reason=without_secrets(failure.message) if failure else "", request=REQUEST.get().decode("latin-1"),
            )  # fmt: skip
            await self._trail.record(event)
        if failure is not None:
            return failure.code, failure.body, failure.headers
        more = [(b"etag", b'"%b"' % made.version.encode())] if made.version else []
        return made.code, b"" if made.code == 204 else encode_body(made.body), more

    async def _outcome(self, row: AuthnRoute, call: AuthnCall) -> tuple[Reply, Refusal | None]:
        try:
            async with asyncio.timeout(self._deadline):
                if not row.open:
                    await self._admit(row, call)
                return await row.handler(call), None
        except ClientLeft:
            raise
        except TimeoutError:
            raised: Exception = ServiceTimeout("The request took too long; it may have been carried out")
        except asyncio.CancelledError:
            # Only a stop cancels requests, after its deadline.
            raised = Overloaded("The service is stopping; it may have been carried out")
        except Exception as error:
            raised = error
        refused = refusal(raised)
        if refused.code >= 500:  # this service or another one is at fault
            path, kind = without_secrets(call.path), type(raised).__name__
            shown = None if isinstance(raised, AmsError) and raised.retriable else raised
            await logger.aerror(
                "request.failed", action=row.action, path=path, error=kind, reason=refused.message, exc_info=shown
            )
        return Reply(refused.code), refused

    async def _admit(self, row: AuthnRoute, call: AuthnCall) -> None:
        caller = call.caller = await self._gate.admit(call.headers, call.query, call.peer.address)
        if not caller.looks or (row.changes and not caller.changes) or (row.of_keys and not caller.keys):
            raise NotAllowed

    async def _read_body(self, row: AuthnRoute, receive: Receive, call: AuthnCall) -> bytes:
        began = time.monotonic()
        read = await self._bodies.read(call.headers, receive)
        if time.monotonic() - began > RECHECK_AFTER_SECONDS:
            await self._admit(row, call)
        return read


def _is_audited(row: AuthnRoute, call: AuthnCall, code: int) -> bool:
    """Return whether a request is recorded: every change, even if refused, and every 403. Logins record themselves.

    Of unknown callers only wrong keys are recorded, whose rate is limited. Recording refused requests beyond that
    limit, or those without a key, would fill the disk.
    """
    if call.caller is None:
        return code == 401 and bool(key_of(call.headers, call.query))
    return row.changes or code == 403


def _cross_origin(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the header that lets pages of another origin read the answer."""
    return (ANY_ORIGIN,) if any(name == b"origin" for name, _ in headers) else ()
