"""An HTTP server of a CA on the loopback: revocation lists by path, and an OCSP responder."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from tests.support.http_server import QuietHandler, http_server

Answer = Callable[[bytes], bytes]  # makes the answer to a body


class Publishing:
    def __init__(self) -> None:
        self.port = 0
        self.asked: Counter[str] = Counter()
        self.statuses: dict[str, int] = {}  # of paths that answer something else than 200
        self.held = threading.Event()  # answers wait for it
        self.held.set()
        self._answers: dict[str, Answer] = {}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def puts(self, path: str, data: bytes) -> str:
        return self.answers(path, lambda _: data)

    def answers(self, path: str, answer: Answer) -> str:
        """Set the answer to requests at a path; return its URL."""
        self._answers[path] = answer
        return self.url(path)

    def forget(self) -> None:
        self._answers.clear()
        self.asked.clear()
        self.statuses.clear()
        self.held.set()

    def reply(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked[path] += 1
        self.held.wait(20)
        answer = self._answers.get(path)
        if answer is None:
            return 404, b"nothing here"
        return self.statuses.get(path, 200), answer(body)


@contextlib.contextmanager
def publishing_server() -> Iterator[Publishing]:
    publishing = Publishing()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802
            self._reply(b"")

        def do_POST(self) -> None:  # noqa: N802
            self._reply(self.rfile.read(int(self.headers["Content-Length"])))

        def _reply(self, body: bytes) -> None:
            status, data = publishing.reply(self.path, body)
            with contextlib.suppress(ConnectionError):
                self.reply(status, data, {"Location": data.decode()} if 300 <= status < 400 else None)

    with http_server(Handler) as base:
        publishing.port = int(base.rpartition(":")[2])
        try:
            yield publishing
        finally:
            publishing.held.set()
