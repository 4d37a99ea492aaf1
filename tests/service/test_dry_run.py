import asyncio

import pytest

from ams.core.errors import Conflict, Overloaded
from ams.core.names import ProjectId
from ams.service.dry_run import DryRuns

P, Q = ProjectId("p"), ProjectId("q")


async def forever() -> None:
    await asyncio.Event().wait()


async def done() -> int:
    return 1


async def begun(dry_runs: DryRuns, gone: "asyncio.Future[None] | None" = None) -> "asyncio.Task[None]":
    task = asyncio.ensure_future(dry_runs.run(P, forever(), gone))
    await asyncio.sleep(0)
    return task


async def test_a_project_has_one_at_a_time_and_others_theirs() -> None:
    dry_runs = DryRuns()
    first = await begun(dry_runs)

    with pytest.raises(Conflict, match="^Another dry run of this project is under way$"):
        await dry_runs.run(P, done())
    assert await dry_runs.run(Q, done()) == 1

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await dry_runs.run(P, done()) == 1


async def test_one_ends_when_nobody_waits_for_it() -> None:
    dry_runs = DryRuns()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first = await begun(dry_runs, gone)

    gone.set_result(None)

    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(dry_runs) == 0


async def test_a_stop_ends_all_and_none_begins_after_it() -> None:
    dry_runs = DryRuns()
    first = await begun(dry_runs)

    dry_runs.stop()

    for each in (first, dry_runs.run(Q, done())):
        with pytest.raises(Overloaded, match="^The service is stopping$"):
            await each
