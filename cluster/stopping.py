"""What tells a program to stop, all in one form."""

import signal
from types import FrameType
from typing import NoReturn

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill`, and a terminal that is closed."""


def treat_as_ctrl_c() -> None:
    """Let each of them raise `KeyboardInterrupt`, once: an impatient second one must not break off the tidying up."""
    for number in INTERRUPTIONS:
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
