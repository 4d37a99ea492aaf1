import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import Batch, Message, batch_of, batch_of_base64, decoded_data, message, parse, sent_bytes
from tests.support.texts import DECODED

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


@pytest.mark.parametrize(("text", "expected"), DECODED)
def test_m7_data_is_decoded_and_its_line_breaks_do_not_matter(text: str, expected: bytes | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            decoded_data(text)
    else:
        assert decoded_data(text) == expected


@given(DATA, st.integers(0, 20))
def test_m7_line_breaks_do_not_matter_anywhere(data: str, place: int) -> None:
    assert decoded_data(data[:place] + "\r\n" + data[place:]) == base64.b64decode(data)


def test_a_request_counts_the_length_of_its_texts_not_of_their_bytes() -> None:
    assert batch_of([message("aGk=", None), message("", {"k": "v"})]).data_bytes == 4


@given(st.lists(st.tuples(st.one_of(DATA, TEXT), st.dictionaries(TEXT, TEXT, max_size=2)), max_size=5))
def test_what_is_stored_counts_as_many_bytes_as_its_request_did(given: list[tuple[str, dict[str, str]]]) -> None:
    messages = [message(data, attributes) for data, attributes in given]
    fragments = [each.fragment for each in messages]

    assert sent_bytes(fragments, sum(map(len, fragments))) == batch_of(messages).data_bytes


@given(DATA)
def test_plain_data_makes_the_same_fragment_whether_this_is_known_or_not(data: str) -> None:
    assert message(data, plain=True) == message(data)


def test_data_that_ends_like_the_begin_of_data_is_measured_right() -> None:
    for data in ('"', ':"', ' "', '\\"', ':\\"', "\r\n", "a\nb", "\u00e9", "\u2028", ""):
        for attributes in ({}, {"k": data}):
            made = message(data, attributes)

            assert sent_bytes([made.fragment], len(made.fragment)) == len(data)
            assert parse(made.fragment).data == data


MESSAGES = st.lists(st.builds(message, DATA, st.dictionaries(TEXT, TEXT, max_size=2)), max_size=5)


@given(MESSAGES)
def test_a_batch_is_its_messages_and_their_sizes(given: list[Message]) -> None:
    made = batch_of(given)

    assert list(made) == [made[place] for place in range(len(given))] == given
    assert [made[start:] for start in range(3)] == [given[start:] for start in range(3)]
    assert list(made.fragments) == [each.fragment for each in given]
    assert made.size == sum(len(each.fragment) for each in given)
    assert made.largest == max((len(each.fragment) for each in given), default=0)
    assert batch_of(made) is made


@given(MESSAGES)
def test_a_batch_of_base64_is_the_messages_one_by_one(given: list[Message]) -> None:
    made = batch_of_base64(given)

    if all(each.data for each in given):
        assert made is not None
        assert list(made) == given
        assert counted(made) == counted(batch_of(given))
    else:
        assert made is None


@pytest.mark.parametrize("text", [text for text, data in DECODED if not data or "\n" in text])
@pytest.mark.parametrize("others", [0, 2])
def test_no_batch_of_base64_is_made_of_what_needs_a_closer_look(text: str, others: int) -> None:
    assert batch_of_base64([*[message("aGk=")] * others, message(text)]) is None


def counted(made: Batch) -> tuple[int, int, int]:
    return made.size, made.largest, made.data_bytes


@given(MESSAGES)
def test_equal_messages_have_equal_fragments_once_their_attributes_are_in_order(given: list[Message]) -> None:
    turned = [message(each.data, dict(reversed(each.attributes.items()))) for each in given]

    assert batch_of(turned).in_order() == batch_of(given).in_order()
    assert [parse(each) for each in batch_of(turned).in_order()] == [
        Message(each.attributes, each.data, fragment)
        for each, fragment in zip(given, batch_of(given).in_order(), strict=True)
    ]
