"""Index files and key filters: they equal the index in memory, and detect damage."""

from functools import partial
from hashlib import blake2b

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ams.core.errors import Damaged
from ams.storage.log.base import Appended
from ams.storage.log.embedded import segment_index
from ams.storage.log.embedded.segment_index import Entries, SegmentEntries, make_filter


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


@st.composite
def contents(draw):
    """Some topics with records, with gaps between them, and some keys."""
    content = SegmentEntries()
    for number in draw(st.sets(st.integers(0, 20), max_size=6)):
        offset, time = draw(st.integers(0, 50)), draw(st.integers(0, 50))
        for count, gap, later in draw(
            st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=300)
        ):
            offset, time = offset + gap, time + later
            content.add(topic(number), offset, time, count, 128 + len(content.topics), 100)
            offset += count
    for number in draw(st.sets(st.integers(0, 10**6), max_size=200)):
        hashed = (number * 7919 % 2**128).to_bytes(16, "big")
        content.add_key(topic(number % 3), hashed, Appended(number, 1 + number % 7, 5), number.to_bytes(16, "little"))
    return content


def rows(content: SegmentEntries) -> list[segment_index.TopicRow]:
    return [segment_index.TopicRow(topic(n), 100 + n, 7, 11 * n, 3, n, 1, 0, 0) for n in range(0, 25, 2)] + [
        segment_index.TopicRow(each, 500, 9, 8, 4, 0, 0, 0, 0) for each in content.topics if int.from_bytes(each) % 2
    ]


def reach(content: SegmentEntries) -> dict[bytes, segment_index.TopicExtent]:
    return {
        name: segment_index.TopicExtent(entries.end, entries.times[-1]) for name, entries in content.topics.items()
    } | {topic(24): segment_index.TopicExtent(77, 6)}


def write_index(content: SegmentEntries) -> bytes:
    return segment_index.encode_index(2, 9, 4096, 12, rows(content), content, reach(content))[0]


def open_index(data: bytes) -> segment_index.Directory:
    head = segment_index.decode_head(data[: segment_index.HEAD_BYTES])
    assert head is not None
    return segment_index.Directory(
        head, data[segment_index.HEAD_BYTES : segment_index.HEAD_BYTES + head.directory_bytes]
    )


def block(directory: segment_index.Directory, row: segment_index.TopicRow, number: int, data: bytes) -> Entries:
    size, position = directory.place(row, number)
    return segment_index.decode_entries(data[position : position + size])


@given(contents())
def test_an_index_says_what_the_memory_said(content) -> None:
    data = write_index(content)
    directory = open_index(data)

    assert directory.head.size == len(data)
    assert (directory.head.sequence, directory.head.length, directory.head.commit) == (9, 4096, 12)
    assert directory.head.newest == content.newest
    assert [row.topic for row in directory.rows()] == sorted(row.topic for row in rows(content))
    for before in rows(content):
        row = directory.find(before.topic)
        there = content.topics.get(before.topic)
        came = reach(content).get(before.topic, segment_index.TopicExtent(0, 0))
        assert row == before._replace(
            reach=came.end, reach_time=came.time, entries=len(there or ()), block=row.block,
            keys=content.keyed.get(before.topic, 0), bytes=sum(there.lengths) if there else 0,
        )  # fmt: skip
    assert directory.find(topic(999)) is None


@given(contents(), st.integers(0, 1500))
def test_offsets_and_times_are_found_as_in_memory(content, wanted) -> None:
    data = write_index(content)
    directory = open_index(data)

    for name, entries in content.topics.items():
        row = directory.find(name)
        number = directory.block_with(row, wanted)
        found = block(directory, row, number, data)
        at = found.at(wanted)
        if at == len(found) and number < directory.last_block(row):
            number, at = number + 1, 0
            found = block(directory, row, number, data)
        assert (number - row.block) * segment_index.ENTRIES_PER_BLOCK + at == entries.at(wanted)
        number = directory.block_since(row, wanted)
        found = block(directory, row, number, data)
        if found.since(wanted) == len(found) and number < directory.last_block(row):
            number += 1
            found = block(directory, row, number, data)
        assert (number - row.block) * segment_index.ENTRIES_PER_BLOCK + found.since(wanted) == entries.since(wanted)


def look_up(directory: segment_index.Directory, data: bytes, hashed: bytes) -> bytes | None:
    size, position = directory.key_place(hashed) or (0, 0)
    return segment_index.key_in(data[position : position + size], hashed) if size else None


@given(contents())
def test_keys_are_found_and_others_are_not(content) -> None:
    data = write_index(content)
    look = partial(look_up, open_index(data), data)

    assert all(look(hashed) == answered for hashed, answered in content.keys.items())
    assert look(bytes(16)) == content.keys.get(bytes(16))
    assert look(b"\xff" * 16) is None


@settings(max_examples=200)
@given(contents(), st.data())
def test_every_flipped_bit_is_noticed(content, data) -> None:
    flipped = bytearray(write_index(content))
    place = data.draw(st.integers(0, len(flipped) - 1))
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))

    assert not reads_as_whole(bytes(flipped), content)
    assert reads_as_whole(write_index(content), content)


def reads_as_whole(data: bytes, content: SegmentEntries) -> bool:
    """Read all of an index file; return whether it is undamaged."""
    try:
        head = segment_index.decode_head(data[: segment_index.HEAD_BYTES])
        directory = open_index(data)
        for row in directory.rows():
            for number in range(row.block, directory.last_block(row) + 1):
                block(directory, row, number, data)
        for hashed in content.keys:
            look_up(directory, data, hashed)
        if head.keys:
            segment_index.decode_filter(data[head.filter_position :], head.keys)
    except Damaged:
        return False
    return True


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)), max_size=30), st.integers(0, 200))
def test_entries_find_offsets_and_times_as_a_plain_list_does(steps, wanted) -> None:
    entries, plain, offset, time = Entries(), [], 0, 0
    for gap, count, later in steps:
        offset, time = offset + gap, time + later
        entries.add(offset, time, count, 0, 0)
        plain.append((offset, count, time))
        offset += count

    assert entries.at(wanted) == next((n for n, (f, c, _) in enumerate(plain) if f + c > wanted), len(plain))
    assert entries.since(wanted) == next((n for n, (_, _, t) in enumerate(plain) if t >= wanted), len(plain))
    assert entries.holds(wanted) == any(f <= wanted < f + c for f, c, _ in plain)


def hashes(first: int, count: int) -> list[bytes]:
    return sorted(blake2b(number.to_bytes(8), digest_size=16).digest() for number in range(first, first + count))


@given(st.sets(st.binary(min_size=16, max_size=16), max_size=300))
@example({bytes(16), b"\xff" * 16})
@example({bytes(8) + number.to_bytes(8) for number in range(200)})
@example({b"\xff" * 8 + number.to_bytes(8) for number in range(200)})
def test_every_key_that_is_there_passes_also_when_it_was_written(keys: set[bytes]) -> None:
    made = make_filter(sorted(keys))
    assert all(made.may_hold(key) for key in keys)
    assert not keys or segment_index.decode_filter(segment_index.encode_filter(made), len(keys)) == made


def test_of_new_keys_fewer_than_one_in_a_thousand_passes() -> None:
    made = make_filter(hashes(0, 20_000))
    assert 0 < sum(made.may_hold(key) for key in hashes(10**6, 100_000)) < 100
