import base64
import json
from itertools import pairwise
from operator import attrgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core import messages as M
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.offsets import bitmap_of, decode_bitmap, encode_bitmap, first_missing, ranges_of
from ams.core.runs import Columns, Run, Runs, runs_of, sizes
from tests.support.texts import DECODED

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
DATA = st.binary(max_size=200).map(lambda data: base64.b64encode(data).decode())


@given(DATA, st.dictionaries(TEXT, TEXT, max_size=5), TEXT)
def test_m3_text_survives_json_without_empties_and_data_last(data: str, attributes: dict[str, str], key: str) -> None:
    fragment = M.message(data, attributes, key).fragment
    stored, shown = M.parse(fragment), json.loads(b"{" + fragment + b"}")

    assert (stored.data, stored.attributes, stored.ordering_key) == (data, attributes, key)
    every = {"orderingKey": key, "attributes": attributes, "data": data}
    assert list(shown.items()) == [(name, value) for name, value in every.items() if value or name == "data"]
    assert M.message(data, plain=True) == M.message(data), "plain data makes the same fragment"


@given(DATA | TEXT, st.dictionaries(TEXT, TEXT, max_size=2))
def test_a_message_without_a_key_is_the_bytes_it_always_was(data: str, attributes: dict[str, str]) -> None:
    fragment = M.message(data, attributes).fragment
    assert fragment.startswith((b'"data":', b'"attributes":{'))
    assert M.message(data, attributes, "").fragment == M.with_ordering_key(fragment, "") == fragment
    assert M.with_ordering_key(fragment, None) == fragment


# Texts that look like the bytes around a key, or before data.
LIKE_DATA = ['"', ':"', ' "', '\\"', ':\\"']
KEYS = TEXT | st.sampled_from(
    [*LIKE_DATA, '",', ',"', ",", ",,", "\\", '\\",\\"', '","data":"x"', '"attributes":{', "\u2028", "\n"]
)


@given(DATA | KEYS, st.dictionaries(KEYS, KEYS, max_size=2), KEYS)
def test_a_key_is_found_in_any_fragment_and_taken_away(data: str, attributes: dict[str, str], key: str) -> None:
    plain, made = M.message(data, attributes), M.message(data, attributes, key)

    assert M.ordering_key_of(made.fragment) == made.ordering_key == key
    assert M.ordering_key_of(plain.fragment) == ""
    member, rest = M.split_ordering_key(made.fragment)
    assert rest == plain.fragment
    assert member + rest == made.fragment == M.with_ordering_key(plain.fragment, key)
    assert M.has_ordering_keys([plain.fragment, made.fragment, plain.fragment]) == bool(key)


