"""Quotas of stored bytes: a flooding publisher is refused, and no other project loses unread messages."""

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from ams.service.parallel.backlog import DEAD_LETTER_RETRY_MS
from ams.storage.files import Disk
from tests.app.client import Client
from tests.support.served import in_process_service
from tests.support.waiting import wait_until

MIB = 2**20
SETTINGS = {"max_data_bytes": 16 * MIB, "segment_bytes": MIB, "reserve_bytes": MIB}
DISK_ALONE = {**SETTINGS, "max_data_bytes": 0, "min_free_bytes": 4 * MIB}
LARGE = base64.b64encode(bytes(200_000)).decode()

pytestmark = pytest.mark.embedded("what messages may take together is the data folder's")


class Site(Client):
    def flood(self) -> httpx.Response:
        for _ in range(1_000):
            answer = self.publish(LARGE, project="flooder")
            if answer.status_code != 200:
                return answer
        raise AssertionError("nothing was ever refused")

    def pull_all(self, project: str) -> int:
        found = 0
        while got := self.pull(project=project, maxMessages="1000"):
            found += len(got)
            path = f"/projects/{project}/subscriptions/ts:acknowledge"
            self.post(path, json={"ackIds": [got[-1]["ackId"]]}).raise_for_status()
        return found

    def retain(self) -> None:
        """Run retention, and measure the quotas."""
        service = self.given.run.service
        assert service.embedded is not None
        self.given.carry_out(service.embedded.retain())
        self.given.carry_out(service.stored.measure())

    def used_bytes(self) -> int:
        shown = self.get("/projects/flooder:quotas").json()["quotas"]
        return int(next(each["used"] for each in shown if each["name"] == "storedBytes"))


@contextlib.contextmanager
def open_site(folder: Path, settings: Mapping[str, object] = SETTINGS) -> Iterator[Site]:
    with in_process_service(folder / "data", **settings) as service, Site(service, timeout=30, trust_env=False) as site:
        yield site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Site]:
    def free_bytes(_disk: Disk, _path: str) -> int:
        return 20 * MIB - sum(each.stat().st_blocks * 512 for each in tmp_path.rglob("*") if each.exists())

    settings: Mapping[str, object] = getattr(request, "param", SETTINGS)
    if settings is DISK_ALONE:
        monkeypatch.setattr(Disk, "free_bytes", free_bytes)
    with open_site(tmp_path, settings) as site:
        site.prepare("victim").prepare("flooder")
        yield site


@pytest.mark.parametrize("site", [SETTINGS, DISK_ALONE], indirect=True, ids=["a limit", "the disk alone"])
def test_unread_messages_of_others_stay_and_the_flooder_is_told(site: Site) -> None:
    for _ in range(100):
        site.publish("aGk=", project="victim").raise_for_status()
    refused = site.flood()
    assert (refused.status_code, refused.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert refused.json()["error"]["message"].startswith("Quota storedBytes of the project is exceeded: it has ")
    for _ in range(3):
        assert 4 * MIB < site.used_bytes() < 9 * MIB
        site.retain()
        assert site.flood().status_code == 429
        site.publish("aGk=", project="victim").raise_for_status()
    assert site.pull_all("victim") == 103
    site.publish(LARGE, project="victim").raise_for_status()


def test_after_a_restart_it_is_the_same(tmp_path: Path) -> None:
    with open_site(tmp_path) as site:
        site.prepare("victim").prepare("flooder")
        site.publish("aGk=", project="victim").raise_for_status()
        site.flood()
        before = site.used_bytes()
    with open_site(tmp_path) as site:
        wait_until(lambda: (site.retain(), site.used_bytes())[1] > before * 0.95)
        assert site.publish(LARGE, project="flooder").status_code == 429
        assert site.pull_all("victim") == 1


def test_who_reads_what_it_publishes_goes_on_for_ever(site: Site) -> None:
    for _ in range(12):
        for _ in range(4):
            site.publish(LARGE, project="flooder").raise_for_status()
        assert site.pull_all("flooder") == 4
        site.retain()
    assert site.used_bytes() < 9 * MIB


def test_a_repeated_publish_is_answered_though_there_is_no_room(site: Site) -> None:
    first = site.publish(LARGE, project="flooder", key="k").json()
    site.flood()
    assert site.publish(LARGE, project="flooder", key="k").json() == first
    assert site.publish(LARGE, project="flooder", key="other").status_code == 429


TAKERS = 6  # subscriptions of one topic, each of which puts its messages aside
ROOM = 4 * len(LARGE) + 10_000  # for the message and at most three letters


def test_dead_letters_are_the_projects_bytes_and_what_has_no_room_is_tried_again(site: Site) -> None:
    paths = [f"/projects/flooder/subscriptions/p{number}" for number in range(TAKERS)]
    site.topic("dead", project="flooder")
    policy = {"deadLetterTopic": "projects/flooder/topics/dead", "maxDeliveryAttempts": 5}
    for path in paths:
        made = {"topic": "projects/flooder/topics/t", "type": "parallel", "deadLetterPolicy": policy}
        site.put(path, json=made).raise_for_status()
    set_stored_bytes_limit(site, ROOM)
    site.publish(LARGE, project="flooder").raise_for_status()

    with capture_logs() as said:
        for path in paths:
            for _ in range(5):
                assert nack_all(site, path) == 1
        wait_until(lambda: count_letters(site) + len(put_off(said)) >= TAKERS)

    assert count_letters(site) == 3
    assert site.used_bytes() <= ROOM
    assert "Quota storedBytes of the project is exceeded: its limit is" in put_off(said)[0]["reason"]
    found = [site.get(f"{path}:doctor").raise_for_status().json()["findings"] for path in paths]
    told = [each["text"] for each in chain(*found) if "could not be put aside" in each["text"]]
    assert len(told) == TAKERS - 3
    assert all("Quota storedBytes" in each for each in told)

    set_stored_bytes_limit(site, 2 * TAKERS * len(LARGE))
    assert sum(nack_all(site, path) for path in paths) == 0, "not at once"
    site.given.clock.advance(DEAD_LETTER_RETRY_MS + 200)
    assert sum(nack_all(site, path) for path in paths) == TAKERS - 3, "nothing is lost"
    wait_until(lambda: count_letters(site) == TAKERS)
    assert site.used_bytes() <= (TAKERS + 2) * len(LARGE)


def set_stored_bytes_limit(site: Site, size: int) -> None:
    site.post("/projects/flooder:modifyQuotas", json={"quotas": {"storedBytes": size}}).raise_for_status()
    site.retain()


def nack_all(site: Site, path: str) -> int:
    wanted = {"maxMessages": "10", "returnImmediately": "true"}
    got = site.post(f"{path}:pull", json=wanted).raise_for_status().json()["receivedMessages"]
    if got:
        site.post(f"{path}:nack", json={"ackIds": [each["ackId"] for each in got]}).raise_for_status()
    return len(got)


def count_letters(site: Site) -> int:
    return int(site.get("/projects/flooder/subscriptions/deads:offsets").raise_for_status().json()["max"])


def put_off(said: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in said if each["event"] == "dead_letter.put_off"]
