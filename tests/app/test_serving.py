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

from ams.app.serving import Running, warn_of_plain_http
from ams.core.held import SMALL
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.http import limits
from ams.service.delivering import Deliverer
from ams.service.push.runner import PushRunner
from ams.storage import data_check
from tests.app.client import Client
from tests.support.served import Served, served
from tests.support.service import running_service
from tests.support.waiting import PATIENCE_SECONDS

DRAIN_SECONDS = 47.0
"""No other sleep is so long."""
HOSTS = {True: ("0.0.0.0", "::", "192.0.2.7", "ams.example"), False: ("127.0.0.1", "127.0.0.9", "::1", "localhost")}
WITH_TLS: list[dict[str, Any]] = [
    {"host": "::", "cert": "c.pem", "key": "k.pem"},
    {"host": "::", "tls_self_signed": True},
]


@pytest.fixture(autouse=True)
def own_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module a logger that no service of another test has set up."""
    monkeypatch.setattr("ams.app.serving.logger", structlog.get_logger("ams"))


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [
        *(({"host": host}, is_warned) for is_warned, hosts in HOSTS.items() for host in hosts),
        *((settings, False) for settings in WITH_TLS),
    ],
)
def test_an_address_that_others_reach_is_warned_of_when_it_has_no_tls(
    settings: dict[str, Any], is_warned: bool
) -> None:
    with capture_logs() as said:
        warn_of_plain_http(Settings(**settings))
    expected = [("no_tls", "warning", settings["host"])] if is_warned else []
    assert [(each["event"], each["log_level"], each["host"]) for each in said] == expected


def client_of(run: Running, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"{run.base_url}/v1", headers={"x-api-key": token}, trust_env=False)


async def make_topic(run: Running, token: str) -> None:
    async with client_of(run, token) as client:
        await client.post("/projects/P", json={})
        await client.put("/projects/P/topics/T")
        await client.post("/projects/P/topics/T:publish", json={"messages": [{"data": "aGk="}]})


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
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (refused := await client.get(urls[1] + "/readyz")).status_code == 200:
                await sleep(0.01)
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


SEGMENT = "log/7d/0000000000000001.log"
UNREADY = {
    "registry locked": (lambda data: locked(data / "registry.db"), "DATA/registry.db is locked by another process"),
    "cursors locked": (lambda data: locked(data / "cursors.db"), "DATA/cursors.db is locked by another process"),
    "folder gone": (moved, "DATA: No such file or directory"),
    "log gone": (lambda data: moved(data / "log"), "DATA/log: No such file or directory"),
    "segment gone": (lambda data: moved(data / SEGMENT), f"DATA/{SEGMENT}: No such file or directory"),
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
        running_service(data) as (run, token),
        httpx.AsyncClient(base_url=run.operations_url, trust_env=False) as client,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        await make_topic(run, token)
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
        await make_topic(run, token)
    async with (
        running_service(data, min_free_bytes=more_than_any_disk_has) as (run, token),
        client_of(run, token) as client,
    ):
        refused = await client.post("/projects/P/topics/T:publish", json={"messages": [{"data": "aGk="}]})
        unready = await client.get(run.operations_url + "/readyz")
        listed = await client.get("/projects/P/topics")

    assert (refused.status_code, listed.status_code) == (500, 200)
    assert unready.status_code == 503
    assert unready.text.startswith("publishing is refused: ")


async def test_deliveries_end_before_pulls_stop_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    "HTTP server", "operations port", "certificate", "counting", "counting of losses", "failed logins",
    "uses of tokens", "push leases",
}  # fmt: skip
"""What runs as long as the process does, beside what the engines run."""


async def test_what_runs_with_the_service_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_bodies_have_a_part_of_the_memory_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_memory_left", lambda: limits.SHARE_OF_MEMORY * 2 * SMALL)
    async with running_service(tmp_path / "data") as (run, token):
        await make_topic(run, token)
        url = httpx.URL(run.base_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\n"
        writer.write(head.encode() + b"content-length: 999999\r\n\r\n" + bytes(3 * SMALL))
        refused = await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS)
        writer.close()

    assert refused.split()[1] == b"503"


def work(service: Served) -> None:
    """Publish 3 messages, pull 2 and acknowledge them; ask for something that is not there."""
    with Client(service, trust_env=False) as client:
        client.prepare()
        client.publish("aGk=", "aGk=", "hi!!!")
        client.pull(maxMessages="2")
        client.post("/projects/P/subscriptions/ts:acknowledge", json={"ackIds": ["projects/P/subscriptions/ts:1"]})
        client.get("/projects/P/topics/none")
        client.get("/projects/P//topics/t")


def figures(service: Served) -> dict[str, float]:
    text = httpx.get(service.run.operations_url + "/metrics", trust_env=False).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ams_")]
    return {name: float(value) for name, value in lines}


def test_what_the_service_did_is_counted_and_topics_are_not_named_unless_that_is_set(tmp_path: Path) -> None:
    with served(tmp_path / "ams-data") as service:
        work(service)
        service.carry_out(service.run.service.counting.round())
        told = figures(service)

    expected = {
        "ams_published_messages_total": 3, "ams_published_bytes_total": 13,
        "ams_not_base64_messages_total": 1, "ams_delivered_messages_total": 2,
        "ams_acknowledgements_total": 1, "ams_lost_messages_total": 0,
        **{f'ams_requests_total{{status="{kind}xx"}}': count for kind, count in ((2, 6), (3, 1), (4, 1), (5, 0))},
    }  # fmt: skip
    assert {name: told[name] for name in expected} == expected
    assert not [name for name in told if "topic=" in name]
