"""A real service for tests: as its own process, or in this one."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from ams.app.lifecycle import RunningService, running
from ams.core.clock import Clock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from local_cluster.ports import free_port
from tests.support import shape
from tests.support.waiting import PATIENCE_SECONDS

READY_SECONDS = 100  # timeout of a start: many may start at a time


@dataclass(frozen=True)
class LiveService:
    """A running service's addresses and credentials."""

    base_url: str
    token: str
    data: Path
    process: subprocess.Popen[str]
    pubsub: str = ""  # HOST:PORT of Google's Pub/Sub, where that is on

    @property
    def ca(self) -> Path:
        return self.data / "ca.pem"

    def http(self) -> httpx.Client:
        trust = ssl.create_default_context(cafile=str(self.ca)) if self.base_url.startswith("https") else True
        headers = {"x-api-key": self.token}
        return httpx.Client(
            base_url=f"{self.base_url}/v1", headers=headers, verify=trust, trust_env=False, timeout=PATIENCE_SECONDS
        )

    def ask(self, method: str, path: str, body: object = None, *, token: str = "") -> Any:
        """Send a request to a path below `/v1`, by default as the administrator; return the body of a good answer."""
        with self.http() as client:
            answer = client.request(method, path, json=body, headers={"x-api-key": token or self.token})
        assert answer.status_code == 200, answer.text
        is_json = answer.content and answer.headers["content-type"].startswith("application/json")
        return answer.json() if is_json else answer.text

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)


def asking(base_url: str, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=base_url, headers={"x-api-key": token}, trust_env=False, timeout=PATIENCE_SECONDS)


def make_subscription(http: httpx.Client, topic: str = "T", subscription: str = "S") -> None:
    http.post("/projects/P", json={}).raise_for_status()
    http.put(f"/projects/P/topics/{topic}").raise_for_status()
    body = {"topic": f"projects/P/topics/{topic}"}
    http.put(f"/projects/P/subscriptions/{subscription}", json=body).raise_for_status()


@contextlib.contextmanager
def live_service(
    data: Path, *flags: str, environment: dict[str, str] | None = None, program: str = "ams.cli.main",
    tracer: Sequence[str] = (),
) -> Iterator[LiveService]:  # fmt: skip
    """Start `ams serve` on a free port, wait until it is ready, and stop it at the end.

    `program` is a module that runs `ams`, as `tests.support.planted` does after it planted a fault; `tracer` is a
    command that runs it.
    """
    command = [*tracer, sys.executable, "-m", program, "serve", "--data", str(data), "--host", "127.0.0.1"]
    with (data.parent / f"{data.name}.stderr").open("a") as errors:
        process = subprocess.Popen(
            [*command, "--port", "0", "--ops-port", "0", *flags], stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, **shape.environment(data), **(environment or {})},
        )  # fmt: skip
    try:
        base_url, pubsub = _ready_lines(process)
        yield LiveService(base_url, (data / "admin.token").read_text().strip(), data, process, pubsub)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class CertificatePorts(NamedTuple):
    """A certificate service's ports, its management key, and its process."""

    api: int
    operations: int
    key: str
    process: subprocess.Popen[str]


@contextlib.contextmanager
def live_certificate_service(data: Path, *flags: str, client_ca: Path | None = None) -> Iterator[CertificatePorts]:
    """Start `ams authn serve` with TLS on free ports, wait until it is ready, and stop it at the end.

    Its log is appended to a file beside the data folder, which it makes unless the authorities are in there.
    """
    if client_ca is None:
        data.mkdir(exist_ok=True)
    operations = free_port()
    given = ["--data", str(data), "--port", "0", "--ops-port", str(operations), "--tls-self-signed"]
    given += ["--client-ca", str(client_ca or data), "--failed-logins-per-minute", "0", *flags]
    command = [sys.executable, "-m", "ams.cli.main", "authn", "serve", *given]
    with (
        (data.parent / f"{data.name}.stderr").open("a") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            base_url, _ = _ready_lines(process)
            key = (data / "authn.key").read_text().strip()
            yield CertificatePorts(int(base_url.rpartition(":")[2]), operations, key, process)
        finally:
            process.terminate()


@contextlib.contextmanager
def live_pusher() -> Iterator[tuple[int, int]]:
    """Start `ams push`, which delivers nothing, without TLS; yields its gRPC port and its operations port."""
    operations = free_port()
    flags = ["--endpoint", "http://127.0.0.1:1", "--token", "x", "--no-tls-enabled", "--skip-subs-load"]
    command = [sys.executable, "-m", "ams.cli.main", "push", *flags, "--port", "0", "--ops-port", str(operations)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield int(_ready_lines(process)[0].rpartition(":")[2]), operations
        finally:
            process.terminate()


def _ready_lines(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the addresses of the API and of Google's Pub/Sub."""
    assert process.stdout is not None
    started, pubsub = time.monotonic(), ""
    for line in process.stdout:
        if line.startswith("pubsub "):
            pubsub = line.split()[1]
        if line.startswith("ready "):
            return line.split()[1], pubsub
        assert time.monotonic() - started < READY_SECONDS
    raise AssertionError(f"the service ended with {process.wait()} before it was ready")


@contextlib.asynccontextmanager
async def running_service(
    data: Path, *, clock: Clock | None = None, **settings: object
) -> AsyncIterator[tuple[RunningService, str]]:
    """Run a service in this process on free ports; yields it and the first administrator's token."""
    chosen = {"data": str(data), "port": 0, "ops_port": 0, "min_free_bytes": 0, "reserve_bytes": 0}
    chosen |= shape.settings(data) | settings
    async with running(Settings(**chosen), Supervisor(), clock=clock) as run:  # type: ignore[arg-type]  # tests name settings freely
        yield run, (await asyncio.to_thread((data / "admin.token").read_text)).strip()
