"""Runs many seeds, on one or several processors, and shrinks those that fail."""

import argparse
import dataclasses
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from simulation import coverage
from simulation.running import Result, run
from simulation.scenario import Scenario, scenario_of

SHRINK_SECONDS = 120.0
MAX_SHOWN = 5  # violations of a run, and failing seeds of a search, printed in full
_OF_PROJECT = re.compile(r"^project \w+: ")

Play = Callable[..., Result]


@dataclass
class Total:
    """Totals of many runs."""

    runs: int = 0
    operations: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    power_cuts: int = 0
    seconds: float = 0.0
    events: int = 0
    failed: list[int] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count a run."""
        self.runs += 1
        self.operations += len(result.scenario.operations)
        self.requests += result.requests
        self.kills += result.kills
        self.power_cuts += result.power_cuts
        self.seconds += result.seconds
        self.events += result.events
        self.met += result.met
        if result.violations:
            self.failed.append(result.scenario.seed)

    def line(self, seconds: float) -> str:
        """Say it in one line."""
        said = ", ".join(f"{count:,} {name}" for name, count in sorted(self.requests.items()))
        return (
            f"{self.runs} seeds: {self.operations:,} operations, {self.requests.total():,} requests ({said}),"
            f" {self.kills:,} kills, {self.power_cuts:,} power cuts, {self.seconds / 3600:.2f} simulated hours,"
            f" {self.events:,} steps, {len(self.failed)} failed; {seconds:.1f} s"
        )


def law_of(violation: str) -> str:
    """Return the law of a violation: the text before its first colon."""
    return _OF_PROJECT.sub("", violation).partition(":")[0]


def shrink(scenario: Scenario, laws: frozenset[str], play: Play, *, seconds: float = SHRINK_SECONDS) -> Scenario:
    """Return a smaller scenario that breaks one of these laws too.

    Drops halves first, then quarters, down to single parts; faults before operations.
    """
    until = time.monotonic() + seconds

    def still_fails(candidate: Scenario) -> bool:
        return any(law_of(each) in laws for each in play(candidate).violations)

    for parts in ("faults", "operations"):
        size = len(getattr(scenario, parts))
        while size:
            place = 0
            while place < len(getattr(scenario, parts)) and time.monotonic() < until:
                left_out = frozenset(range(place, min(place + size, len(getattr(scenario, parts)))))
                candidate = scenario.without(**{parts: left_out})
                if still_fails(candidate):
                    scenario = candidate
                else:
                    place += size
            size //= 2
    return scenario


def story_of(scenario: Scenario, violations: Sequence[str]) -> str:
    """Describe a failing scenario: operations, faults and violations."""
    broken = "\n".join(f"  {each}" for each in violations[:MAX_SHOWN])
    more = f"\n  and {len(violations) - MAX_SHOWN} more" if len(violations) > MAX_SHOWN else ""
    return (
        f"seed {scenario.seed}, profile {scenario.profile!r}, {scenario.clients} clients\n{scenario.story()}\n"
        f"breaks:\n{broken}{more}"
    )


def game_of(nodes: int) -> tuple[Callable[[int, float], Scenario], Play]:
    """Return the functions that make and play scenarios of this many nodes."""
    if nodes == 1:
        return scenario_of, run
    from simulation.cluster.running import cluster_scenario_of, run_cluster  # loads the drivers of PostgreSQL and Kafka

    return cluster_scenario_of, run_cluster


def play_seed(seed: int, hours: float, nodes: int = 1, *, covers: bool = False) -> Result:
    """Play one seed; return a result small enough for another process."""
    make, play = game_of(nodes)
    return dataclasses.replace(play(make(seed, hours), covers=covers), trace=[])


def results(seeds: Sequence[int], hours: float, jobs: int, nodes: int = 1, *, covers: bool = False) -> Iterator[Result]:
    """Yield the result of each seed."""
    if jobs == 1 or len(seeds) == 1:
        yield from (play_seed(seed, hours, nodes, covers=covers) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(play_seed, hours=hours, nodes=nodes, covers=covers), seeds, chunksize=4)


def search(
    seeds: Sequence[int], *, hours: float, jobs: int, shrinks: bool, nodes: int = 1, covers: bool = False
) -> Total:
    """Play all seeds and print those that fail; with `covers` also the crash coverage."""
    total, began = Total(), time.monotonic()
    said = began
    again = f" --nodes {nodes}" if nodes > 1 else ""
    for result in results(seeds, hours, jobs, nodes, covers=covers):
        total.add(result)
        if result.violations and len(total.failed) <= MAX_SHOWN:
            print(f"FAILED: python -m simulation --seed {result.scenario.seed}{again}", flush=True)
            print(_report(result, game_of(nodes)[1], shrinks=shrinks), flush=True)
        if time.monotonic() - said > 30:
            said = time.monotonic()
            print(total.line(said - began), file=sys.stderr, flush=True)
    if covers:
        print(coverage.table(total.met))
    print(total.line(time.monotonic() - began))
    if total.failed:
        print(f"failed: {' '.join(map(str, total.failed))}")
    return total


def _report(result: Result, play: Play, *, shrinks: bool) -> str:
    scenario, violations = result.scenario, result.violations
    if shrinks:
        scenario = shrink(scenario, frozenset(map(law_of, violations)), play)
        violations = play(scenario).violations
        if not violations:
            return f"{story_of(result.scenario, result.violations)}\nit did not fail again: a choice is not the seed's"
    return f"{story_of(scenario, violations)}\nas a test:\nassert {play.__name__}({scenario!r}).violations == []"


def main() -> None:
    """Play the seeds of the command line. Returns 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description="Play the service in simulated worlds.")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many worlds")
    parser.add_argument(
        "--seed", type=int, metavar="S", help="play this one only, or begin with it if --seeds is given"
    )
    parser.add_argument(
        "--hours", type=float, default=0.0, metavar="H", help="simulated hours of each; 0: some seconds"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes to share the work"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, choices=(1, 3), help="one node, or three over PostgreSQL and Kafka"
    )
    parser.add_argument("--no-shrink", action="store_true", help="tell failing worlds as they are")
    parser.add_argument("--coverage", action="store_true", help="print which points crashes have met")
    parser.add_argument("--trace", metavar="FILE", help="write the steps of the world of --seed to a file")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets depends on hashes
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])  # noqa: S606
    is_one = options.seed is not None and "--seeds" not in sys.argv
    first = options.seed if options.seed is not None else random.randrange(2**31)
    if options.trace:
        make, play = game_of(options.nodes)
        result = play(make(first, options.hours), keeps_trace=True)
        with open(options.trace, "w") as file:
            file.writelines(result.trace)
    seeds = range(first, first + (1 if is_one else options.seeds))
    total = search(
        seeds,
        hours=options.hours,
        jobs=options.jobs,
        shrinks=not options.no_shrink,
        nodes=options.nodes,
        covers=options.coverage,
    )
    sys.exit(1 if total.failed else 0)
