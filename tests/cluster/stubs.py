"""Services that answer what a test of a proxy wants."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from local_cluster.certificates import Authority
from local_cluster.haproxy import Backend


class Stub(ThreadingHTTPServer):
    """A node that answers its own name, also as an operations port.

    `ready` and `breaks` say how it is; while `goes_on` is not set it holds what it is asked.
    """

    def __init__(self, name: str, port: int = 0, authority: Authority | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.name = name
        self.ready = True
        self.breaks = False
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.seen: list[str] = []
        if authority is not None:
            signed, context = authority.sign(name), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(signed.certificate, signed.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def backend(self) -> Backend:
        return Backend(self.name, self.server_port, self.server_port)

    def handle_error(self, *_: object) -> None: ...  # haproxy breaks connections as it likes

    def close(self) -> None:
        self.breaks = True  # also on connections that haproxy kept
        self.goes_on.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/readyz":
            return self.answer(200 if self.server.ready else 503)
        self.server.seen.append(self.path)
        self.server.goes_on.wait()
        if self.server.breaks:
            self.close_connection = True
            return None
        return self.answer(200)

    do_POST = do_GET  # noqa: N815 - the name http.server asks for

    def answer(self, status: int) -> None:
        body = self.server.name.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def stubs(*names: str, authority: Authority | None = None) -> Iterator[list[Stub]]:
    made = [Stub(name, authority=authority) for name in names]
    try:
        yield made
    finally:
        for each in made:
            each.close()
