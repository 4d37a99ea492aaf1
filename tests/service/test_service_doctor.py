"""What fits together and what does not, on made-up engines' contents."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import LogUnavailable, TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName, Offset, SubscriptionId, TopicId, TopicName, new_topic_id, topic_id_text
from ams.identity.keys import Keys
from ams.outgoing.client import HttpClient
from ams.outgoing.guard import Guard
from ams.service.issuers import Issuers
from ams.service.retention import LossTotal
from ams.service.service_doctor import (
    ALONE,
    NAMED,
    Held,
    Inconsistencies,
    Remedies,
    ServiceDoctor,
    inconsistencies,
    shared,
)
from ams.storage.cursors.base import TopicOffset
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.log.kafka.partition import partition_in
from ams.wire.service import Finding
from tests.storage.log.engines import Kafka
from tests.storage.log.kafka.stored import change_topic
from tests.support.use_cases import SUB, TOPIC, UseCases, open_use_cases

T1, T2, T3 = (TopicId(bytes([number]) * 16) for number in (1, 2, 3))
S1, S2, S3 = (SubscriptionId(f"sub-{number}") for number in (1, 2, 3))
NOBODY: frozenset[SubscriptionId] = frozenset()
NOTHING: frozenset[TopicId] = frozenset()
BOUNDS = {T1: Bounds(Offset(2), Offset(5)), T2: Bounds(Offset(0), Offset(0))}
WELL = Held(
    frozenset({T1, T2}), frozenset({S1, S2}), {S1: TopicOffset(T1, Offset(5)), S2: TopicOffset(T3, Offset(9))},
    frozenset({T1, T2}),
    BOUNDS,
)  # fmt: skip
NONE = Inconsistencies(NOTHING, NOTHING, NOBODY, NOBODY, NOBODY)


def test_what_fits_is_not_told_nor_is_a_cursor_on_a_topic_that_is_gone() -> None:
    assert inconsistencies(WELL) == NONE


def test_each_side_is_missed_by_the_other() -> None:
    held = WELL._replace(
        topics=frozenset({T1, T3}),
        subscriptions=frozenset({S1, S3}),
        cursors={S1: TopicOffset(T1, Offset(6)), S2: TopicOffset(T1, Offset(6))},
    )

    assert inconsistencies(held) == Inconsistencies(
        frozenset({T3}), frozenset({T2}), frozenset({S3}), frozenset({S2}), frozenset({S1})
    )


def test_what_could_not_be_asked_fits() -> None:
    for engine in ({"topics": None, "subscriptions": None}, {"logs": None, "bounds": None}, {"cursors": None}):
        held = Held(frozenset({T1}), frozenset({S1}), {S1: TopicOffset(T1, Offset(0))}, frozenset({T1}), BOUNDS)

        assert inconsistencies(held._replace(**engine)) == NONE


def test_only_what_both_looks_found_counts() -> None:
    first = Inconsistencies(frozenset({T1, T2}), frozenset({T3}), frozenset({S1}), NOBODY, frozenset({S2, S3}))
    second = Inconsistencies(frozenset({T2, T3}), NOTHING, frozenset({S1}), frozenset({S2}), frozenset({S3}))

    assert first.both(second) == Inconsistencies(frozenset({T2}), NOTHING, frozenset({S1}), NOBODY, frozenset({S3}))


WEEK = 7 * 86_400_000
TOPIC_PATH, SUB_PATH = "projects/P/topics/t", "projects/P/subscriptions/s"
CLUSTER = shared(lambda log: f"the-tool --delete {log}")


def doctor_of(use_cases: UseCases, remedies: Remedies = ALONE) -> ServiceDoctor:
    engines = use_cases.engines
    losses = LossTotal(engines.log, engines.cursors)
    return ServiceDoctor(engines.registry, engines.log, engines.cursors, losses, remedies=remedies, again_after=0.0)


async def look(use_cases: UseCases, remedies: Remedies = ALONE) -> Sequence[Finding]:
    return await doctor_of(use_cases, remedies).look()


async def topic_of(use_cases: UseCases) -> TopicId:
    return (await use_cases.publisher.topic(use_cases.caller, TOPIC)).id


async def subscription_of(use_cases: UseCases) -> SubscriptionId:
    return (await use_cases.deliverer().to_pull(use_cases.caller, SUB)).id


async def lose(use_cases: UseCases, what: str) -> None:
    """Lose something behind the others' backs, or what it belongs to."""
    log, cursors = use_cases.engines.log, use_cases.engines.cursors
    topic, subscription = await topic_of(use_cases), await subscription_of(use_cases)
    match what:
        case "log":
            await log.drop(topic)
        case "topic":
            await log.create(T1)
        case "cursor":
            await cursors.drop(subscription)
        case "subscription":
            await cursors.create(S1, topic, Offset(99))
        case "messages":
            await cursors.create(subscription, topic, Offset(4))


