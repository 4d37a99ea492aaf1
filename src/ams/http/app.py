"""The ASGI application: sends every answer and every error. Open to pages of any origin (contract 1.4)."""

import asyncio
import contextlib
import functools
import itertools
import posixpath
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from ams.core.errors import BadRequest, NotAllowed, Overloaded
from ams.core.telemetry import REQUEST, SCOPE
from ams.core.versions import read_if_match, version_of
from ams.http.asgi import JSON, JSON_TYPE, Event, Header, Receive, Send, answer, project_of
from ams.http.audit import AuditedRequest, Auditor, shown_path
from ams.http.errors import RETRY_LATER, refusal
from ams.http.forwarding import Forwarder, Relayed
from ams.http.hot_routes import FastRoutes, RequestGate
from ams.http.limits import RECHECK_AFTER_SECONDS, Bodies, ClientLeft
from ams.http.openapi import encode_description
from ams.http.routing import Call, Handler, Streamed, StreamedResponse, Versioned
from ams.outgoing.client import Response as OwnerAnswer
from ams.service.delivery import UnreadAnswers
from ams.wire.actions import ACTIONS, Action

ANY_ORIGIN = (b"access-control-allow-origin", b"*")
CHALLENGE_HEADER = b"www-authenticate"  # why a token was refused; exposed to pages of other origins

_SIMPLE_METHODS = frozenset({b"GET", b"HEAD", b"POST"})
_METHODS = _SIMPLE_METHODS | {b"OPTIONS", b"PUT", b"DELETE"}
_SIMPLE_HEADERS = frozenset({b"accept", b"accept-language", b"content-language", b"origin"})
_HEADERS = _SIMPLE_HEADERS | {
    b"x-requested-with", b"content-type", b"x-api-key", b"authorization", b"idempotency-key", b"x-request-id",
    b"if-match",
}  # fmt: skip
_EXPOSED_HEADERS = b"x-request-id, date, retry-after, etag"
"""Header fields that pages of other origins may read: error details, retry time, and versions."""

REQUEST_ID = b"x-request-id"
_GOOD_ID = re.compile(rb"[!-~]{1,128}")

logger = structlog.get_logger("ams.http")


def good_id(value: bytes) -> bytes:
    """Return a client's request id; empty if it is not safe in a header and a log line."""
    return value if _GOOD_ID.fullmatch(value) else b""


