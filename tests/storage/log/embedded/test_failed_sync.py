"""A failed write or sync: its group gets errors, its bytes never return, and ids continue without gaps."""

import asyncio
import errno

import pytest

from ams.core.errors import LogUnavailable, OutcomeUnknown
from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.embedded.history import read_all, reopen_log
from tests.storage.log.engines import Embedded, all_fragments, fragments, make_messages, new_topic, texts


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_a_failed_group_gets_errors_and_its_ids_go_to_the_next(engine: Embedded, call: str, log: EmbeddedLog):
    one, other = await new_topic(log), await new_topic(log)
    await log.append(one, texts("before"))
    engine.disk.fail(call, where=".log")

    answers = await asyncio.gather(
        *(log.append(topic, texts("failed")) for topic in (one, other, one)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [LogUnavailable] * 3
    assert (await log.append(one, texts("after"))).first == 1
    assert (await log.append(other, texts("after"))).first == 0
    assert await all_fragments(log, one) == fragments(texts("before", "after"))


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("ending", ["close", "kill", "power loss"])
async def test_failed_bytes_never_return(engine: Embedded, call: str, ending: str, log: EmbeddedLog, topic: TopicId):
    await log.append(topic, texts("before"))
    engine.disk.fail(call, where=".log")
    with pytest.raises(LogUnavailable):
        await log.append(topic, make_messages(0, 100, size=900))
    after = await log.append(topic, texts("after"), key="k")

    log = await reopen_log(engine, log, ending)

    assert list((await read_all(log, topic)).values()) == fragments(texts("before", "after"))
    assert await log.append(topic, texts("after"), key="k") == after
    assert ((await log.append(topic, texts("next"))).first, log.damage) == (2, ())


async def test_without_a_new_segment_appends_fail_and_reads_go_on(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    await log.append(topic, texts("before"))
    engine.disk.fail("sync", times=10**6)

    for _ in range(3):
        with pytest.raises(LogUnavailable):
            await log.append(topic, texts("failed"))
    assert log.refusal
    assert await all_fragments(log, topic) == fragments(texts("before"))

    engine.disk.heal()
    assert (await log.append(topic, texts("after"))).first == 1
    assert log.refusal is None
    await log.close()
    log = await engine.open()
    assert await all_fragments(log, topic) == fragments(texts("before", "after"))


async def test_a_failed_create_or_drop_leaves_the_topic_as_it_was(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    for times, error, call in (
        (1, LogUnavailable, log.drop(topic)), (1, LogUnavailable, new_topic(log)), (2, OutcomeUnknown, log.drop(topic)),
    ):  # fmt: skip
        engine.disk.fail("sync", where=".log", times=times)
        with pytest.raises(error):
            await call

    assert (await log.topics(), (await log.append(topic, texts("a"))).first) == ({topic}, 0)


async def test_a_seal_that_fails_is_tried_again_and_costs_nothing(engine: Embedded) -> None:
    engine.options.update(segment_bytes=1000)
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", errno.EIO, where=".idx", times=10**6)
    for number in range(20):
        await log.append(topic, make_messages(number, 1, size=200), key=f"{number}")
    with pytest.raises(LogUnavailable):
        await log.retain()
    assert engine.disk.paths(".idx") == []
    engine.disk.heal()

    await log.retain()

    assert engine.disk.paths(".idx")
    assert await all_fragments(log, topic) == fragments(make_messages(0, 20, size=200))
    assert (await log.append(topic, make_messages(3, 1, size=200), key="3")).first == 3


async def test_in_intervals_a_kill_loses_nothing_and_a_failed_sync_reorders_nothing(engine: Embedded) -> None:
    engine.options.update(sync="interval", sync_interval_ms=50)
    log = await engine.open()
    topic = await new_topic(log)
    await log.append(topic, texts("a"))
    engine.disk.fail("sync", where=".log")
    engine.clock.advance(1000)
    await log.append(topic, texts("b"))
    await log.append(topic, texts("c"))
    assert await all_fragments(log, topic) == fragments(texts("a", "b", "c"))

    log = await reopen_log(engine, log, "kill")

    assert await all_fragments(log, topic) == fragments(texts("a", "b", "c"))


@pytest.mark.parametrize("ending", ["kill", "power loss"])
async def test_a_failure_not_ruled_out_is_an_unknown_outcome(engine: Embedded, ending: str, log: EmbeddedLog) -> None:
    """No successor could be created that records where the failed bytes are: a restart may find them."""
    topic, other = await new_topic(log), await new_topic(log)
    await log.append(topic, texts("before"))
    engine.disk.fail("sync", where=".log", times=10**6)
    with pytest.raises(OutcomeUnknown, match="not known whether this was done; repeat it"):
        await log.append(topic, texts("in doubt"), key="k")
    for refused in (log.append(topic, texts("refused"), key="l"), log.drop(other)):
        with pytest.raises(LogUnavailable) as told:
            await refused
        assert not isinstance(told.value, OutcomeUnknown)

    log = await reopen_log(engine, log, ending)

    assert await log.topics() == {topic, other}
    assert list((await read_all(log, topic)).values()) in (
        fragments(texts("before")), fragments(texts("before", "in doubt")),
    )  # fmt: skip
    assert (await log.append(topic, texts("in doubt"), key="k")).first == 1
    assert (await log.append(topic, texts("refused"), key="l")).first == 2
    assert await all_fragments(log, topic) == fragments(texts("before", "in doubt", "refused"))


@pytest.mark.parametrize(("times", "error"), [(1, LogUnavailable), (2, OutcomeUnknown)], ids=["refused", "in doubt"])
async def test_a_failed_append_repeated_under_its_key_is_stored_once(
    engine: Embedded, times: int, error: type[LogUnavailable], log: EmbeddedLog, topic: TopicId
) -> None:
    engine.disk.fail("sync", where=".log", times=times)
    with pytest.raises(error):
        await log.append(topic, texts("a"), key="k")

    answer = await log.append(topic, texts("a"), key="k")
    assert answer.first == 0
    assert await log.append(topic, texts("a"), key="k") == answer
    log = await reopen_log(engine, log, "kill")

    assert await log.append(topic, texts("a"), key="k") == answer
    assert await all_fragments(log, topic) == fragments(texts("a"))


async def test_what_a_restart_found_after_a_failed_sync_survives(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    """The kernel marks pages clean after a failed sync: another sync of them, by any process, does nothing."""
    engine.disk.fail("sync", where=".log", times=10**6)
    with pytest.raises(OutcomeUnknown):
        await log.append(topic, make_messages(0, 20, size=900))
    log = await reopen_log(engine, log, "kill")
    served = await read_all(log, topic)
    assert len(served) == 20

    log = await reopen_log(engine, log, "power loss")

    assert await read_all(log, topic) == served


async def test_a_file_is_not_used_on_after_a_failed_sync(engine: Embedded, log: EmbeddedLog) -> None:
    """A retry of the same size would leave old bytes after the first record in place."""
    one, other = await new_topic(log), await new_topic(log)
    engine.disk.fail("sync", where=".log")
    await asyncio.gather(*(log.append(topic, texts("refused")) for topic in (one, other)), return_exceptions=True)
    await log.append(one, texts("stored"))

    log = await reopen_log(engine, log, "kill")

    assert await all_fragments(log, one) == fragments(texts("stored"))
    assert await read_all(log, other) == {}


@pytest.mark.parametrize("call", ["sync", "sync_folder"])
async def test_a_segment_without_a_first_sync_is_unused(engine: Embedded, call: str, log: EmbeddedLog, topic: TopicId):
    engine.disk.fail("sync", where="0001.log")
    engine.disk.fail(call, where="0002.log" if call == "sync" else "/7d")
    with pytest.raises(OutcomeUnknown):
        await log.append(topic, texts("in doubt"))
    assert (await log.append(topic, texts("a"))).first == 0

    log = await reopen_log(engine, log, "power loss")

    assert engine.disk.paths(".log") == [f"/log/7d/{number:016d}.log" for number in (1, 3)]
    assert (await all_fragments(log, topic), log.damage) == (fragments(texts("a")), ())


@pytest.mark.parametrize("seed", range(5))
async def test_a_sync_that_fails_in_an_interval_costs_nothing_that_is_stored_after_it(engine: Embedded, seed: int):
    engine.options.update(sync="interval", sync_interval_ms=0)
    engine.disk.changes = seed  # what the failed sync loses depends on it
    log = await engine.open()
    topic, other = await new_topic(log), await new_topic(log)
    engine.disk.fail("sync", where=".log")
    await log.append(topic, texts("lost"))
    await log.append(other, texts("kept"))
    await log.retain()  # by then the committer has synced

    log = await reopen_log(engine, log, "power loss")

    assert await all_fragments(log, other) == fragments(texts("kept"))
