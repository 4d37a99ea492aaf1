"""Where the token of a request is read (contract 3.1), and what waiting requests count for."""

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import AsyncMock
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.access.admission import Bearer, Caller
from ams.core.errors import InvalidInput, Overloaded
from ams.core.held import SMALL
from ams.http import messages
from ams.http.asgi import Receive, query_value
from ams.http.fast import FastRoutes, Gate
from ams.http.limits import Bodies
from ams.service.delivering import Deliverer
from ams.storage.database.invalidation import Invalidations

NOBODY: Any = None
"""Reading a token asks nobody."""
BIG = 2 * SMALL
HEADER, EMPTY_HEADER = [(b"x-api-key", b"h")], [(b"x-api-key", b"")]
BEARER, BASIC = [(b"authorization", b"bearer b")], [(b"authorization", b"Basic b")]


@pytest.mark.parametrize(
    ("option", "headers", "query", "token"),
    [("both", HEADER, b"key=q", "h"), ("both", HEADER, b"", "h"), ("both", EMPTY_HEADER, b"key=q", "q"),
     ("both", [], b"key=q", "q"), ("both", [], b"", None), ("both", [(b"authorization", b"h")], b"Key=q", None),
     ("both", BEARER, b"key=q", "b"), ("both", [*BEARER, *HEADER], b"key=q", "h"),
     ("both", [*EMPTY_HEADER, *BEARER], b"", "b"), ("both", BASIC, b"key=q", "q"), ("both", BASIC, b"", None),
     ("header", BEARER, b"key=q", "b"), ("header", BASIC, b"key=q", None), ("header", HEADER, b"key=q", "h"),
     ("header", [], b"key=q", None), ("header", EMPTY_HEADER, b"key=q", None),
     ("key", BEARER, b"key=q", "q"), ("key", BEARER, b"", None), ("key", HEADER, b"key=q", "q"),
     ("key", HEADER, b"", None), ("key", [], b"a=1&key=q&key=r", "q"), ("key", [], b"key=", None),
     ("key", [], b"key=a%2Bb", "a+b"), ("key", [], b"?&key=q", "q")],
)  # fmt: skip
def test_3_1_where_the_token_is_read(
    option: str, headers: list[tuple[bytes, bytes]], query: bytes, token: str | None
) -> None:
    assert Gate(NOBODY, option).token(headers, query) == token


def test_only_a_bearer_token_may_be_an_issuers() -> None:
    gate = Gate(NOBODY, "both")

    assert isinstance(gate.token(BEARER, b""), Bearer)
    assert not isinstance(gate.token(HEADER, b""), Bearer)
    assert not isinstance(gate.token([], b"key=q"), Bearer)


@given(
    st.lists(st.sampled_from([b"key", b"k%65y", b"=", b"&", b"a", b"+", b"%41", b"%ff", b"\xfc", b"%"])).map(b"".join)
)
def test_a_value_of_a_query_is_found_as_the_standard_library_finds_it(query: bytes) -> None:
    fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="replace")

    assert query_value(query, "key") == next((value for name, value in fields if name == "key"), None)


async def test_the_body_of_an_acknowledgement_is_counted_while_it_waits_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Big ones are read one at a time, so many may wait."""
    reading, read = asyncio.Event(), asyncio.Event()

    async def ack_ids(*_: object, **__: object) -> NoReturn:
        reading.set()
        await read.wait()
        raise InvalidInput("Invalid ack parameter")

    def sending(*sizes: int) -> Receive:
        last = len(sizes) - 1
        bodies = ({"body": b"x" * size, "more_body": number < last} for number, size in enumerate(sizes))
        return AsyncMock(side_effect=[{"type": "http.request", **each} for each in bodies])

    class Open(Gate):
        async def admit(self, *_: object, counted: bool = False) -> Caller:
            return Caller(None, None, frozenset({"service_admin"}), True, None)

    monkeypatch.setattr(messages.MessageReader, "ack_ids", ack_ids)
    monkeypatch.setattr(Deliverer, "is_parallel", AsyncMock(return_value=False))
    bodies = Bodies(max_body=8 * BIG, max_buffered=2 * BIG, seconds=5)
    deliverer = Deliverer(NOBODY, NOBODY, NOBODY, 1, 1, 1.0)
    working: Any = SimpleNamespace(puller=NOBODY, settler=NOBODY)
    routes = FastRoutes(Open(NOBODY, "both"), bodies, NOBODY, deliverer, working, Invalidations(), strict=False)
    path = "/v1/projects/P/subscriptions/S:acknowledge"
    acknowledging = routes.answer({"method": "POST", "path": path, "headers": [], "query_string": b""}, sending(BIG))
    assert acknowledging is not None
    waiting = asyncio.ensure_future(acknowledging)
    await reading.wait()

    with pytest.raises(Overloaded):
        await bodies.read([], sending(BIG, BIG), None, ("other",))

    read.set()
    with pytest.raises(InvalidInput):
        await waiting
    assert len(await bodies.read([], sending(BIG, BIG), None, ("other",))) == 2 * BIG
