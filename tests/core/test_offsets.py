"""Sets of offsets: ranges, the first that is missing, and bytes, against sets of Python."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core.names import Offset
from ams.core.offsets import bitmap_of, first_missing, packed, ranges_of, unpacked

small = st.integers(0, 200)
far = st.integers(2**33 - 3, 2**33 + 3) | st.integers(65_530, 65_540) | st.just(2**63 - 2)
offsets = st.sets(small | far, max_size=60)
ranges = st.lists(st.tuples(small, small).map(sorted).map(tuple), max_size=10)

GOLDEN = bytes.fromhex(
    "bb6231c2"
    "0200000000000000"
    "00000000"
    "3b30010003000005000100040002000300000005000400010070110400"
    "02000000"
    "3b3000000100000200010000000200"
)
"""Of two parts of 2**32 offsets, each with runs."""


@given(given_ranges=ranges)
def test_ranges_in_any_order_are_the_set_of_their_offsets(given_ranges: list[tuple[Offset, Offset]]) -> None:
    assert set(bitmap_of(given_ranges)) == {each for begin, end in given_ranges for each in range(begin, end)}


@given(members=offsets)
def test_a_set_is_told_in_as_few_ranges_as_there_can_be_and_unpacked_as_it_was_packed(members: set[int]) -> None:
    bitmap = BitMap64(members)
    found = ranges_of(bitmap)

    assert {each for begin, end in found for each in range(begin, end)} == members
    assert all(begin < end for begin, end in found)
    assert all(before < after for (_, before), (after, _) in pairwise(found))
    assert unpacked(packed(bitmap)) == bitmap


@given(members=offsets, start=small | far)
@example(members={65_535, 2**40}, start=65_535)
@example(members={2**33 - 2, 2**33 - 1, 2**63 - 2}, start=2**33 - 2)
def test_the_first_that_is_missing_is_found(members: set[int], start: int) -> None:
    expected = start
    while expected in members:
        expected += 1

    assert first_missing(BitMap64(members), Offset(start)) == expected


def test_the_first_that_is_missing_is_found_beyond_many() -> None:
    bitmap = bitmap_of([(Offset(5), Offset(10_000_019)), (Offset(10_000_020), Offset(10_000_030))])

    assert first_missing(bitmap, Offset(5)) == 10_000_019


def test_every_second_of_a_million_takes_a_bit_each() -> None:
    assert len(packed(BitMap64(range(0, 1_000_000, 2)))) < 132_000


@given(members=offsets, place=st.integers(0), bit=st.integers(0, 7))
def test_one_wrong_bit_is_an_error(members: set[int], place: int, bit: int) -> None:
    data = bytearray(packed(BitMap64(members)))
    data[place % len(data)] ^= 1 << bit

    with pytest.raises(ValueError, match="checksum"):
        unpacked(bytes(data))


@given(data=st.binary(max_size=200))
def test_garbage_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpacked(data)


def test_what_the_first_version_wrote_stays_readable() -> None:
    assert ranges_of(unpacked(GOLDEN)) == [(3, 4), (5, 10), (70_000, 70_005), (2**33, 2**33 + 3)]
