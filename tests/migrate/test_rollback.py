"""Rollback: data since the cutover goes to the old service; and copies and cutovers that are killed and redone."""

import asyncio
import base64
import json
import os
import random
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.migrate.day import Day, Size, made_up
from demo.migrate.sides import OldSide, write_documents, write_messages
from demo.migrate.site import CLIENT, CURL, LIBRARY, PROJECT, REQUESTS, Pushed, publisher, subscriber
from tests.migrate.cuts import HaProxy, Starter
from tests.migrate.test_move import b64
from tests.support import marks
from tests.support.commands import PROCESS, Ran, ams
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SIZE = Size(users=30, projects=6, topics=20, messages=2_000)


class OldAndNew:
    def __init__(self, folder: Path) -> None:
        self.old = OldSide(folder / "old", is_original=False)
        self.day: Day = made_up(SIZE, Pushed("https://receiver.example.org/in", "hash", "header"))
        self.data = folder / "data"
        self.new = Starter(self.data)

    def fill(self) -> None:
        self.old.start()
        write_documents(self.day, self.old.address.mongodb)
        asyncio.run(write_messages(self.day, self.old.address.kafka))
        self.old.start_api()

    def run_cut(self) -> Ran:
        return self.migrate("cut", "--data", str(self.data), "--stop", "true", "--start", self.new.command)

    def stop(self) -> None:
        self.new.end()
        self.old.stop()

    @property
    def sources(self) -> tuple[str, ...]:
        return "--mongodb", self.old.address.mongodb, "--kafka", self.old.address.kafka

    def migrate(self, command: str, *more: str) -> Ran:
        token = self.day.admin_token
        asked = {"AMS_ENDPOINT": self.new.endpoint, "AMS_TOKEN": token, "AMS_MIGRATE_TOKEN": token}
        return ams("migrate", command, *self.sources, "-o", "json", *more, **asked)

    def run_back(self, *more: str) -> Ran:
        return self.migrate("back", "--old", self.old.address.url, "--old-ca", str(self.old.certificate), *more)

    def ask(self, url: str, verb: str, path: str, token: str, body: object) -> Any:
        trust = ssl.create_default_context(cafile=str(self.old.certificate))
        answer = httpx.request(
            "POST", f"{url}/v1/projects/{PROJECT}/{path}:{verb}", headers={"x-api-key": token}, json=body,
            trust_env=False, verify=trust, timeout=PATIENCE_SECONDS)  # fmt: skip
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.text else None

    def publish(self, url: str, way: str, *messages: dict[str, Any]) -> list[int]:
        said = self.ask(url, "publish", f"topics/{way}", publisher(way).token, {"messages": messages})
        return [int(each) for each in said["messageIds"]]

    def pull(self, url: str, way: str, most: int, *, acknowledge: bool = False) -> list[tuple[int, str, Any]]:
        subscription, token = f"subscriptions/{way}", subscriber(way).token
        asked = {"maxMessages": str(most), "returnImmediately": "true"}
        pulled = self.ask(url, "pull", subscription, token, asked)["receivedMessages"]
        if acknowledge:
            self.ask(url, "acknowledge", subscription, token, {"ackIds": [pulled[-1]["ackId"]]})
        said = [each["message"] for each in pulled]
        return [
            (int(each["messageId"]), base64.b64decode(each["data"]).decode(), each.get("attributes", {}))
            for each in said
        ]


@pytest.fixture
def filled_services(tmp_path: Path) -> Iterator[OldAndNew]:
    marks.require("kafka")
    made = OldAndNew(tmp_path)
    try:
        made.fill()
        yield made
    finally:
        made.stop()


@pytest.fixture
def cut_services(filled_services: OldAndNew) -> OldAndNew:
    cut = filled_services.run_cut()
    assert cut.returncode == 0, cut.stderr
    return filled_services


def test_all_since_the_cut_goes_back_until_the_old_service_is_used(cut_services: OldAndNew, proxy: HaProxy) -> None:
    """One journey: each step changes the old service, and the last one uses it."""
    the_old_service_gets_messages_with_their_ids_and_positions_and_can_be_given_more(cut_services)
    what_was_made_since_is_listed_and_stays(cut_services)
    clients_are_held_meanwhile_and_led_to_the_old_service_then(cut_services, proxy)
    the_way_is_closed_when_the_old_service_was_used(cut_services, proxy)


