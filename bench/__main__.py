"""`python -m bench [--quick] [CASE ...]`: measure, one JSON line a case on stdout, progress and a table on stderr."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import CASES
from bench.processes import ROOT, Failed
from bench.report import Result, emit, progress, table
from bench.run import FULL, QUICK, Bench


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the service against comparators.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="short and small; ratios are rough")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where data folders are made: the disk to measure")
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
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.folder) as folder:
        bench = Bench(QUICK if chosen.quick else FULL, Path(folder))
        for name in chosen.cases or CASES:
            failed |= not measured(name, bench, results)
    progress(f"\n{table(results)}\n\n{time.perf_counter() - began:.0f} s")
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
