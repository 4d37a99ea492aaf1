"""What a worker keeps to whatever happens: at least once, in order, and nothing acknowledged that was not taken."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.clock import ManualClock
from ams.core.push_config import EXPONENTIAL, LINEAR, SLOWSTART
from ams.push.report import CONSUME, Tally
from ams.push.sender import CircuitOpen, EndpointAnswer, SendFailed
from ams.push.trying import Means
from ams.push.upstream import Away, Refused, UpstreamError
from ams.push.worker import Worker
from tests.push.keepers import LATE, OK, MemoryUpstream, Naps, ScriptedSender, Sent, target, until

FAILURES = st.sampled_from([
    OK, EndpointAnswer(204, ""), EndpointAnswer(500, "no"), EndpointAnswer(422, "no"),
    EndpointAnswer(429, "", 5.0), EndpointAnswer(302, ""), SendFailed("reset"), CircuitOpen(1.0),
    RuntimeError("a defect"),
])  # fmt: skip
TROUBLES = st.lists(st.sampled_from([None, Away("away"), Refused("refused"), LATE]), max_size=6)
POLICIES = st.sampled_from([LINEAR, SLOWSTART, EXPONENTIAL])


class Run:
    """A worker that goes on until all is delivered or put aside."""

    def __init__(self, messages: int, answers: list[EndpointAnswer | Exception], bad: set[int]) -> None:
        self.upstream = MemoryUpstream(messages)
        self.sender = ScriptedSender(*answers, then=self.answer)
        self.bad = bad
        self.accepted: list[list[int]] = []
        self.naps = Naps(ManualClock())

    def answer(self, sent: Sent) -> EndpointAnswer:
        return EndpointAnswer(422, "") if self.bad & set(sent.ids) else OK

    async def go(self, **config: object) -> Worker:
        means = Means(self.upstream, self.sender, self.naps.clock, lambda: 0.5, Tally(), self.naps)
        worker = Worker(target(**config), means, lambda _: None)
        worker.start()
        try:
            await until(lambda: self.upstream.waiting)
        finally:
            await worker.drain(0)
        return worker


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 30), st.integers(1, 12), POLICIES, st.lists(FAILURES, max_size=12), TROUBLES, TROUBLES
)  # fmt: skip
def test_all_messages_are_delivered_in_order_and_only_what_was_taken_is_acknowledged(
    messages: int,
    most: int,
    policy: str,
    answers: list[EndpointAnswer | Exception],
    pulls: list[UpstreamError | None],
    acknowledgements: list[UpstreamError | None],
) -> None:
    run = Run(messages, answers, set())
    run.upstream.failing |= {
        "pull": [each for each in pulls if each is not LATE],
        "acknowledge": list(acknowledgements),
    }

    worker = asyncio.run(run.go(max_messages=most, retry_policy=policy))

    state = worker.state()
    assert run.upstream.position() == messages == state.delivered
    assert run.upstream.acknowledged == sorted(run.upstream.acknowledged)
    assert run.sender.most_in_flight <= 1
    assert all(len(sent.ids) <= most for sent in run.sender.sent)
    position = 0  # what is sent always begins where the last acknowledgement ended, so nothing is left out
    ends = {0, *(each + 1 for each in run.upstream.acknowledged)}
    for sent in run.sender.sent:
        assert sent.ids == list(range(sent.ids[0], sent.ids[0] + len(sent.ids)))
        assert sent.ids[0] in ends
        assert sent.ids[0] >= position
        position = sent.ids[0]
    assert state.failure is None or state.failure.what == CONSUME
    assert state.failed + state.deliveries >= len(state.attempts)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 16), st.sets(st.integers(0, 39), max_size=8), st.integers(1, 6)
)  # fmt: skip
def test_exactly_the_messages_that_are_always_refused_are_put_aside(
    messages: int, most: int, bad: set[int], attempts: int
) -> None:
    bad = {each for each in bad if each < messages}
    run = Run(messages, [], bad)

    worker = asyncio.run(run.go(max_messages=most, dead_letter_topic="dead", max_delivery_attempts=attempts))

    assert {message.offset for message, _ in run.upstream.dead_lettered} == bad
    assert len(run.upstream.dead_lettered) == len(bad) == worker.state().dead
    assert all(verdict.attempts >= attempts for _, verdict in run.upstream.dead_lettered)
    assert worker.state().delivered == messages - len(bad)
    assert run.upstream.position() == messages
