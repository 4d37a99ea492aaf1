"""The worker: pull, send, acknowledge, and its handling of failures (push contract 8 and 15)."""

import asyncio
import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.core.clock import Milliseconds
from ams.core.push_config import EXPONENTIAL, LINEAR, MATTERMOST, SLOWSTART
from ams.http.routes.push import MAX_STATE_BYTES
from ams.push import worker as worker_module
from ams.push.report import ACKNOWLEDGE, ACTIVE, CONSUME, RETRYING, SEND, STOPPED, WorkerReport, text
from ams.push.retry import MAX_BYTES
from ams.push.sender import CircuitOpen, EndpointAnswer, SendFailed
from ams.push.upstream import Away, Gone, Pulled, UpstreamError, UpstreamRefused
from ams.wire.push import WorkerState
from tests.push.keepers import (
    OK_ANSWER,
    PATH,
    TAKEN_LATE,
    Bench,
    MemoryUpstream,
    ScriptedSender,
    at_work,
    make_closed_sender,
    make_pulled,
    refuse_messages,
    target,
    wait_until_idle,
    wait_until_napping,
)
from tests.support.waiting import some_turns, wait_until_async

HOOK = "https://chat.example/hooks/abcdefghij"
CHAT = {"type": MATTERMOST, "mattermost_url": HOOK}
DEAD_LETTER_CONFIG = {"dead_letter_topic": "dead", "max_delivery_attempts": 3}
ERROR, REFUSED, AWAY = EndpointAnswer(500, ""), SendFailed("refused"), Away("no connection")
EACH_SECOND, SLOW = {"retry_period": 1000}, {"retry_policy": SLOWSTART}


def run_worker(
    messages: MemoryUpstream | int, sender: ScriptedSender | None = None, *, random: float = 0.5,
    failing: dict[str, list[Any]] | None = None, **config: Any,
) -> contextlib.AbstractAsyncContextManager[Bench]:  # fmt: skip
    """Let a worker deliver all messages, or so many of them; `failing` has errors for the upstream's next calls."""
    upstream = MemoryUpstream(messages) if isinstance(messages, int) else messages
    upstream.failing |= failing or {}
    return at_work(Bench(upstream, sender or ScriptedSender()), target(**config), random)


def upstream_of(*messages: Pulled) -> MemoryUpstream:
    upstream = MemoryUpstream()
    upstream.messages[PATH] = list(messages)
    return upstream


# Delivery


async def test_messages_are_delivered_in_order_and_acknowledged() -> None:
    async with wait_until_idle(run_worker(5)) as bench:
        assert [sent.ids for sent in bench.sender.sent] == [[0], [1], [2], [3], [4]]
        assert bench.upstream.acknowledged == [0, 1, 2, 3, 4]
        state = bench.state

    assert (state.phase, state.delivered, state.deliveries, state.failed) == (ACTIVE, 5, 5, 0)
    assert state.last_success == bench.clock.wall()
    assert bench.notes.total.messages == 5


async def test_a_new_message_is_delivered_on_arrival_and_nothing_waits_between_deliveries() -> None:
    """P10: the worker waits in the upstream, not by a timer."""
    async with wait_until_idle(run_worker(3)) as bench:
        bench.upstream.append()
        await wait_until_async(lambda: bench.upstream.position() == 4)

        assert bench.naps.taken == []


async def test_a_worker_holds_a_bounded_number_of_bytes() -> None:
    upstream = upstream_of(*(make_pulled(offset, "aGk=" * 65_536) for offset in range(10)))
    async with wait_until_idle(run_worker(upstream, max_messages=10)) as bench:
        assert len(bench.sender.sent) > 1
        assert max(len(sent.body) for sent in bench.sender.sent) < MAX_BYTES + 1000


