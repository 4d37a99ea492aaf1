"""The doctor's findings about a subscription, and about a service whose parts are inconsistent.

Only for states that requests can hardly reach; the others are rows of tests/contract/ours.py.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from ams.cluster.lease_table import OtherHolders
from ams.cluster.leases import MemoryLeases
from ams.core.errors import InvalidInput, LogUnavailable, TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import SubscriptionId, TopicId, new_topic_id, topic_id_text
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.core.retention_clock import RetentionClock
from ams.identity.issuer_keys import IssuerKeyCache
from ams.outgoing.address_guard import Guard
from ams.outgoing.client import HttpClient
from ams.push.report import RETRYING, STOPPED
from ams.service.doctor import Doctor
from ams.service.issuers import Issuers
from ams.service.push.assignment import Assignment
from ams.service.push.configurations import NoPushServer, Pushing, PushServer, PushWatcher
from ams.service.retention import LossTotal
from ams.service.service_doctor import MAX_NAMED, EngineIdentities, Inconsistencies, ServiceDoctor, inconsistencies
from ams.storage.cursors.base import TopicOffset
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.registry.registry import Registry
from ams.wire.push import Failure, WorkerState
from ams.wire.service import Diagnosis, Finding, Standing
from tests.service.interference import interrupt_call
from tests.support.clock import ManualClock
from tests.support.use_cases import SUB, TOPIC, UseCases, open_use_cases

WEEK = 7 * 86_400_000


def doctor_of(use_cases: UseCases, worker: WorkerState | None = None, server: PushServer | None = None) -> Doctor:
    """A doctor of a service with a scripted push worker."""
    engines = use_cases.engines
    leases = MemoryLeases(engines.clock, "own", OtherHolders(engines.registry))
    assignment = Assignment(engines.registry, leases, lambda _: worker)
    pushing = Pushing(engines.registry, True, server=server or NoPushServer(), assignment=assignment)
    watcher = PushWatcher(engines.registry, engines.log, engines.cursors, pushing, assignment)
    return Doctor(
        engines.registry, engines.log, engines.cursors, engines.counting, WEEK, engines.clock,
        RetentionClock(engines.clock), watcher,
    )  # fmt: skip


async def look(use_cases: UseCases) -> Diagnosis:
    return await doctor_of(use_cases).look(use_cases.caller, SUB)


async def standing_of(use_cases: UseCases) -> Standing:
    return (await look(use_cases)).standing


async def deliver(use_cases: UseCases, config: PushConfig) -> None:
    await use_cases.engines.registry.subscriptions.change(use_cases.caller.here.id, SUB, config=lambda _: config)


async def test_a_topic_made_again_is_looked_at_from_its_beginning(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    await use_cases.seeker.seek(use_cases.caller, SUB, 3)
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    await use_cases.publish(2)

    standing = await standing_of(use_cases)

    assert (standing.current, standing.backlog, standing.lost) == (0, 2, 0)


async def test_a_pull_is_known_after_it_was_stored_and_an_acknowledgement_too(use_cases: UseCases) -> None:
    with pytest.raises(InvalidInput):
        await use_cases.acknowledge([0])
    assert (await standing_of(use_cases)).last_acknowledgement_seconds_ago is None, "a refused one was none"
    await use_cases.publish(1)
    deliverer = use_cases.deliverer()
    await deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False)
    await use_cases.engines.counting.round()
    use_cases.engines.clock.advance(1_000)
    await deliverer.acknowledge(await deliverer.to_acknowledge(use_cases.caller, SUB), [0])
    use_cases.engines.clock.advance(500)

    standing = await standing_of(use_cases)

    assert (standing.last_pull_seconds_ago, standing.last_acknowledgement_seconds_ago) == (1.5, 0.5)
    assert (standing.handed_out, standing.handed_out_seconds_ago) == (0, None)


async def test_a_position_past_the_end_of_its_topic_is_told(use_cases: UseCases) -> None:
    """Only a log that lost acknowledged messages can cause one."""
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    await use_cases.publish(3)
    await use_cases.engines.cursors.create(subscription.id, topic.id, 5)

    diagnosis = await look(use_cases)

    assert diagnosis.standing is not None
    assert (diagnosis.standing.backlog, diagnosis.standing.current - diagnosis.standing.max) == (0, 2)
    assert diagnosis.findings[0] == Finding(
        True, "It stands past the end of its topic and will miss the next 2 messages: move it to the end."
    )  # fmt: skip


CONNECTION_REFUSED = Failure(time=0, what="send", detail="The connection was refused")
VERIFIED_CONFIG = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", verified=True)


FAILURE_TEXT = " 1970-01-01T00:00:00 - Could not send message, The connection was refused."


@pytest.mark.parametrize(("worker", "first"), [
    (WorkerState(phase=RETRYING, failure=CONNECTION_REFUSED),
     "Its messages do not get through, and are tried again:" + FAILURE_TEXT),
    (WorkerState(phase=STOPPED, failure=CONNECTION_REFUSED), "Its messages are not pushed any more:" + FAILURE_TEXT),
    (None, "Its messages are to be pushed to an endpoint, but there is no push server."),
])  # fmt: skip
async def test_it_tells_what_blocks_an_endpoint(use_cases: UseCases, worker: WorkerState | None, first: str) -> None:
    await deliver(use_cases, VERIFIED_CONFIG)
    assert (await doctor_of(use_cases, worker).look(use_cases.caller, SUB)).findings[0] == Finding(True, first)


async def test_of_a_subscription_that_is_delivered_nothing_is_wrong(use_cases: UseCases) -> None:
    """The worker holds the hand-out; a slow one is reported by the delivery state."""
    await deliver(use_cases, VERIFIED_CONFIG)
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
    class OtherPushServer(NoPushServer):
        async def status(self, path: str) -> str:
            return f"Subscription {path} is currently active"

    await deliver(use_cases, VERIFIED_CONFIG)

    found = await doctor_of(use_cases, server=OtherPushServer()).look(use_cases.caller, SUB)

    assert found.healthy
    said = "Of how its messages are pushed this is known: Subscription /projects/P/subscriptions/s is currently active."
    assert found.findings[0].text == said


T1, T2, T3 = (bytes([number]) * 16 for number in (1, 2, 3))
S1, S2, S3 = (f"sub-{number}" for number in (1, 2, 3))
NO_SUBSCRIPTIONS: frozenset[SubscriptionId] = frozenset()
NO_TOPICS: frozenset[TopicId] = frozenset()
SOUND_IDENTITIES = EngineIdentities(
    frozenset({T1, T2}), frozenset({S1, S2}), {S1: TopicOffset(T1, 5), S2: TopicOffset(T3, 9)},
    frozenset({T1, T2}), {T1: Bounds(2, 5), T2: Bounds(0, 0)},
)  # fmt: skip


def test_each_side_is_missed_by_the_other_and_what_fits_is_not_told() -> None:
    assert inconsistencies(SOUND_IDENTITIES) == Inconsistencies(
        NO_TOPICS, NO_TOPICS, NO_SUBSCRIPTIONS, NO_SUBSCRIPTIONS, NO_SUBSCRIPTIONS
    )
    held = SOUND_IDENTITIES._replace(
        topics=frozenset({T1, T3}), subscriptions=frozenset({S1, S3}),
        cursors={S1: TopicOffset(T1, 6), S2: TopicOffset(T1, 6)},
    )  # fmt: skip

    assert inconsistencies(held) == Inconsistencies(
        frozenset({T3}), frozenset({T2}), frozenset({S3}), frozenset({S2}), frozenset({S1})
    )


TOPIC_PATH, SUB_PATH = "projects/P/topics/t", "projects/P/subscriptions/s"
Removal = Callable[[str], str]


def removal_command(log: str) -> str:
    return f"the-tool --delete {log}"


def service_doctor_of(use_cases: UseCases, removal: Removal | None = None) -> ServiceDoctor:
    engines = use_cases.engines
    losses = LossTotal(engines.log, engines.cursors)
    return ServiceDoctor(engines.registry, engines.log, engines.cursors, losses, removal=removal, again_after=0.0)


async def look_at_service(use_cases: UseCases, removal: Removal | None = None) -> Sequence[Finding]:
    return await service_doctor_of(use_cases, removal).look()


async def lose(use_cases: UseCases, what: str) -> None:
    """Delete a resource, or its parent, in one store only."""
    log, cursors = use_cases.engines.log, use_cases.engines.cursors
    topic = (await use_cases.publisher.topic(use_cases.caller, TOPIC)).id
    subscription = (await use_cases.deliverer().to_pull(use_cases.caller, SUB)).id
    match what:
        case "log":
            await log.drop(topic)
        case "topic":
            await log.create(T1)
        case "cursor":
            await cursors.drop(subscription)
        case "subscription":
            await cursors.create(S1, topic, 99)
        case "messages":
            await cursors.create(subscription, topic, 4)
        case "copies":
            log.weak_topics = AsyncMock(return_value={topic: "on 1 broker instead of 3", new_topic_id(): "whatever"})


LOG_GONE = f"The log of {TOPIC_PATH} is gone with all its messages: "
NO_TOPIC = f"The log {topic_id_text(T1)} belongs to no topic: "
CURSOR_GONE = f"The position of {SUB_PATH} is gone, so nothing can be pulled from it: "
STRAY_CURSOR = "The cursor sub-1 belongs to no subscription; it does no harm."
CURSOR_PAST_THE_END = (
    f"{SUB_PATH} stands past the end of its topic and will miss what is published next: move it to the end."
)
FEW_COPIES = f"{TOPIC_PATH} is kept less safely than promised, so it is closed to publishers: on 1 broker instead of 3."


@pytest.mark.parametrize(("what", "alone", "with_others"), [
    ("log", LOG_GONE + "the next start of the service makes an empty one.",
     LOG_GONE + "delete the topic and make it again."),
    ("topic", NO_TOPIC + "the next start of the service removes it.",
     f"{NO_TOPIC}unless a topic is being made or a project deleted right now, remove it: the-tool"
     f" --delete {topic_id_text(T1)}"),
    ("cursor", CURSOR_GONE + "the next start of the service puts it at the oldest message kept.",
     CURSOR_GONE + "delete it and make it again."),
    ("subscription", STRAY_CURSOR, STRAY_CURSOR),
    ("messages", CURSOR_PAST_THE_END, CURSOR_PAST_THE_END),
    ("copies", FEW_COPIES, FEW_COPIES),
])  # fmt: skip
async def test_what_is_missing_is_told_with_what_to_do(use_cases: UseCases, what: str, alone: str, with_others: str):
    await use_cases.publish(3)
    assert await look_at_service(use_cases) == []

    await lose(use_cases, what)

    for removal, text in ((None, alone), (removal_command, with_others)):
        assert await look_at_service(use_cases, removal) == [Finding(what != "subscription", text)]


async def test_nobody_is_told_to_remove_the_logs_of_a_registry_that_was_lost(use_cases: UseCases, tmp_path: Path):
    with sqlite3.connect(tmp_path / "registry.db") as registry:
        registry.execute("DELETE FROM topics")
    text = "No topic is registered, but the log holds 1: if the registry was lost, restore it."
    assert await look_at_service(use_cases, removal_command) == [Finding(True, text)]


async def test_a_change_that_was_under_way_is_not_told(use_cases: UseCases) -> None:
    """Made directly in the stores, and completed before the second look."""
    await lose(use_cases, "topic")
    cursors, log = use_cases.engines.cursors, use_cases.engines.log
    with interrupt_call(cursors, "places", after=lambda: log.drop(T1)):
        assert await look_at_service(use_cases) == []


async def test_many_of_a_kind_are_counted_and_what_is_wrong_comes_first(use_cases: UseCases) -> None:
    await lose(use_cases, "subscription")
    for number in range(MAX_NAMED + 7):
        topic = f"t{number}"
        await use_cases.engines.topics.create(use_cases.caller, topic)
        await use_cases.engines.log.drop((await use_cases.publisher.topic(use_cases.caller, topic)).id)

    found = await look_at_service(use_cases)

    assert [each.wrong for each in found] == [True] * (MAX_NAMED + 1) + [False]
    assert found[-2:] == [Finding(True, "And 7 more topics whose logs are gone."), Finding(False, STRAY_CURSOR)]


async def test_a_log_that_does_not_answer_is_told_and_the_rest_besides(use_cases: UseCases) -> None:
    await lose(use_cases, "cursor")
    await use_cases.engines.log.close()

    away, gone = await look_at_service(use_cases)
    assert away.text.startswith("The log did not answer: ")
    assert gone.text.startswith(CURSOR_GONE)


async def test_a_registry_that_does_not_answer_leaves_no_logs_to_remove(use_cases: UseCases, tmp_path: Path) -> None:
    await lose(use_cases, "topic")
    with sqlite3.connect(tmp_path / "registry.db") as registry:
        registry.execute("ALTER TABLE topics RENAME TO elsewhere")

    assert await look_at_service(use_cases) == [
        Finding(True, "The registry did not answer: what depends on it was not looked at.")
    ]


async def test_why_an_engine_cannot_be_reached_is_told_once(use_cases: UseCases, monkeypatch: pytest.MonkeyPatch):
    """The embedded engines are always reachable; others report why they are not."""
    await use_cases.engines.log.close()
    monkeypatch.setattr(EmbeddedLog, "away", "no broker answers")
    monkeypatch.setattr(Registry, "away", "no server answers")

    assert [each.text for each in await look_at_service(use_cases)] == [
        "The registry cannot be reached: no server answers.", "The log cannot be reached: no broker answers.",
    ]  # fmt: skip


async def test_losses_are_told_and_nobody_can_do_anything_about_them(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    use_cases.engines.clock.advance(WEEK + 2_000)
    doctor = service_doctor_of(use_cases)
    await doctor.losses.look()

    text = "Messages that retention took before they were acknowledged, ever: 3."
    assert await doctor.look() == [Finding(False, text)]


async def test_a_leap_of_the_clock_is_told(use_cases: UseCases) -> None:
    doctor = replace(service_doctor_of(use_cases), leap=lambda: 8 * 24 * 3_600_000)
    [finding] = [each for each in await doctor.look() if "leapt" in each.text]
    assert finding.wrong
    assert "by 192 hours" in finding.text


async def test_refused_publishing_is_told_with_its_reason(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path, LogOptions(min_free_bytes=2**60, reserve_bytes=0)) as use_cases:
        with pytest.raises(LogUnavailable):
            await use_cases.publish(1)

        found = await look_at_service(use_cases)

    assert found == [Finding(True, f"Publishing is refused: free space is below min_free_bytes ({2**60}).")]


async def test_an_issuer_that_does_not_give_its_keys_is_told(use_cases: UseCases, tmp_path: Path) -> None:
    there = Issuer("there", "http://127.0.0.1:9", audiences=("ams",))
    away = replace(there, name="away")
    # Its guard forbids connections to the loopback.
    keys = IssuerKeyCache(HttpClient(Guard()), str(tmp_path / "issuers"), ManualClock())
    with pytest.raises(TokenRefused):
        await keys.key(away, None, "RS256")

    issuers = Issuers(use_cases.engines.registry, [there, away], keys)

    [finding] = await replace(service_doctor_of(use_cases), issuers=issuers).look()

    await keys.close()
    assert finding.wrong
    assert finding.text.startswith("Issuer away did not give its keys the last time it was asked (")
    assert finding.text.endswith("): its signed tokens are refused.")


@pytest.mark.parametrize(("minutes", "wrong"), [(2, False), (90, True)])
async def test_a_backup_that_keeps_retention_waiting_is_told(use_cases: UseCases, minutes: int, wrong: bool) -> None:
    doctor = replace(service_doctor_of(use_cases), copied_for=use_cases.engines.log.upkeep.kept_for)
    async with use_cases.engines.log.upkeep.keep_files():
        use_cases.engines.clock.advance(minutes * 60_000)
        [found] = await doctor.look()

    time = "1.5h" if wrong else "2m"
    assert found == Finding(
        wrong, f"A backup has been taken for {time}: until it is done or ended, retention removes nothing."
    )
    assert await doctor.look() == []
