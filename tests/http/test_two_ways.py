"""However hot requests are written, cut and put in a row, the lane answers, stores and counts as the way over ASGI."""

import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fuzz.lane import Conversation, hold, rows
from tests.support.hot_packets import table
from tests.support.packets import cuts
from tests.support.rounds import AllWaits
from tests.support.two_ways import TwoWays, one_way, two_ways

REQUESTS = table()
FEW_ROWS = 60


@pytest.fixture
async def ways(tmp_path: Path) -> AsyncIterator[TwoWays]:
    async with two_ways(tmp_path, user_requests_per_second=10**6) as opened:
        yield opened


@pytest.mark.parametrize("part", range(4))
async def test_each_request_is_answered_alike_cold_and_warm(ways: TwoWays, part: int) -> None:
    for name in list(REQUESTS)[part::4]:
        said = REQUESTS[name]
        ways.forget_heads()
        first = await ways.same([said])
        assert first.startswith(b"HTTP/1.1 ") or not first, name
        await ways.same([said])
        await ways.same([said, said])
    assert ways.lane.on_lane > 20
    await ways.check_content()


async def test_hot_requests_cut_anywhere_are_answered_alike(ways: TwoWays) -> None:
    """A sample; `make fuzz-packets` makes every cut."""
    chosen = random.Random(3)
    for name in chosen.sample(list(REQUESTS), 40):
        for packets in chosen.sample(list(cuts(REQUESTS[name])), 5):
            await hold(ways, Conversation(packets, is_cold=chosen.random() < 0.2, is_slow=chosen.random() < 0.5))
    await ways.check_content()


async def test_rows_of_requests_cut_anywhere_are_answered_alike(ways: TwoWays) -> None:
    for conversation in itertools.islice(rows(seed=5), 150):
        await hold(ways, conversation)
    assert ways.lane.on_lane > 20
    await ways.check_content()


async def test_rows_of_requests_that_wait_for_their_turns_are_answered_alike(tmp_path: Path) -> None:
    async with (
        one_way(tmp_path / "lane", lane=True, user_requests_per_second=10**6, rounds=AllWaits()) as lane,
        one_way(tmp_path / "asgi", lane=False, user_requests_per_second=10**6) as asgi,
    ):
        ways = TwoWays(lane, asgi)
        for conversation in itertools.islice(rows(seed=11), 100):
            await hold(ways, conversation)
        assert lane.on_lane > 20
        await ways.check_content()


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.postgres
async def test_requests_are_answered_alike_on_kafka_and_postgresql(tmp_path: Path) -> None:
    async with two_ways(tmp_path, is_cluster=True, user_requests_per_second=10**6) as ways:
        for name, said in REQUESTS.items():
            answered = await ways.same([said, said])
            assert answered.startswith(b"HTTP/1.1 ") or not answered, name
        for conversation in itertools.islice(rows(seed=7), FEW_ROWS):
            await hold(ways, conversation)
        assert ways.lane.on_lane > 20
        await ways.check_content()
