"""A write or sync that fails: its group gets errors, its bytes never return, ids go on without holes."""

import asyncio
import errno
import random

import pytest

from ams.core.errors import LogUnavailable, OutcomeUnknown
from tests.storage.log.embedded.history import read_all
from tests.storage.log.engines import Embedded, all_fragments, fragments, new_topic, numbered, texts


@pytest.fixture
def engine() -> Embedded:
    return Embedded()


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_the_whole_group_gets_errors_and_its_ids_go_to_the_next_appends(engine: Embedded, call: str):
    log = await engine.open()
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
    await log.close()


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("ending", ["close", "kill", "power loss"])
async def test_failed_bytes_never_return(engine: Embedded, call: str, ending: str):
    log = await engine.open()
    topic = await new_topic(log)
    await log.append(topic, texts("before"))
    engine.disk.fail(call, where=".log")
    with pytest.raises(LogUnavailable):
        await log.append(topic, numbered(0, 100, size=900))
    after = await log.append(topic, texts("after"), key="k")

    await end(engine, log, ending)
    log = await engine.open()

    assert list((await read_all(log, topic)).values()) == fragments(texts("before", "after"))
    assert await log.append(topic, texts("after"), key="k") == after
    assert (await log.append(topic, texts("next"))).first == 2
    assert log.recovered.damage == ()
    await log.close()


async def test_failed_bytes_do_not_return_even_when_nothing_is_appended_after_them(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log")
    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("failed"))

    await end(engine, log, "kill")
    log = await engine.open()

    assert await read_all(log, topic) == {}
    await log.close()


