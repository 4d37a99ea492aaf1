"""Ranges as Arrow: what a worker makes is, byte for byte, what is made in place."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.core.runs import Runs, runs_of
from ams.http.arrow_stream import COSTLY, stream
from ams.workers import NoWorker, Pool, TaskFailed

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
MESSAGES = st.tuples(
    st.integers(1, 3), st.integers(0, 2), st.binary(max_size=9) | TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2)
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


class Counted(Pool):
    """A pool that says how many pieces its workers have made."""

    tasks = 0

    def done(self, *args: Any, **others: Any) -> Any:
        self.tasks += 1
        return super().done(*args, **others)


async def ready_pool() -> Counted:
    pool = Counted(1)
    while not pool.is_ready():
        await asyncio.sleep(0.01)
    return pool


@pytest.fixture(scope="module")
def pool(runner: asyncio.Runner) -> Iterator[Counted]:
    made = runner.run(ready_pool())
    yield made
    runner.run(made.close())


def piece(*messages: tuple[int, int, bytes | str, dict[str, str]]) -> Runs:
    """Return messages, each so many offsets and milliseconds after the one before."""
    offsets = accumulate(each[0] for each in messages)
    times = accumulate(each[1] for each in messages)
    texts = [each if isinstance(each, str) else each.hex() for _, _, each, _ in messages]
    sent = [message(text, attributes).fragment for text, (*_, attributes) in zip(texts, messages, strict=True)]
    made = zip(offsets, times, sent, strict=True)
    return Runs(runs_of([Stored(Offset(offset), Milliseconds(time), each) for offset, time, each in made]))


COSTLY_PIECE = piece(*[(1, 0, bytes(5000), {"n": str(number)}) for number in range(COSTLY + 1)])


async def streamed(pieces: Sequence[Runs], pool: Pool | None = None) -> list[bytes]:
    async def one_by_one() -> AsyncIterator[Runs]:
        for each in pieces:
            yield each

    return [part async for part in stream(one_by_one(), asyncio.Lock(), pool, "P")]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.lists(MESSAGES, min_size=1, max_size=6), max_size=3))
def test_a_worker_makes_what_is_made_in_place(
    runner: asyncio.Runner, pool: Counted, pieces: list[list[tuple[int, int, bytes | str, dict[str, str]]]]
) -> None:
    made, before = [piece(*each) for each in pieces], pool.tasks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ams.http.arrow_stream._is_costly", lambda _: True)
        by_worker = runner.run(streamed(made, pool))

    assert pool.tasks == before + 1 + len(made)
    assert by_worker == runner.run(streamed(made))


@pytest.mark.parametrize("error", [NoWorker(), TaskFailed()])
async def test_what_no_worker_makes_is_made_in_place(error: Exception) -> None:
    class Failing(Pool):
        def is_ready(self, size: int = 0) -> bool:
            return True

        def done(self, *_: Any, **__: Any) -> Any:
            raise error

    made = [COSTLY_PIECE]

    assert await streamed(made, Failing()) == await streamed(made)


async def test_a_worker_makes_the_pieces_that_take_long() -> None:
    plain = piece(*[(1, 0, bytes(500), {}) for _ in range(2 * COSTLY)])
    pool = await ready_pool()

    try:
        assert await streamed([COSTLY_PIECE, plain], pool) == await streamed([COSTLY_PIECE, plain])
        assert pool.tasks == 1
    finally:
        await pool.close()


async def test_nobody_waits_for_a_worker_to_begin() -> None:
    pool = Counted(1)

    assert await streamed([COSTLY_PIECE], pool) == await streamed([COSTLY_PIECE])

    assert pool.tasks == 0
    await pool.close()
