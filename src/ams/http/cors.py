"""Cross-origin requests: browser programs from any origin may use the API (contract 1.4)."""

from typing import Any

from starlette.exceptions import HTTPException

from ams.core.errors import BadRequest, NotAllowed
from ams.http.asgi import JSON, Application, Event, Header, Receive, Send, answer
from ams.http.errors import refusal

ANY_ORIGIN = (b"access-control-allow-origin", b"*")
CHALLENGE = b"www-authenticate"
"""Says how to log in, and why a token was refused; pages of other origins read it only where they are let."""

_SIMPLE_METHODS = frozenset({b"GET", b"HEAD", b"POST"})
_METHODS = _SIMPLE_METHODS | {b"OPTIONS", b"PUT", b"DELETE"}
_SIMPLE_HEADERS = frozenset({b"accept", b"accept-language", b"content-language", b"origin"})
_HEADERS = _SIMPLE_HEADERS | {b"x-requested-with", b"content-type", b"x-api-key", b"authorization"}


class CrossOrigin:
    """ASGI middleware: answers preflights, and lets pages of any origin read all other answers."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        from_elsewhere = any(name == b"origin" for name, _ in scope["headers"])
        if scope["method"] == "OPTIONS":
            await _answer_options(scope["headers"], from_elsewhere, send)
        else:
            await self._app(scope, receive, _opened(send) if from_elsewhere else send)


async def _answer_options(headers: list[Header], from_elsewhere: bool, send: Send) -> None:
    status, body, allowed = 200, b"", [JSON]
    if from_elsewhere:
        try:
            allowed += [ANY_ORIGIN, *_preflight(headers)]
        except (BadRequest, NotAllowed, HTTPException) as error:
            refused = refusal(error)
            status, body = refused.code, refused.body
            allowed.append(ANY_ORIGIN)
    await answer(send, status, body, allowed)


def _preflight(headers: list[Header]) -> list[Header]:
    """Return what is allowed beyond the simple methods and headers; raise when what is asked for is not."""
    method = next(iter(_lines(headers, b"access-control-request-method")), b"")
    if not method:
        raise BadRequest("Preflight without Access-Control-Request-Method")
    if method not in _METHODS:
        raise HTTPException(405)
    asked = [name.strip() for name in b",".join(_lines(headers, b"access-control-request-headers")).split(b",")]
    if any(name and name.lower() not in _HEADERS for name in asked):
        raise NotAllowed
    special = [name for name in asked if name and name.lower() not in _SIMPLE_HEADERS]
    allowed = [(b"access-control-allow-headers", b",".join(special))] if special else []
    if method not in _SIMPLE_METHODS:
        allowed.append((b"access-control-allow-methods", method))
    return allowed


def _lines(headers: list[Header], name: bytes) -> list[bytes]:
    return [value for given, value in headers if given == name]


def _opened(send: Send) -> Send:
    async def opened(event: Event) -> None:
        if event["type"] == "http.response.start":
            headers = [*event["headers"], ANY_ORIGIN]
            if any(name == CHALLENGE for name, _ in headers):
                headers.append((b"access-control-expose-headers", CHALLENGE))
            event["headers"] = headers
        await send(event)

    return opened
