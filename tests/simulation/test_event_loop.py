import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from simulation.process import SimProcess
from simulation.threads import SimLock, SimQueue, SimThread, pause
from simulation.world import World

Main = Callable[[], Coroutine[Any, Any, Any]]


def run_in_world(main: Main, seed: int = 1) -> tuple[Any, SimProcess]:
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

    assert run_in_world(main)[0] == list(range(50))


def test_an_hour_passes_at_once_and_timers_keep_their_order() -> None:
    async def main() -> list[str]:
        found: list[str] = []

        async def after(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            found.append(name)

        await asyncio.gather(after(3600, "hour"), after(1, "second"), after(60, "minute"))
        return found

    found, process = run_in_world(main)
    assert found == ["second", "minute", "hour"]
    assert 3600 <= process.now < 3601


def test_calls_from_a_thread_arrive_in_their_order() -> None:
    async def main() -> list[int]:
        found, loop = list[int](), asyncio.get_running_loop()

        def call() -> None:
            for number in range(50):
                loop.call_soon_threadsafe(found.append, number)

        await asyncio.to_thread(call)
        return found

    assert run_in_world(main)[0] == list(range(50))


def writers(seed: int) -> str:
    """Let two threads write under one lock, with pauses; return their output."""

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

    return str(run_in_world(main, seed)[0])


def test_a_lock_keeps_threads_apart_and_the_seed_decides_which_goes_first() -> None:
    found = {writers(seed) for seed in range(6)}

    assert len(found) > 1
    assert writers(3) == writers(3)
    assert all(text[place] == text[place + 1] for text in found for place in range(0, 16, 2))


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

    _, process = run_in_world(main)
    process.die()
    while process.world.step():
        pass

    assert said == ["before"]
    assert all(thread.has_ended for thread in process.threads)
