"""The command line of demos in which programs share messages and some of them are killed."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from demo import service
from demo.service import FAILED, OK, Service, trust_of_library
from demo.workers import GaveUp


def run(name: str, about: str, noun: str, play: Callable[[Service, Path, int], bool], *flags: str) -> int:
    """Run a demo on a service of its own, started with more `flags`; return 0 when all went well, 1 when not.

    `play` is told the service, the folder of the demo and how many messages there are to be; it returns how it went.
    """
    options = _options(name, about, noun)
    service.stop_by_any_interruption()
    folder = options.folder or Path(tempfile.mkdtemp(prefix=f"ams-{name}-"))

    def played() -> int:
        with service.running(folder / "ams-data", 0, *flags) as ams:
            trust_of_library(ams.ca)
            return OK if play(ams, folder.absolute(), options.messages) else FAILED

    return service.ended(f"{name}-demo", folder, played, GaveUp)


def _options(name: str, about: str, noun: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m demo.{name}", description=about)
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    parser.add_argument("--messages", type=int, default=20_000, help=f"{noun} (default: %(default)s)")
    return parser.parse_args()
