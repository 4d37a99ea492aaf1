"""The cycle of a parallel subscription: several deliveries in flight, and each message's end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.push_config import EXPONENTIAL, GoogleForm
from ams.push.report import ACKNOWLEDGE, ACTIVE, CONSUME, PARALLEL_ELSEWHERE, STOPPED
from ams.push.sender import CircuitOpen, EndpointAnswer, SendFailed
from ams.push.upstream import Away, NotTaken, Pulled, PushHandOut, Target, UpstreamError, Verdict
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.hand_out_ids import RestartGrace
from ams.service.parallel.message_state import RetryRules
from ams.storage.cursors.acks import AckProgress
from tests.push.keepers import (
    OK_ANSWER,
    Bench,
    MemoryUpstream,
    ScriptedSender,
    Sent,
    at_work,
    make_closed_sender,
    make_pulled,
    refuse_messages,
    target,
    wait_until_idle,
    wait_until_napping,
)
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until_async

NO_KEY: Callable[[int], str] = lambda _: ""  # noqa: E731


class BacklogHandOuts:
    def __init__(
        self, messages: int, clock: ManualClock, key: Callable[[int], str] = NO_KEY, *, attempts: int = 0
    ) -> None:
        self.key, self.clock = key, clock
        self.messages = messages
        rules = RetryRules(most_attempts=attempts)
        progress = AckProgress(Offset(0), 1, 1, BitMap64(), {}, None)
        grace = RestartGrace(1, Offset(0), Milliseconds(0), Milliseconds(0))
        self.backlog = Backlog(progress, "abcdef", rules, grace)
        self.dead: dict[int, Verdict] = {}
        self.waits: list[int] = []  # backoffs of failed messages
        self.failing: dict[str, list[UpstreamError]] = {"lease": [], "acknowledge": []}  # errors of the next calls
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Return whether a worker waits for messages that may never come."""
        return self._waiting > 0 and not self._changed.is_set()

    def append(self, count: int = 1) -> None:
        self.messages += count
        self._changed.set()

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:
        if self.failing["lease"]:
            raise self.failing["lease"].pop(0)
        self._note_stored(self.backlog.expire(self.clock.monotonic()))
        offsets = self.backlog.ready_messages(max_messages)
        offsets += self._new(max_messages - len(offsets))
        by_attempt: dict[int, list[Offset]] = {}
        for each in offsets:
            by_attempt.setdefault(self.backlog.failures.attempt_of(each), []).append(each)
        return [self._give_offsets(attempt, group) for attempt, group in by_attempt.items()]

    def _new(self, most: int) -> list[Offset]:
        found: list[Offset] = []
        while self.backlog.done.scan < self.messages and len(found) < most:
            offset = self.backlog.done.scan
            self.backlog.done.note_scanned(Offset(offset + 1))
            if self.backlog.may_give(offset, self.key(offset), self.clock.monotonic()):
                found.append(offset)
        return found

    def _give_offsets(self, attempt: int, offsets: list[Offset]) -> PushHandOut:
        deadline = Milliseconds(self.clock.monotonic() + 10_000)
        text = self.backlog.give(offsets, attempt, 10 * len(offsets), deadline, "push")
        return PushHandOut(text, attempt, [self.message(each) for each in offsets])

    def message(self, offset: int) -> Pulled:
        return make_pulled(offset, key=self.key(offset))

    async def wait(self, target: Target) -> None:
        await asyncio.sleep(0)
        if self.backlog.has_ready or self.backlog.done.scan < self.messages:
            return
        due = self.backlog.leases.next_due()
        if due is not None and not self.backlog.out:
            self.clock.advance(max(due - self.clock.monotonic(), 0))
            return
        self._changed.clear()
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    async def extend(self, target: Target, hand_out: PushHandOut, seconds: int) -> None:
        now = self.clock.monotonic()
        _check_taken(self.backlog.extend(_ids(hand_out), Milliseconds(now + 1000 * seconds), now))

    async def acknowledge(self, target: Target, hand_out: PushHandOut) -> None:
        await asyncio.sleep(0)
        if self.failing["acknowledge"]:
            raise self.failing["acknowledge"].pop(0)
        settling = self.backlog.acknowledge(_ids(hand_out), self.clock.monotonic())
        self._note_stored(settling)
        _check_taken(settling.late)

    async def fail(self, target: Target, hand_out: PushHandOut, wait: Milliseconds, verdict: Verdict) -> None:
        self.waits.append(wait)
        settling = self.backlog.nack(_ids(hand_out), self.clock.monotonic(), wait)
        self._note_stored(settling)
        for each in self.backlog.failures.dead:
            self.dead[each] = verdict
            self._note_stored(self.backlog.put_aside(each))
        self.backlog.failures.dead = []
        _check_taken(settling.late)

    def release(self, target: Target, hand_out: PushHandOut) -> None:
        self.backlog.release(_ids(hand_out), self.clock.monotonic())
        self._changed.set()

    def failures(self) -> dict[int, int]:
        return {each: count for each in range(self.messages) if (count := self.backlog.failures.counts[Offset(each)])}

    def _note_stored(self, settling: Settling) -> None:
        self.backlog.note_stored(settling, self.clock.monotonic())
        self._changed.set()


