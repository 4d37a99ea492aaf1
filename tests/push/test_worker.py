"""The worker: pull, send, acknowledge, and what follows when one of them fails (push contract 8 and 15)."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from ams.core.clock import ManualClock, Milliseconds
from ams.core.push_config import EXPONENTIAL, MATTERMOST, SLOWSTART
from ams.http.routes.push_lease import MAX_STATE_BYTES
from ams.push import worker as worker_module
from ams.push.report import ACKNOWLEDGE, ACTIVE, CONSUME, RETRYING, SEND, STOPPED, Report, text
from ams.push.retry import MAX_BYTES
from ams.push.sender import CircuitOpen, EndpointAnswer, SendFailed
from ams.push.trying import Means
from ams.push.upstream import Away, Gone, Pulled, Refused, Target
from ams.push.worker import Worker
from tests.push.keepers import LATE, OK, PATH, MemoryUpstream, Naps, Notes, ScriptedSender, Sent, pulled, target, until

HOOK = "https://chat.example/hooks/abcdefghij"


class Bench:
    """A worker with what it works with, to look at."""

    def __init__(self, upstream: MemoryUpstream, sender: ScriptedSender) -> None:
        self.upstream, self.sender = upstream, sender
        self.clock = ManualClock()
        self.naps = Naps(self.clock)
        self.notes = Notes()
        self.gone: list[Worker] = []
        self.worker: Worker

    async def idle(self) -> None:
        """Wait until everything was tried and the worker waits for messages."""
        await until(lambda: self.upstream.waiting)


@contextlib.asynccontextmanager
async def working(upstream: MemoryUpstream, sender: ScriptedSender, of: Target | None = None) -> AsyncIterator[Bench]:
    bench = Bench(upstream, sender)
    means = Means(upstream, sender, bench.clock, lambda: 0.5, bench.notes, bench.naps)
    bench.worker = Worker(of or target(), means, bench.gone.append)
    bench.worker.start()
    try:
        yield bench
    finally:
        await bench.worker.drain(0)


def refuses(*ids: int, status: int = 422) -> Any:
    """Return a behaviour: bodies that hold one of these messages are refused."""
    return lambda sent: EndpointAnswer(status, "bad") if set(sent.ids) & set(ids) else OK


# Delivering


async def test_messages_are_delivered_in_order_and_acknowledged() -> None:
    async with working(MemoryUpstream(5), ScriptedSender()) as bench:
        await bench.idle()

        assert [sent.ids for sent in bench.sender.sent] == [[0], [1], [2], [3], [4]]
        assert bench.upstream.acknowledged == [0, 1, 2, 3, 4]
        state = bench.worker.state()

    assert (state.phase, state.delivered, state.deliveries, state.failed) == (ACTIVE, 5, 5, 0)
    assert state.last_success == bench.clock.wall()
    assert bench.notes.messages == 5


async def test_a_new_message_is_delivered_on_arrival_and_nothing_waits_between_deliveries() -> None:
    """P10: the worker waits in the upstream, not by a timer."""
    async with working(MemoryUpstream(3), ScriptedSender()) as bench:
        await bench.idle()
        bench.upstream.append()
        await until(lambda: bench.upstream.position() == 4)

        assert bench.naps.taken == []


async def test_a_delivery_has_as_many_messages_as_the_configuration_allows() -> None:
    async with working(MemoryUpstream(7), ScriptedSender(), target(max_messages=3)) as bench:
        await bench.idle()

        assert [sent.ids for sent in bench.sender.sent] == [[0, 1, 2], [3, 4, 5], [6]]
        assert bench.upstream.acknowledged == [2, 5, 6]


async def test_deliveries_grow_while_all_goes_well() -> None:
    async with working(MemoryUpstream(1000), ScriptedSender(), target(max_messages=10_000)) as bench:
        await bench.idle()

        assert [len(sent.ids) for sent in bench.sender.sent] == [100, 200, 400, 300]


async def test_there_is_one_delivery_in_flight_at_most() -> None:
    async with working(MemoryUpstream(20), ScriptedSender(), target(max_messages=2)) as bench:
        await bench.idle()

        assert bench.sender.most_in_flight == 1


async def test_a_worker_holds_a_bounded_number_of_bytes() -> None:
    upstream = MemoryUpstream()
    upstream.messages[PATH] = [pulled(offset, "aGk=" * 65_536) for offset in range(10)]
    async with working(upstream, ScriptedSender(), target(max_messages=10)) as bench:
        await bench.idle()

        assert len(bench.sender.sent) > 1
        assert max(len(sent.body) for sent in bench.sender.sent) < MAX_BYTES + 1000


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
async def test_statuses_of_success_acknowledge(status: int) -> None:
    """P17."""
    async with working(MemoryUpstream(1), ScriptedSender(EndpointAnswer(status, ""))) as bench:
        await bench.idle()

        assert bench.upstream.position() == 1
        assert bench.worker.state().failure is None


@pytest.mark.parametrize("status", [203, 205, 206, 301, 302, 307, 400, 401, 404, 500, 503])
async def test_any_other_status_is_tried_again(status: int) -> None:
    """P17: redirects among them."""
    async with working(MemoryUpstream(1), ScriptedSender(EndpointAnswer(status, "no"))) as bench:
        await bench.idle()

        assert [sent.ids for sent in bench.sender.sent] == [[0], [0]]
        assert [attempt.status for attempt in bench.worker.state().attempts] == [status, 200]


async def test_mattermost_is_sent_one_message_in_each_request_whatever_is_configured() -> None:
    """P12."""
    chat = target(type=MATTERMOST, mattermost_url=HOOK, max_messages=10)
    async with working(MemoryUpstream(3), ScriptedSender(), chat) as bench:
        await bench.idle()

        assert bench.upstream.pulls[:3] == [1, 1, 1]
        assert bench.upstream.acknowledged == [0, 1, 2]
        assert {sent.url for sent in bench.sender.sent} == {HOOK}


async def test_mattermost_accepts_by_200_only() -> None:
    answers = [EndpointAnswer(201, ""), EndpointAnswer(204, ""), OK]
    async with working(
        MemoryUpstream(1), ScriptedSender(*answers), target(type=MATTERMOST, mattermost_url=HOOK)
    ) as bench:
        await bench.idle()

        assert len(bench.sender.sent) == 3


async def test_each_delivery_says_how_often_it_was_tried() -> None:
    """P20."""
    answers = [EndpointAnswer(500, ""), SendFailed("reset"), OK, OK]
    async with working(MemoryUpstream(2), ScriptedSender(*answers)) as bench:
        await bench.idle()

        tried = [(sent.headers["webhook-id"], sent.headers["ams-delivery-attempt"]) for sent in bench.sender.sent]
    assert tried == [("P.S.0-0", "1"), ("P.S.0-0", "2"), ("P.S.0-0", "3"), ("P.S.1-1", "1")]


async def test_data_that_could_not_be_decoded_is_counted_when_it_was_delivered() -> None:
    """P13."""
    upstream = MemoryUpstream()
    upstream.messages[PATH] = [pulled(0, "/w=="), pulled(1, "aGk=")]
    async with working(upstream, ScriptedSender(EndpointAnswer(500, "")), target(base64_decode=True)) as bench:
        await bench.idle()

        assert bench.worker.state().undecodable == 1


# Failures of the endpoint


async def test_a_failure_is_told_while_it_lasts_and_known_afterwards() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(EndpointAnswer(500, "out of order"))) as bench:
        bench.naps.hold.clear()
        await until(lambda: bench.naps.taken)
        failing = bench.worker.state()
        bench.naps.hold.set()
        await bench.idle()
        after = bench.worker.state()

    assert failing.phase == RETRYING
    assert failing.failure is not None
    assert (failing.failure.what, failing.failure.detail, failing.failure.status) == (SEND, "out of order", 500)
    assert failing.next_attempt is not None
    assert text(PATH, failing).endswith(" - Could not send message, out of order")
    assert (after.phase, after.failure, after.last_failure) == (ACTIVE, None, failing.failure)
    assert after.next_attempt is None
    assert text(PATH, after) == f"Subscription {PATH} is currently active"


async def test_an_answer_without_a_text_is_told_by_its_status() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(EndpointAnswer(500, ""))) as bench:
        await bench.idle()
        failure = bench.worker.state().last_failure

    assert failure is not None
    assert failure.detail == "HTTP 500"


async def test_after_a_failure_the_policy_says_how_long_to_wait() -> None:
    async with working(
        MemoryUpstream(1), ScriptedSender(*[SendFailed("refused")] * 3), target(retry_period=1000)
    ) as bench:
        await bench.idle()

        assert bench.naps.taken == [1, 2, 3]


async def test_after_a_delivery_the_delays_begin_anew() -> None:
    """Of two messages in a row, so that no empty pull comes between them."""
    answers = [SendFailed("refused"), SendFailed("refused"), OK, SendFailed("refused"), OK]
    async with working(MemoryUpstream(2), ScriptedSender(*answers), target(retry_period=1000)) as bench:
        await bench.idle()

        assert bench.upstream.acknowledged == [0, 1]
        assert bench.naps.taken == [1, 2, 1]


async def test_an_empty_pull_clears_the_failure_and_the_delays() -> None:
    """P5: the time of the last error stays known."""
    upstream = MemoryUpstream(1)
    sender = ScriptedSender(*[EndpointAnswer(500, "")] * 4)
    async with working(upstream, sender, target(retry_policy=SLOWSTART)) as bench:
        bench.naps.hold.clear()
        await until(lambda: bench.naps.taken)
        upstream.positions[PATH] = 1  # as when somebody else moved it
        upstream.empty_pulls = 1
        bench.naps.hold.set()
        await bench.idle()
        state = bench.worker.state()
        upstream.append()
        await until(lambda: upstream.position() == 2)

    assert (state.phase, state.failure) == (ACTIVE, None)
    assert state.last_failure is not None
    assert bench.naps.taken == [2, 2, 4, 8]


async def test_a_pull_that_finds_nothing_for_long_clears_the_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: an upstream may wait for messages as long as it likes."""
    monkeypatch.setattr(worker_module, "QUIET_SECONDS", 0.01)
    upstream = MemoryUpstream()
    upstream.failing["pull"] = [Away("no connection")]
    async with working(upstream, ScriptedSender()) as bench:
        await until(lambda: bench.worker.state().last_failure)
        await until(lambda: bench.worker.state().phase == ACTIVE)
        upstream.append()
        await until(lambda: upstream.position() == 1)


