"""Where the token of a request is read (contract 3.1)."""

from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.access.admission import Bearer
from ams.http.asgi import query_value
from ams.http.fast import Gate

NOBODY: Any = None
"""Reading a token asks nobody."""
HEADER, EMPTY_HEADER = [(b"x-api-key", b"h")], [(b"x-api-key", b"")]
BEARER, BASIC = [(b"authorization", b"bearer b")], [(b"authorization", b"Basic b")]


@pytest.mark.parametrize(
    ("option", "headers", "query", "token"),
    [
        ("both", HEADER, b"key=q", "h"),
        ("both", HEADER, b"", "h"),
        ("both", EMPTY_HEADER, b"key=q", "q"),
        ("both", [], b"key=q", "q"),
        ("both", [], b"", None),
        ("both", [(b"authorization", b"h")], b"Key=q", None),
        ("both", BEARER, b"key=q", "b"),
        ("both", [*BEARER, *HEADER], b"key=q", "h"),
        ("both", [*EMPTY_HEADER, *BEARER], b"", "b"),
        ("both", BASIC, b"key=q", "q"),
        ("both", BASIC, b"", None),
        ("header", BEARER, b"key=q", "b"),
        ("header", BASIC, b"key=q", None),
        ("key", BEARER, b"key=q", "q"),
        ("key", BEARER, b"", None),
        ("header", HEADER, b"key=q", "h"),
        ("header", [], b"key=q", None),
        ("header", EMPTY_HEADER, b"key=q", None),
        ("key", HEADER, b"key=q", "q"),
        ("key", HEADER, b"", None),
        ("key", [], b"a=1&key=q&key=r", "q"),
        ("key", [], b"key=", None),
        ("key", [], b"key=a%2Bb", "a+b"),
        ("key", [], b"?&key=q", "q"),
    ],
)
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