class App:
    """API v1 over ASGI."""

    def __init__(
        self, gate: RequestGate, bodies: Bodies, unread: UnreadAnswers, fast: FastRoutes,
        handlers: Mapping[str, Handler], auditor: Auditor, forwarder: Forwarder | None = None,
        pages: Iterable[Route] = (),
    ) -> None:  # fmt: skip
        self._gate, self._auditor, self._bodies, self._unread = gate, auditor, bodies, unread
        self._fast, self._forwarder = fast, forwarder
        self._description = functools.cache(encode_description)
        others, routers = [Route("/openapi.json", self._describe), *pages], dict[tuple[int, str], list[Route]]()
        for name, each in ACTIONS.items():
            if name in handlers:
                routers.setdefault(_place_of(each.whole_path), []).append(self._route(each, handlers[name]))
        self._routers = {place: Router([*routes, *others], redirect_slashes=False) for place, routes in routers.items()}
        self._other_router = Router(others, redirect_slashes=False)
        self.answered = [0] * 6  # requests by the first digit of the answer's status
        self._prefix = secrets.token_hex(4)
        self._count = itertools.count()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request_id, is_cross_origin = b"", False
        for name, value in scope["headers"]:
            if name == REQUEST_ID and not request_id:
                request_id = good_id(value)
            elif name == b"origin":
                is_cross_origin = True
        if scope["method"] == "OPTIONS":
            await _answer_options(scope["headers"], is_cross_origin, send)
            return
        if is_cross_origin:
            send = _open_to_any_origin(send)
        request_id = request_id or self.new_id()
        REQUEST.set(request_id)
        SCOPE.set(scope)
        coming = self._fast.answer(scope, receive)
        if coming is None:
            await self._answer_other(scope, receive, send, request_id)
            return
        try:
            body = await coming
        except (Exception, asyncio.CancelledError) as error:
            await self.fail(error, scope, send, request_id)
            return
        self.answered[2] += 1
        with self._unread.hold_answer(project_of(scope), len(body)):
            await answer(send, 200, body, [JSON, (REQUEST_ID, request_id)])

    def new_id(self) -> bytes:
        """Return an id for a request without one."""
        return f"{self._prefix}-{next(self._count):x}".encode()

    async def _answer_other(self, scope: dict[str, Any], receive: Receive, send: Send, request_id: bytes) -> None:
        project, is_begun = project_of(scope), False

        async def send_stamped(event: Event) -> None:
            nonlocal is_begun
            if event["type"] == "http.response.start":
                is_begun = True
                self.answered[event["status"] // 100] += 1
                event["headers"] = [*event["headers"], (REQUEST_ID, request_id)]
            size = 0 if event.get("more_body") else len(event.get("body", b""))  # one in pieces counts as a whole
            with self._unread.hold_answer(project, size):
                await send(event)

        try:
            await self._answer(scope, receive, send_stamped)
        except (Exception, asyncio.CancelledError) as error:
            if is_begun and isinstance(error, asyncio.CancelledError):
                raise  # the client did not read its answer before the service stopped
            await self.fail(error, scope, send, request_id)

    async def fail(self, error: BaseException, scope: dict[str, Any], send: Send, request_id: bytes) -> None:
        """Answer an error, unless the client has left. Needs method, path and client of `scope`."""
        if isinstance(error, asyncio.CancelledError):
            # Only a stop cancels requests: those whose bodies were still incomplete at its deadline.
            error = Overloaded("The service is stopping")
        if isinstance(error, ClientLeft) or not isinstance(error, Exception):
            return
        if isinstance(error, Relayed):
            code, body, headers = error.answer
        else:
            error = await self._auditor.turned_away(error, scope)
            code, body, headers, _ = refusal(error)
            if code >= 500:
                reason, cause = (str(error), None) if RETRY_LATER in headers else (None, error)
                said = {"method": scope["method"], "path": shown_path(scope["path"]), "error": type(error).__name__}
                await logger.aerror("request.failed", **said, reason=reason, exc_info=cause)
        self.answered[code // 100] += 1
        await answer(send, code, body, [JSON, (REQUEST_ID, request_id), *headers])

    async def _answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        path = clean = scope["path"]
        if "//" in path or "/." in path:
            clean = posixpath.normpath("/" + path.lstrip("/"))
            clean += "/" if path.endswith("/") and clean != "/" else ""
        if clean != path:
            query = scope["query_string"]
            where = quote(clean, safe="/:@!$&'()*+,;=~-._").encode() + (b"?" + query if query else b"")
            await answer(send, 301, b"", [(b"location", where)])
            return
        # The router raises for a wrong method, instead of answering in plain text, only if it belongs to an app.
        router = self._routers.get(_place_of(clean), self._other_router)
        await router({**scope, "app": self}, receive, send)

    async def _describe(self, request: Request) -> Response:
        return Response(self._description(), media_type=JSON_TYPE)

    def _route(self, action: Action, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            audited = AuditedRequest(action.method, None if action.is_open else action.name, request.scope)
            async with self._auditor.recording(audited):
                if audited.action:
                    audited.caller = await self._gate.admit_from(request.scope, action.name, request.path_params)
                return await self._handle(action, handler, request, audited)

        route = Route(action.whole_path, endpoint, methods=[action.method])
        assert route.methods is not None
        route.methods.discard("HEAD")  # not supported (contract 1.3)
        return route

    async def _handle(self, action: Action, handler: Handler, request: Request, audited: AuditedRequest) -> Response:
        headers, query = request.scope["headers"], request.scope["query_string"]
        names, caller, project = request.path_params, audited.caller, project_of(request.scope)
        token = self._gate.token(headers, query)
        if action.counted:
            await self._gate.count(token)
        read = b""
        holding = contextlib.ExitStack()

        async def body() -> bytes:
            nonlocal read
            if read:  # called twice: another node may have to get it
                return read
            holders = (project, caller.user if caller is not None else request.client)
            began = time.monotonic()
            read = await self._bodies.read(headers, request.receive, action.most, holders)
            if not action.is_open and time.monotonic() - began > RECHECK_AFTER_SECONDS:
                await self._gate.admit_again(action.name, names, headers, query)
            holding.enter_context(self._bodies.hold_body(len(read), holders))
            return read

        def leave_unrecorded() -> None:
            audited.action = None

        call = Call(names, query, caller, token, body, headers, request.receive, leave_unrecorded)
        if caller is not None and action.versioned:
            call.admitted = replace(caller, expected=read_if_match(call.header(b"if-match")))
        with holding:
            if self._forwarder is None:
                made = await handler(call)
            else:
                made = await self._forwarder.run(lambda: handler(call), request.scope, lambda: read)
        if isinstance(made, OwnerAnswer):
            leave_unrecorded()  # the subscription's owner has recorded it
        return self._response(made, action, project)

    def _response(self, made: object, action: Action, project: str) -> Response:
        if isinstance(made, OwnerAnswer):
            return Response(made.body, media_type=JSON_TYPE)
        if isinstance(made, Streamed):
            return StreamedResponse(made, self._unread, project)
        shown, tag = made, {}
        if isinstance(made, Versioned):
            shown, tag = made.shown, {"ETag": f'"{version_of(made.state)}"'}
        encoded = b"" if shown is None else msgspec.json.encode(shown)
        if action.method == "GET":  # changes are answered in any case
            self._unread.check(project, len(encoded))
        return Response(encoded, media_type=JSON_TYPE, headers=tag)


def _place_of(path: str) -> tuple[int, str]:
    """Return the common part of all paths of a route, so that a request is compared with few routes."""
    parts = path.split("/")
    return len(parts), parts[4] if len(parts) > 4 else ""


async def _answer_options(headers: list[Header], is_cross_origin: bool, send: Send) -> None:
    try:
        allowed = [ANY_ORIGIN, *_preflight(headers)] if is_cross_origin else []
        await answer(send, 200, b"", [JSON, *allowed])
    except (BadRequest, NotAllowed, HTTPException) as error:
        refused = refusal(error)
        await answer(send, refused.code, refused.body, [JSON, ANY_ORIGIN])


def _preflight(headers: list[Header]) -> list[Header]:
    """Return the allowed methods and headers beyond the simple ones. Raises if the request wants others."""
    method = next((value for name, value in headers if name == b"access-control-request-method"), b"")
    if not method:
        raise BadRequest("Preflight without Access-Control-Request-Method")
    if method not in _METHODS:
        raise HTTPException(405)
    lines = [value for name, value in headers if name == b"access-control-request-headers"]
    asked = [name.strip() for name in b",".join(lines).split(b",")]
    if any(name and name.lower() not in _HEADERS for name in asked):
        raise NotAllowed
    special = [name for name in asked if name and name.lower() not in _SIMPLE_HEADERS]
    allowed = [(b"access-control-allow-headers", b",".join(special))] if special else []
    if method not in _SIMPLE_METHODS:
        allowed.append((b"access-control-allow-methods", method))
    return allowed


def _open_to_any_origin(send: Send) -> Send:
    async def send_open(event: Event) -> None:
        if event["type"] == "http.response.start":
            said = any(name == CHALLENGE_HEADER for name, _ in event["headers"])
            exposed = _EXPOSED_HEADERS + b", " + CHALLENGE_HEADER if said else _EXPOSED_HEADERS
            event["headers"] = [*event["headers"], ANY_ORIGIN, (b"access-control-expose-headers", exposed)]
        await send(event)

    return send_open
