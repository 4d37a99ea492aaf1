"""What the doctor says of states that are hard to reach by requests; the others are rows of tests/contract/ours.py."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, NotFound
from ams.core.names import Offset, SubscriptionName
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.push.leases import MemoryLeases
from ams.push.report import RETRYING, STOPPED
from ams.service.doctor import Diagnosis, Doctor
from ams.service.push.assignment import Assignment
from ams.service.push.pushing import NoPushServer, Pushing, PushServer, PushWatcher
from ams.wire.push import Failure, WorkerState
from tests.support.house import SUB, TOPIC, House, open_house

WEEK = Milliseconds(7 * 86_400_000)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as made:
        yield made


def doctor_of(house: House, worker: WorkerState | None = None, server: PushServer | None = None) -> Doctor:
    """A doctor of a service in which a worker delivers as told."""
    engines = house.engines
    assignment = Assignment(engines.registry, MemoryLeases(engines.clock, settled=False), lambda _: worker)
    pushing = Pushing(engines.registry, True, server=server or NoPushServer(), assignment=assignment)
    watcher = PushWatcher(engines.registry, engines.log, engines.cursors, pushing, assignment)
    return Doctor(engines.registry, engines.log, engines.cursors, engines.counting, WEEK, engines.clock, watcher)


async def look(house: House) -> Diagnosis:
    return await doctor_of(house).look(house.caller, SUB)


async def deliver(house: House, config: PushConfig) -> None:
    await house.engines.registry.subscriptions.change_push(house.caller.here.id, SUB, lambda _: config, None)


async def test_a_topic_made_again_is_looked_at_from_its_beginning(house: House) -> None:
    await house.publish(3)
    await house.seeker.seek(house.caller, SUB, 3)
    await house.engines.topics.delete(house.caller, TOPIC)
    await house.engines.topics.create(house.caller, TOPIC)
    await house.publish(2)

    standing = (await look(house)).standing

    assert standing is not None
    assert (standing.current, standing.backlog, standing.lost) == (0, 2, 0)


async def test_a_loss_nobody_has_met_yet_is_told_and_not_counted_twice(house: House) -> None:
    await house.publish(3)
    house.engines.clock.advance(WEEK + 2_000)
    await house.publish(1, first=3)
    before = (await look(house)).standing
    subscription = await house.deliverer().to_pull(house.caller, SUB)
    await house.deliverer().pull(subscription, 1, wait=False)
    after = (await look(house)).standing

    assert before is not None
    assert after is not None
    assert (before.lost, after.lost) == (3, 3)


async def test_what_is_wrong_comes_first(house: House) -> None:
    await house.publish(1)

    found = (await look(house)).findings

    assert [finding.wrong for finding in found] == [True, False]


async def test_a_pull_that_got_nothing_is_a_pull(house: House) -> None:
    subscription = await house.deliverer().to_pull(house.caller, SUB)
    await house.deliverer().pull(subscription, 1, wait=False)
    await house.publish(1)

    assert (await look(house)).healthy


async def test_a_pull_is_known_after_it_was_stored_and_an_acknowledgement_too(house: House) -> None:
    await house.publish(1)
    deliverer = house.deliverer()
    await deliverer.pull(await deliverer.to_pull(house.caller, SUB), 1, wait=False)
    await house.engines.counting.round()
    house.engines.clock.advance(1_000)
    await deliverer.acknowledge(await deliverer.to_acknowledge(house.caller, SUB), [0])
    house.engines.clock.advance(500)

    standing = (await look(house)).standing

    assert standing is not None
    assert (standing.pulled_ago, standing.acknowledged_ago, standing.hand_out) == (1_500, 500, None)


async def test_a_refused_acknowledgement_was_none(house: House) -> None:
    with pytest.raises(InvalidInput):
        await house.acknowledge([0])

    standing = (await look(house)).standing

    assert standing is not None
    assert standing.acknowledged_ago is None


async def test_after_an_idle_hour_nobody_consumes(house: House) -> None:
    subscription = await house.deliverer().to_pull(house.caller, SUB)
    await house.deliverer().pull(subscription, 1, wait=False)
    await house.publish(1)
    house.engines.clock.advance(3_600_000)

    diagnosis = await look(house)

    assert diagnosis.findings[0] == (True, "1 message waits, and the last pull was 1h ago.")


async def test_a_position_past_the_end_of_its_topic_is_told(house: House) -> None:
    """Only a log that lost messages it had acknowledged makes one."""
    subscription = await house.deliverer().to_pull(house.caller, SUB)
    topic = await house.publisher.topic(house.caller, TOPIC)
    await house.publish(3)
    await house.engines.cursors.create(subscription.id, topic.id, Offset(5))

    diagnosis = await look(house)

    assert diagnosis.standing is not None
    assert (diagnosis.standing.backlog, diagnosis.standing.ahead) == (0, 2)
    assert diagnosis.findings[0] == (
        True, "It stands past the end of its topic and will miss the next 2 messages: move it to the end."
    )  # fmt: skip


async def test_an_unknown_subscription_is_not_found(house: House) -> None:
    with pytest.raises(NotFound, match="^Subscription doesn't exist$"):
        await doctor_of(house).look(house.caller, SubscriptionName("none"))


REFUSED = Failure(time=0, what="send", detail="The connection was refused")
TO_DELIVER = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", verified=True)
PATH = "/projects/P/subscriptions/s"


@pytest.mark.parametrize(
    ("worker", "first"),
    [
        (
            WorkerState(phase=RETRYING, failure=REFUSED),
            "Its messages do not get through, and are tried again:"
            " 1970-01-01T00:00:00 - Could not send message, The connection was refused.",
        ),
        (
            WorkerState(phase=STOPPED, failure=REFUSED),
            "Its messages are not pushed any more:"
            " 1970-01-01T00:00:00 - Could not send message, The connection was refused.",
        ),
        (None, "Its messages are to be pushed to an endpoint, and nobody does: no push server is there."),
    ],
)
async def test_what_keeps_messages_from_an_endpoint_is_told(
    house: House, worker: WorkerState | None, first: str
) -> None:
    await deliver(house, TO_DELIVER)

    found = await doctor_of(house, worker).look(house.caller, SUB)

    assert found.findings[0] == (True, first)


async def test_of_a_subscription_that_is_delivered_nothing_is_wrong(house: House) -> None:
    """A hand-out is that of whoever delivers: what takes long is told by the delivery."""
    await deliver(house, TO_DELIVER)
    await house.publish(2)
    deliverer = house.deliverer()
    await deliverer.pull(await deliverer.to_pull(house.caller, SUB), 1, wait=False)
    house.engines.clock.advance(20_000)

    found = await doctor_of(house, WorkerState()).look(house.caller, SUB)

    assert found.healthy
    assert [each.text for each in found.findings] == [
        "Its messages are pushed to an endpoint: only push workers and service_admins may pull."
    ]


async def test_what_a_push_server_elsewhere_says_of_itself_is_told_as_it_is(house: House) -> None:
    class Elsewhere(NoPushServer):
        async def status(self, path: str) -> str:
            return f"Subscription {path} is currently active"

    await deliver(house, TO_DELIVER)
    doctor = doctor_of(house, server=Elsewhere())

    found = await doctor.look(house.caller, SUB)
    status = await doctor.watcher.look(house.caller, SUB)

    assert found.healthy
    assert found.findings[0].text == (
        f"Of how its messages are pushed this is known: Subscription {PATH} is currently active."
    )
    assert (status.state, status.text) == ("unknown", f"Subscription {PATH} is currently active")


async def test_an_endpoint_that_is_not_verified_is_told(house: House) -> None:
    await deliver(house, replace(TO_DELIVER, verified=False))

    found = await look(house)

    assert found.findings[0] == (True, "Its push endpoint is not verified: nothing is delivered before it is.")
