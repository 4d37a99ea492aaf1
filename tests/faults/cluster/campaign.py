"""Breaks one thing after another of a cluster under load, and checks everything its clients were told.

`python -m tests.faults.cluster.campaign [--runs N] [--fault NAME ...]` (or `make faults-cluster`) shows how it gets on,
prints the ledger as a table on stderr, and ends with it as one JSON line on stdout. The exit code is 1 when a law or a
promise was broken; histories and logs are kept then, and named.
"""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults.cluster.calls import CallLog
from tests.faults.cluster.client import FrontClient
from tests.faults.cluster.faults import BY_NAME, FAULTS, Fault
from tests.faults.cluster.ledger import Entry, by_fault, line, table
from tests.faults.cluster.run import Run
from tests.faults.cluster.site import Site

SHOWN = 10

Say = Callable[[str], None]


class Campaign:
    def __init__(self, folder: Path, faults: Sequence[Fault], runs: int, seed: int, say: Say) -> None:
        self.entries: list[Entry] = []
        self._folder = folder
        self._site = Site(folder)
        self._faults = faults
        self._runs = runs
        self._seed = seed
        self._say = say

    async def go(self) -> list[Entry]:
        began = time.monotonic()
        try:
            await asyncio.to_thread(self._site.cluster.start)
            await self._make_project()
            self._say(f"three brokers, PostgreSQL with two standbys, three nodes and haproxy after {_since(began)}")
            for number in range(1, self._runs + 1):
                for fault in self._faults:
                    await self._run(fault, number)
        finally:
            await asyncio.to_thread(self._site.cluster.stop)
        return self.entries

    async def _make_project(self) -> None:
        admin = FrontClient("admin", self._site.front, CallLog())
        await admin.must("", {})
        admin.close()

    async def _run(self, fault: Fault, number: int) -> None:
        began = time.monotonic()
        if self.entries:
            await self._site.make_whole()
        run = Run(self._site, fault, number, self._seed + number)
        try:
            entry = await run.go()
        except BaseException:
            run.keep(self._folder)
            raise
        self.entries.append(entry)
        if entry.broken:
            run.keep(self._folder)
        self._tell(entry, number, began)

    def _tell(self, entry: Entry, number: int, began: float) -> None:
        self._say(
            f"{entry.fault}, run {number}: {entry.requests} requests, {entry.failed} failed, the longest took"
            f" {entry.longest:.1f} s, back after {entry.back:.1f} s; {len(entry.broken)} broken ({_since(began)})"
        )
        for sentence in entry.broken[:SHOWN]:
            self._say(f"  {sentence}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cluster.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each fault")
    parser.add_argument(
        "--fault",
        nargs="+",
        action="extend",
        choices=list(BY_NAME),
        metavar="NAME",
        help=f"some of {', '.join(BY_NAME)}",
    )
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="repeats the clients' decisions")
    options = parser.parse_args()
    logging.getLogger("google").setLevel(logging.CRITICAL)  # its clients tell of every broken connection
    faults = [BY_NAME[name] for name in options.fault] if options.fault else FAULTS
    seed = random.randrange(2**32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="ams-faults-"))
    _say(f"seed {seed}, logs in {folder}")
    campaign = Campaign(folder, faults, options.runs, seed, _say)
    try:
        asyncio.run(campaign.go())
    finally:
        ledger = by_fault(campaign.entries)
        _say(table(ledger))
    print(line(ledger), flush=True)
    if any(each.broken for each in ledger):
        _say(f"kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
