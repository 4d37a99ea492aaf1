"""What is logged of requests: never a token, a body or a query.

The only secret a path can hold is a token (17.3, U8): behind `/users:`, or where somebody put one by mistake.
"""

import re
import time
from typing import Any

import structlog

from ams.access.admission import Caller
from ams.http.asgi import Application, Event, Receive, Send

SERVICE_TOKEN = "(service token)"  # noqa: S105 - what stands for it in the log
_SECRET = re.compile(
    r"(^[/.]*(?:v1[/.]+)?users:(?:by(?:token|uuid)/)?|bytoken/).+|[0-9a-f]{40,}", re.IGNORECASE | re.DOTALL
)
_BY_UUID = re.compile(r"/v1/users:byUUID/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What stands behind `/users:` and is none."""
_UNCHANGING = frozenset({"schemas:validateMessage", "schemas:dryRun", "push:lease", "push:wait"})
"""Actions that are asked for by POST and change nothing that people would want to know of."""

logger = structlog.get_logger("ams.http")


def shown_path(path: str) -> str:
    """Return a path as it may be logged."""
    return path if _BY_UUID.fullmatch(path) else _SECRET.sub(r"\1***", path)


def is_change(method: str, action: str) -> bool:
    """Whether an action changes something, and is not only a way to read."""
    return method != "GET" and action not in _UNCHANGING


async def log_change(method: str, action: str | None, caller: Caller | None, path: str) -> None:
    """Say who changed what; nothing for what only reads."""
    if action is None or caller is None or not is_change(method, action):
        return
    resource = shown_path(path).removeprefix("/v1")
    await logger.ainfo("changed", action=action, resource=resource, by=caller.name or SERVICE_TOKEN)


class Traced:
    """ASGI middleware: a line at debug for each request. Only there when that is logged."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, and say how."""
        if scope["type"] != "http":
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
            spent = round((time.perf_counter() - began) * 1000, 1)
            path = shown_path(scope["path"])
            # Not awaited: a request that is cancelled at a stop is said too.
            logger.debug("request", method=scope["method"], path=path, status=status or None, milliseconds=spent)
