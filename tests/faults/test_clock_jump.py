"""The time of day of a running service jumps past the retention and back: what goes is what was too old, nothing else.

Retention goes by the time of day. While the clock is ahead, what is older than the retention by that clock goes, and is
counted as lost. What is published meanwhile, and later, stays its whole time, and no id is given twice.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ams.app.serving import Running, running
from ams.core.clock import ManualClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor

DAY = 86_400_000
PAST_RETENTION = 8 * DAY

pytestmark = [pytest.mark.faults, pytest.mark.embedded("nobody moves the clocks of brokers")]


@asynccontextmanager
async def served(data: Path, clock: ManualClock) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """Run the service, whose clock is moved by the test."""
    settings = Settings(data=str(data), port=0, ops_port=0, min_free_bytes=0, reserve_bytes=0)
    async with running(settings, Supervisor(), clock=clock) as run:
        token = (data / "admin.token").read_text().strip()
        async with httpx.AsyncClient(base_url=run.base_url, headers={"x-api-key": token}) as client:
            yield run, client


async def done(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> dict[str, object]:
    answer = await client.request(method, f"/v1/projects/P{path}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


async def publish(client: httpx.AsyncClient, count: int) -> list[int]:
    body = {"messages": [{"data": "aGk="}] * count}
    ids = (await done(client, "POST", "/topics/T:publish", body))["messageIds"]
    assert isinstance(ids, list)
    return [int(each) for each in ids]


async def pulled(client: httpx.AsyncClient) -> list[int]:
    body = {"maxMessages": "100", "returnImmediately": "true"}
    received = (await done(client, "POST", "/subscriptions/S:pull", body))["receivedMessages"]
    assert isinstance(received, list)
    return [int(each["message"]["messageId"]) for each in received]


async def test_a_clock_that_jumps_past_retention_and_back_takes_nothing_that_was_published_since(
    tmp_path: Path,
) -> None:
    clock, data = ManualClock(), tmp_path / "data"
    async with served(data, clock) as (run, client):
        assert run.service.embedded is not None
        for method, path, body in (
            ("POST", "", {}), ("PUT", "/topics/T", None), ("PUT", "/subscriptions/S", {"topic": "projects/P/topics/T"}),
        ):  # fmt: skip
            await done(client, method, path, body)
        assert await publish(client, 3) == [0, 1, 2]

        clock.step(PAST_RETENTION)
        await run.service.embedded.retain()
        assert await publish(client, 2) == [3, 4]
        assert await pulled(client) == [3, 4]

        clock.step(-PAST_RETENTION)
        assert await publish(client, 2) == [5, 6]
        await run.service.embedded.retain()
        assert await pulled(client) == [3, 4, 5, 6]

    async with served(data, clock) as (run, client):
        assert run.service.embedded is not None
        assert await publish(client, 1) == [7]
        clock.advance(6 * DAY)
        await run.service.embedded.retain()
        assert await pulled(client) == [3, 4, 5, 6, 7]
        offsets = await done(client, "GET", "/subscriptions/S:offsets")
        assert (offsets["min"], offsets["max"], offsets["current"]) == (3, 8, 3)


async def test_a_clock_that_jumps_back_takes_nothing_and_keeps_longer(tmp_path: Path) -> None:
    clock = ManualClock()
    async with served(tmp_path / "data", clock) as (run, client):
        assert run.service.embedded is not None
        await done(client, "POST", "", {})
        await done(client, "PUT", "/topics/T")
        await done(client, "PUT", "/subscriptions/S", {"topic": "projects/P/topics/T"})
        await publish(client, 2)

        clock.step(-PAST_RETENTION)
        await publish(client, 2)
        await run.service.embedded.retain()
        assert await pulled(client) == [0, 1, 2, 3]

        clock.step(PAST_RETENTION)
        await run.service.embedded.retain()
        assert await pulled(client) == [0, 1, 2, 3]
