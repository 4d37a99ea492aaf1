"""A process of the world: event loop, threads, and a possible end between any two steps."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from simulation.event_loop import SimLoop
from simulation.threads import Deadlock, SimThread
from simulation.world import Event, World

T = TypeVar("T")
WIND_DOWN_STEPS = 20_000
WIND_DOWN_ROUNDS = 4


class SimProcess:
    """An event loop and threads that end together."""

    current: ClassVar["SimProcess | None"] = None  # the process whose event loop runs a callback now

    def __init__(self, world: World, name: str, machine: str = "") -> None:
        self.world, self.name = world, name
        self.machine = machine or name
        self.timeline = world.timeline
        self.threads: list[SimThread] = []
        self.is_dying = False
        self.paused_until = 0.0  # end of the current pause
        self.troubles: list[str] = []  # unhandled exceptions
        self.loop = SimLoop(self)  # type: ignore[abstract]  # what the program never calls stays as asyncio has it

    @classmethod
    def running(cls) -> "SimProcess":
        """Return the process of the thread or the event loop that runs now."""
        process = SimThread.current.process if SimThread.current is not None else cls.current
        assert process is not None, "nothing simulated runs now"
        return process

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.timeline.now

    def after(self, seconds: float, action: Callable[[], None], label: str) -> Event:
        """Schedule an action of this process; dropped when it ends before."""
        return self.timeline.after(seconds, action, f"{self.name} {label}", self)

    def at(self, moment: float, action: Callable[[], None], label: str) -> Event:
        """Schedule an action of this process at a moment; dropped when it ends before."""
        return self.timeline.at(moment, action, f"{self.name} {label}", self)

    @property
    def pause_left(self) -> float:
        """Seconds left of the current pause."""
        return 0.0 if self.is_dying else max(self.paused_until - self.now, 0.0)

    def draw(self, span: tuple[float, float]) -> float:
        """Draw a duration. A dead process draws nothing, so that it changes no later draw of the world."""
        return span[0] if self.is_dying else self.world.draw(span)

    def step_blocked(self) -> None:
        """Run the next event while this process's event loop waits for a thread."""
        was, self.loop.is_blocked = self.loop.is_blocked, True
        current, SimProcess.current = SimProcess.current, None
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            if not (self._step_alone() if self.is_dying else self.world.step()):
                raise Deadlock(f"{self.name} waits for a thread that nothing wakes")
        finally:
            asyncio._set_running_loop(running)
            SimProcess.current, self.loop.is_blocked = current, was

    def run(self, work: Coroutine[Any, Any, T], most: int | None = None) -> T:
        """Run the world until a coroutine of this process has ended. Raises `Deadlock` after `most` steps."""
        before, SimProcess.current = SimProcess.current, self
        task = self.loop.create_task(work)
        SimProcess.current = before
        while not task.done():
            if not self.world.step():
                raise Deadlock("nothing will happen any more")
            if most is not None and self.world.trace.count > most:
                raise Deadlock(f"it has taken {most} steps")
        return task.result()

    def die(self) -> None:
        """End at once. Remaining tasks and threads unwind on a timeline of their own, cut off from the world."""
        self.is_dying = True
        self.timeline = self.world.timeline.split(self)
        for thread in list(self.threads):
            thread.go_on()
        for _ in range(WIND_DOWN_ROUNDS):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.go_on()
            for step in range(WIND_DOWN_STEPS):
                if not self._step_alone() or (step % 64 == 0 and not asyncio.all_tasks(self.loop)):
                    break
        self.end()

    def end(self) -> None:
        """Release what an orderly end or a crash has left."""
        self.is_dying = True
        if self.timeline is self.world.timeline:
            self.timeline = self.world.timeline.split(self)
        for thread in list(self.threads):
            thread.go_on()
        self.loop.close()

    def _step_alone(self) -> bool:
        event = self.timeline.pop()
        if event is None:
            return False
        event.action()
        return True
