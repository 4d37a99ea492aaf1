"""Rounds: projects take turns, a share of the time each, when more is due than one turn of the event loop should take.

The event loop serves all sockets that are ready in one turn, and then all that it was called back for. So who has a
thousand connections would make everybody else wait for a thousand requests, twice: as they come, and as they are
answered. What comes when this turn has taken long enough waits instead (`docs/decisions/`), by project, and is done in
the turns after, in each for as long; what comes of others in between has its turn with the next round.

Anybody can name a project. Until a request of a connection was let in to one, what it sends takes the turns of its
client's address, which those whom it names share: so strangers take no turn of a project, however many they name.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

AT_ONCE_SECONDS = 0.002
"""What one turn of the event loop takes for requests before any wait. It is enough for some 64 busy connections: in two
turns they would wake up the thread that stores twice.
"""
SECONDS = 0.001
"""What it takes, about, while some wait."""
SHARE = SECONDS / 4
"""What a project takes until it is the next one's turn, about; one request if that takes longer."""
FEW, BETWEEN = 8, 4
"""Requests that are done without a look at the clock: the first ones, and those between two looks."""
MOST_NAMES = 8
"""Told apart of what waits for one's turn; what has other names is done as it came. With any number, who sends many
names would make those who wait under one name wait for all of them, again and again.
"""
MOST_BYTES = 16 * 2**20
"""Of packets that wait. What comes beyond is read at once, as the budget of bodies counts only what was read."""


class Rounds:
    """What is due, by project. Used from one event loop; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Hashable, OrderedDict[Hashable, deque[Callable[[], object]]]] = OrderedDict()
        """By who takes turns, and by the name under which it was put."""
        self.free = FEW
        """How many requests may be done at once; who does one counts it here, which is no call for most of them."""
        self._is_due = False
        """Whether `_go_on` will be called."""
        self._until = 0.0
        """When this turn of the event loop has taken long enough."""
        self._share = 0.0
        """When the project whose turn it is has taken its share."""
        self._since = 0.0
        """When the last round was over, or the first look at the clock was."""
        self._tasks = 0
        """Begun since then."""
        self._task_seconds = SECONDS / 10
        """What a task took on the average."""
        self._held_bytes = 0

    def is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether what comes now has to wait for its turn, when nothing is `free`; otherwise it is done at once."""
        self.free = 0
        if self._waiting:
            return True
        now = self._clock()
        if not self._is_due:
            self._since, self._until, self._tasks = now, now + AT_ONCE_SECONDS, 0
            self._is_due = True
            loop.call_soon(self._go_on, loop)
        elif now > self._until:
            return True
        self.free = BETWEEN - 1
        return False

    def begin_task(self) -> None:
        """Count a request that is done in a task: what that will take is taken of this turn."""
        self._tasks += 1
        self.free -= BETWEEN
        self._until -= self._task_seconds
        self._share -= self._task_seconds

    def put(self, who: Hashable, work: Callable[[], object], name: Hashable = None) -> None:
        """Do this when it is somebody's turn; to be called when a turn is over.

        In a turn one is done of each `name` in a row, and of what came when there were too many names.
        """
        names = self._waiting.get(who)
        if names is None:
            names = self._waiting[who] = OrderedDict()
        if name not in names and len(names) >= MOST_NAMES:
            name = None
        works = names.get(name)
        if works is None:
            names[name] = deque((work,))
        else:
            works.append(work)

    def hold(self, size: int) -> bool:
        """Count bytes of a packet that waits; False when there are too many."""
        if self._held_bytes + size > MOST_BYTES:
            return False
        self._held_bytes += size
        return True

    def let_go(self, size: int) -> None:
        """Count bytes that wait no more."""
        self._held_bytes -= size

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what waits, a share of each project and again, for as long as a turn may take."""
        now, waiting = self._clock(), self._waiting
        if self._tasks:
            mean = min((now - self._since) / self._tasks, SECONDS)
            self._task_seconds += (mean - self._task_seconds) / 4
        self._tasks, self._until = 0, now + SECONDS
        try:
            while waiting and now <= self._until:
                who, names = next(iter(waiting.items()))
                self._share = now + SHARE
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
                self.free = FEW


def _next_of(names: OrderedDict[Hashable, deque[Callable[[], object]]]) -> Callable[[], object]:
    """Take what is to be done next; what else has that name comes after the other names."""
    name, works = next(iter(names.items()))
    work = works.popleft()
    if works:
        names.move_to_end(name)
    else:
        del names[name]
    return work
