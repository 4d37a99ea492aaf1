"""Long work ends with the client who asked for it."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from ams.http.limits import ClientLeft
from ams.http.routing import Call


def call(left: asyncio.Event) -> Call:
    async def body() -> bytes:
        return b""

    async def receive() -> MutableMapping[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    return Call({}, b"", None, None, body, (), receive)


async def work(asked: Call) -> None:
    with asked.watched() as gone:
        task = asyncio.ensure_future(asyncio.Event().wait())
        assert gone is not None
        gone.add_done_callback(lambda _: task.cancel())
        await task


async def test_work_that_is_cancelled_as_the_client_left_is_no_error() -> None:
    left = asyncio.Event()
    working = asyncio.ensure_future(work(call(left)))
    await asyncio.sleep(0)

    left.set()

    with pytest.raises(ClientLeft):
        await working


async def test_work_that_is_cancelled_by_a_stop_stays_cancelled() -> None:
    working = asyncio.ensure_future(work(call(asyncio.Event())))
    await asyncio.sleep(0)

    working.cancel()

    with pytest.raises(asyncio.CancelledError):
        await working
