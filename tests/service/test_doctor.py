"""What the doctor says of states that are hard to reach by requests; the others are rows of tests/contract/ours.py."""

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import Offset
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.push.leases import MemoryLeases
from ams.push.report import RETRYING, STOPPED
from ams.service.doctor import Diagnosis, Doctor, Standing
from ams.service.push.assignment import Assignment
from ams.service.push.pushing import NoPushServer, Pushing, PushServer, PushWatcher
from ams.wire.push import Failure, WorkerState
from ams.wire.service import Finding
from tests.support.use_cases import SUB, TOPIC, UseCases

WEEK = Milliseconds(7 * 86_400_000)


def doctor_of(use_cases: UseCases, worker: WorkerState | None = None, server: PushServer | None = None) -> Doctor:
    """A doctor of a service in which a worker delivers as told."""
    engines = use_cases.engines
    assignment = Assignment(engines.registry, MemoryLeases(engines.clock, settled=False), lambda _: worker)
    pushing = Pushing(engines.registry, True, server=server or NoPushServer(), assignment=assignment)
    watcher = PushWatcher(engines.registry, engines.log, engines.cursors, pushing, assignment)
    return Doctor(engines.registry, engines.log, engines.cursors, engines.counting, WEEK, engines.clock, watcher)


async def look(use_cases: UseCases) -> Diagnosis:
    return await doctor_of(use_cases).look(use_cases.caller, SUB)


async def standing_of(use_cases: UseCases) -> Standing:
    standing = (await look(use_cases)).standing
    assert standing is not None
    return standing


async def deliver(use_cases: UseCases, config: PushConfig) -> None:
    await use_cases.engines.registry.subscriptions.change_push(use_cases.caller.here.id, SUB, lambda _: config, None)


async def test_a_topic_made_again_is_looked_at_from_its_beginning(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    await use_cases.seeker.seek(use_cases.caller, SUB, 3)
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    await use_cases.publish(2)

    standing = await standing_of(use_cases)

    assert (standing.current, standing.backlog, standing.lost) == (0, 2, 0)


async def test_a_pull_that_got_nothing_is_a_pull(use_cases: UseCases) -> None:
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    await use_cases.deliverer().pull(subscription, 1, wait=False)
    await use_cases.publish(1)

    assert (await look(use_cases)).healthy


async def test_a_pull_is_known_after_it_was_stored_and_an_acknowledgement_too(use_cases: UseCases) -> None:
    with pytest.raises(InvalidInput):
        await use_cases.acknowledge([0])
    assert (await standing_of(use_cases)).acknowledged_ago is None, "a refused one was none"
    await use_cases.publish(1)
    deliverer = use_cases.deliverer()
    await deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False)
    await use_cases.engines.counting.round()
    use_cases.engines.clock.advance(1_000)
    await deliverer.acknowledge(await deliverer.to_acknowledge(use_cases.caller, SUB), [0])
    use_cases.engines.clock.advance(500)

    standing = await standing_of(use_cases)

    assert (standing.pulled_ago, standing.acknowledged_ago, standing.hand_out) == (1_500, 500, None)


async def test_a_position_past_the_end_of_its_topic_is_told(use_cases: UseCases) -> None:
    """Only a log that lost messages it had acknowledged makes one."""
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    await use_cases.publish(3)
    await use_cases.engines.cursors.create(subscription.id, topic.id, Offset(5))

    diagnosis = await look(use_cases)

    assert diagnosis.standing is not None
    assert (diagnosis.standing.backlog, diagnosis.standing.ahead) == (0, 2)
    assert diagnosis.findings[0] == Finding(
        True, "It stands past the end of its topic and will miss the next 2 messages: move it to the end."
    )  # fmt: skip


REFUSED = Failure(time=0, what="send", detail="The connection was refused")
TO_DELIVER = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", verified=True)
PATH = "/projects/P/subscriptions/s"


SAID = " 1970-01-01T00:00:00 - Could not send message, The connection was refused."


@pytest.mark.parametrize(
    ("worker", "first"),
    [
        (WorkerState(phase=RETRYING, failure=REFUSED), "Its messages do not get through, and are tried again:" + SAID),
        (WorkerState(phase=STOPPED, failure=REFUSED), "Its messages are not pushed any more:" + SAID),
        (None, "Its messages are to be pushed to an endpoint, but there is no push server."),
    ],
)
async def test_what_keeps_messages_from_an_endpoint_is_told(
    use_cases: UseCases, worker: WorkerState | None, first: str
) -> None:
    await deliver(use_cases, TO_DELIVER)

    found = await doctor_of(use_cases, worker).look(use_cases.caller, SUB)

    assert found.findings[0] == Finding(True, first)


async def test_of_a_subscription_that_is_delivered_nothing_is_wrong(use_cases: UseCases) -> None:
    """A hand-out is that of whoever delivers: what takes long is told by the delivery."""
    await deliver(use_cases, TO_DELIVER)
    await use_cases.publish(2)
    deliverer = use_cases.deliverer()
    await deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False)
    use_cases.engines.clock.advance(20_000)

    found = await doctor_of(use_cases, WorkerState()).look(use_cases.caller, SUB)

    assert found.healthy
    assert [each.text for each in found.findings] == [
        "Its messages are pushed to an endpoint: only push workers and service_admins may pull."
    ]


async def test_what_a_push_server_elsewhere_says_of_itself_is_told_as_it_is(use_cases: UseCases) -> None:
    class Elsewhere(NoPushServer):
        async def status(self, path: str) -> str:
            return f"Subscription {path} is currently active"

    await deliver(use_cases, TO_DELIVER)
    doctor = doctor_of(use_cases, server=Elsewhere())

    found = await doctor.look(use_cases.caller, SUB)
    status = await doctor.watcher.look(use_cases.caller, SUB)

    assert found.healthy
    assert found.findings[0].text == (
        f"Of how its messages are pushed this is known: Subscription {PATH} is currently active."
    )
    assert (status.state, status.text) == ("unknown", f"Subscription {PATH} is currently active")
