import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from ams.messages import data_bytes, message, parse

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
DATA = st.binary(max_size=200).map(lambda data: base64.b64encode(data).decode())


@given(DATA, st.dictionaries(TEXT, TEXT, max_size=5))
def test_m3_any_text_survives_the_round_trip(data: str, attributes: dict[str, str]) -> None:
    stored = parse(message(data, attributes).fragment)

    assert (stored.data, stored.attributes) == (data, attributes)


@given(DATA, st.dictionaries(TEXT, TEXT, max_size=5))
def test_a_fragment_is_json_that_leaves_empty_attributes_out(data: str, attributes: dict[str, str]) -> None:
    shown = json.loads(b"{" + message(data, attributes).fragment + b"}")

    assert shown == ({"attributes": attributes, "data": data} if attributes else {"data": data})


def test_a_request_counts_the_length_of_its_texts_not_of_their_bytes() -> None:
    assert data_bytes([message("aGk=", None), message("", {"k": "v"})]) == 4