async def test_a_delivery_that_failed_is_followed_by_half_as_many_messages() -> None:
    async with working(
        MemoryUpstream(8), ScriptedSender(EndpointAnswer(500, ""), EndpointAnswer(500, "")), target(max_messages=8)
    ) as bench:
        await bench.idle()

        assert [sent.ids for sent in bench.sender.sent] == [[*range(8)], [*range(4)], [0, 1], [2, 3, 4, 5], [6, 7]]
        assert bench.worker.state().batch == 8


async def test_few_messages_that_failed_are_halved_at_once() -> None:
    async with working(MemoryUpstream(4), ScriptedSender(EndpointAnswer(500, "")), target(max_messages=100)) as bench:
        await bench.idle()

        assert [len(sent.ids) for sent in bench.sender.sent] == [4, 2, 2]


async def test_slow_answers_ask_for_fewer_messages() -> None:
    sender = ScriptedSender()
    sender.takes = 6000
    async with working(MemoryUpstream(16), sender, target(max_messages=8)) as bench:
        sender.clock = bench.clock
        await bench.idle()

        assert [len(sent.ids) for sent in sender.sent] == [8, 4, 2, 1, 1]


@pytest.mark.parametrize(("status", "waited"), [(429, 107.5), (503, 107.5), (500, 3.0)])
async def test_endpoints_that_ask_for_time_are_given_it(status: int, waited: float) -> None:
    """P17: by `Retry-After` with 429 and 503."""
    async with working(MemoryUpstream(1), ScriptedSender(EndpointAnswer(status, "", 100.0))) as bench:
        await bench.idle()

        assert bench.naps.taken == [waited]


