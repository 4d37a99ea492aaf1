"""The application: tokens, addresses and parameters of requests, preflights, errors, and unread answers."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from unittest.mock import AsyncMock
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.access.admission import Bearer
from ams.core import errors
from ams.core.clock import Milliseconds, publish_time
from ams.core.errors import AmsError, BadSettings, InvalidInput, NotAllowed, NotAuthenticated
from ams.core.fair_share import MAX_UNCOUNTED_BYTES
from ams.http import messages
from ams.http.app import App
from ams.http.asgi import client_address, query_value, usual_address
from ams.http.errors import refusal, status_of
from ams.http.hot_routes import RequestGate
from ams.http.limits import ClientLeft
from ams.http.routes.subscriptions import zulu_time
from ams.http.routing import Call, page_request, shown_page
from ams.outgoing.address_guard import networks
from ams.service.delivery import UnreadAnswers
from ams.storage.registry.records import Page
from ams.web.listener import is_within
from ams.wire.projects import Topic, Topics
from tests.support.hot_packets import ACKNOWLEDGE, post_packet
from tests.support.two_ways import one_way
from tests.support.waiting import wait_until_async

NONE: Any = None

# Places of a request's token (contract 3.1)

HEADER, EMPTY_HEADER = [(b"x-api-key", b"h")], [(b"x-api-key", b"")]
BEARER, BASIC = [(b"authorization", b"bearer b")], [(b"authorization", b"Basic b")]


@pytest.mark.parametrize(("option", "headers", "query", "token"), [
    ("both", HEADER, b"key=q", "h"), ("both", HEADER, b"", "h"), ("both", EMPTY_HEADER, b"key=q", "q"),
    ("both", [], b"key=q", "q"), ("both", [], b"", None), ("both", [(b"authorization", b"h")], b"Key=q", None),
    ("both", BEARER, b"key=q", "b"), ("both", [*BEARER, *HEADER], b"key=q", "h"),
    ("both", [*EMPTY_HEADER, *BEARER], b"", "b"), ("both", BASIC, b"key=q", "q"), ("both", BASIC, b"", None),
    ("header", BEARER, b"key=q", "b"), ("header", BASIC, b"key=q", None), ("header", HEADER, b"key=q", "h"),
    ("header", [], b"key=q", None), ("header", EMPTY_HEADER, b"key=q", None),
    ("key", BEARER, b"key=q", "q"), ("key", BEARER, b"", None), ("key", HEADER, b"key=q", "q"),
    ("key", HEADER, b"", None), ("key", [], b"a=1&key=q&key=r", "q"), ("key", [], b"key=", None),
    ("key", [], b"key=a%2Bb", "a+b"), ("key", [], b"?&key=q", "q"),
])  # fmt: skip
def test_3_1_where_the_token_is_read(option: str, headers: list[tuple[bytes, bytes]], query: bytes, token: str | None):
    found = RequestGate(NONE, option, NONE, NONE).token(headers, query)
    assert found == token
    assert isinstance(found, Bearer) == (token == "b")  # only such a token may be an issuer's


@given(
    st.lists(st.sampled_from([b"key", b"k%65y", b"=", b"&", b"a", b"+", b"%41", b"%ff", b"\xfc", b"%"])).map(b"".join)
)
def test_a_value_of_a_query_is_found_as_the_standard_library_finds_it(query: bytes) -> None:
    fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="replace")
    assert query_value(query, "key") == next((value for name, value in fields if name == "key"), None)


@pytest.mark.parametrize("size", ["x", "1.0", "1_0", "0x1", "%20", "%D9%A1"])
def test_4_what_is_no_integer_is_no_size_of_a_page(size: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid page size$"):
        page_request(Call({}, f"pageSize={size}".encode(), None, None, AsyncMock()))


# The address of a client

PROXIES = networks("127.0.0.1, 10.0.0.0/8,::1", "trusted_proxies")


@pytest.mark.parametrize(("peer", "forwarded", "address"), [
    ("192.0.2.1", [], "192.0.2.1"), ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # anybody may write it
    ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"), ("127.0.0.1", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
    ("127.0.0.1", ["203.0.113.9", "198.51.100.1, 10.1.2.3"], "198.51.100.1"),
    ("127.0.0.1", ["10.1.2.3"], "10.1.2.3"), ("127.0.0.1", ["198.51.100.1, unknown"], "127.0.0.1"),
    ("127.0.0.1", [""], "127.0.0.1"), ("127.0.0.1", [], "127.0.0.1"), (None, ["198.51.100.1"], ""),
    ("::ffff:127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"), ("::1", ["2001:DB8::0:1"], "2001:db8::1"),
])  # fmt: skip
def test_the_client_is_the_last_hop_that_is_no_proxy_of_ours(peer: str | None, forwarded: list[str], address: str):
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    assert client_address({"client": (peer, 1) if peer else None, "headers": headers}, PROXIES) == address


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(max_codepoint=255)), st.sampled_from(["192.0.2.1", "127.0.0.1"]))
def test_what_a_client_writes_before_the_hop_of_a_proxy_never_counts(written: str, peer: str) -> None:
    scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", f"{written}, 198.51.100.1".encode("latin-1"))]}
    assert client_address(scope, PROXIES) == ("198.51.100.1" if peer == "127.0.0.1" else peer)
    assert client_address(scope, ()) == peer


def test_an_address_is_compared_in_its_usual_form() -> None:
    assert usual_address("::ffff:192.0.2.1") == "192.0.2.1"
    assert usual_address("fe80::1%eth0") == "fe80::1"
    assert usual_address("nobody") == ""
    assert is_within(usual_address("::ffff:192.0.2.1"), networks("192.0.2.0/24", ""))
    assert not is_within(usual_address("nobody"), networks("0.0.0.0/0", ""))
    with pytest.raises(BadSettings, match="trusted_proxies"):
        networks("10.0.0.1/8", "trusted_proxies")


# Times (contract 11.4)

MOMENTS = st.integers(0, 4_102_444_800_000).map(Milliseconds)


@given(MOMENTS, st.integers(0, 9), st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_11_4_a_time_of_up_to_nine_digits_reads_as_itself(moment: Milliseconds, digits: int, day: datetime) -> None:
    assert zulu_time(publish_time(moment)) == moment

    fraction = f"{moment % 1000:03d}000000"[:digits]
    text = f"{day.replace(microsecond=0).isoformat(sep=' ')}{'.' + fraction if digits else ''}Z"
    seconds = (day.replace(tzinfo=UTC, microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    assert zulu_time(text) == seconds * 1000 + int(fraction.ljust(3, "0")[:3])


def test_11_4_what_is_finer_than_a_millisecond_is_rounded_up() -> None:
    assert zulu_time("1970-01-01T00:00:00.000000001Z") == 1
    assert zulu_time("1970-01-01T00:00:00.999999999Z") == 1000
    assert zulu_time("1969-12-31T23:59:59.999Z") == -1


@pytest.mark.parametrize("text", [
    "", "2024-01-02", "2024-01-02T03:04Z", "2024-01-02T03:04:05.Z", "2024-01-02t03:04:05Z", "2024-01-02T03:04:05z",
    "2024-01-02T24:00:01Z", "2024-01-02T03:04:60Z", "0000-01-01T00:00:00Z", "2024-01-02T03:04:05.678+00:00",
    " 2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z\n", "٢٠٢٤-01-02T03:04:05Z", "12024-01-02T03:04:05Z",
])  # fmt: skip
def test_11_4_everything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Time is not in valid Zulu format\.$"):
        zulu_time(text)


# Pages of other origins

PUT, ASKED = (b"access-control-request-method", b"PUT"), b"access-control-request-headers"
EXPOSED_HEADERS = b"x-request-id, date, retry-after, etag"


async def ask_app(app: App, method: str, *headers: tuple[bytes, bytes]) -> dict[Any, Any]:
    send, page = AsyncMock(), (b"origin", b"https://page.example")
    await app({"type": "http", "method": method, "path": "/", "headers": [page, *headers]}, NONE, send)
    start = send.call_args_list[0].args[0]
    return {"status": start["status"], **dict(start["headers"])}


@pytest.mark.parametrize(("lines", "allowed"), [
    ([PUT, (ASKED, b"content-type"), (ASKED, b"x-api-key")], b"content-type,x-api-key"),
    ([PUT, (PUT[0], b"BREW")], b""),
    *(([PUT, (ASKED, name)], name) for name in (b"authorization", b"idempotency-key", b"if-match")),
    ([PUT, (ASKED, b"x-other"), (ASKED, b"x-api-key")], None),
])  # fmt: skip
async def test_1_4_every_line_of_asked_headers_counts(lines: list[tuple[bytes, bytes]], allowed: bytes | None) -> None:
    answer = await ask_app(App(NONE, NONE, NONE, NONE, [], NONE), "OPTIONS", *lines)
    assert answer["status"] == (403 if allowed is None else 200)
    assert allowed is None or answer.get(b"access-control-allow-headers", b"") == allowed


@pytest.mark.parametrize(
    ("error", "exposed"),
    [(NotAllowed(), EXPOSED_HEADERS), (NotAuthenticated(), EXPOSED_HEADERS + b", www-authenticate")],
)
async def test_1_4_a_page_may_read_the_headers_of_an_error(error: Exception, exposed: bytes) -> None:
    refusing: Any = SimpleNamespace(
        answer=lambda *_: AsyncMock(side_effect=error)(), turned_away=AsyncMock(return_value=error)
    )
    answer = await ask_app(App(NONE, NONE, NONE, refusing, [], refusing), "GET")

    assert answer[b"access-control-expose-headers"] == exposed


# Errors


def family(kind: type[AmsError]) -> Iterator[type[AmsError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__ and child is not errors.Unusable:  # this one ends the start, not a call
            yield child
            yield from family(child)


@pytest.mark.parametrize("kind", list(family(AmsError)), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_the_envelope(kind: type[AmsError]) -> None:
    answer = refusal(kind("what happened"))

    assert answer.code == status_of(kind).code
    assert json.loads(answer.body) == {
        "error": {"code": answer.code, "message": "what happened", "status": status_of(kind).word}
    }


INTERNAL = (500, "INTERNAL_SERVER_ERROR")


@pytest.mark.parametrize(("kind", "wire", "text", "seconds"), [
    (errors.RateLimited, (429, "RESOURCE_EXHAUSTED"), "Too many requests", 1),
    (errors.Overloaded, (503, "UNAVAILABLE"), None, 2), (errors.Unavailable, INTERNAL, "Backend Error", 2),
    (errors.LogUnavailable, INTERNAL, "Backend Error", 2),
    (errors.RegistryUnavailable, INTERNAL, "Internal error while querying datastore", 2),
    (errors.NotAcceptable, (406, "NOT_ACCEPTABLE"), None, None),
])  # fmt: skip
def test_each_error_has_its_answer(kind: type[AmsError], wire: tuple[int, str], text: str | None, seconds: int | None):
    answer = refusal(kind(*[] if text else ["x"]))
    assert (answer.code, json.loads(answer.body)["error"]["status"]) == wire
    assert answer.headers == (() if seconds is None else ((b"retry-after", b"%d" % seconds),))
    assert text is None or kind().message == text


def test_a_401_says_how_to_log_in_and_why_a_token_was_refused() -> None:
    """RFC 9110, 15.5.2, and RFC 6750, 3."""
    plain = b'Bearer realm="ams"'

    def challenge(error: AmsError) -> bytes:
        [(name, value)] = refusal(error).headers
        assert name == b"www-authenticate"
        return value

    assert challenge(errors.NotAuthenticated()) == challenge(errors.UnknownToken()) == plain
    assert refusal(errors.NotAllowed()).headers == ()
    expired = challenge(errors.TokenRefused("It has expired"))
    assert expired == plain + b', error="invalid_token", error_description="It has expired"'
    odd = challenge(errors.TokenRefused('no "key" of \\ \r\nX: y \u00e9'))
    assert odd.endswith(b'error_description="no ?key? of ? ??X: y ?"')


def test_an_error_nobody_thought_of_tells_nothing_and_one_of_memory_may_pass() -> None:
    answer = refusal(RuntimeError("token 0123 of the secret path"))

    assert json.loads(answer.body)["error"] == {
        "code": 500, "message": "Internal error", "status": "INTERNAL_SERVER_ERROR"
    }  # fmt: skip
    of_memory = refusal(MemoryError())
    assert (answer.headers, of_memory.code, of_memory.headers) == ((), 503, ((b"retry-after", b"2"),))


# Long-running work, and its memory


async def test_an_acknowledgement_that_waits_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones are read one at a time, so many may wait."""
    reading, read = asyncio.Event(), asyncio.Event()

    async def ack_ids(*_: object, **__: object) -> NoReturn:
        reading.set()
        await read.wait()
        raise InvalidInput("Invalid ack parameter")

    monkeypatch.setattr(messages.MessageReader, "ack_ids", ack_ids)
    async with one_way(tmp_path / "data", lane=False) as way:
        asking = asyncio.ensure_future(way.send_packets([post_packet(ACKNOWLEDGE, b" " * (2 * MAX_UNCOUNTED_BYTES))]))
        await reading.wait()
        assert way.held_resources()[0] >= 2 * MAX_UNCOUNTED_BYTES

        read.set()
        assert (await asking)[0].startswith(b"HTTP/1.1 400")
        assert way.held_resources() == (0, 0, 0, 0)


