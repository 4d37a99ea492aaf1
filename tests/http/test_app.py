"""The application: preflights whose headers come on several lines, and answers that are not read at a stop."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ams.core.errors import NotAllowed, NotAuthenticated
from ams.http.app import App
from ams.service.delivering import UnreadAnswers
from tests.support.waiting import wait_until_async

NONE: Any = None
PUT, ASKED = (b"access-control-request-method", b"PUT"), b"access-control-request-headers"
EXPOSED = b"x-request-id, date, retry-after, etag"


async def answered(app: App, method: str, *headers: tuple[bytes, bytes]) -> dict[Any, Any]:
    """Return the status and the headers of the answer to a page."""
    send, page = AsyncMock(), (b"origin", b"https://page.example")
    await app({"type": "http", "method": method, "path": "/", "headers": [page, *headers]}, NONE, send)
    start = send.call_args_list[0].args[0]
    return {"status": start["status"], **dict(start["headers"])}


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [
        ([PUT, (ASKED, b"content-type"), (ASKED, b"x-api-key")], b"content-type,x-api-key"),
        ([PUT, (PUT[0], b"BREW")], b""),
        *(([PUT, (ASKED, name)], name) for name in (b"authorization", b"idempotency-key", b"if-match")),
        ([PUT, (ASKED, b"x-other"), (ASKED, b"x-api-key")], None),
    ],
)
async def test_1_4_all_lines_of_asked_headers_count_and_of_several_methods_the_first(
    lines: list[tuple[bytes, bytes]], allowed: bytes | None
) -> None:
    answer = await answered(App(NONE, NONE, NONE, NONE, [], NONE), "OPTIONS", *lines)

    assert answer["status"] == (403 if allowed is None else 200)
    assert allowed is None or answer.get(b"access-control-allow-headers", b"") == allowed


@pytest.mark.parametrize(
    ("error", "exposed"), [(NotAllowed(), EXPOSED), (NotAuthenticated(), EXPOSED + b", www-authenticate")]
)
async def test_1_4_a_page_may_read_how_to_report_an_error_when_to_ask_again_and_why_a_token_was_refused(
    error: Exception, exposed: bytes
) -> None:
    async def refuse() -> bytes:
        raise error

    refusing: Any = SimpleNamespace(answer=lambda *_: refuse(), turned_away=AsyncMock(return_value=error))
    answer = await answered(App(NONE, NONE, NONE, refusing, [], refusing), "GET")

    assert answer[b"access-control-expose-headers"] == exposed


@pytest.mark.parametrize("path", ["/v1/projects/P/topics/T:publish", "/openapi.json"])
async def test_an_answer_that_is_not_read_until_a_stop_is_no_server_error(path: str) -> None:
    class Publishing:
        """Hot routes that publish at once."""

        def answer(self, scope: dict[str, Any], _: object) -> Coroutine[Any, Any, bytes] | None:
            return AsyncMock(return_value=b"{}")() if scope["path"].endswith(":publish") else None

    publishing: Any = Publishing()
    app = App(NONE, NONE, UnreadAnswers(2**20), publishing, [], NONE)
    sent: list[Any] = []

    async def unread(event: Any) -> None:
        sent.append(event["type"])
        if event["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    answering = asyncio.ensure_future(app(scope, NONE, unread))
    await wait_until_async(lambda: len(sent) == 2)

    answering.cancel()
    await asyncio.wait([answering])

    assert app.answered == [0, 0, 1, 0, 0, 0]
    assert sent == ["http.response.start", "http.response.body"]
