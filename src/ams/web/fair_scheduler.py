"""Fair scheduler: when one iteration of the event loop has too much work, projects share it round robin.

The event loop serves all sockets that are ready in one iteration, and then all callbacks that are due. So a client with
a thousand connections would make everybody else wait for a thousand requests, twice: as they arrive, and as they are
answered. Work that arrives when the iteration has taken long enough waits instead (decision 0038), by project.

Anybody can name a project. Until a request of a connection was let in to one, its packets take the turns of the
client's address, and the names they give share those turns. So strangers take no turn of a project.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

QUIET_TURN_SECONDS = 0.002
"""Work of one iteration before any waits: some 64 busy connections. Two iterations would wake the committer twice."""
BUSY_TURN_SECONDS = 0.001  # work of one iteration while some waits, about
SHARE_SECONDS = BUSY_TURN_SECONDS / 4  # of a project, until it is the next one's turn; one request if that takes longer
FREE_REQUESTS, REQUESTS_PER_LOOK = 8, 4  # requests without a look at the clock: at first, and between looks
COUNTED_BYTES = 16 * 1024  # of a packet: each so many count as a request more
MAX_NAMES = 8
"""Queues of one client, by the project it names; other names share one. A client with many names must not delay the
others who wait under one of them.
"""
MAX_HELD_BYTES = 16 * 2**20  # of packets that wait; more are read at once, as the budget of bodies counts what was read


class FairScheduler:
    """Work that waits, by project. Used from one event loop; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Hashable, OrderedDict[Hashable, deque[Callable[[], object]]]] = OrderedDict()
        """By who takes turns, and by the name under which it was put."""
        self.free = FREE_REQUESTS  # requests that may be done now; the caller counts them here, without a call
        self._is_due = False  # whether `_go_on` will be called
        self._until = 0.0  # when this turn of the event loop has taken long enough
        self._share = 0.0  # when the project whose turn it is has taken its share
        self._since = 0.0  # when the last round was over, or the first look at the clock was
        self._tasks = 0  # tasks begun since then
        self._task_seconds = BUSY_TURN_SECONDS / 10  # what a task took on the average
        self._held_bytes = 0

    def must_wait(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether work that arrives now has to `put` itself into its queue; called when nothing is `free`."""
        self.free = 0
        if self._waiting:
            return True
        now = self._clock()
        if not self._is_due:
            self._since, self._until, self._tasks = now, now + QUIET_TURN_SECONDS, 0
            self._is_due = True
            loop.call_soon(self._go_on, loop)
        elif now > self._until:
            return True
        self.free = REQUESTS_PER_LOOK - 1
        return False

    def count_task(self) -> None:
        """Count a request that is done in a task: its time is taken from this iteration."""
        self._tasks += 1
        self.free -= REQUESTS_PER_LOOK
        self._until -= self._task_seconds
        self._share -= self._task_seconds

    def put(self, who: Hashable, work: Callable[[], object], name: Hashable = None) -> None:
        """Queue work for its turn; to be called when it `must_wait`. Within a turn, names take turns again."""
        names = self._waiting.get(who)
        if names is None:
            names = self._waiting[who] = OrderedDict()
        if name not in names and len(names) >= MAX_NAMES:
            name = None
        works = names.get(name)
        if works is None:
            names[name] = deque((work,))
        else:
            works.append(work)

    def hold_bytes(self, size: int) -> bool:
        """Count bytes of a packet that waits; False when there are too many."""
        if self._held_bytes + size > MAX_HELD_BYTES:
            return False
        self._held_bytes += size
        return True

    def release_bytes(self, size: int) -> None:
        """Count bytes that wait no more."""
        self._held_bytes -= size

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run what waits, a share of each project and again, for as long as an iteration may take."""
        now, waiting = self._clock(), self._waiting
        if self._tasks:
            mean = min((now - self._since) / self._tasks, BUSY_TURN_SECONDS)
            self._task_seconds += (mean - self._task_seconds) / 4
        self._tasks, self._until = 0, now + BUSY_TURN_SECONDS
        try:
            while waiting and now <= self._until:
                who, names = next(iter(waiting.items()))
                self._share = now + SHARE_SECONDS
                while names and now <= self._share:
                    _next_of(names)()
                    now = self._clock()
                if names:
                    waiting.move_to_end(who)
                else:
                    del waiting[who]
        finally:
            self._since = now
            self._is_due = bool(waiting)
            if waiting:
                loop.call_soon(self._go_on, loop)
            else:
                self.free = FREE_REQUESTS


def _next_of(names: OrderedDict[Hashable, deque[Callable[[], object]]]) -> Callable[[], object]:
    """Take the next work; the rest of that name's queue comes after the other names."""
    name, works = next(iter(names.items()))
    work = works.popleft()
    if works:
        names.move_to_end(name)
    else:
        del names[name]
    return work
