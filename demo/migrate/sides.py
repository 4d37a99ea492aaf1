"""The old side and the new one, and a day written to MongoDB and Kafka of the old one.

The old side is the original, built once from Go's module registry by its name into the user's cache folder; or the
stand-in where it is not available. Nothing of the original is in this repository.
"""

import asyncio
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pymongo
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition

from ams.http.tls import self_signed
from demo import pushing
from demo.migrate.day import Day, Log, records
from demo.migrate.site import WORKER_TOKEN
from demo.service import PROGRAM_PATH, python
from demo.workers import write_secret
from local_cluster.mongodb import MongoDB
from local_cluster.old_kafka import OldKafka
from local_cluster.ports import LOOPBACK, free_port, listening
from local_cluster.processes import Process, Startable

DATABASE = "argo_msg"
BATCH_BYTES = 400_000
_AT_ONCE = 8


def write_documents(day: Day, uri: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](uri) as client:
        for name, documents in day.collections.items():
            client[DATABASE][name].insert_many(documents)


async def write_messages(day: Day, servers: str) -> None:
    """Fill the topics; what is not kept any more is deleted as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, acks=1, max_batch_size=BATCH_BYTES, max_request_size=2 * BATCH_BYTES, linger_ms=0
    )
    await admin.start()
    await producer.start()
    logs = [each for each in day.logs if each.end]
    try:
        await admin.create_topics([_new_topic(each) for each in logs])
        turns, now = asyncio.Semaphore(_AT_ONCE), datetime.now(UTC)

        async def write(log: Log) -> None:
            async with turns:
                await _write_log(producer, log, day.seed, now)

        await asyncio.gather(*map(write, logs))
        cut = {TopicPartition(each.name, 0): RecordsToDelete(before_offset=each.first) for each in logs if each.first}
        await admin.delete_records(cut)
    finally:
        await producer.stop()
        await admin.close()


def _new_topic(log: Log) -> NewTopic:
    settings = {"retention.ms": str(log.retention_ms)} if log.retention_ms else {}
    return NewTopic(log.name, 2 if log.elsewhere else 1, 1, topic_configs=settings)


async def _write_log(producer: AIOKafkaProducer, log: Log, seed: int, now: datetime) -> None:
    batch = producer.create_batch()
    for moment, value in records(log, seed, now):
        if batch.append(key=None, value=value, timestamp=moment) is None:
            await (await producer.send_batch(batch, log.name, partition=0))
            batch = producer.create_batch()
            batch.append(key=None, value=value, timestamp=moment)
    if batch.record_count():
        await (await producer.send_batch(batch, log.name, partition=0))
    for number in range(log.elsewhere):
        await producer.send(log.name, b"%d" % number, partition=1)


MODULE, VERSIONS = "github.com/ARGOeu/argo-messaging", ("v1.7.0", "latest")
BUILD_SECONDS = 300
OLD_START_SECONDS = 60.0


class CannotBuild(Exception):
    """The original is not available on this machine; the text is one line with the reason."""


@cache
def program() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ams-migrate-demo"
    built = folder / "argo-messaging"
    if built.exists():
        return built
    if shutil.which("go") is None:
        raise CannotBuild("the original cannot be built: Go is missing (the Debian package golang-go)")
    said = ""
    for version in VERSIONS:
        run = subprocess.run(  # noqa: S603 - a fixed module
            ["go", "install", f"{MODULE}@{version}"],  # noqa: S607
            env={**os.environ, "GOBIN": str(folder)},
            capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
        )  # fmt: skip
        if run.returncode == 0 and built.exists():
            return built
        said = said or (run.stderr.strip().splitlines() or ["no reason given"])[-1].strip()
    raise CannotBuild(f"the original cannot be built: Go's module registry does not give {MODULE}: {said}")


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    mongodb: str
    kafka: str
    pid: int


class OldSide(Startable):
    """MongoDB, Kafka and ZooKeeper, filled before `start_api`, and the API: the original's, or the stand-in's."""

    def __init__(self, folder: Path, *, is_original: bool) -> None:
        self._folder = folder.absolute()
        self.mongodb, self.kafka = MongoDB(heap_mb=192), OldKafka(self._folder / "kafka")
        self.is_original = is_original
        self._port = free_port()
        self._api: Process | None = None

    @property
    def address(self) -> Address:
        pid = self._api.pid if self._api else 0
        return Address(f"https://localhost:{self._port}", self.mongodb.uri, self.kafka.servers, pid)

    @property
    def port(self) -> int:
        return self._port

    @property
    def certificate(self) -> Path:
        return self._folder / "ca.pem"

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self.mongodb.start()
            self.kafka.start()
        except BaseException:
            self.stop()
            raise

    def start_api(self) -> None:
        _, chain, key = self_signed(str(self._folder))
        where = ["--mongodb", self.mongodb.uri, "--kafka", self.kafka.servers, "--port", str(self._port)]
        stand_in = python("demo.migrate.old.service", *where, "--cert", chain, "--key", key)
        command = self._original(chain, key) if self.is_original else stand_in
        self._api = Process("old service", command, self._folder / "api.log", environment=PROGRAM_PATH)
        self._api.start()
        self._api.wait_until(lambda: listening(self._port), OLD_START_SECONDS)

    def stop_api(self) -> None:
        """End the API as its unit does at a stop: SIGTERM, which cuts requests."""
        if self._api:
            self._api.stop()

    def stop(self) -> None:
        if self._api:
            self._api.kill()
        self.kafka.stop()
        if self.mongodb.uri:
            self.mongodb.stop()

    def _original(self, chain: str, key: str) -> list[str]:
        settings = {
            "bind_ip": LOOPBACK, "port": self._port, "zookeeper_hosts": [self.kafka.zookeeper], "kafka_znode": "",
            "store_host": self.mongodb.uri.removeprefix("mongodb://"), "store_db": DATABASE, "certificate": chain,
            "certificate_key": key, "certificate_authorities_dir": str(self._folder), "per_resource_auth": True,
            "auth_option": "both", "push_enabled": False, "push_worker_token": WORKER_TOKEN, "log_level": "WARNING",
        }  # fmt: skip
        write_secret(self._folder / "config.json", json.dumps(settings))
        return [str(program()), "--config-dir", str(self._folder)]


NEW_START_SECONDS = 120.0


class NewSide(Startable):
    """Settings in a file that `ams migrate` reads too; `receiver_ca` is what push endpoints are checked by."""

    def __init__(self, folder: Path, receiver_ca: str) -> None:
        self.data, self.config = folder / "ams-data", folder / "ams.toml"
        self.port = free_port()
        settings = {
            "data": str(self.data), "host": LOOPBACK, "port": self.port, "ops_port": 0,
            "push_worker_token": WORKER_TOKEN, "push_allow": pushing.ALLOWED, "push_ca_file": receiver_ca,
            "trusted_proxies": LOOPBACK, "console": False,
        }  # fmt: skip
        write_secret(self.config, "".join(f"{name} = {_toml(value)}\n" for name, value in settings.items()))
        command = python("ams.cli.main", "serve", "--config", str(self.config))
        self._process = Process("new service", command, folder / "ams.log", environment=PROGRAM_PATH)

    @property
    def url(self) -> str:
        """Return the base URL, which only haproxy and administrators use."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        self._process.start()
        self._process.wait_said("ready ", NEW_START_SECONDS)

    def stop(self) -> None:
        self._process.stop()


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'
