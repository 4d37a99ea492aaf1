import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import BadRequest
from ams.http.routes.bodies import first_value, strings

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
