"""The application: preflights whose headers come on several lines, and answers that are not read at a stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from ams.core.errors import NotAllowed, NotAuthenticated
from ams.http.app import App
from ams.service.delivering import UnreadAnswers

NONE: Any = None


class Refusing:
    """Hot routes, and an auditor, that refuse everything."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def answer(self, *_: object) -> Coroutine[Any, Any, bytes]:
        return self._refuse()

    async def _refuse(self) -> bytes:
        raise self._error

    async def turned_away(self, error: Exception, _: object) -> Exception:
        return error


async def preflight(*lines: tuple[bytes, bytes]) -> dict[str, Any]:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    headers = [(b"origin", b"https://page.example"), *lines]
    await App(NONE, NONE, NONE, NONE, [], NONE)(
        {"type": "http", "method": "OPTIONS", "headers": headers}, nothing, send
    )
    return {"status": sent[0]["status"], **dict(sent[0]["headers"])}


PUT = (b"access-control-request-method", b"PUT")


async def test_1_4_all_lines_of_asked_headers_count() -> None:
    asked = b"access-control-request-headers"

    good = await preflight(PUT, (asked, b"content-type"), (asked, b"x-api-key"))
    bad = await preflight(PUT, (asked, b"x-other"), (asked, b"x-api-key"))

    assert (good["status"], good[b"access-control-allow-headers"]) == (200, b"content-type,x-api-key")
    assert bad["status"] == 403


async def test_1_4_of_several_methods_the_first_counts() -> None:
    assert (await preflight(PUT, (PUT[0], b"BREW")))["status"] == 200


async def test_1_4_a_page_may_send_a_bearer_token_and_read_why_it_was_refused() -> None:
    allowed = await preflight(PUT, (b"access-control-request-headers", b"authorization"))

    assert (allowed["status"], allowed[b"access-control-allow-headers"]) == (200, b"authorization")
    exposed = (await answered(NotAuthenticated()))[b"access-control-expose-headers"]
    assert exposed == b"x-request-id, date, retry-after, www-authenticate"


async def test_1_4_a_page_may_read_how_to_report_an_error_and_when_to_ask_again() -> None:
    assert (await answered(NotAllowed()))[b"access-control-expose-headers"] == b"x-request-id, date, retry-after"
    allowed = await preflight(PUT, (b"access-control-request-headers", b"idempotency-key"))
    assert allowed[b"access-control-allow-headers"] == b"idempotency-key"


async def answered(error: Exception) -> dict[bytes, bytes]:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"origin", b"https://page.example")]}
    refusing: Any = Refusing(error)
    await App(NONE, NONE, NONE, refusing, [], refusing)(scope, NONE, send)
    return dict(sent[0]["headers"])


@pytest.mark.parametrize("path", ["/v1/projects/P/topics/T:publish", "/openapi.json"])
async def test_an_answer_that_is_not_read_until_a_stop_is_no_server_error(path: str) -> None:
    class Publishing:
        """Hot routes that publish at once."""

        def answer(self, scope: dict[str, Any], _: object) -> Coroutine[Any, Any, bytes] | None:
            return self._published() if scope["path"].endswith(":publish") else None

        async def _published(self) -> bytes:
            return b"{}"

    app = App(NONE, NONE, UnreadAnswers(2**20), cast("Any", Publishing()), [], NONE)
    sent: list[Any] = []

    async def unread(event: Any) -> None:
        sent.append(event["type"])
        if event["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    answering = asyncio.ensure_future(app(scope, NONE, unread))
    async with asyncio.timeout(5):
        while len(sent) < 2:
            await asyncio.sleep(0.01)

    answering.cancel()
    await asyncio.wait([answering])

    assert app.answered == [0, 0, 1, 0, 0, 0]
    assert sent == ["http.response.start", "http.response.body"]
