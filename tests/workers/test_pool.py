"""The pool of worker processes: turns, errors, processes that hang or die, and its end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.core.errors import InvalidInput, TooLarge
from ams.workers import NoWorker, Pool, TaskFailed
from ams.workers.pool import LARGEST
from ams.workers.program import SHARED, Job
from ams.workers.worker import Worker
from tests.workers import jobs

PATIENT = 60.0
"""Seconds for a task that is to be done."""


@pytest.fixture(autouse=True)
def _jobs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(2)
    yield made
    await made.close()


async def done(
    pool: Pool, job: Job, *parts: bytes, project: str = "P", seconds: float = PATIENT, long: bool = False
) -> Sequence[bytes]:
    async with pool.done(project, job, parts, seconds=seconds, long=long) as made:
        return [bytes(each) for each in made]


async def test_a_task_is_done_as_it_would_be_in_place(pool: Pool) -> None:
    parts = [b"", b"abc", bytes(range(256)) * 10_000]

    assert await done(pool, jobs.reverse, *parts) == jobs.reverse([memoryview(each) for each in parts])
    assert int((await done(pool, jobs.process))[0]) != os.getpid()


def test_parts_go_there_and_back_as_they_are() -> None:
    with asyncio.Runner() as runner:
        pool = Pool(1)

        @given(parts=st.lists(st.binary(max_size=1000)))
        def law(parts: list[bytes]) -> None:
            assert runner.run(done(pool, jobs.reverse, *parts)) == [each[::-1] for each in parts]

        law()
        runner.run(pool.close())


async def test_an_error_of_a_job_is_raised_with_its_text_and_the_worker_goes_on(pool: Pool) -> None:
    with pytest.raises(InvalidInput, match="^Wörter$"):
        await done(pool, jobs.refuse, "Wörter".encode())
    with pytest.raises(TooLarge):
        await done(pool, jobs.refuse)

    assert await done(pool, jobs.reverse, b"ab") == [b"ba"]
    assert len(_children()) >= 1


async def test_nothing_is_begun_before_it_is_needed() -> None:
    before = _children()
    pool = Pool(2)

    await pool.close()

    assert _children() == before


async def test_a_pool_that_is_not_ready_begins_a_worker_for_later(pool: Pool) -> None:
    assert not pool.is_ready()

    while not pool.is_ready():
        await asyncio.sleep(0.01)

    assert pool.is_ready(LARGEST)
    assert not pool.is_ready(LARGEST + 1)
    assert await done(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_what_takes_too_long_fails_and_its_worker_is_replaced(pool: Pool) -> None:
    before = await done(pool, jobs.process)

    with pytest.raises(TaskFailed), capture_logs() as logs:
        await done(pool, jobs.sleep, b"60", seconds=0.1)

    assert [each["reason"] for each in logs if each["event"] == "worker.ended"] == ["it took too long"]
    assert await done(pool, jobs.process) != before


@pytest.mark.parametrize("job", [jobs.exit_at_once, jobs.fail, jobs.take_memory])
async def test_what_ends_its_worker_fails_alone(pool: Pool, job: Job) -> None:
    with pytest.raises(TaskFailed):
        await done(pool, job)

    assert await done(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_what_is_too_large_for_the_shared_memory_fails_and_ends_no_worker(pool: Pool) -> None:
    before = await done(pool, jobs.process)

    with pytest.raises(TaskFailed):
        await done(pool, jobs.reverse, bytes(SHARED + 1))

    assert await done(pool, jobs.process) == before


async def test_a_worker_that_was_ended_from_outside_is_replaced_and_nobody_notices(pool: Pool) -> None:
    [before] = await done(pool, jobs.process)
    os.kill(int(before), signal.SIGKILL)

    assert await done(pool, jobs.process) != [before]


async def test_a_worker_that_ends_while_idle_is_noticed_and_logged(pool: Pool) -> None:
    with capture_logs() as logs:
        [ended] = await done(pool, jobs.process)
        os.kill(int(ended), signal.SIGKILL)
        while not logs:
            await asyncio.sleep(0.01)

    assert [(each["event"], each["code"]) for each in logs] == [("worker.ended", -signal.SIGKILL)]
    assert int(ended) not in _children()


async def test_all_but_one_worker_are_ended_when_they_were_idle_for_long(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.workers.pool._IDLE_SECONDS", 0.5)
    before = _children()
    with capture_logs() as logs:
        used = await asyncio.gather(*(_process_after_a_while(pool, each) for each in "PQ"))
        assert set(used) <= _children() - before
        while len(_children() & set(used)) > 1:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)

    assert int((await done(pool, jobs.process))[0]) in used
    assert not logs


async def test_a_worker_asks_to_be_ended_before_the_service_when_memory_runs_out(pool: Pool) -> None:
    [worker] = await done(pool, jobs.process)

    assert Path(f"/proc/{int(worker)}/oom_score_adj").read_text() == "1000\n"


async def test_who_is_cancelled_ends_the_task(pool: Pool) -> None:
    [worker] = await done(pool, jobs.process)
    task = asyncio.ensure_future(done(pool, jobs.sleep, b"60"))
    await asyncio.sleep(0.05)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert int(worker) not in _children()
    assert await done(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_projects_take_turns() -> None:
    pool, order = Pool(1), []

    async def ask(project: str) -> None:
        await done(pool, jobs.reverse, project=project)
        order.append(project)

    await asyncio.gather(*(ask(each) for each in "PPPPPPQR"))
    await pool.close()

    assert sorted([order.index("Q"), order.index("R")]) <= [1, 3]
    assert order.index("Q") < 3
    assert order.index("R") < 4


async def test_one_project_has_one_worker_at_a_time(pool: Pool) -> None:
    await asyncio.gather(done(pool, jobs.sleep, b"0.1"), done(pool, jobs.sleep, b"0.1", project="Q"))

    used = await asyncio.gather(*(done(pool, jobs.process) for _ in range(5)))

    assert len(set(map(tuple, used))) <= 2
    assert await _at_once(pool, [jobs.sleep] * 2, ["P", "P"]) == 1


async def test_long_tasks_leave_a_worker_for_the_others(pool: Pool) -> None:
    long = [asyncio.ensure_future(done(pool, jobs.sleep, b"60", project=each, long=True)) for each in "PQR"]
    await asyncio.sleep(0.05)

    assert await done(pool, jobs.reverse, b"ab", project="P") == [b"ba"]
    assert await done(pool, jobs.reverse, b"ab", project="S") == [b"ba"]
    assert not any(each.done() for each in long)

    for each in long:
        each.cancel()
    await asyncio.wait(long)


async def test_without_processes_there_is_no_worker_and_later_there_is(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> Worker:
        raise OSError("no process can be begun")

    with monkeypatch.context() as context, capture_logs() as logs:
        context.setattr(Worker, "begun", refused)
        with pytest.raises(NoWorker):
            await done(pool, jobs.reverse, b"ab")
        assert not pool.is_ready()
        assert [each["event"] for each in logs] == ["worker.not_begun"]
    monkeypatch.setattr("ams.workers.pool._AGAIN_SECONDS", 0)
    pool._not_before = 0

    assert await done(pool, jobs.reverse, b"ab") == [b"ba"]


async def test_without_memory_to_share_no_process_is_begun(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("out of address space")

    before = _children()
    monkeypatch.setattr("ams.workers.worker.mmap.mmap", refused)

    with pytest.raises(NoWorker):
        await done(pool, jobs.reverse, b"ab")

    assert _children() == before


async def test_a_closed_pool_ends_what_is_under_way_and_takes_nothing(pool: Pool) -> None:
    before = _children()
    under_way = [asyncio.ensure_future(done(pool, jobs.sleep, b"60", project=each)) for each in "PPQR"]
    while len(_children() - before) < 2:
        await asyncio.sleep(0.01)

    await pool.close()

    for each in under_way:
        with pytest.raises(NoWorker):
            await each
    with pytest.raises(NoWorker):
        await done(pool, jobs.reverse)
    assert _children() <= before


async def _process_after_a_while(pool: Pool, project: str) -> int:
    async with pool.done(project, jobs.process, [], seconds=PATIENT) as [made]:
        while len(pool._workers) < 2:  # who waits for the other one keeps its own
            await asyncio.sleep(0.01)
        return int(bytes(made))


async def _at_once(pool: Pool, several: Sequence[Job], projects: Sequence[str]) -> int:
    """Return how many tasks of 0.2 seconds were done at the same time, at most."""
    loop = asyncio.get_running_loop()
    spans: list[tuple[float, float]] = []

    async def one(job: Job, project: str) -> None:
        async with pool.done(project, job, [b"0.2"], seconds=PATIENT):
            spans.append((loop.time() - 0.2, loop.time()))

    await asyncio.gather(*(one(job, project) for job, project in zip(several, projects, strict=True)))
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


def _children() -> set[int]:
    """Return the processes this one began, those of other tests' services among them."""
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        return {int(each) for each in children.read().split()}
