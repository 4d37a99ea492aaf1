import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import BadRequest, InvalidInput
from ams.http.bodies import MAX_MEMBERS, Reader, first_value, strings
from ams.wire.base import CamelRequest


class Inner(CamelRequest):
    max_messages: int | None = None


class Outer(CamelRequest):
    ack_ids: list[str] | None = None
    push_config: Inner | None = None
    many: list[Inner] | None = None


READER = Reader(Outer, lambda: InvalidInput("parse error"))


@pytest.mark.parametrize(
    ("body", "read"),
    [
        pytest.param(
            b'{"AckIds": ["a"], "PUSHCONFIG": {"maxmessages": 3}, "Many": [{"MaxMessages": 1}, {}]}',
            Outer(["a"], Inner(3), [Inner(1), Inner()]), id="names without regard to case, on every level"),
        pytest.param(b'{"x": 1, "pushConfig": {"y": {}, "maxMessages": 3}}', Outer(None, Inner(3)), id="unknown names"),
        pytest.param(b'{"ackIds": ["a"], "ackIds": ["b"]}', Outer(["b"]), id="given twice, the last wins"),
        pytest.param(b'{"ackIds": ["a"], "ACKIDS": ["b"]}', Outer(["b"]), id="also in another spelling"),
        pytest.param(b'{"ackIds": null}', Outer(), id="null is absent"),
        pytest.param(b" null ", Outer(), id="a null body is an empty object"),
    ],
)  # fmt: skip
def test_1_2_how_a_body_is_read(body: bytes, read: Outer) -> None:
    assert READER.read(body) == read


@pytest.mark.parametrize("odd", [b"1e999", b"9" * 5000, b"[" + b"[]," * 9 + b"-1e-999]", b'{"a": {"b": [1e999]}}'])
def test_1_2_unknown_fields_are_ignored_whatever_they_hold(odd: bytes) -> None:
    assert READER.read(b'{"x": %b, "pushConfig": {"y": %b, "maxMessages": 3}}' % (odd, odd)) == Outer(None, Inner(3))


def members(count: int) -> bytes:
    return b'{%b, "AckIds": []}' % b",".join(b'"%064d": 0' % number for number in range(count - 1))


def test_1_2_there_may_be_thousands_of_unknown_fields() -> None:
    assert READER.read(members(MAX_MEMBERS)) == Outer([])


def test_too_many_unknown_fields_are_refused_before_anything_is_made_of_them() -> None:
    with pytest.raises(InvalidInput, match="parse error"):
        READER.read(members(MAX_MEMBERS + 1))


@pytest.mark.parametrize(
    "body", [b'{"AckIds": 5, "ackIds": ["b"]}', b'{"ackIds": ["b"], "ACKIDS": 5}', b'{"Many": [{"MAXMESSAGES": "1"}]}']
)
def test_1_2_a_wrong_type_under_another_spelling_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="parse error"):
        READER.read(body)


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"[]", b'"x"', b"1", b"{} x", b"{", b'{"ackIds": "a"}', b'{"ackIds": [1]}', b'{"ackIds": [null]}',
     b'{"pushConfig": {"maxMessages": 10.0}}', b'{"pushConfig": {"maxMessages": "10"}}', b'{"pushConfig": []}',
     b"\xff\xfe", b'{"ackIds": ["\xff"]}', b'{"a":' * 100_000, b"[" * 100_000],
    ids=range(17),
)  # fmt: skip
def test_1_2_wrong_types_and_no_json_are_the_parse_error_of_the_route(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="parse error"):
        READER.read(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(JSON | st.dictionaries(st.sampled_from(["ackIds", "AckIds", "pushConfig", "many", "MANY"]), JSON))
def test_any_json_is_read_or_refused_and_nothing_else(value: object) -> None:
    try:
        assert isinstance(READER.read(json.dumps(value).encode()), Outer)
    except InvalidInput as error:
        assert error.message == "parse error"


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=10,
)


@given(VALUES, st.sampled_from(["", " ", "\n\t"]), st.sampled_from(["", " x", "\n{}", "]", ' "']))
def test_1_2_what_follows_the_first_value_does_not_matter(value: object, before: str, after: str) -> None:
    text = json.dumps(value)

    assert first_value(f"{before}{text}{after}".encode()) == text.encode()


@pytest.mark.parametrize("number", ["1e999", "9" * 5000, "-1.5e-7"])
def test_1_2_numbers_of_any_size_may_stand_in_it(number: str) -> None:
    assert first_value(f'{{"x": {number}}} x'.encode()) == f'{{"x": {number}}}'.encode()


def test_1_2_null_is_absent_in_a_map_of_texts() -> None:
    assert strings(b'{"data": null, "Data": "", "x": "y"}') == {"Data": "", "x": "y"}
    assert strings(b"null") == strings(b"") == {}


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n"])
def test_1_2_a_body_without_text_stays_empty(body: bytes) -> None:
    assert first_value(body) == b""


@pytest.mark.parametrize("body", [b"no", b"{", b"\xff", b'{"a": 1', b"[" * 100_000])
def test_16_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="^Invalid Request Body$"):
        first_value(body)
