"""A server in the place of the old service: it answers what the new one answers, but for what is planted."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from tests.support.http_server import QuietHandler, http_server


@dataclass
class Old:
    """What was asked, and what is changed in answers."""

    url: str = ""
    changes: list[tuple[bytes, bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    in_query: bool = False
    """Whether tokens in headers are passed over, as by the reference unless told otherwise."""


@contextlib.contextmanager
def passing(new: str) -> Iterator[Old]:
    """Serve until the block ends."""
    old = Old()

    class Passing(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
            headers = {} if old.in_query else {"x-api-key": self.headers.get("x-api-key", "")}
            old.asked.append(self.path)
            old.tokens.append(headers.get("x-api-key", ""))
            came = client.get(self.path, headers=headers)
            body = came.content
            for one, other in old.changes:
                body = body.replace(one, other)
            self.send_response(came.status_code)
            self.send_header("Content-Type", came.headers["content-type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with httpx.Client(base_url=new, trust_env=False) as client, http_server(Passing) as old.url:
        yield old
