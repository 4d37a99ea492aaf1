"""A GOCDB for tests: answers over HTTP, or HTTPS where it wants a certificate."""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import QuietHandler, http_server


@dataclass
class Gocdb:
    """What it answers: bodies or statuses by query; and what it was asked."""

    url: str = ""
    answers: dict[str, bytes | int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

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

    class Handler(QuietHandler):
        disable_nagle_algorithm = True

        def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
            found = state.answer(urlsplit(self.path).query)
            body = found if isinstance(found, bytes) else b"no"
            self.send_response(200 if isinstance(found, bytes) else found)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with http_server(Handler, tls) as url:
        state.url = url.replace("127.0.0.1", "localhost") + "/gocdbpi/public/"
        yield state
