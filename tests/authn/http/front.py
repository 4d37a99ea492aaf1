"""A TLS server that asks for certificates, with an application that answers with the client's identity."""

import base64
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from ams.authn.certificates.certificate import load
from ams.authn.certificates.validation import CertificateChecks
from ams.authn.http.proxies import Relaying
from ams.authn.http.tls import AskingContext, new_server
from ams.authn.values import PEER, Peer, Presented
from ams.http.asgi import JSON, Application, Receive, Send, answer
from ams.storage.audit.trail import FailedLogins
from ams.web.listener import Listener, ListenerLimits
from ams.web.server import HttpServer, listen
from tests.support.certificates import Pair
from tests.support.loop_thread import on_loop_thread
from tests.support.waiting import PATIENCE_SECONDS


async def answer_identity(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer with the client's identity as the application sees it."""
    while (await receive()).get("more_body", False):
        pass
    peer: Peer = scope[PEER]
    shown = peer.presented
    found = {
        "address": peer.address, "subject": shown and shown.leaf.subject.rfc4514_string(),
        "leaf": shown and base64.b64encode(shown.leaf.public_bytes(Encoding.DER)).decode(),
        "chain": [load(each)[0].subject.rfc4514_string() for each in shown.chain] if shown else [],
        "unreadable": peer.unreadable, "client": scope["client"][0],
    }  # fmt: skip
    await answer(send, 200, json.dumps(found).encode(), [JSON])


HEADER = "X-SSL-Client-Cert"
LIMITS = ListenerLimits(connections=100, goodbye_seconds=0.5)


def relay_identity(names: Sequence[str], judge: Callable[[Presented], None] = lambda _: None,
                   refused: list[tuple[str, int]] | None = None) -> Relaying:  # fmt: skip
    """Return `answer_identity` behind proxies of these names; failures for the audit log go into `refused`."""

    class Checks(CertificateChecks):
        def __init__(self) -> None: ...

        async def check(self, presented: Presented, address: str, *, verify_host: bool) -> None:
            judge(presented)

    class Failures(FailedLogins):
        def __init__(self) -> None: ...

        async def record_failure(self, address: str, *, code: int, reason: str, **_: Any) -> None:
            if refused is not None:
                refused.append((reason, code))

    return Relaying(answer_identity, HEADER, names, Checks(), Failures())


@dataclass(frozen=True)
class FrontServer:
    listener: Listener
    port: int
    ca: str

    def ask(self, *, cert: Pair | None = None, headers: dict[str, str] | None = None, preface: bytes = b"") -> Any:
        """Send one request; return the application's answer, or the status of a refusal with its text."""
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        with self.connect(cert=cert, preface=preface) as client:
            client.sendall(f"GET /v1/who HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n".encode())
            return read_answer(client)

    def connect(
        self, *, cert: Pair | None = None, preface: bytes = b"", pieces: int = 1, source: str = "127.0.0.1"
    ) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS, (source, 0))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = max(len(preface) // pieces, 1)
        for start in range(0, len(preface), size):
            raw.sendall(preface[start : start + size])
        context = ssl.create_default_context(cafile=self.ca)
        if cert is not None:
            context.load_cert_chain(cert.chain, cert.key)
        try:
            return context.wrap_socket(raw, server_hostname="localhost")
        except OSError:
            raw.close()
            raise


def read_answer(client: ssl.SSLSocket) -> Any:
    whole = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            whole += part
    head, _, body = whole.partition(b"\r\n\r\n")
    found = json.loads(body)
    if head.startswith(b"HTTP/1.1 200"):
        return found
    return int(head.split()[1]), found["error"]["message"]


@contextlib.contextmanager
def serve_front(pair: Pair, ca: str, *, proxied: bool = False, app: Application = answer_identity,
                limits: ListenerLimits = LIMITS, **seconds: float) -> Iterator[FrontServer]:  # fmt: skip
    context = AskingContext.make(proxied=proxied)
    context.load_cert_chain(pair.chain, pair.key)
    with on_loop_thread(_serving(lambda: new_server(app, context, limits, **seconds))) as ((listener, port), _):
        yield FrontServer(listener, port, ca)


@contextlib.asynccontextmanager
async def _serving(make: Callable[[], HttpServer]) -> AsyncIterator[tuple[Listener, int]]:
    with contextlib.closing(listen("127.0.0.1", 0, "port")) as sock:
        server = make()
        server.start(sock)
        yield server.listener, sock.getsockname()[1]
        await server.stop()
