"""A write or sync that fails: its group gets errors, its bytes never return, ids go on without holes."""

import asyncio
import errno
import random

import pytest

from ams.errors import LogUnavailable
from tests.log.embedded.history import read_all
from tests.log.engines import Embedded, all_fragments, fragments, new_topic, numbered, texts


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


async def end(engine: Embedded, log, ending: str) -> None:
    """End a log in order, as a kill would, or as a power loss would."""
    if ending != "close":
        engine.disk.stop_at = engine.disk.changes
    await log.close()
    if ending == "power loss":
        engine.disk.power_loss(random.Random(1))
    engine.disk.stop_at = None
