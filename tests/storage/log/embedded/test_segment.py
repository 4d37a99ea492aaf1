"""Segment headers and names."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Unusable
from ams.storage.log.embedded.segment import (
    CLASSES,
    HEAD_BYTES,
    Cut,
    SegmentHead,
    class_of,
    decode_head,
    encode_head,
    head_is_whole,
    index_path,
    log_path,
    sequence_of,
)

HEADS = st.builds(
    SegmentHead,
    st.integers(0, 4),
    st.integers(1, 2**63),
    st.integers(0, 2**63),
    st.none() | st.builds(Cut, st.integers(1, 2**63), st.integers(0, 2**63)),
    st.integers(0, 2**63),
)


@given(HEADS)
def test_a_header_is_read_as_it_was_written(head):
    data = encode_head(head)

    assert len(data) == HEAD_BYTES
    assert decode_head(data) == head
    assert head_is_whole(data)


@given(HEADS, st.integers(0, HEAD_BYTES - 1), st.integers(0, 7))
def test_a_header_survives_one_damaged_place_and_the_damage_is_noticed(head, place, bit):
    data = bytearray(encode_head(head))
    data[place] ^= 1 << bit

    assert decode_head(bytes(data)) == head
    assert not head_is_whole(bytes(data))


@given(HEADS, st.integers(0, 63))
def test_a_header_cut_short_is_none(head, size):
    assert decode_head(encode_head(head)[:size]) is None


def test_a_segment_of_another_version_is_refused():
    copy = bytearray(encode_head(SegmentHead(0, 1, 0))[:60])
    copy[8] = 3

    with pytest.raises(Unusable, match="format 3"):
        decode_head(bytes(copy) + zlib.crc32(copy).to_bytes(4, "little"))


def test_names_are_read_as_they_are_written():
    kind = CLASSES[2]

    assert log_path("/d", kind, 42) == "/d/7d/0000000000000042.log"
    assert sequence_of("0000000000000042.log") == sequence_of("0000000000000042.idx") == 42
    assert index_path("/d", kind, 42) == "/d/7d/0000000000000042.idx"
    for other in ("0000000000000042", "42.log", "0000000000000042.idx.new", "000000000000004x.log", "reserve"):
        assert sequence_of(other) is None


@pytest.mark.parametrize(
    ("hours", "name"),
    [(0.001, "1h"), (1, "1h"), (1.1, "1d"), (24, "1d"), (168, "7d"), (169, "30d"), (721, "1y"), (9e9, "1y")],
)  # fmt: skip
def test_the_class_of_a_topic_is_the_smallest_that_covers_its_age(hours, name):
    assert class_of(round(hours * 3_600_000)).name == name