async def test_an_endpoint_that_is_gone_is_never_asked_again_and_the_status_says_so() -> None:
    async with working(MemoryUpstream(5), ScriptedSender(EndpointAnswer(410, ""))) as bench:
        await until(lambda: bench.worker.state().phase == STOPPED)
        bench.upstream.append()
        await asyncio.sleep(0.01)
        state = bench.worker.state()

    assert len(bench.sender.sent) == 1
    assert bench.upstream.acknowledged == []
    assert "410" in text(PATH, state)
    assert state.next_attempt is None


async def test_an_endpoint_whose_circuit_is_open_is_waited_for_and_that_is_no_attempt() -> None:
    """P14: each waits a little longer than it was told, differently."""
    async with working(MemoryUpstream(1), ScriptedSender(CircuitOpen(4.0), CircuitOpen(8.0))) as bench:
        bench.sender.state = "open"
        await bench.idle()
        state = bench.worker.state()

    assert bench.naps.taken == pytest.approx([4.3, 8.6])
    assert [attempt.status for attempt in state.attempts] == [200]
    assert bench.sender.sent[-1].headers["ams-delivery-attempt"] == "1"
    assert state.circuit == "open"
    assert state.last_failure is not None
    assert "left alone" in state.last_failure.detail


async def test_why_an_endpoint_failed_stays_told_while_its_circuit_is_open() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(SendFailed("certificate expired"), CircuitOpen(4.0))) as bench:
        await until(lambda: len(bench.naps.taken) == 2)
        failure = bench.worker.state().last_failure

    assert failure is not None
    assert failure.detail == "certificate expired"


