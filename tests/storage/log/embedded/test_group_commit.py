"""Packing: appends become records without losing, mixing or reordering anything."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import Stored, message
from ams.storage.log.embedded.group_commit import Append, Packed, loads, pack
from ams.storage.log.embedded.record import (
    HEADER_BYTES,
    RECORD_BYTES,
    Header,
    Request,
    checksum,
    decode_header,
    requests_of,
    run_of,
)
from ams.storage.log.embedded.segment import CLASSES, Open, seed_of
from ams.storage.log.embedded.topic import Tail, TopicState

SIZE = st.sampled_from([0, 10, 3000, 40_000, 70_000])
SIZES = st.lists(st.lists(SIZE, min_size=1, max_size=8), min_size=1, max_size=12)


def topic(number: int, end: int = 0, time: int = 0) -> TopicState:
    state = TopicState(number.to_bytes(16, "big"), None, CLASSES[2])
    state.tail = Tail(end, time, 1000, 1)
    return state


def append(state: TopicState, number: int, sizes: list[int], *, key: bytes = b"") -> Append:
    fragments = [f"{number}.{n}:".encode() + b"x" * size for n, size in enumerate(sizes)]
    return Append(state, fragments, sum(map(len, fragments)), 10 * len(sizes), None, key, b"h" * 16, b"c" * 16)


class Found(NamedTuple):
    """A record as it is read."""

    requests: list[Request]
    fragments: list[bytes]
    last: bool


def records_of(state: TopicState, appends: list[Append]) -> list[Found]:
    """Pack appends and read their records."""
    packed = pack({state: appends}, Open(4, "", 0, 1000, 900), 77, 100)
    data, position, found = b"".join(packed.parts), 0, []
    while position < len(data):
        header = decode_header(data, seed_of(4), position)
        assert header is not None
        body = data[position + HEADER_BYTES : position + header.size]
        assert header.body_checksum == checksum(body, seed_of(4))
        run = run_of(header, body, 0)
        found.append(Found(requests_of(header, body), list(run.fragments), header.last))
        position += header.size
    return found


@given(SIZES, st.booleans())
def test_every_message_is_in_a_record_once_and_in_order(sizes, keyed):
    state = topic(1, end=5)
    appends = [append(state, n, each, key=b"k" if keyed else b"") for n, each in enumerate(sizes)]

    found = records_of(state, appends)

    assert [each for share in found for each in share.fragments] == [each for a in appends for each in a.fragments]
    assert sum(request.data_bytes for share in found for request in share.requests) == 10 * sum(map(len, sizes))
    for share in found:
        assert sum(request.messages for request in share.requests) == len(share.fragments)
        assert sum(map(len, share.fragments)) <= RECORD_BYTES or len(share.fragments) == 1
    for each in appends:  # it is whole in a record or has records of its own, of which the last says so
        mine = [share for share in found if set(share.fragments) & set(each.fragments)]
        assert [share.last for share in mine] == [False] * (len(mine) - 1) + [True]
        assert len(mine) == 1 or all(len(share.requests) == 1 for share in mine)


def test_small_appends_share_a_record_and_a_key_is_noted_once_with_its_answer():
    state = topic(1, end=7)
    small, keyed = append(state, 0, [10]), append(state, 1, [10, 10], key=b"k")
    large = append(state, 2, [60_000, 60_000], key=b"l")

    one, part, rest = records_of(state, [small, keyed, large])

    assert [noted(request) for request in one.requests] == [None, (b"k", 8, 2)]
    assert [noted(request) for request in part.requests] == [None]
    assert [noted(request) for request in rest.requests] == [(b"l", 10, 2)]


def noted(request: Request) -> tuple[bytes, int, int] | None:
    return request.note and (request.note.key, request.note.first, request.note.messages)


def test_a_group_gets_consecutive_offsets_per_topic_and_a_time_that_does_not_go_back():
    behind, ahead = topic(1, end=3, time=50), topic(2, end=0, time=900)
    group = {behind: [append(behind, 0, [1, 1]), append(behind, 1, [1])], ahead: [append(ahead, 2, [1])]}
    segment = Open(4, "", 0, 1000, 900)

    packed = pack(group, segment, 77, 100)

    assert [(each.topic, each.answer) for share in packed.shares for each in share.appends] == [
        (behind, (3, 2, 100)),
        (behind, (5, 1, 100)),
        (ahead, (0, 1, 900)),
    ]
    assert [(share.topic, share.tail) for share in packed.shares] == [
        (behind, Tail(6, 100, 1030, 77)),
        (ahead, Tail(1, 900, 1010, 77)),
    ]
    assert behind.tail.end == 3
    data = b"".join(packed.parts)
    for placed in packed.records:
        header = decode_header(data, seed_of(4), placed.position - 1000)
        assert isinstance(header, Header)
        assert (header.topic, header.first, header.time, header.commit) == (
            placed.topic.id, placed.first, placed.time, 77,
        )  # fmt: skip
        assert (header.durable, header.size, header.messages) == (900, placed.length, placed.messages)
        body = data[placed.position - 1000 + 68 :][: header.body_bytes]
        assert len(run_of(header, body, 0).fragments) == sum(each.messages for each in requests_of(header, body))


@given(st.lists(SIZE, min_size=1, max_size=8), st.booleans())
def test_an_append_alone_is_stored_as_it_would_be_with_others(sizes, keyed):
    """There are fewer steps for it."""
    state, segment = topic(1, end=5, time=50), Open(4, "", 0, 1000, 900)
    alone, among_others = (append(state, 0, sizes, key=b"k" if keyed else b"") for _ in range(2))

    short, long = pack({state: [alone]}, segment, 77, 100), Packed(segment, 77, 1000)
    tail = long._add_run(state, state.tail.end, 100, [among_others], state.tail.published)

    assert b"".join(short.parts) == b"".join(long.parts)
    assert short.records == long.records
    assert (short.end, short.keys) == (long.end, long.keys)
    assert (short.shares[0].tail, alone.answer) == (tail, among_others.answer)


LOADED = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1), SIZE), min_size=1, max_size=60)


@given(LOADED, st.integers(0, 130))
def test_what_is_loaded_keeps_offsets_and_times_and_is_counted_from_an_offset_on(given, since):
    """Steps to the next offset and time, and sizes."""
    messages, offset, time = [], 9, 50
    for further, later, size in given:
        offset, time = offset + further, time + later
        messages.append(Stored(offset, time, message("A" * (size // 4 * 4)).fragment))
    state = topic(1, end=10, time=50)
    appends = list(loads(state, messages, since, lambda: None))

    packed = pack({state: appends}, Open(4, "", 0, 1000, 900), 77, 100)

    data, found, counted = b"".join(packed.parts), [], 0
    for loaded_topic, loaded, positions, lengths in packed.loaded:
        assert loaded_topic is state
        for *placed, position, length in zip(*loaded, positions, lengths, strict=True):
            header = decode_header(data, seed_of(4), position - 1000)
            assert header is not None
            assert [header.first, header.time, header.messages, header.size] == [*placed, length]
            body = data[position - 1000 + HEADER_BYTES :][: header.body_bytes]
            assert header.body_checksum == checksum(body, seed_of(4))
            counted += sum(each.data_bytes for each in requests_of(header, body))
            run = run_of(header, body, 0)
            assert run.size <= RECORD_BYTES or len(run.fragments) == 1
            found += run.messages
    assert found == messages
    assert counted == sum(len(each.fragment) - len(b'"data":""') for each in messages if each.offset >= since)
    assert packed.shares[0].tail == Tail(offset + 1, time, 1000 + counted, 77)
    assert packed.end == 1000 + len(data)
