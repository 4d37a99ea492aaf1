"""A whole migration: from MongoDB and Kafka as the reference leaves them, by the commands, to a service with old
clients."""

import asyncio
import base64
import json
import stat
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from bson import Int64, ObjectId

from tests.support.commands import Ran, ams
from tests.support.parts import kafka_servers
from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.kafka

TOKEN = "0123456789abcdef" * 4
MADE = datetime(2021, 2, 3, 4, 5, 6, 789000, UTC)
DATABASE = "argo_msg"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def record(number: int, second: int) -> bytes:
    said = {"messageId": "wrong", "attributes": {"n": str(number)}, "data": b64(f"message {number}"),
            "publishTime": f"2026-11-20T10:20:{second:02}.123456789Z"}  # fmt: skip
    return json.dumps(said, indent=4).encode()


class Original:
    def __init__(self, uri: str, servers: str) -> None:
        self.uri, self.servers = uri, servers
        self.project, self.ann = str(uuid.uuid4()), str(uuid.uuid4())
        self.topic = f"{self.project}.readings"

    def put_records(self) -> None:
        """Fill MongoDB with documents of the types of its drivers, and Kafka with good and bad records."""
        with pymongo.MongoClient[dict[str, Any]](self.uri) as client:
            for name, documents in self._documents().items():
                client[DATABASE][name].drop()
                client[DATABASE][name].insert_many([{"_id": ObjectId(), **each} for each in documents])
        asyncio.run(self._publish())

    def _documents(self) -> Mapping[str, list[dict[str, Any]]]:
        here = {"project_uuid": self.project, "created_on": MADE}
        push = {
            "push_type": "http_endpoint", "push_endpoint": "https://endpoint.egi.example/in", "max_messages": Int64(1),
            "authorization_type": "autogen", "authorization_header": "header of push", "retry_policy": "linear",
            "retry_period": 3000, "verification_hash": "hash of push", "verified": False, "base_64_decode": False,
        }  # fmt: skip
        ann = {
            "uuid": self.ann, "name": "ann", "token": TOKEN, "email": "ann@egi.example", "service_roles": None,
            "projects": [{"project_uuid": self.project, "roles": ["publisher", "consumer"]}], "created_on": MADE,
        }  # fmt: skip
        return {
            "projects": [{"uuid": self.project, "name": "EGI", "created_by": self.ann, "created_on": MADE}],
            "users": [ann, {"uuid": "an_admin", "name": "root", "token": "short", "service_roles": ["service_admin"],
                            "projects": [], "created_on": datetime(1, 1, 1)}],
            "topics": [
                {**here, "name": "readings", "acl": [self.ann, "gone"], "schema_uuid": "", "msg_num": Int64(6),
                 "total_bytes": Int64(90), "latest_publish": MADE, "publish_rate": 2.5},
                {**here, "name": "silent", "acl": [], "msg_num": Int64(0)},
            ],
            "subscriptions": [
                {**here, "name": "archive", "topic": "readings", "offset": Int64(3), "next_offset": Int64(5), "ack": 10,
                 "acl": [self.ann], "pending_ack": "2026-11-20T10:20:30Z"},
                {**here, "name": "pushed", "topic": "readings", "offset": Int64(-1), "ack": 86_400, "acl": [], **push},
            ],
        }  # fmt: skip

    async def _publish(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        configs = {"retention.ms": str(200 * 86_400_000)}
        await admin.create_topics([NewTopic(self.topic, 2, 1, topic_configs=configs)])
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
            for value in (record(0, 30), record(1, 32), b"", record(3, 31), record(4, 33), b""):
                await producer.send_and_wait(self.topic, value, partition=0)
            await producer.send_and_wait(self.topic, record(99, 40), partition=1)


@pytest.fixture(scope="module")
def original(uri: str) -> Original:
    made = Original(uri, kafka_servers())
    made.put_records()
    return made


def sources(original: Original) -> tuple[str, ...]:
    return ("--mongodb", original.uri, "--kafka", original.servers)


def test_a_plan_says_what_there_is_and_what_does_not_go_over_as_it_is(original: Original) -> None:
    planned = ams("migrate", "plan", *sources(original), "-o", "json")

    told = json.loads(planned.stdout)
    assert planned.returncode == 0, planned.stderr
    counts = {"user": 2, "project": 1, "membership": 1, "topic": 2, "subscription": 2, "message": 6}
    assert told["counts"].pop("seconds to copy, about") >= 1
    assert told["counts"] == counts
    assert told["oddities"] == {
        "uuid": 1, "access list": 1, "offset": 1, "deadline": 1, "partitions": 1, "date": 1,
    }  # fmt: skip
    assert TOKEN not in planned.stdout
    exported = ams("migrate", "export", "-", *sources(original))
    lines = [json.loads(line) for line in exported.stdout.splitlines()]  # the export alone is on stdout
    assert (exported.returncode, lines[0]["kind"], lines[-1]["kind"]) == (0, "header", "end")
    assert TOKEN not in exported.stderr
    strict = ams("migrate", "plan", *sources(original), "--strict")
    assert strict.returncode == 1
    assert "subscription EGI/pushed" in strict.stdout


@pytest.fixture(scope="module")
def moved_service(original: Original, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("moved")
    file = folder / "all.jsonl.gz"
    written = ams("migrate", "export", str(file), *sources(original))
    assert written.returncode == 0, written.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "2 records cannot be read" in written.stdout
    imported = ams("import", str(file), "--data", str(folder / "data"))
    assert imported.returncode == 0, imported.stderr
    (folder / "data" / "admin.token").write_text("short")
    with live_service(folder / "data", "--min-free-bytes", "0", "--reserve-bytes", "0") as running:
        yield running


def test_messages_have_their_ids_and_times_and_what_could_not_be_read_is_a_hole(moved_service: LiveService) -> None:
    lines = moved_service.ask("GET", "/projects/EGI/topics/readings:read", token="short").splitlines()
    read = [json.loads(line) for line in lines]

    assert [each["messageId"] for each in read[:5]] == ["0", "1", "3", "4", "5"]
    assert [base64.b64decode(each["data"]).decode() for each in read[:4]] == [f"message {n}" for n in (0, 1, 3, 4)]
    assert [each["publishTime"] for each in read[:3]] == [
        "2026-11-20T10:20:30.123Z", "2026-11-20T10:20:32.123Z", "2026-11-20T10:20:32.123Z",
    ]  # fmt: skip
    assert read[4]["data"] == ""


def verify_move(original: Original, moved: LiveService, *words: str) -> Ran:
    return ams(
        "migrate", "verify", *sources(original), *words, "-o", "json",
        AMS_ENDPOINT=moved.base_url, AMS_TOKEN="short", AMS_MIGRATE_TOKEN="short",
    )  # fmt: skip


def test_users_and_consumers_go_on_and_both_sides_are_alike(moved_service: LiveService, original: Original) -> None:
    profile = moved_service.ask("GET", "/users/profile", token=TOKEN)

    assert (profile["uuid"], profile["name"], profile["token"]) == (original.ann, "ann", TOKEN)
    assert profile["created_on"] == "2021-02-03T04:05:06Z"
    assert [(each["project"], sorted(each["roles"])) for each in profile["projects"]] == [
        ("EGI", ["consumer", "publisher"])
    ]
    assert moved_service.ask("GET", "/users/profile", token="short")["service_roles"] == ["service_admin"]

    same = verify_move(original, moved_service, "--old", moved_service.base_url)  # it stands for the old service, too

    told = json.loads(same.stdout)
    assert same.returncode == 0, same.stderr
    assert (told["users"], told["topics"], told["messages"], told["subscriptions"]) == (2, 2, 4, 2)
    assert (told["differences"], told["answers"]) == ([], 2 + 5 + 2 + 2)

    pulled = moved_service.ask("POST", "/projects/EGI/subscriptions/archive:pull", {"maxMessages": "1"}, token=TOKEN)

    assert [each["message"]["messageId"] for each in pulled["receivedMessages"]] == ["3"]
    published = moved_service.ask(
        "POST", "/projects/EGI/topics/readings:publish", {"messages": [{"data": b64("new")}]}, token=TOKEN
    )
    assert published["messageIds"] == ["6"]

    moved_service.ask("POST", "/projects/EGI/subscriptions/archive:modifyOffset", {"offset": 1}, token=TOKEN)
    moved_service.ask("POST", "/users/ann:refreshToken", token="short")
    other = json.loads(verify_move(original, moved_service).stdout)["differences"]
    assert [(each["what"], each["old"], each["new"]) for each in other] == [
        ("token of user ann", "ann", "Unauthorized"), ("subscription EGI/archive", "3", "1"),
    ]  # fmt: skip


def test_a_source_that_is_away_is_one_clear_line_without_a_password(original: Original, tmp_path: Path) -> None:
    away = "mongodb://ann:secret@127.0.0.1:1/?serverSelectionTimeoutMS=500"

    ran = ams("migrate", "plan", "--kafka", original.servers, AMS_MIGRATE_MONGODB=away)
    other = ams("migrate", "export", str(tmp_path / "x"), "--mongodb", original.uri, "--kafka", "127.0.0.1:1")

    assert (ran.returncode, other.returncode) == (1, 1)
    assert ran.stderr.splitlines()[-1].startswith("ams: MongoDB cannot be read: ")
    assert other.stderr.splitlines()[-1].startswith("ams: Kafka cannot be read: ")
    assert "secret" not in ran.stdout + ran.stderr
    assert not (tmp_path / "x").exists()


def test_a_dump_of_the_database_tells_the_same_as_the_database(original: Original, tmp_path: Path) -> None:
    with pymongo.MongoClient[dict[str, Any]](original.uri) as client:
        (tmp_path / DATABASE).mkdir()
        for name in client[DATABASE].list_collection_names():
            documents = b"".join(bson.encode(each) for each in client[DATABASE][name].find())
            (tmp_path / DATABASE / f"{name}.bson").write_bytes(documents)

    dumped = ams("migrate", "plan", "--mongodb", str(tmp_path), "--kafka", original.servers, "-o", "json")
    asked = ams("migrate", "plan", *sources(original), "-o", "json")

    told, as_asked = json.loads(dumped.stdout), json.loads(asked.stdout)
    assert told["details"] == as_asked["details"]
    assert told["counts"].keys() == as_asked["counts"].keys()
    assert told["counts"]["message"] == as_asked["counts"]["message"]
    (tmp_path / DATABASE / "users.bson").write_bytes(b"no BSON")
    damaged = ams("migrate", "plan", "--mongodb", str(tmp_path), "--kafka", original.servers)
    assert damaged.returncode == 1
    assert "users.bson cannot be read" in damaged.stderr
    nothing = ams("migrate", "plan", "--mongodb", str(tmp_path / "none"), "--kafka", original.servers)
    assert "projects.bson is missing" in nothing.stderr
