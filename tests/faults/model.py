"""A service small enough to be believed, which keeps the laws under kills: it proves that the checker accuses nobody.

One topic, one subscription. As in the real one, a move of the cursor is visible before it is durable, requests overlap,
and a kill takes what was not stored and leaves everybody in flight without an answer. Each `Fault` breaks a law.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from tests.faults.attempts import Ack, Attempt, Ending, Held, Outcome, Publish, Pull, Seek
from tests.faults.history import History

TOPIC, SUBSCRIPTION = "t", "s"
CLIENTS = 3
"""As many write at once, and as many read."""


class Fault(Enum):
    """What the service may be made to do wrong."""

    ANSWER_BEFORE_THE_SYNC = auto()
    DROP_A_MESSAGE = auto()
    REORDER = auto()
    HALF_A_REQUEST = auto()
    STORE_TWICE = auto()
    SAME_IDS_TWICE = auto()
    SKIP_WITHOUT_AN_ACK = auto()
    FORGET_AN_ACK = auto()
    TAKE_ANY_ACK = auto()
    KEEP_HAND_OUTS_OVER_A_SEEK = auto()
    ANSWER_NO_PULL = auto()
    REFUSE_EVERY_PULL = auto()
    REFUSE_EVERY_PUBLISH = auto()


Finish = Callable[[Outcome], Attempt]
"""Makes the attempt of a request in flight when its outcome is known."""


@dataclass
class Model:
    """The service and its clients; every call is a step of time."""

    fault: Fault | None = None
    history: History = field(default_factory=lambda: History({SUBSCRIPTION: TOPIC}))
    log: list[str] = field(default_factory=list)
    """What is on disk."""
    unsynced: list[str] = field(default_factory=list)
    durable: int = 0
    visible: int = 0
    handed: int = 0
    """The end of what was handed out since the last seek; only that may be acknowledged."""
    was_sought: bool = False
    waiting: list[Finish] = field(default_factory=list)
    """Requests that happened in memory and wait for the disk."""
    reading: list[tuple[str, float, tuple[Held, ...]]] = field(default_factory=list)
    _clock: "count[int]" = field(default_factory=count)
    _names: "count[int]" = field(default_factory=lambda: count(1))

    def publish(self, size: int) -> None:
        """Take a request; it is answered by the next sync."""
        request, started = self._begin()
        if self.fault is Fault.REFUSE_EVERY_PUBLISH:
            self._refuse_publish(request, started, size)
            return
        names = tuple(f"{request}/{place}" for place in range(size))
        first = len(self.log) + len(self.unsynced)
        ids = tuple(range(first, first + size))
        if self.fault is Fault.SAME_IDS_TWICE and first:
            ids = tuple(each - 1 for each in ids)
        self.unsynced += self._spoiled(names)

        def finish(outcome: Outcome) -> Attempt:
            answered = ids if outcome is Outcome.DONE else ()
            return Publish(
                request=request, started=started, ended=self._now(), outcome=outcome,
                topic=TOPIC, names=names, ids=answered,
            )  # fmt: skip

        self._take(finish)

    def acknowledge(self, last: int) -> None:
        """Move the cursor; it is answered by the next sync."""
        request, started = self._begin()

        def finish(outcome: Outcome) -> Attempt:
            return Ack(
                request=request, started=started, ended=self._now(), outcome=outcome,
                subscription=SUBSCRIPTION, last=last,
            )  # fmt: skip

        if last >= max(self.visible, self.handed) and self.fault is not Fault.TAKE_ANY_ACK:
            self.history.add(finish(Outcome.REFUSED))
            return
        self.visible = max(self.visible, last + 1)
        self._take(finish)

    def seek(self, offset: int) -> None:
        """Move the cursor anywhere; it is answered by the next sync."""
        request, started = self._begin()
        self.visible = offset
        self.was_sought = True
        if self.fault is not Fault.KEEP_HAND_OUTS_OVER_A_SEEK:
            self.handed = 0
        self._take(
            lambda outcome: Seek(
                request=request, started=started, ended=self._now(), outcome=outcome,
                subscription=SUBSCRIPTION, offset=offset,
            )
        )  # fmt: skip

    def read(self, size: int) -> None:
        """Take what a pull gets; it is answered by the next `answer`."""
        if len(self.reading) == CLIENTS:
            self.answer()
        request, started = self._begin()
        held = [Held(number, name) for number, name in enumerate(self.log)]
        given = tuple(held[self.visible : self.visible + size])
        if given:
            self.handed = max(self.handed, given[-1].id + 1)
        self.reading.append((request, started, given))

    def answer(self) -> None:
        """Let the oldest pull have its answer."""
        if not self.reading:
            return
        if self.fault is Fault.ANSWER_NO_PULL:
            self._end_pull(Outcome.UNKNOWN, ended=float("inf"))
        else:
            self._end_pull(Outcome.REFUSED if self.fault is Fault.REFUSE_EVERY_PULL else Outcome.DONE)

    def sync(self) -> None:
        """Store everything, and answer."""
        self._store()
        for finish in self.waiting:
            self.history.add(finish(Outcome.DONE))
        self.waiting.clear()

    def fail(self) -> None:
        """Let the disk refuse: nothing that waits has happened."""
        self.unsynced.clear()
        self.visible = self.durable
        if self.was_sought:  # what was handed out at a place sought in vain cannot be acknowledged
            self.handed = 0
        for finish in self.waiting:
            self.history.add(finish(Outcome.REFUSED))
        self.waiting.clear()

    def kill(self, stored: bool) -> None:
        """Die before or after the disk had it, but before anybody was answered."""
        if stored:
            self._store()
        self.unsynced.clear()
        self.visible = self.durable
        for finish in self.waiting:
            self.history.add(finish(Outcome.UNKNOWN))
        self.waiting.clear()
        while self.reading:
            self._end_pull(Outcome.UNKNOWN)
        self.handed = 0 if self.was_sought else len(self.log)  # who pulled before may still acknowledge
        self.history.restarts.append(self._now())

    def violations(self) -> list[str]:
        """Check the history so far."""
        held = [Held(number, name) for number, name in enumerate(self.log)]
        return self.history.violations(Ending({TOPIC: held}, {SUBSCRIPTION: self.visible}))

    def _begin(self) -> tuple[str, float]:
        if len(self.waiting) == CLIENTS:
            self.sync()
        return f"r{next(self._names)}", self._now()

    def _now(self) -> float:
        return float(next(self._clock))

    def _take(self, finish: Finish) -> None:
        if self.fault is Fault.ANSWER_BEFORE_THE_SYNC:
            self.history.add(finish(Outcome.DONE))
        else:
            self.waiting.append(finish)

    def _store(self) -> None:
        self.log += self.unsynced
        self.unsynced.clear()
        self.durable = self.visible
        if self.fault is Fault.SKIP_WITHOUT_AN_ACK and self.visible < len(self.log):
            self.visible = self.durable = self.visible + 1
        if self.fault is Fault.FORGET_AN_ACK:
            self.durable = 0

    def _refuse_publish(self, request: str, started: float, size: int) -> None:
        names = tuple(f"{request}/{place}" for place in range(size))
        self.history.add(
            Publish(
                request=request, started=started, ended=self._now(), outcome=Outcome.REFUSED, topic=TOPIC, names=names
            )
        )  # fmt: skip

    def _end_pull(self, outcome: Outcome, *, ended: float | None = None) -> None:
        request, started, messages = self.reading.pop(0)
        given = messages if outcome is Outcome.DONE else ()
        self.history.add(
            Pull(
                request=request, started=started, ended=self._now() if ended is None else ended, outcome=outcome,
                subscription=SUBSCRIPTION, messages=given,
            )
        )  # fmt: skip

    def _spoiled(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self.fault is Fault.DROP_A_MESSAGE:
            return names[1:]
        if self.fault is Fault.REORDER:
            return names[::-1]
        if self.fault is Fault.HALF_A_REQUEST:
            return names[: (len(names) + 1) // 2]
        if self.fault is Fault.STORE_TWICE:
            return names + names
        return names
