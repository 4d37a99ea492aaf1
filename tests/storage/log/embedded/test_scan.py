"""Scanning: a torn end is cut at the last whole append; damage in the middle costs only the damaged record."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.storage.log.embedded.catalog import TopicState
from ams.storage.log.embedded.group_commit import Append, Packed
from ams.storage.log.embedded.record import HEADER_BYTES, MAGIC, RecordKind, Stamp, encode_control
from ams.storage.log.embedded.scan import Scanned, scan
from ams.storage.log.embedded.segment import CLASSES, HEAD_BYTES, OpenSegment, SegmentHead, encode_head, seed_of
from simulation.unreliable_disk import SECTOR, UnreliableDisk

PATH = "/segment"
SEQUENCE = 3
TOPICS = [bytes([n]) * 16 for n in range(3)]
GROUPS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.sampled_from([0, 5, 900, 40_000]), min_size=1, max_size=4)),
        min_size=1, max_size=4,
    ),
    min_size=1, max_size=5,
)  # fmt: skip


@dataclass
class WrittenSegment:
    """A segment and its contents: per append its topic, offsets, and first and last byte."""

    data: bytearray
    appends: list[tuple[bytes, int, int, int, int]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)  # where each group begins
    starts: list[int] = field(default_factory=list)  # where each record begins

    def flip(self, data: st.DataObject, first: int, last: int) -> int:
        """Flip a bit of one of these bytes; return which."""
        place = data.draw(st.integers(first, last))
        self.data[place] ^= 1 << data.draw(st.integers(0, 7))
        return place


def write_segment(groups, *, marked: bool = False, sequence: int = SEQUENCE, held: int = 0) -> WrittenSegment:
    result = WrittenSegment(bytearray(encode_head(SegmentHead(2, sequence, 0, held=held))))
    topics = [TopicState(name, None, CLASSES[2]) for name in TOPICS]
    for number, group in enumerate(groups):
        segment = OpenSegment(sequence, PATH, 0, len(result.data), len(result.data))
        result.groups.append(len(result.data))
        waiting: dict[TopicState, list[Append]] = {}
        for which, sizes in group:
            fragments = [b"x" * size for size in sizes]
            waiting.setdefault(topics[which], []).append(Append(topics[which], fragments, sum(sizes), len(sizes), None))
        packed = Packed(waiting, segment, number + 1, 1000 + number)
        for append in (each for share in packed.shares for each in share.appends):
            answer = append.answer
            mine = [each for each in packed.records if each.topic is append.topic]
            held = [each for each in mine if answer.first < each.first + each.messages]
            held = [each for each in held if each.first < answer.first + answer.count]
            end = held[-1].position + held[-1].length
            result.appends.append((append.topic.id, answer.first, answer.count, held[0].position, end))
        for share in packed.shares:
            share.topic.tail = share.tail
        result.starts += [each.position for each in packed.records]
        result.data += b"".join(packed.parts)
    if marked:
        stamp = Stamp(len(groups) + 1, len(result.data), seed_of(sequence))
        result.data += encode_control(RecordKind.MARK, b"", 0, stamp)
    return result


OTHER_SEQUENCES = [1, SEQUENCE - 1, SEQUENCE + 1, SEQUENCE + 2**31, SEQUENCE + 2**32 - 1]
"""Numbers of segments that used the file before."""


def write_over(pages: bytes, segment: WrittenSegment) -> bytes:
    """Return a file's contents after the segment was written over `pages`."""
    return bytes(segment.data) + pages[len(segment.data) :]


def scan_data(data: bytes, *, closed: bool = False) -> Scanned:
    disk = UnreliableDisk()
    disk.write(disk.open(PATH, create=True), data, 0)
    return scan(disk, PATH, SEQUENCE, closed=closed)


def offsets(found: Scanned) -> set[tuple[bytes, int]]:
    return {
        (topic, offset) for topic, entries in found.content.topics.items() for number in range(len(entries))
        for offset in range(entries.firsts[number], entries.end_of(number))
    }  # fmt: skip


def list_offsets(appends) -> set[tuple[bytes, int]]:
    return {(topic, offset) for topic, first, count, _, _ in appends for offset in range(first, first + count)}


@settings(max_examples=60)
@given(GROUPS)
def test_all_of_a_whole_segment_is_found(groups) -> None:
    segment = write_segment(groups)

    found = scan_data(segment.data)

    assert offsets(found) == list_offsets(segment.appends)
    assert (found.torn, found.damage, found.end) == ("", [], len(segment.data))
    assert found.messages == len(list_offsets(segment.appends))
    assert sum(each.published for each in found.tails.values()) == found.messages
    assert found.commit == len(groups)


@settings(max_examples=100)
@given(GROUPS, st.data())
def test_a_cut_at_any_byte_keeps_exactly_the_appends_before_it(groups, data) -> None:
    segment = write_segment(groups)
    cut = data.draw(st.integers(HEAD_BYTES, len(segment.data)) | st.sampled_from(segment.starts))

    found = scan_data(segment.data[:cut])

    whole = [each for each in segment.appends if each[4] <= cut]
    assert (offsets(found), found.damage) == (list_offsets(whole), [])
    assert found.end == max((each[4] for each in whole), default=HEAD_BYTES)
    assert bool(found.torn) == (found.end < cut)


@settings(max_examples=100)
@given(GROUPS, st.data())
def test_a_flipped_bit_in_the_last_group_cuts_there_and_loses_nothing_before_it(groups, data) -> None:
    segment = write_segment(groups)
    place = segment.flip(data, segment.groups[-1], len(segment.data) - 1)

    found = scan_data(segment.data)

    assert offsets(found) == list_offsets(each for each in segment.appends if each[4] <= place)
    assert found.torn
    assert found.damage == []


