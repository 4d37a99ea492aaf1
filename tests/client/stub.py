"""An HTTP server that answers what a test says: for answers that a real service never gives."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Stub:
    """What to answer, and what was asked."""

    url: str
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)
    """Method, path with query, headers in small letters, and body."""
    connections: int = 0


@contextlib.contextmanager
def stub_server() -> Iterator[Stub]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            stub.connections += 1

        def do_GET(self) -> None:  # the name the standard library calls
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            stub.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(stub.status)
            for name, value in stub.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(stub.body)))
            self.end_headers()
            self.wfile.write(stub.body)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # as above

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub = Stub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
