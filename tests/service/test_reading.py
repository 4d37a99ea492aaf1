"""Ranges of topics: what is there of what is asked for, in order, and no more of it in memory than a piece."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import NotFound
from ams.core.messages import Stored, message
from ams.core.names import Offset, new_topic_id
from ams.service.reading import PIECE_BYTES, PIECE_MESSAGES, RangeReader, RangeRequest, _range
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import LogOptions
from ams.storage.log.embedded.reader import INLINE_BYTES
from ams.storage.log.embedded.record import RECORD_BYTES
from tests.support.use_cases import TOPIC, UseCases, open_use_cases

EVERYTHING = RangeRequest(None, None, 1_000_000)


@pytest.fixture
async def use_cases(tmp_path: Path) -> AsyncIterator[UseCases]:
    options = LogOptions(min_free_bytes=0, reserve_bytes=0, segment_bytes=2**20)
    async with open_use_cases(tmp_path, options) as made:
        yield made


def reader(use_cases: UseCases, most: int = 1_000_000) -> RangeReader:
    return RangeReader(use_cases.engines.registry, use_cases.engines.log, most)


async def read(use_cases: UseCases, wanted: RangeRequest, most: int = 1_000_000) -> list[list[Stored]]:
    planned = await reader(use_cases, most).plan(use_cases.caller, TOPIC, wanted)
    return [list(piece) async for piece in reader(use_cases).messages(planned)]


async def test_everything_is_read_in_order_and_in_pieces(use_cases: UseCases) -> None:
    await use_cases.publish(2 * PIECE_MESSAGES + 1)

    pieces = await read(use_cases, EVERYTHING)

    assert [len(each) for each in pieces] == [PIECE_MESSAGES, PIECE_MESSAGES, 1]
    assert [each.offset for piece in pieces for each in piece] == list(range(2 * PIECE_MESSAGES + 1))


async def test_a_piece_is_no_larger_than_its_bytes_whatever_the_messages_are(use_cases: UseCases) -> None:
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    for _ in range(10):
        await use_cases.publisher.publish(topic, [message("A" * 100_000) for _ in range(10)])

    pieces = await read(use_cases, EVERYTHING)

    assert sum(len(each) for each in pieces) == 100
    assert max(sum(len(each.fragment) for each in piece) for piece in pieces) <= PIECE_BYTES


def test_a_piece_is_read_without_a_thread_where_it_is_in_memory() -> None:
    assert PIECE_BYTES + 2 * RECORD_BYTES <= INLINE_BYTES  # whole records are read: one more at either end


@given(start=st.none() | st.integers(0, 9), stop=st.none() | st.integers(0, 20), most=st.integers(1, 12))
def test_a_range_is_what_python_slices_say(start: int | None, stop: int | None, most: int) -> None:
    planned = _range(new_topic_id(), RangeRequest(start, stop, most), Bounds(Offset(0), Offset(9)), 10)

    assert list(range(planned.first, planned.next)) == list(range(9))[start:stop][: min(most, 10)]


async def test_the_range_ends_where_the_topic_ended_when_it_began(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    planned = await reader(use_cases).plan(use_cases.caller, TOPIC, EVERYTHING)
    await use_cases.publish(3, first=3)

    assert planned.next == planned.end == 3
    assert [each.offset async for piece in reader(use_cases).messages(planned) for each in piece] == [0, 1, 2]


async def test_what_retention_takes_while_it_is_read_is_missing_and_ends_nothing(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    planned = await reader(use_cases).plan(use_cases.caller, TOPIC, EVERYTHING)
    use_cases.engines.clock.advance(8 * 86_400_000)
    await use_cases.publish(1, first=3)

    assert [piece async for piece in reader(use_cases).messages(planned)] == []


async def test_a_topic_that_goes_while_it_is_read_ends_the_reading(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    planned = await reader(use_cases).plan(use_cases.caller, TOPIC, EVERYTHING)
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    with pytest.raises(NotFound):
        await anext(reader(use_cases).messages(planned))
