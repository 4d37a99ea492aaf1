import asyncio

import pytest

from ams.core.errors import Conflict, Overloaded
from ams.core.names import ProjectId
from ams.service.trials import Trials

P, Q = ProjectId("p"), ProjectId("q")


async def forever() -> None:
    await asyncio.Event().wait()


async def done() -> int:
    return 1


async def begun(trials: Trials, gone: "asyncio.Future[None] | None" = None) -> "asyncio.Task[None]":
    task = asyncio.ensure_future(trials.run(P, forever(), gone))
    await asyncio.sleep(0)
    return task


async def test_a_project_has_one_at_a_time_and_others_theirs() -> None:
    trials = Trials()
    first = await begun(trials)

    with pytest.raises(Conflict, match="^Another dry run of this project is under way$"):
        await trials.run(P, done())
    assert await trials.run(Q, done()) == 1

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await trials.run(P, done()) == 1


async def test_one_ends_when_nobody_waits_for_it() -> None:
    trials = Trials()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first = await begun(trials, gone)

    gone.set_result(None)

    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(trials) == 0


async def test_a_stop_ends_all_and_none_begins_after_it() -> None:
    trials = Trials()
    first = await begun(trials)

    trials.stop()

    for each in (first, trials.run(Q, done())):
        with pytest.raises(Overloaded, match="^The service is stopping$"):
            await each
