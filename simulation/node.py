"""The service as one process of a world: start, crash, power cut, pause, restart, orderly stop.

The service, SQLite and the small files (in a temporary folder) are real. The disk of the log and of the databases,
time, threads and the network are simulated. A crash may come between any two steps, also between two disk calls of a
SQLite commit.
"""

import asyncio
import os
import shutil
from collections import Counter

from ams.app.lifecycle import State, serve_api
from ams.app.wiring import service
from ams.app.wiring.assembly import Service
from ams.core.clock import Milliseconds
from ams.core.settings import Bytes, Seconds, Settings
from ams.core.supervisor import Supervisor
from simulation.coverage import met_by_crash
from simulation.disk import NodeDisk
from simulation.network import ListeningSocket
from simulation.process import SimProcess
from simulation.seams import START_OF_TIME, LogEvent
from simulation.world import World

PORT, PUBSUB_PORT = 8080, 8085
DISK_BYTES = 1 << 40
TOKEN = "service-token"  # noqa: S105 - of a world
RESTART_SECONDS = (0.05, 2.0)
BLOCKED_SECONDS = 0.001  # delay of a crash while the event loop waits for a thread
STOP_SECONDS = 60.0
PULL_WAIT_SECONDS = 3.0
LAST_SECONDS = 0.1  # after an orderly end; anything still open then is a leak
DEFECTS = ("part.failed", "background.failed", "connection.failed", "request.failed", "part.not_given_up")