def _ids(hand_out: PushHandOut) -> dict[str, list[Offset]]:
    return {hand_out.text: [Offset(each.offset) for each in hand_out.messages]}


def _check_taken(late: Sequence[object]) -> None:
    if late:
        raise NotTaken("ack timeout")


SEND_REFUSED = SendFailed("refused")


class LeasingBench(Bench):
    def __init__(self, messages: int, sender: ScriptedSender, key: Callable[[int], str], attempts: int) -> None:
        super().__init__(MemoryUpstream(), sender)
        self.upstream.leasing = self.hand_outs = BacklogHandOuts(messages, self.clock, key, attempts=attempts)

    async def idle(self) -> None:
        await wait_until_async(lambda: self.hand_outs.is_idle and not self.state.outstanding)

    @property
    def floor(self) -> int:
        """Return the offset below which everything is acknowledged."""
        return self.hand_outs.backlog.done.floor


@contextlib.asynccontextmanager
async def run_worker(messages: int, sender: ScriptedSender | None = None, *, key: Callable[[int], str] = NO_KEY,
                     attempts: int = 0, **config: Any) -> AsyncIterator[LeasingBench]:  # fmt: skip
    bench = LeasingBench(messages, sender or ScriptedSender(), key, attempts)
    async with at_work(bench, target(parallel=True, **config)):
        yield bench


@contextlib.asynccontextmanager
async def hold_answers(count: int, messages: int, sender: ScriptedSender, **config: Any) -> AsyncIterator[LeasingBench]:
    """Let a worker deliver to an endpoint that holds back so many answers."""
    async with run_worker(messages, sender, **config) as bench:
        await wait_until_async(lambda: sender.in_flight == count)
        yield bench


def attempts_of(sender: ScriptedSender, offset: int) -> list[str]:
    return [sent.headers["ams-delivery-attempt"] for sent in sender.sent if offset in sent.ids]


@pytest.mark.parametrize(("config", "most"), [({"max_outstanding": 7}, 7), ({}, 10)], ids=["as said", "unsaid"])
async def test_as_many_deliveries_are_under_way_as_may_be(config: dict[str, int], most: int) -> None:
    async with hold_answers(most, 20, make_closed_sender(), **config) as bench:
        assert bench.state.outstanding == most
        bench.sender.open.set()
        await bench.idle()

        assert bench.sender.most_in_flight == most
        assert bench.floor == 20
        state = bench.state
    assert (state.phase, state.delivered, state.deliveries, state.outstanding) == (ACTIVE, 20, 20, 0)


