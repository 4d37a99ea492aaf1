"""The table of workers: starts, replacements and ends, by leases too, and their metrics."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from ams.cluster import leases
from ams.cluster.leases import Heartbeat
from ams.core.telemetry import metrics_of
from ams.push import lease_holder, report
from ams.push.lease_holder import Holding, LeaseReply
from ams.push.report import ACKNOWLEDGE, CONSUME, RETRYING, SEND, DeliveryTally
from ams.push.sender import EndpointAnswer, Headers
from ams.push.upstream import Gone, Pulled, Target
from ams.push.workers import LEASE_OVER, Workers
from ams.wire.push import Attempt, Failure, WorkerState
from tests.push.keepers import PATH, MemoryUpstream, Naps, ScriptedSender, make_closed_sender, target
from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_SECONDS, some_turns, wait_until_async

OTHER_PATH = "/projects/P/subscriptions/other"
TARGET_1 = target(identity="1")
TARGET_2 = target(OTHER_PATH, identity="2")


class Bench:
    def __init__(self, upstream: MemoryUpstream, sender: Any) -> None:
        self.upstream, self.sender = upstream, sender
        self.naps = Naps(ManualClock())
        self.workers = Workers(upstream, sender, self.naps.clock, lambda: 0.5, sleep=self.naps)

    async def follow_in_flight(self, *targets: Target) -> None:
        self.workers.follow(targets)
        await wait_until_async(lambda: self.sender.in_flight == len(targets))


@contextlib.asynccontextmanager
async def run_workers(
    messages: int = 0, sender: ScriptedSender | None = None, upstream: MemoryUpstream | None = None
) -> AsyncIterator[Bench]:
    bench = Bench(upstream or MemoryUpstream(messages), sender or ScriptedSender())
    try:
        yield bench
    finally:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bench.workers.stop(0)


async def test_what_is_wanted_is_delivered_and_what_is_wanted_no_more_is_not() -> None:
    async with run_workers(1) as bench:
        bench.workers.follow([TARGET_1, TARGET_2])
        await wait_until_async(lambda: bench.upstream.waiting == 2)
        assert bench.workers.held_subscriptions() == {"1", "2"}

        bench.workers.follow([TARGET_2])
        await wait_until_async(lambda: bench.workers.paths() == {OTHER_PATH})

        assert bench.upstream.forgotten == [PATH]

    assert bench.upstream.acknowledged == [0]
    assert bench.upstream.waiting == 0


async def test_following_the_same_again_changes_nothing() -> None:
    async with run_workers() as bench:
        bench.workers.follow([TARGET_1])
        await wait_until_async(lambda: bench.upstream.waiting)
        for _ in range(3):
            bench.workers.follow([replace(TARGET_1)])
            await some_turns()

        assert len(bench.upstream.pulls) == 1


async def test_a_target_that_changed_is_delivered_anew_after_what_was_in_flight() -> None:
    """P8: a change of the configuration makes no duplicates."""
    async with run_workers(2, make_closed_sender()) as bench:
        await bench.follow_in_flight(TARGET_1)
        bench.workers.follow([replace(TARGET_1, config=replace(TARGET_1.config, endpoint="https://new.example/"))])
        await some_turns()
        assert len(bench.sender.sent) == 1
        assert bench.workers.state(PATH) == WorkerState()

        bench.sender.open.set()
        await wait_until_async(lambda: bench.upstream.position() == 2)

    assert [(sent.url, sent.ids) for sent in bench.sender.sent] == [
        (TARGET_1.config.endpoint, [0]), ("https://new.example/", [1]),
    ]  # fmt: skip
    assert bench.sender.most_in_flight == 1


async def test_what_is_finished_still_is_held() -> None:
    """P16: nobody else may have it yet."""
    async with run_workers(1, make_closed_sender()) as bench:
        await bench.follow_in_flight(TARGET_1)
        bench.workers.follow([])

        assert bench.workers.held_subscriptions() == {"1"}
        assert bench.workers.state(PATH) is None
        bench.sender.open.set()
        await wait_until_async(lambda: not bench.workers.held_subscriptions())


async def test_p6_a_late_end_of_a_worker_does_not_end_the_next_one_of_its_path() -> None:

    class LateUpstream(MemoryUpstream):
        async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
            try:
                return await super().pull(target, max_messages=max_messages, max_bytes=max_bytes)
            except asyncio.CancelledError:
                if target.id == TARGET_1.id:  # the answer comes when nobody waits for it any more
                    raise Gone("Subscription doesn't exist") from None
                raise

    async with run_workers(upstream=LateUpstream()) as bench:
        bench.workers.follow([TARGET_1])
        await wait_until_async(lambda: bench.upstream.waiting)
        bench.workers.follow([replace(TARGET_1, id="new")])
        await wait_until_async(lambda: bench.workers.held_subscriptions() == {"new"})
        await some_turns()

        assert bench.workers.held_subscriptions() == {"new"}
        assert bench.workers.paths() == {PATH}
        assert bench.workers.state(PATH) is not None


async def test_a_subscription_that_is_gone_is_forgotten_until_it_is_wanted_again() -> None:
    async with run_workers(1) as bench:
        bench.upstream.failing["pull"] = [Gone("Subscription doesn't exist")]
        bench.workers.activate(TARGET_1)
        await wait_until_async(lambda: not bench.workers.paths())
        assert bench.workers.state(PATH) is None
        assert bench.workers.held_subscriptions() == set()

        bench.workers.follow([TARGET_1])
        await wait_until_async(lambda: bench.upstream.position() == 1)


async def test_p14_first_pulls_of_many_are_spread_over_a_second_at_most_and_a_single_one_begins_at_once() -> None:
    async with run_workers() as bench:
        bench.workers.follow([TARGET_1])
        await wait_until_async(lambda: bench.upstream.waiting)
        assert bench.naps.taken == []

        bench.workers.follow([target(f"/projects/P/subscriptions/{number}") for number in range(1000)])
        await wait_until_async(lambda: bench.upstream.waiting == 1000)

        assert bench.naps.taken == [0.5] * 1000


async def test_p8_stopping_finishes_what_is_in_flight_of_all() -> None:
    async with run_workers(2, make_closed_sender()) as bench:
        bench.upstream.append(OTHER_PATH)
        await bench.follow_in_flight(TARGET_1, TARGET_2)
        asyncio.get_running_loop().call_later(0.01, bench.sender.open.set)
        await bench.workers.stop(5)

        assert bench.upstream.positions == {PATH: 1, OTHER_PATH: 1}
        assert not bench.workers.paths()


async def test_stopping_shortens_what_drains_already() -> None:
    async with run_workers(1, make_closed_sender()) as bench:
        await bench.follow_in_flight(TARGET_1)
        bench.workers.follow([])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bench.workers.stop(0.01)

        assert not bench.workers.held_subscriptions()
        assert bench.upstream.acknowledged == []


async def test_changes_are_taken_once_and_put_back_when_they_were_lost() -> None:
    async with run_workers(1) as bench:
        bench.workers.follow([TARGET_1, TARGET_2])
        await wait_until_async(lambda: bench.upstream.waiting == 2)
        first = bench.workers.take_changes()
        assert {each: state.delivered for each, state in first.items()} == {"1": 1, "2": 0}
        assert bench.workers.take_changes() == {}

        bench.workers.put_back(first)
        assert bench.workers.take_changes() == first

        bench.upstream.append()
        await wait_until_async(lambda: bench.upstream.position() == 2)
        assert [state.delivered for state in bench.workers.take_changes().values()] == [2]


async def test_subscriptions_without_an_identity_are_told_of_by_path_only() -> None:
    async with run_workers(1) as bench:
        bench.workers.follow([target()])
        await wait_until_async(lambda: bench.upstream.position() == 1)

        assert bench.workers.take_changes() == {}
        assert bench.workers.held_subscriptions() == set()
        assert [state.delivered for state in bench.workers.states().values()] == [1]


PATHS = [f"/projects/P/subscriptions/{name}" for name in "abc"]


class WatchingSender(ScriptedSender):
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


def make_target(path: int, identity: int, variant: int) -> Target:
    return target(PATHS[path], identity=f"id{identity}", deadline=variant, endpoint=f"https://r.example/id{identity}")


SETS = st.lists(st.builds(make_target, st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), max_size=3,
                unique_by=(lambda each: each.path, lambda each: each.id))  # fmt: skip
STEPS = st.lists(st.tuples(SETS, st.booleans(), st.integers(0, 4)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_every_wanted_subscription_is_delivered_by_one_worker(steps: list[tuple[list[Target], bool, int]]) -> None:
    async def run_steps() -> None:
        bench = Bench(MemoryUpstream(), WatchingSender())
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

        await wait_until_async(lambda: workers.held_subscriptions() == {each.id for each in last})
        await wait_until_async(lambda: all(upstream.position(each.path) == 40 for each in last))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await workers.stop()

        assert sender.most_of_one <= 1
        assert not workers.paths()
        assert not workers.held_subscriptions()

    asyncio.run(run_steps())


# Leases: a process that was frozen while another may have got its subscriptions

LEASE_SECONDS = 60.0


class LeasedWorkers:
    """Workers that deliver one subscription by leases, which are granted as long as `gives` is set."""

    def __init__(self, messages: int) -> None:
        self.upstream, self.sender = MemoryUpstream(messages), make_closed_sender()
        self.workers = Workers(self.upstream, self.sender, ManualClock(), lambda: 0.5)
        self.gives = asyncio.Event()
        self.gives.set()
        self.heartbeats: list[Heartbeat] = []
        self.holding = Holding(self.workers, self.ask, random.Random(1))

    async def heartbeat(self, count: int = 1) -> None:
        """Wait for so many more heartbeats."""
        wanted = len(self.heartbeats) + count
        await wait_until_async(lambda: len(self.heartbeats) >= wanted)

    async def ask(self, heartbeat: Heartbeat) -> LeaseReply:
        self.heartbeats.append(heartbeat)
        await self.gives.wait()
        return LeaseReply([TARGET_1], lease_seconds=LEASE_SECONDS, heartbeat_seconds=0.05)


@contextlib.asynccontextmanager
async def hold_workers(messages: int) -> AsyncIterator[LeasedWorkers]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lease_holder, "_FINISH_SECONDS", 0.1)
        patched.setattr(leases, "SPARE_SECONDS", 0.05)
        made = LeasedWorkers(messages)
        running = asyncio.create_task(made.holding.run())
        try:
            await wait_until_async(lambda: made.sender.in_flight)
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await made.workers.stop(0)


def stand_still(seconds: float = LEASE_SECONDS + 10) -> None:
    """Advance the clock at once, as for a stopped process or a frozen machine."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]


