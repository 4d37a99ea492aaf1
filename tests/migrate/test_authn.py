"""The certificate service moves after AMS: from MongoDB, by the command, into a real one beside a real AMS."""

import json
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest
from bson import Int64, ObjectId

from ams.migrate.conversion import NO_MESSAGES, convert_documents
from ams.migrate.sources import read_documents
from ams.storage.export_format import FORMAT, End, Header, encode_line, kind
from tests.support.commands import PROCESS, Ran, ams_alone
from tests.support.mongodb import mongodb
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.long]

ANN, GONE = str(uuid.uuid4()), str(uuid.uuid4())
ADMIN = "a" * 64
SECRET = "the-access-key-of-web"
MADE = "2021-02-03T04:05:06Z"
HOST, OTHER = "ams.example", "ams-devel.example"


def old_ams() -> dict[str, list[dict[str, Any]]]:
    return {"projects": [{"uuid": str(uuid.uuid4()), "name": "EGI"}], "users": [
        {"uuid": "admin_0", "name": "root", "token": ADMIN, "service_roles": ["service_admin"]},
        {"uuid": ANN, "name": "ann", "token": "b" * 64}, {"uuid": "bob-of-a-script", "name": "bob", "token": "c" * 64},
    ]}  # fmt: skip


def binding(name: str, user: str, subject: str = "", **fields: Any) -> dict[str, Any]:
    own = {"service_uuid": "old-ams", "host": HOST, "uuid": f"u-{name}", "auth_type": "x509", "created_on": MADE}
    return {"name": name, "auth_identifier": subject or f"CN={name},O=EGI,C=GR", "uniquekey": user, **own, **fields}


def old_authn() -> dict[str, list[dict[str, Any]]]:
    old = binding("old", ANN)
    old["dn"] = old.pop("auth_identifier")
    del old["auth_type"]
    return {
        "service_types": [
            {"name": "ams", "hosts": [HOST, OTHER], "auth_types": ["x509"], "auth_method": "headers", "type": "ams",
             "uuid": "old-ams", "created_on": MADE},
            {"name": "web", "hosts": ["web.example"], "auth_types": ["x509", "oidc"], "auth_method": "api-key",
             "type": "web-api", "uuid": "old-web", "created_on": MADE, "updated_on": MADE},
        ],
        "auth_methods": [
            {"service_uuid": "old-ams", "host": HOST, "port": 443, "type": "headers", "uuid": "m1",
             "headers": {"x-api-key": ADMIN}, "created_on": MADE},
            {"service_uuid": "old-web", "host": "web.example", "port": 8444.0, "type": "api-key", "uuid": "m2",
             "access_key": SECRET, "created_on": MADE},
        ],
        "bindings": [
            binding("ann", ANN, unique_key=ANN, updated_on=MADE, last_auth=""), binding("bob", "bob-of-a-script"),
            binding("gone", GONE), binding("devel", GONE, "CN=devel,O=EGI,C=GR", host=OTHER),
            binding("strange", "id-of-web", service_uuid="old-web", host="web.example"),
            binding("lost", ANN, host="no-host.example"), binding("orphan", ANN, service_uuid="deleted"),
            binding("a name/of old", ANN, unique_key="another"),
            {"name": "broken", "service_uuid": "old-ams", "host": HOST}, old,
        ],
        "bindings_missing_ip_san": [{"binding_uuid": "u-ann", "binding_auth_identifier": "CN=ann"}],
    }  # fmt: skip


