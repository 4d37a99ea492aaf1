"""A way to the service on which answers are lost, for publishers that must not mind."""

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

LOST, BROKEN, REFUSED = "answer lost", "500 after storing", "503 before storing"
PLAN = (None, LOST, None, BROKEN, REFUSED)
"""What happens to one publish after another, over and over."""


class Unsure:
    """Where the unsure way begins, and what happened on it."""

    def __init__(self, url: str) -> None:
        self.faults: Counter[str] = Counter()
        self._plan = itertools.cycle(PLAN)
        self._lock = threading.Lock()
        self.http = httpx.Client(base_url=url, trust_env=False)
        self.url = ""

    def next_fault(self) -> str | None:
        """Return what is to happen to a publish, and count it."""
        with self._lock:
            fault = next(self._plan)
            self.faults.update([fault] if fault else [])
            return fault


@contextlib.contextmanager
def unsure_way(service: str) -> Iterator[Unsure]:
    """Open the way for as long as the block lasts."""
    way = Unsure(service)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(way))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    way.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield way
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        way.http.close()


def _handler(way: Unsure) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            fault = way.next_fault()
            if fault == REFUSED:
                return self._answer(503, b"")
            answer = way.http.post(self.path, content=body, headers={name: self.headers[name] for name in _PASSED})
            if fault == LOST:
                self.close_connection = True
                return None
            return self._answer(500 if fault == BROKEN else answer.status_code, b"" if fault else answer.content)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


_PASSED = ("x-api-key", "idempotency-key")