async def test_a_message_that_is_refused_comes_again_by_itself_and_the_others_go_on() -> None:
    answers = iter([EndpointAnswer(422, "bad"), EndpointAnswer(500, "bad")])
    sender = ScriptedSender(then=lambda sent: next(answers, OK_ANSWER) if sent.ids == [3] else OK_ANSWER)
    async with wait_until_idle(run_worker(10, sender, retry_period=1000)) as bench:
        assert bench.floor == 10
        assert attempts_of(sender, 3) == ["1", "2", "3"]
        assert bench.hand_outs.waits == [1000, 2000]  # linear, by the message's own failures
        assert bench.naps.taken == []
        assert bench.worker.state().failed == 2


async def test_a_message_that_failed_as_often_as_it_may_is_put_aside_with_the_words_of_the_endpoint() -> None:
    async with wait_until_idle(run_worker(10, ScriptedSender(then=refuse_messages(3)), attempts=5)) as bench:
        assert bench.floor == 10
        assert bench.hand_outs.dead == {3: Verdict("bad", 5, 422)}


async def test_of_a_delivery_that_is_refused_only_the_message_that_is_meant_fails() -> None:
    async with wait_until_idle(
        run_worker(64, ScriptedSender(then=refuse_messages(37)), attempts=5, max_messages=64, max_outstanding=2)
    ) as bench:
        assert bench.floor == 64
        assert list(bench.hand_outs.dead) == [37]
        assert bench.hand_outs.failures() == {}
        for each in (36, 38):
            assert set(attempts_of(bench.sender, each)) == {"1"}
        assert len(bench.sender.sent) < 64


@pytest.mark.parametrize("trouble", [SEND_REFUSED, EndpointAnswer(503, "later"), EndpointAnswer(408, "")])
async def test_when_the_endpoint_fails_no_message_does_and_all_wait_once(trouble: Any) -> None:
    async with hold_answers(6, 20, make_closed_sender(*[trouble] * 6), max_outstanding=6, retry_period=1000) as bench:
        bench.sender.open.set()
        await bench.idle()

        assert bench.floor == 20
        assert bench.hand_outs.waits == []
        assert bench.naps.taken == [1]
        assert {attempt for each in range(20) for attempt in attempts_of(bench.sender, each)} == {"1"}


async def test_after_the_endpoint_failed_one_delivery_finds_out_whether_it_is_back() -> None:
    async with hold_answers(6, 20, make_closed_sender(*[SEND_REFUSED] * 6), max_outstanding=6) as bench:
        bench.naps.hold.clear()
        bench.sender.open.set()
        await wait_until_async(lambda: bench.naps.taken and bench.sender.in_flight == 0)
        bench.sender.open.clear()
        bench.naps.hold.set()
        await wait_until_async(lambda: bench.sender.in_flight)
        for _ in range(20):
            await bench.hand_outs.wait(target())
        assert bench.sender.in_flight == 1
        bench.sender.open.set()
        await bench.idle()
        assert bench.floor == 20


@pytest.mark.parametrize(("answers", "naps", "failed"), [
    ([SEND_REFUSED] * 3, [3.0, 6.0, 9.0], 3),
    ([EndpointAnswer(503, "", 30.0)], [32.25], 1),
    ([CircuitOpen(4.0)], [4.3], 0),
], ids=["again and again", "Retry-After", "left alone"])  # fmt: skip
async def test_an_endpoint_is_asked_again_when_it_may_be(answers: list[Any], naps: list[float], failed: int) -> None:
    async with wait_until_idle(run_worker(20, ScriptedSender(*answers), max_outstanding=1)) as bench:
        assert bench.naps.taken == pytest.approx(naps)
        assert bench.state.failed == failed
        assert bench.floor == 20


