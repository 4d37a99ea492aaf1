"""An embedded log on the real disk, to run under strace: `python -m tests.storage.log.embedded.traced CASE FOLDER`.

Its lines on stdout stand in the trace between the calls before and after them.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from tests.storage.log.engines import HOUR, SMALL_LOG_OPTIONS, make_messages, new_topic
from tests.support.clock import ManualClock

CLOCK = ManualClock()
Case = Callable[[str], Awaitable[None]]


def say(what: str) -> None:
    os.write(1, f"say {what}\n".encode())


@contextlib.asynccontextmanager
async def open_log(folder: str, **options: object) -> AsyncIterator[tuple[EmbeddedLog, TopicId]]:
    log = await EmbeddedLog.open(folder, clock=CLOCK, options=LogOptions(**(SMALL_LOG_OPTIONS | options)))  # type: ignore[arg-type]
    say("opened")
    yield log, await new_topic(log)
    await log.close()


async def append(log: EmbeddedLog, topic: TopicId, size: int = 0) -> None:
    await log.append(topic, make_messages(0, 1, size=size))
    say("answered")


async def publish(folder: str) -> None:
    async with open_log(folder) as (log, topic):
        say("created")
        await append(log, topic)
        await append(log, topic)
    say("closed")


async def interval(folder: str) -> None:
    async with open_log(folder, sync="interval", sync_interval_ms=HOUR) as (log, topic):
        await append(log, topic)
        await append(log, topic)
        CLOCK.advance(HOUR)
        await log.retain()  # wakes the committer, whose interval is over
        await log.retain()
        say("interval over")


async def rollover(folder: str, **options: object) -> None:
    # No zeros are written ahead: their time is not deterministic.
    async with open_log(folder, segment_bytes=1500, ahead_bytes=0, **options) as (log, topic):
        await append(log, topic, 900)
        await append(log, topic, 900)
        if not options:
            await log.retain()
            say("sealed")


async def interval_rollover(folder: str) -> None:
    await rollover(folder, sync="interval", sync_interval_ms=HOUR)


async def retention(folder: str) -> None:
    async with open_log(folder, retention=HOUR, segment_bytes=1500) as (log, topic):
        await append(log, topic, 900)
        await append(log, topic, 900)
        CLOCK.advance(HOUR // 8)
        await log.retain()
        CLOCK.advance(2 * HOUR)
        say("old")
        await log.retain()
        say("removed")


async def reuse(folder: str) -> None:
    async with open_log(folder, retention=HOUR, segment_bytes=1500) as (log, topic):
        await append(log, topic, 900)
        CLOCK.advance(HOUR - HOUR // 16)
        await append(log, topic, 900)
        CLOCK.advance(HOUR // 16 + 1)
        say("old")
        await log.retain()
        say("kept")
        await append(log, topic, 900)
    say("closed")


async def torn(folder: str) -> None:
    async with open_log(folder) as (log, topic):
        await append(log, topic)
    with open(os.path.join(folder, "7d", f"{1:016d}.log"), "ab") as file:
        file.write(b"half a record")
    say("torn")
    async with open_log(folder):
        pass


CASES: dict[str, Case] = {
    each.__name__: each for each in (publish, interval, rollover, interval_rollover, retention, reuse, torn)
}


if __name__ == "__main__":
    asyncio.run(CASES[sys.argv[1]](sys.argv[2]))
