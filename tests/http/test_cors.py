"""Preflights whose headers come on several lines, which the contract's client cannot send."""

from typing import Any

from ams.http.cors import CrossOrigin


async def preflight(*lines: tuple[bytes, bytes]) -> dict[str, Any]:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    headers = [(b"origin", b"https://page.example"), *lines]
    await CrossOrigin(nothing)({"type": "http", "method": "OPTIONS", "headers": headers}, nothing, send)
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
    assert (await answered((b"www-authenticate", b"Bearer")))[b"access-control-expose-headers"] == b"www-authenticate"
    assert b"access-control-expose-headers" not in await answered()


async def answered(*headers: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    sent: list[Any] = []

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": list(headers)})

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "headers": [(b"origin", b"https://page.example")]}
    await CrossOrigin(app)(scope, send, send)
    return dict(sent[0]["headers"])