@pytest.mark.parametrize(("status", "config", "succeeds"), [
    *((status, {}, True) for status in (102, 200, 201, 202, 204)),
    *((status, {}, False) for status in (203, 205, 206, 301, 302, 307, 400, 401, 404, 500, 503)),
    *((status, CHAT, status == 200) for status in (200, 201, 204)),
])  # fmt: skip
async def test_a_success_acknowledges_and_the_rest_retries(status: int, config: dict[str, Any], succeeds: bool) -> None:
    """P17: redirects among them. Mattermost accepts by 200 only."""
    async with wait_until_idle(run_worker(1, ScriptedSender(EndpointAnswer(status, "no")), **config)) as bench:
        assert [each.status for each in bench.state.attempts] == ([status] if succeeds else [status, 200])
        assert bench.upstream.acknowledged == [0]
        assert bench.state.failure is None


async def test_p12_mattermost_is_sent_one_message_in_each_request_whatever_is_configured() -> None:
    async with wait_until_idle(run_worker(3, max_messages=10, **CHAT)) as bench:
        assert bench.upstream.pulls[:3] == [1, 1, 1]
        assert bench.upstream.acknowledged == [0, 1, 2]
        assert {sent.url for sent in bench.sender.sent} == {HOOK}


async def test_p20_each_delivery_says_how_often_it_was_tried() -> None:
    async with wait_until_idle(run_worker(2, ScriptedSender(ERROR, SendFailed("reset")))) as bench:
        tried = [(sent.headers["webhook-id"], sent.headers["ams-delivery-attempt"]) for sent in bench.sender.sent]
    assert tried == [("P.S.0-0", "1"), ("P.S.0-0", "2"), ("P.S.0-0", "3"), ("P.S.1-1", "1")]


async def test_p13_data_that_could_not_be_decoded_is_counted_when_it_was_delivered() -> None:
    upstream = upstream_of(make_pulled(0, "/w=="), make_pulled(1, "aGk="))
    async with wait_until_idle(run_worker(upstream, ScriptedSender(ERROR), base64_decode=True)) as bench:
        assert bench.state.undecodable == 1


@pytest.mark.parametrize(("messages", "answers", "failing", "most", "sizes"), [
    pytest.param(7, [], {}, 3, [3, 3, 1], id="as many as the configuration allows"),
    pytest.param(1000, [], {}, 10_000, [100, 200, 400, 300], id="more while all goes well"),
    pytest.param(8, [ERROR, ERROR], {}, 8, [8, 4, 2, 4, 2], id="half as many after a failure"),
    pytest.param(4, [], {"acknowledge": [TAKEN_LATE]}, 4, [4, 2, 2], id="half as many after a late acknowledgement"),
])  # fmt: skip
async def test_a_delivery_has_so_many_messages(
    messages: int, answers: list[Any], failing: dict[str, list[Any]], most: int, sizes: list[int]
) -> None:
    async with wait_until_idle(
        run_worker(messages, ScriptedSender(*answers), failing=failing, max_messages=most)
    ) as bench:
        assert [len(sent.ids) for sent in bench.sender.sent] == sizes