def the_old_service_gets_messages_with_their_ids_and_positions_and_can_be_given_more(both: OldAndNew) -> None:
    new, old = both.new.endpoint, both.old.address.url
    mine = {"data": b64("one"), "attributes": {"n": "1"}}, {"data": b64("two"), "attributes": {"said": 'a "quote"\n'}}
    first, second = both.publish(new, REQUESTS, *mine)
    read = both.pull(new, REQUESTS, 500, acknowledge=True)
    assert read[-2:] == [(first, "one", {"n": "1"}), (second, "two", {"said": 'a "quote"\n'})]
    ids = both.publish(new, CURL, *[{"data": b64(f"{number}")} for number in range(250)])

    done = both.run_back()

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["counts"], told["oddities"]) == ({"messages": 252, "positions": 1}, {"attribute": 1})
    assert both.pull(old, REQUESTS, 1) == []  # all of them were acknowledged
    pulled = both.pull(old, CURL, 500)
    assert [each[0] for each in pulled][-250:] == ids
    assert [each[1] for each in pulled][-250:] == [f"{number}" for number in range(250)]
    assert json.loads(both.run_back().stdout)["counts"] == {"messages": 0, "positions": 0}


def what_was_made_since_is_listed_and_stays(both: OldAndNew) -> None:
    headers = {"x-api-key": both.day.admin_token}
    made = httpx.put(
        f"{both.new.endpoint}/v1/projects/{PROJECT}/topics/since", headers=headers, trust_env=False, json={},
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert made.status_code == 200

    told = json.loads(both.run_back().stdout)

    assert ["topic", f"{PROJECT}/since"] in [[each["kind"], each["what"]] for each in told["details"]]


def clients_are_held_meanwhile_and_led_to_the_old_service_then(both: OldAndNew, proxy: HaProxy) -> None:
    proxy.told = ["set map /ams.map service new"]

    done = both.run_back("--haproxy", proxy.path, "--map", "/ams.map")

    assert done.returncode == 0, done.stderr
    assert proxy.told[1:] == ["set map /ams.map service held", "set map /ams.map service old"]
    again = both.run_back("--haproxy", proxy.path, "--map", "/ams.map")
    assert again.stderr.splitlines()[-1] == "ams: clients are led to the old service already"
    assert proxy.told[3:] == []


def the_way_is_closed_when_the_old_service_was_used(both: OldAndNew, proxy: HaProxy) -> None:
    both.publish(both.old.address.url, CLIENT, {"data": b64("there")})
    proxy.told = ["set map /ams.map service new"]
    refused = both.run_back("--haproxy", proxy.path, "--map", "/ams.map")
    assert refused.returncode == 1
    assert proxy.told[1:] == ["set map /ams.map service held", "set map /ams.map service new"]
    assert refused.stderr.splitlines()[-1] == (
        f"ams: topic {PROJECT}/{CLIENT} has 1 messages there that are not here: the old one was used"
    )

    both.publish(both.new.endpoint, CLIENT, {"data": b64("here")})
    before = both.publish(both.new.endpoint, LIBRARY, {"data": b64("not given")})
    refused = both.run_back()
    assert refused.returncode == 1
    assert "has other messages there: the old service was used since the cut" in refused.stderr
    assert before[0] not in [each[0] for each in both.pull(both.old.address.url, LIBRARY, 500)]


def run_and_kill(filled: OldAndNew, command: str, seconds: float, *more: str) -> bool:
    """Run a command and kill it after so long, unless it has ended before; return whether it was killed."""
    environment = {**os.environ, "AMS_ENDPOINT": filled.new.endpoint, "AMS_TOKEN": filled.day.admin_token}
    words = [*PROCESS, "migrate", command, *filled.sources, "--data", str(filled.data), *more]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.run(words, env=environment, timeout=seconds, check=False, **silent)
    except subprocess.TimeoutExpired:
        return True
    return False


KILLS = 10


def test_what_was_killed_goes_on_and_nothing_is_lost_or_there_twice(filled_services: OldAndNew) -> None:
    chance = random.Random(KILLS)
    took = 0
    for _ in range(KILLS):
        took += run_and_kill(filled_services, "copy", chance.uniform(0.5, 6))
        took += run_and_kill(filled_services, "cut", chance.uniform(1, 8), "--stop", "true", "--start", "false")
    assert took  # some were in the middle of their work

    done = filled_services.run_cut()
    assert done.returncode == 0, done.stderr
    assert json.loads(filled_services.migrate("verify").stdout)["differences"] == []
