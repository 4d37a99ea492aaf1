"""A real S3 server, versitygw, built by Go; and a proxy before it that loses, delays and refuses requests."""

import http.client
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from local_cluster.jars import ROOT, once
from local_cluster.ports import LOOPBACK, free_port
from local_cluster.processes import Process
from tests.support.http_server import QuietHandler
from tests.support.marks import skip_without

VERSION = "1.8.0"
BUCKET = "tables"
KEY, SECRET = "AKTESTONLY", "a-secret-of-tests-only"
_BINARY = "versitygw"
_NEEDS_GO = (1, 25)


def program() -> Path:
    """Return the server's program; the first time it is built, in about a minute."""
    folder = ROOT / ".parts" / f"{_BINARY}-{VERSION}"
    if not folder.is_dir():
        found = re.search(r"go(\d+)\.(\d+)", _go("env", "GOVERSION")) if shutil.which("go") else None
        if found is None or tuple(map(int, found.groups())) < _NEEDS_GO:
            skip_without("go", f"Go {'.'.join(map(str, _NEEDS_GO))} is missing, which builds the S3 server")
    return once(folder, _build) / _BINARY


def _build(folder: Path) -> None:
    _go("install", f"github.com/versity/{_BINARY}/cmd/{_BINARY}@v{VERSION}", GOBIN=str(folder))


def _go(*arguments: str, **environment: str) -> str:
    ran = subprocess.run(
        ["go", *arguments], env={**os.environ, "GOTOOLCHAIN": "local", **environment}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"go {' '.join(arguments)}: {ran.stderr[-2000:]}"
    return ran.stdout


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    port = free_port()
    folder = folder / "s3"
    (folder / "objects" / BUCKET).mkdir(parents=True)
    (folder / "about").mkdir()
    keep = ["posix", "--sidecar", str(folder / "about"), str(folder / "objects")]
    server = Process(
        "s3", [str(program()), "--port", f"{LOOPBACK}:{port}", "--quiet", *keep], folder / "s3.log",
        environment={"ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET},
    )  # fmt: skip
    server.start()
    try:
        server.wait_until(lambda: _answers(port), 60)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.stop()


def _answers(port: int) -> bool:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
        connection.request("GET", "/")
        return connection.getresponse().status == 403
    return False


def environment(address: str) -> Mapping[str, str]:
    """Return environment variables to find the server, without this machine's own accounts."""
    return {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }  # fmt: skip


Fault = Literal["refused", "refused after", "lost before", "lost after", "late", "slow"]
"""Faults of a request: 500 without or after its execution; a cut connection before, after, or long before its
execution; a late answer."""
FAULTS: tuple[Fault, ...] = ("refused", "refused after", "lost before", "lost after", "late", "slow")
LATE_SECONDS = 1.0
_FAILED = b"<Error><Code>InternalError</Code></Error>"


@dataclass
class Once:
    """Apply a fault to the first matching request."""

    method: str
    path: str  # a part of it
    fault: Fault

    def __call__(self, method: str, path: str) -> Fault | None:
        if method != self.method or self.path not in path:
            return None
        self.method = "done"
        return self.fault


@dataclass
class Often:
    """Apply a fault to a random share of all requests."""

    seed: int
    share: float

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def __call__(self, method: str, path: str) -> Fault | None:
        return self._chance.choice(FAULTS) if self._chance.random() < self.share else None


Rule = Once | Often


@contextmanager
def unreliable(address: str, rule: Rule) -> Iterator[str]:
    """Run a proxy before a server; yields its address.

    In its own process: delta-rs holds Python's GIL while it waits for an answer.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_proxy, args=(address.removeprefix("http://"), rule, there), daemon=True)
    process.start()
    try:
        yield f"http://{LOOPBACK}:{here.recv()}"
    finally:
        process.kill()
        process.join()


def _proxy(target: str, rule: Rule, port: Any) -> None:
    server = ThreadingHTTPServer((LOOPBACK, 0), _handler(target, rule))
    port.send(server.server_port)
    server.serve_forever()


def _handler(target: str, rule: Rule) -> type[QuietHandler]:
    class Handler(QuietHandler):
        close_connection = True

        def handle_one_request(self) -> None:
            with suppress(ConnectionError):
                super().handle_one_request()

        def _serve(self) -> None:
            self.close_connection = True
            body = self._body()
            fault = rule(self.command, self.path)
            if fault == "refused":
                self._answer(500, {}, _FAILED)
            elif fault == "late":
                threading.Timer(LATE_SECONDS, self._ask, [body]).start()
            elif fault != "lost before":
                self._answer_of(self._ask(body), fault)

        def _answer_of(self, answer: tuple[int, Mapping[str, str], bytes], fault: Fault | None) -> None:
            if fault == "slow":
                time.sleep(LATE_SECONDS)
            if fault == "refused after":
                self._answer(500, {}, _FAILED)
            elif fault != "lost after":
                self._answer(*answer)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = b""
            while True:
                line = self.rfile.readline()
                size = int(line.partition(b";")[0], 16)
                found += line + self.rfile.read(size + 2)
                if size == 0:
                    return found

        def _ask(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
            connection = http.client.HTTPConnection(target, timeout=30)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders()
            connection.send(body)
            found = connection.getresponse()
            content = found.read()
            connection.close()
            return found.status, dict(found.getheaders()), content

        def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = str(len(content)) if self.command != "HEAD" else headers.get("Content-Length", "0")
            self.send_header("Content-Length", length)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

    for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._serve)
    return Handler