LOG_GONE = f"The log of {TOPIC_PATH} is gone with all its messages: "
NO_TOPIC = f"The log {topic_id_text(T1)} belongs to no topic: "
CURSOR_GONE = f"The position of {SUB_PATH} is gone, so nothing can be pulled from it: "
STRAY = "The cursor sub-1 belongs to no subscription; it does no harm."
PAST_THE_END = f"{SUB_PATH} stands past the end of its topic and will miss what is published next: move it to the end."


@pytest.mark.parametrize(
    ("what", "alone", "with_others"),
    [
        (
            "log",
            Finding(True, LOG_GONE + "the next start of the service makes an empty one."),
            Finding(True, LOG_GONE + "delete the topic and make it again."),
        ),
        (
            "topic",
            Finding(True, NO_TOPIC + "the next start of the service removes it."),
            Finding(True, f"{NO_TOPIC}unless a topic is being made or a project deleted right now, remove it: the-tool"
             f" --delete {topic_id_text(T1)}"),
        ),
        (
            "cursor",
            Finding(True, CURSOR_GONE + "the next start of the service puts it at the oldest message kept."),
            Finding(True, CURSOR_GONE + "delete it and make it again."),
        ),
        ("subscription", Finding(False, STRAY), Finding(False, STRAY)),
        ("messages", Finding(True, PAST_THE_END), Finding(True, PAST_THE_END)),
    ],
)  # fmt: skip
async def test_what_is_missing_is_told_with_what_to_do(
    use_cases: UseCases, what: str, alone: Finding, with_others: Finding
) -> None:
    await use_cases.publish(3)
    assert await look(use_cases) == []

    await lose(use_cases, what)

    assert (await look(use_cases), await look(use_cases, CLUSTER)) == ([alone], [with_others])


async def test_what_is_told_to_be_done_helps(use_cases: UseCases) -> None:
    await lose(use_cases, "log")
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    assert await look(use_cases) == []
    assert await use_cases.publish(3) == 0

    await lose(use_cases, "messages")
    await use_cases.seeker.seek(use_cases.caller, SUB, 3)
    assert await look(use_cases) == []


async def test_nobody_is_told_to_remove_the_logs_of_a_registry_that_was_lost(
    use_cases: UseCases, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "registry.db") as registry:
        registry.execute("DELETE FROM topics")

    text = "No topic is registered, but the log holds 1: if the registry was lost, restore it."
    assert await look(use_cases, CLUSTER) == [Finding(True, text)]


