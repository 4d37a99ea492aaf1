"""Damaged bytes at every kind of place: never served, reported with file and position, and all others readable."""

import asyncio
import errno
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.errors import LogUnavailable, Unusable
from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog, check
from ams.storage.log.embedded.record import HEADER_BYTES
from ams.storage.log.embedded.segment import HEAD_BYTES
from ams.storage.log.embedded.segment_index import HEAD_BYTES as INDEX_HEAD
from ams.storage.log.embedded.segment_index import decode_head
from tests.storage.log.embedded.history import run_scenario
from tests.storage.log.engines import Embedded, all_fragments, append_each, fragments, make_messages, new_topic, texts

MESSAGES = 12
SIZE = 500


async def write_topic(engine: Embedded, *, sealed: bool) -> TopicId:
    """Make a folder with one topic whose messages, one to a record, have keys; in sealed segments or an open one."""
    engine.options["segment_bytes"] = 2000 if sealed else 10**6
    async with engine.open_log() as log:
        topic = await new_topic(log)
        for number in range(MESSAGES):
            await log.append(topic, make_messages(number, 1, size=SIZE), key=f"{number}")
        await log.retain()
    return topic


async def read_topic(log: EmbeddedLog, topic: TopicId) -> dict[int, bytes]:
    """Read a topic to its end, past missing messages."""
    bounds = await log.bounds(topic)
    offset, found = bounds.oldest, {}
    while offset < bounds.end:
        messages = await log.read(topic, offset, max_messages=3, max_bytes=10**6)
        offsets = [each.offset for each in messages]
        assert offsets == sorted(set(offsets))
        if not messages:
            break
        found |= {each.offset: each.fragment for each in messages}
        offset = messages[-1].offset + 1
    return found


def all_right(found: dict[int, bytes]) -> bool:
    return all(found[offset] == make_messages(offset, 1, size=SIZE)[0].fragment for offset in found)


@settings(max_examples=60)
@given(st.booleans(), st.booleans(), st.data())
def test_a_flipped_bit_anywhere_costs_one_record_at_most_and_is_told(sealed, cold, data) -> None:
    async def scenario():
        engine = Embedded()
        topic = await write_topic(engine, sealed=sealed)
        path = data.draw(st.sampled_from(engine.disk.paths(".log") + engine.disk.paths(".idx")))
        place = data.draw(st.integers(0, len(engine.disk.content(path)) - 1))
        engine.disk.damage(path, place, 1 << data.draw(st.integers(0, 7)))
        report = check(engine.folder, files=engine.disk)
        assert report.damage or report.torn  # torn: the mark at the very end, which holds nothing
        engine.disk.cold = cold
        async with engine.open_log() as log:
            if topic not in await log.topics():
                assert place < HEAD_BYTES + HEADER_BYTES + 8
                return
            found = await read_topic(log, topic)
            await log.append(topic, texts("next"))
        assert all_right(found)
        assert len(found) >= MESSAGES - 1
        assert len(found) == MESSAGES or len(log._state.damaged)

    run_scenario(scenario())


@pytest.mark.parametrize("place", [0, 10, 40, 66, HEADER_BYTES, HEADER_BYTES + 20, HEADER_BYTES + 60, 600])
async def test_a_record_damaged_while_the_log_is_open_is_left_out_counted_and_told_once(engine: Embedded, place: int):
    """17.1 M4."""
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await append_each(log, topic, MESSAGES, SIZE)
        path = engine.disk.paths(".log")[0]
        record = engine.disk.content(path).index(make_messages(5, 1, size=SIZE)[0].fragment) - HEADER_BYTES - 16
        engine.disk.damage(path, record + min(place, 590))

        before = await log.read(topic, 3, max_messages=100, max_bytes=10**6)
        after = await log.read(topic, 5, max_messages=100, max_bytes=10**6)
        again = await log.read(topic, 5, max_messages=100, max_bytes=10**6)

        assert [each.offset for each in before] == [3, 4]
        assert [each.offset for each in after] == list(range(6, MESSAGES))
        assert again == after
        assert (len(log._state.damaged), (await log.append(topic, texts("next"))).first) == (1, MESSAGES)


