import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from structlog.testing import capture_logs

from ams.app.serving import warn_of_plain_http
from ams.core.held import SMALL
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.http import limits
from ams.service.delivering import Deliverer
from ams.service.push.runner import PushRunner
from ams.storage import data_check
from tests.support.service import running_service

DRAIN_SECONDS = 47.0
"""No other sleep is so long."""
HARMLESS: list[dict[str, Any]] = [
    *({"host": host} for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost")),
    {"host": "::", "cert": "c.pem", "key": "k.pem"},
    {"host": "::", "tls_self_signed": True},
]


@pytest.fixture(autouse=True)
def own_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module a logger that no service of another test has set up."""
    monkeypatch.setattr("ams.app.serving.logger", structlog.get_logger("ams"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "ams.example"])
def test_an_address_that_others_reach_is_warned_of_when_it_has_no_tls(host: str) -> None:
    with capture_logs() as said:
        warn_of_plain_http(Settings(host=host))

    assert [(each["event"], each["log_level"], each["host"]) for each in said] == [("no_tls", "warning", host)]


@pytest.mark.parametrize("settings", HARMLESS)
def test_what_stays_on_this_machine_or_has_tls_is_not(settings: dict[str, Any]) -> None:
    with capture_logs() as said:
        warn_of_plain_http(Settings(**settings))

    assert said == []


async def test_a_service_that_drains_serves_on_while_it_says_that_it_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, stop, drained = asyncio.Event(), asyncio.Event(), asyncio.Event()
    urls: list[str] = []
    sleep = asyncio.sleep

    async def sleeping(seconds: float, *result: Any) -> Any:
        if seconds != DRAIN_SECONDS:
            return await sleep(seconds, *result)
        return await drained.wait()

    monkeypatch.setattr(asyncio, "sleep", sleeping)

    async def serve() -> None:
        async with running_service(tmp_path / "data", drain_seconds=DRAIN_SECONDS) as (run, _):
            urls.extend((run.base_url, run.operations_url))
            ready.set()
            await stop.wait()

    serving = asyncio.create_task(serve())
    await ready.wait()
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(urls[1] + "/readyz")).status_code == 200
        stop.set()
        await asyncio.sleep(0.3)  # it looks every tenth of a second whether it is to stop
        refused = await client.get(urls[1] + "/readyz")
        assert (refused.status_code, refused.text) == (503, "stopping\n")
        assert (await client.get(urls[0] + "/v1/status")).status_code == 200
        drained.set()
        await serving
        with pytest.raises(httpx.ConnectError):
            await client.get(urls[0] + "/v1/status")


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def moved(folder: Path) -> Iterator[None]:
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    yield
    elsewhere.rename(folder)


UNREADY = {
    "registry locked": (lambda data: locked(data / "registry.db"), "DATA/registry.db is locked by another process"),
    "cursors locked": (lambda data: locked(data / "cursors.db"), "DATA/cursors.db is locked by another process"),
    "folder gone": (moved, "DATA: No such file or directory"),
    "log gone": (lambda data: moved(data / "log"), "DATA/log: No such file or directory"),
}


@pytest.mark.embedded("the data folder holds all there is")
@pytest.mark.parametrize(("trouble", "reason"), UNREADY.values(), ids=UNREADY)
async def test_a_service_says_why_it_is_not_ready_when_its_data_folder_does_not_do(
    trouble: Callable[[Path], contextlib.AbstractContextManager[None]],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in {"LOOK_SECONDS": 0.01, "BUSY_SECONDS": 0.01, "LOCKED_SECONDS": 0}.items():
        monkeypatch.setattr(data_check, name, seconds)
    data = tmp_path / "data"
    async with (
        running_service(data) as (run, _),
        httpx.AsyncClient(base_url=run.operations_url, trust_env=False) as client,
        asyncio.timeout(30),
    ):
        with trouble(data):
            while (unready := await client.get("/readyz")).status_code == 200:
                await asyncio.sleep(0.01)
        while (await client.get("/readyz")).status_code == 503:
            await asyncio.sleep(0.01)

    assert unready.text == f"{reason.replace('DATA', str(data))}\n"


@pytest.mark.embedded("on Kafka all nodes refuse alike")
async def test_a_service_that_refuses_publishes_is_not_ready_and_goes_on_with_all_else(tmp_path: Path) -> None:
    data, more_than_any_disk_has = tmp_path / "data", 2**60
    async with running_service(data) as (run, token):
        headers = {"x-api-key": token}
        async with httpx.AsyncClient(base_url=run.base_url, headers=headers, trust_env=False) as client:
            await client.post("/v1/projects/P", json={})
            await client.put("/v1/projects/P/topics/T")
    async with (
        running_service(data, min_free_bytes=more_than_any_disk_has) as (run, token),
        httpx.AsyncClient(base_url=run.base_url, headers=headers, trust_env=False) as client,
    ):
        refused = await client.post("/v1/projects/P/topics/T:publish", json={"messages": [{"data": "aGk="}]})
        unready = await client.get(run.operations_url + "/readyz")
        listed = await client.get("/v1/projects/P/topics")

    assert (refused.status_code, listed.status_code) == (500, 200)
    assert unready.status_code == 503
    assert unready.text.startswith("publishing is refused: ")


async def test_deliveries_by_push_end_before_pulls_are_told_not_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers wait in pulls too: told not to, they would ask without pause until they end."""
    ended: list[str] = []
    close, stop_waiting = PushRunner.close, Deliverer.stop_waiting

    async def closing(runner: PushRunner) -> None:
        await close(runner)
        ended.append("deliveries")

    def stopping(deliverer: Deliverer) -> None:
        ended.append("waits")
        stop_waiting(deliverer)

    monkeypatch.setattr(PushRunner, "close", closing)
    monkeypatch.setattr(Deliverer, "stop_waiting", stopping)
    async with running_service(tmp_path / "data", push_enabled=True, push_worker_token="w" * 64):
        assert ended == []

    assert ended[:2] == ["deliveries", "waits"]


PARTS = {
    "HTTP server",
    "operations port",
    "certificate",
    "counting",
    "counting of losses",
    "failed logins",
    "uses of tokens",
    "push leases",
}
"""What runs as long as the process does, beside what the engines run."""


async def test_what_runs_as_long_as_the_service_is_started_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: set[str] = set()
    task = Supervisor.task

    def watching(supervisor: Supervisor, part: str, *more: Any, **options: Any) -> Any:
        watched.add(part)
        return task(supervisor, part, *more, **options)

    monkeypatch.setattr(Supervisor, "task", watching)
    options = {"tls_self_signed": True, "push_enabled": True, "push_worker_token": "w" * 64}
    async with running_service(tmp_path / "data", **options):
        pass

    assert watched >= PARTS


async def test_bodies_have_a_part_of_the_memory_that_the_process_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_memory_left", lambda: limits.SHARE_OF_MEMORY * 2 * SMALL)
    async with running_service(tmp_path / "data") as (run, token):
        headers = {"x-api-key": token}
        async with httpx.AsyncClient(base_url=run.base_url, headers=headers, trust_env=False) as client:
            await client.post("/v1/projects/P", json={})
            await client.put("/v1/projects/P/topics/T")
        url = httpx.URL(run.base_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\n"
        writer.write(head.encode() + b"content-length: 999999\r\n\r\n" + bytes(3 * SMALL))
        refused = await asyncio.wait_for(reader.readline(), 10)
        writer.close()

    assert refused.split()[1] == b"503"