async def test_an_endpoint_that_repeats_what_it_was_sent_does_not_give_it_away() -> None:
    """P19: neither in the state nor in a log."""
    value = "6c1f0b6f6c6a4c0e"
    echoing = ScriptedSender(then=lambda sent: EndpointAnswer(401, f"who is {sent.headers['Authorization']}?"))
    with capture_logs() as logs:
        async with working(MemoryUpstream(1), echoing, target(header_value=value)) as bench:
            await until(lambda: bench.naps.taken)
            state = bench.worker.state()

    assert state.failure is not None
    assert state.failure.detail == "who is ***?"
    assert value not in json.dumps(logs, default=str)
    assert value not in repr(state)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (EndpointAnswer(400, "Duplicate 'User-Agent' header found."), "HTTP 400: Duplicate 'User-Agent' header found."),
        (EndpointAnswer(500, "<html><title>Oops</title>"), "HTTP 500: Oops"),
        (EndpointAnswer(503, ""), "HTTP 503"),
        (SendFailed("The connection was refused"), "The connection was refused"),
        (SendFailed("TLS: certificate has expired"), "TLS: certificate has expired"),
    ],
)
async def test_what_was_refused_is_in_the_attempts_and_in_the_log_with_its_reason(
    answer: EndpointAnswer | SendFailed, said: str
) -> None:
    def answers(_: Sent) -> EndpointAnswer:
        if isinstance(answer, SendFailed):
            raise answer
        return answer

    with capture_logs() as logs:
        async with working(MemoryUpstream(1), ScriptedSender(then=answers)) as bench:
            await until(lambda: bench.naps.taken)
            state = bench.worker.state()

    assert {each.error for each in state.attempts} == {said}
    assert [each["reason"] for each in logs if each["event"] == "push.failing"] == [said]


async def test_what_an_endpoint_repeats_of_a_message_is_in_no_log() -> None:
    upstream = MemoryUpstream()
    upstream.messages[PATH] = [pulled(0, "dGhlIHBpbiBpcyA0NzEx")]
    refusing = ScriptedSender(then=lambda _: EndpointAnswer(400, "cannot read: the pin is 4711"))
    with capture_logs() as logs:
        async with working(upstream, refusing) as bench:
            await until(lambda: bench.naps.taken)
            state = bench.worker.state()

    assert state.attempts[0].error == "HTTP 400: cannot read: the pin is 4711"
    assert [each["reason"] for each in logs if each["event"] == "push.failing"] == ["HTTP 400"]


