"""A server in the place of the old service: it answers what the new one answers, but for what is planted."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from cluster.ports import LOOPBACK


class Old(ThreadingHTTPServer):
    """What the new service answers, with changes."""

    daemon_threads = True

    def __init__(self, new: str) -> None:
        super().__init__((LOOPBACK, 0), Passing)
        self.new = httpx.Client(base_url=new, trust_env=False)
        self.changes: list[tuple[bytes, bytes]] = []
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.in_query = False
        """Whether tokens in headers are passed over, as by the reference unless told otherwise."""

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"

    def server_close(self) -> None:
        super().server_close()
        self.new.close()


class Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Old

    def do_GET(self) -> None:
        headers = {"x-api-key": self.headers.get("x-api-key", "")}
        if self.server.in_query:
            headers = {}
        self.server.asked.append(self.path)
        self.server.tokens.append(headers.get("x-api-key", ""))
        came = self.server.new.get(self.path, headers=headers)
        body = came.content
        for one, other in self.server.changes:
            body = body.replace(one, other)
        self.send_response(came.status_code)
        self.send_header("Content-Type", came.headers["content-type"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def passing(new: str) -> Iterator[Old]:
    """Serve until the block ends."""
    served = Old(new)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        served.shutdown()
        thread.join()
        served.server_close()