@pytest.mark.parametrize(("messages", "answers", "failing", "config", "naps"), [
    pytest.param(1, [REFUSED] * 3, {}, EACH_SECOND, [1, 2, 3], id="as the policy says"),
    # of two messages in a row, so that no empty pull comes between them
    pytest.param(2, [REFUSED, REFUSED, OK_ANSWER, REFUSED], {}, EACH_SECOND, [1, 2, 1], id="anew after a delivery"),
    pytest.param(1, [EndpointAnswer(429, "", 100.0)], {}, {}, [107.5], id="P17: Retry-After with 429"),
    pytest.param(1, [EndpointAnswer(503, "", 100.0)], {}, {}, [107.5], id="P17: Retry-After with 503"),
    pytest.param(1, [EndpointAnswer(500, "", 100.0)], {}, {}, [3.0], id="P17: Retry-After with 500"),
    pytest.param(3, [], {"acknowledge": [TAKEN_LATE, None, TAKEN_LATE, None, TAKEN_LATE]}, {}, [],
                 id="not if late now and then"),
    pytest.param(1, [], {"acknowledge": [TAKEN_LATE] * 3}, EACH_SECOND, [1, 2], id="P15: if late again and again"),
    pytest.param(1, [], {"pull": [AWAY] * 2}, EACH_SECOND, [1, 2], id="as the policy says for a service away"),
    pytest.param(
        1, [ERROR], {"pull": [AWAY] * 12}, SLOW, [2, 4, 8, 16, *[30] * 8, 32], id="half a minute for a service away"
    ),
    pytest.param(
        1, [], {"acknowledge": [AWAY] * 12}, SLOW, [2, 4, 8, 16, 32, 64, 128, 256, 512, *[600] * 3],
        id="ten minutes for acknowledgements that cannot be stored",
    ),
    pytest.param(
        1, [], {"pull": [UpstreamRefused("Push functionality is currently disabled")] * 6},
        {"retry_policy": EXPONENTIAL, "retry_period": 1}, [60, 120, 240, 480, 600, 600],
        id="P21: from a minute to ten for what only a change can repair",
    ),
])  # fmt: skip
async def test_after_a_failure_is_waited_so_long(
    messages: int, answers: list[Any], failing: dict[str, list[Any]], config: dict[str, Any], naps: list[float]
) -> None:
    async with wait_until_idle(run_worker(messages, ScriptedSender(*answers), failing=failing, **config)) as bench:
        assert bench.naps.taken == naps
        assert bench.upstream.position() == messages


@pytest.mark.parametrize(("answers", "failing", "told"), [
    ([ERROR], {}, (SEND, "HTTP 500")), ([], {"pull": [AWAY]}, (CONSUME, "no connection")),
    ([], {"acknowledge": [Away("disk full")]}, (ACKNOWLEDGE, "disk full")),
    ([SendFailed("expired"), CircuitOpen(4.0)], {}, (SEND, "expired")),
], ids=["send", "pull", "acknowledge", "also while the circuit is open"])  # fmt: skip
async def test_failed_messages_come_again(answers: list[Any], failing: dict[str, list[Any]], told: tuple[str, str]):
    async with wait_until_idle(run_worker(1, ScriptedSender(*answers), failing=failing)) as bench:
        assert bench.upstream.acknowledged == [0]
        assert (bench.last_failure.what, bench.last_failure.detail) == told


# Failures of the endpoint


async def test_a_failure_is_told_while_it_lasts_and_known_afterwards() -> None:
    async with wait_until_napping(run_worker(1, ScriptedSender(EndpointAnswer(500, "out of order")))) as bench:
        failing = bench.state
        bench.naps.hold.set()
        await bench.idle()
        after = bench.state

    assert failing.phase == RETRYING
    assert failing.failure is not None
    assert (failing.failure.what, failing.failure.detail, failing.failure.status) == (SEND, "out of order", 500)
    assert failing.next_attempt is not None
    assert text(PATH, failing).endswith(" - Could not send message, out of order")
    assert (after.phase, after.failure, after.last_failure) == (ACTIVE, None, failing.failure)
    assert after.next_attempt is None
    assert text(PATH, after) == f"Subscription {PATH} is currently active"


async def test_an_empty_pull_clears_the_failure_and_the_delays() -> None:
    """P5: the time of the last error stays known."""
    async with wait_until_napping(run_worker(1, ScriptedSender(*[ERROR] * 4), **SLOW)) as bench:
        bench.upstream.positions[PATH] = 1  # as when somebody else moved it
        bench.upstream.empty_pulls = 1
        bench.naps.hold.set()
        await bench.idle()
        state = bench.state
        bench.upstream.append()
        await wait_until_async(lambda: bench.upstream.position() == 2)

    assert (state.phase, state.failure) == (ACTIVE, None)
    assert state.last_failure is not None
    assert bench.naps.taken == [2, 2, 4, 8]