@pytest.mark.parametrize("answer", [EndpointAnswer(400, '"' * 2048), EndpointAnswer(400, "\U0001f33c" * 600), None])
async def test_a_state_fits_into_a_heartbeat_whatever_endpoints_say(answer: EndpointAnswer | None) -> None:
    def fails(_: Sent) -> EndpointAnswer:
        if answer is not None:
            return answer
        raise SendFailed("\\" * 5000)

    async with working(MemoryUpstream(1), ScriptedSender(then=fails)) as bench:
        await until(lambda: bench.worker.state().failed > 100)
        state = bench.worker.state()

    assert len(state.attempts) == 100
    assert len(msgspec.json.encode(state)) <= MAX_STATE_BYTES


async def test_the_last_hundred_attempts_are_remembered() -> None:
    async with working(MemoryUpstream(150), ScriptedSender()) as bench:
        await bench.idle()
        state = bench.worker.state()

    assert len(state.attempts) == 100
    assert state.attempts[0].bytes == len(bench.sender.sent[50].body)


# The deadline of acknowledgements


@pytest.mark.parametrize(("patience", "limit"), [(None, 30.0), (600.0, 30.0), (10.0, 9.0), (1.0, 1.0), (0.0, 1.0)])
async def test_a_delivery_ends_before_its_acknowledgement_counts_no_more(patience: float | None, limit: float) -> None:
    """P15."""
    upstream = MemoryUpstream(1)
    upstream.seconds = patience
    async with working(upstream, ScriptedSender()) as bench:
        await bench.idle()

        assert bench.sender.sent[0].seconds == limit


async def test_an_acknowledgement_that_came_too_late_is_no_failure_of_the_endpoint() -> None:
    """P15: it is counted and told, and the messages come again."""
    upstream = MemoryUpstream(1)
    upstream.failing["acknowledge"] = [LATE]
    async with working(upstream, ScriptedSender()) as bench:
        await bench.idle()
        state = bench.worker.state()

    assert (state.late, state.failed, state.deliveries, state.delivered) == (1, 0, 2, 1)
    assert bench.naps.taken == []
    assert state.failure is None
    assert state.last_failure is not None
    assert state.last_failure.what == ACKNOWLEDGE
    assert "delivered again" in state.last_failure.detail
    assert bench.notes.lates == 1


async def test_an_acknowledgement_that_came_too_late_asks_for_fewer_messages() -> None:
    upstream = MemoryUpstream(4)
    upstream.failing["acknowledge"] = [LATE]
    async with working(upstream, ScriptedSender(), target(max_messages=4)) as bench:
        await bench.idle()

        assert [len(sent.ids) for sent in bench.sender.sent] == [4, 2, 2]


async def test_acknowledgements_that_come_too_late_now_and_then_are_not_waited_after() -> None:
    upstream = MemoryUpstream(3)
    upstream.failing["acknowledge"] = [LATE, None, LATE, None, LATE]
    async with working(upstream, ScriptedSender()) as bench:
        await bench.idle()

        assert bench.naps.taken == []


async def test_acknowledgements_that_keep_coming_too_late_are_not_repeated_at_speed() -> None:
    """P15."""
    upstream = MemoryUpstream(1)
    upstream.failing["acknowledge"] = [LATE] * 3
    async with working(upstream, ScriptedSender(), target(retry_period=1000)) as bench:
        await bench.idle()

        assert bench.naps.taken == [1, 2]


# Failures of the upstream


async def test_a_service_that_is_away_is_asked_again_by_the_policy() -> None:
    upstream = MemoryUpstream(1)
    upstream.failing["pull"] = [Away("no connection"), Away("no connection")]
    async with working(upstream, ScriptedSender(), target(retry_period=1000)) as bench:
        await bench.idle()
        failure = bench.worker.state().last_failure

    assert bench.naps.taken == [1, 2]
    assert failure is not None
    assert (failure.what, failure.detail) == (CONSUME, "no connection")


