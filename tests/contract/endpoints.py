"""Push endpoints for the contract's rows: `$receiver` shows the hash seen last, the others do not."""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.receiver import answers, receiver


@dataclass
class Endpoints:
    """Running endpoints by the name rows know them by, `HOST:PORT` each."""

    names: dict[str, str]
    ca: str
    hash: str = ""
    """What `$receiver` shows."""


@contextlib.contextmanager
def open_endpoints(folder: Path) -> Iterator[Endpoints]:
    """Serve three endpoints until the block ends."""
    endpoints = Endpoints({}, "")

    def show(connection: ssl.SSLSocket) -> None:
        answers(endpoints.hash)(connection)

    behaviours = {"receiver": show, "other": answers("0" * 64), "broken": answers("", "500 Internal Server Error")}
    with contextlib.ExitStack() as stack:
        for name, behaviour in behaviours.items():
            running = stack.enter_context(receiver(folder, behaviour))
            endpoints.names[name] = f"127.0.0.1:{running.port}"
            endpoints.ca = running.ca
        yield endpoints
