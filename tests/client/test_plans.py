"""The client's core without a connection: the requests, pauses and messages of plans."""

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.client import Message, ReceivedMessage, Retry, errors, wire
from ams.client.errors import Overloaded, Unreachable
from ams.client.plans import Outcome, Planner, Response, seconds_asked

STEADY = Retry(first=1.0)
DOWN = errors.Unreachable("cut")
REFUSED = errors.Unreachable("nobody listens", sent=False)
OK = Response(200, b"{}")
BUSY = Response(503, b'{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}', "2")
LATE = Response(408, b'{"error": {"code": 408, "message": "ack timeout", "status": "TIMEOUT"}}')
MOVED = Response(400, b'{"error": {"code": 400, "message": "no ack pending", "status": "INVALID_ARGUMENT"}}')


@dataclass
class World:
    """Runs plans: scripted answers, and a clock that moves only by pauses."""

    answers: list[Outcome]
    now: float = 0.0
    sent: list[wire.Call[Any]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    told: list[tuple[str, int, float]] = field(default_factory=list)

    def planner(self, retry: Retry | None = STEADY) -> Planner:
        return Planner(
            endpoint="https://ams.example", retry=retry,
            on_retry=lambda error, sent, pause: self.told.append((error.message, sent, pause)), now=lambda: self.now,
            chance=lambda: 1.0,
        )  # fmt: skip

    def run_plan(self, plan: Any, most: int = 1000) -> Any:
        """Return the result of a plan, or the ids of the first `most` messages that it delivers."""
        outcome: Outcome = None
        delivered: list[str] = []
        while len(delivered) < most:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                return delivered or end.value
            outcome = self.do(step, delivered)
        return delivered

    def do(self, step: object, delivered: list[str]) -> Outcome:
        if isinstance(step, wire.Call):
            self.sent.append(step)
            return self.answers.pop(0)
        if isinstance(step, float):
            self.pauses.append(step)
            self.now += step
        if isinstance(step, ReceivedMessage):
            delivered.append(step.id)
        return None


def batch(*ids: int) -> Response:
    messages = [{"messageId": str(each), "data": "", "publishTime": "2024-03-05T10:20:30.000Z"} for each in ids]
    received = [{"ackId": f"ack:{each['messageId']}", "message": each} for each in messages]
    return Response(200, json.dumps({"receivedMessages": received}).encode())


def acknowledged_ids(world: World) -> list[str]:
    return [json.loads(call.body or b"")["ackIds"][0] for call in world.sent if call.path.endswith(":acknowledge")]


def test_waits_grow_and_are_told() -> None:
    world = World([DOWN, BUSY, OK])
    world.run_plan(world.planner().ask(wire.get_status()))
    assert world.pauses == [1.0, 2 + 2.0]
    assert world.told == [("cut", 1, 1.0), ("busy", 2, 4.0)]


def test_the_last_error_is_raised_at_the_end_of_the_policy_and_at_once_without_one() -> None:
    world = World([DOWN, DOWN, BUSY])
    with pytest.raises(errors.Overloaded, match="busy"):
        world.run_plan(world.planner(Retry(attempts=3)).ask(wire.get_status()))
    for outcome in (DOWN, BUSY, REFUSED):
        world = World([outcome])
        with pytest.raises(errors.ClientError):
            world.run_plan(world.planner(None).ask(wire.get_status()))


def refusal_response(status: int) -> Response:
    return Response(status, b'{"error": {"code": %d, "message": "no", "status": ""}}' % status)


@pytest.mark.parametrize(
    ("answer", "sent"),
    [(Response(status, b""), 2) for status in (429, 500, 502, 503, 504)]
    + [(refusal_response(status), 1) for status in (400, 401, 403, 404, 408, 409, 413)]
    + [(errors.Untrusted("unknown CA", sent=False), 1)],
    ids=lambda each: getattr(each, "status", None),
)
def test_what_may_pass_is_asked_again_and_a_refusal_is_final(answer: Outcome, sent: int) -> None:
    world = World([answer, OK])
    with contextlib.nullcontext() if sent == 2 else pytest.raises(errors.ClientError):
        world.run_plan(world.planner().ask(wire.get_status()))
    assert len(world.sent) == sent


@pytest.mark.parametrize("call", [wire.create_topic("P", "T"), wire.delete_topic("P", "T"), wire.refresh_token("U")])
def test_what_must_not_happen_twice_is_sent_again_only_if_it_never_left(call: wire.Call[Any]) -> None:
    never_left = World([REFUSED, refusal_response(404)])
    with pytest.raises(errors.NotFound):
        never_left.run_plan(never_left.planner().ask(call))

    perhaps_arrived = World([DOWN])
    with pytest.raises(errors.Unreachable, match="cut"):
        perhaps_arrived.run_plan(perhaps_arrived.planner().ask(call))


def test_a_publish_is_sent_again_under_the_key_that_is_given_or_its_own() -> None:
    published = Response(200, b'{"messageIds": ["0"]}')
    world = World([DOWN, BUSY, published, published, published])

    for key in (None, None, "mine"):
        assert world.run_plan(world.planner().publish("P", "T", [Message(b"hi")], key)) == ["0"]

    first, *again, second, third = [call.headers["Idempotency-Key"] for call in world.sent]
    assert (again, len(first), first != second, third) == ([first] * 2, 36, True, "mine")
    assert len({call.body for call in world.sent}) == 1


def test_a_batch_is_acknowledged_when_the_message_after_it_is_asked_for() -> None:
    world = World([batch(0, 1), OK, batch(2), OK, batch()])

    assert world.run_plan(world.planner().consume("P", "S", 2, follow=False), most=2) == ["0", "1"]
    assert acknowledged_ids(world) == []

    world = World([batch(0, 1), OK, batch(2), OK, batch()])
    assert world.run_plan(world.planner().consume("P", "S", 2, follow=False)) == ["0", "1", "2"]
    assert acknowledged_ids(world) == ["ack:1", "ack:2"]
    verbs = [call.path.rpartition(":")[2] for call in world.sent]
    assert verbs == ["pull", "acknowledge", "pull", "acknowledge", "pull"]


def test_who_follows_waits_and_does_not_ask_all_the_time_a_service_that_does_not() -> None:
    for follow, immediately in ((True, "false"), (False, "true")):
        world = World([batch(0)])
        world.run_plan(world.planner().consume("P", "S", 10, follow=follow), most=1)
        assert json.loads(world.sent[0].body or b"") == {"maxMessages": "10", "returnImmediately": immediately}
    world = World([batch(), batch(), batch(0)])
    assert world.run_plan(world.planner().consume("P", "S", 10, follow=True), most=1) == ["0"]
    assert world.pauses == [0.5, 0.5]


@pytest.mark.parametrize(("refusal", "there"), [(LATE, (3, 4, 5)), (MOVED, (3, 4, 5)), (MOVED, (5, 6))])
def test_who_moves_the_subscription_meanwhile_gets_what_lies_there(refusal: Response, there: tuple[int, ...]) -> None:
    world = World([batch(5, 6), refusal, batch(*there), OK, batch()])
    assert world.run_plan(world.planner().consume("P", "S", 10, follow=False)) == ["5", "6", *map(str, there)]


def test_acknowledgements_that_are_never_taken_are_an_error() -> None:
    world = World([batch(0), LATE, batch(0), LATE, batch(0), LATE])
    with pytest.raises(errors.AckTimeout):
        world.run_plan(world.planner().consume("P", "S", 10, follow=True))


def test_a_message_without_a_time_is_not_of_ams() -> None:
    world = World([Response(200, b'{"receivedMessages": [{"ackId": "a", "message": {"data": ""}}]}')])
    with pytest.raises(errors.NotAms, match="without a time"):
        world.run_plan(world.planner().pull("P", "S", 1, wait=False))


LOST = "lost"  # the service does what is asked, and its answer does not arrive
troubles = st.lists(st.sampled_from([None, DOWN, BUSY, LATE, LOST]), max_size=60)


@dataclass
class FaultySubscription(World):
    """A subscription with messages, with faults of the service and the network."""

    end: int = 0
    troubles: list[Any] = field(default_factory=list)
    position: int = 0
    taken: int = 0
    late: int = 0

    def do(self, step: object, delivered: list[str]) -> Outcome:
        if isinstance(step, wire.Call):
            return self.answer_call(step, self.troubles.pop(0) if self.troubles else None)
        if isinstance(step, ReceivedMessage):
            self.taken += 1
        return super().do(step, delivered)

    def answer_call(self, call: wire.Call[Any], trouble: Any) -> Outcome:
        asked = json.loads(call.body or b"")
        if trouble in (DOWN, BUSY):
            return trouble  # type: ignore[no-any-return]  # one of the two
        if "ackIds" not in asked:
            answer = batch(*range(self.position, min(self.end, self.position + int(asked["maxMessages"]))))
        elif trouble is LATE and self.late < 2 and number(asked) >= self.position:
            self.late += 1
            return LATE
        else:
            self.late = 0
            self.position = max(self.position, number(asked) + 1)
            assert self.position <= self.taken, "acknowledged before it was dealt with"
            answer = OK
        return DOWN if trouble is LOST else answer


def number(asked: Any) -> int:
    """Return the last message of an acknowledgement; one that is acknowledged already is never late."""
    return int(asked["ackIds"][0].removeprefix("ack:"))


@given(st.integers(0, 30), st.integers(1, 8), troubles)
def test_a_loop_gets_everything_once_in_order_whatever_goes_wrong(end: int, size: int, met: list[Any]) -> None:
    world = FaultySubscription([], end=end, troubles=list(met))
    delivered = world.run_plan(world.planner(Retry(attempts=None, total=1e9)).consume("P", "S", size, follow=False))
    assert (delivered or []) == [str(number) for number in range(end)]
    assert world.position == end


seconds = st.floats(0, 1000)
policies = st.builds(
    Retry, attempts=st.none() | st.integers(1, 10), total=seconds, first=st.floats(0, 10), longest=st.floats(0, 20)
)


def test_waits_double_up_to_the_longest_and_end_with_the_attempts_and_the_total() -> None:
    retry = Retry(first=1, longest=5, total=1000, attempts=None)
    assert [retry.pause(sent, 0, 0, chance=1) for sent in range(1, 6)] == [1, 2, 4, 5, 5]
    assert [Retry(first=2).pause(1, 0, 0, chance) for chance in (0, 0.25, 1)] == [0, 0.5, 2]
    assert Retry(first=1).pause(1, 0, asked=3, chance=0.5) == 3.5, "what the service asks for comes before it"

    often, long = Retry(attempts=3), Retry(total=10, first=4, attempts=None)
    assert [often.pause(sent, 0, 0, 0) is None for sent in (1, 2, 3)] == [False, False, True]
    assert (long.pause(1, 6, 0, chance=1), long.pause(1, 6.1, 0, chance=1)) == (4, None)
    assert long.pause(1, 0, asked=11, chance=0) is None


@given(policies, st.integers(1, 10_000), seconds, seconds, st.floats(0, 1))
def test_a_pause_keeps_to_the_policy(retry: Retry, sent: int, elapsed: float, asked: float, chance: float) -> None:
    pause = retry.pause(sent, elapsed, asked, chance)

    if pause is not None:
        assert asked <= pause <= asked + retry.longest
        assert elapsed + pause <= retry.total
        assert retry.attempts is None or sent < retry.attempts


@pytest.mark.parametrize("values", [{"attempts": 0}, {"total": -1.0}, {"first": -0.1}, {"longest": -1.0}])
def test_a_policy_that_cannot_be_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Retry(**values)  # type: ignore[arg-type]  # one value of each kind


@pytest.mark.parametrize(
    ("header", "asked"), [("", 0), ("7", 7), ("-1", 0), ("٣", 0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0)]
)
def test_seconds_are_read_from_the_header(header: str, asked: float) -> None:
    assert seconds_asked(Overloaded("busy", 503, "", header)) == asked
    assert seconds_asked(Unreachable("away")) == 0
