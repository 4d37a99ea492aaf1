"""The ASGI application: hot routes, then all others; every answer and every error leaves here."""

import asyncio
import functools
import itertools
import posixpath
import re
import secrets
import time
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from ams.access.admission import Caller
from ams.core.context import REQUEST, SCOPE
from ams.core.errors import Overloaded
from ams.http.asgi import JSON, JSON_TYPE, Event, Header, Receive, Send, answer
from ams.http.auditing import Auditor
from ams.http.errors import refusal
from ams.http.fast import OPERATIONS, FastRoutes
from ams.http.gate import Gate
from ams.http.limits import LATE_SECONDS, Bodies, ClientLeft
from ams.http.openapi import encoded
from ams.http.routing import Call, Row
from ams.http.streaming import Streamed, StreamedResponse
from ams.http.tracing import log_change, shown_path
from ams.service.delivering import UnreadAnswers

REQUEST_ID = b"x-request-id"
_GOOD_ID = re.compile(rb"[!-~]{1,128}")
"""A client's own request id that may go into a header and a log line."""

logger = structlog.get_logger("ams.http")


class App:
    """API v1 over ASGI."""

    def __init__(
        self, gate: Gate, bodies: Bodies, unread: UnreadAnswers, fast: FastRoutes, rows: Iterable[Row], auditor: Auditor
    ) -> None:
        self._gate = gate
        self._auditor = auditor
        self._bodies = bodies
        self._unread = unread
        self._fast = fast
        rows = list(rows)
        self._description = functools.cache(lambda: encoded([*OPERATIONS, *(row.operation for row in rows)]))
        routes = [self._route(row) for row in rows]
        self._router = Router([*routes, Route("/openapi.json", self._describe)], redirect_slashes=False)
        self.answered = [0] * 6
        """Requests by the first digit of their answers' status."""
        self._prefix = secrets.token_hex(4)
        self._count = itertools.count()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request_id = self._request_id(scope["headers"])
        REQUEST.set(request_id)
        SCOPE.set(scope)
        try:
            coming = self._fast.answer(scope, receive)
            if coming is not None:
                body = await coming
                self.answered[2] += 1
                with self._unread.held(_project(scope), len(body)):
                    await answer(send, 200, body, [JSON, (REQUEST_ID, request_id)])
            else:
                await self._answer(scope, receive, self._stamped(send, request_id, _project(scope)))
        except ClientLeft:
            return
        except asyncio.CancelledError:
            # Only a stop cancels requests: those whose bodies were still coming when its patience ended.
            await self._refuse(Overloaded("The service is stopping"), scope, send, request_id)
        except Exception as error:
            await self._refuse(await self._auditor.turned_away(error, scope), scope, send, request_id)

    async def _answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        clean = _clean(scope["path"])
        if clean != scope["path"]:
            query = scope["query_string"]
            where = quote(clean, safe="/:@!$&'()*+,;=~-._").encode() + (b"?" + query if query else b"")
            await answer(send, 301, b"", [(b"location", where)])
            return
        # The router raises for a wrong method, instead of answering in plain text, when it belongs to an app.
        await self._router({**scope, "app": self}, receive, send)

    async def _refuse(self, error: Exception, scope: dict[str, Any], send: Send, request_id: bytes) -> None:
        refused = refusal(error)
        if refused.code >= 500:
            await logger.aerror(
                "request.failed",
                method=scope["method"],
                path=shown_path(scope["path"]),
                error=type(error).__name__,
                reason=str(error) if refused.retry_after else None,
                exc_info=None if refused.retry_after else error,
            )
        self.answered[refused.code // 100] += 1
        await answer(send, refused.code, refused.body, [JSON, (REQUEST_ID, request_id), *refused.headers])

    async def _describe(self, request: Request) -> Response:
        """Answer the description of the API; open to everybody."""
        return Response(self._description(), media_type=JSON_TYPE)

    def _route(self, row: Row) -> Route:
        async def endpoint(request: Request) -> Response:
            caller: Caller | None = None
            try:
                caller = await self._admitted(row, request)
                made = await answered(request, caller)
            except asyncio.CancelledError:
                await self._auditor.cut_short(row.method, row.action, caller, request.scope)
                raise
            except Exception as error:
                await self._auditor.refused(row.method, row.action, caller, request.scope, error)
                raise
            await self._auditor.changed(row.method, row.action, caller, request.scope)
            await log_change(row.method, row.action, caller, request.scope["path"])
            project = _project(request.scope)
            if isinstance(made, Streamed):
                return StreamedResponse(made, self._unread, project)
            if row.method == "GET":  # what was changed is answered in any case
                self._unread.check(project, len(made))
            return Response(made, media_type=JSON_TYPE)

        async def answered(request: Request, caller: Caller | None) -> bytes | Streamed:
            headers, query = request.scope["headers"], request.scope["query_string"]
            names = request.path_params
            token = self._gate.token(headers, query)
            if row.counted:
                await self._gate.count(token)

            async def body() -> bytes:
                holders = (_project(request.scope), caller.user if caller is not None else request.client)
                began = time.monotonic()
                read = await self._bodies.read(headers, request.receive, row.most, holders)
                if row.action and time.monotonic() - began > LATE_SECONDS:
                    await self._gate.admit_again(row.action, names, headers, query)
                return read

            call = Call(names, query, caller, token, body, headers, request.receive)
            return await row.handler(call)

        route = Route("/v1" + row.path, endpoint, methods=[row.method])
        assert route.methods is not None
        route.methods.discard("HEAD")  # not served (contract 1.3)
        return route

    async def _admitted(self, row: Row, request: Request) -> Caller | None:
        if not row.action:
            return None
        headers, query = request.scope["headers"], request.scope["query_string"]
        return await self._gate.admit(row.action, request.path_params, headers, query)

    def _stamped(self, send: Send, request_id: bytes, project: str) -> Send:
        async def stamped(event: Event) -> None:
            if event["type"] == "http.response.start":
                self.answered[event["status"] // 100] += 1
                event["headers"] = [*event["headers"], (REQUEST_ID, request_id)]
                await send(event)
                return
            if event.get("more_body"):  # of an answer in pieces, which is counted as a whole
                await send(event)
                return
            with self._unread.held(project, len(event.get("body", b""))):
                await send(event)

        return stamped

    def _request_id(self, headers: Sequence[Header]) -> bytes:
        for name, value in headers:
            if name == REQUEST_ID and _GOOD_ID.fullmatch(value):
                return value
        return f"{self._prefix}-{next(self._count):x}".encode()


def _project(scope: MutableMapping[str, Any]) -> str:
    """Return the project that a path names; empty without one."""
    parts = scope["path"].split("/", 4)
    return parts[3] if len(parts) > 3 and parts[2] == "projects" else ""


def _clean(path: str) -> str:
    """Return the path without doubled slashes and dots (contract 1.3)."""
    if "//" not in path and "/." not in path:
        return path
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return clean + "/" if path.endswith("/") and clean != "/" else clean
