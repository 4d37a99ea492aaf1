"""Shared by tests of a cutover: an old installation under load, a proxy that records its commands, and the new
service."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymongo
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from local_cluster.ports import free_port, listening
from tests.migrate.test_move import DATABASE, Original, sources
from tests.support.commands import PROCESS, Ran, ams, run_ams
from tests.support.waiting import PATIENCE_SECONDS, wait_until

SERVE = ("--min-free-bytes", "0", "--reserve-bytes", "0")


def publish(original: Original, *values: bytes, topic: str = "") -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=original.servers) as producer:
            for value in values:
                await producer.send_and_wait(topic or original.topic, value, partition=0)

    asyncio.run(send())


def change_document(original: Original, collection: str, found: dict[str, Any], **fields: Any) -> None:
    with pymongo.MongoClient[dict[str, Any]](original.uri) as client:
        client[DATABASE][collection].update_one(found, {"$set": fields})


def copy(original: Original, data: Path) -> dict[str, Any]:
    ran = ams("migrate", "copy", *sources(original), "--data", str(data), "-o", "json")
    assert ran.returncode == 0, ran.stderr
    counts: dict[str, Any] = json.loads(ran.stdout)["counts"]
    return counts


class HaProxy:
    """A proxy with the runtime API: one command a connection."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.told: list[str] = []
        self.under_way = [2, 1, 0]
        self.new_is = "UP"
        self.looks = 0  # how often it was asked for its statistics
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
            self.looks += 1
            left = self.under_way.pop(0) if len(self.under_way) > 1 else self.under_way[0]
            return f"# pxname,svname,scur,status\nold,BACKEND,{left},UP\nnew,BACKEND,0,{self.new_is}\n\n"
        if command.startswith("show map"):
            return f"0x1 service {self.told[-1].split()[-1] if self.told else 'old'}\n\n"
        self.told.append(command)
        return "\n"

    def close(self) -> None:
        self._listening.close()


class Starter:
    def __init__(self, data: Path, *more: str) -> None:
        self.port = free_port()
        where = ("--data", str(data), "--port", str(self.port), "--ops-port", "0")
        serve = [*PROCESS, "serve", *where, *SERVE, *more]
        self.pid = data.with_suffix(".pid")
        log = data.with_suffix(".log")
        self.command = f"{' '.join(serve)} >{log} 2>&1 & echo $! >{self.pid}"
        self.endpoint = f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        subprocess.run(self.command, shell=True, check=True)
        try:
            wait_until(lambda: listening(self.port))
            yield
        finally:
            self.end()

    def end(self) -> None:
        if self.pid.exists():
            subprocess.run(["kill", "-9", self.pid.read_text().strip()], check=False)
            self.pid.unlink()


@dataclass(frozen=True)
class Site:
    """All parts of a cutover; `data` is the new service's folder."""

    original: Original
    proxy: HaProxy
    starter: Starter
    data: Path

    def run_cut(self, *more: str, **commands: str) -> Ran:
        return run_ams(*self.cut_command(*more, **commands))

    def cut_command(self, *more: str, stop: str = "true", start: str = "") -> tuple[list[str], dict[str, str]]:
        words = [
            "migrate", "cut", *sources(self.original), "--data", str(self.data),
            "--haproxy", self.proxy.path, "--map", "/ams.map", "--stop", stop,
            "--start", start or self.starter.command, "--patience", "120", "-o", "json", *more,
        ]  # fmt: skip
        return words, {**os.environ, "AMS_ENDPOINT": self.starter.endpoint, "AMS_TOKEN": "short"}


def read_messages(endpoint: str, topic: str = "readings") -> list[tuple[int, str]]:
    answer = httpx.get(
        f"{endpoint}/v1/projects/EGI/topics/{topic}:read", headers={"x-api-key": "short"}, trust_env=False,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    return [(int(each["messageId"]), each["data"]) for each in map(json.loads, answer.text.splitlines())]


def create_topics(original: Original, *names: str) -> None:
    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=original.servers)
        await admin.start()
        if old := set(names) & set(await admin.list_topics()):
            await admin.delete_topics(list(old))
            while set(names) & set(await admin.list_topics()):
                await asyncio.sleep(0.1)
        age = {"retention.ms": str(200 * 86_400_000)}
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs=age) for name in names])
        await admin.close()

    asyncio.run(create())


def differences(original: Original, endpoint: str) -> Any:
    """Return the differences between the old service and a service filled from it."""
    found = ams("migrate", "verify", *sources(original), "-o", "json", AMS_ENDPOINT=endpoint, AMS_TOKEN="short")
    return json.loads(found.stdout)["differences"]