async def test_a_pull_that_finds_nothing_for_long_clears_the_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: an upstream may wait for messages as long as it likes."""
    monkeypatch.setattr(worker_module, "QUIET_SECONDS", 0.01)
    async with run_worker(0, failing={"pull": [AWAY]}) as bench:
        await wait_until_async(lambda: bench.state.last_failure)
        await wait_until_async(lambda: bench.state.phase == ACTIVE)
        bench.upstream.append()
        await wait_until_async(lambda: bench.upstream.position() == 1)


async def test_an_endpoint_that_is_gone_is_never_asked_again_and_the_status_says_so() -> None:
    async with run_worker(5, ScriptedSender(EndpointAnswer(410, ""))) as bench:
        await wait_until_async(lambda: bench.state.phase == STOPPED)
        bench.upstream.append()
        await some_turns()
        state = bench.state

    assert len(bench.sender.sent) == 1
    assert bench.upstream.acknowledged == []
    assert "410" in text(PATH, state)
    assert state.next_attempt is None


@pytest.mark.parametrize(("random", "naps"), [(0.0, [4.0, 8.0]), (1.0, [4.6, 9.2])])
async def test_an_open_circuit_is_waited_for_and_that_is_no_attempt(random: float, naps: list[float]) -> None:
    """P14: each waits a little longer than told, by a random amount."""
    async with run_worker(1, ScriptedSender(CircuitOpen(4.0), CircuitOpen(8.0)), random=random) as bench:
        bench.sender.state = "open"
        await bench.idle()

    assert bench.naps.taken == pytest.approx(naps)
    assert [attempt.status for attempt in bench.state.attempts] == [200]
    assert bench.sender.sent[-1].headers["ams-delivery-attempt"] == "1"
    assert bench.state.circuit == "open"
    assert "left alone" in bench.last_failure.detail


async def test_an_endpoint_that_repeats_what_it_was_sent_does_not_give_it_away() -> None:
    """P19: neither in the state nor in a log."""
    value = "6c1f0b6f6c6a4c0e"
    echoing = ScriptedSender(then=lambda sent: EndpointAnswer(401, f"who is {sent.headers['Authorization']}?"))
    with capture_logs() as logs:
        async with run_worker(1, echoing, header_value=value) as bench:
            await wait_until_async(lambda: bench.naps.taken)

    assert bench.last_failure.detail == "who is ***?"
    assert value not in json.dumps(logs, default=str)
    assert value not in repr(bench.state)


def answer_always(answer: EndpointAnswer | Exception) -> ScriptedSender:
    return ScriptedSender(then=lambda _: answer)


@pytest.mark.parametrize(("answer", "said"), [
    (EndpointAnswer(400, "Duplicate 'User-Agent' header found."), "HTTP 400: Duplicate 'User-Agent' header found."),
    (EndpointAnswer(500, "<html><title>Oops</title>"), "HTTP 500: Oops"), (EndpointAnswer(503, ""), "HTTP 503"),
    (SendFailed("The connection was refused"), "The connection was refused"),
])  # fmt: skip
async def test_a_refusal_is_in_attempts_and_log_with_its_reason(answer: EndpointAnswer | SendFailed, said: str) -> None:
    with capture_logs() as logs:
        async with run_worker(1, answer_always(answer)) as bench:
            await wait_until_async(lambda: bench.naps.taken)

    assert {each.error for each in bench.state.attempts} == {said}
    assert [each["reason"] for each in logs if each["event"] == "push.failing"] == [said]


async def test_what_an_endpoint_repeats_of_a_message_is_in_no_log() -> None:
    refusing = answer_always(EndpointAnswer(400, "cannot read: the pin is 4711"))
    with capture_logs() as logs:
        async with run_worker(upstream_of(make_pulled(0, "dGhlIHBpbiBpcyA0NzEx")), refusing) as bench:
            await wait_until_async(lambda: bench.naps.taken)

    assert bench.state.attempts[0].error == "HTTP 400: cannot read: the pin is 4711"
    assert [each["reason"] for each in logs if each["event"] == "push.failing"] == ["HTTP 400"]


@pytest.mark.parametrize("answer", [
    EndpointAnswer(400, '"' * 2048), EndpointAnswer(400, "\U0001f33c" * 600), SendFailed("\\" * 5000),
], ids=["quotes", "flowers", "backslashes"])  # fmt: skip
async def test_a_state_fits_into_a_heartbeat_whatever_endpoints_say(answer: EndpointAnswer | SendFailed) -> None:
    async with run_worker(1, answer_always(answer)) as bench:
        await wait_until_async(lambda: bench.state.failed > 100)

    assert len(bench.state.attempts) == 100
    assert len(msgspec.json.encode(bench.state)) <= MAX_STATE_BYTES


# The deadline of acknowledgements


@pytest.mark.parametrize(("patience", "limit"), [(None, 30.0), (600.0, 30.0), (10.0, 9.0), (1.0, 1.0), (0.0, 1.0)])
async def test_a_delivery_ends_before_its_acknowledgement_counts_no_more(patience: float | None, limit: float) -> None:
    """P15."""
    upstream = MemoryUpstream(1)
    upstream.seconds = patience
    async with wait_until_idle(run_worker(upstream)) as bench:
        assert bench.sender.sent[0].seconds == limit


async def test_an_acknowledgement_that_came_too_late_is_no_failure_of_the_endpoint() -> None:
    """P15: it is counted and reported, and the messages come again."""
    async with wait_until_idle(run_worker(1, failing={"acknowledge": [TAKEN_LATE]})) as bench:
        state = bench.state

    assert (state.late, state.failed, state.deliveries, state.delivered) == (1, 0, 2, 1)
    assert bench.naps.taken == []
    assert state.failure is None
    assert bench.last_failure.what == ACKNOWLEDGE
    assert "delivered again" in bench.last_failure.detail
    assert bench.notes.total.late == 1


# Failures of the upstream, and defects


async def test_the_end_of_a_subscription_ends_its_worker_which_tells_so_itself() -> None:
    """P6: the report is about the worker, not a name."""
    async with run_worker(1, failing={"pull": [Gone("Subscription doesn't exist")]}) as bench:
        await wait_until_async(lambda: bench.gone)

        assert bench.gone == [bench.worker]
        assert bench.sender.sent == []


async def test_p4_a_defect_is_logged_once_without_its_text_and_the_worker_goes_on() -> None:
    with capture_logs() as logs:
        async with run_worker(1, ScriptedSender(*[RuntimeError("a payload")] * 2)) as bench:
            await bench.idle()

    defects = [each for each in logs if each["event"] == "push.defect"]
    assert [each["kind"] for each in defects] == ["RuntimeError"]
    assert "a payload" not in json.dumps(logs)
    assert bench.last_failure.detail == "unexpected RuntimeError"
    assert len(bench.naps.taken) == 2


async def test_a_defect_beside_the_cycle_is_logged_and_the_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    failures, waiting = [KeyError("planted")], WorkerReport.waiting

    def breaks_once(report: WorkerReport, until: Milliseconds | None) -> None:
        if failures:
            raise failures.pop()
        waiting(report, until)

    monkeypatch.setattr(WorkerReport, "waiting", breaks_once)
    with capture_logs() as logs:
        async with run_worker(2, ScriptedSender(ERROR, OK_ANSWER)) as bench:
            await bench.idle()

    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["push.worker_failed"]
    assert bench.upstream.acknowledged[-1] == 1


# Dead letters


async def test_p11_a_message_that_is_refused_too_often_is_put_aside_and_those_behind_it_are_delivered() -> None:
    async with wait_until_idle(run_worker(3, ScriptedSender(then=refuse_messages(1)), **DEAD_LETTER_CONFIG)) as bench:
        state = bench.state

    [(message, verdict)] = bench.upstream.dead_lettered
    assert (message.offset, verdict.reason, verdict.attempts, verdict.status) == (1, "bad", 3, 422)
    assert bench.upstream.acknowledged == [0, 2]
    assert (state.dead, state.delivered, state.failure) == (1, 2, None)
    assert bench.notes.total.dead == 1


@pytest.mark.parametrize(("said", "reason"), [("", "HTTP 422"), ("no room for s3cret-value", "no room for ***")])
async def test_a_dead_letter_says_what_the_endpoint_said_without_secrets(said: str, reason: str) -> None:
    async with run_worker(
        1, answer_always(EndpointAnswer(422, said)), header_value="s3cret-value", **DEAD_LETTER_CONFIG
    ) as bench:
        await bench.idle()

    [(_, verdict)] = bench.upstream.dead_lettered
    assert verdict.reason == reason


@pytest.mark.parametrize(("status", "config", "is_advised"), [
    (400, {}, True), (422, {"max_messages": 4}, True), (404, {}, False), (503, {}, False),
    (400, {"dead_letter_topic": "dead", "max_delivery_attempts": 9}, False),
])  # fmt: skip
async def test_the_status_names_a_message_that_blocks(status: int, config: dict[str, Any], is_advised: bool) -> None:
    async with wait_until_idle(run_worker(2, ScriptedSender(*[EndpointAnswer(status, "no")] * 4), **config)) as bench:
        detail = bench.last_failure.detail

    assert detail.endswith("holds up those behind it: a deadLetterTopic would put it aside)") is is_advised
    assert detail.startswith("no (message 0 was refused ") is is_advised


@pytest.mark.parametrize(("answers", "config"), [
    *(([EndpointAnswer(status, "")] * 9, DEAD_LETTER_CONFIG) for status in (408, 425, 429, 502, 503, 504)),
    ([REFUSED] * 9, DEAD_LETTER_CONFIG), ([EndpointAnswer(422, "")] * 30, {}),
])  # fmt: skip
async def test_no_message_is_put_aside_without_cause_and_topic(answers: list[Any], config: dict[str, Any]) -> None:
    async with wait_until_idle(run_worker(1, ScriptedSender(*answers), **config)) as bench:
        assert bench.upstream.dead_lettered == []
        assert bench.upstream.acknowledged == [0]
        assert bench.state.failed == len(answers)


async def test_a_message_that_cannot_be_put_aside_now_is_later() -> None:
    failing = {"dead_letter": [Away("no dead letter topic")]}
    async with run_worker(1, ScriptedSender(then=refuse_messages(0)), failing=failing, **DEAD_LETTER_CONFIG) as bench:
        await bench.idle()

    assert [verdict.attempts for _, verdict in bench.upstream.dead_lettered] == [4]
    assert bench.last_failure


# Draining


async def test_p8_draining_finishes_what_is_in_flight_with_its_acknowledgement_and_pulls_no_more() -> None:
    async with run_worker(3, make_closed_sender()) as bench:
        await wait_until_async(lambda: bench.sender.in_flight)
        asyncio.get_running_loop().call_later(0.01, bench.sender.open.set)
        await bench.drain(5)

    assert bench.upstream.acknowledged == [0]
    assert bench.upstream.pulls == [1]


async def test_p8_draining_ends_a_delivery_that_does_not_end_in_time() -> None:
    async with run_worker(3, make_closed_sender()) as bench:
        await wait_until_async(lambda: bench.sender.in_flight)
        await bench.drain(0.01)

    assert bench.upstream.acknowledged == []
    assert bench.sender.in_flight == 0


async def test_p8_draining_waits_for_no_other_attempt_when_the_delivery_fails() -> None:
    async with run_worker(1, make_closed_sender(ERROR)) as bench:
        bench.naps.hold.clear()
        await wait_until_async(lambda: bench.sender.in_flight)
        asyncio.get_running_loop().call_later(0.01, bench.sender.open.set)
        await bench.drain(60)

        assert bench.naps.taken == []


async def test_a_worker_that_waits_for_messages_or_after_a_failure_is_drained_at_once() -> None:
    async with wait_until_idle(run_worker(0)) as bench:
        await bench.drain(60)

        assert bench.upstream.waiting == 0
    async with wait_until_napping(run_worker(1, answer_always(ERROR))) as bench:
        await bench.drain(60)

        assert len(bench.sender.sent) == 1


# Laws: at least once, in order, and nothing acknowledged that was refused


FAILURES = st.sampled_from([
    OK_ANSWER, EndpointAnswer(204, ""), EndpointAnswer(500, "no"), EndpointAnswer(422, "no"),
    EndpointAnswer(429, "", 5.0), EndpointAnswer(302, ""), SendFailed("reset"), CircuitOpen(1.0),
    RuntimeError("a defect"),
])  # fmt: skip
TROUBLES = st.lists(st.sampled_from([None, Away("away"), UpstreamRefused("refused"), TAKEN_LATE]), max_size=6)
POLICIES = st.sampled_from([LINEAR, SLOWSTART, EXPONENTIAL])


async def deliver_all(bench: Bench, **config: object) -> WorkerState:
    """Run the worker until all is delivered or put aside; return its state."""
    async with at_work(bench, target(**config)):
        await bench.idle()
    return bench.state


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 30), st.integers(1, 12), POLICIES, st.lists(FAILURES, max_size=12), TROUBLES, TROUBLES)
def test_all_messages_are_delivered_in_order_and_only_what_was_taken_is_acknowledged(
    messages: int, most: int, policy: str, answers: list[EndpointAnswer | Exception], pulls: list[UpstreamError | None],
    acknowledgements: list[UpstreamError | None],
) -> None:  # fmt: skip
    run = Bench(MemoryUpstream(messages), ScriptedSender(*answers))
    run.upstream.failing |= {"pull": [each for each in pulls if each is not TAKEN_LATE],
                             "acknowledge": acknowledgements[:]}  # fmt: skip

    state = asyncio.run(deliver_all(run, max_messages=most, retry_policy=policy))

    assert run.upstream.position() == messages == state.delivered
    assert run.upstream.acknowledged == sorted(run.upstream.acknowledged)
    assert run.sender.most_in_flight <= 1
    assert all(len(sent.ids) <= most for sent in run.sender.sent)
    position = 0  # each request starts where the last acknowledgement ended, so nothing is skipped
    ends = {0, *(each + 1 for each in run.upstream.acknowledged)}
    for sent in run.sender.sent:
        assert sent.ids == list(range(sent.ids[0], sent.ids[0] + len(sent.ids)))
        assert sent.ids[0] in ends
        assert sent.ids[0] >= position
        position = sent.ids[0]
    assert state.failure is None or state.failure.what == CONSUME
    assert state.failed + state.deliveries >= len(state.attempts)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 16), st.sets(st.integers(0, 39), max_size=8), st.integers(1, 6))
def test_only_messages_always_refused_are_put_aside(messages: int, most: int, bad: set[int], attempts: int) -> None:
    bad = {each for each in bad if each < messages}
    run = Bench(MemoryUpstream(messages), ScriptedSender(then=refuse_messages(*bad)))
    dead = {"dead_letter_topic": "dead", "max_delivery_attempts": attempts}

    state = asyncio.run(deliver_all(run, max_messages=most, **dead))

    assert {message.offset for message, _ in run.upstream.dead_lettered} == bad
    assert len(run.upstream.dead_lettered) == len(bad) == state.dead
    assert all(verdict.attempts >= attempts for _, verdict in run.upstream.dead_lettered)
    assert state.delivered == messages - len(bad)
    accepted = [each for sent in run.sender.sent if not bad & set(sent.ids) for each in sent.ids]
    assert accepted == [each for each in range(messages) if each not in bad]
    assert run.upstream.position() == messages