async def test_a_service_that_was_away_for_long_is_soon_found_back() -> None:
    upstream = MemoryUpstream(1)
    upstream.failing["pull"] = [Away("no connection")] * 12
    sender = ScriptedSender(EndpointAnswer(500, ""))
    async with working(upstream, sender, target(retry_policy=SLOWSTART)) as bench:
        await bench.idle()

    assert bench.naps.taken == [2, 4, 8, 16, *[30] * 8, 32]


async def test_acknowledgements_that_cannot_be_stored_for_long_are_tried_every_ten_minutes() -> None:
    upstream = MemoryUpstream(1)
    upstream.failing["acknowledge"] = [Away("disk full")] * 12
    async with working(upstream, ScriptedSender(), target(retry_policy=SLOWSTART)) as bench:
        await bench.idle()

    assert bench.naps.taken == [2, 4, 8, 16, 32, 64, 128, 256, 512, *[600] * 3]


async def test_an_acknowledgement_that_failed_is_told_and_the_messages_come_again() -> None:
    upstream = MemoryUpstream(1)
    upstream.failing["acknowledge"] = [Away("disk full")]
    async with working(upstream, ScriptedSender()) as bench:
        await bench.idle()
        state = bench.worker.state()

    assert [sent.ids for sent in bench.sender.sent] == [[0], [0]]
    assert state.last_failure is not None
    assert (state.last_failure.what, state.last_failure.detail) == (ACKNOWLEDGE, "disk full")


async def test_what_only_a_change_can_repair_is_tried_seldom() -> None:
    """P21: from a minute up to ten."""
    upstream = MemoryUpstream(1)
    upstream.failing["pull"] = [Refused("Push functionality is currently disabled")] * 6
    async with working(upstream, ScriptedSender(), target(retry_policy=EXPONENTIAL, retry_period=1)) as bench:
        await bench.idle()

        assert bench.naps.taken == [60, 120, 240, 480, 600, 600]


async def test_the_end_of_a_subscription_ends_its_worker_which_tells_so_itself() -> None:
    """P6: what is told of is the worker, not a name."""
    upstream = MemoryUpstream(1)
    upstream.failing["pull"] = [Gone("Subscription doesn't exist")]
    async with working(upstream, ScriptedSender()) as bench:
        await until(lambda: bench.gone)

        assert bench.gone == [bench.worker]
        assert bench.sender.sent == []


async def test_a_defect_is_logged_once_without_its_text_and_the_worker_goes_on() -> None:
    """P4."""
    defect = RuntimeError("a payload")
    with capture_logs() as logs:
        async with working(MemoryUpstream(1), ScriptedSender(defect, RuntimeError("a payload"))) as bench:  # type: ignore[arg-type]
            await bench.idle()
            failure = bench.worker.state().last_failure

    defects = [each for each in logs if each["event"] == "push.defect"]
    assert [each["kind"] for each in defects] == ["RuntimeError"]
    assert "a payload" not in json.dumps(logs)
    assert failure is not None
    assert failure.detail == "unexpected RuntimeError"
    assert len(bench.naps.taken) == 2


async def test_a_target_with_a_secret_that_is_none_is_stopped_and_the_status_says_why() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(), target(secrets=["whsec_x"])) as bench:
        state = bench.worker.state()

    assert state.phase == STOPPED
    assert "a signing secret must be" in text(PATH, state)


# Dead letters

DEAD = {"dead_letter_topic": "dead", "max_delivery_attempts": 3}


async def test_a_message_that_is_refused_too_often_is_put_aside_and_those_behind_it_are_delivered() -> None:
    """P11."""
    async with working(MemoryUpstream(3), ScriptedSender(then=refuses(1)), target(**DEAD)) as bench:
        await bench.idle()
        state = bench.worker.state()

    [(message, verdict)] = bench.upstream.dead_lettered
    assert (message.offset, verdict.reason, verdict.attempts, verdict.status) == (1, "bad", 3, 422)
    assert bench.upstream.acknowledged == [0, 2]
    assert (state.dead, state.delivered, state.failure) == (1, 2, None)
    assert bench.notes.dead == 1


