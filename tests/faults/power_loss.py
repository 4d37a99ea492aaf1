"""Power losses, failing calls and kills under the embedded log; every answer of the log must hold.

`python -m tests.faults.power_loss --scenarios N --seed S` (or `make power-loss N=20000`) plays N scenarios on a disk in
memory that loses unsynced data (`simulation/unreliable_disk.py`). It shows progress, and ends with one JSON line.
The exit code is 1 when a law was broken; the seeds of such scenarios are printed, and `--scenarios 1 --seed S` replays
one.

A scenario is a few lives of one log, one after the other. In each life:

- topics are created, changed and dropped;
- messages are appended, with and without keys, one by one or together;
- time passes, also during calls, and retention deletes old messages;
- cursors of ordered and parallel subscriptions move, alone and with messages, and cursor images are stored;
- calls fail, or the power fails at some change of the disk, also while the log is being opened.

Each life ends in order, by a kill, or by a power loss. Then the log is opened again, and every law of
`tests/storage/log/embedded/history.py` is checked.
"""

import argparse
import errno
import json
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import structlog

from ams.storage.cursors import embedded
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.log.embedded import EmbeddedLog, journal
from tests.faults.reporting import say
from tests.storage.log.embedded.history import (
    REUSE,
    History,
    Step,
    act_steps,
    end_log,
    let_time_pass,
    open_anyway,
    run_scenario,
)
from tests.storage.log.embedded.positions import Positions
from tests.storage.log.engines import HOUR, Embedded

