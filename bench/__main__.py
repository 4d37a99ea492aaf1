"""`python -m bench [--quick] [CASE ...]`: measure, one JSON line a case on stdout, progress and a table on stderr."""

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import CASES
from bench.processes import ROOT, Failed
from bench.report import Result, emit, progress, remember, table
from bench.run import FULL, QUICK, Bench


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the service against comparators.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="short and small; ratios are rough")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where data folders are made: the disk to measure")
    parser.add_argument("--messages", type=int, metavar="N", help="how many spark-cluster moves, such as 10000000")
    parser.add_argument(
        "--records", type=int, metavar="N", help="how many each job of spark-jobs reads, such as 1000000"
    )
    chosen = parser.parse_args()
    if unknown := [each for each in chosen.cases if each not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    return chosen


def main() -> int:
    """Run the chosen cases; the exit code is 1 if one could not be measured. Missed goals do not fail a run."""
    chosen = arguments()
    results: list[Result] = []
    failed = False
    began = time.perf_counter()
    plan = QUICK if chosen.quick else FULL
    if chosen.messages:
        plan = dataclasses.replace(plan, numbered=chosen.messages)
    if chosen.records:
        plan = dataclasses.replace(plan, records=chosen.records)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.folder) as folder:
        bench = Bench(plan, Path(folder))
        for name in chosen.cases or CASES:
            failed |= not measured(name, bench, results)
    progress(f"\n{table(results)}\n\n{time.perf_counter() - began:.0f} s")
    remember(results, quick=chosen.quick)
    return 1 if failed else 0


def measured(name: str, bench: Bench, results: list[Result]) -> bool:
    """Run one case, adding to the results; False if it failed, which is reported and does not stop the others."""
    progress(name)
    try:
        for result in CASES[name](bench):
            emit(result)
            results.append(result)
    except (Failed, OSError) as error:
        progress(f"  {name} could not be measured: {error}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