@pytest.mark.parametrize(("said", "reason"), [("", "HTTP 422"), ("no room for s3cret-value", "no room for ***")])
async def test_a_dead_letter_says_what_the_endpoint_said_without_secrets(said: str, reason: str) -> None:
    sender = ScriptedSender(then=lambda _: EndpointAnswer(422, said))
    async with working(MemoryUpstream(1), sender, target(header_value="s3cret-value", **DEAD)) as bench:
        await bench.idle()

    [(_, verdict)] = bench.upstream.dead_lettered
    assert verdict.reason == reason


async def test_of_many_messages_the_one_that_is_refused_is_found_and_no_other_is_put_aside() -> None:
    """P11."""
    async with working(MemoryUpstream(64), ScriptedSender(then=refuses(37)), target(max_messages=64, **DEAD)) as bench:
        await bench.idle()
        state = bench.worker.state()

    assert [message.offset for message, _ in bench.upstream.dead_lettered] == [37]
    assert state.delivered == 63
    accepted = [sent.ids for sent in bench.sender.sent if 37 not in sent.ids]
    assert sorted(itertools.chain(*accepted)) == [each for each in range(64) if each != 37]
    assert state.batch > 1


async def test_a_message_refused_together_with_the_one_to_blame_begins_anew() -> None:
    """P11: one refusal by itself does not put it aside."""
    answers = [EndpointAnswer(422, "")] * 3 + [
        EndpointAnswer(500, "")
    ]  # both, both, the first, and then once the second
    upstream = MemoryUpstream(2)
    dead = target(max_messages=4, dead_letter_topic="dead", max_delivery_attempts=3)
    async with working(upstream, ScriptedSender(*answers), dead) as bench:
        await bench.idle()

    assert [message.offset for message, _ in upstream.dead_lettered] == [0]
    assert upstream.acknowledged == [1]


async def test_refusals_of_a_message_that_was_delivered_since_do_not_count() -> None:
    upstream = MemoryUpstream(2)
    async with working(upstream, ScriptedSender(*[EndpointAnswer(422, "")] * 2), target(**DEAD)) as bench:
        await bench.idle()
        upstream.positions[PATH] = 0  # a seek: both come again
        bench.sender.answers = [OK, OK, *[EndpointAnswer(422, "")] * 2]
        bench.upstream.append(count=0)
        await until(lambda: len(bench.sender.sent) == 6)
        upstream.positions[PATH] = 0
        bench.upstream.append(count=0)
        await until(lambda: len(bench.sender.sent) == 10)

    assert upstream.dead_lettered == []


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
async def test_statuses_that_tell_nothing_of_a_message_put_none_aside(status: int) -> None:
    async with working(MemoryUpstream(1), ScriptedSender(*[EndpointAnswer(status, "")] * 9), target(**DEAD)) as bench:
        await bench.idle()

        assert bench.upstream.dead_lettered == []
        assert bench.upstream.acknowledged == [0]


async def test_endpoints_that_do_not_answer_refuse_no_message() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(*[SendFailed("reset")] * 9), target(**DEAD)) as bench:
        await bench.idle()

        assert bench.upstream.dead_lettered == []


async def test_without_a_dead_letter_topic_a_message_is_tried_for_ever() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(*[EndpointAnswer(422, "")] * 30)) as bench:
        await bench.idle()

        assert bench.upstream.dead_lettered == []
        assert bench.worker.state().failed == 30


async def test_a_message_that_cannot_be_put_aside_now_is_later() -> None:
    upstream = MemoryUpstream(1)
    upstream.failing["dead_letter"] = [Away("no dead letter topic")]
    async with working(upstream, ScriptedSender(then=refuses(0)), target(**DEAD)) as bench:
        await bench.idle()
        failure = bench.worker.state().last_failure

    assert [verdict.attempts for _, verdict in upstream.dead_lettered] == [4]
    assert failure is not None


# Draining


