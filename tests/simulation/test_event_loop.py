"""The event loop and the threads of the simulator, by themselves."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from simulation.process import SimProcess
from simulation.threads import SimExecutor, SimLock, SimQueue, SimThread, pause
from simulation.world import World

Main = Callable[[], Coroutine[Any, Any, Any]]


def played(main: Main, seed: int = 1) -> tuple[Any, SimProcess]:
    """Run a coroutine in a world of its own."""
    process = SimProcess(World(seed), "test")
    return process.run(main()), process


def test_callbacks_run_in_the_order_in_which_they_became_ready() -> None:
    async def main() -> list[int]:
        found: list[int] = []
        for number in range(50):
            asyncio.get_running_loop().call_soon(found.append, number)
        await asyncio.sleep(0.01)
        return found

    assert played(main)[0] == list(range(50))


def test_an_hour_passes_at_once_and_timers_keep_their_order() -> None:
    async def main() -> list[str]:
        found: list[str] = []

        async def after(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            found.append(name)

        await asyncio.gather(after(3600, "hour"), after(1, "second"), after(60, "minute"))
        return found

    found, process = played(main)
    assert found == ["second", "minute", "hour"]
    assert 3600 <= process.now < 3601


def test_a_timeout_ends_what_waits_for_a_thread() -> None:
    async def main() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.to_thread(pause, 60)
        except TimeoutError:
            return "timeout"
        return "done"

    assert played(main)[0] == "timeout"


def test_calls_from_a_thread_arrive_in_their_order() -> None:
    async def main() -> list[int]:
        found, loop = list[int](), asyncio.get_running_loop()

        def call() -> None:
            for number in range(50):
                loop.call_soon_threadsafe(found.append, number)

        await asyncio.to_thread(call)
        return found

    assert played(main)[0] == list(range(50))


def writers(seed: int) -> str:
    """Let two threads write under one lock, with pauses in it; return what they wrote."""

    async def main() -> str:
        lock, written = SimLock(), list[str]()

        def write(letter: str) -> None:
            for _ in range(4):
                with lock:
                    written.append(letter)
                    pause(0.001)
                    written.append(letter)

        threads = [SimThread(target=write, args=(letter,)) for letter in "ab"]
        for each in threads:
            each.start()
        for each in threads:
            await asyncio.to_thread(each.join)
        return "".join(written)

    return str(played(main, seed)[0])


def test_a_lock_keeps_threads_apart_and_the_seed_decides_which_goes_first() -> None:
    found = {writers(seed) for seed in range(6)}

    assert len(found) > 1
    assert writers(3) == writers(3)
    assert all(text[place] == text[place + 1] for text in found for place in range(0, 16, 2))


def test_the_event_loop_waits_for_a_lock_that_a_thread_has_and_nothing_of_it_runs_meanwhile() -> None:
    async def main() -> list[str]:
        lock, found = SimLock(), list[str]()

        def hold() -> None:
            with lock:
                pause(1)
                found.append("thread")

        SimThread(target=hold).start()
        await asyncio.sleep(0.5)
        asyncio.get_running_loop().call_soon(found.append, "callback")
        with lock:
            found.append("loop")
        await asyncio.sleep(0.1)
        return found

    assert played(main)[0] == ["thread", "loop", "callback"]


def test_a_pool_has_no_more_threads_than_it_may_and_ends_after_its_jobs() -> None:
    async def main() -> tuple[int, list[int]]:
        pool, at_work, most = SimExecutor(2), 0, 0

        def job(number: int) -> int:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            pause(0.01)
            at_work -= 1
            return number

        loop = asyncio.get_running_loop()
        jobs: list[Awaitable[int]] = [loop.run_in_executor(pool, job, number) for number in range(7)]  # type: ignore[arg-type]
        found = [await each for each in jobs]
        await asyncio.to_thread(pool.shutdown)
        return most, found

    assert played(main)[0] == (2, list(range(7)))


def test_a_process_that_dies_does_nothing_more() -> None:
    said: list[str] = []

    async def main() -> None:
        queue = SimQueue()

        def follow() -> None:
            while True:
                said.append(queue.get())

        SimThread(target=follow).start()
        queue.put("before")
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(1, queue.put, "after")

    _, process = played(main)
    process.die()
    while process.world.step():
        pass

    assert said == ["before"]
    assert all(thread.has_ended for thread in process.threads)
