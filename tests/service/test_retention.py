"""Retention: registry and log agree, whatever happens between them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.access.admission import Caller
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, LogUnavailable, NotFound
from ams.core.names import TopicId, TopicName
from ams.core.settings import MAX_RETENTION_SECONDS
from ams.service.retention import Retention
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines

T = TopicName("T")


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    async with open_engines(tmp_path) as opened:
        await make_project(opened.registry)
        yield opened


@pytest.fixture
async def caller(engines: Engines) -> Caller:
    return await engines.caller()


@pytest.fixture
def retention(engines: Engines) -> Retention:
    return engines.retention


async def kept(engines: Engines, name: TopicName = T) -> int | None:
    topic = await engines.topics.show(await engines.caller(), name)
    return await engines.log.retention(topic.id)


async def test_a_topic_has_its_own_time_then_its_projects(
    engines: Engines, caller: Caller, retention: Retention
) -> None:
    await engines.topics.create(caller, T)

    assert (await retention.of_topic(caller, T, 60)).retention == 60_000
    assert await kept(engines) == 60_000
    assert (await retention.of_project(caller, 3600)).retention == 3_600_000
    assert await kept(engines) == 60_000
    assert (await retention.of_topic(caller, T, 0)).retention is None
    assert await kept(engines) == 3_600_000
    await retention.of_project(caller, 0)
    assert await kept(engines) is None


async def test_a_new_topic_inherits(engines: Engines, caller: Caller, retention: Retention) -> None:
    await retention.of_project(caller, 60)

    await engines.topics.create(await engines.caller(), T)

    assert await kept(engines) == 60_000


async def test_a_topic_made_while_its_project_changes_inherits_the_new_time(
    engines: Engines, caller: Caller, retention: Retention
) -> None:
    """`caller` was admitted before the change."""
    names = [TopicName(f"t{number}") for number in range(20)]

    await asyncio.gather(
        *(engines.topics.create(caller, name) for name in names[:10]),
        retention.of_project(caller, 60),
        *(engines.topics.create(caller, name) for name in names[10:]),
    )

    assert [await kept(engines, name) for name in names] == [60_000] * 20


async def test_a_topic_follows_its_project_though_that_was_renamed(
    engines: Engines, caller: Caller, retention: Retention
) -> None:
    """`caller` was admitted under the old name, which another project has by now."""
    await retention.of_project(caller, 3600)
    await engines.topics.create(caller, T)
    await retention.of_topic(caller, T, 60)
    await engines.projects.update(caller, name="Q")
    await make_project(engines.registry)

    made = await engines.topics.create(caller, TopicName("new"))
    topic = await retention.of_topic(caller, T, 0)

    assert await engines.log.retention(topic.id) == 3_600_000
    assert await engines.log.retention(made.id) == 3_600_000


async def test_topics_made_while_their_project_changes_again_and_again_keep_what_the_registry_says(
    engines: Engines, caller: Caller, retention: Retention
) -> None:
    async def change() -> None:
        for seconds in range(1, 15):
            await retention.of_project(caller, seconds)

    async def create(maker: int) -> None:
        for number in range(10):
            name = TopicName(f"t{maker}-{number}")
            await engines.topics.create(caller, name)
            if number % 3 == 0:
                await retention.of_topic(caller, name, 0 if number % 2 else 100)

    await asyncio.gather(change(), *(create(maker) for maker in range(4)))

    told = {topic: await engines.log.retention(topic) for topic in await engines.log.topics()}
    assert told == await engines.registry.topics.retentions()


async def test_of_changes_at_once_registry_and_log_keep_the_same(
    engines: Engines, caller: Caller, retention: Retention
) -> None:
    await engines.topics.create(caller, T)

    await asyncio.gather(*(retention.of_topic(caller, T, seconds) for seconds in range(1, 30)))

    assert await kept(engines) == (await engines.topics.show(caller, T)).retention


async def test_what_a_crash_left_undone_is_done_at_the_next_start(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        await make_project(engines.registry)
        caller = await engines.caller()
        for name in ("own", "heir", "right"):
            await engines.topics.create(caller, TopicName(name))
        await engines.registry.topics.set_retention(caller.here.id, TopicName("own"), Milliseconds(60_000))
        await engines.registry.projects.set_retention(caller.here.id, Milliseconds(90_000))

    async with open_engines(tmp_path) as engines:
        retention = Retention(engines.registry, engines.log)
        assert await retention.settle() == 3
        assert await kept(engines, TopicName("own")) == 60_000
        assert await kept(engines, TopicName("heir")) == 90_000
        assert await retention.settle() == 0


async def test_a_log_that_cannot_write_is_told_and_trying_again_helps(
    engines: Engines, caller: Caller, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engines.topics.create(caller, T)

    async def failing(topic: TopicId, retention: Milliseconds | None) -> None:
        raise LogUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(engines.log, "set_retention", failing)
        with pytest.raises(LogUnavailable):
            await retention.of_topic(caller, T, 60)
    await retention.of_topic(caller, T, 60)

    assert await kept(engines) == 60_000


@pytest.mark.parametrize("seconds", [-1, MAX_RETENTION_SECONDS + 1])
async def test_what_cannot_be_kept_to_is_refused(caller: Caller, retention: Retention, seconds: int) -> None:
    with pytest.raises(InvalidInput, match="^Invalid retentionSeconds"):
        await retention.of_project(caller, seconds)


async def test_what_is_not_there_is_not_found(engines: Engines, caller: Caller, retention: Retention) -> None:
    with pytest.raises(NotFound, match="^Topic doesn't exist$"):
        await retention.of_topic(caller, T, 60)
    await engines.registry.projects.delete(caller.here.id)
    with pytest.raises(NotFound, match="^project doesn't exist$"):
        await retention.of_project(caller, 60)
