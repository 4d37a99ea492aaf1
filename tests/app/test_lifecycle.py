"""A service while it serves, drains and is not ready; and its ports, with a share per address."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
import structlog
from structlog.testing import capture_logs

from ams.app.lifecycle import RunningService, running, warn_of_plain_http
from ams.app.push_server import program as push_server
from ams.app.push_server import service as push_service
from ams.app.push_server.settings import PushSettings
from ams.authn import program
from ams.authn.settings import AuthnSettings
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.http import operations
from ams.service.delivery import Deliverer
from ams.service.push.runner import PushRunner
from ams.storage import folder as data_folder
from simulation.models import kafka_client
from simulation.models.kafka import Cluster
from tests.app.client import Client
from tests.support.held_disk import lock_database
from tests.support.served import in_process_service
from tests.support.service import asking, running_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

DRAIN_SECONDS = 47.0  # no other sleep is so long
HOSTS = {True: ("0.0.0.0", "::", "192.0.2.7", "ams.example"), False: ("127.0.0.1", "127.0.0.9", "::1", "localhost")}
WITH_TLS: list[dict[str, Any]] = [{"host": "::", "cert": "c.pem", "key": "k.pem"},
                                  {"host": "::", "tls_self_signed": True}]  # fmt: skip


@pytest.fixture(autouse=True)
def own_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module a logger that no service of another test has set up."""
    monkeypatch.setattr("ams.app.lifecycle.logger", structlog.get_logger("ams"))


@pytest.mark.parametrize(("settings", "is_warned"), [
    *(({"host": host}, is_warned) for is_warned, hosts in HOSTS.items() for host in hosts),
    *((settings, False) for settings in WITH_TLS),
])  # fmt: skip
def test_an_address_that_others_reach_is_warned_of_without_tls(settings: dict[str, Any], is_warned: bool) -> None:
    with capture_logs() as said:
        warn_of_plain_http(Settings(**settings))
    expected = [("no_tls", "warning", settings["host"])] if is_warned else []
    assert [(each["event"], each["log_level"], each["host"]) for each in said] == expected


async def make_topic(run: RunningService, token: str) -> None:
    async with asking(f"{run.base_url}/v1", token) as client:
        await client.post("/projects/P", json={})
        await client.put("/projects/P/topics/T")
        await client.post("/projects/P/topics/T:publish", json={"messages": [{"data": "aGk="}]})


