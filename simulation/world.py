"""Virtual time: one heap of events, one random generator, and a digest of all events."""

import hashlib
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.network import Network

MICROSECOND = 1e-6


@dataclass(slots=True, eq=False)
class Event:
    """An event at a moment, which may be cancelled."""

    moment: float
    number: int
    action: Callable[[], None]
    label: str
    owner: object  # its process: a crash drops its events
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the event."""
        self.is_cancelled = True


class Timeline:
    """Events by moment, and the current time."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Event]] = []  # moment and number first, for fast comparison
        self._numbers = itertools.count()

    def after(self, seconds: float, action: Callable[[], None], label: str, owner: object) -> Event:
        """Have something happen in so many seconds."""
        return self.at(self.now + seconds, action, label, owner)

    def at(self, moment: float, action: Callable[[], None], label: str, owner: object) -> Event:
        """Schedule an action at a moment. Actions of one moment run in the order of the calls."""
        event = Event(max(moment, self.now), next(self._numbers), action, label, owner)
        heapq.heappush(self._heap, (event.moment, event.number, event))
        return event

    def pop(self) -> Event | None:
        """Remove the next event, advance to its moment and return it; None if there is none."""
        while self._heap:
            _, _, event = heapq.heappop(self._heap)
            if not event.is_cancelled:
                self.now = max(self.now, event.moment)
                return event
        return None

    def is_next(self, event: Event) -> bool:
        """Return whether an event is the next one."""
        while self._heap and self._heap[0][2].is_cancelled:
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][2] is event

    def split(self, owner: object) -> "Timeline":
        """Move the events of one owner to a new timeline that begins now."""
        taken = Timeline(self.now)
        taken._numbers = itertools.count(next(self._numbers))
        taken._heap = [each for each in self._heap if each[2].owner is owner]
        self._heap = [each for each in self._heap if each[2].owner is not owner]
        heapq.heapify(taken._heap)
        heapq.heapify(self._heap)
        return taken


@dataclass(slots=True)
class Latencies:
    """Durations in seconds: minimum and maximum, drawn each time."""

    callback: tuple[float, float] = (2e-6, 40e-6)  # of the event loop
    wake: tuple[float, float] = (5e-6, 200e-6)  # from waking a thread to its running
    disk: tuple[float, float] = (10e-6, 300e-6)  # of a call other than a sync
    sync: tuple[float, float] = (200e-6, 8e-3)
    network: tuple[float, float] = (50e-6, 2e-3)
    tail: float = 0.01  # share of draws that are twenty times as long


@dataclass(slots=True)
class Trace:
    """A digest of all events, and their last lines."""

    keeps: bool = False
    lines: list[str] = field(default_factory=list)
    count: int = 0
    _digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def note(self, now: float, label: str) -> None:
        """Add one line."""
        line = f"{now:.9f} {label}\n"
        self.count += 1
        self._digest.update(line.encode())
        if self.keeps:
            self.lines.append(line)

    def digest(self) -> str:
        """Return the digest as text."""
        return self._digest.hexdigest()


class World:
    """The shared time and random generator of a simulation."""

    def __init__(self, seed: int | str, latencies: Latencies | None = None, *, keeps_trace: bool = False) -> None:
        self.seed = seed
        self.chance = random.Random(f"world {seed}")
        self.latencies = latencies or Latencies()
        self.timeline = Timeline()
        self.trace = Trace(keeps_trace)
        self.network = Network(self)

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.timeline.now

    def after(self, seconds: float, action: Callable[[], None], label: str, owner: object = None) -> Event:
        """Have something happen in so many seconds."""
        return self.timeline.after(seconds, action, label, owner)

    def draw(self, span: tuple[float, float], chance: random.Random | None = None) -> float:
        """Draw a duration."""
        chance = chance or self.chance
        drawn = chance.uniform(*span)
        return drawn * 20 if chance.random() < self.latencies.tail else drawn

    def takes(self, event: Event) -> bool:
        """Consume an event if it is the next one. Returns False otherwise.

        So a thread that only waits for time keeps the baton: switching costs more than the step.
        """
        if not self.timeline.is_next(event):
            return False
        self.timeline.pop()
        self.trace.note(self.timeline.now, event.label)
        return True

    def step(self) -> bool:
        """Run the next event. Returns False if there is none."""
        event = self.timeline.pop()
        if event is None:
            return False
        self.trace.note(self.timeline.now, event.label)
        event.action()
        return True