@pytest.mark.parametrize(("client_leaves", "error"), [(True, ClientLeft), (False, asyncio.CancelledError)])
async def test_long_work_ends_with_its_client_or_at_a_stop(client_leaves: bool, error: type[BaseException]) -> None:
    left = asyncio.Event()

    async def receive() -> dict[str, str]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def work() -> None:
        with Call({}, b"", None, None, AsyncMock(), (), receive).watch_client() as gone:
            task = asyncio.ensure_future(asyncio.Event().wait())
            assert gone is not None
            gone.add_done_callback(lambda _: task.cancel())
            await task

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)

    if client_leaves:
        left.set()
    else:
        working.cancel()

    with pytest.raises(error):
        await working


@pytest.mark.parametrize("path", ["/v1/projects/P/topics/T:publish", "/openapi.json"])
async def test_an_answer_that_is_not_read_until_a_stop_is_no_server_error(path: str) -> None:
    def publish(scope: dict[str, Any], _: object) -> Coroutine[Any, Any, bytes] | None:
        return AsyncMock(return_value=b"{}")() if scope["path"].endswith(":publish") else None

    app = App(NONE, NONE, UnreadAnswers(2**20), cast("Any", SimpleNamespace(answer=publish)), [], NONE)
    sent: list[Any] = []

    async def wait_after_body(event: Any) -> None:
        sent.append(event["type"])
        if event["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    answering = asyncio.ensure_future(app(scope, NONE, wait_after_body))
    await wait_until_async(lambda: len(sent) == 2)

    answering.cancel()
    await asyncio.wait([answering])

    assert app.answered == [0, 0, 1, 0, 0, 0]
    assert sent == ["http.response.start", "http.response.body"]


async def test_a_long_list_is_shown_with_breaths_in_between() -> None:
    shown = most = 0

    def show(number: int) -> Topic:
        nonlocal shown
        shown += 1
        return Topic(str(number), "")

    writing = asyncio.ensure_future(shown_page(Topics, "topics", Page(range(2_300), "next", 9_000), show))
    while not writing.done():
        before = shown
        await asyncio.sleep(0)
        most = max(most, shown - before)

    page = await writing
    assert [each.name for each in page.topics] == [str(number) for number in range(2_300)]
    assert (page.next_page_token, page.total_size, most) == ("next", 9_000, 500)
