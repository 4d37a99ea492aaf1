"""What the table of workers keeps to whatever is wanted: one delivery of a subscription at a time, and no other."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.clock import ManualClock
from ams.push.sender import EndpointAnswer, Headers
from ams.push.upstream import Target
from ams.push.workers import Workers
from tests.push.keepers import MemoryUpstream, Naps, ScriptedSender, target, until

PATHS = [f"/projects/P/subscriptions/{name}" for name in "abc"]


class Watching(ScriptedSender):
    """Notes how many requests of a path, and of an identity, are in flight at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Counter[str] = Counter()
        self.most = 0

    async def send(
        self, url: str, headers: Headers, body: bytes, *, seconds: float, at_once: int = 0
    ) -> EndpointAnswer:
        keys = [url.rpartition("/")[2], dict(headers)["webhook-id"].split(".")[1]]
        self.now.update(keys)
        self.most = max(self.most, *self.now.values())
        try:
            return await super().send(url, headers, body, seconds=seconds)
        finally:
            self.now.subtract(keys)


def wanted(path: int, identity: int, variant: int) -> Target:
    return target(PATHS[path], identity=f"id{identity}", deadline=variant, endpoint=f"https://r.example/id{identity}")


SETS = st.lists(
    st.builds(wanted, st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)),
    max_size=3,
    unique_by=(lambda each: each.path, lambda each: each.id),
)
STEPS = st.lists(st.tuples(SETS, st.booleans(), st.integers(0, 4)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_no_subscription_is_ever_delivered_twice_at_once_and_in_the_end_what_is_wanted_is(
    steps: list[tuple[list[Target], bool, int]],
) -> None:
    async def run() -> None:
        upstream, sender = MemoryUpstream(), Watching()
        clock = ManualClock()
        workers = Workers(upstream, sender, clock, lambda: 0.5, sleep=Naps(clock))
        for path in PATHS:
            upstream.append(path, 40)
        for targets, answers, turns in steps:
            workers.follow(targets)
            if answers:
                sender.open.set()
            else:
                sender.open.clear()
            for _ in range(turns):
                await asyncio.sleep(0)
        sender.open.set()
        last = steps[-1][0]

        await until(lambda: workers.held() == {each.id for each in last})
        await until(lambda: all(upstream.position(each.path) == 40 for each in last))
        async with asyncio.timeout(5):
            await workers.stop()

        assert sender.most <= 1
        assert not workers.paths()
        assert not workers.held()

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3)), max_size=20))
def test_activating_and_deactivating_at_any_time_leaves_what_was_activated_last(
    steps: list[tuple[bool, int, int]],
) -> None:
    async def run() -> None:
        upstream, sender = MemoryUpstream(), Watching()
        clock = ManualClock()
        workers = Workers(upstream, sender, clock, lambda: 0.5, sleep=Naps(clock))
        active: set[str] = set()
        for activates, path, turns in steps:
            upstream.append(PATHS[path])
            if activates:
                assert workers.activate(wanted(path, path, 0)) == (PATHS[path] not in active)
                active.add(PATHS[path])
            else:
                assert workers.deactivate(PATHS[path]) == (PATHS[path] in active)
                active.discard(PATHS[path])
            for _ in range(turns):
                await asyncio.sleep(0)
            assert all((workers.state(each) is not None) == (each in active) for each in PATHS)

        await until(lambda: workers.paths() == active)
        async with asyncio.timeout(5):
            await workers.stop()
        assert sender.most <= 1

    asyncio.run(run())