async def test_a_change_that_was_under_way_is_not_told(use_cases: UseCases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made behind the registry's back, and put in order before the second look."""
    await lose(use_cases, "topic")
    cursors, looks = use_cases.engines.cursors, 0
    places = cursors.places

    async def in_order_by_then() -> Mapping[SubscriptionId, TopicOffset]:
        nonlocal looks
        looks += 1
        if looks == 2:
            await use_cases.engines.log.drop(T1)
        return await places()

    monkeypatch.setattr(cursors, "places", in_order_by_then)

    assert (await look(use_cases), looks) == ([], 2)


async def test_topics_kept_less_safely_than_promised_are_told(
    use_cases: UseCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded log keeps all alike; another one may not."""
    topic = await topic_of(use_cases)

    async def weak(_: EmbeddedLog) -> Mapping[TopicId, str]:
        return {topic: "on 1 broker instead of 3", new_topic_id(): "whatever"}

    monkeypatch.setattr(EmbeddedLog, "weak", weak)

    assert await look(use_cases) == [
        Finding(True, f"{TOPIC_PATH} is kept less safely than promised, so it is closed to publishers:"
         " on 1 broker instead of 3.")
    ]  # fmt: skip


async def test_losses_are_told_and_nobody_can_do_anything_about_them(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    use_cases.engines.clock.advance(WEEK + 2_000)
    doctor = doctor_of(use_cases)
    await doctor.losses.look()

    text = "Messages that retention took before they were acknowledged, ever: 3."
    assert await doctor.look() == [Finding(False, text)]


async def test_many_of_a_kind_are_counted_and_what_is_wrong_comes_first(use_cases: UseCases) -> None:
    await lose(use_cases, "subscription")
    for number in range(NAMED + 7):
        topic = TopicName(f"t{number}")
        await use_cases.engines.topics.create(use_cases.caller, topic)
        await use_cases.engines.log.drop((await use_cases.publisher.topic(use_cases.caller, topic)).id)

    found = await look(use_cases)

    assert [each.wrong for each in found] == [True] * (NAMED + 1) + [False]
    assert found[-2:] == [Finding(True, "And 7 more topics whose logs are gone."), Finding(False, STRAY)]


async def test_a_log_that_does_not_answer_is_told_and_the_rest_besides(use_cases: UseCases) -> None:
    await lose(use_cases, "cursor")
    await use_cases.engines.log.close()

    texts = [finding.text for finding in await look(use_cases)]
    assert texts[0].startswith("The log did not answer: ")
    assert texts[1].startswith(CURSOR_GONE)


async def test_a_registry_that_does_not_answer_leaves_no_logs_to_remove(use_cases: UseCases, tmp_path: Path) -> None:
    await lose(use_cases, "topic")
    with sqlite3.connect(tmp_path / "registry.db") as registry:
        registry.execute("ALTER TABLE topics RENAME TO elsewhere")

    assert await look(use_cases) == [
        Finding(True, "The registry did not answer: what depends on it was not looked at.")
    ]


async def test_why_an_engine_cannot_be_reached_is_told_once(
    use_cases: UseCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded engines are always within reach; others say why they are not."""
    await use_cases.engines.log.close()
    monkeypatch.setattr(EmbeddedLog, "away", "no broker answers")
    engines = use_cases.engines
    doctor = ServiceDoctor(
        engines.registry, engines.log, engines.cursors, LossTotal(engines.log, engines.cursors),
        away={"registry": lambda: "no server answers", "cursors": lambda: None},
    )  # fmt: skip

    assert await doctor.look() == [
        Finding(True, "The registry cannot be reached: no server answers."),
        Finding(True, "The log cannot be reached: no broker answers."),
    ]


async def test_a_leap_of_the_clock_is_told(use_cases: UseCases) -> None:
    doctor = replace(doctor_of(use_cases), leap=lambda: Milliseconds(8 * 24 * 3_600_000))
    [finding] = [each for each in await doctor.look() if "leapt" in each.text]
    assert finding.wrong
    assert "by 192 hours" in finding.text


async def test_refused_publishing_is_told_with_its_reason(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path, LogOptions(min_free_bytes=2**60, reserve_bytes=0)) as use_cases:
        with pytest.raises(LogUnavailable):
            await use_cases.publish(1)

        found = await look(use_cases)

    assert found == [Finding(True, f"Publishing is refused: free space is below min_free_bytes ({2**60}).")]


async def test_an_issuer_that_does_not_give_its_keys_is_told(use_cases: UseCases, tmp_path: Path) -> None:
    there = Issuer(IssuerName("there"), "http://127.0.0.1:9", audiences=("ams",))
    away = replace(there, name=IssuerName("away"))
    # Its guard permits no connection to the loopback.
    keys = Keys(HttpClient(Guard()), str(tmp_path / "issuers"), ManualClock())
    with pytest.raises(TokenRefused):
        await keys.key(away, None, "RS256")

    found = await replace(doctor_of(use_cases), issuers=Issuers(use_cases.engines.registry, [there, away], keys)).look()

    await keys.close()
    [finding] = found
    assert finding.wrong
    assert finding.text.startswith("Issuer away did not give its keys the last time it was asked (")
    assert finding.text.endswith("): its signed tokens are refused.")


@pytest.mark.parametrize(("minutes", "wrong"), [(2, False), (90, True)])
async def test_a_backup_that_keeps_retention_waiting_is_told(use_cases: UseCases, minutes: int, wrong: bool) -> None:
    doctor = replace(doctor_of(use_cases), copied_for=use_cases.engines.log.kept_for)
    async with use_cases.engines.log.kept():
        use_cases.engines.clock.advance(minutes * 60_000)
        [found] = await doctor.look()

    time = "1.5h" if wrong else "2m"
    assert found == Finding(
        wrong, f"A backup has been taken for {time}: until it is done or ended, retention removes nothing."
    )
    assert await doctor.look() == []


@pytest.mark.long
async def test_what_was_done_behind_the_back_is_told_with_the_command_that_helps(
    use_cases: UseCases, kafka_servers: str
) -> None:
    """Topics of brokers that somebody changed; the registry has a topic whose log is not there."""
    await use_cases.engines.topics.create(use_cases.caller, TopicName("other"))
    engine = Kafka(kafka_servers)
    weak, orphan = await topic_of(use_cases), new_topic_id()
    registry, cursors = use_cases.engines.registry, use_cases.engines.cursors
    async with engine.opened() as log:
        await log.create(weak, label="P.t")
        await log.create(orphan, label="P.old")
        name = await log.name_of(orphan)
        where = partition_in(engine.prefix, await log.name_of(weak))
        assert where
        await change_topic(engine.servers, where, cleanup_policy="compact")
        doctor = ServiceDoctor(
            registry, log, cursors, LossTotal(log, cursors), shared(lambda log: f"remove {log}"), again_after=0.0
        )

        found = await doctor.look()

    assert name.startswith(f"{engine.prefix}.P.old.")
    assert [finding.text for finding in found if finding.wrong] == [
        f"{TOPIC_PATH} is kept less safely than promised, so it is closed to publishers: cleanup.policy is compact,"
        " not delete.",
        "The log of projects/P/topics/other is gone with all its messages: delete the topic and make it again.",
        f"The log {name} belongs to no topic: unless a topic is being made or a project deleted right now, remove it:"
        f" remove {name}",
    ]
