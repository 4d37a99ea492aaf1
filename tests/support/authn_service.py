"""A service that users belong to, as the certificate service asks one: https on loopback, in a thread of its own.

It answers as the test says, and keeps the requests that came.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certificates import Authority

Behaviour = Callable[[ssl.SSLSocket], None]
"""What is done once the head of a request has come; the connection is kept when it returns."""


@dataclass
class UserService:
    """A running service; it does what `behaviour` says, which may be changed."""

    port: int
    ca: str
    behaviour: Behaviour
    heads: list[str] = field(default_factory=list)
    """The requests that came."""
    connections: int = 0


@contextlib.contextmanager
def user_service(folder: Path, behaviour: Behaviour) -> Iterator[UserService]:
    """Serve as `localhost` and `127.0.0.1` until the block ends."""
    authority = Authority.make(folder, "services")
    pair = authority.signs("service", hosts=("localhost", "127.0.0.1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = UserService(listener.getsockname()[1], authority.pair.chain, behaviour)
        thread = threading.Thread(target=_accept, args=(listener, context, running), daemon=True)
        thread.start()
        try:
            yield running
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, context: ssl.SSLContext, running: UserService) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            running.connections += 1
            threading.Thread(target=_serve, args=(connection, context, running), daemon=True).start()


def _serve(connection: socket.socket, context: ssl.SSLContext, running: UserService) -> None:
    with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True) as secure:
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                part = secure.recv(4096)
                if not part:
                    return
                head += part
            running.heads.append(head.decode("latin-1"))
            running.behaviour(secure)


def answers(body: str, status: str = "200 OK", *headers: str) -> Behaviour:
    """Answer with a body."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", *headers, "", body]
    return sends("\r\n".join(lines).encode())


def sends(raw: bytes) -> Behaviour:
    """Send bytes as they are."""
    return lambda secure: secure.sendall(raw)


def sends_and_ends(raw: bytes) -> Behaviour:
    """Send bytes as they are, and close the connection in order."""

    def behaviour(secure: ssl.SSLSocket) -> None:
        secure.sendall(raw)
        with contextlib.suppress(OSError):
            secure.unwrap()
        secure.close()

    return behaviour


def hangs(secure: ssl.SSLSocket) -> None:
    """Say nothing until the other side has enough."""
    secure.recv(1)


def waits(seconds: float, then: Behaviour) -> Behaviour:
    """Take a while."""

    def behaviour(secure: ssl.SSLSocket) -> None:
        time.sleep(seconds)
        then(secure)

    return behaviour