def test_a_key_is_as_long_as_its_bytes() -> None:
    assert M.is_ordering_key("")
    assert M.is_ordering_key("\u00e9" * (M.MAX_ORDERING_KEY // 2))
    assert not M.is_ordering_key("\u00e9" * (M.MAX_ORDERING_KEY // 2) + "x")


@pytest.mark.parametrize(("text", "expected"), DECODED)
def test_m7_data_is_decoded_and_its_line_breaks_do_not_matter(text: str, expected: bytes | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            M.decoded_data(text)
    else:
        assert M.decoded_data(text) == expected


@given(DATA, st.integers(0, 20))
def test_m7_line_breaks_do_not_matter_anywhere(data: str, place: int) -> None:
    assert M.decoded_data(data[:place] + "\r\n" + data[place:]) == base64.b64decode(data)


def test_a_request_counts_the_length_of_its_texts_not_of_their_bytes() -> None:
    assert M.batch_of([M.message("aGk=", None), M.message("", {"k": "v"})]).data_bytes == 4


@given(st.lists(st.builds(M.message, DATA | KEYS, st.dictionaries(KEYS, KEYS, max_size=2), TEXT), max_size=5))
def test_what_is_stored_counts_as_many_bytes_as_its_request_did(messages: list[M.Message]) -> None:
    fragments = [each.fragment for each in messages]
    assert M.sent_bytes(fragments, sum(map(len, fragments))) == M.batch_of(messages).data_bytes


PLAIN = st.lists(st.builds(M.message, DATA, st.dictionaries(TEXT, TEXT, max_size=2)), max_size=5)
MESSAGES = PLAIN | st.lists(st.builds(M.message, DATA, st.dictionaries(TEXT, TEXT, max_size=2), TEXT), max_size=5)


@given(MESSAGES)
def test_a_batch_is_its_messages_and_their_sizes(given: list[M.Message]) -> None:
    made = M.batch_of(given)

    assert list(made) == [made[place] for place in range(len(given))] == given
    assert [made[start:] for start in range(3)] == [given[start:] for start in range(3)]
    assert list(made.fragments) == [each.fragment for each in given]
    assert made.size == sum(len(each.fragment) for each in given)
    assert made.largest == max((len(each.fragment) for each in given), default=0)
    assert made.has_ordering_keys == any(each.ordering_key for each in given)
    assert M.batch_of(made) is made


def test_a_batch_with_too_long_a_key_needs_a_closer_look() -> None:
    given = [M.message("aGk="), M.message("aGk=", {}, "x" * (M.MAX_ORDERING_KEY + 1))]
    assert M.batch_of_base64_and_keys(given[:1]) is not None
    assert M.batch_of_base64_and_keys(given) is None


@given(PLAIN, MESSAGES)
def test_a_batch_of_base64_is_the_messages_one_by_one(plain: list[M.Message], keyed: list[M.Message]) -> None:
    for messages, made in ((plain, M.batch_of_base64(plain)), (keyed, M.batch_of_base64_and_keys(keyed))):
        assert (made is not None) == all(each.data for each in messages)
        if made is not None:
            assert list(made) == messages
            one_by_one = M.batch_of(messages)
            sizes_of = attrgetter("size", "largest", "data_bytes")
            assert sizes_of(made) == sizes_of(one_by_one)


@pytest.mark.parametrize("text", [text for text, data in DECODED if not data or "\n" in text])
@pytest.mark.parametrize("others", [0, 2])
def test_no_batch_of_base64_is_made_of_what_needs_a_closer_look(text: str, others: int) -> None:
    assert M.batch_of_base64([*[M.message("aGk=")] * others, M.message(text)]) is None


@given(MESSAGES)
def test_equal_messages_have_equal_fragments_once_their_attributes_are_in_order(given: list[M.Message]) -> None:
    turned = [M.message(each.data, dict(reversed(each.attributes.items())), each.ordering_key) for each in given]

    assert M.batch_of(turned).in_order() == M.batch_of(given).in_order()
    assert [M.parse(each) for each in M.batch_of(turned).in_order()] == [
        M.Message(each.attributes, each.data, fragment, each.ordering_key)
        for each, fragment in zip(given, M.batch_of(given).in_order(), strict=True)
    ]


KEYED = b'"orderingKey":"k","data":""'


def make_run(first: int, time: int, fragments: list[bytes]) -> Run:
    return Run.of(Offset(first), Milliseconds(time), [M.Fragment(each) for each in fragments])


FRAGMENTS = st.sampled_from([b"", b'"data":"aGk="', b'"attributes":{"a":"b"},"data":""', KEYED])


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    """Generate runs in offset order, with and without gaps and new times between them."""
    found: list[Run] = []
    first, time = draw(st.integers(0, 100)), draw(st.integers(0, 100))
    for fragments in draw(st.lists(st.lists(FRAGMENTS, min_size=1, max_size=5), max_size=5)):
        found.append(make_run(first, time, fragments))
        first += len(fragments) + draw(st.integers(0, 2))
        time += draw(st.integers(0, 2))
    return found


@given(runs())
def test_runs_are_the_sequence_of_their_messages(given: list[Run]) -> None:
    messages = Runs(given)
    listed = [
        M.Stored(Offset(run.first + number), run.time, each)
        for run in given
        for number, each in enumerate(run.fragments)
    ]  # fmt: skip

    assert list(messages) == listed == messages
    assert (len(messages), bool(messages)) == (len(listed), bool(listed))
    for place in range(-len(listed), len(listed)):
        assert messages[place] == listed[place]
    for place in (len(listed), -len(listed) - 1):
        with pytest.raises(IndexError):
            messages[place]
    assert messages[1:3] == listed[1:3]
    assert runs_of(messages) is given


@given(runs(), st.integers(0, 25))
def test_columns_are_the_sequence_of_their_messages(given: list[Run], cut: int) -> None:
    listed = list(Runs(given))
    messages = Columns.of(listed)

    assert list(messages) == listed == messages
    assert Columns.of(messages) is messages
    assert [messages[place] for place in range(-len(listed), len(listed))] == listed * 2
    first, rest = messages[:cut], messages[cut:]
    first.extend(rest)
    assert first == messages == listed


@given(runs())
def test_single_messages_are_put_together_to_the_longest_runs(given: list[Run]) -> None:
    found = runs_of(list(Runs(given)))

    assert Runs(found) == Runs(given)
    assert all(run.size == sum(map(len, run.fragments)) for run in found)
    assert all(run.has_ordering_keys == (KEYED in run.fragments) for run in found)
    for before, after in pairwise(found):
        assert before.end < after.first or before.time < after.time


@given(st.lists(FRAGMENTS, min_size=1, max_size=9), st.data())
def test_a_part_of_a_run_is_what_fits_but_one_message_at_least(fragments: list[bytes], data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, len(fragments) - 1))
    most, room = data.draw(st.integers(1, 10)), data.draw(st.integers(0, 60))

    part = make_run(7, 1, fragments).part(Offset(7 + skip), most, room)

    assert part[:4] == make_run(7 + skip, 1, fragments[skip : skip + len(part.fragments)])[:4]
    assert part.has_ordering_keys == (KEYED in fragments)
    assert 1 <= len(part.fragments) <= most
    assert part.size <= room or len(part.fragments) == 1
    more = fragments[skip : skip + len(part.fragments) + 1]
    assert len(more) in (len(part.fragments), most + 1) or sum(map(len, more)) > room


def test_sizes_are_those_of_all_messages() -> None:
    messages = [M.message("aGk=", {"k": "v"}), M.message("aGV5")]
    stored = [M.Stored(Offset(5 * number), Milliseconds(1), each.fragment) for number, each in enumerate(messages)]
    assert sizes(stored) == (sum(len(each.fragment) for each in messages), M.batch_of(messages).data_bytes)


small = st.integers(0, 200)
far = st.integers(2**33 - 3, 2**33 + 3) | st.integers(65_530, 65_540) | st.just(2**63 - 2)
offsets = st.sets(small | far, max_size=60)

GOLDEN = bytes.fromhex(
    "bb6231c2"
    "0200000000000000"
    "00000000"
    "3b30010003000005000100040002000300000005000400010070110400"
    "02000000"
    "3b3000000100000200010000000200"
)
"""Sets in two ranges of 2**32 offsets, each with runs."""


@given(given_ranges=st.lists(st.tuples(small, small).map(sorted).map(tuple), max_size=10))
def test_ranges_in_any_order_are_the_set_of_their_offsets(given_ranges: list[tuple[Offset, Offset]]) -> None:
    assert set(bitmap_of(given_ranges)) == {each for begin, end in given_ranges for each in range(begin, end)}


@given(members=offsets)
def test_a_set_is_told_in_as_few_ranges_as_there_can_be_and_unpacked_as_it_was_packed(members: set[int]) -> None:
    bitmap = BitMap64(members)
    found = ranges_of(bitmap)

    assert {each for begin, end in found for each in range(begin, end)} == members
    assert all(begin < end for begin, end in found)
    assert all(before < after for (_, before), (after, _) in pairwise(found))
    assert decode_bitmap(encode_bitmap(bitmap)) == bitmap


@given(members=offsets, start=small | far)
@example(members={65_535, 2**40}, start=65_535)
@example(members={2**33 - 2, 2**33 - 1, 2**63 - 2}, start=2**33 - 2)
def test_the_first_that_is_missing_is_found(members: set[int], start: int) -> None:
    expected = start
    while expected in members:
        expected += 1
    assert first_missing(BitMap64(members), Offset(start)) == expected


@given(members=offsets, place=st.integers(0), bit=st.integers(0, 7))
def test_one_wrong_bit_is_an_error(members: set[int], place: int, bit: int) -> None:
    data = bytearray(encode_bitmap(BitMap64(members)))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(ValueError, match="checksum"):
        decode_bitmap(bytes(data))


def test_what_the_first_version_wrote_stays_readable() -> None:
    assert ranges_of(decode_bitmap(GOLDEN)) == [(3, 4), (5, 10), (70_000, 70_005), (2**33, 2**33 + 3)]
