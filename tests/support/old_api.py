"""The reference's API where ours is the same: a service of ours behind a front that fails as the reference does.

The answers of its failures are as the reference was seen to give them (contract 10.3, 14 and 17).
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

UNREADABLE = "Message retrieved from broker network has invalid JSON Structure"
BACKEND = "Backend Error"
_VERB = re.compile(r"/v1/projects/[\w-]+/subscriptions/([\w-]+):(pull|modifyOffset)")


@dataclass
class OldApi:
    """A front, and how it is to fail."""

    url: str = ""
    unreadable: set[int] = field(default_factory=set)
    """Ids of records that no pull can pass."""
    failures: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Answers given instead to paths that end so, first to last; the last of them for ever if it is marked `...`."""
    asked: list[str] = field(default_factory=list)
    """Methods and paths."""
    pulls: list[int] = field(default_factory=list)
    """How many messages were asked for."""
    cursors: dict[str, int] = field(default_factory=dict)

    def failure(self, method: str, path: str, body: bytes) -> tuple[int, str] | None:
        """Return what is answered instead of what the service says."""
        self.asked.append(f"{method} {path}")
        for ending, answers in self.failures.items():
            if path.endswith(ending) and answers:
                return answers[0] if answers[-1][1] == "..." and len(answers) == 2 else answers.pop(0)
        found = _VERB.fullmatch(path)
        if found is None:
            return None
        name, said = found[1], json.loads(body)
        if found[2] == "modifyOffset":
            self.cursors[name] = said["offset"]
            return None
        first, most = self.cursors.get(name, 0), int(said["maxMessages"])
        self.pulls.append(most)
        return (500, UNREADABLE) if self.unreadable & set(range(first, first + most)) else None


@contextlib.contextmanager
def old_api(behind: str) -> Iterator[OldApi]:
    """Serve on a free port of this machine what the service at `behind` says."""
    made = OldApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the name the standard library calls
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            failed = made.failure(self.command, self.path.partition("?")[0], body)
            if failed:
                code, text = failed
                said = {"error": {"code": code, "message": text, "status": "INTERNAL_SERVER_ERROR"}}
                self._answer(code, json.dumps(said).encode())
                return
            headers = {"x-api-key": self.headers.get("x-api-key", "")}
            answer = client.request(self.command, f"{behind}{self.path}", content=body, headers=headers)
            self._answer(answer.status_code, answer.content)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # as above

        def _answer(self, code: int, content: bytes) -> None:
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    with httpx.Client(trust_env=False, timeout=30) as client:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
