"""Records: what is written is read again, and no change of a byte goes unnoticed."""

import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Damaged
from ams.core.messages import message
from ams.storage.log.embedded.record import (
    HEADER_BYTES,
    MAGIC,
    Header,
    KeyNote,
    Kind,
    Request,
    Stamp,
    checksum,
    data_bytes_and_notes,
    decode_header,
    encode,
    encode_messages,
    encode_note,
    requests_of,
    retention_body,
    retention_of,
    run_of,
)
from ams.storage.log.embedded.scan import check_record

NUMBER = st.integers(0, 2**63)
HASH = st.binary(min_size=16, max_size=16)
NOTES = st.builds(KeyNote, st.binary(min_size=1, max_size=1020), HASH, NUMBER, st.integers(1, 2**32 - 1))
REQUESTS = st.lists(
    st.builds(Request, st.integers(1, 1000), st.integers(0, 2**32 - 1), st.none() | NOTES), min_size=1, max_size=5
)
LARGE = st.integers(1000, 8000).map(bytes)
"""Fragments that are parts of their own, some larger than what is summed at once."""
FRAGMENTS = st.lists(st.binary(max_size=50) | LARGE, min_size=1, max_size=8)
TOPIC = b"topic-of-16-byte"


@st.composite
def records(draw):
    requests, fragments = draw(REQUESTS), draw(FRAGMENTS)
    header = Header(
        Kind.MESSAGES, draw(st.booleans()), draw(st.binary(min_size=16, max_size=16)), draw(NUMBER), draw(NUMBER),
        draw(NUMBER), draw(st.integers(0, 2**32 - 1)), len(fragments), len(requests),
        has_ordering_keys=draw(st.booleans()),
    )  # fmt: skip
    return header, requests, fragments, draw(st.integers(0, 2**32 - 1))


def encoded(header: Header, requests: Sequence[Request], fragments: Sequence[bytes], seed: int) -> bytes:
    notes = [encode_note(*each.note) if each.note else b"" for each in requests]
    heads = [
        number
        for each, note in zip(requests, notes, strict=True)
        for number in (each.messages, each.data_bytes, len(note))
    ]
    parts: list[bytes] = [b"before"]
    length = encode_messages(
        parts, Stamp(header.commit, header.durable, seed), header.topic, header.first, header.time, heads,
        [note for note in notes if note], fragments, header.last, header.has_ordering_keys,
    )  # fmt: skip
    record = b"".join(parts[1:])
    assert length == len(record)
    return record


@given(records())
def test_a_record_is_read_as_it_was_written(record):
    header, requests, fragments, seed = record

    data = encoded(header, requests, fragments, seed)
    found = decode_header(data, seed)

    body = data[HEADER_BYTES:]
    assert found == header._replace(body_bytes=len(body), body_checksum=checksum(body, seed))
    assert found.size == len(data)
    assert data == encode(header, body, seed)
    assert data.endswith(b"".join(fragments))
    assert requests_of(found, body) == requests
    assert run_of(found, data, HEADER_BYTES) == (
        found.first, found.time, fragments, sum(map(len, fragments)), header.has_ordering_keys,
    )  # fmt: skip
    assert data_bytes_and_notes(found, body) == (
        sum(each.data_bytes for each in requests),
        type(data_bytes_and_notes(found, body)[1])(each.note for each in requests if each.note),
    )


@given(records(), st.data())
def test_every_flipped_bit_and_every_cut_is_noticed(record, data):
    header, requests, fragments, seed = record
    written = encoded(header, requests, fragments, seed)
    place, flipped = data.draw(st.integers(0, len(written) - 1)), bytearray(written)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))

    for damaged in (bytes(flipped), written[:place]):
        with pytest.raises(Damaged):
            check_record(damaged, 0, seed, header.topic)


@given(records(), st.integers(1, 100))
def test_a_record_of_another_segment_is_not_one_of_this(record, other):
    header, requests, fragments, seed = record
    written = encoded(header, requests, fragments, seed)

    assert decode_header(written, (seed + other) & 0xFFFFFFFF) is None


def test_a_record_of_another_topic_is_not_taken_for_the_one_asked_for():
    header = Header(Kind.MESSAGES, True, TOPIC, 0, 0, 1, 0, 1, 1)
    written = encoded(header, [Request(1, 1)], [b"x"], 1)

    with pytest.raises(Damaged, match="another topic"):
        check_record(written, 0, 1, b"another-of-16-by")


def test_small_fragments_are_one_part_and_large_ones_are_written_as_they_are():
    assert [len(part) for part in parts_of([b"x" * 900] * 50)[1:]] == [50 * 900]
    large = [b"y" * 1400, b"z" * 1400]
    assert list(map(id, parts_of(large)[1:])) == list(map(id, large))
    alone = [b"x"]
    assert parts_of(alone)[1] is alone[0]


def parts_of(fragments: list[bytes]) -> list[bytes]:
    parts: list[bytes] = []
    encode_messages(parts, Stamp(1, 128, 5), TOPIC, 0, 0, (len(fragments), 1, 0), (), fragments, True, False)
    return parts


@given(st.binary(max_size=300_000), st.integers(0, 2**32 - 1))
def test_a_checksum_in_slices_is_the_checksum_of_the_whole(data, seed):
    data = data * 30

    assert checksum(data, seed) == zlib.crc32(data, seed)


@given(st.none() | st.integers(1, 2**62))
def test_a_retention_is_read_as_it_was_written(retention):
    assert retention_of(retention_body(retention)) == retention


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_no_message_contains_what_records_begin_with(data, attributes):
    assert MAGIC not in message(data, attributes).fragment
