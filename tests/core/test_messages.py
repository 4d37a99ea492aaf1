import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import (
    MAX_ORDERING_KEY,
    Batch,
    Message,
    batch_of,
    batch_of_base64,
    batch_of_base64_and_keys,
    decoded_data,
    has_ordering_keys,
    is_ordering_key,
    message,
    ordering_key_of,
    parse,
    sent_bytes,
    split_ordering_key,
    with_ordering_key,
)
from tests.support.texts import DECODED

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
DATA = st.binary(max_size=200).map(lambda data: base64.b64encode(data).decode())


@given(DATA, st.dictionaries(TEXT, TEXT, max_size=5), TEXT)
def test_m3_any_text_survives_the_round_trip_as_json_without_what_is_empty_that_ends_with_data(
    data: str, attributes: dict[str, str], key: str
) -> None:
    fragment = message(data, attributes, key).fragment
    stored, shown = parse(fragment), json.loads(b"{" + fragment + b"}")

    assert (stored.data, stored.attributes, stored.ordering_key) == (data, attributes, key)
    every = {"orderingKey": key, "attributes": attributes, "data": data}
    assert list(shown.items()) == [(name, value) for name, value in every.items() if value or name == "data"]
    assert message(data, plain=True) == message(data), "plain data makes the same fragment"


@given(DATA | TEXT, st.dictionaries(TEXT, TEXT, max_size=2))
def test_a_message_without_a_key_is_the_bytes_it_always_was(data: str, attributes: dict[str, str]) -> None:
    fragment = message(data, attributes).fragment

    assert fragment.startswith((b'"data":', b'"attributes":{'))
    assert message(data, attributes, "").fragment == with_ordering_key(fragment, "") == fragment
    assert with_ordering_key(fragment, None) == fragment


# Texts that look like what stands around a key.
KEYS = TEXT | st.sampled_from(
    ['"', '",', ',"', ",", ",,", "\\", '\\",\\"', '","data":"x"', '"attributes":{', "\u2028", "\n"]
)


@given(DATA | KEYS, st.dictionaries(KEYS, KEYS, max_size=2), KEYS)
def test_a_key_is_found_in_any_fragment_and_taken_away(data: str, attributes: dict[str, str], key: str) -> None:
    plain, made = message(data, attributes), message(data, attributes, key)

    assert ordering_key_of(made.fragment) == made.ordering_key == key
    assert ordering_key_of(plain.fragment) == ""
    member, rest = split_ordering_key(made.fragment)
    assert rest == plain.fragment
    assert member + rest == made.fragment == with_ordering_key(plain.fragment, key)
    assert has_ordering_keys([plain.fragment, made.fragment, plain.fragment]) == bool(key)


def test_a_key_is_as_long_as_its_bytes() -> None:
    assert is_ordering_key("")
    assert is_ordering_key("\u00e9" * (MAX_ORDERING_KEY // 2))
    assert not is_ordering_key("\u00e9" * (MAX_ORDERING_KEY // 2) + "x")


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


@given(st.lists(st.builds(message, DATA | TEXT, st.dictionaries(TEXT, TEXT, max_size=2), TEXT), max_size=5))
def test_what_is_stored_counts_as_many_bytes_as_its_request_did(messages: list[Message]) -> None:
    fragments = [each.fragment for each in messages]

    assert sent_bytes(fragments, sum(map(len, fragments))) == batch_of(messages).data_bytes


def test_data_that_ends_like_the_begin_of_data_is_measured_right() -> None:
    for data in ('"', ':"', ' "', '\\"', ':\\"', "\r\n", "a\nb", "\u00e9", "\u2028", ""):
        for attributes in ({}, {"k": data}):
            made = message(data, attributes)

            assert sent_bytes([made.fragment], len(made.fragment)) == len(data)
            assert parse(made.fragment).data == data


PLAIN = st.lists(st.builds(message, DATA, st.dictionaries(TEXT, TEXT, max_size=2)), max_size=5)
MESSAGES = PLAIN | st.lists(st.builds(message, DATA, st.dictionaries(TEXT, TEXT, max_size=2), TEXT), max_size=5)


@given(MESSAGES)
def test_a_batch_is_its_messages_and_their_sizes(given: list[Message]) -> None:
    made = batch_of(given)

    assert list(made) == [made[place] for place in range(len(given))] == given
    assert [made[start:] for start in range(3)] == [given[start:] for start in range(3)]
    assert list(made.fragments) == [each.fragment for each in given]
    assert made.size == sum(len(each.fragment) for each in given)
    assert made.largest == max((len(each.fragment) for each in given), default=0)
    assert made.has_ordering_keys == any(each.ordering_key for each in given)
    assert batch_of(made) is made


def test_a_batch_with_too_long_a_key_needs_a_closer_look() -> None:
    given = [message("aGk="), message("aGk=", {}, "x" * (MAX_ORDERING_KEY + 1))]

    assert batch_of_base64_and_keys(given[:1]) is not None
    assert batch_of_base64_and_keys(given) is None


@given(PLAIN)
def test_a_batch_of_base64_is_the_messages_one_by_one(given: list[Message]) -> None:
    check_batch(given, batch_of_base64(given))


@given(MESSAGES)
def test_a_batch_of_base64_and_keys_is_the_messages_one_by_one(given: list[Message]) -> None:
    check_batch(given, batch_of_base64_and_keys(given))


def check_batch(given: list[Message], made: Batch | None) -> None:
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
    turned = [message(each.data, dict(reversed(each.attributes.items())), each.ordering_key) for each in given]

    assert batch_of(turned).in_order() == batch_of(given).in_order()
    assert [parse(each) for each in batch_of(turned).in_order()] == [
        Message(each.attributes, each.data, fragment, each.ordering_key)
        for each, fragment in zip(given, batch_of(given).in_order(), strict=True)
    ]
