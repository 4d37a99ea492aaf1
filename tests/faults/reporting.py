"""Messages of a campaign of faults for people, on stderr: its JSON goes to stdout."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

MAX_VIOLATIONS_SHOWN = 50


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def end_campaign(folder: Path, violations: Sequence[str]) -> int:
    """Remove the folder, or show the violations and keep it; return the exit code."""
    if not violations:
        shutil.rmtree(folder)
        return 0
    for violation in violations[:MAX_VIOLATIONS_SHOWN]:
        say(violation)
    say(f"{len(violations)} violations; kept: {folder}")
    return 1
