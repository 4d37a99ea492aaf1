"""Verifying a folder: everything is read, everything wrong is found, nothing is changed."""

import asyncio

import pytest

from ams.core.errors import Unusable
from ams.storage.log.embedded import Report, check
from tests.storage.log.engines import Embedded, new_topic, numbered, texts


@pytest.fixture
def engine() -> Embedded:
    """A folder with sealed segments, an open one, keys, and a dropped topic."""
    engine = Embedded(options={"segment_bytes": 3000})

    async def fill() -> None:
        async with engine.opened() as log:
            one, dropped = await new_topic(log), await new_topic(log)
            for number in range(10):
                await log.append(one, numbered(number * 2, 2, size=300), key=f"{number}")
                await log.append(dropped, texts("x" * 50))
            await log.drop(dropped)
            await log.retain()

    asyncio.run(fill())
    return engine


def report_of(engine: Embedded) -> Report:
    return check(engine.folder, files=engine.disk)


def everything(engine: Embedded) -> dict[str, bytes]:
    return {path: engine.disk.content(path) for path in engine.disk.paths()}


def test_a_sound_folder_is_said_to_be_sound_with_all_that_is_in_it(engine: Embedded):
    report = report_of(engine)

    assert not report.damage
    assert report.torn == ()
    assert report.messages == 30
    assert report.segments == report.indexes + 1 == len(engine.disk.paths(".log"))
    assert report.bytes == sum(len(engine.disk.content(path)) for path in engine.disk.paths(".log"))


def test_nothing_is_changed(engine: Embedded):
    for path in engine.disk.paths():
        engine.disk.damage(path, len(engine.disk.content(path)) // 2)
    before, changes = everything(engine), engine.disk.changes

    report_of(engine)

    assert everything(engine) == before
    assert engine.disk.changes == changes


def test_an_empty_folder_is_sound():
    assert check("/nothing", files=Embedded().disk) == Report(0, 0, 0, 0, 0, 0, (), ())


def test_a_torn_end_is_told_and_is_no_damage(engine: Embedded):
    path = engine.disk.paths(".log")[-1]
    handle = engine.disk.open(path)
    size = engine.disk.size(handle)
    engine.disk.write(handle, b"torn", size)

    report = report_of(engine)

    assert not report.damage
    assert [(each.file, each.position, each.length) for each in report.torn] == [(path, size, 4)]


def test_an_index_of_another_segment_is_found_out(engine: Embedded):
    first, second = engine.disk.paths(".idx")[:2]
    engine.disk.rename(first, second)

    assert [each.file for each in report_of(engine).damage] == [second]


def test_a_segment_that_is_not_the_one_its_index_tells_of_is_found_out(engine: Embedded):
    path = engine.disk.paths(".log")[0]
    handle = engine.disk.open(path)
    engine.disk.truncate(handle, engine.disk.size(handle) - 100)

    report = report_of(engine)

    assert report.damage
    assert path in {each.file for each in report.damage}


def test_a_folder_that_cannot_be_read_is_told_in_one_line(engine: Embedded):
    engine.disk.fail("open", times=1)

    with pytest.raises(Unusable, match="/log"):
        report_of(engine)
