"""Attack each port without a token while a neighbour works: `python -m tests.faults.attacks --seconds 1800`.

A neighbour from an address of its own is timed in peace and then during each attack. A line for each attack says how
many of its requests failed, and the ratio of the times that all but one of a hundred stay under. The exit code tells
whether none failed and every ratio is at most 3. Judge on a machine that does nothing else.
"""

import argparse
import contextlib
import http.client
import multiprocessing
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from local_cluster.ports import free_port
from tests.support.service import live_service, make_subscription

ATTACKER, NEIGHBOUR = "127.0.0.1", "127.0.0.2"
MAX_RATIO = 3.0
ALL_NEW_EVERY = 20
"""Requests of the neighbour of which one is on a new connection."""
PAUSE_SECONDS = 0.005
SILENT = 3_000
"""Connections that an attacker keeps open; the oldest are made anew, as the service closes them."""
CONNECTIONS_PER_SECOND = 500
CHUNKS = b"1\r\na\r\n" * 2_000
CHUNKED = b"%b HTTP/1.1\r\nHost: x\r\nx-api-key: wrong\r\nTransfer-Encoding: chunked\r\n\r\n"
BYTES_PER_SECOND = 10_000_000
TIMEOUT_SECONDS = 30.0


class Asked(NamedTuple):
    """What the neighbour asks of a port, and the status it should get."""

    port: int
    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    status: int


def silent_connections(port: int) -> None:
    """Keep connections open that say nothing."""
    held: list[socket.socket] = []
    while True:
        try:
            held.append(socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS, (ATTACKER, 0)))
        except OSError:
            time.sleep(0.1)
        time.sleep(1 / CONNECTIONS_PER_SECOND)
        if len(held) > SILENT:
            held.pop(0).close()


def tiny_chunks(port: int) -> None:
    """Send a body in chunks of one byte, at ten megabytes a second, and begin anew when the connection is closed."""
    while True:
        with contextlib.suppress(OSError), _tls(port, ATTACKER) as client:
            client.sendall(CHUNKED % b"POST /v1/projects/P/topics/T:publish")
            while True:
                client.sendall(CHUNKS)
                time.sleep(len(CHUNKS) / BYTES_PER_SECOND)


def trailers(port: int) -> None:
    """Send requests whose trailers end the connection, and others behind them."""
    said = CHUNKED % b"GET /v1/version" + b"0\r\nConnection: close\r\n\r\n"
    while True:
        with contextlib.suppress(OSError), _tls(port, ATTACKER) as client:
            client.sendall(said * 10)
            while client.recv(65536):
                pass


def _tls(port: int, source: str) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS, (source, 0))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        return ssl._create_unverified_context().wrap_socket(plain)  # who answers is not the point
    except OSError:
        plain.close()
        raise


class Neighbour:
    """Asks again and again, mostly on one connection."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._connection: http.client.HTTPConnection | None = None
        self.failed = 0

    def p99_ms(self, seconds: float) -> float:
        """Work for so long; return the time that all but one of a hundred requests stay under."""
        times: list[float] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if len(times) % ALL_NEW_EVERY == 0:
                self._close()
            begun = time.perf_counter()
            try:
                self._ask()
            except (OSError, http.client.HTTPException, AssertionError):
                self.failed += 1
                self._close()
            times.append((time.perf_counter() - begun) * 1000)
            time.sleep(PAUSE_SECONDS)
        return statistics.quantiles(times, n=100)[98]

    def _ask(self) -> None:
        asked = self._asked
        if self._connection is None:
            self._connection = http.client.HTTPConnection("localhost")
            self._connection.sock = _tls(asked.port, NEIGHBOUR)
        self._connection.request(asked.method, asked.path, asked.body, asked.headers)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == asked.status, answer.status

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextlib.contextmanager
def certificate_service(folder: Path) -> Iterator[int]:
    """Run `ams authn serve`; gives its port."""
    folder.mkdir()
    flags = ["--data", str(folder), "--port", "0", "--ops-port", "0", "--tls-self-signed", "--client-ca", str(folder)]
    flags += ["--failed-logins-per-minute", "0"]
    command = [sys.executable, "-m", "ams.cli.main", "authn", "serve", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(int(line.rpartition(":")[2]) for line in process.stdout if line.startswith("ready "))
        finally:
            process.terminate()


def is_borne(name: str, attack: Callable[[int], None], attacked: int, asked: Asked, seconds: float) -> bool:
    """Measure a neighbour before and during an attack, print it, and return whether it was left alone."""
    neighbour = Neighbour(asked)
    quiet = neighbour.p99_ms(min(seconds, 60.0))
    attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(attacked,), daemon=True)
    attacker.start()
    time.sleep(min(seconds, 2.0))  # until it is there
    attacked_ms = neighbour.p99_ms(seconds)
    attacker.kill()
    attacker.join()
    ratio = attacked_ms / quiet
    times = f"quiet {quiet:.1f} ms attacked {attacked_ms:.1f} ms ratio {ratio:.2f}"
    print(f"{name}: failed {neighbour.failed} {times}", flush=True)
    return neighbour.failed == 0 and ratio <= MAX_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    seconds = parser.parse_args().seconds
    operations = free_port()
    flags = ["--tls-self-signed", "--ops-port", str(operations), "--min-free-bytes", "0", "--reserve-bytes", "0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        live_service(Path(folder) / "ams-data", *flags) as service,
        certificate_service(Path(folder) / "authn-data") as authn,
    ):
        with service.http() as client:
            make_subscription(client)
        api = urlsplit(service.base_url).port or 0
        message = b'{"messages":[{"data":"aGVsbG8="}]}'
        publish = Asked(api, "POST", "/v1/projects/P/topics/T:publish", message, {"x-api-key": service.token}, 200)
        login = Asked(authn, "GET", "/v1/service-types/ams/hosts/ams.example:authx509", b"", {}, 400)
        attacks = [
            ("silent connections, API", silent_connections, api, publish),
            ("silent connections, operations port", silent_connections, operations, publish),
            ("silent connections, certificate service", silent_connections, authn, login),
            ("tiny chunks, API", tiny_chunks, api, publish),
            ("tiny chunks, certificate service", tiny_chunks, authn, login),
            ("trailers, API", trailers, api, publish),
        ]
        borne = [is_borne(*each, seconds) for each in attacks]
    return 0 if all(borne) else 1


if __name__ == "__main__":
    sys.exit(main())
