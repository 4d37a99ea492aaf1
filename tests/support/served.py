"""The whole service in a thread of this process, over a real socket, with a manual clock."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from ams.app.lifecycle import RunningService, running
from ams.core.clock import Clock, SystemClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from tests.support import shape
from tests.support.clock import ManualClock
from tests.support.loop_thread import on_loop_thread
from tests.support.waiting import PATIENCE_SECONDS

T = TypeVar("T")

SERVICE_TOKEN = "the-service-token"
WORKER_TOKEN = "the-token-of-the-push-worker"


@dataclass(frozen=True)
class InProcessService:
    """A running service, its clock and the token of its first administrator."""

    run: RunningService
    token: str
    clock: Clock
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port of the API over plain HTTP."""
        host, _, port = self.run.base_url.removeprefix("http://").partition(":")
        return host, int(port)

    def call(self, method: str, path: str, body: Any = None, token: str = "", *, headers: Any = None) -> httpx.Response:
        """Send a request to a path below `/v1`, by default as the administrator."""
        url, shown = f"{self.run.base_url}/v1{path}", {"x-api-key": token or self.token, **(headers or {})}
        # Plain HTTP needs no certificates.
        return httpx.request(
            method, url, json=body, headers=shown, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        )

    def ask(self, method: str, path: str, body: Any = None, token: str = "", *, headers: Any = None) -> Any:
        """Send a request likewise; return the body of a good answer."""
        answer = self.call(method, path, body, token, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.content else None

    def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the service's periodic work now."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)

    def connect(self, seconds: float) -> socket.socket:
        return socket.create_connection(self.address, timeout=seconds)


@contextlib.contextmanager
def in_process_service(data: Path, clock: Clock | None = None, **settings: object) -> Iterator[InProcessService]:
    """Run a service until the block ends. A pull waits for only 50 ms, and the disk may be nearly full.

    Kafka's and PostgreSQL's clocks cannot be set, so there the manual clock starts at the current time.
    """
    usual = {"service_token": SERVICE_TOKEN, "pull_wait": 0.05, "min_free_bytes": 0, "reserve_bytes": 0}
    every = usual | {"port": 0, "ops_port": 0} | shape.settings(data) | settings
    chosen = Settings(data=str(data), **every)  # type: ignore[arg-type]  # tests name settings freely
    clock = clock or (ManualClock(SystemClock().wall()) if shape.is_cluster() else ManualClock())
    with on_loop_thread(running(chosen, Supervisor(), clock=clock)) as (run, loop):
        kept = data / "admin.token"  # not of a second node: the first made the administrator
        yield InProcessService(run, kept.read_text().strip() if kept.exists() else SERVICE_TOKEN, clock, loop)
