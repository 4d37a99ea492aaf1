"""The command line of the demos that end by themselves."""

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo import service
from demo.service import FAILED, OK


def run(
    name: str,
    about: str,
    play: Callable[[Path, Any], bool],
    *failures: type[Exception],
    keeps_folder: bool = False,
    **options: int,
) -> int:
    """Run a demo; return 0 when all went well, 1 when not, 130 when it was interrupted.

    Args:
        name: of its module.
        about: its help.
        play: the demo itself; called with its folder and its options.
        failures: exceptions that are told in one line.
        keeps_folder: also when all went well and the folder is a temporary one.
        options: their defaults by name: numbers, or False for a flag.
    """
    parser = argparse.ArgumentParser(prog=f"python -m demo.{name}", description=about)
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    for option, default in options.items():
        if default is False:
            parser.add_argument(f"--{option}", action="store_true")
        else:
            parser.add_argument(f"--{option}", type=int, default=default, help="how many (default: %(default)s)")
    chosen = parser.parse_args()
    service.stop_by_any_interruption()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix=f"ams-{name}-"))).absolute()
    status = service.ended(f"{name}-demo", folder, lambda: OK if play(folder, chosen) else FAILED, *failures)
    if status == OK and not chosen.folder and not keeps_folder:
        shutil.rmtree(folder, ignore_errors=True)
    return status