@dataclass(frozen=True)
class Authn:
    """A certificate service, and the environment of an administrator of it and AMS."""

    url: str
    data: Path
    environment: dict[str, str]

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        key = (self.data / "authn.key").read_text().strip()
        ca = str(self.data / "authn-tls" / "ca.pem")
        with httpx.Client(
            verify=ssl.create_default_context(cafile=ca), trust_env=False, timeout=PATIENCE_SECONDS
        ) as client:
            answer = client.request(method, f"{self.url}/v1{path}", headers={"x-api-key": key}, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.text else None

    def bindings(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.get("/bindings")["bindings"]}


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with mongodb() as uri, pymongo.MongoClient[dict[str, Any]](uri) as client:
        for database, collections in (("argo_msg", old_ams()), ("argo_auth", old_authn())):
            for name, documents in collections.items():
                client[database][name].insert_many([{"_id": ObjectId(), **each} for each in documents])
        client["argo_auth"]["auth_methods"].update_one({"uuid": "m1"}, {"$set": {"port": Int64(443)}})
        yield uri


@pytest.fixture(scope="module")
def ams(uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("ams")
    lines = list(convert_documents(read_documents(uri, "argo_msg"), lambda _: NO_MESSAGES).lines())
    counts: dict[str, int] = {}
    for each in lines:
        counts[kind(each)] = counts.get(kind(each), 0) + 1
    whole = [Header(format=FORMAT), *lines, End(counts=counts)]
    (folder / "all.jsonl").write_bytes(b"".join(map(encode_line, whole)))
    imported = ams_alone("import", str(folder / "all.jsonl"), "--data", str(folder / "data"))
    assert imported.returncode == 0, imported.stderr
    (folder / "data" / "admin.token").write_text(ADMIN)
    with live_service(folder / "data", "--min-free-bytes", "0", "--reserve-bytes", "0") as running:
        yield running


@pytest.fixture(scope="module")
def authn(ams: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authn]:
    folder = tmp_path_factory.mktemp("authn")
    data = folder / "data"
    (folder / "ca").mkdir()
    command = [
        *PROCESS, "authn", "serve", "--data", str(data), "--port", "0", "--ops-port", "0",
        "--tls-self-signed", "--client-ca", str(folder / "ca"),
    ]  # fmt: skip
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        ready, _, url = process.stdout.readline().strip().partition(" ")
        assert ready == "ready", (folder / "stderr").read_text()
        environment = {
            "AMS_ENDPOINT": ams.base_url, "AMS_TOKEN": ADMIN, "AMS_AUTHN_ENDPOINT": url,
            "AMS_AUTHN_KEY_FILE": str(data / "authn.key"), "AMS_AUTHN_CA": str(data / "authn-tls" / "ca.pem"),
        }  # fmt: skip
        yield Authn(url, data, environment)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def move_bindings(authn: Authn, uri: str, *words: str) -> Ran:
    ran = ams_alone("migrate", "authn", "--mongodb", uri, "--ams-host", HOST, "-o", "json", *words, **authn.environment)
    assert ADMIN not in ran.stdout + ran.stderr
    assert SECRET not in ran.stdout + ran.stderr
    return ran


ODD = {
    "bindings#2": "user bob has the new uuid",
    "bindings#3": f"is left out: its user {GONE} is gone",
    "bindings#6": "is left out: no-host.example is no host of ams",
    "bindings#7": "is left out: there is no service type deleted",
    "bindings#8": f"user another was asked for and never took effect; {ANN} is kept; was called 'a name/of old'",
    "bindings#9": "is left out: no text uniquekey",
}


def test_all_goes_over_as_a_dry_run_said_with_bindings_of_their_users(authn: Authn, uri: str, ams: LiveService) -> None:
    dry = move_bindings(authn, uri, "--dry-run")
    strict = move_bindings(authn, uri, "--strict")
    told = json.loads(dry.stdout)
    assert (dry.returncode, strict.returncode) == (0, 1), dry.stderr
    assert told["counts"] == {"service_types": 2, "auth_methods": 2, "bindings": 10}
    assert told["outcomes"] == {"made": 10, "changed": 0, "as it is": 0, "left out": 4}
    assert {each["place"] for each in told["details"]} == ODD.keys()
    assert all(each["done"].startswith(ODD[each["place"]]) for each in told["details"])
    assert json.loads(strict.stdout)["applied"] is False
    assert authn.bindings() == {}

    ran = move_bindings(authn, uri)
    again = move_bindings(authn, uri)

    assert (ran.returncode, again.returncode) == (0, 0), ran.stderr
    assert json.loads(ran.stdout)["applied"] is True
    assert json.loads(again.stdout)["outcomes"] == {"made": 0, "changed": 0, "as it is": 10, "left out": 4}
    types = {each["name"]: each for each in authn.get("/service-types")["service_types"]}
    assert {name: each["auth_types"] for name, each in types.items()} == {"ams": ["x509"], "web": ["x509"]}
    assert f"service type ams was old-ams and is {types['ams']['uuid']}" in ran.stderr
    methods = {each["host"]: each for each in authn.get("/authm")["auth_methods"]}
    assert {host: each["port"] for host, each in methods.items()} == {HOST: 443, "web.example": 8444}
    bindings, bob = authn.bindings(), ams.ask("GET", "/users/bob")["uuid"]
    assert {name: each["unique_key"] for name, each in bindings.items()} == {
        "ann": ANN, "bob": bob, "devel": GONE, "strange": "id-of-web", "a-name-of-old": ANN, "old": ANN,
    }  # fmt: skip
    assert (bindings["old"]["auth_identifier"], bindings["old"]["auth_type"]) == ("CN=old,O=EGI,C=GR", "x509")
    assert all(SECRET.encode() not in file.read_bytes() for file in authn.data.rglob("*") if file.is_file())


def test_without_hosts_every_service_type_of_ams_is_the_one_that_moved(authn: Authn, uri: str) -> None:
    ran = ams_alone("migrate", "authn", "--mongodb", uri, "--dry-run", **authn.environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"its user {GONE} is gone") == 2


def test_a_database_that_is_none_is_one_clear_line(authn: Authn, uri: str, tmp_path: Path) -> None:
    folder = move_bindings(authn, str(tmp_path))
    away = move_bindings(authn, "mongodb://ann:hush@127.0.0.1:1/?serverSelectionTimeoutMS=500")

    wrong = move_bindings(authn, uri, "--ams-database", "argo")

    assert (folder.returncode, away.returncode, wrong.returncode) == (1, 1, 2)
    assert folder.stderr.count("\n") == away.stderr.count("\n") == wrong.stderr.count("\n") == 1
    assert "nothing of the reference is in argo:" in wrong.stderr
    assert "service_types.bson is missing" in folder.stderr
    assert "hush" not in away.stderr