async def test_deliveries_end_before_pulls_stop_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers also wait in pulls: without a stop they would pull in a tight loop until they end."""
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


async def test_a_draining_service_serves_on_but_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
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
def move_away(folder: Path) -> Iterator[None]:
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    yield
    elsewhere.rename(folder)


SEGMENT = "log/7d/0000000000000001.log"
UNREADY = {
    "registry locked": (
        lambda data: lock_database(data / "registry.db"),
        "DATA/registry.db is locked by another process",
    ),
    "folder gone": (move_away, "DATA: No such file or directory"),
    "log gone": (lambda data: move_away(data / "log"), "DATA/log: No such file or directory"),
    "segment gone": (lambda data: move_away(data / SEGMENT), f"DATA/{SEGMENT}: No such file or directory"),
}


@pytest.mark.embedded("the data folder holds all there is")
@pytest.mark.parametrize(("trouble", "reason"), UNREADY.values(), ids=UNREADY)
async def test_a_service_says_why_it_is_not_ready_when_its_data_folder_does_not_do(
    trouble: Callable[[Path], contextlib.AbstractContextManager[None]], reason: str, tmp_path: Path, looking_often: None
) -> None:
    data = tmp_path / "data"
    async with running_service(data) as (run, token):
        await make_topic(run, token)
        await is_unready_for(reason.replace("DATA", str(data)), lambda: trouble(data), run)


@pytest.mark.embedded("runs on the model of Kafka")
async def test_a_service_on_kafka_is_not_ready_without_its_cursor_folder(tmp_path: Path, looking_often: None) -> None:
    place = tmp_path / "data" / "cursors"
    broker = kafka_client.DirectBroker(Cluster([1], time.time), 1)
    options = {"log": "kafka", "kafka_servers": "kafka1:9092", "kafka_replication": 1, "kafka_min_isr": 1}
    with kafka_client.install({("kafka1", 9092): broker}):
        async with running_service(place.parent, **options) as (run, _):
            await is_unready_for(f"{place}: No such file or directory", lambda: move_away(place), run)


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"LOOK_SECONDS": 0.01, "BUSY_SECONDS": 0.01, "LOCKED_SECONDS": 0}.items():
        monkeypatch.setattr(data_folder, name, seconds)


async def is_unready_for(
    reason: str, trouble: Callable[[], contextlib.AbstractContextManager[None]], run: RunningService
) -> None:
    async with (httpx.AsyncClient(base_url=run.operations_url, trust_env=False, timeout=PATIENCE_SECONDS) as client,
                asyncio.timeout(PATIENCE_SECONDS)):  # fmt: skip
        with trouble():
            # Retry: a database that the service itself is writing to looks locked for a moment.
            while (await client.get("/readyz")).text != f"{reason}\n":
                await asyncio.sleep(0.01)
        while (await client.get("/readyz")).status_code == 503:
            await asyncio.sleep(0.01)


@pytest.mark.embedded("on Kafka all nodes refuse alike")
async def test_a_service_that_refuses_publishes_is_not_ready_and_goes_on_with_all_else(tmp_path: Path) -> None:
    data, more_than_any_disk_has = tmp_path / "data", 2**60
    async with running_service(data) as (run, token):
        await make_topic(run, token)
    async with (running_service(data, min_free_bytes=more_than_any_disk_has) as (run, token),
                asking(f"{run.base_url}/v1", token) as client):  # fmt: skip
        refused = await client.post("/projects/P/topics/T:publish", json={"messages": [{"data": "aGk="}]})
        unready = await client.get(run.operations_url + "/readyz")
        listed = await client.get("/projects/P/topics")

    assert (refused.status_code, listed.status_code) == (500, 200)
    assert unready.status_code == 503
    assert unready.text.startswith("publishing is refused: ")


def test_what_the_service_did_is_counted_and_topics_are_not_named_unless_that_is_set(tmp_path: Path) -> None:
    with in_process_service(tmp_path / "ams-data") as service, Client(service, trust_env=False) as client:
        client.prepare()
        client.publish("aGk=", "aGk=", "hi!!!")
        client.pull(maxMessages="2")
        client.post("/projects/P/subscriptions/ts:acknowledge", json={"ackIds": ["projects/P/subscriptions/ts:1"]})
        client.get("/projects/P/topics/none")
        client.get("/projects/P//topics/t")
        service.carry_out(service.run.service.counting.round())
        text = httpx.get(service.run.operations_url + "/metrics", trust_env=False, timeout=PATIENCE_SECONDS).text
    told = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ams_"))

    expected = {
        "ams_published_messages_total": 3, "ams_published_bytes_total": 13,
        "ams_not_base64_messages_total": 1, "ams_delivered_messages_total": 2,
        "ams_acknowledgements_total": 1, "ams_lost_messages_total": 0,
        **{f'ams_requests_total{{status="{kind}xx"}}': count for kind, count in ((2, 6), (3, 1), (4, 1), (5, 0))},
    }  # fmt: skip
    assert {name: float(told[name]) for name in expected} == expected
    assert not [name for name in told if "topic=" in name]


CONNECTIONS = 10
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"


@dataclass(frozen=True)
class Port:
    url: str
    operations: str
    has_tls: bool = False

    async def connect(self, source: str = HERE) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HERE, urlsplit(self.url).port, local_addr=(source, 0))

    async def open(self, source: str = HERE) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl._create_unverified_context() if self.has_tls else None  # who answers is not the point
        return await asyncio.open_connection(HERE, urlsplit(self.url).port, local_addr=(source, 0), ssl=context)

    async def ask(self, source: str = HERE) -> int:
        reader, writer = await self.open(source)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        found = int((await reader.read()).split(b" ", 2)[1])
        writer.close()
        return found

    async def metrics(self) -> str:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
            return (await client.get(f"{self.operations}/metrics")).text


@contextlib.asynccontextmanager
async def port_of(name: str, folder: Path) -> AsyncIterator[Port]:
    if name.startswith("push"):
        of_push = PushSettings(
            endpoint="http://127.0.0.1:1", token="x", port=0, ops_port=0, tls_enabled=False, skip_subs_load=True
        )
        async with push_server.running(of_push, Supervisor()) as push:
            yield Port(f"http://{push.address}" if name == "push" else push.operations, push.operations)
        return
    if name.startswith("certificates"):
        of_authn = AuthnSettings(
            data=str(folder), port=0, ops_port=0, tls_self_signed=True, client_ca=str(folder),
            max_connections=CONNECTIONS,
        )  # fmt: skip
        async with program.running(of_authn, Supervisor()) as authn:
            url = authn.base_url if name == "certificates" else authn.operations_url
            yield Port(url, authn.operations_url, has_tls=name == "certificates")
        return
    settings = Settings(
        data=str(folder), port=0, ops_port=0, tls_self_signed=name == "api-tls", max_connections=CONNECTIONS,
        min_free_bytes=0, reserve_bytes=0, pubsub_port=0 if name == "pubsub" else None,
        pubsub_emulator=name == "pubsub",
    )  # type: ignore[arg-type]  # fmt: skip
    async with running(settings, Supervisor()) as run:
        if name == "operations":
            yield Port(run.operations_url, run.operations_url)
        elif name == "pubsub":
            yield Port(f"http://{run.pubsub}", run.operations_url)
        else:
            yield Port(run.base_url, run.operations_url, has_tls=name == "api-tls")


@pytest.mark.parametrize(("name", "prefix"), [
    ("api", "ams"), ("api-tls", "ams"), ("operations", "ams"), ("certificates", "ams_authn"),
    ("certificates-operations", "ams_authn"), ("push-operations", "ams_push"), ("pubsub", "ams"),
])  # fmt: skip
async def test_one_address_gets_only_half(name: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(operations, "MAX_CONNECTIONS", CONNECTIONS)
    async with port_of(name, tmp_path / "data") as port:
        silent = [await port.connect() for _ in range(CONNECTIONS)]
        await wait_until_async(lambda: sum(reader.at_eof() or bool(reader._buffer) for reader, _ in silent) == 5)  # type: ignore[attr-defined]
        refused = [await reader.read() for reader, _ in silent if reader.at_eof() or reader._buffer]  # type: ignore[attr-defined]
        assert [each[:12] for each in refused] == [b"" if port.has_tls else b"HTTP/1.1 503"] * 5

        assert await port.ask(ELSEWHERE) in (200, 404)
        for _, writer in silent:
            writer.close()
        listener = "operations" if name.endswith("operations") else "pubsub" if name == "pubsub" else "api"
        said = f'{prefix}_connections_refused_total{{listener="{listener}",why="address"}} 5.0'
        await wait_until_async(lambda: is_in(said, port))
        assert await port.ask() in (200, 404)


@pytest.mark.parametrize("name", ["api", "api-tls", "operations", "certificates", "push-operations", "pubsub"])
async def test_a_trailer_that_ends_the_connection_ends_it_on_every_port(name: str, tmp_path: Path) -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    async with port_of(name, tmp_path / "data") as port:
        reader, writer = await port.open()
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n0\r\nconnection: close\r\n\r\n")
        assert b"\r\nconnection: close\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1" not in await reader.read()
        writer.close()


async def is_in(line: str, port: Port) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return line in await port.metrics()
    return False


async def test_a_port_of_grpc_closes_what_is_over_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_service, "MAX_CONNECTIONS", CONNECTIONS)
    async with port_of("push", tmp_path / "data") as port:
        silent = [await port.connect() for _ in range(CONNECTIONS)]
        over, leaving = await port.connect()
        with contextlib.suppress(ConnectionError):
            assert await over.read() == b""
        for writer in (leaving, *(each for _, each in silent)):
            writer.close()
        async with grpc.aio.insecure_channel(urlsplit(port.url).netloc) as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)