async def test_when_the_last_record_is_damaged_reads_are_empty_and_its_id_is_not_given_again(engine: Embedded) -> None:
    topic = await write_topic(engine, sealed=False)
    path = engine.disk.paths(".log")[0]
    engine.disk.damage(path, engine.disk.content(path).rindex(b"AAAA"))

    async with engine.open_log() as log:
        assert len(await read_topic(log, topic)) == MESSAGES - 1
        assert list(await log.read(topic, MESSAGES - 1, max_messages=9, max_bytes=999)) == []
        assert (await log.append(topic, texts("next"))).first == MESSAGES


async def test_damage_found_at_start_is_in_the_report_with_file_and_position(engine: Embedded) -> None:
    await write_topic(engine, sealed=False)
    path = engine.disk.paths(".log")[0]
    place = engine.disk.content(path).index(b"AAAA")
    engine.disk.damage(path, place)

    async with engine.open_log() as log:
        (damage,) = log.damage

    assert damage.file == path
    assert damage.position < place < damage.position + damage.length
    assert path in str(damage)


@pytest.mark.parametrize("part", ["head", "rows", "fences", "entries", "keys", "filter"])
async def test_a_damaged_index_is_made_anew_and_nothing_is_missing(engine: Embedded, part: str) -> None:
    topic = await write_topic(engine, sealed=True)
    path = engine.disk.paths(".idx")[1]
    head = decode_head(engine.disk.content(path)[:INDEX_HEAD])
    places = {
        "head": 20, "rows": INDEX_HEAD + 5, "fences": INDEX_HEAD + 96 + 1,
        "entries": INDEX_HEAD + head.directory_bytes + 3, "keys": head.keys_position + 3,
        "filter": head.filter_position + 3,
    }  # fmt: skip
    engine.disk.damage(path, places[part])

    async with engine.open_log() as log:
        assert await all_fragments(log, topic) == fragments(make_messages(0, MESSAGES, size=SIZE))
        for number in range(MESSAGES):
            assert (await log.append(topic, make_messages(number, 1, size=SIZE), key=f"{number}")).first == number
        await log.retain()

    assert not check(engine.folder, files=engine.disk).damage
    async with engine.open_log() as log:
        assert log.damage == ()


async def test_an_index_is_made_anew_while_many_read_it(engine: Embedded) -> None:
    topic = await write_topic(engine, sealed=True)
    async with engine.open_log() as log:
        engine.disk.unlink(engine.disk.paths(".idx")[0])

        found = await asyncio.gather(*(log.read(topic, 0, max_messages=1, max_bytes=1) for _ in range(50)))

        assert {each.offset for [each] in found} == {0}


async def test_a_segment_cut_short_loses_only_what_was_cut(engine: Embedded) -> None:
    topic = await write_topic(engine, sealed=True)
    handle = engine.disk.open(engine.disk.paths(".log")[1])
    engine.disk.truncate(handle, engine.disk.size(handle) - 1)

    async with engine.open_log() as log:
        found = await read_topic(log, topic)
        assert (await log.append(topic, texts("next"))).first == MESSAGES

    assert all_right(found)
    assert len(found) == MESSAGES - 1
    assert log.damage


async def test_a_folder_of_a_newer_version_is_refused_in_one_line(engine: Embedded) -> None:
    await write_topic(engine, sealed=True)
    path = engine.disk.paths(".idx")[0]
    head = bytearray(engine.disk.content(path)[:92])
    head[8] = 9
    engine.disk.write(engine.disk.open(path), bytes(head) + zlib.crc32(head).to_bytes(4, "little"), 0)

    with pytest.raises(Unusable, match="upgrade"):
        await engine.open()


