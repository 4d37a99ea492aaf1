"""Copying while the old service goes on, and the cut: by the commands, with a proxy that says what it was told."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pymongo
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from bson import Int64

from ams.storage.folder import Folder
from tests.migrate.test_move import DATABASE, Original, ams, ask, b64, record, sources
from tests.support.mongodb import mongodb
from tests.support.parts import kafka_servers
from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.kafka

SERVE = ("--min-free-bytes", "0", "--reserve-bytes", "0")


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with mongodb() as found:
        yield found


@pytest.fixture
def original(uri: str) -> Original:
    """An installation of its own for each test: names in Kafka have a uuid of the project."""
    made = Original(uri, kafka_servers())
    made.put()
    return made


def publish(original: Original, *values: bytes, topic: str = "") -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=original.servers) as producer:
            for value in values:
                await producer.send_and_wait(topic or original.topic, value, partition=0)

    asyncio.run(send())


def change(original: Original, collection: str, found: dict[str, Any], **fields: Any) -> None:
    with pymongo.MongoClient[dict[str, Any]](original.uri) as client:
        client[DATABASE][collection].update_one(found, {"$set": fields})


def copy(original: Original, data: Path) -> dict[str, Any]:
    ran = ams("migrate", "copy", *sources(original), "--data", str(data), "-o", "json")
    assert ran.returncode == 0, ran.stderr
    counts: dict[str, Any] = json.loads(ran.stdout)["counts"]
    return counts


class HaProxy:
    """Speaks the runtime API: one command a connection."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.told: list[str] = []
        self.under_way = [2, 1, 0]
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(self._answer(connection.recv(1000).decode().strip()).encode())

    def _answer(self, command: str) -> str:
        if command == "show stat":
            left = self.under_way.pop(0) if len(self.under_way) > 1 else self.under_way[0]
            return f"# pxname,svname,scur,status\nold,BACKEND,{left},UP\nnew,BACKEND,0,UP\n\n"
        if command.startswith("show map"):
            return f"0x1 service {self.told[-1].split()[-1] if self.told else 'old'}\n\n"
        self.told.append(command)
        return "\n"

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[HaProxy]:
    made = HaProxy(tmp_path / "haproxy.sock")
    yield made
    made.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Starter:
    """Starts the new service for the cut, and ends what was started."""

    def __init__(self, data: Path) -> None:
        self.port = free_port()
        where = ("--data", str(data), "--port", str(self.port), "--ops-port", "0")
        serve = [sys.executable, "-m", "ams.cli.main", "serve", *where, *SERVE]
        self._pid = data.with_suffix(".pid")
        log = data.with_suffix(".log")
        self.command = f"{' '.join(serve)} >{log} 2>&1 & echo $! >{self._pid}"
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def end(self) -> None:
        if self._pid.exists():
            subprocess.run(["kill", "-9", self._pid.read_text().strip()], check=False)
            self._pid.unlink()


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    made = Starter(tmp_path / "data")
    yield made
    made.end()


def cut(
    original: Original, data: Path, proxy: HaProxy, starter: Starter, *more: str, start: str = ""
) -> subprocess.CompletedProcess[str]:
    return ams(
        "migrate", "cut", *sources(original), "--data", str(data), "--haproxy", proxy.path, "--map", "/ams.map",
        "--stop", "true", "--start", start or starter.command, "--patience", "30", "-o", "json", *more,
        AMS_ENDPOINT=starter.endpoint, AMS_TOKEN="short",
    )  # fmt: skip


@contextlib.contextmanager
def served(data: Path) -> Iterator[LiveService]:
    """Serve what was moved, to the administrator it brought along."""
    (data / "admin.token").write_text("short")
    with live_service(data, *SERVE) as running:
        yield running


def read(endpoint: str, topic: str = "readings") -> list[tuple[int, str]]:
    answer = httpx.get(
        f"{endpoint}/v1/projects/EGI/topics/{topic}:read", headers={"x-api-key": "short"}, trust_env=False
    )
    assert answer.status_code == 200, answer.text
    return [(int(each["messageId"]), each["data"]) for each in map(json.loads, answer.text.splitlines())]


