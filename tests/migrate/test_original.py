"""Data created through the old service's own API is migrated, and every answer of both services compared.

The old service is the original where Go can build it from its module registry, otherwise the demo's stand-in.
"""

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pymongo
import pytest
import requests

from ams.access.permissions import PERMISSIONS
from demo.migrate.books import Answers, answers, differences
from demo.migrate.sides import DATABASE, CannotBuild, NewSide, OldSide, program
from demo.migrate.site import WORKER_TOKEN
from tests.support import marks
from tests.support.commands import Ran, ams

pytestmark = [pytest.mark.kafka, pytest.mark.long]

ADMIN = "0123456789abcdef" * 4


@dataclass
class Api:
    base: str
    ca: str

    def ask(self, method: str, path: str, body: Any = None, token: str = ADMIN) -> requests.Response:
        said = None if body is None else json.dumps(body)
        headers = {"x-api-key": token}
        return requests.request(method, f"{self.base}/v1{path}", data=said, headers=headers, verify=self.ca, timeout=60)

    def __call__(self, method: str, path: str, body: Any = None, token: str = ADMIN) -> Any:
        answer = self.ask(method, path, body, token)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content.strip() else None

    def user(self, name: str, **body: Any) -> str:
        return str(self("POST", f"/users/{name}", {"email": f"{name}@example.org", **body})["token"])

    def publish(self, topic: str, *messages: dict[str, Any], token: str = ADMIN) -> None:
        self("POST", f"{topic}:publish", {"messages": list(messages)}, token)

    def pull(self, subscription: str, most: int, token: str = ADMIN) -> list[dict[str, Any]]:
        body = {"maxMessages": str(most), "returnImmediately": "true"}
        received: list[dict[str, Any]] = self("POST", f"{subscription}:pull", body, token)["receivedMessages"]
        return received

    def acknowledge(self, subscription: str, ack: str, token: str = ADMIN) -> None:
        self("POST", f"{subscription}:acknowledge", {"ackIds": [ack]}, token)


def message(text: str, **attributes: str) -> dict[str, Any]:
    return {"data": base64.b64encode(text.encode()).decode(), "attributes": attributes}


def member(role: str, project: str = "EGI") -> list[dict[str, Any]]:
    return [{"project": project, "roles": [role]}]


ODD = ("push_worker_0", "eve", "EGI/ahead", "EGI/elsewhere", "EGI/orphan")
"""Documented differences: an invalid uuid, a second registration of a name, offsets past the end and of -1, and an
offset whose topic is gone."""


def simulate_years(api: Api) -> dict[str, str]:
    """Simulate ten years of use in a few seconds; return the tokens of users."""
    tokens: dict[str, str] = {}
    for name in ("EGI", "second", "passing"):
        api("POST", f"/projects/{name}", {"description": f"Project {name}"})
    tokens["ann"] = api.user("ann", projects=member("publisher"))
    tokens["bob"] = api.user("bob", projects=member("consumer"))
    tokens["zoe"] = api.user("zoe", projects=[*member("project_admin"), *member("consumer", "passing")])
    tokens["viewer"] = api.user("viewer", service_roles=["metrics_viewer"])
    api.user("gone", projects=member("publisher"))
    api.user("renewed", projects=member("consumer", "second"))
    tokens["renewed"] = api("POST", "/users/renewed:refreshToken")["token"]
    _topics(api, tokens)
    _push(api)
    for name in ("eve", "eve", "dan", "mallory"):
        api("POST", "/registrations", {"name": name, "email": f"{name}@example.org", "organization": "EGI"})
    for each in api("GET", "/registrations")["user_registrations"]:
        if each["name"] == "dan":
            tokens["dan"] = api("POST", f"/registrations/{each['uuid']}:accept")["token"]
        elif each["name"] == "mallory":
            api("POST", f"/registrations/{each['uuid']}:decline", {"comment": "who?"})
    api("PUT", "/projects/passing/topics/t", {})
    api.publish("/projects/passing/topics/t", message("nobody reads this"))
    api("DELETE", "/users/gone")
    api("DELETE", "/projects/passing")
    return tokens


def _topics(api: Api, tokens: dict[str, str]) -> None:
    here = "/projects/EGI"
    schema = {"type": "object", "properties": {"site": {"type": "string"}}}
    api("POST", f"{here}/schemas/site", {"type": "json", "schema": schema})
    api("PUT", f"{here}/topics/checked", {"schema": "projects/EGI/schemas/site"})
    for name in ("readings", "broken", "deleted", "untouched"):
        api("PUT", f"{here}/topics/{name}", {})
    api("POST", f"{here}/topics/readings:modifyAcl", {"authorized_users": ["ann", "gone"]})
    for name, topic in {"archive": "readings", "latest": "readings", "ahead": "readings", "orphan": "deleted"}.items():
        api("PUT", f"{here}/subscriptions/{name}", {"topic": f"projects/EGI/topics/{topic}", "ackDeadlineSeconds": 30})
    api("POST", f"{here}/subscriptions/archive:modifyAcl", {"authorized_users": ["bob"]})
    api("POST", f"{here}/subscriptions/latest:modifyAckDeadline", {"ackDeadlineSeconds": 600})
    for number in range(12):
        api.publish(f"{here}/topics/readings", message(f"reading {number}", n=str(number)), token=tokens["ann"])
    api.publish(f"{here}/topics/readings", message("two at once"), message("", only="attributes"))
    api.publish(f"{here}/topics/checked", message('{"site": "GRNET"}'))
    api.publish(f"{here}/topics/broken", message("first"), message("quoted", said='say "hello"'), message("last"))
    api.publish(f"{here}/topics/deleted", message("of a topic that is deleted"))
    got = api.pull(f"{here}/subscriptions/archive", 5, tokens["bob"])
    api.acknowledge(f"{here}/subscriptions/archive", got[-1]["ackId"], tokens["bob"])
    api.pull(f"{here}/subscriptions/archive", 3, tokens["bob"])  # a batch that stays out
    got = api.pull(f"{here}/subscriptions/latest", 14)
    api.acknowledge(f"{here}/subscriptions/latest", got[1]["ackId"])
    assert api.ask("POST", f"{here}/subscriptions/ahead:modifyOffset", {"offset": 9999}).status_code == 400
    api("DELETE", f"{here}/topics/deleted")
    # The reference accepts a topic of another project, and starts at -1 where that project does not exist.
    api.ask("PUT", f"{here}/subscriptions/elsewhere", {"topic": "projects/nowhere/topics/readings"})