async def test_when_nothing_but_refusals_comes_the_endpoint_is_taken_for_failing() -> None:
    sender = ScriptedSender(*[EndpointAnswer(401, "who are you")] * 5)
    async with wait_until_idle(run_worker(20, sender, max_outstanding=5, retry_period=1000)) as bench:
        assert bench.naps.taken == [1]
        assert bench.floor == 20
        assert len(bench.hand_outs.waits) == 5


async def test_an_endpoint_that_is_gone_gets_nothing_more_and_no_message_fails() -> None:
    async with run_worker(20, ScriptedSender(EndpointAnswer(410, "gone")), max_outstanding=1) as bench:
        await wait_until_async(lambda: bench.state.phase == STOPPED)

        assert len(bench.sender.sent) == 1
        assert bench.floor == bench.hand_outs.backlog.out == 0
        assert bench.hand_outs.failures() == {}


async def test_what_is_under_way_is_finished_at_the_end() -> None:
    async with hold_answers(4, 20, make_closed_sender(), max_outstanding=4) as bench:
        asyncio.get_running_loop().call_later(0.01, bench.sender.open.set)
        await bench.drain(5)

        assert len(bench.sender.sent) == bench.floor == 4
        assert bench.hand_outs.backlog.out == 0


async def test_what_takes_too_long_at_the_end_is_cut_off_and_given_back() -> None:
    async with hold_answers(4, 20, make_closed_sender(), max_outstanding=4) as bench:
        await bench.drain(0.01)

        assert bench.sender.in_flight == bench.hand_outs.backlog.out == 0
        assert bench.hand_outs.failures() == {}


async def test_a_pause_is_over_at_the_end() -> None:
    async with wait_until_napping(
        run_worker(20, ScriptedSender(SEND_REFUSED, SEND_REFUSED), max_outstanding=2)
    ) as bench:
        await bench.drain(5)

        assert bench.hand_outs.backlog.out == 0


async def test_what_could_not_be_acknowledged_comes_again_without_a_failure() -> None:
    async with run_worker(3, max_outstanding=1) as bench:
        bench.hand_outs.failing["acknowledge"] = [Away("the disk is full")]
        await wait_until_async(lambda: bench.state.last_failure)
        await bench.idle()

        assert (bench.last_failure.what, bench.last_failure.detail) == (ACKNOWLEDGE, "the disk is full")
        assert bench.floor == 3
        assert attempts_of(bench.sender, 0) == ["1", "1"]


async def test_what_cannot_be_leased_is_asked_for_again_after_a_wait() -> None:
    async with run_worker(2) as bench:
        bench.hand_outs.failing["lease"] = [Away("no connection")]
        await bench.idle()

        assert bench.last_failure.what == CONSUME
        assert bench.floor == 2
        assert len(bench.naps.taken) == 1


async def test_a_lease_that_ended_meanwhile_is_told_as_late_and_the_message_comes_again() -> None:
    async with hold_answers(1, 1, make_closed_sender()) as bench:
        bench.clock.advance(60_000)
        bench.sender.open.set()
        await wait_until_async(lambda: bench.state.late == 1)
        bench.hand_outs.append(0)
        await wait_until_async(lambda: bench.floor == 1)


async def test_leases_outlive_deliveries() -> None:
    async with hold_answers(1, 1, make_closed_sender()) as bench:
        bench.clock.advance(30_000)
        bench.sender.open.set()
        await bench.idle()

        assert bench.floor == 1
        assert bench.state.late == 0


@pytest.mark.parametrize("answer", [OK_ANSWER, EndpointAnswer(422, "bad")])
async def test_after_the_end_of_the_lease_nothing_is_sent_nor_settled(answer: EndpointAnswer) -> None:
    async with hold_answers(2, 3, make_closed_sender(answer, answer), max_outstanding=2, attempts=5) as bench:
        bench.naps.hold.clear()
        bench.is_leased = False
        bench.sender.open.set()
        await wait_until_async(lambda: not bench.state.outstanding)

        assert (bench.floor, bench.hand_outs.dead, bench.hand_outs.failures()) == (0, {}, {})
        assert len(bench.sender.sent) == 2


