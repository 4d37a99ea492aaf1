"""A certificate service for tests: service type, and bindings as authn contract 7 has them."""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

KEY = "the-key-of-the-certificate-service"
UUID = "11111111-2222-3333-4444-555555555555"
_AMS = {"auth_types": ["x509"], "auth_method": "headers", "type": "ams"}
Answer = tuple[int, Any]


@dataclass
class CertificateService:
    """What it holds, what it was asked, and the bindings it refuses to make."""

    url: str = ""
    bindings: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    failing: dict[str, int] = field(default_factory=dict)
    """Status by the name of a binding."""

    def changed(self) -> list[str]:
        return [each for each in self.asked if not each.startswith("GET")]

    def answer(self, method: str, path: str, key: str, body: bytes) -> Answer:
        self.asked.append(f"{method} {path}")
        if key != KEY:
            return _error(401, "Wrong Credentials", "UNAUTHORIZED")
        if path == "/v1/service-types/ams":
            return 200, {"name": "ams", "uuid": UUID, "hosts": ["localhost"], **_AMS}
        if path == "/v1/service-types/ams/hosts/localhost/bindings":
            return 200, {"bindings": list(self.bindings.values())}
        named = re.fullmatch(r"/v1/bindings/([^/]+)", path)
        if not named:
            return _error(404, "Service-type was not found", "NOT FOUND")
        return self._binding(method, unquote(named[1]), json.loads(body or b"{}"))

    def _binding(self, method: str, name: str, said: dict[str, str]) -> Answer:
        if name in self.failing:
            return _error(self.failing[name], "Database Error: gone", "INTERNAL SERVER ERROR")
        if method == "POST" and name in self.bindings:
            return _error(409, f"binding object with name: {name} already exists", "CONFLICT")
        if method != "POST" and name not in self.bindings:
            return _error(404, "Binding was not found", "NOT FOUND")
        if method == "DELETE":
            del self.bindings[name]
            return 204, None
        self.bindings[name] = {**self.bindings.get(name, {}), **said, "name": name, "uuid": name}
        return 201 if method == "POST" else 200, self.bindings[name]


def _error(code: int, message: str, status: str) -> Answer:
    return code, {"error": {"message": message, "code": code, "status": status}}


@contextlib.contextmanager
def certificate_service() -> Iterator[CertificateService]:
    """Serve until the block ends."""
    state = CertificateService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            code, content = state.answer(
                self.command, urlsplit(self.path).path, self.headers.get("x-api-key", ""), body
            )
            answer = b"" if content is None else json.dumps(content, indent=1).encode()
            self.send_response(code)
            if code != 204:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
