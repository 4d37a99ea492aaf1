"""The time of day steps back an hour, as NTP or an operator may do: nothing is lost, early or out of order."""

from pathlib import Path

import pytest

from ams.core.clock import ManualClock, Milliseconds
from ams.core.names import Offset
from tests.faults.attempts import Outcome
from tests.faults.in_process import Clients, prepare, topic_of
from tests.support.engines import Engines, open_engines

HOUR = 3_600_000


async def publish_times(clients: Clients, engines: Engines) -> list[Milliseconds]:
    topic = await topic_of(clients)
    return [each.time for each in await engines.log.read(topic, Offset(0), max_messages=1_000, max_bytes=2**20)]


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "forth"])
async def test_the_laws_hold_when_the_clock_steps(tmp_path: Path, step: int) -> None:
    clock = ManualClock()
    await prepare(tmp_path)
    async with open_engines(tmp_path, clock=clock) as engines:
        clients = await Clients.of(engines)
        await clients.publish(3)
        await clients.pull(2)
        clock.step(step)
        await clients.publish(3)
        await clients.acknowledge(1)
        await clients.pull(3)

    async with open_engines(tmp_path, clock=clock) as engines:
        clients = await clients.again(engines)
        await clients.publish(2)
        await clients.pull()
        found = await clients.violations(engines)

    assert found == []


async def test_publish_times_never_go_backwards_also_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    await prepare(tmp_path)
    async with open_engines(tmp_path, clock=clock) as engines:
        clients = await Clients.of(engines)
        await clients.publish(2)
        clock.step(-HOUR)
        await clients.publish(2)
    clock.step(-HOUR)
    async with open_engines(tmp_path, clock=clock) as engines:
        clients = await clients.again(engines)
        await clients.publish(2)
        times = await publish_times(clients, engines)

    assert len(times) == 6
    assert times == sorted(times)


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "forth"])
async def test_a_deadline_runs_by_time_passed_and_not_by_the_time_of_day(tmp_path: Path, step: int) -> None:
    clock = ManualClock()
    await prepare(tmp_path)
    async with open_engines(tmp_path, clock=clock) as engines:
        clients = await Clients.of(engines)
        await clients.publish(2)
        await clients.pull()
        clock.step(step)
        clock.advance(9_000)
        in_time = await clients.acknowledge(0)
        await clients.pull()
        clock.step(step)
        clock.advance(11_000)
        late = await clients.acknowledge(1)

    assert (in_time.outcome, late.outcome) == (Outcome.DONE, Outcome.REFUSED)
