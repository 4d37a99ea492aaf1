"""An https receiver on loopback, in its own threads, with a certificate of a test CA."""

import contextlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ams.http.tls import self_signed

Behaviour = Callable[[ssl.SSLSocket], None]  # called after each request


@dataclass
class Receiver:
    """A running receiver that calls `behaviour`, which may be replaced."""

    port: int
    ca: str
    behaviour: Behaviour
    keeps: bool = False  # whether a connection is kept for more requests when `behaviour` returns
    heads: list[bytes] = field(default_factory=list)  # the heads of requests that came, byte by byte as they were sent
    connections: int = 0


@contextlib.contextmanager
def receiver(folder: Path, behaviour: Behaviour, *, keeps: bool = False) -> Iterator[Receiver]:
    """Run a receiver until the block ends; `folder` gets the CA and the certificate."""
    ca, chain, key = self_signed(str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = Receiver(listener.getsockname()[1], ca, behaviour, keeps)
        thread = threading.Thread(target=_accept, args=(listener, context, running), daemon=True)
        thread.start()
        try:
            yield running
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, context: ssl.SSLContext, running: Receiver) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            running.connections += 1
            threading.Thread(target=_serve, args=(connection, context, running), daemon=True).start()


def _serve(connection: socket.socket, context: ssl.SSLContext, running: Receiver) -> None:
    with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True) as secure:
        while came := _request(secure):
            running.heads.append(came.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
            running.behaviour(secure)
            if not running.keeps:
                return


def _request(secure: ssl.SSLSocket) -> bytes:
    """Return the next request; nothing when the other side has closed."""
    came = b""
    while len(came) < _length(came):
        part = secure.recv(4096)
        if not part:
            return b""
        came += part
    return came


def _length(came: bytes) -> int:
    """Return the length of a request with its body, as far as known: a close with unread bytes would reset the
    connection."""
    head, end, _ = came.partition(b"\r\n\r\n")
    if not end:
        return len(came) + 1
    found = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
    return len(head + end) + (int(found[1]) if found else 0)


def answers(body: str, status: str = "200 OK", *headers: str) -> Behaviour:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", *headers, "", body]
    return sends("\r\n".join(lines).encode())


def sends(raw: bytes) -> Behaviour:
    return lambda secure: secure.sendall(raw)


def sends_and_ends(raw: bytes) -> Behaviour:
    """Send raw bytes, and close the connection in order."""

    def behaviour(secure: ssl.SSLSocket) -> None:
        secure.sendall(raw)
        with contextlib.suppress(OSError):
            secure.unwrap()
        secure.close()

    return behaviour


def waits(seconds: float, then: Behaviour) -> Behaviour:
    def behaviour(secure: ssl.SSLSocket) -> None:
        time.sleep(seconds)
        then(secure)

    return behaviour


def is_silent(secure: ssl.SSLSocket) -> None:
    """Stay silent until the other side closes."""
    secure.recv(1)


def drips(secure: ssl.SSLSocket) -> None:
    """Answer a byte at a time, until the other side closes."""
    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n")
    secure.settimeout(0.2)
    while True:
        secure.sendall(b"a")
        try:
            if not secure.recv(1):
                return
        except TimeoutError:
            continue


def floods(secure: ssl.SSLSocket) -> None:
    """Send an endless body."""
    secure.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        secure.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