async def test_a_defect_ends_nothing() -> None:
    async with wait_until_idle(run_worker(3, ScriptedSender(ValueError("a defect")))) as bench:
        assert bench.floor == 3


async def test_what_cannot_lease_says_so() -> None:
    async with at_work(Bench(MemoryUpstream(), ScriptedSender()), target(parallel=True)) as bench:
        state = bench.state

    assert state.phase == STOPPED
    assert state.failure is not None
    assert state.failure.detail == PARALLEL_ELSEWHERE


ANSWERS = st.sampled_from(
    [OK_ANSWER, OK_ANSWER, OK_ANSWER, EndpointAnswer(422, "bad"), EndpointAnswer(503, ""), SendFailed("reset")]
)


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=30),
    answers=st.lists(ANSWERS, max_size=40), outstanding=st.integers(1, 8), most=st.integers(1, 9),
)  # fmt: skip
async def test_of_a_key_one_message_is_under_way_in_order_whatever_the_endpoint_does(
    keys: list[str], answers: list[EndpointAnswer | Exception], outstanding: int, most: int
) -> None:
    sender = KeyedSender(keys, answers)
    config = {"max_outstanding": outstanding, "max_messages": most, "retry_policy": EXPONENTIAL}
    async with wait_until_idle(run_worker(len(keys), sender, key=keys.__getitem__, **config)) as bench:
        assert bench.floor == len(keys)

    assert sender.most_in_flight <= outstanding
    for key in {*keys} - {""}:
        accepted = [each for each in sender.accepted if keys[each] == key]
        assert accepted == [each for each, of in enumerate(keys) if of == key]


class KeyedSender(ScriptedSender):
    def __init__(self, keys: list[str], answers: list[EndpointAnswer | Exception]) -> None:
        super().__init__(*answers)
        self.keys = keys
        self.accepted: list[int] = []
        self.open_keys: list[str] = []

    async def send(self, url: str, headers: Any, body: bytes, *, seconds: float, at_once: int = 0) -> EndpointAnswer:
        ids = Sent(url, dict(headers), body, seconds).ids
        keys = [self.keys[each] for each in ids if self.keys[each]]
        self.open_keys += keys
        assert len(set(self.open_keys)) == len(self.open_keys), "two messages of a key are under way"
        try:
            answer = await super().send(url, headers, body, seconds=seconds, at_once=at_once)
        finally:
            for each in keys:
                self.open_keys.remove(each)
        if answer is OK_ANSWER:
            self.accepted += ids
        return answer


# In Google's format


@pytest.mark.parametrize(
    "trouble", [SEND_REFUSED, *(EndpointAnswer(status, "no") for status in (203, 301, 408, 410, 429, 500, 503))]
)
async def test_in_googles_form_whatever_is_no_success_is_a_nack(trouble: Any) -> None:
    sender = ScriptedSender(*[trouble] * 5)
    async with run_worker(1, sender, attempts=5, google=GoogleForm()) as bench:
        await wait_until_async(lambda: bench.floor == 1)

        assert bench.hand_outs.dead[0].attempts == 5
        assert len(sender.sent) == 5
        assert bench.worker.state().phase != STOPPED


async def test_in_googles_form_each_message_is_sent_whatever_max_messages_an_import_brought() -> None:
    sender = ScriptedSender()
    async with run_worker(20, sender, google=GoogleForm(), max_messages=10) as bench:
        await bench.idle()

        assert bench.floor == 20
        assert len(sender.sent) == 20


async def test_in_googles_form_nothing_fails_that_was_not_sent() -> None:
    sender = ScriptedSender(CircuitOpen(1), CircuitOpen(1))
    async with run_worker(1, sender, attempts=5, google=GoogleForm()) as bench:
        await wait_until_async(lambda: bench.floor == 1)

        assert bench.hand_outs.failures() == {}
        assert bench.hand_outs.dead == {}
