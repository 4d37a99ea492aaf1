"""What is remembered of heads takes the memory it is counted for, however a client writes them."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from tests.support.hot_packets import KEY, PUBLISH, said
from tests.support.two_ways import one_way

HEADS = 200


@pytest.mark.parametrize("fields", [5, 90])
async def test_what_a_head_is_counted_for_is_about_what_it_takes(tmp_path: Path, fields: int) -> None:
    async with one_way(tmp_path / "data", lane=True) as way:
        assert way.made.lane is not None
        heads = way.made.lane.fast._heads

        async def ask(first: int) -> None:
            for number in range(first, first + HEADS):
                names = b"".join(b"a%d: %d\r\n" % (place, number) for place in range(fields))
                await way.told([said(PUBLISH, b'{"messages":[]}', KEY + names + b"n: %d\r\n" % number)])

        await ask(0)  # whatever is made once is there
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0], heads._weight
            await ask(HEADS)
            gc.collect()
            taken, counted = tracemalloc.get_traced_memory()[0] - before[0], heads._weight - before[1]
        finally:
            tracemalloc.stop()

    assert counted > HEADS * 1000
    assert counted / 2 < taken < counted * 1.5, (taken / HEADS, counted / HEADS)
