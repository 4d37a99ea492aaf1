import os

import pytest

from ams.core.errors import InvalidInput, TooLarge
from ams.workers.pool import Pool
from tests.workers import jobs
from tests.workers.jobs import children, run_job


async def test_a_task_is_done_as_it_would_be_in_place(pool: Pool) -> None:
    parts = [b"", b"abc", bytes(range(256)) * 10_000]
    assert await run_job(pool, jobs.reverse, *parts) == jobs.reverse([memoryview(each) for each in parts])
    assert int((await run_job(pool, jobs.process))[0]) != os.getpid()


async def test_an_error_of_a_job_is_raised_with_its_text_and_the_worker_goes_on(pool: Pool) -> None:
    with pytest.raises(InvalidInput, match="^Wörter$"):
        await run_job(pool, jobs.refuse, "Wörter".encode())
    with pytest.raises(TooLarge):
        await run_job(pool, jobs.refuse)

    assert await run_job(pool, jobs.reverse, b"ab") == [b"ba"]
    assert len(children()) >= 1
