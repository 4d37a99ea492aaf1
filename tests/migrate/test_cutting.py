"""Copying while the old service goes on, and the cut: by the commands, with a proxy that says what it was told."""

import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pymongo
import pytest
from bson import Int64, ObjectId

from tests.migrate.cuts import SERVE, Site, Starter, change, copy, create_topics, differences, publish, read, served
from tests.migrate.test_move import DATABASE, ask, b64, record, sources
from tests.support.commands import ams
from tests.support.service import live_service

pytestmark = pytest.mark.kafka


@pytest.mark.long
def test_rounds_copy_what_is_new_and_a_cut_the_rest(site: Site) -> None:
    # The record at the end cannot be read, and may still not be the last.
    assert copy(site.original, site.data)["copied now"] == 4
    publish(site.original, record(6, 40), record(7, 41))
    assert copy(site.original, site.data)["copied now"] == 2
    assert copy(site.original, site.data)["copied now"] == 0
    publish(site.original, record(8, 42))
    change(site.original, "subscriptions", {"name": "archive", "project_uuid": site.original.project}, offset=Int64(7))

    done = site.cut()

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["copied now"] == 0  # the round before the hold had it
    assert site.proxy.told == ["set map /ams.map service held", "set map /ams.map service new"]
    assert [offset for offset, _ in read(site.starter.endpoint)] == [0, 1, 3, 4, 6, 7, 8]
    assert not (site.data / "migration.json").exists()
    again = site.cut()
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1] == "ams: clients are led to the new service already"


@pytest.mark.long
def test_topics_made_again_are_copied_anew_and_gone_ones_dropped(site: Site) -> None:
    copy(site.original, site.data)

    create_topics(site.original, site.original.topic)
    publish(site.original, *(record(100 + n, n) for n in range(8)))

    assert copy(site.original, site.data)["copied now"] == 8
    with pymongo.MongoClient[dict[str, Any]](site.original.uri) as client:
        client[DATABASE]["topics"].delete_one({"name": "silent", "project_uuid": site.original.project})
    assert copy(site.original, site.data)["copied now"] == 0
    done = site.cut()
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(site.starter.endpoint)] == list(range(8))
    judged = ams("doctor", "-o", "json", AMS_ENDPOINT=site.starter.endpoint, AMS_TOKEN="short")
    assert judged.returncode == 0, judged.stdout  # no log is left of what was dropped


@pytest.mark.long
def test_topics_with_unreadable_records_are_moved(site: Site) -> None:
    with pymongo.MongoClient[dict[str, Any]](site.original.uri) as client:
        topics = client[DATABASE]["topics"]
        found = topics.find_one({"name": "silent", "project_uuid": site.original.project})
        assert found is not None
        topics.insert_one({**found, "_id": ObjectId(), "name": "late"})

    create_topics(site.original, *(f"{site.original.project}.{name}" for name in ("silent", "late")))
    publish(site.original, b"", b"{", topic=f"{site.original.project}.silent")
    publish(site.original, b"", record(1, 40), topic=f"{site.original.project}.late")
    copy(site.original, site.data)

    done = site.cut()

    assert done.returncode == 0, done.stderr
    assert read(site.starter.endpoint, "silent") == []
    assert [offset for offset, _ in read(site.starter.endpoint, "late")] == [1]
    assert differences(site.original, site.starter.endpoint) == []
    body = {"messages": [{"data": b64("next")}]}
    url, headers = f"{site.starter.endpoint}/v1/projects/EGI/topics/silent:publish", {"x-api-key": "short"}
    published = httpx.post(url, headers=headers, json=body, trust_env=False)
    assert published.json()["messageIds"] == ["2"]


@pytest.mark.long
def test_a_failed_cut_leads_clients_back_and_can_be_redone(site: Site) -> None:
    failed = site.cut("--restore", "true", start="exit 7")

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ams: the command of --start ended with 7"
    assert site.proxy.told == ["set map /ams.map service held", "set map /ams.map service old"]

    # the old service goes on meanwhile, and is cut again
    publish(site.original, record(6, 50))
    change(site.original, "users", {"uuid": site.original.ann}, token="f" * 64)
    done = site.cut()
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(site.starter.endpoint)] == [0, 1, 3, 4, 6]
    site.starter.end()
    with served(site.data) as running:
        assert ask(running, "GET", "/users/profile", "f" * 64)["name"] == "ann"


@pytest.mark.long
def test_an_installation_of_somebody_else_is_left_alone(site: Site) -> None:
    with live_service(site.data, *SERVE):
        pass

    refused = ams("migrate", "copy", *sources(site.original), "--data", str(site.data))

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == "ams: there are users or topics already: move into a new installation"


@pytest.mark.long
def test_kafka_and_postgresql_are_filled_alike(
    site: Site, tmp_path: Path, kafka_prefix: str, postgres_url: str
) -> None:
    where = urlsplit(postgres_url)
    settings = {
        "log": "kafka", "kafka_servers": site.original.servers, "kafka_prefix": kafka_prefix, "kafka_replication": 1,
        "kafka_min_isr": 1, "registry": postgres_url.replace(f":{where.password}@", "@"),
        "registry_password": where.password or "", "token_key": secrets.token_hex(32),
    }  # fmt: skip
    file = tmp_path / "ams.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    config = ("--config", str(file))
    first = ams("migrate", "copy", *sources(site.original), "--data", str(site.data), *config, "-o", "json")
    assert first.returncode == 0, first.stderr
    publish(site.original, record(6, 40))

    failed = site.cut(*config, start="exit 7")
    assert failed.stderr.splitlines()[-1] == "ams: the command of --start ended with 7"
    node = Starter(tmp_path / "node", *config)
    with node.running():
        refused = site.cut(*config)
    assert refused.stderr.splitlines()[-1] == "ams: other services use this registry; stop them first"
    done = site.cut(*config, start=site.starter.command.replace(" serve ", f" serve {config[0]} {file} "))

    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(site.starter.endpoint)] == [0, 1, 3, 4, 6]
    assert differences(site.original, site.starter.endpoint) == []