async def test_draining_finishes_what_is_in_flight_with_its_acknowledgement_and_pulls_no_more() -> None:
    """P8."""
    sender = ScriptedSender()
    sender.open.clear()
    async with working(MemoryUpstream(3), sender) as bench:
        await until(lambda: sender.in_flight)
        draining = asyncio.create_task(bench.worker.drain(5))
        await asyncio.sleep(0.01)
        sender.open.set()
        await draining

    assert bench.upstream.acknowledged == [0]
    assert bench.upstream.pulls == [1]


async def test_draining_ends_a_delivery_that_does_not_end_in_time() -> None:
    """P8."""
    sender = ScriptedSender()
    sender.open.clear()
    async with working(MemoryUpstream(3), sender) as bench:
        await until(lambda: sender.in_flight)
        async with asyncio.timeout(5):
            await bench.worker.drain(0.01)

    assert bench.upstream.acknowledged == []
    assert sender.in_flight == 0


async def test_draining_waits_for_no_other_attempt_when_the_delivery_fails() -> None:
    """P8."""
    sender = ScriptedSender(EndpointAnswer(500, ""))
    sender.open.clear()
    async with working(MemoryUpstream(1), sender) as bench:
        bench.naps.hold.clear()
        await until(lambda: sender.in_flight)
        draining = asyncio.create_task(bench.worker.drain(60))
        await asyncio.sleep(0.01)
        sender.open.set()
        async with asyncio.timeout(5):
            await draining

        assert bench.naps.taken == []


async def test_a_worker_that_waits_for_messages_is_drained_at_once() -> None:
    async with working(MemoryUpstream(), ScriptedSender()) as bench:
        await bench.idle()
        async with asyncio.timeout(5):
            await bench.worker.drain(60)

        assert bench.upstream.waiting == 0


async def test_a_worker_that_waits_after_a_failure_is_drained_at_once() -> None:
    async with working(MemoryUpstream(1), ScriptedSender(then=lambda _: EndpointAnswer(500, ""))) as bench:
        bench.naps.hold.clear()
        await until(lambda: bench.naps.taken)
        async with asyncio.timeout(5):
            await bench.worker.drain(60)

        assert len(bench.sender.sent) == 1


async def test_a_worker_that_never_began_is_drained_too() -> None:
    bench = Bench(MemoryUpstream(1), ScriptedSender())
    worker = Worker(
        target(), Means(bench.upstream, bench.sender, bench.clock, lambda: 0.5, bench.notes), bench.gone.append
    )

    await worker.drain(1)
    worker.start()
    await worker.drain(1)

    assert bench.sender.sent == []


# Its state


async def test_bodies_are_sent_to_the_endpoint_as_it_is_configured() -> None:
    sent: list[Sent] = []
    async with working(MemoryUpstream(1), ScriptedSender()) as bench:
        await bench.idle()
        sent = bench.sender.sent

    assert sent[0].url == "https://receiver.example/ok"
    assert json.loads(sent[0].body)["message"]["messageId"] == "0"


async def test_gaps_between_messages_do_no_harm() -> None:
    class Jumping(MemoryUpstream):
        """As after retention took the oldest: the next message does not follow the last."""

        def _next(self, target: Target, most: int, max_bytes: int) -> list[Pulled]:
            return [each for each in self.messages[PATH] if each.offset >= self.position()][:most]

    upstream = Jumping()
    upstream.messages[PATH] = [pulled(offset) for offset in (3, 7, 8)]
    async with working(upstream, ScriptedSender(), target(max_messages=2)) as bench:
        await bench.idle()

        assert [sent.headers["webhook-id"] for sent in bench.sender.sent] == ["P.S.3-7", "P.S.8-8"]


async def test_a_defect_beside_the_cycle_is_logged_and_the_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([KeyError("planted")])
    waiting = Report.waiting

    def breaks_once(self: Report, until: Milliseconds | None) -> None:
        for error in failures:
            raise error
        waiting(self, until)

    monkeypatch.setattr(Report, "waiting", breaks_once)
    with capture_logs() as logs:
        async with working(MemoryUpstream(2), ScriptedSender(EndpointAnswer(500, ""), OK)) as bench:
            await bench.idle()

    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["push.worker_failed"]
    assert bench.upstream.acknowledged[-1] == 1