AGES = (None, HOUR, 24 * HOUR)
CALLS = ("sync", "sync", "sync", "write", "open", "sync_folder", "rename", "unlink", "truncate")
ENDINGS = ("close", "kill", "power loss", "power loss")
CALL_MS = (0, 0, 50, 50, HOUR // 8, 21 * HOUR)  # milliseconds that pass during a call of the disk
TOPICS = 5
MOVES = ("move", "image")  # steps of cursors
MAX_SHOWN = 10


@dataclass
class Tally:
    scenarios: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    failed_calls: int = 0
    appends: Counter[str] = field(default_factory=Counter)  # by what was answered: `done`, `refused`, `unknown`
    moves: Counter[str] = field(default_factory=Counter)  # of cursors: `moved`, `refused`, `unknown`
    broken: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.scenarios += other.scenarios
        self.endings += other.endings
        self.failed_calls += other.failed_calls
        self.appends += other.appends
        self.moves += other.moves
        self.broken += other.broken

    def line(self, seed: int, seconds: float) -> str:
        counts = {name: value for name, value in vars(self).items() if name != "broken"}
        return json.dumps({**counts, "seed": seed, "seconds": round(seconds, 1), "violations": len(self.broken)})


def play(seed: int) -> Tally:
    tally = Tally(scenarios=1)
    try:
        run_scenario(_Scenario(random.Random(seed), tally).play())
    except Exception as error:  # whatever it is, it is told with its seed
        place = traceback.extract_tb(error.__traceback__)[-1]
        tally.broken.append((seed, f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"))
    return tally


def play_all(seeds: Sequence[int]) -> Tally:
    """Play several scenarios without the log's own messages."""
    before, image_bytes, at_once = structlog.get_config(), journal.IMAGE_BYTES, embedded._CURSORS_PER_TURN
    journal.IMAGE_BYTES, embedded._CURSORS_PER_TURN = 1500, 2  # small, so that images are stored while cursors move
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[_drop])
    try:
        tally = Tally()
        for seed in seeds:
            tally.add(play(seed))
        return tally
    finally:
        journal.IMAGE_BYTES, embedded._CURSORS_PER_TURN = image_bytes, at_once
        structlog.configure(**before)  # other tests of this process print through a logger of their own


class _Scenario:
    def __init__(self, chance: random.Random, tally: Tally) -> None:
        self._chance, self._tally = chance, tally
        self._history, self._positions = History(limited=chance.random() < 0.2), Positions()
        limit = {"max_bytes": 30_000} if self._history.limited else {}
        sizes = {
            "segment_bytes": chance.choice((1000, 4000, 4000, 60_000)),
            "ahead_bytes": chance.choice((0, 800, 8000)),
            "group_bytes": chance.choice((1 << 20, 20_000)),  # of these large appends are several slices
        }
        self._engine = Embedded(options=sizes | limit)

    async def play(self) -> None:
        for _ in range(self._chance.randint(1, 3)):
            await self._life()
        await self._check()
        log = await self._engine.open()
        assert not log.trimmed, "an orderly stop left a torn end"
        await log.close()
        self._tally.moves.update(self._positions.outcomes)
        self._tally.failed_calls += self._engine.disk.failed
        attempts = [each for told in self._history.topics.values() for each in told.attempts]
        self._tally.appends.update(
            "done" if each.answer else "unknown" if each.in_doubt else "refused" for each in attempts
        )

    async def _life(self) -> None:
        chance, disk = self._chance, self._engine.disk
        if chance.random() < 0.5:
            disk.fail(
                chance.choice(CALLS), chance.choice((errno.EIO, errno.ENOSPC)), after=chance.randint(0, 12),
                times=chance.choice((1, 1, 2, 3, 100)), where=chance.choice(("", ".log", ".idx", ".img", "/cursors/")),
            )  # fmt: skip
        if chance.random() < 0.6:
            disk.stop_at = disk.changes + chance.randint(1, 120)
        log = await open_anyway(self._engine)
        if log is not None:
            assert not log.damage, "what was acknowledged is damaged"
            if chance.random() < 0.3:
                let_time_pass(self._engine, chance.choices(CALL_MS, k=20))
            cursors = await self._positions.open(log)
            await act_steps(self._history, log, self._engine, [("create", None)])
            for step in self._steps():
                await (self._move(log, cursors, step) if step[0] in MOVES else self._act(log, step))
            let_time_pass(self._engine)
        ending = "power loss" if disk.is_stopped else chance.choice(ENDINGS)
        if log is not None and ending == "close":
            await cursors.close()
        self._tally.endings[ending] += 1
        await end_log(self._engine, log, ending, chance)
        if chance.random() < 0.5:
            await self._check()

    async def _check(self) -> None:
        log = await self._engine.open()
        assert not log.damage, "what was acknowledged is damaged"
        await self._history.check(log, self._engine.clock.now)
        cursors = await self._positions.open(log)
        await (cursors.close() if self._chance.random() < 0.5 else log.retain())
        await log.close()

    async def _act(self, log: EmbeddedLog, step: Step) -> None:
        await act_steps(self._history, log, self._engine, [step])

    async def _move(self, log: EmbeddedLog, cursors: EmbeddedCursors, step: Step) -> None:
        if step[0] == "image":
            await self._positions.image(log)
            return
        beside = [self._history.append(log, *each) for each in step[1]]
        if self._chance.random() < 0.3:  # an image in which some of the moves are
            beside.append(self._positions.image(log))
        await self._positions.move(cursors, self._chance, beside)

    def _steps(self) -> Iterator[Step]:
        chance = self._chance
        for _ in range(chance.randint(0, 20)):
            if chance.random() < 0.1:
                yield from REUSE
            yield chance.choice(
                (
                    ("create", chance.choice(AGES)), ("append", *self._append()), ("append", *self._append()),
                    ("append", *self._append(sizes=(20_000, 70_000), most=4)),
                    ("together", [self._append() for _ in range(chance.randint(2, 6))]),
                    ("drop", chance.randrange(TOPICS)),
                    ("set_retention", chance.randrange(TOPICS), chance.choice(AGES[1:])),
                    ("advance", chance.choice((1, HOUR // 8, HOUR))), ("retain",), ("image",),
                    *[("move", [self._append() for _ in range(chance.randint(0, 2))]) for _ in range(5)],
                )
            )  # fmt: skip

    def _append(self, sizes: tuple[int, int] = (0, 1200), most: int = 6) -> tuple[int, list[int], bool]:
        chance = self._chance
        return (
            chance.randrange(TOPICS),
            [chance.randint(*sizes) for _ in range(chance.randint(1, most))],
            chance.random() < 0.5,
        )


def campaign(scenarios: int, seed: int) -> Tally:
    tally, shown = Tally(), 0
    seeds = range(seed, seed + scenarios)
    parts = [seeds[start : start + 100] for start in range(0, scenarios, 100)]
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for part in processes.map(play_all, parts):
            tally.add(part)
            for broken, why in tally.broken[shown:MAX_SHOWN]:
                say(f"--scenarios 1 --seed {broken}: {why}")
            shown = len(tally.broken)
            if tally.scenarios % max(100, scenarios // 20 // 100 * 100) == 0 or tally.scenarios == scenarios:
                say(f"scenario {tally.scenarios} of {scenarios}: {len(tally.broken)} broke a law")
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power_loss", description=__doc__)
    parser.add_argument("--scenarios", type=int, default=20_000, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), metavar="S", help="repeats scenarios")
    options = parser.parse_args()
    began = time.monotonic()
    tally = campaign(options.scenarios, options.seed)
    print(tally.line(options.seed, time.monotonic() - began), flush=True)
    return 1 if tally.broken else 0


def _drop(*_: object) -> str:
    raise structlog.DropEvent


if __name__ == "__main__":
    sys.exit(main())
