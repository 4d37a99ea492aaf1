"""A start of the service: what it waits for, what stops it, and what it creates."""

import contextlib
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest
import structlog
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from structlog.testing import capture_logs

from ams.app.lifecycle import RunningService
from ams.app.wiring import engines, put_in_order, service
from ams.app.wiring.engines import open_engines, retry_until_available
from ams.app.wiring.identity import Identity, trusted_by
from ams.app.wiring.push import issuer_of
from ams.core.backoff import Backoff
from ams.core.clock import SystemClock
from ams.core.errors import BadSettings, CursorsUnavailable, RegistryUnavailable, TokenRefused, Unusable
from ams.core.issuer import Issuer
from ams.core.names import BindingName, IssuerName, new_topic_id
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.service.retention import LossTotal
from ams.storage.files import Disk
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.registry.registry import Registry
from demo.issuer import ExampleIssuer
from simulation.models import kafka_client, postgresql_driver
from simulation.models.kafka import Cluster
from simulation.models.postgresql import Server
from tests.support.administration import make_user, open_registry
from tests.support.served import in_process_service
from tests.support.service import asking, running_service
from tests.support.waiting import wait_until_async


@contextlib.asynccontextmanager
async def start_service(data: Path, **settings: Any) -> AsyncIterator[tuple[RunningService, httpx.AsyncClient]]:
    async with (running_service(data, **settings) as (run, token),
                asking(f"{run.base_url}/v1/projects/P", token) as client):  # fmt: skip
        await client.post(f"{run.base_url}/v1/projects/P", json={})
        await client.put("/topics/t")
        yield run, client


PUBLISHED = {"messages": [{"data": "aGk="}]}


@pytest.mark.embedded("the data folder holds the log")
async def test_topics_whose_log_was_lost_begin_again_and_so_do_their_subscriptions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with start_service(data) as (_, client):
        await client.put("/subscriptions/s", json={"topic": "projects/P/topics/t"})
        for _ in range(3):
            await client.post("/topics/t:publish", json=PUBLISHED)
        await client.post("/subscriptions/s:modifyOffset", json={"offset": 3})
    shutil.rmtree(data / "log")

    async with start_service(data) as (_, client):
        assert (await client.get("/subscriptions/s:offsets")).json() == {"max": 0, "min": 0, "current": 0}
        assert (await client.post("/topics/t:publish", json=PUBLISHED)).json() == {"messageIds": ["0"]}
        pulled = (await client.post("/subscriptions/s:pull", json={})).json()["receivedMessages"]
        assert [each["message"]["messageId"] for each in pulled] == ["0"]


async def test_no_node_starts_beside_messages_with_an_empty_registry(tmp_path: Path) -> None:
    """Otherwise it would make an administrator, and an import under way could not finish."""
    settings = Settings(data=str(tmp_path / "data"))
    async with open_engines(settings, SystemClock(), Disk(), lambda _: None, Supervisor()) as engines:
        await engines.log.create(new_topic_id())
        shared = replace(engines, embedded=None)  # others may use the engines

        with pytest.raises(Unusable, match=r"^the registry is empty but the log is not \(topics: 1\)"):
            await put_in_order(settings, shared)

        assert not await engines.registry.users.exist()


