"""A small data folder with every kind of record, checked in and opened by `test_golden`.

It prevents accidental changes of the format on disk: each release must read the folders of earlier ones. For a new
version of the format make another folder beside it, with `python -m tests.storage.log.make_golden FOLDER`.
"""

import asyncio
import contextlib
import os
import sys

from ams.core.errors import LogUnavailable
from ams.core.messages import Message, message
from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.engines import HOUR, Embedded
from tests.support.clock import ManualClock

FOLDER = os.path.join(os.path.dirname(__file__), "golden")
START = 1_700_000_000_000
HOURLY, WEEKLY, YEARLY, MOVED, DROPPED, EMPTY, KEYED = (TopicId(bytes([number]) * 16) for number in range(1, 8))


async def write(log: EmbeddedLog, engine: Embedded) -> None:
    """Fill a log: classes, sealed and open segments, keys, a change of retention, a drop, and a failed sync."""
    await log.create(HOURLY, HOUR)
    await log.create(WEEKLY)
    await log.create(YEARLY, 300 * 24 * HOUR)
    await log.create(MOVED, HOUR)
    await log.create(DROPPED)
    await log.create(EMPTY)
    for number in range(6):
        engine.clock.advance(1000)
        await log.append(HOURLY, [message(f"hourly{number}")])
        await log.append(WEEKLY, [message(f"weekly{number}{part}", {"part": str(part)}) for part in range(3)])
        await log.append(MOVED, [message(f"moved{number}")], key=f"key{number}")
        await log.append(DROPPED, [message("dropped" * 20)])
        if number == 2:
            await log.set_retention(MOVED, 300 * 24 * HOUR)
    await log.drop(DROPPED)
    await log.retain()
    await log.append(YEARLY, [message("yearly")], key="the key of the year")
    engine.disk.fail("open", where=".idx", times=10**6)  # the failed segment stays without an index
    engine.disk.fail("sync", where="/7d/")
    with contextlib.suppress(LogUnavailable):
        await log.append(WEEKLY, [message("refused")])
    await log.append(WEEKLY, [message("after the failure")])
    await write_ordering_keys(log)


def make_append(number: int) -> list[Message]:
    """Return the messages of an append; some have ordering keys."""
    return [
        message(f"plain{number}"), message(f"keyed{number}", {}, "bed 4"),
        message(f"both{number}", {"n": str(number)}, 'b\u00e9d "5",'),
    ]  # fmt: skip


async def write_ordering_keys(log: EmbeddedLog) -> None:
    await log.create(KEYED)
    for number in range(6):
        await log.append(KEYED, make_append(number), key=f"append{number}")
    await log.append(KEYED, [message("without")])


async def make() -> Embedded:
    engine = Embedded(clock=ManualClock(now=START), options={"segment_bytes": 1500})
    log = await engine.open()
    await write(log, engine)
    engine.disk.stop_at = engine.disk.changes
    await log.close()
    engine.disk.stop_at = None
    handle = engine.disk.open(next(path for path in engine.disk.paths() if "/1y/" in path))
    engine.disk.write(handle, b"\xffAMStorn", engine.disk.size(handle))
    return engine


def export(engine: Embedded, folder: str) -> None:
    for path in engine.disk.paths():
        target = os.path.join(folder, os.path.relpath(path, engine.folder))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(engine.disk.content(path))


if __name__ == "__main__":
    export(asyncio.run(make()), sys.argv[1])