class NodeClock:
    """The clocks of the node's machine: a wall clock that drifts and steps, and a monotonic one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.drift = 0.0  # seconds gained each second
        self.offset = 0.0  # sum of steps, in seconds

    def wall(self) -> Milliseconds:
        """Return the time of day."""
        now = self._world.now
        return Milliseconds(int((START_OF_TIME + now * (1 + self.drift) + self.offset) * 1000))

    def monotonic(self) -> Milliseconds:
        """Return the monotonic time."""
        return Milliseconds(int(self._world.now * 1000))


class Node:
    """The machine of the service."""

    port = PORT
    name = "node"

    def __init__(self, world: World, folder: str, settings: Settings) -> None:
        self.world, self.network, self.folder, self.settings = world, world.network, folder, settings
        self.disk = NodeDisk(world, DISK_BYTES)
        self.disk.make_durable(folder)  # as `Folder.take` does with the real one
        self.clock = NodeClock(world)
        self.life: SimProcess | None = None
        self.service: Service | None = None  # while clients are served
        self.starts: list[float] = []  # moments at which it was ready
        self.ends: list[float] = []  # moments at which it ended
        self.leaks: list[str] = []  # leaks of orderly stops
        self.has_disk_faults = False  # disk calls fail, so the service may give up
        self.met: Counter[str] | None = None  # crash coverage: counts by point
        self.defects: list[str] = []  # unexpected lines of the service's log
        self._stop = asyncio.Event()
        self._is_stopping = False

    def note(self, event: LogEvent) -> None:
        """Check a line of the service's log."""
        said = str(event.get("event"))
        if said in DEFECTS and not self.has_disk_faults:
            error = event.get("exc_info")
            details = {key: value for key, value in event.items() if key not in ("event", "exc_info", "level")}
            self.defects.append(f"the log says {said} {details} {error if error is not True else ''}")

    def boot(self) -> None:
        """Start the service as a new process."""
        if self.life is not None or self._is_stopping:
            return
        life = self.life = SimProcess(self.world, f"{self.name}{len(self.ends)}", self.name)
        sock = self.network.listen(life, self.port)
        before, SimProcess.current = SimProcess.current, life
        task = life.loop.create_task(self._serve(life, sock))
        SimProcess.current = before
        task.add_done_callback(lambda done: self._note_end(life, done))

    async def _serve(self, life: SimProcess, sock: ListeningSocket) -> None:
        supervisor = Supervisor()
        state = State(supervisor)
        self._stop = asyncio.Event()
        files, clock = self.disk, self.clock
        async with (
            service(self.settings, supervisor, clock=clock, files=files) as made,
            serve_api(self.settings, made, sock, state),  # type: ignore[arg-type]
        ):
            self.service = made
            self.starts.append(self.world.now)
            try:
                await supervisor.until(self._stop)
            finally:
                self.service = None
        supervisor.check()

    def _note_end(self, life: SimProcess, done: "asyncio.Task[None]") -> None:
        """Note that the process ended by itself, and restart it as a supervisor would."""
        if life.is_dying or done.cancelled():
            return
        error = done.exception()
        if error is not None and not self.has_disk_faults:
            self.defects.append(f"the service ended by itself: {type(error).__name__}: {error}")
        self.world.after(LAST_SECONDS, lambda: self._bury(life), "the process has ended")

    def _bury(self, life: SimProcess) -> None:
        if self.life is not life:
            return
        self._note_leaks(life)
        self.lose_connections(life)
        life.end()
        self.life = None
        self.disk.revive()
        self.ends.append(self.world.now)
        self.world.after(self.world.draw(RESTART_SECONDS), self.boot, "start again")

    def crash(self, *, power: bool) -> None:
        """Kill the process between two steps, or cut its machine's power; restart it soon."""
        life = self.life
        if life is None:
            return
        if life.loop.is_blocked:
            self.world.after(BLOCKED_SECONDS, lambda: self.crash(power=power), "crash a little later")
            return
        if self.met is not None:
            self.met.update(set(met_by_crash(self)))
        down = self.world.draw(RESTART_SECONDS)
        self.disk.halt()
        self.lose_connections(life, hear_after=down if power else None)
        kept = f"{self.folder}.kept"
        shutil.copytree(self.folder, kept, ignore=shutil.ignore_patterns("*-shm"))
        self.service, self.life = None, None
        life.die()
        if power:
            self.disk.power_loss(self.world.chance)
        self.disk.revive()
        shutil.rmtree(self.folder)
        os.rename(kept, self.folder)
        self.ends.append(self.world.now)
        self.world.after(down, self.boot, "start again")

    def leave(self) -> None:
        """Remove the node from the world."""
        self._is_stopping = True
        life, self.life, self.service = self.life, None, None
        if life is not None:
            self.disk.halt()
            self.lose_connections(life)
            life.die()

    def lose_connections(self, life: SimProcess, hear_after: float | None = None) -> None:
        """Close all connections of a process. Peers hear of it soon, or after this many seconds."""
        self.network.end(life, hear_after=hear_after)

    def pause(self, seconds: float) -> None:
        """Stop running the process for this many seconds."""
        if self.life is not None:
            self.life.paused_until = self.world.now + seconds

    def stop(self) -> None:
        """Ask the process for an orderly stop; it is restarted soon."""
        if self.life is not None:
            self.life.loop.call_soon(self._stop.set)

    def stop_for_good(self) -> None:
        """Stop in order, and note leaks."""
        self._is_stopping = True
        life = self.life
        if life is None:
            self.leaks.append("the service was not running at the end")
            return
        self.stop()
        until = self.world.now + STOP_SECONDS
        while self.life is life and self.world.now < until and self.world.step():
            pass
        if self.life is life:
            self.leaks.append(f"the stop took longer than {STOP_SECONDS:.0f} s; tasks: {_tasks(life)}")
            self.disk.halt()
            life.die()

    def _note_leaks(self, life: SimProcess) -> None:
        tasks = _tasks(life)
        found = [f"tasks were left: {tasks}"] if tasks else []
        threads = [each.name for each in life.threads if not each.has_ended]
        own = [each for each in threads if not each.startswith("worker")]  # threads of the loop's own pool are kept
        found += [f"threads were left: {own}"] if own else []
        if self.disk.open_paths and not self.has_disk_faults:
            found.append(f"files were left open: {self.disk.open_paths}")
        found += [f"nobody took an exception: {each}" for each in life.troubles]
        self.leaks += [f"leak: {each}" for each in found]


def _tasks(life: SimProcess) -> list[str]:
    return sorted(str(getattr(each.get_coro(), "__qualname__", "?")) for each in asyncio.all_tasks(life.loop))


def settings_for(folder: str, **changes: object) -> Settings:
    """Return settings with small segments and short waits."""
    small: dict[str, object] = {
        "data": folder, "port": PORT, "host": "10.0.0.1", "service_token": TOKEN, "console": False,
        "min_free_bytes": Bytes(0), "reserve_bytes": Bytes(0), "segment_bytes": Bytes(2**20),
        "pull_wait": Seconds(PULL_WAIT_SECONDS), "push_enabled": False,
    }  # fmt: skip
    return Settings(**{**small, **changes})  # type: ignore[arg-type]
