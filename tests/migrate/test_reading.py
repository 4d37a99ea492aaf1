"""Reading in processes: what comes out is what one would read alone, however it is cut into parts."""

import os
import signal
import subprocess
import sys
import time
from array import array
from functools import partial
from pathlib import Path

import pytest

from ams.core.errors import Unavailable
from ams.core.messages import Fragment, Stored
from ams.core.runs import Columns
from ams.migrate import reading
from ams.migrate.reading import Part, Readers, part_of
from tests.support.waiting import wait_until

END = 1000


def time_of(offset: int) -> int:
    """Return a time that goes back now and then."""
    return offset * 10 - (500 if offset % 97 == 3 else 0)


def read(at_once: int, start: int, end: int) -> Part:
    """Return a part that ends early when it has more than so many messages; every seventh cannot be read."""
    stop = min(start + at_once, end)
    offsets = [offset for offset in range(start, stop) if offset % 7]
    time, times = 0, array("q")
    for offset in offsets:
        time = max(time, time_of(offset))
        times.append(time)
    return Part(Columns(array("q", offsets), times, [Fragment(b'"data":"%d"' % each) for each in offsets]), stop)


def killed(start: int, end: int) -> Part:
    os._exit(9)


def expected(earliest: int) -> list[Stored]:
    found, time = [], earliest
    for offset in range(END):
        if offset % 7:
            time = max(time, time_of(offset))
            found.append(Stored(offset, time, b'"data":"%d"' % offset))
    return found


@pytest.mark.parametrize(("part", "at_once"), [(END * 2, END), (300, 70), (97, 1000), (1, 1)])
async def test_parts_make_what_one_reader_reads(part: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MESSAGES", part)
    readers = Readers()
    try:
        batches = [each async for each in readers.batches(partial(read, at_once), 0, END, earliest=77)]
    finally:
        readers.close()
    assert [each for batch in batches for each in batch] == expected(77)


async def test_a_part_ends_early_when_it_holds_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BYTES", 30)

    async def batches():
        for first in range(0, 10, 2):
            yield [Stored(each, each, b"0123456789") for each in (first, first + 1)]

    ended = await part_of(batches(), 10)
    assert ([each.offset for each in ended.messages], ended.following) == ([0, 1, 2, 3], 4)
    monkeypatch.setattr(reading, "BYTES", 3000)
    assert (await part_of(batches(), 12)).following == 12


async def test_a_process_that_is_killed_is_told() -> None:
    readers = Readers()
    try:
        with pytest.raises(Unavailable, match="a process that reads messages ended"):
            async for _ in readers.batches(killed, 0, END, earliest=0):
                pass
    finally:
        readers.close()


READING = """
import asyncio
from functools import partial
from ams.migrate.reading import Readers
from tests.migrate.test_reading import held

async def read():
    async for _ in Readers().batches(held, 0, 10, earliest=0):
        pass

if __name__ == "__main__":
    asyncio.run(read())
"""


def held(start: int, end: int) -> Part:
    print(os.getpid(), flush=True)
    time.sleep(60)
    raise AssertionError


def test_processes_end_with_the_one_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "reading.py"
    program.write_text(READING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        reader = int(running.stdout.readline())
        running.send_signal(signal.SIGKILL)
        running.wait()

    wait_until(lambda: not Path(f"/proc/{reader}").exists())
