"""The table of workers: who is started, replaced and ended when, and one delivery of a subscription at a time."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.clock import ManualClock
from ams.push.report import ACTIVE, RETRYING
from ams.push.sender import EndpointAnswer, Headers
from ams.push.upstream import Gone, Pulled, Target
from ams.push.workers import Workers
from ams.wire.push import WorkerState
from tests.push.keepers import PATH, MemoryUpstream, Naps, ScriptedSender, closed, target
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

OTHER = "/projects/P/subscriptions/other"
ONE = target(identity="1")
TWO = target(OTHER, identity="2")


class Bench:
    def __init__(self, upstream: MemoryUpstream, sender: Any) -> None:
        self.upstream, self.sender = upstream, sender
        self.naps = Naps(ManualClock())
        self.workers = Workers(upstream, sender, self.naps.clock, lambda: 0.5, sleep=self.naps)

    async def follow_in_flight(self, *targets: Target) -> None:
        """Follow targets, and wait until a delivery of each is on its way."""
        self.workers.follow(targets)
        await wait_until_async(lambda: self.sender.in_flight == len(targets))


@contextlib.asynccontextmanager
async def working(
    messages: int = 0, sender: ScriptedSender | None = None, upstream: MemoryUpstream | None = None
) -> AsyncIterator[Bench]:
    bench = Bench(upstream or MemoryUpstream(messages), sender or ScriptedSender())
    try:
        yield bench
    finally:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bench.workers.stop(0)


async def test_what_is_wanted_is_delivered_and_what_is_wanted_no_more_is_not() -> None:
    async with working(1) as bench:
        bench.workers.follow([ONE, TWO])
        await wait_until_async(lambda: bench.upstream.waiting == 2)
        assert bench.workers.held() == {"1", "2"}

        bench.workers.follow([TWO])
        await wait_until_async(lambda: bench.workers.paths() == {OTHER})

        assert bench.upstream.forgotten == [PATH]

    assert bench.upstream.acknowledged == [0]
    assert bench.upstream.waiting == 0


async def test_following_the_same_again_changes_nothing() -> None:
    async with working() as bench:
        bench.workers.follow([ONE])
        await wait_until_async(lambda: bench.upstream.waiting)
        for _ in range(3):
            bench.workers.follow([replace(ONE)])
            await asyncio.sleep(0.01)

        assert len(bench.upstream.pulls) == 1


async def test_a_target_that_changed_is_delivered_anew_after_what_was_in_flight() -> None:
    """P8: a change of the configuration makes no duplicates."""
    async with working(2, closed()) as bench:
        await bench.follow_in_flight(ONE)
        bench.workers.follow([replace(ONE, config=replace(ONE.config, endpoint="https://new.example/"))])
        await asyncio.sleep(0.01)
        assert len(bench.sender.sent) == 1
        assert bench.workers.state(PATH) == WorkerState()

        bench.sender.open.set()
        await wait_until_async(lambda: bench.upstream.position() == 2)

    assert [(sent.url, sent.ids) for sent in bench.sender.sent] == [
        (ONE.config.endpoint, [0]), ("https://new.example/", [1]),
    ]  # fmt: skip
    assert bench.sender.most_in_flight == 1


async def test_what_is_finished_still_is_held() -> None:
    """P16: nobody else may have it yet."""
    async with working(1, closed()) as bench:
        await bench.follow_in_flight(ONE)
        bench.workers.follow([])

        assert bench.workers.held() == {"1"}
        assert bench.workers.state(PATH) is None
        bench.sender.open.set()
        await wait_until_async(lambda: not bench.workers.held())


async def test_p6_a_late_end_of_a_worker_does_not_end_the_next_one_of_its_path() -> None:

    class Late(MemoryUpstream):
        async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
            try:
                return await super().pull(target, max_messages=max_messages, max_bytes=max_bytes)
            except asyncio.CancelledError:
                if target.id == ONE.id:  # the answer comes when nobody waits for it any more
                    raise Gone("Subscription doesn't exist") from None
                raise

    async with working(upstream=Late()) as bench:
        bench.workers.follow([ONE])
        await wait_until_async(lambda: bench.upstream.waiting)
        bench.workers.follow([replace(ONE, id="new")])
        await wait_until_async(lambda: bench.workers.held() == {"new"})
        await asyncio.sleep(0.01)

        assert bench.workers.held() == {"new"}
        assert bench.workers.paths() == {PATH}
        assert bench.workers.state(PATH) is not None


async def test_a_subscription_that_is_gone_is_forgotten_until_it_is_wanted_again() -> None:
    async with working(1) as bench:
        bench.upstream.failing["pull"] = [Gone("Subscription doesn't exist")]
        bench.workers.activate(ONE)
        await wait_until_async(lambda: not bench.workers.paths())
        assert bench.workers.state(PATH) is None
        assert bench.workers.held() == set()

        bench.workers.follow([ONE])
        await wait_until_async(lambda: bench.upstream.position() == 1)


async def test_p14_first_pulls_of_many_are_spread_over_a_second_at_most() -> None:
    async with working() as bench:
        bench.workers.follow([target(f"/projects/P/subscriptions/{number}") for number in range(1000)])
        await wait_until_async(lambda: bench.upstream.waiting == 1000)

        assert bench.naps.taken == [0.5] * 1000


async def test_a_single_one_begins_at_once() -> None:
    async with working() as bench:
        bench.workers.follow([ONE])
        await wait_until_async(lambda: bench.upstream.waiting)

        assert bench.naps.taken == []


async def test_p8_stopping_finishes_what_is_in_flight_of_all() -> None:
    async with working(2, closed()) as bench:
        bench.upstream.append(OTHER)
        await bench.follow_in_flight(ONE, TWO)
        stopping = asyncio.create_task(bench.workers.stop(5))
        await asyncio.sleep(0.01)
        bench.sender.open.set()
        await stopping

        assert bench.upstream.positions == {PATH: 1, OTHER: 1}
        assert not bench.workers.paths()


async def test_stopping_shortens_what_drains_already() -> None:
    async with working(1, closed()) as bench:
        await bench.follow_in_flight(ONE)
        bench.workers.follow([])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bench.workers.stop(0.01)

        assert not bench.workers.held()
        assert bench.upstream.acknowledged == []


async def test_after_a_stop_it_can_be_begun_again() -> None:
    async with working(1) as bench:
        await bench.workers.stop()
        bench.workers.follow([ONE])
        await wait_until_async(lambda: bench.upstream.position() == 1)


async def test_changes_are_taken_once_and_put_back_when_they_were_lost() -> None:
    async with working(1) as bench:
        bench.workers.follow([ONE, TWO])
        await wait_until_async(lambda: bench.upstream.waiting == 2)
        first = bench.workers.take_changes()
        assert {each: state.delivered for each, state in first.items()} == {"1": 1, "2": 0}
        assert bench.workers.take_changes() == {}

        bench.workers.put_back(first)
        assert bench.workers.take_changes() == first

        bench.upstream.append()
        await wait_until_async(lambda: bench.upstream.position() == 2)
        assert [state.delivered for state in bench.workers.take_changes().values()] == [2]


async def test_what_drains_is_not_told_of_as_what_follows_it() -> None:
    async with working(1, closed()) as bench:
        await bench.follow_in_flight(ONE)
        bench.workers.follow([replace(ONE, ack_deadline_seconds=3)])

        assert bench.workers.take_changes() == {}


async def test_subscriptions_without_an_identity_are_told_of_by_path_only() -> None:
    async with working(1) as bench:
        bench.workers.follow([target()])
        await wait_until_async(lambda: bench.upstream.position() == 1)

        assert bench.workers.take_changes() == {}
        assert bench.workers.held() == set()
        assert [state.delivered for state in bench.workers.states().values()] == [1]


async def test_one_that_fails_costs_the_others_nothing() -> None:
    bad = replace(TWO, config=replace(TWO.config, endpoint="https://bad.example/"))
    sender = ScriptedSender(then=lambda sent: EndpointAnswer(500 if "bad" in sent.url else 200, ""))
    async with working(20, sender) as bench:
        bench.naps.hold.clear()
        bench.upstream.append(OTHER)
        bench.workers.activate(bad)
        bench.workers.activate(ONE)
        await wait_until_async(lambda: bench.upstream.position() == 20)
        states = bench.workers.states()

    assert {path: state.phase for path, state in states.items()} == {PATH: ACTIVE, OTHER: RETRYING}


PATHS = [f"/projects/P/subscriptions/{name}" for name in "abc"]


class Watching(ScriptedSender):
    """Notes how many requests of a path, and of an identity, are in flight at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Counter[str] = Counter()
        self.most_of_one = 0

    async def send(self, url: str, headers: Headers, body: bytes, **more: Any) -> EndpointAnswer:
        keys = [url.rpartition("/")[2], dict(headers)["webhook-id"].split(".")[1]]
        self.now.update(keys)
        self.most_of_one = max(self.most_of_one, *self.now.values())
        try:
            return await super().send(url, headers, body, **more)
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
        bench = Bench(MemoryUpstream(), Watching())
        upstream, sender, workers = bench.upstream, bench.sender, bench.workers
        for path in PATHS:
            upstream.append(path, 40)
        for targets, answers, turns in steps:
            workers.follow(targets)
            (sender.open.set if answers else sender.open.clear)()
            for _ in range(turns):
                await asyncio.sleep(0)
        sender.open.set()
        last = steps[-1][0]

        await wait_until_async(lambda: workers.held() == {each.id for each in last})
        await wait_until_async(lambda: all(upstream.position(each.path) == 40 for each in last))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await workers.stop()

        assert sender.most_of_one <= 1
        assert not workers.paths()
        assert not workers.held()

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3)), max_size=20))
def test_activating_and_deactivating_at_any_time_leaves_what_was_activated_last(
    steps: list[tuple[bool, int, int]],
) -> None:
    async def run() -> None:
        bench = Bench(MemoryUpstream(), Watching())
        upstream, sender, workers = bench.upstream, bench.sender, bench.workers
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

        await wait_until_async(lambda: workers.paths() == active)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await workers.stop()
        assert sender.most_of_one <= 1

    asyncio.run(run())
