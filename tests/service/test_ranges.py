"""Ranges of topics: the existing messages of a range, in order, with one piece in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.errors import NotFound
from ams.core.messages import Stored, message
from ams.service.ranges import PIECE_BYTES, PIECE_MESSAGES, RangeReader
from ams.storage.log.embedded import LogOptions
from tests.support.use_cases import TOPIC, UseCases, open_use_cases

WHOLE_RANGE = (None, None, 1_000_000)


@pytest.fixture
async def use_cases(tmp_path: Path) -> AsyncIterator[UseCases]:
    async with open_use_cases(tmp_path, LogOptions(min_free_bytes=0, reserve_bytes=0, segment_bytes=2**20)) as made:
        yield made


def reader(use_cases: UseCases, most: int = 1_000_000) -> RangeReader:
    return RangeReader(use_cases.engines.registry, use_cases.engines.log, most)


async def read_pieces(
    use_cases: UseCases, wanted: tuple[int | None, int | None, int], most: int = 1_000_000
) -> list[list[Stored]]:
    planned = await reader(use_cases, most).plan(use_cases.caller, TOPIC, *wanted, None)
    return [list(piece) async for piece in reader(use_cases).messages(planned)]


async def test_everything_is_read_in_order_and_in_pieces(use_cases: UseCases) -> None:
    await use_cases.publish(2 * PIECE_MESSAGES + 1)
    pieces = await read_pieces(use_cases, WHOLE_RANGE)
    assert [len(each) for each in pieces] == [PIECE_MESSAGES, PIECE_MESSAGES, 1]
    assert [each.offset for piece in pieces for each in piece] == list(range(2 * PIECE_MESSAGES + 1))


async def test_a_piece_is_no_larger_than_its_bytes_whatever_the_messages_are(use_cases: UseCases) -> None:
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    for _ in range(10):
        await use_cases.publisher.publish(topic, [message("A" * 100_000) for _ in range(10)])

    pieces = await read_pieces(use_cases, WHOLE_RANGE)

    assert sum(len(each) for each in pieces) == 100
    assert max(sum(len(each.fragment) for each in piece) for piece in pieces) <= PIECE_BYTES


@pytest.mark.parametrize("what", ["published", "taken by retention", "deleted"])
async def test_a_range_is_of_what_was_there_when_it_began_and_still_is(use_cases: UseCases, what: str) -> None:
    await use_cases.publish(3)
    planned = await reader(use_cases).plan(use_cases.caller, TOPIC, *WHOLE_RANGE, None)
    assert planned.next == planned.end == 3
    messages = reader(use_cases).messages(planned)
    if what == "deleted":
        await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
        with pytest.raises(NotFound):
            await anext(messages)
        return
    if what == "taken by retention":
        use_cases.engines.clock.advance(8 * 86_400_000)
    await use_cases.publish(3, first=3)

    assert [each.offset async for piece in messages for each in piece] == ([0, 1, 2] if what == "published" else [])