async def test_who_stood_still_for_longer_than_the_lease_sends_and_acknowledges_nothing() -> None:
    async with hold_workers(2) as push:
        push.sender.open.set()
        push.gives.clear()
        stand_still()
        await push.heartbeat()
        await some_turns()

        assert push.upstream.acknowledged == []
        assert [sent.ids for sent in push.sender.sent] == [[0]]
        assert push.heartbeats[-1].held == frozenset()

        push.gives.set()
        await wait_until_async(lambda: push.upstream.acknowledged == [0, 1])


async def test_an_answer_that_is_older_than_its_lease_gives_nothing() -> None:
    async with hold_workers(1) as push:
        push.gives.clear()
        heartbeats = len(push.heartbeats)
        await wait_until_async(lambda: len(push.heartbeats) > heartbeats)
        push.gives.set()
        push.sender.open.set()
        stand_still()
        await wait_until_async(lambda: len(push.heartbeats) > heartbeats + 1)

        assert push.heartbeats[heartbeats + 1].held == frozenset()
        await wait_until_async(lambda: push.upstream.acknowledged == [0])


async def test_a_lease_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer may be late, and other processes count from the time of the grant."""
    async with hold_workers(1) as push:
        ends: list[float | None] = []
        monkeypatch.setattr(push.workers, "hold_until", ends.append)
        push.gives.clear()
        push.holding.wake()
        await push.heartbeat()
        asked = asyncio.get_running_loop().time()
        stand_still(1)
        push.gives.set()
        await wait_until_async(lambda: ends)

        assert ends[0] is not None
        assert ends[0] < asked + 60


async def test_a_lease_that_goes_on_is_delivered_by() -> None:
    async with hold_workers(3) as push:
        push.sender.open.set()
        await wait_until_async(lambda: push.upstream.acknowledged == [0, 1, 2])
        for _ in range(3):
            stand_still(LEASE_SECONDS / 2)
            await push.heartbeat(2)
        push.upstream.append()
        await wait_until_async(lambda: push.upstream.position() == 4)


# The upstream's calls after its lease has ended


def loop_seconds() -> float:
    return asyncio.get_running_loop().time()


async def fail_after_lease(bench: Bench, what: str) -> None:
    """Let a worker find out that the lease is over, by the step that it takes next."""
    bench.naps.hold.clear()

    def failure() -> Failure | None:
        state = bench.workers.state(PATH)
        return state.failure if state else None

    found = await wait_until_async(failure)
    assert found is not None
    assert (found.what, found.detail) == (what, LEASE_OVER)


async def test_what_came_after_the_end_of_the_lease_is_not_sent() -> None:
    async with run_workers() as bench:
        bench.workers.hold_until(loop_seconds() + 60)
        bench.workers.follow([TARGET_1])
        await wait_until_async(lambda: bench.upstream.waiting)

        bench.workers.hold_until(loop_seconds())
        bench.upstream.append()

        await fail_after_lease(bench, CONSUME)
        assert bench.sender.sent == []


@pytest.mark.parametrize("answer", [EndpointAnswer(200, ""), EndpointAnswer(422, "bad")])
async def test_after_the_end_of_the_lease_nothing_is_acknowledged_nor_put_aside(answer: EndpointAnswer) -> None:
    async with run_workers(1, make_closed_sender(answer)) as bench:
        await bench.follow_in_flight(target(identity="1", dead_letter_topic="L", max_delivery_attempts=1))

        bench.workers.hold_until(loop_seconds())
        bench.sender.open.set()

        await fail_after_lease(bench, ACKNOWLEDGE)
        assert (bench.upstream.acknowledged, bench.upstream.dead_lettered) == ([], [])


# Metrics, as Prometheus reads them

S, R = "/projects/P/subscriptions/S", "/projects/P/subscriptions/R"
STATES = {S: WorkerState(last_success=1_700_000_000_500),
          R: WorkerState(phase=RETRYING, last_failure=Failure(1_700_000_001_000, SEND, "no"))}  # fmt: skip


def show_reports(tally: DeliveryTally) -> str:
    of_s, of_r = report.WorkerReport(S, tally), report.WorkerReport(R, tally)
    of_s.note_attempt(Attempt(0, 3, 200, 250, 100))
    of_r.note_attempt(Attempt(0, 1, 500, 750, 100, "HTTP 500"))
    of_s.record_delivery(3, 0, 0)
    of_r.dead_lettered()
    of_r.late(Failure(0, SEND, "late"))
    gauges, counters = report.gauges(STATES, by_path=tally.by_path), report.counters(tally)
    source: Any = SimpleNamespace(gauges=lambda: gauges, counters=lambda: counters)
    return generate_latest(metrics_of(source)).decode()


def test_all_subscriptions_together_are_told_by_default() -> None:
    text = show_reports(DeliveryTally())

    for line in (
        'ams_push_subscriptions{state="active"} 1.0', 'ams_push_subscriptions{state="retrying"} 1.0',
        'ams_push_subscriptions{state="stopped"} 0.0', "ams_push_delivered_messages_total 3.0",
        "ams_push_dead_letters_total 1.0", "ams_push_late_acknowledgements_total 1.0", "ams_push_seconds_total 1.0",
        'ams_push_requests_total{outcome="succeeded"} 1.0', 'ams_push_requests_total{outcome="failed"} 1.0',
    ):  # fmt: skip
        assert line in text.splitlines()
    assert "subscription=" not in text


def test_each_subscription_is_told_apart_where_names_may_be_shown() -> None:
    lines = show_reports(DeliveryTally(by_path=True)).splitlines()

    assert 'ams_push_delivered_messages_total{project="P",subscription="S"} 3.0' in lines
    assert 'ams_push_dead_letters_total{project="P",subscription="R"} 1.0' in lines
    assert 'ams_push_requests_total{outcome="failed",project="P",subscription="R"} 1.0' in lines
    assert 'ams_push_last_success_seconds{project="P",subscription="S"} 1.7000000005e+09' in lines
    assert 'ams_push_last_failure_seconds{project="P",subscription="R"} 1.700000001e+09' in lines
