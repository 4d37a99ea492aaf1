"""Breaks one part of a cluster after another under load, and checks every answer to its clients.

`python -m tests.faults.cluster.campaign [--runs N] [--fault NAME ...]` (or `make faults-cluster`) shows progress. It
prints one JSON line a run, the ledger of faults. The exit code is 1 when a law or a promise was broken; then it keeps
histories and logs, and prints their paths.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.cluster.calls import CallLog
from tests.faults.cluster.clients import FrontClient
from tests.faults.cluster.faults import BY_NAME, Fault
from tests.faults.cluster.run import Entry, Run
from tests.faults.cluster.site import ClusterSite
from tests.faults.reporting import end_campaign, say


class ClusterCampaign:
    def __init__(self, folder: Path, faults: Sequence[Fault], runs: int, seed: int) -> None:
        self.entries: list[Entry] = []
        self._folder, self._site = folder, ClusterSite(folder)
        self._faults, self._runs, self._seed = faults, runs, seed

    async def go(self) -> list[Entry]:
        began = time.monotonic()
        try:
            await asyncio.to_thread(self._site.cluster.start)
            admin = FrontClient("admin", self._site.front, CallLog())
            await admin.must("", {})
            admin.close()
            say(f"three brokers, PostgreSQL with two standbys, three nodes and haproxy after {_since(began)}")
            for number in range(1, self._runs + 1):
                for fault in self._faults:
                    await self._run(fault, number)
        finally:
            await asyncio.to_thread(self._site.cluster.stop)
        return self.entries

    async def _run(self, fault: Fault, number: int) -> None:
        began = time.monotonic()
        if self.entries:
            await self._site.make_whole()
        run, entry = Run(self._site, fault, number, self._seed + number), None
        try:
            entry = await run.go()
        finally:
            if entry is None or entry.broken:
                run.keep(self._folder)
        self.entries.append(entry)
        print(entry.line(), flush=True)
        say(f"{fault.name}, run {number}: {len(entry.broken)} broken ({_since(began)})")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cluster.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each fault")
    names = ", ".join(BY_NAME)
    parser.add_argument("--fault", nargs="+", choices=BY_NAME, default=BY_NAME, metavar="NAME", help=f"some of {names}")
    seed = random.randrange(2**32)
    parser.add_argument("--seed", type=int, default=seed, metavar="S", help="repeats the clients' decisions")
    options = parser.parse_args()
    logging.getLogger("google").setLevel(logging.CRITICAL)  # its clients tell of every broken connection
    folder = Path(tempfile.mkdtemp(prefix="ams-faults-"))
    say(f"seed {options.seed}, logs in {folder}")
    campaign = ClusterCampaign(folder, [BY_NAME[name] for name in options.fault], options.runs, options.seed)
    asyncio.run(campaign.go())
    return end_campaign(folder, [f"{entry.fault}: {each}" for entry in campaign.entries for each in entry.broken])


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
