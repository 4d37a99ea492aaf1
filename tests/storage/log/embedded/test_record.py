"""The format on disk: segment headers, records, and the packing of appends."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Damaged, Unusable
from ams.core.messages import Stored, message
from ams.storage.log.embedded import record as R
from ams.storage.log.embedded import segment as S
from ams.storage.log.embedded.catalog import Tail, TopicState
from ams.storage.log.embedded.group_commit import Append, Packed, load_appends
from ams.storage.log.embedded.scan import check_record

HEADS = st.builds(
    S.SegmentHead, st.integers(0, 4), st.integers(1, 2**63), st.integers(0, 2**63),
    st.none() | st.builds(S.Cut, st.integers(1, 2**63), st.integers(0, 2**63)), st.integers(0, 2**63),
)  # fmt: skip


@given(HEADS)
def test_a_header_is_read_as_it_was_written(head) -> None:
    data = S.encode_head(head)
    assert (len(data), S.decode_head(data)) == (S.HEAD_BYTES, head)
    assert S.head_is_whole(data)


@given(HEADS, st.integers(0, S.HEAD_BYTES - 1), st.integers(0, 7))
def test_a_header_survives_one_damaged_place_and_the_damage_is_noticed(head, place, bit) -> None:
    data = bytearray(S.encode_head(head))
    data[place] ^= 1 << bit
    assert S.decode_head(bytes(data)) == head
    assert not S.head_is_whole(bytes(data))


def test_a_segment_of_another_version_is_refused() -> None:
    copy = bytearray(S.encode_head(S.SegmentHead(0, 1, 0))[:60])
    copy[8] = 3
    with pytest.raises(Unusable, match="format 3"):
        S.decode_head(bytes(copy) + zlib.crc32(copy).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("hours", "name"),
    [(0.001, "1h"), (1, "1h"), (1.1, "1d"), (24, "1d"), (168, "7d"), (169, "30d"), (721, "1y"), (9e9, "1y")],
)  # fmt: skip
def test_the_class_of_a_topic_is_the_smallest_that_covers_its_age(hours, name) -> None:
    assert S.class_of(round(hours * 3_600_000)).name == name


class KeyNote(NamedTuple):
    """What `encode_note` encodes."""

    key: bytes
    content: bytes
    first: int
    messages: int


class RecordRequest(NamedTuple):
    """A publish request's share of a record."""

    messages: int
    data_bytes: int
    note: KeyNote | None = None


def requests_of(header: R.RecordHeader, body: bytes) -> list[RecordRequest]:
    position, found = header.requests * R._REQUEST.size, []
    for messages, data_bytes, note_bytes, _ in R._REQUEST.iter_unpack(body[:position]):
        note = None
        if note_bytes:
            first, count, content = R._NOTE.unpack_from(body, position)
            note = KeyNote(body[position + R._NOTE.size : position + note_bytes], content, first, count)
        found.append(RecordRequest(messages, data_bytes, note))
        position += note_bytes
    return found


NUMBER = st.integers(0, 2**63)
HASH = st.binary(min_size=16, max_size=16)
NOTES = st.builds(KeyNote, st.binary(min_size=1, max_size=1020), HASH, NUMBER, st.integers(1, 2**32 - 1))
REQUESTS = st.lists(
    st.builds(RecordRequest, st.integers(1, 1000), st.integers(0, 2**32 - 1), st.none() | NOTES), min_size=1, max_size=5
)
LARGE_FRAGMENTS = st.integers(1000, 8000).map(bytes)
"""Fragments that stay separate parts, some larger than a checksum step."""
FRAGMENTS = st.lists(st.binary(max_size=50) | LARGE_FRAGMENTS, min_size=1, max_size=8)
TOPIC = b"topic-of-16-byte"


