"""Send the same to two services, one with the fast lane and one without: half of the work of `tests.fuzz.packets`.

Hot requests in every form, cut at every byte, pipelined, with cached heads and new ones. Both must answer, count, store
and audit the same. Runs within one process, without a network.
"""

import itertools
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.hot_packets import table
from tests.support.packets import cuts
from tests.support.two_ways import TwoWays, two_ways

_COLD_SHARE = 0.2  # share of conversations that start with an empty cache of heads


class Conversation(NamedTuple):
    packets: Sequence[bytes]
    is_cold: bool
    is_slow: bool


def conversations(seed: int) -> Iterator[Conversation]:
    chance, requests = random.Random(seed), table()
    names = list(requests)
    chance.shuffle(names)
    for name in names:
        for packets in cuts(requests[name]):
            yield Conversation(packets, chance.random() < _COLD_SHARE, chance.random() < 0.5)
    yield from rows(seed)


def rows(seed: int) -> Iterator[Conversation]:
    """Yield pipelined requests, cut anywhere, without end; half are plain, so that more take the lane."""
    chance, requests = random.Random(seed), table()
    names = list(requests)
    while True:
        chosen = [chance.choice(names if chance.random() < 0.5 else names[:3]) for _ in range(chance.randint(1, 5))]
        said = b"".join(requests[each] for each in chosen)
        packets = cut_anywhere(said, chance.randint(0, 4), chance)
        yield Conversation(packets, chance.random() < _COLD_SHARE, chance.random() < 0.5)


def cut_anywhere(said: bytes, cuts: int, chance: random.Random) -> list[bytes]:
    places = sorted({0, len(said), *chance.choices(range(1, len(said)), k=cuts)})
    return [said[a:b] for a, b in itertools.pairwise(places)]


async def hold_conversation(ways: TwoWays, conversation: Conversation) -> None:
    if conversation.is_cold:
        ways.forget_heads()
    await ways.same(conversation.packets, slowly=conversation.is_slow)


async def campaign(seconds: float, seed: int) -> int:
    """Hold conversations for so long; return how many. Raises `AssertionError` at the first difference."""
    ends, count = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        async with two_ways(Path(folder), user_requests_per_second=10**6) as ways:
            for conversation in conversations(seed):
                if time.monotonic() > ends:
                    break
                await hold_conversation(ways, conversation)
                count += 1
            await ways.check_content()
            print(f"lane: conversations {count} requests on the lane {ways.lane.on_lane}", flush=True)
            assert ways.lane.on_lane, "no request took the lane"
    return count
