"""Administration of projects: HTTP contract 7 and 17.3 (U4, U12), and the sweep after a crash."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.errors import AlreadyExists, InvalidInput, LogUnavailable, NotFound, Unusable
from ams.core.messages import message
from ams.core.names import Offset, ProjectName, SubscriptionId, SubscriptionName, TopicId, TopicName, new_topic_id
from tests.support.administration import administrator, make_project, make_user
from tests.support.engines import Engines, open_engines

P, T, S = ProjectName("P"), TopicName("T"), SubscriptionName("S")


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    async with open_engines(tmp_path) as opened:
        yield opened


async def fill_project(engines: Engines) -> None:
    caller = await engines.caller()
    await engines.topics.create(caller, T)
    await engines.subscriptions.create(caller, S, "projects/P/topics/T")


async def test_a_project_is_made_as_asked(engines: Engines) -> None:
    caller = await administrator(engines.registry)

    made = await engines.projects.create(caller, P, "what for")

    assert (made.name, made.description, made.created_by) == ("P", "what for", "root")
    assert await engines.projects.show(await engines.caller()) == made
    with pytest.raises(AlreadyExists, match=r"^Project already exists$"):
        await engines.projects.create(caller, P)


async def test_they_are_listed_oldest_first(engines: Engines) -> None:
    assert list(await engines.projects.list()) == []
    for name in ("B", "A"):
        await make_project(engines.registry, name)

    assert [project.name for project in await engines.projects.list()] == ["B", "A"]


async def test_what_is_not_said_stays(engines: Engines) -> None:
    made = await engines.projects.create(await engines.caller(None), P, "what for")
    engines.clock.advance(2_000)

    same = await engines.projects.update(await engines.caller())
    described = await engines.projects.update(await engines.caller(), description="other")

    assert (same.name, same.description) == ("P", "what for")
    assert (described.name, described.description) == ("P", "other")
    assert described.modified_on == made.modified_on + 2_000


async def test_a_renamed_project_keeps_what_it_owns(engines: Engines) -> None:
    await make_project(engines.registry)
    await fill_project(engines)

    await engines.projects.update(await engines.caller(), name="Q")

    caller = await engines.caller("Q")
    assert (await engines.topics.show(caller, T)).name == "T"
    assert (await engines.subscriptions.show(caller, S)).topic == "T"
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await engines.caller("P")


async def test_a_new_name_must_be_free(engines: Engines) -> None:
    await make_project(engines.registry)
    await make_project(engines.registry, "Q")

    with pytest.raises(InvalidInput, match=r"^invalid project name change, name already exists$"):
        await engines.projects.update(await engines.caller(), name="Q")
    assert (await engines.projects.update(await engines.caller(), name="P")).name == "P"


@pytest.mark.parametrize("name", ["a/b", " ", "ä", "x" * 256])
async def test_a_new_name_keeps_the_rule_of_names(engines: Engines, name: str) -> None:
    """U4."""
    await make_project(engines.registry)

    with pytest.raises(InvalidInput, match=r"^Invalid project name$"):
        await engines.projects.update(await engines.caller(), name=name)


async def test_a_project_deleted_while_it_is_changed_is_not_found(engines: Engines) -> None:
    project = await make_project(engines.registry)
    caller = await engines.caller()
    await engines.registry.projects.delete(project.id)

    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await engines.projects.update(caller, description="late")


async def test_a_deleted_project_leaves_nothing(engines: Engines) -> None:
    """U12."""
    project = await make_project(engines.registry)
    await make_user(engines.registry, "anna", {project.id: ("consumer",)})
    await fill_project(engines)

    await engines.projects.delete(await engines.caller())

    assert await engines.log.topics() == set()
    assert await engines.cursors.subscriptions() == set()
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await engines.caller()


async def test_what_cannot_be_dropped_now_keeps_nothing_else(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_project(engines.registry)
    caller = await engines.caller()
    kept = await engines.topics.create(caller, T)
    await engines.topics.create(caller, TopicName("T2"))
    await engines.subscriptions.create(caller, S, "projects/P/topics/T")
    drop = engines.log.drop

    async def fail_for_one(topic: TopicId) -> None:
        if topic == kept.id:
            raise LogUnavailable
        await drop(topic)

    monkeypatch.setattr(engines.log, "drop", fail_for_one)
    with pytest.raises(LogUnavailable):
        await engines.projects.delete(caller)

    assert await engines.log.topics() == {kept.id}


async def test_a_sweep_drops_what_a_crash_left_and_nothing_else(engines: Engines) -> None:
    await make_project(engines.registry)
    await fill_project(engines)
    topics, cursors = await engines.log.topics(), await engines.cursors.subscriptions()
    orphan = new_topic_id()
    await engines.log.create(orphan)
    await engines.cursors.create(SubscriptionId("orphan"), orphan, Offset(0))

    await engines.projects.sweep()

    assert await engines.log.topics() == topics
    assert await engines.cursors.subscriptions() == cursors


async def test_a_crash_amid_a_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        project = await make_project(engines.registry)
        await make_user(engines.registry, "anna")
        await fill_project(engines)
        await engines.registry.projects.delete(project.id)  # and no further

    async with open_engines(tmp_path) as engines:
        assert len(await engines.log.topics()) == 1
        assert len(await engines.cursors.subscriptions()) == 1
        await engines.projects.sweep()
        assert await engines.log.topics() == set()
        assert await engines.cursors.subscriptions() == set()


async def test_a_lost_registry_does_not_lose_the_messages_too(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        await make_project(engines.registry)
        await fill_project(engines)
        (topic,) = await engines.log.topics()
        await engines.log.append(topic, [message("aGk=")])
    for path in tmp_path.glob("registry.db*"):
        path.unlink()

    async with open_engines(tmp_path) as engines:
        with pytest.raises(Unusable, match=r"the registry is empty but the log is not \(topics: 1\)"):
            await engines.projects.sweep()
        assert (await engines.log.bounds(topic)).end == 1


async def test_of_many_who_delete_a_project_one_is_told_it_is_done(engines: Engines) -> None:
    await make_project(engines.registry)
    callers = [await engines.caller() for _ in range(50)]

    outcomes = await asyncio.gather(*(engines.projects.delete(each) for each in callers), return_exceptions=True)

    assert outcomes.count(None) == 1
    assert {str(each) for each in outcomes if each is not None} == {"project doesn't exist"}
    assert {type(each) for each in outcomes if each is not None} == {NotFound}