@st.composite
def records(draw):
    requests, fragments = draw(REQUESTS), draw(FRAGMENTS)
    header = R.RecordHeader(
        R.RecordKind.MESSAGES, draw(st.booleans()), draw(st.binary(min_size=16, max_size=16)), draw(NUMBER),
        draw(NUMBER),
        draw(NUMBER), draw(st.integers(0, 2**32 - 1)), len(fragments), len(requests),
        has_ordering_keys=draw(st.booleans()),
    )  # fmt: skip
    return header, requests, fragments, draw(st.integers(0, 2**32 - 1))


def encode_record(
    header: R.RecordHeader, requests: Sequence[RecordRequest], fragments: Sequence[bytes], seed: int
) -> bytes:
    notes = [R.encode_note(*each.note) if each.note else b"" for each in requests]
    heads = [
        number
        for each, note in zip(requests, notes, strict=True)
        for number in (each.messages, each.data_bytes, len(note))
    ]
    parts: list[bytes] = [b"before"]
    length = R.encode_messages(
        parts, R.Stamp(header.commit, header.durable, seed), header.topic, header.first, header.time, heads,
        [note for note in notes if note], fragments, header.last, header.has_ordering_keys,
    )  # fmt: skip
    record = b"".join(parts[1:])
    assert length == len(record)
    return record


def encode(header: R.RecordHeader, body: bytes, seed: int) -> bytes:
    flags = header.last * R._LAST | header.has_ordering_keys * R._ORDERING_KEYS
    checked = R._CHECKED.pack(len(body), R.checksum(body, seed), *header[2:9], header.kind, flags)
    return R._START.pack(R.MAGIC, R.crc32(checked, seed)) + checked + body


@given(records())
def test_a_record_is_read_as_it_was_written(record) -> None:
    header, requests, fragments, seed = record

    data = encode_record(header, requests, fragments, seed)
    found = R.decode_header(data, seed)

    body = data[R.HEADER_BYTES :]
    assert found == header._replace(body_bytes=len(body), body_checksum=R.checksum(body, seed))
    assert found.size == len(data)
    assert data == encode(header, body, seed)
    assert data.endswith(b"".join(fragments))
    assert requests_of(found, body) == requests
    assert R.run_of(found, data, R.HEADER_BYTES) == (
        found.first, found.time, fragments, sum(map(len, fragments)), header.has_ordering_keys,
    )  # fmt: skip
    assert R.data_bytes_and_notes(found, body) == (
        sum(each.data_bytes for each in requests),
        type(R.data_bytes_and_notes(found, body)[1])(each.note for each in requests if each.note),
    )


@given(records(), st.data())
def test_every_flipped_bit_and_every_cut_is_noticed(record, data) -> None:
    header, requests, fragments, seed = record
    written = encode_record(header, requests, fragments, seed)
    place, flipped = data.draw(st.integers(0, len(written) - 1)), bytearray(written)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))

    for damaged in (bytes(flipped), written[:place]):
        with pytest.raises(Damaged):
            check_record(damaged, 0, seed, header.topic)


@given(records(), st.integers(1, 100))
def test_a_record_of_another_segment_is_not_one_of_this(record, other) -> None:
    header, requests, fragments, seed = record
    assert R.decode_header(encode_record(header, requests, fragments, seed), (seed + other) & 0xFFFFFFFF) is None


def test_a_record_of_another_topic_is_not_taken_for_the_one_asked_for() -> None:
    written = encode_record(
        R.RecordHeader(R.RecordKind.MESSAGES, True, TOPIC, 0, 0, 1, 0, 1, 1), [RecordRequest(1, 1)], [b"x"], 1
    )
    with pytest.raises(Damaged, match="another topic"):
        check_record(written, 0, 1, b"another-of-16-by")


@given(st.binary(max_size=300_000), st.integers(0, 2**32 - 1))
def test_a_checksum_in_slices_is_the_checksum_of_the_whole(data, seed) -> None:
    data = data * 30
    assert R.checksum(data, seed) == zlib.crc32(data, seed)


