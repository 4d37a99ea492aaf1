"""The loop of programs with the official library, unmodified: `python -m PROGRAM HOST:PORT TOKEN-FILE BOOK`."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

from argo_ams_library import ArgoMessagingService

CALL_SECONDS = 30
"""For a request to be answered."""


def go_on(project: str, step: Callable[[ArgoMessagingService, TextIO], None]) -> NoReturn:
    """Do a step, as a pull and what becomes of it, again and again until SIGTERM; it writes into the book."""
    endpoint, token, book = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ams = ArgoMessagingService(endpoint=endpoint, token=Path(token).read_text(), project=project)
    with Path(book).open("a", buffering=1) as file:
        while True:
            step(ams, file)