def _push(api: Api) -> None:
    here = "/projects/EGI/subscriptions"
    config = {"type": "http_endpoint", "pushEndpoint": "https://receiver.example.org/in", "maxMessages": 5,
              "retryPolicy": {"type": "linear", "period": 4000}}  # fmt: skip
    for name in ("pushed", "once-pushed"):
        api("PUT", f"{here}/{name}", {"topic": "projects/EGI/topics/readings", "pushConfig": config})
    api("POST", f"{here}/once-pushed:modifyPushConfig", {"pushConfig": {}})


@contextlib.contextmanager
def old_side(folder: Path, *, is_original: bool) -> Iterator[OldSide]:
    marks.require("kafka")
    with OldSide(folder, is_original=is_original) as old:
        with pymongo.MongoClient[dict[str, Any]](old.address.mongodb) as client:
            database = client[DATABASE]
            rows = [{"resource": action, "roles": sorted(roles)} for action, roles in PERMISSIONS.items() if roles]
            database.roles.insert_many(rows)
            made = datetime(2020, 1, 2, 3, 4, 5)
            own = {"projects": [], "email": "", "created_by": "", "created_on": made, "modified_on": made}
            database.users.insert_many([
                {"uuid": "11111111-1111-4111-8111-111111111111", "name": "admin", "token": ADMIN,
                 "service_roles": ["service_admin"], **own},
                {"uuid": "worker", "name": "push_worker_0", "token": WORKER_TOKEN,
                 "service_roles": ["push_worker"], **own},
            ])  # fmt: skip
        old.start_api()
        yield old


@dataclass
class MovedService:
    old: Answers
    new: Answers
    tokens: dict[str, str]
    next_messages: dict[str, tuple[Any, Any]]
    verified: Ran


@pytest.fixture(scope="module", params=[pytest.param("original", marks=pytest.mark.go), "stand-in"])
def moved_service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MovedService]:
    is_original = request.param == "original"
    if is_original:
        try:
            program()
        except CannotBuild as why:
            pytest.skip(str(why))  # no part of the machine: not every module registry has it
    folder = tmp_path_factory.mktemp("move")
    with old_side(folder / "old", is_original=is_original) as old:
        api = Api(old.address.url, str(old.certificate))
        tokens = simulate_years(api)
        before = answers(api.base, api.ca, ADMIN, ODD)
        new = NewSide(folder, str(old.certificate))
        source = ["--mongodb", old.address.mongodb, "--kafka", old.address.kafka]
        file = str(folder / "all.jsonl")
        for words in (
            ("migrate", "export", file, *source),
            ("import", file, "--data", str(new.data), "--config", str(new.config)),
        ):
            done = ams(*words)
            assert done.returncode == 0, done.stderr
        with new:
            after = answers(new.url, True, ADMIN, ODD)
            there = Api(new.url, api.ca)
            verified = ams("migrate", "verify", *source, "-o", "json", AMS_ENDPOINT=new.url, AMS_TOKEN=ADMIN)
            names = ("archive", "latest", "pushed", "once-pushed")
            places = [f"/projects/EGI/subscriptions/{name}" for name in names]
            nexts = {each: (api.pull(each, 1), there.pull(each, 1)) for each in places}
            yield MovedService(before, after, tokens, nexts, verified)


def test_the_new_service_answers_what_the_old_one_did(moved_service: MovedService) -> None:
    found = differences(moved_service.old, moved_service.new)
    assert not found, "\n".join(found)
    assert len(moved_service.old) > 30
    for name, token in moved_service.tokens.items():
        assert moved_service.new[f"profile of {name}"]["token"] == token
    for name, (old, new) in moved_service.next_messages.items():
        assert [_to_milliseconds(each) for each in old] == [_to_milliseconds(each) for each in new], name
        assert len(old) == (0 if name.endswith("pushed") else 1)
    assert moved_service.verified.returncode == 0, moved_service.verified.stdout + moved_service.verified.stderr
    assert json.loads(moved_service.verified.stdout)["differences"] == []


def _to_milliseconds(received: dict[str, Any]) -> dict[str, Any]:
    message = dict(received["message"])
    seconds, _, digits = message["publishTime"].rstrip("Z").partition(".")
    return {**received, "message": {**message, "publishTime": f"{seconds}.{digits:0<3.3}"}}