@given(st.none() | st.integers(1, 2**62))
def test_a_retention_is_read_as_it_was_written(retention) -> None:
    assert R.read_control(R.control_body(R.RecordKind.RETENTION, retention, 0)) == (retention, 0)


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_no_message_contains_what_records_begin_with(data, attributes) -> None:
    assert R.MAGIC not in message(data, attributes).fragment


SIZE = st.sampled_from([0, 10, 3000, 40_000, 70_000])
SIZES = st.lists(st.lists(SIZE, min_size=1, max_size=8), min_size=1, max_size=12)


def topic(number: int, end: int = 0, time: int = 0) -> TopicState:
    state = TopicState(number.to_bytes(16, "big"), None, S.CLASSES[2])
    state.tail = Tail(end, time, 1000, 1)
    return state


def append(state: TopicState, number: int, sizes: list[int], *, key: bytes = b"") -> Append:
    fragments = [f"{number}.{n}:".encode() + b"x" * size for n, size in enumerate(sizes)]
    return Append(state, fragments, sum(map(len, fragments)), 10 * len(sizes), None, key, b"h" * 16, b"c" * 16)


class DecodedRecord(NamedTuple):
    requests: list[RecordRequest]
    fragments: list[bytes]
    last: bool


def records_of(state: TopicState, appends: list[Append]) -> list[DecodedRecord]:
    data, position, found = b"".join(Packed({state: appends}, S.OpenSegment(4, "", 0, 1000, 900), 77, 100).parts), 0, []
    while position < len(data):
        header = R.decode_header(data, S.seed_of(4), position)
        assert header is not None
        body = data[position + R.HEADER_BYTES : position + header.size]
        assert header.body_checksum == R.checksum(body, S.seed_of(4))
        run = R.run_of(header, body, 0)
        found.append(DecodedRecord(requests_of(header, body), list(run.fragments), header.last))
        position += header.size
    return found


@given(SIZES, st.booleans())
def test_every_message_is_in_a_record_once_and_in_order(sizes, keyed) -> None:
    state = topic(1, end=5)
    appends = [append(state, n, each, key=b"k" if keyed else b"") for n, each in enumerate(sizes)]

    found = records_of(state, appends)

    assert [each for share in found for each in share.fragments] == [each for a in appends for each in a.fragments]
    assert sum(request.data_bytes for share in found for request in share.requests) == 10 * sum(map(len, sizes))
    for share in found:
        assert sum(request.messages for request in share.requests) == len(share.fragments)
        assert sum(map(len, share.fragments)) <= R.RECORD_BYTES or len(share.fragments) == 1
    for each in appends:  # it is whole in one record, or has its own records, of which the last has the end mark
        mine = [share for share in found if set(share.fragments) & set(each.fragments)]
        assert [share.last for share in mine] == [False] * (len(mine) - 1) + [True]
        assert len(mine) == 1 or all(len(share.requests) == 1 for share in mine)


def test_small_appends_share_a_record_and_a_key_is_noted_once_with_its_answer() -> None:
    state = topic(1, end=7)
    small, keyed = append(state, 0, [10]), append(state, 1, [10, 10], key=b"k")
    one, part, rest = records_of(state, [small, keyed, append(state, 2, [60_000, 60_000], key=b"l")])

    assert [describe_note(request) for request in one.requests] == [None, (b"k", 8, 2)]
    assert [describe_note(request) for request in part.requests] == [None]
    assert [describe_note(request) for request in rest.requests] == [(b"l", 10, 2)]


def describe_note(request: RecordRequest) -> tuple[bytes, int, int] | None:
    return request.note and (request.note.key, request.note.first, request.note.messages)