async def test_a_data_folder_without_the_log_has_a_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For acknowledgements, deletions and the audit log, which need space when the disk is full."""

    async def elsewhere(opening: object, registry: object) -> EmbeddedLog:
        return await EmbeddedLog.open(str(tmp_path / "elsewhere"), options=LogOptions(reserve_bytes=0))

    monkeypatch.setattr(engines._Opening, "_kafka_log", elsewhere)
    data, size = tmp_path / "data", 2**20
    settings = Settings(data=str(data), log="kafka", min_free_bytes=0, reserve_bytes=size)
    async with open_engines(settings, SystemClock(), Disk(), lambda _: None, Supervisor()) as opened:
        reserve = data / "cursors" / "reserve"
        assert reserve.stat().st_size == size
        assert opened.space.release_reserve()
        await wait_until_async(opened.space.release_reserve)
        await opened.log.close()


async def test_only_a_service_that_is_alone_removes_what_looks_left_over(tmp_path: Path) -> None:
    """On a shared database, another node may be creating it right now."""
    settings = Settings(data=str(tmp_path / "data"))
    async with open_engines(settings, SystemClock(), Disk(), lambda _: None, Supervisor()) as engines:
        await put_in_order(settings, engines)
        left_over = new_topic_id()
        await engines.log.create(left_over)

        await put_in_order(settings, replace(engines, embedded=None))
        assert await engines.log.topics() == {left_over}

        await put_in_order(settings, engines)
        assert await engines.log.topics() == set()


async def test_in_a_folder_that_all_may_read_only_the_certificate_is_for_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    async with running_service(data, tls_self_signed=True) as (run, _):
        places = list(data.rglob("*"))
        readable = {each.name for each in places if each.stat().st_mode & 0o077}

    assert run.base_url.startswith("https")
    assert {"cursors", "registry.db", "log", "7d", "control"} <= {each.name for each in places}
    assert readable == {"ca.pem", "server.pem"}


WITH_PUSH = {"push_enabled": True, "push_worker_token": "w0rker"}


async def test_a_start_with_push_makes_the_worker_beside_the_first_administrator(tmp_path: Path) -> None:
    for _ in range(2):
        async with start_service(tmp_path / "data", **WITH_PUSH) as (run, client):
            users = (await client.get(f"{run.base_url}/v1/users")).json()["users"]
            assert [user["name"] for user in users] == ["push_worker_0", "admin"]
            me = await client.get(f"{run.base_url}/v1/users/profile", headers={"x-api-key": "w0rker"})
            assert me.status_code == 200


@pytest.mark.parametrize(("settings", "reason"), [
    ({"issuers_file": "bad.toml"}, "^issuers_file[ :][^\n]*$"),
    ({"issuers_file": "missing.toml"}, "^issuers_file[ :][^\n]*$"),
    ({"issuers_ca_file": "bad.toml"}, "^issuers_ca_file[ :][^\n]*$"),
    ({"issuers_allow": "here"}, "^issuers_allow[ :][^\n]*$"),
    ({"push_allow": "localhost"}, "^push_"),
    ({"push_enabled": True, "push_ca_file": "/nowhere/ca.pem"}, "^push_"),
    ({"roles_file": "roles.toml"}, "there is no action 'topics:water'$"),
])  # fmt: skip
async def test_bad_settings_stop_a_start_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roles.toml").write_text('"topics:water" = []')
    (tmp_path / "bad.toml").write_text(GOOD + "audience = 1\n")

    with pytest.raises(Unusable, match=reason):
        async with running_service(tmp_path / "data", **settings):
            raise AssertionError("it started")

    assert not (tmp_path / "data").exists()


TLS = {"cert": "chain.pem", "key": "key.pem"}


@pytest.mark.parametrize(("settings", "issuer"), [
    ({"proxy_hostname": "ams.example", "port": 8080}, "https://ams.example"),
    ({"host": "127.0.0.1", "port": 8080}, "http://127.0.0.1:8080"),
    ({"host": "::1", "port": 80}, "http://[::1]"),
    ({"host": "ams.example", "port": 8443, **TLS}, "https://ams.example:8443"),
    ({"host": "ams.example", "port": 443, **TLS}, "https://ams.example"),
    ({"host": "127.0.0.1", "port": 8443, "tls_self_signed": True}, "https://localhost:8443"),
    ({"host": "0.0.0.0", "port": 443, **TLS}, f"https://{socket.gethostname()}"),
])  # fmt: skip
def test_the_issuer_is_where_the_service_is_found(settings: dict[str, object], issuer: str) -> None:
    assert issuer_of(Settings(**settings)) == issuer  # type: ignore[arg-type]


@pytest.fixture
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BACKOFF", Backoff(0.0, 5.0))
    monkeypatch.setattr(engines, "logger", structlog.get_logger("ams"))


def failing_attempt(*reasons: str):
    left = list(reasons)

    async def attempt() -> str:
        if left:
            raise RegistryUnavailable from OSError(left.pop(0))
        return "opened"

    return attempt


@pytest.mark.usefixtures("no_retry_delay")
async def test_what_comes_in_time_is_opened_and_each_reason_is_said_once() -> None:
    told: list[str] = []
    with capture_logs() as said:
        assert await retry_until_available("Kafka", failing_attempt(), told.append) == "opened"
        assert (told, said) == ([], []), "what is there is opened without a word"
        assert (
            await retry_until_available("PostgreSQL", failing_attempt("refused", "starting up", "refused"), told.append)
            == "opened"
        )

    assert told == ["PostgreSQL: refused", "PostgreSQL: starting up", "PostgreSQL: refused", ""]
    assert [(each["event"], each.get("reason")) for each in said] == [
        ("start.waiting", "refused"), ("start.waiting", "starting up"), ("start.going_on", None),
    ]  # fmt: skip


@pytest.mark.usefixtures("no_retry_delay")
async def test_what_cannot_be_used_ends_the_start() -> None:
    async def attempt() -> str:
        raise Unusable("another version")

    with pytest.raises(Unusable, match="another version"):
        await retry_until_available("PostgreSQL", attempt, lambda _: None)


@pytest.mark.usefixtures("no_retry_delay")
async def test_a_start_waits_for_a_server_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look, reasons, told = LossTotal.look, ["lost"], list[str]()

    async def away_once(total: LossTotal) -> None:
        if reasons:
            raise CursorsUnavailable from OSError(reasons.pop())
        await look(total)

    monkeypatch.setattr(LossTotal, "look", away_once)
    settings = Settings(
        data=str(tmp_path / "data"), log="kafka", kafka_servers="kafka1:9092", kafka_replication=1, kafka_min_isr=1,
        registry="postgresql://ams@model/ams", push_enabled=False, console=False,
    )  # fmt: skip
    server = Server(str(tmp_path), lambda: int(time.time() * 1000))
    with (postgresql_driver.install({"model": postgresql_driver.DirectHost(server)}),
          kafka_client.install({("kafka1", 9092): kafka_client.DirectBroker(Cluster([1], time.time), 1)})):  # fmt: skip
        async with service(settings, Supervisor(), tell=told.append) as started:
            assert started.away is None

    assert told == ["PostgreSQL or Kafka: lost", ""]


GOOD = '[[issuer]]\nname = "egi"\nurl = "https://issuer.example"\naudiences = ["ams"]\n'


@asynccontextmanager
async def open_identity(registry: Registry, folder: Path, **settings: str) -> AsyncIterator[Identity]:
    chosen = Settings(issuers_allow="127.0.0.0/8", **settings)  # type: ignore[arg-type]  # all of these are texts
    engines: Any = SimpleNamespace(
        registry=registry, clock=SystemClock(), folder=SimpleNamespace(issuers=str(folder / "issuers"))
    )
    trail: Any = None
    identity = Identity(chosen, trusted_by(chosen), engines, trail, ())
    async with identity.running():
        yield identity


async def test_a_change_of_issuers_on_another_node_forgets_what_was_verified_on_this(tmp_path: Path) -> None:
    with ExampleIssuer() as example:
        issuer = Issuer(IssuerName("example"), example.url, audiences=("ams",))
        async with open_registry(tmp_path) as registry, open_identity(registry, tmp_path) as identity:
            await registry.issuers.create(issuer, None)
            alice = await make_user(registry, "alice")
            await registry.bindings.create(alice.id, BindingName("b"), example.url, "alice", created_by=None)
            token = example.token()
            assert (await identity.logins.principal(token)).name == "alice"

            # The change came from another node without the keys; they stay valid.
            await registry.issuers.update(issuer.name, replace(issuer, audiences=("other",)))

            with pytest.raises(TokenRefused, match="for another audience"):
                await identity.logins.principal(token)


TOPIC = "projects/garden/topics/plants"


@pytest.mark.embedded("which connections are taken has nothing to do with engines")
def test_an_emulator_asks_for_no_token_and_makes_projects(tmp_path: Path) -> None:
    with (in_process_service(tmp_path / "data", pubsub_port=0, pubsub_emulator=True) as service,
          grpc.insecure_channel(service.run.pubsub) as channel):  # fmt: skip
        client = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        assert client.create_topic(request={"name": TOPIC}).name == TOPIC


async def test_a_port_without_protection_is_not_opened_and_an_emulator_is_for_this_machine_only(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="pubsub_port needs TLS"):
        async with running_service(tmp_path / "data", pubsub_port=0):
            pass
    lines = [line for is_so, line in Settings(host="0.0.0.0", pubsub_port=0, pubsub_emulator=True).mistakes() if is_so]
    assert lines == ["pubsub_emulator is for a host of this machine only"]
