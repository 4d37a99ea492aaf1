"""The pool of worker processes: queueing, errors, processes that hang or die, and its end."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.workers.pool import MAX_JOB_BYTES, NoWorker, Pool, TaskFailed, WorkerProcess
from ams.workers.program import SHARED_BYTES, Job
from tests.support.loop_time import pass_loop_time
from tests.support.waiting import some_turns, wait_until_async
from tests.workers import jobs
from tests.workers.jobs import children, run_job

pytestmark = pytest.mark.long


async def test_a_pool_that_is_not_ready_begins_a_worker_for_later(pool: Pool) -> None:
    assert not pool.is_ready()

    await wait_until_async(pool.is_ready)

    assert pool.is_ready(MAX_JOB_BYTES)
    assert not pool.is_ready(MAX_JOB_BYTES + 1)
    assert await run_job(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_what_takes_too_long_fails_and_its_worker_is_replaced(pool: Pool) -> None:
    before = await run_job(pool, jobs.process)

    with pytest.raises(TaskFailed), capture_logs() as logs:
        await run_job(pool, jobs.sleep, b"60", seconds=0.1)

    assert [each["reason"] for each in logs if each["event"] == "worker.ended"] == ["it took too long"]
    assert await run_job(pool, jobs.process) != before


@pytest.mark.parametrize("job", [jobs.exit_at_once, jobs.fail, jobs.take_memory])
async def test_what_ends_its_worker_fails_alone(pool: Pool, job: Job) -> None:
    with pytest.raises(TaskFailed):
        await run_job(pool, job)
    assert await run_job(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_what_is_too_large_for_the_shared_memory_fails_and_ends_no_worker(pool: Pool) -> None:
    before = await run_job(pool, jobs.process)
    with pytest.raises(TaskFailed):
        await run_job(pool, jobs.reverse, bytes(SHARED_BYTES + 1))
    assert await run_job(pool, jobs.process) == before


async def test_a_worker_that_ends_while_idle_is_noticed_logged_and_replaced(pool: Pool) -> None:
    with capture_logs() as logs:
        [ended] = await run_job(pool, jobs.process)
        os.kill(int(ended), signal.SIGKILL)
        await wait_until_async(lambda: logs)

    assert [(each["event"], each["code"]) for each in logs] == [("worker.ended", -signal.SIGKILL)]
    assert int(ended) not in children()
    assert await run_job(pool, jobs.process) != [ended]


async def test_all_but_one_worker_are_ended_when_they_were_idle_for_long(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []

    async def process_of(project: str) -> int:
        async with pool.run_job(project, jobs.process, [], seconds=60) as [made]:
            begun.append(project)
            await wait_until_async(lambda: len(begun) == 2)  # who waits for the other one keeps its own
            return int(bytes(made))

    with capture_logs() as logs:
        used = await asyncio.gather(*map(process_of, "PQ"))
        for _ in range(2):
            pass_loop_time(monkeypatch, 601)
            await some_turns()  # for the timers that are due
            await wait_until_async(lambda: len(children() & set(used)) == 1)

    assert int((await run_job(pool, jobs.process))[0]) in used
    assert not logs


async def test_a_worker_asks_to_be_ended_before_the_service_when_memory_runs_out(pool: Pool) -> None:
    [worker] = await run_job(pool, jobs.process)
    assert Path(f"/proc/{int(worker)}/oom_score_adj").read_text() == "1000\n"


async def test_who_is_cancelled_ends_the_task(pool: Pool, tmp_path: Path) -> None:
    [worker] = await run_job(pool, jobs.process)
    task = asyncio.ensure_future(run_job(pool, jobs.touch_and_sleep, bytes(tmp_path / "begun")))
    await wait_until_async((tmp_path / "begun").exists)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert int(worker) not in children()
    assert await run_job(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_projects_take_turns() -> None:
    pool, order = Pool(1), []

    async def ask(project: str) -> None:
        await run_job(pool, jobs.reverse, project=project)
        order.append(project)

    await asyncio.gather(*(ask(each) for each in "PPPPPPQR"))
    await pool.close()

    assert sorted([order.index("Q"), order.index("R")]) <= [1, 3]
    assert order.index("Q") < 3
    assert order.index("R") < 4


async def test_one_project_has_one_worker_at_a_time(pool: Pool, tmp_path: Path) -> None:
    files = [tmp_path / each for each in ("first", "second")]
    tasks = [asyncio.ensure_future(run_job(pool, jobs.touch_and_sleep, bytes(each))) for each in files]
    await wait_until_async(files[0].exists)

    await run_job(pool, jobs.reverse, project="Q")

    assert not files[1].exists(), "another project had the worker that was free"
    await end_tasks(tasks)


async def end_tasks(tasks: Sequence["asyncio.Future[Sequence[bytes]]"]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)


async def test_long_tasks_leave_a_worker_for_the_others(pool: Pool, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    long = [
        asyncio.ensure_future(run_job(pool, jobs.touch_and_sleep, bytes(begun), project=each, long=True))
        for each in "PQR"
    ]
    await wait_until_async(begun.exists)

    assert await run_job(pool, jobs.reverse, b"ab", project="P") == [b"ba"]
    assert await run_job(pool, jobs.reverse, b"ab", project="S") == [b"ba"]
    assert not any(each.done() for each in long)

    await end_tasks(long)


async def test_without_processes_there_is_no_worker_and_later_there_is(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    async def refuse_worker() -> WorkerProcess:
        raise OSError("no process can be begun")

    with monkeypatch.context() as context, capture_logs() as logs:
        context.setattr(WorkerProcess, "start", refuse_worker)
        with pytest.raises(NoWorker):
            await run_job(pool, jobs.reverse, b"ab")
        assert not pool.is_ready()
        assert [each["event"] for each in logs] == ["worker.not_begun"]
    pass_loop_time(monkeypatch, 5)

    assert await run_job(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_a_closed_pool_ends_what_is_under_way_and_takes_nothing(pool: Pool) -> None:
    before = children()
    under_way = [asyncio.ensure_future(run_job(pool, jobs.sleep, b"60", project=each)) for each in "PPQR"]
    await wait_until_async(lambda: len(children() - before) == 2)

    await pool.close()

    for each in under_way:
        with pytest.raises(NoWorker):
            await each
    with pytest.raises(NoWorker):
        await run_job(pool, jobs.reverse)
    assert children() <= before
