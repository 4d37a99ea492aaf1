"""A real https receiver in its own process: several behaviours by path, and endpoints whose TLS is bad.

with received(folder) as receiver:
    deliver to receiver.url("/ok"), trusting receiver.ca
    assert receiver.requests("/ok")

`behaviours` describes the paths, `bad` the endpoints with bad TLS.
For benches: `python -m tests.support.receiving --folder DIR`.
"""

import contextlib
import http.client
import select
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from tests.support.receiving.requests import Numbers, Received
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[3]
T = TypeVar("T")


class Receiving:
    def __init__(self, base: str, ca: str, pid: int) -> None:
        self.base = base  # `https://127.0.0.1:PORT`
        self.ca = ca  # file of the CA that its certificate is of
        self.pid = pid
        self.port = urlsplit(base).port or 0
        self._trust = ssl.create_default_context(cafile=ca)
        self._endpoints = self._ask("GET", "/_endpoints", dict[str, str | list[str]])

    def url(self, path: str = "/ok") -> str:
        return self.base + path

    def bad(self, name: str, path: str = "/ok") -> str:
        """Return a URL of an endpoint whose TLS or port is bad (`bad`)."""
        found = self._endpoints[name]
        assert isinstance(found, str)
        return found + path

    def more(self, path: str = "/ok") -> list[str]:
        return [base + path for base in self._endpoints["more"]]

    @property
    def ports(self) -> set[int]:
        bad = [each for each in self._endpoints.values() if isinstance(each, str)]
        return {urlsplit(each).port or 0 for each in (self.base, *self.more(""), *bad)}

    def requests(self, path: str = "") -> list[Received]:
        return self._ask("GET", f"/_received?path={quote(path)}", list[Received])

    def wait(self, count: int, path: str = "", seconds: float = PATIENCE_SECONDS) -> list[Received]:
        """Return the requests once there are so many; fail after a timeout."""
        return wait_until(lambda: len(found := self.requests(path)) >= count and found, seconds) or []

    def numbers(self) -> Numbers:
        return self._ask("GET", "/_numbers", Numbers)

    def show(self, verification_hash: str) -> None:
        self._ask("POST", "/_hash", None, verification_hash.encode())

    def forget(self) -> None:
        self._ask("POST", "/_forget", None)

    def _ask(self, method: str, path: str, kind: type[T] | None, body: bytes = b"") -> T:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._trust, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body)
            return msgspec.json.decode(connection.getresponse().read(), type=kind)
        finally:
            connection.close()


@contextlib.contextmanager
def run_receiver(folder: Path, *, port: int = 0, more_ports: int = 0) -> Iterator[Receiving]:
    """Run a receiver until the block ends; certificates are written to `folder`."""
    command = ["-m", "tests.support.receiving", "--folder", str(folder), "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, *command, "--more-ports", str(more_ports)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            base, ca = _ready(process)
            yield Receiving(base, ca, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # it may be stopped
                process.kill()


def _ready(process: "subprocess.Popen[str]") -> tuple[str, str]:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
    line = process.stdout.readline() if readable else ""
    assert line.startswith("ready "), f"the receiver did not start: {line!r}"
    _, base, ca = line.split(maxsplit=2)
    return base, ca.strip()