def test_each_round_copies_what_is_new_and_the_cut_the_rest(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert (
        copy(original, data)["copied now"] == 4
    )  # the record at the end cannot be read, and may still not be the last
    publish(original, record(6, 40), record(7, 41))
    assert copy(original, data)["copied now"] == 2
    assert copy(original, data)["copied now"] == 0
    publish(original, record(8, 42))
    change(original, "subscriptions", {"name": "archive", "project_uuid": original.project}, offset=Int64(7))

    done = cut(original, data, proxy, starter)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["copied now"] == 0  # the round before the hold had it
    assert proxy.told == ["set map /ams.map service held", "set map /ams.map service new"]
    assert [offset for offset, _ in read(starter.endpoint)] == [0, 1, 3, 4, 6, 7, 8]
    assert not (data / "migration.json").exists()
    again = cut(original, data, proxy, starter)
    assert again.returncode == 1
    assert "another process" in again.stderr or "used by" in again.stderr, again.stderr


def test_a_topic_that_was_made_again_is_copied_anew_and_one_that_is_gone_is_dropped(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    copy(original, data)

    async def again() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=original.servers)
        await admin.start()
        await admin.delete_topics([original.topic])
        for _ in range(100):
            if original.topic not in await admin.list_topics():
                break
            await asyncio.sleep(0.1)
        await admin.create_topics(
            [NewTopic(original.topic, 1, 1, topic_configs={"retention.ms": str(200 * 86_400_000)})]
        )
        await admin.close()

    asyncio.run(again())
    publish(original, *(record(100 + n, n) for n in range(8)))

    assert copy(original, data)["copied now"] == 8
    with pymongo.MongoClient[dict[str, Any]](original.uri) as client:
        client[DATABASE]["topics"].delete_one({"name": "silent", "project_uuid": original.project})
    assert copy(original, data)["copied now"] == 0
    done = cut(original, data, proxy, starter)
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(starter.endpoint)] == list(range(8))
    judged = ams("doctor", "-o", "json", AMS_ENDPOINT=starter.endpoint, AMS_TOKEN="short")
    assert judged.returncode == 0, judged.stdout  # no log is left of what was dropped


def test_a_cut_that_fails_leads_clients_back_and_can_be_done_again(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    failed = cut(original, data, proxy, starter, "--restore", "true", start="exit 7")

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ams: the command of --start ended with 7"
    assert proxy.told == ["set map /ams.map service held", "set map /ams.map service old"]

    # the old service goes on meanwhile, and is cut again
    publish(original, record(6, 50))
    change(original, "users", {"uuid": original.ann}, token="f" * 64)
    done = cut(original, data, proxy, starter)
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(starter.endpoint)] == [0, 1, 3, 4, 6]
    starter.end()
    with served(data) as running:
        assert ask(running, "GET", "/users/profile", "f" * 64)["name"] == "ann"


def test_one_that_was_used_is_not_filled_again(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    failed = cut(original, data, proxy, starter, start="exit 7")
    assert failed.returncode == 1
    with served(data) as running:
        ask(running, "POST", "/projects/EGI/topics/readings:publish", "short", {"messages": [{"data": b64("here")}]})

    again = cut(original, data, proxy, starter)

    assert again.returncode == 1
    assert "the new service was used since it was filled" in again.stderr
    with served(data) as running:
        assert read(running.base_url)[-1][1] == b64("here")


def test_an_installation_of_somebody_else_is_left_alone(original: Original, tmp_path: Path) -> None:
    with live_service(tmp_path / "data", *SERVE):
        pass

    refused = ams("migrate", "copy", *sources(original), "--data", str(tmp_path / "data"))

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == "ams: there are users or topics already: move into a new installation"


def test_two_copies_at_once_are_refused(original: Original, tmp_path: Path) -> None:
    folder = Folder.take(str(tmp_path / "data"))
    with contextlib.closing(SimpleNamespace(close=folder.release)):
        refused = ams("migrate", "copy", *sources(original), "--data", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1


def test_kafka_and_postgresql_are_filled_as_a_folder_is(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path, kafka_prefix: str, postgres_url: str
) -> None:
    where = urlsplit(postgres_url)
    settings = {
        "log": "kafka", "kafka_servers": original.servers, "kafka_prefix": kafka_prefix, "kafka_replication": 1,
        "kafka_min_isr": 1, "registry": postgres_url.replace(f":{where.password}@", "@"),
        "registry_password": where.password or "",
    }  # fmt: skip
    data, file = tmp_path / "data", tmp_path / "ams.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    config = ("--config", str(file))
    first = ams("migrate", "copy", *sources(original), "--data", str(data), *config, "-o", "json")
    assert first.returncode == 0, first.stderr
    publish(original, record(6, 40))

    failed = cut(original, data, proxy, starter, *config, start="exit 7")
    assert failed.stderr.splitlines()[-1] == "ams: the command of --start ended with 7"
    done = cut(
        original, data, proxy, starter, *config, start=starter.command.replace(" serve ", f" serve {config[0]} {file} ")
    )

    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(starter.endpoint)] == [0, 1, 3, 4, 6]
    verified = ams(
        "migrate", "verify", *sources(original), "-o", "json", AMS_ENDPOINT=starter.endpoint, AMS_TOKEN="short"
    )
    assert json.loads(verified.stdout)["differences"] == []
