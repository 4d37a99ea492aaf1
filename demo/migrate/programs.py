"""Programs of this clone as commands, for processes that run elsewhere."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
"""What is added to their environment."""


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module."""
    return [sys.executable, "-m", module, *arguments]