async def test_while_no_new_segment_can_be_made_appends_fail_and_reads_go_on(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
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
    await log.close()


async def test_a_failed_create_or_drop_leaves_the_topic_as_it_was(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log")
    with pytest.raises(LogUnavailable):
        await log.drop(topic)
    engine.disk.fail("sync", where=".log")
    with pytest.raises(LogUnavailable):
        await new_topic(log)

    assert await log.topics() == {topic}
    assert (await log.append(topic, texts("a"))).first == 0
    await log.close()


async def test_a_keyed_append_that_failed_can_be_tried_again(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log")
    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("a"), key="k")

    assert (await log.append(topic, texts("a"), key="k")).first == 0
    assert (await log.append(topic, texts("a"), key="k")).first == 0
    await log.close()


async def test_a_seal_that_fails_is_tried_again_and_costs_nothing():
    engine = Embedded(options={"segment_bytes": 1000})
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", errno.EIO, where=".idx", times=10**6)
    for number in range(20):
        await log.append(topic, numbered(number, 1, size=200), key=f"{number}")
    with pytest.raises(LogUnavailable):
        await log.retain()
    assert engine.disk.paths(".idx") == []
    engine.disk.heal()

    await log.retain()

    assert engine.disk.paths(".idx")
    assert await all_fragments(log, topic) == fragments(numbered(0, 20, size=200))
    assert (await log.append(topic, numbered(3, 1, size=200), key="3")).first == 3
    await log.close()


async def test_when_the_disk_is_told_in_intervals_a_kill_loses_nothing_and_a_failed_sync_does_not_reorder():
    engine = Embedded(options={"sync": "interval", "sync_interval_ms": 50})
    log = await engine.open()
    topic = await new_topic(log)
    await log.append(topic, texts("a"))
    engine.disk.fail("sync", where=".log")
    engine.clock.advance(1000)
    await log.append(topic, texts("b"))
    await log.append(topic, texts("c"))
    assert await all_fragments(log, topic) == fragments(texts("a", "b", "c"))

    await end(engine, log, "kill")
    log = await engine.open()

    assert await all_fragments(log, topic) == fragments(texts("a", "b", "c"))
    await log.close()


async def test_a_failure_that_is_ruled_out_is_told_as_one_and_nothing_is_stored(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log")
    with pytest.raises(LogUnavailable) as refused:
        await log.append(topic, texts("refused"))
    assert not isinstance(refused.value, OutcomeUnknown)

    await end(engine, log, "kill")
    log = await engine.open()

    assert await read_all(log, topic) == {}
    await log.close()


@pytest.mark.parametrize("ending", ["kill", "power loss"])
async def test_a_failure_that_cannot_be_ruled_out_says_that_the_outcome_is_not_known(engine: Embedded, ending: str):
    """No successor could be begun that says where the failed bytes are: a restart may find them."""
    log = await engine.open()
    topic, other = await new_topic(log), await new_topic(log)
    await log.append(topic, texts("before"))
    engine.disk.fail("sync", where=".log", times=10**6)
    with pytest.raises(OutcomeUnknown, match="not known whether this was done; repeat it"):
        await log.append(topic, texts("in doubt"), key="k")
    for refused in (log.append(topic, texts("refused"), key="l"), log.drop(other)):
        with pytest.raises(LogUnavailable) as told:
            await refused
        assert not isinstance(told.value, OutcomeUnknown)

    await end(engine, log, ending)
    engine.disk.heal()
    log = await engine.open()

    assert await log.topics() == {topic, other}
    assert list((await read_all(log, topic)).values()) in (
        fragments(texts("before")),
        fragments(texts("before", "in doubt")),
    )
    assert (await log.append(topic, texts("in doubt"), key="k")).first == 1
    assert (await log.append(topic, texts("refused"), key="l")).first == 2
    assert await all_fragments(log, topic) == fragments(texts("before", "in doubt", "refused"))
    await log.close()


async def test_a_failed_append_that_is_repeated_under_its_key_before_the_restart_is_stored_once(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log", times=2)
    with pytest.raises(OutcomeUnknown):
        await log.append(topic, texts("a"), key="k")

    answer = await log.append(topic, texts("a"), key="k")
    await end(engine, log, "kill")
    log = await engine.open()

    assert await log.append(topic, texts("a"), key="k") == answer
    assert await all_fragments(log, topic) == fragments(texts("a"))
    await log.close()


async def test_a_drop_in_doubt_is_told_as_one_and_the_topic_stays_until_a_restart(engine: Embedded):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log", times=2)

    with pytest.raises(OutcomeUnknown):
        await log.drop(topic)

    assert await log.topics() == {topic}
    assert (await log.append(topic, texts("a"))).first == 0
    await log.close()


async def test_what_a_restart_found_after_a_failed_sync_survives_a_power_loss(engine: Embedded):
    """The system calls bytes clean whose sync failed: syncing them again, by whatever process, does nothing."""
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where=".log", times=10**6)
    with pytest.raises(OutcomeUnknown):
        await log.append(topic, numbered(0, 20, size=900))
    await end(engine, log, "kill")
    engine.disk.heal()
    log = await engine.open()
    served = await read_all(log, topic)
    assert len(served) == 20

    await end(engine, log, "power loss")
    log = await engine.open()

    assert await read_all(log, topic) == served
    await log.close()


async def test_a_file_is_not_used_on_after_a_failed_sync(engine: Embedded):
    """Another group of the same size would leave what was behind the first record where it is."""
    log = await engine.open()
    one, other = await new_topic(log), await new_topic(log)
    engine.disk.fail("sync", where=".log")
    await asyncio.gather(*(log.append(topic, texts("refused")) for topic in (one, other)), return_exceptions=True)
    await log.append(one, texts("stored"))

    await end(engine, log, "kill")
    log = await engine.open()

    assert await all_fragments(log, one) == fragments(texts("stored"))
    assert await read_all(log, other) == {}
    await log.close()


@pytest.mark.parametrize("call", ["sync", "sync_folder"])
async def test_a_new_segment_whose_sync_failed_is_not_used(engine: Embedded, call: str):
    log = await engine.open()
    topic = await new_topic(log)
    engine.disk.fail("sync", where="0001.log")
    engine.disk.fail(call, where="0002.log" if call == "sync" else "/7d")
    with pytest.raises(OutcomeUnknown):
        await log.append(topic, texts("in doubt"))
    assert (await log.append(topic, texts("a"))).first == 0

    await end(engine, log, "power loss")
    log = await engine.open()

    assert engine.disk.paths(".log") == [f"/log/7d/{number:016d}.log" for number in (1, 3)]
    assert await all_fragments(log, topic) == fragments(texts("a"))
    assert log.recovered.damage == ()
    await log.close()


@pytest.mark.parametrize("seed", range(5))
async def test_a_sync_that_fails_in_an_interval_costs_nothing_that_is_stored_after_it(seed: int):
    engine = Embedded(options={"sync": "interval", "sync_interval_ms": 0})
    engine.disk.changes = seed  # what the failed sync loses depends on it
    log = await engine.open()
    topic, other = await new_topic(log), await new_topic(log)
    engine.disk.fail("sync", where=".log")
    await log.append(topic, texts("lost"))
    await log.append(other, texts("kept"))
    await log.retain()  # by then the committer has synced

    await end(engine, log, "power loss")
    log = await engine.open()

    assert await all_fragments(log, other) == fragments(texts("kept"))
    await log.close()


async def end(engine: Embedded, log, ending: str) -> None:
    """End a log in order, as a kill would, or as a power loss would."""
    if ending != "close":
        engine.disk.stop_at = engine.disk.changes
    await log.close()
    if ending == "power loss":
        engine.disk.power_loss(random.Random(1))
    engine.disk.stop_at = None