def check_damage(segment: WrittenSegment, found: Scanned, place: int) -> None:
    """Check that only the record at a place is damaged, with its appends; the others are whole."""
    start = max(each for each in segment.starts if each <= place)
    stop = min(each for each in segment.starts if each > place)
    lost = list_offsets(segment.appends) - offsets(found)
    assert lost
    assert lost <= list_offsets(each for each in segment.appends if each[3] < stop and each[4] > start)
    assert [(each.position, each.length) for each in found.damage] == [(start, stop - start)]
    assert found.end == len(segment.data)


@settings(max_examples=150)
@given(GROUPS, st.none() | GROUPS, st.sampled_from(OTHER_SEQUENCES), st.data())
def test_a_flipped_bit_before_the_last_group_loses_only_its_record_and_is_reported(groups, before, other, data) -> None:
    """Also before pages from the file's earlier use."""
    pages = bytes(write_segment(before, sequence=other).data) if before else b""
    segment = write_segment([*groups, [(0, [1])]], held=len(pages))
    place = segment.flip(data, HEAD_BYTES, segment.groups[-1] - 1)

    found = scan_data(write_over(pages, segment))

    check_damage(segment, found, place)
    assert before or not found.torn


@settings(max_examples=60)
@given(GROUPS, st.data())
def test_damage_beside_a_torn_end_is_damage_when_the_torn_record_knows_better(groups, data) -> None:
    """A sector may hold the last acknowledged bytes and the first of a group whose sync never returned."""
    segment = write_segment([*groups, [(0, [900])]])
    place = segment.flip(data, HEAD_BYTES, segment.groups[-1] - 1)

    found = scan_data(segment.data[: segment.groups[-1] + data.draw(st.integers(HEADER_BYTES, 900))])

    start = max(each for each in segment.starts if each <= place)
    assert ([each.position for each in found.damage], found.end) == ([start], segment.groups[-1])
    assert found.torn


@settings(max_examples=60)
@given(GROUPS, st.data())
def test_after_a_mark_every_flipped_bit_is_damage_and_no_torn_end(groups, data) -> None:
    segment = write_segment(groups, marked=True)
    segment.flip(data, HEAD_BYTES, len(segment.data) - 69)

    found = scan_data(segment.data)

    assert (len(found.damage), found.torn) == (1, "")
    assert found.marked


@settings(max_examples=60)
@given(GROUPS, st.data())
def test_in_a_closed_segment_every_cut_is_damage_of_the_end_only(groups, data) -> None:
    segment = write_segment(groups)
    cut = data.draw(st.integers(HEAD_BYTES, len(segment.data) - 1))

    found = scan_data(segment.data[:cut], closed=True)

    assert offsets(found) >= list_offsets(each for each in segment.appends if each[4] <= cut)
    assert found.torn == ""


@settings(max_examples=100)
@given(GROUPS, GROUPS, st.sampled_from(OTHER_SEQUENCES), st.integers(0, 2**16))
def test_a_segment_ends_where_the_records_of_another_begin_that_its_file_was_before(groups, before, other, zeros):
    pages = bytes(write_segment(before, sequence=other).data)
    segment = write_segment(groups, held=len(pages))
    data = write_over(pages + bytes(zeros), segment)

    found = scan_data(data)

    assert offsets(found) == list_offsets(segment.appends)
    assert (found.end, found.damage) == (len(segment.data), [])
    assert bool(found.torn) == (len(data) > len(segment.data))
    is_like_ours = pages[len(segment.data) :].startswith(MAGIC)
    assert found.unwritten == (bool(found.torn) and not is_like_ours)


@settings(max_examples=100)
@given(GROUPS, GROUPS, st.sampled_from(OTHER_SEQUENCES), st.booleans(), st.data())
def test_a_group_torn_over_the_records_of_another_segment_is_cut_there(groups, before, other, zeroed, data) -> None:
    """Each sector has its new or its old contents; both belong to the same topics."""
    pages = bytes(write_segment([*before, [(0, [40_000])]], sequence=other).data)
    pages = bytes(len(pages)) if zeroed else pages
    segment = write_segment(groups, held=len(pages))
    start, content = segment.groups[-1], bytearray(write_over(pages, segment))
    pages += bytes(len(content) - len(pages))  # where the file grew
    for place in range(start - start % SECTOR, len(segment.data), SECTOR):
        if data.draw(st.booleans()):
            begin, end = max(place, start), place + SECTOR
            content[begin:end] = pages[begin:end]

    found = scan_data(bytes(content))

    sure = list_offsets(each for each in segment.appends if each[4] <= start)
    assert sure <= offsets(found) <= list_offsets(segment.appends)
    assert offsets(found) == list_offsets(each for each in segment.appends if each[4] <= found.end)
    assert found.damage == []


def test_bytes_behind_the_old_pages_are_a_torn_end() -> None:
    pages = bytes(write_segment([[(0, [900])]], sequence=SEQUENCE - 1).data)
    segment = write_segment([[(0, [5])]], held=len(pages))
    assert scan_data(write_over(pages, segment)).unwritten
    assert not scan_data(write_over(pages + b"torn", segment)).unwritten


def test_records_larger_than_the_reading_window_are_found() -> None:
    segment = write_segment([[(0, [5])], [(1, [9_000_000])], [(0, [5])]])
    assert offsets(scan_data(segment.data)) == list_offsets(segment.appends)
