"""The golden data folder: messages in this format are read as they were written."""

import os
import shutil

import pytest

from ams.core.messages import message, ordering_key_of
from ams.core.names import TopicId
from ams.core.runs import runs_of
from ams.storage.files import Disk
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.embedded import EmbeddedLog, LogOptions, check
from tests.storage.log.engines import SMALL_LOG_OPTIONS, all_fragments, fragments
from tests.storage.log.make_golden import (
    DROPPED,
    EMPTY,
    FOLDER,
    HOURLY,
    KEYED,
    MOVED,
    START,
    WEEKLY,
    YEARLY,
    make_append,
)
from tests.support.clock import ManualClock

NO_RECORD = "bytes that are no record"
TORN_FILES = dict.fromkeys(("0000000000000001.log", "0000000000000003.log", "0000000000000007.log"), NO_RECORD)
"""Segment ends that the next start cuts off."""


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER, tmp_path / "log")


async def open_golden(folder) -> EmbeddedLog:
    return await EmbeddedLog.open(
        str(folder), files=Disk(), clock=ManualClock(START + 10_000), options=LogOptions(**SMALL_LOG_OPTIONS)
    )


async def assert_golden(log: EmbeddedLog) -> None:
    """Compare every message, end, time, key and count with what `make_golden` wrote."""
    assert await log.topics() == {HOURLY, WEEKLY, YEARLY, MOVED, EMPTY, KEYED}
    await assert_ordering_keys(log, KEYED)
    assert DROPPED not in await log.topics()
    assert await log.bounds(EMPTY) == Bounds(0, 0)
    assert await all_fragments(log, HOURLY) == fragments([message(f"hourly{n}") for n in range(6)])
    weekly = [message(f"weekly{n}{part}", {"part": str(part)}) for n in range(6) for part in range(3)]
    assert await all_fragments(log, WEEKLY) == fragments([*weekly, message("after the failure")])
    assert await all_fragments(log, MOVED) == fragments([message(f"moved{n}") for n in range(6)])
    assert await all_fragments(log, YEARLY) == fragments([message("yearly")])
    assert [each.time for each in await log.read(HOURLY, 0, max_messages=9, max_bytes=9999)] == [
        START + 1000 * n for n in range(1, 7)
    ]
    assert (await log.offset_at(MOVED, START + 3500), (await log.totals(WEEKLY)).bytes) == (3, 18 * 8 + 17)
    for number in range(6):
        answer = await log.append(MOVED, [message(f"moved{number}")], key=f"key{number}")
        assert answer == Appended(number, 1, START + 1000 * (number + 1))
    assert await log.append(YEARLY, [message("yearly")], key="the key of the year") == Appended(0, 1, START + 6000)


async def assert_ordering_keys(log: EmbeddedLog, topic: TopicId) -> None:
    messages = [each for number in range(6) for each in make_append(number)] + [message("without")]
    assert await all_fragments(log, topic) == fragments(messages)
    read = await log.read(topic, 0, max_messages=99, max_bytes=9999)
    assert [ordering_key_of(each.fragment) for each in read] == [each.ordering_key for each in messages]
    assert [run.has_ordering_keys for run in runs_of(read)] == [True] * 6 + [False]
    for number in range(6):
        assert (await log.append(topic, make_append(number), key=f"append{number}")).first == 3 * number
    assert (await log.totals(topic)).bytes == sum(len(each.data) for each in messages)


async def test_the_golden_folder_is_read_as_it_was_written(folder) -> None:
    log = await open_golden(folder)

    await assert_golden(log)

    assert log.damage == ()
    assert {os.path.basename(each.file): each.reason for each in log.trimmed} == TORN_FILES
    await log.close()


async def test_the_golden_folder_goes_on_being_used(folder) -> None:
    log = await open_golden(folder)
    assert (await log.append(WEEKLY, [message("next")])).first == 19
    assert (await log.append(MOVED, [message("next", {}, "bed 4")])).first == 6
    await log.close()

    log = await open_golden(folder)
    assert (await all_fragments(log, WEEKLY))[-1] == message("next").fragment
    assert (await all_fragments(log, MOVED))[-1] == message("next", {}, "bed 4").fragment
    assert log.trimmed == ()
    await log.close()


def test_the_golden_folder_is_sound(folder) -> None:
    before = contents(folder)

    report = check(str(folder))

    assert not report.damage
    assert (report.topics, report.indexes) == (6, 2)
    assert {os.path.basename(each.file) for each in report.torn} == set(TORN_FILES)
    assert contents(folder) == before


def contents(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
