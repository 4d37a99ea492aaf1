"""Copying while the old service goes on, and the cut: by the commands, with a proxy that says what it was told."""

import asyncio
import contextlib
import json
import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pymongo
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from bson import Int64, ObjectId

from ams.storage.folder import Folder
from tests.migrate.cuts import SERVE, HaProxy, Starter, change, copy, cut, publish, read, served
from tests.migrate.test_move import DATABASE, Original, ask, b64, record, sources
from tests.support.commands import ams
from tests.support.service import live_service

pytestmark = pytest.mark.kafka


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
    assert again.stderr.splitlines()[-1] == "ams: clients are led to the new service already"


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


def test_topics_of_which_the_first_or_no_record_can_be_read_are_moved(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    with pymongo.MongoClient[dict[str, Any]](original.uri) as client:
        topics = client[DATABASE]["topics"]
        found = topics.find_one({"name": "silent", "project_uuid": original.project})
        assert found is not None
        topics.insert_one({**found, "_id": ObjectId(), "name": "late"})

    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=original.servers)
        await admin.start()
        age = {"retention.ms": str(200 * 86_400_000)}
        names = [f"{original.project}.{name}" for name in ("silent", "late")]
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs=age) for name in names])
        await admin.close()

    asyncio.run(create())
    publish(original, b"", b"{", topic=f"{original.project}.silent")
    publish(original, b"", record(1, 40), topic=f"{original.project}.late")
    copy(original, tmp_path / "data")

    done = cut(original, tmp_path / "data", proxy, starter)

    assert done.returncode == 0, done.stderr
    assert read(starter.endpoint, "silent") == []
    assert [offset for offset, _ in read(starter.endpoint, "late")] == [1]
    verified = ams(
        "migrate", "verify", *sources(original), "-o", "json", AMS_ENDPOINT=starter.endpoint, AMS_TOKEN="short"
    )
    assert json.loads(verified.stdout)["differences"] == []
    body = {"messages": [{"data": b64("next")}]}
    published = httpx.post(
        f"{starter.endpoint}/v1/projects/EGI/topics/silent:publish", headers={"x-api-key": "short"}, json=body,
        trust_env=False,
    )  # fmt: skip
    assert published.json()["messageIds"] == ["2"]


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
        "registry_password": where.password or "", "token_key": secrets.token_hex(32),
    }  # fmt: skip
    data, file = tmp_path / "data", tmp_path / "ams.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    config = ("--config", str(file))
    first = ams("migrate", "copy", *sources(original), "--data", str(data), *config, "-o", "json")
    assert first.returncode == 0, first.stderr
    publish(original, record(6, 40))

    failed = cut(original, data, proxy, starter, *config, start="exit 7")
    assert failed.stderr.splitlines()[-1] == "ams: the command of --start ended with 7"
    node = Starter(tmp_path / "node", *config)
    with node.running():
        refused = cut(original, data, proxy, starter, *config)
    assert refused.stderr.splitlines()[-1] == "ams: other services use this registry; stop them first"
    done = cut(
        original, data, proxy, starter, *config, start=starter.command.replace(" serve ", f" serve {config[0]} {file} ")
    )

    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(starter.endpoint)] == [0, 1, 3, 4, 6]
    verified = ams(
        "migrate", "verify", *sources(original), "-o", "json", AMS_ENDPOINT=starter.endpoint, AMS_TOKEN="short"
    )
    assert json.loads(verified.stdout)["differences"] == []
