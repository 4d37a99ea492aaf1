"""Fair scheduler: each project gets a fair share of an event-loop iteration, round robin, when work is too much.

Work that arrives late in a long iteration is queued by project (decision 0038). Anyone can send a project's name: until
a connection is admitted to a project, its packets take the turns of the client's address.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

from ams.core.supervisor import pop_in_turn

QUIET_TURN_SECONDS = 0.002
"""Work of one iteration before any is queued: some 64 busy connections. Two would wake the committer twice."""
BUSY_TURN_SECONDS = 0.001  # approximate work of one iteration while some is queued
SHARE_SECONDS = BUSY_TURN_SECONDS / 4  # of a project, until the next project's turn; at least one request
FREE_REQUESTS, REQUESTS_PER_LOOK = 8, 4  # requests without a look at the clock: at first, and between looks
COUNTED_BYTES = 16 * 1024  # of a packet: this many bytes count as one request more
MAX_NAMES = 8
"""Queues of one client, by the project it names; further names share one. A client with many names must not delay
others who wait under one of them."""
MAX_HELD_BYTES = 16 * 2**20  # of queued packets; more are read at once, and the budget of bodies counts them


class FairScheduler:
    """Queued work by project. Used from one event loop; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Hashable, OrderedDict[Hashable, deque[Callable[[], object]]]] = OrderedDict()
        """By holder of the turn, and by the name given to `enqueue`."""
        self.free = FREE_REQUESTS  # requests that may run now; counted down by the caller, to save a call
        self._is_due = False  # True: `_go_on` is scheduled
        self._until = 0.0  # end of this iteration's time
        self._share = 0.0  # end of the current project's share
        self._since = 0.0  # end of the last round, or first look at the clock
        self._tasks = 0  # tasks started since then
        self._task_seconds = BUSY_TURN_SECONDS / 10  # average time of a task
        self._held_bytes = 0

    def must_wait(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether arriving work must be queued by `enqueue`; called when nothing is `free`."""
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
        """Count a request that runs in a task: its time is deducted from this iteration."""
        self._tasks += 1
        self.free -= REQUESTS_PER_LOOK
        self._until -= self._task_seconds
        self._share -= self._task_seconds

    def enqueue(self, who: Hashable, work: Callable[[], object], name: Hashable = None) -> None:
        """Queue work, after `must_wait` returned True. Names share their holder's turn round robin."""
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
        """Count the bytes of a queued packet. Returns False above the limit."""
        if self._held_bytes + size > MAX_HELD_BYTES:
            return False
        self._held_bytes += size
        return True

    def release_bytes(self, size: int) -> None:
        """Uncount bytes that no longer wait."""
        self._held_bytes -= size

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run queued work for one iteration, a share of each project in turn."""
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
                    pop_in_turn(names)()
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
