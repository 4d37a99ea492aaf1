"""How bodies are read (contract 2 and 4)."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.http.json_bodies import read
from ams.core.errors import BadRequest
from ams.wire.base import Request


class Fields(Request, frozen=True):
    text: str | None = None
    number: int | None = None
    switch: bool | None = None
    texts: tuple[str, ...] | None = None
    by_name: Mapping[str, str] | None = None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "EOF"),
        (b" \n", "EOF"),
        (b'{"text": "a', "unexpected EOF"),
        (b'{"text"', "unexpected EOF"),
        (b'{"text": tru', "unexpected EOF"),
        (b"{", "unexpected EOF"),
        (b"no", "invalid character 'n' looking for beginning of value"),
        (b"{'text': 1}", 'invalid character "\'" at position 2'),
        (b'{"number": NaN}', "invalid character 'N' looking for beginning of value"),
        (b"[]", "json: cannot unmarshal array into an object"),
        (b'"x"', "json: cannot unmarshal string into an object"),
        (b'{"text": 1}', "json: cannot unmarshal number into field text of type string"),
        (b'{"number": "1"}', "json: cannot unmarshal string into field number of type int"),
        (b'{"number": 1.5}', "json: cannot unmarshal number into field number of type int"),
        (b'{"number": true}', "json: cannot unmarshal bool into field number of type int"),
        (b'{"number": ' + b"9" * 5000 + b"}", "json: cannot unmarshal number into field number of type int"),
        (b'{"switch": "yes"}', "json: cannot unmarshal string into field switch of type bool"),
        (b'{"texts": "a"}', "json: cannot unmarshal string into field texts of type []string"),
        (b'{"texts": [[]]}', "json: cannot unmarshal array into field texts of type []string"),
        (b'{"by_name": {"a": {}}}', "json: cannot unmarshal object into field by_name of type map[string]string"),
        (b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_what_cannot_be_read_is_told(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(body, Fields)
    assert caught.value.message == f"Poorly formatted JSON. {reason}"


def test_names_are_matched_in_any_spelling_and_unknown_ones_passed_over() -> None:
    body = b'{"TEXT": "a", "Number": 7, "other": [{}], "Texts": ["a", null], "switch": null, "BY_NAME": {"A": "b"}}'
    assert read(body, Fields) == Fields("a", 7, None, ("a", ""), {"A": "b"})


def test_what_follows_the_first_value_is_passed_over() -> None:
    assert read(b'{"text": "a"} and more', Fields) == Fields("a")
    assert read(b"null", Fields) == Fields()


def test_half_a_letter_is_replaced() -> None:
    assert read(rb'{"text": "a\ud800b"}', Fields) == Fields("a\ufffdb")
    assert read(b'{"text": "a\xffb"}', Fields) == Fields("a\ufffdb")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u0 tfn1-e.', max_size=40).map(str.encode))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        read(body, Fields)
    except BadRequest as error:
        assert error.message.startswith("Poorly formatted JSON. ")
