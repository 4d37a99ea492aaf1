"""The move.cfg of deploy/, as it is: haproxy before an old service and a new one, holding what comes in between."""

import contextlib
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ams.http.tls import self_signed
from cluster.haproxy import MovingHaproxy
from cluster.ports import free_port

pytestmark = pytest.mark.haproxy


@contextlib.contextmanager
def serving(port: int, text: str, context: ssl.SSLContext | None = None) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[MovingHaproxy]:
    ca, chain, key = self_signed(str(tmp_path))
    both = tmp_path / "both.pem"
    both.write_bytes(Path(chain).read_bytes() + Path(key).read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    old, new = free_port(), free_port()
    with (
        serving(old, "old", context),
        serving(new, "new"),
        MovingHaproxy(tmp_path, old, Path(ca), new, both) as running,
    ):
        yield running


@pytest.fixture
def going(tmp_path: Path) -> Iterator[tuple[MovingHaproxy, "Going"]]:
    """haproxy before an old service that has a request, and goes away with it."""
    ca, chain, key = self_signed(str(tmp_path))
    both = tmp_path / "both.pem"
    both.write_bytes(Path(chain).read_bytes() + Path(key).read_bytes())
    with (
        Going(chain, key) as old,
        MovingHaproxy(tmp_path, old.port, Path(ca), free_port(), both) as running,
    ):
        yield running, old


class Going:
    """A service that takes one request, and closes the connection without an answer when it is told to go."""

    def __init__(self, chain: str, key: str) -> None:
        self.port = free_port()
        self.asked, self.goes = threading.Event(), threading.Event()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain, key)
        self._listening = socket.create_server(("127.0.0.1", self.port))

    def __enter__(self) -> "Going":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.goes.set()
        self._listening.close()

    def _serve(self) -> None:
        while not self.asked.is_set():
            with contextlib.suppress(OSError):  # haproxy's checks connect and go, too
                connection, _ = self._listening.accept()
                with self._context.wrap_socket(connection, server_side=True) as tls:
                    if tls.recv(10_000):
                        self.asked.set()
                        self.goes.wait(20)


def get(haproxy: MovingHaproxy, ca: Path) -> str:
    context = ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(f"{haproxy.url}/v1/version", context=context, timeout=20) as answer:
        return str(answer.read().decode())


def turn(haproxy: MovingHaproxy, value: str) -> None:
    haproxy.ask(f"set map {haproxy.map} service {value}")


def test_the_map_leads_to_the_old_service_and_to_the_new_one_and_back(haproxy: MovingHaproxy, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"

    answers = [get(haproxy, ca)]
    for value in ("new", "old"):
        turn(haproxy, value)
        answers.append(get(haproxy, ca))

    assert answers == ["old", "new", "old"]


def test_what_comes_while_the_service_is_held_waits_and_is_answered_by_the_new_one(
    haproxy: MovingHaproxy, tmp_path: Path
) -> None:
    answers: list[str] = []
    turn(haproxy, "held")
    clients = [threading.Thread(target=lambda: answers.append(get(haproxy, tmp_path / "ca.pem"))) for _ in range(5)]
    for each in clients:
        each.start()
    time.sleep(0.5)
    assert answers == []

    turn(haproxy, "new")
    for each in clients:
        each.join(20)

    assert answers == ["new"] * 5


def test_a_pull_that_waits_at_the_old_service_is_told_when_it_stops_and_may_ask_again(
    going: tuple[MovingHaproxy, Going], tmp_path: Path
) -> None:
    haproxy, old = going
    answers: list[urllib.error.HTTPError] = []

    def pull() -> None:
        try:
            get(haproxy, tmp_path / "ca.pem")
        except urllib.error.HTTPError as error:
            answers.append(error)

    client = threading.Thread(target=pull)
    client.start()
    assert old.asked.wait(20)
    old.goes.set()
    client.join(20)

    (answer,) = answers
    with answer:
        assert (answer.code, answer.headers["Retry-After"]) == (502, "1")
        assert json.load(answer)["error"]["status"] == "BAD_GATEWAY"
