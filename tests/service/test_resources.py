"""Projects, topics and subscriptions over the engines, where one request is not enough. Their routes: contract 7
to 9."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, CursorsUnavailable, LogUnavailable, NotFound, QuotaExceeded, Unusable
from ams.core.messages import message
from ams.core.names import TopicId, new_topic_id
from ams.core.quotas import STORED_BYTES
from ams.service.stored_bytes import StoredBytes
from ams.service.topics import Topics
from ams.storage.registry.records import Project, Subscription, Topic
from tests.service.interference import fail_calls
from tests.support.administration import make_project, make_user
from tests.support.engines import Engines, open_engines

T, S = "T", "S"
REFERENCE = "projects/P/topics/T"


async def fill_project(engines: Engines) -> tuple[Topic, Subscription]:
    caller = await engines.caller()
    return await engines.topics.create(caller, T), await engines.subscriptions.create(caller, S, REFERENCE)


async def is_empty(engines: Engines) -> bool:
    return not await engines.log.topics() and not await engines.cursors.places()


async def test_failed_drops_wait_for_a_start(engines: Engines, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = await fill_project(engines)
    await engines.topics.create(caller, "T2")
    drop = engines.log.drop

    async def fail_for_one(topic: TopicId) -> None:
        if topic == kept.id:
            raise LogUnavailable
        await drop(topic)

    monkeypatch.setattr(engines.log, "drop", fail_for_one)
    await engines.projects.delete(caller)

    assert await engines.log.topics() == {kept.id}


@pytest.mark.parametrize("error", [LogUnavailable, CursorsUnavailable])
async def test_deletions_need_neither_log_nor_cursors(engines: Engines, caller: Caller, error: type[Exception]) -> None:
    """As an error says that nothing has changed (contract 16). Found by seed 70 of the first `python -m simulation`."""
    await make_user(engines.registry, "anna")
    await fill_project(engines)

    with fail_calls(engines.log, "drop", error), fail_calls(engines.cursors, "drop", error):
        await engines.topics.delete(caller, T)
        await engines.subscriptions.delete(caller, S)

    for is_gone in (engines.topics.delete(caller, T), engines.subscriptions.delete(caller, S)):
        with pytest.raises(NotFound):
            await is_gone
    await engines.projects.sweep()
    assert await is_empty(engines)


async def test_a_sweep_drops_what_a_crash_left_and_nothing_else(engines: Engines) -> None:
    topic, subscription = await fill_project(engines)
    orphan = new_topic_id()
    await engines.log.create(orphan)
    await engines.cursors.create("orphan", orphan, 0)

    await engines.projects.sweep()

    assert (await engines.log.topics(), (await engines.cursors.places()).keys()) == ({topic.id}, {subscription.id})


async def test_a_crash_amid_a_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        project = await make_project(engines.registry)
        await make_user(engines.registry, "anna")
        await fill_project(engines)
        await engines.registry.projects.delete(project.id)  # and no further

    async with open_engines(tmp_path) as engines:
        assert len(await engines.log.topics()) == len(await engines.cursors.places()) == 1
        await engines.projects.sweep()
        assert await is_empty(engines)


async def test_a_lost_registry_does_not_lose_the_messages_too(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        await make_project(engines.registry)
        topic, _ = await fill_project(engines)
        await engines.log.append(topic.id, [message("aGk=")])
    for path in tmp_path.glob("registry.db*"):
        path.unlink()

    async with open_engines(tmp_path) as engines:
        with pytest.raises(Unusable, match=r"the registry is empty but the log is not \(topics: 1\)"):
            await engines.projects.sweep()
        assert (await engines.log.bounds(topic.id)).end == 1


async def test_u11_one_of_many_parallel_makers_wins_and_one_log_and_one_cursor_stay(engines: Engines, caller: Caller):
    topics = await asyncio.gather(*(engines.topics.create(caller, T) for _ in range(10)), return_exceptions=True)
    subscriptions = await asyncio.gather(
        *(engines.subscriptions.create(caller, S, REFERENCE) for _ in range(10)), return_exceptions=True
    )

    (topic,) = [outcome for outcome in topics if isinstance(outcome, Topic)]
    (subscription,) = [outcome for outcome in subscriptions if isinstance(outcome, Subscription)]
    for outcomes in (topics, subscriptions):
        assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 9
    assert (await engines.log.topics(), (await engines.cursors.places()).keys()) == ({topic.id}, {subscription.id})


async def test_a_project_deleted_meanwhile_is_not_found_and_gets_no_log(engines: Engines, caller: Caller) -> None:
    await engines.registry.projects.delete(caller.here.id)

    for work in (engines.projects.update(caller, description="late"), engines.topics.create(caller, T)):
        with pytest.raises(NotFound, match=r"^project doesn't exist$"):
            await work

    assert await is_empty(engines)


async def test_a_topic_and_a_subscription_beyond_a_quota_leave_nothing(engines: Engines, caller: Caller) -> None:
    topic, subscription = await fill_project(engines)
    await engines.registry.projects.change_quotas(caller.here.id, {"topics": 1, "subscriptions": 1})

    with pytest.raises(QuotaExceeded):
        await engines.topics.create(caller, "T2")
    with pytest.raises(QuotaExceeded):
        await engines.subscriptions.create(caller, "S2", REFERENCE)

    assert (await engines.log.topics(), (await engines.cursors.places()).keys()) == ({topic.id}, {subscription.id})


async def test_a_topic_deleted_meanwhile_leaves_no_cursor(engines: Engines, caller: Caller) -> None:
    await engines.log.drop((await engines.topics.create(caller, T)).id)

    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.subscriptions.create(caller, S, REFERENCE)

    assert await is_empty(engines)


async def test_u12_what_is_deleted_leaves_nothing(engines: Engines, caller: Caller) -> None:
    _, subscription = await fill_project(engines)

    await engines.topics.delete(caller, T)
    assert (await engines.log.topics(), (await engines.cursors.places()).keys()) == (set(), {subscription.id})

    await engines.subscriptions.delete(caller, S)
    assert await is_empty(engines)
    await fill_project(engines)
    await engines.projects.delete(caller)
    assert await is_empty(engines)


async def test_a_subscription_whose_cursor_was_lost_begins_again_at_the_oldest_message(engines: Engines) -> None:
    topic, subscription = await fill_project(engines)
    await engines.log.append(topic.id, [message("aGk=")] * 3)
    await engines.cursors.seek(subscription.id, topic.id, 3)
    await engines.cursors.drop(subscription.id)

    assert await engines.subscriptions.give_cursors() == 1

    assert (await engines.cursors.position(subscription.id, topic.id)).offset == 0
    assert await engines.subscriptions.give_cursors() == 0


async def test_a_push_server_follows_topics_that_have_subscriptions(engines: Engines, caller: Caller) -> None:
    """Push contract 15, P31."""
    followed: list[str] = []

    async def note_change() -> None:
        followed.append("topic" if await engines.registry.topics.find(caller.here.id, T) else "no topic")

    topics = Topics(engines.registry, engines.log, engines.counting, engines.retention, changed=note_change)
    await topics.create(caller, "other")
    await topics.delete(caller, "other")
    assert followed == []

    await topics.create(caller, T)
    await engines.subscriptions.create(caller, S, REFERENCE)
    await topics.delete(caller, T)
    await topics.create(caller, T)

    assert followed == ["no topic", "topic"]


async def test_stored_bytes_are_measured_every_minute_while_nothing_limits_them(engines: Engines, caller: Caller):
    topic = await engines.topics.create(caller, T)
    stored, sizes = StoredBytes(engines.registry, engines.log, engines.clock), []
    for seconds in (0, 0, 59, 1):
        await engines.log.append(topic.id, [message("aGk=")])
        engines.clock.advance(seconds * 1000)
        await stored.measure()
        sizes.append(stored.held_by(caller.project.id))

    assert 0 < sizes[0] == sizes[1] == sizes[2] < sizes[3]


async def test_a_changed_quota_holds_at_once(engines: Engines, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement read the old quota, and ends after the new one is in force."""
    project, projects = caller.project.id, engines.registry.projects
    stored = StoredBytes(engines.registry, engines.log, engines.clock)
    await projects.change_quotas(project, {STORED_BYTES: 60})
    await stored.measure()
    read, go_on, all_of = asyncio.Event(), asyncio.Event(), projects.all

    async def read_slowly() -> Sequence[Project]:
        found = await all_of()
        read.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(projects, "all", read_slowly)
    measuring = asyncio.create_task(stored.measure())
    await read.wait()
    stored.follow(project, {STORED_BYTES: 0})
    go_on.set()
    await measuring

    assert stored.limit(project) == 0
