"""A GOCDB for tests: answers over HTTP, or HTTPS where it wants a certificate."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Gocdb:
    """What it answers: bodies or statuses by query; and what it was asked."""

    port: int = 0
    scheme: str = "http"
    answers: dict[str, bytes | int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/gocdbpi/public/"

    @property
    def feed(self) -> str:
        return f"{self.url}?method=get_service_endpoint&service_type={{{{service-type}}}}"

    def answer(self, query: str) -> bytes | int:
        self.asked.append(query)
        values = {name: each[0] for name, each in parse_qs(query).items()}
        key = values.get("page") or values.get("sitename") or values.get("service_type") or values.get("method", "")
        return self.answers.get(key, 404)


@contextlib.contextmanager
def gocdb(tls: ssl.SSLContext | None = None) -> Iterator[Gocdb]:
    """Serve until the block ends."""
    state = Gocdb()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            found = state.answer(urlsplit(self.path).query)
            body = found if isinstance(found, bytes) else b"no"
            self.send_response(200 if isinstance(found, bytes) else found)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # handshakes that tests make fail
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        state.scheme = "https"
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
