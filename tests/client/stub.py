"""An HTTP server with scripted answers that a real service never gives."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.http_server import QuietHandler, http_server
from tests.support.waiting import PATIENCE_SECONDS


class Reply(NamedTuple):
    """One answer; or no answer, with the connection cut after the request was read."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = {}
    cut: bool = False


CUT = Reply(cut=True)


@dataclass
class Stub:
    url: str = ""
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    script: list[Reply] = field(default_factory=list)  # answers given before the usual one, each once
    slow: threading.Event | None = None  # answers wait for it
    requests: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)
    """Method, path with query, headers in small letters, and body."""
    asked: threading.Event = field(default_factory=threading.Event)  # set when a request came
    connections: int = 0

    def reply(self) -> Reply:
        if self.slow is not None:
            assert self.slow.wait(PATIENCE_SECONDS)
        return self.script.pop(0) if self.script else Reply(self.status, self.body, self.headers)


@contextlib.contextmanager
def stub_server() -> Iterator[Stub]:
    stub = Stub()

    class Handler(QuietHandler):
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            stub.connections += 1

        def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            stub.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            stub.asked.set()
            reply = stub.reply()
            if reply.cut:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            with contextlib.suppress(ConnectionError):  # who asked may have given up
                self.reply(reply.status, reply.body, reply.headers)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # as above

    with http_server(Handler) as stub.url:
        yield stub
