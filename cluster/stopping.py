"""What tells a program to stop, all in one form."""

import signal
from types import FrameType
from typing import NoReturn


def treat_as_ctrl_c(*numbers: signal.Signals) -> None:
    """Let SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does."""
    for number in numbers or (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