def test_a_group_gets_consecutive_offsets_per_topic_and_a_time_that_does_not_go_back() -> None:
    behind, ahead = topic(1, end=3, time=50), topic(2, end=0, time=900)
    group = {behind: [append(behind, 0, [1, 1]), append(behind, 1, [1])], ahead: [append(ahead, 2, [1])]}
    packed = Packed(group, S.OpenSegment(4, "", 0, 1000, 900), 77, 100)

    assert [(each.topic, each.answer) for share in packed.shares for each in share.appends] == [
        (behind, (3, 2, 100)), (behind, (5, 1, 100)), (ahead, (0, 1, 900)),
    ]  # fmt: skip
    assert [(share.topic, share.tail) for share in packed.shares] == [
        (behind, Tail(6, 100, 1030, 77)),
        (ahead, Tail(1, 900, 1010, 77)),
    ]
    assert behind.tail.end == 3
    data = b"".join(packed.parts)
    for placed in packed.records:
        header = R.decode_header(data, S.seed_of(4), placed.position - 1000)
        assert isinstance(header, R.RecordHeader)
        assert (header.topic, header.first, header.time, header.commit) == (
            placed.topic.id, placed.first, placed.time, 77,
        )  # fmt: skip
        assert (header.durable, header.size, header.messages) == (900, placed.length, placed.messages)
        body = data[placed.position - 1000 + 68 :][: header.body_bytes]
        assert len(R.run_of(header, body, 0).fragments) == sum(each.messages for each in requests_of(header, body))


@given(st.lists(SIZE, min_size=1, max_size=8), st.booleans())
def test_an_append_alone_is_stored_as_it_would_be_with_others(sizes, keyed) -> None:
    """It takes a shorter code path."""
    state, segment = topic(1, end=5, time=50), S.OpenSegment(4, "", 0, 1000, 900)
    alone, among_others = (append(state, 0, sizes, key=b"k" if keyed else b"") for _ in range(2))

    short, long = Packed({state: [alone]}, segment, 77, 100), Packed({}, segment, 77, 100)
    tail = long._add_run(state, state.tail.end, 100, [among_others], state.tail.published)

    assert b"".join(short.parts) == b"".join(long.parts)
    assert short.records == long.records
    assert (short.end, short.keys) == (long.end, long.keys)
    assert (short.shares[0].tail, alone.answer) == (tail, among_others.answer)


LOADED_APPENDS = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1), SIZE), min_size=1, max_size=60)


@given(LOADED_APPENDS, st.integers(0, 130))
def test_what_is_loaded_keeps_offsets_and_times_and_is_counted_from_an_offset_on(given, since) -> None:
    """Distances to the next offset and time, and sizes."""
    messages, offset, time = [], 9, 50
    for further, later, size in given:
        offset, time = offset + further, time + later
        messages.append(Stored(offset, time, message("A" * (size // 4 * 4)).fragment))
    state = topic(1, end=10, time=50)
    appends = list(load_appends(state, messages, since, lambda: None))

    packed = Packed({state: appends}, S.OpenSegment(4, "", 0, 1000, 900), 77, 100)

    data, found, counted = b"".join(packed.parts), [], 0
    for each in packed.records:
        assert each.topic is state
        header = R.decode_header(data, S.seed_of(4), each.position - 1000)
        assert header is not None
        assert (header.first, header.time, header.messages, header.size) == (
            each.first, each.time, each.messages, each.length
        )  # fmt: skip
        body = data[each.position - 1000 + R.HEADER_BYTES :][: header.body_bytes]
        assert header.body_checksum == R.checksum(body, S.seed_of(4))
        counted += sum(request.data_bytes for request in requests_of(header, body))
        run = R.run_of(header, body, 0)
        assert run.size <= R.RECORD_BYTES or len(run.fragments) == 1
        found += run.messages
    assert found == messages
    assert counted == sum(len(each.fragment) - len(b'"data":""') for each in messages if each.offset >= since)
    assert (packed.shares[0].tail, packed.end) == (Tail(offset + 1, time, 1000 + counted, 77), 1000 + len(data))
