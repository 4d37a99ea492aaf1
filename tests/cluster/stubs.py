import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from local_cluster.certificates import Authority
from local_cluster.haproxy import Backend
from tests.support.http_server import QuietHandler


class Stub(ThreadingHTTPServer):
    """A node that answers with its own name, also on its operations port.

    `ready` and `breaks` set its state; requests are held while `goes_on` is not set.
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


class Handler(QuietHandler):
    server: Stub

    def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
        self.rfile.read(int(self.headers.get("content-length", 0)))
        name = self.server.name.encode()
        if self.path == "/readyz":
            return self.reply(200 if self.server.ready else 503, name)
        self.server.seen.append(self.path)
        self.server.goes_on.wait()
        if self.server.breaks:
            self.close_connection = True
            return None
        return self.reply(200, name)

    do_POST = do_GET  # noqa: N815 - the name http.server asks for


@contextmanager
def stubs(*names: str, authority: Authority | None = None) -> Iterator[list[Stub]]:
    made = [Stub(name, authority=authority) for name in names]
    try:
        yield made
    finally:
        for each in made:
            each.close()
