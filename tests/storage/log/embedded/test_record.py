"""Records: what is written is read again, and no change of a byte goes unnoticed."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Damaged
from ams.core.messages import Stored, message
from ams.storage.log.embedded.record import (
    HEADER_BYTES,
    MAGIC,
    Header,
    KeyNote,
    Kind,
    Request,
    checksum,
    data_bytes_and_notes,
    decode_header,
    encode,
    messages_body,
    requests_of,
    retention_body,
    retention_of,
    stored_of,
)
from ams.storage.log.embedded.scan import read_record

NUMBER = st.integers(0, 2**63)
HASH = st.binary(min_size=16, max_size=16)
NOTES = st.builds(KeyNote, st.binary(min_size=1, max_size=1020), HASH, NUMBER, st.integers(1, 2**32 - 1))
REQUESTS = st.lists(
    st.builds(Request, st.integers(1, 1000), st.integers(0, 2**32 - 1), st.none() | NOTES), min_size=1, max_size=5
)
FRAGMENTS = st.lists(st.binary(max_size=50), min_size=1, max_size=8)
TOPIC = b"topic-of-16-byte"


@st.composite
def records(draw):
    requests, fragments = draw(REQUESTS), draw(FRAGMENTS)
    header = Header(
        Kind.MESSAGES, draw(st.booleans()), draw(st.binary(min_size=16, max_size=16)), draw(NUMBER), draw(NUMBER),
        draw(NUMBER), draw(st.integers(0, 2**32 - 1)), len(fragments), len(requests),
    )  # fmt: skip
    return header, requests, fragments, draw(st.integers(0, 2**32 - 1))


@given(records())
def test_a_record_is_read_as_it_was_written(record):
    header, requests, fragments, seed = record

    data = encode(header, messages_body(requests, fragments), seed)
    found = decode_header(data, seed)

    body = data[HEADER_BYTES:]
    assert found == header._replace(body_bytes=len(body), body_checksum=checksum(body, seed))
    assert found.size == len(data)
    assert requests_of(found, body) == requests
    assert [each.fragment for each in stored_of(found, body, found.first, found.messages)] == fragments
    assert data_bytes_and_notes(found, body) == (
        sum(each.data_bytes for each in requests),
        type(data_bytes_and_notes(found, body)[1])(each.note for each in requests if each.note),
    )


@given(records(), st.data())
def test_a_part_of_the_messages_can_be_read(record, data):
    header, requests, fragments, seed = record
    found = decode_header(encode(header, messages_body(requests, fragments), seed), seed)
    skip = data.draw(st.integers(0, len(fragments) - 1))
    limit = data.draw(st.integers(1, 10))

    stored = stored_of(found, messages_body(requests, fragments), header.first + skip, limit)

    assert stored == [
        Stored(header.first + skip + n, header.time, each) for n, each in enumerate(fragments[skip : skip + limit])
    ]


@given(records(), st.data())
def test_every_flipped_bit_is_noticed(record, data):
    header, requests, fragments, seed = record
    written = encode(header, messages_body(requests, fragments), seed)
    flipped = bytearray(written)
    flipped[data.draw(st.integers(0, len(written) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(Damaged):
        read_record(bytes(flipped), 0, seed, header.topic)


@given(records(), st.data())
def test_every_cut_is_noticed(record, data):
    header, requests, fragments, seed = record
    written = encode(header, messages_body(requests, fragments), seed)

    with pytest.raises(Damaged):
        read_record(written[: data.draw(st.integers(0, len(written) - 1))], 0, seed, header.topic)


@given(records(), st.integers(1, 100))
def test_a_record_of_another_segment_is_not_one_of_this(record, other):
    header, requests, fragments, seed = record
    written = encode(header, messages_body(requests, fragments), seed)

    assert decode_header(written, (seed + other) & 0xFFFFFFFF) is None


def test_a_record_of_another_topic_is_not_taken_for_the_one_asked_for():
    header = Header(Kind.MESSAGES, True, TOPIC, 0, 0, 1, 0, 1, 1)
    written = encode(header, messages_body([Request(1, 1)], [b"x"]), 1)

    with pytest.raises(Damaged, match="another topic"):
        read_record(written, 0, 1, b"another-of-16-by")


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
