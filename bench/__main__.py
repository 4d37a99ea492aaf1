"""`python -m bench [--quick] [CASE ...]`: measure, one JSON line a case on stdout, progress and a table on stderr."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.cluster import cluster
from bench.parallel import parallel
from bench.processes import ROOT, Failed
from bench.publish import publish
from bench.pubsub import pubsub
from bench.pull import pull
from bench.push import push
from bench.report import Result, emit, progress, table
from bench.run import FULL, QUICK, Bench
from bench.spark import spark
from bench.start import start
from bench.tenants import tenants
from bench.tls import tls

CASES = (publish, pull, push, parallel, pubsub, tls, start, tenants, cluster, spark)
"""Each guards a promise; `docs/how-to/bench.md` lists them. Chosen by their names."""


def arguments() -> argparse.Namespace:
    names = [each.__name__ for each in CASES]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the service against comparators.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(names)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="short and small; ratios are rough")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where data folders are made: the disk to measure")
    chosen = parser.parse_args()
    if unknown := [each for each in chosen.cases if each not in names]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(names)}")
    return chosen


def main() -> int:
    """Run the chosen cases; the exit code is 1 if one could not be measured. Missed goals do not fail a run."""
    chosen = arguments()
    results: list[Result] = []
    failed = False
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.folder) as folder:
        bench = Bench(QUICK if chosen.quick else FULL, Path(folder))
        for case in CASES:
            if not chosen.cases or case.__name__ in chosen.cases:
                failed |= not measured(case, bench, results)
    progress(f"\n{table(results)}\n\n{time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


def measured(case: Callable[[Bench], Iterator[Result]], bench: Bench, results: list[Result]) -> bool:
    """Run one case, adding to the results; False if it failed, which is reported and does not stop the others."""
    progress(case.__name__)
    try:
        for result in case(bench):
            emit(result)
            results.append(result)
    except (Failed, OSError) as error:
        progress(f"  {case.__name__} could not be measured: {error}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