async def test_a_folder_that_cannot_be_read_is_refused_in_one_line(engine: Embedded) -> None:
    await write_topic(engine, sealed=False)
    engine.disk.fail("open", where=".log")
    with pytest.raises(Unusable, match="/log"):
        await engine.open()


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_an_error_of_the_disk_is_no_damage_and_the_same_succeeds_later(engine: Embedded, error: int) -> None:
    topic = await write_topic(engine, sealed=True)
    call = "read" if error == errno.EIO else "open"
    async with engine.open_log() as log:
        engine.disk.cold = True
        engine.disk.fail("open", errno.EMFILE, where=".idx")
        with pytest.raises(LogUnavailable):
            await log.append(topic, make_messages(3, 1, size=SIZE), key="3")
        engine.disk.fail(call, error, where=".log")
        with pytest.raises(LogUnavailable):
            await log.read(topic, 0, max_messages=1, max_bytes=1)

        assert not log._state.damaged
        assert await all_fragments(log, topic) == fragments(make_messages(0, MESSAGES, size=SIZE))
        assert (await log.append(topic, make_messages(3, 1, size=SIZE), key="3")).first == 3
        assert not log._state.damaged


@pytest.fixture
def sound_engine() -> Embedded:
    """A folder with sealed segments, an open one, keys, and a dropped topic."""
    engine = Embedded(options={"segment_bytes": 3000})

    async def fill() -> None:
        async with engine.open_log() as log:
            one, dropped = await new_topic(log), await new_topic(log)
            for number in range(10):
                await log.append(one, make_messages(number * 2, 2, size=300), key=f"{number}")
                await log.append(dropped, texts("x" * 50))
            await log.drop(dropped)
            await log.retain()

    asyncio.run(fill())
    return engine


def test_a_sound_folder_is_said_to_be_sound_with_all_that_is_in_it(sound_engine: Embedded) -> None:
    report = check(sound_engine.folder, files=sound_engine.disk)

    assert not report.damage
    assert (report.torn, report.messages) == ((), 30)
    assert report.segments == report.indexes + 1 == len(sound_engine.disk.paths(".log"))
    assert report.bytes == sum(len(sound_engine.disk.content(path)) for path in sound_engine.disk.paths(".log"))


def test_a_check_changes_nothing(sound_engine: Embedded) -> None:
    for path in sound_engine.disk.paths():
        sound_engine.disk.damage(path, len(sound_engine.disk.content(path)) // 2)
    before, changes = (
        {path: sound_engine.disk.content(path) for path in sound_engine.disk.paths()},
        sound_engine.disk.changes,
    )

    check(sound_engine.folder, files=sound_engine.disk)

    assert {path: sound_engine.disk.content(path) for path in sound_engine.disk.paths()} == before
    assert sound_engine.disk.changes == changes


def test_a_torn_end_is_told_and_is_no_damage(sound_engine: Embedded) -> None:
    path = sound_engine.disk.paths(".log")[-1]
    handle = sound_engine.disk.open(path)
    size = sound_engine.disk.size(handle)
    sound_engine.disk.write(handle, b"torn", size)

    report = check(sound_engine.folder, files=sound_engine.disk)

    assert not report.damage
    assert [(each.file, each.position, each.length) for each in report.torn] == [(path, size, 4)]


def test_an_index_of_another_segment_is_found_out(sound_engine: Embedded) -> None:
    first, second = sound_engine.disk.paths(".idx")[:2]
    sound_engine.disk.rename(first, second)
    assert [each.file for each in check(sound_engine.folder, files=sound_engine.disk).damage] == [second]


def test_a_segment_that_is_not_the_one_its_index_tells_of_is_found_out(sound_engine: Embedded) -> None:
    path = sound_engine.disk.paths(".log")[0]
    handle = sound_engine.disk.open(path)
    sound_engine.disk.truncate(handle, sound_engine.disk.size(handle) - 100)

    report = check(sound_engine.folder, files=sound_engine.disk)

    assert report.damage
    assert path in {each.file for each in report.damage}
