"""Syncs that fail under a running service: every answer is compared with what a restart finds.

The failure is real as far as the service can see: a preloaded library answers its calls with EIO, and what was written
stays in the page cache, where the next start finds it.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.support.service import LiveService, live_service, make_subscription

pytestmark = [pytest.mark.cc, pytest.mark.faults, pytest.mark.long]

SOURCE = Path(__file__).parent.parent / "support" / "failing_syncs.c"
UNKNOWN = "Backend Error: it is not known whether this was done; repeat it, a publish with the same Idempotency-Key"
CLIENTS, REQUESTS = 4, 40


class Answer(NamedTuple):
    name: str
    code: int
    text: str


def publish(client: httpx.Client, name: str) -> Answer:
    """Publish a message of this name, with it as the key."""
    body = {"messages": [{"attributes": {"name": name}}]}
    found = client.post("/projects/P/topics/T:publish", json=body, headers={"Idempotency-Key": name})
    return Answer(name, found.status_code, "" if found.is_success else found.json()["error"]["message"])


def stored(client: httpx.Client) -> list[str]:
    """Return the names of all messages of the topic."""
    body = {"maxMessages": "10000", "returnImmediately": "true"}
    found = client.post("/projects/P/subscriptions/S:pull", json=body).json()["receivedMessages"]
    return [each["message"]["attributes"]["name"] for each in found]


def under_load(live: LiveService, failing: Path) -> list[Answer]:
    """Publish from several clients at once; the syncs begin to fail on the way."""

    def use(number: int) -> list[Answer]:
        answers = []
        with live.http() as client:
            for request in range(REQUESTS):
                if request == REQUESTS // 2:
                    failing.touch()
                answers.append(publish(client, f"{number}/{request}"))
        return answers

    with ThreadPoolExecutor(CLIENTS) as clients:
        return [answer for answers in clients.map(use, range(CLIENTS)) for answer in answers]


def test_every_answer_is_true_after_a_kill_while_syncs_fail(tmp_path: Path) -> None:
    failing, library = tmp_path / "failing", tmp_path / "failing_syncs.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
    environment = {"LD_PRELOAD": str(library), "FAILING_SYNCS": str(failing), "AMS_LOG_LEVEL": "error"}
    with live_service(tmp_path / "data", environment=environment) as live:
        with live.http() as client:
            make_subscription(client)
        answers = under_load(live, failing)
        live.kill()
    done = {each.name for each in answers if each.code == 200}
    unknown = {each.name for each in answers if each.text == UNKNOWN}
    refused = {each.name for each in answers} - done - unknown
    assert {(each.code, each.text) for each in answers if each.name in refused} == {(500, "Backend Error")}

    failing.unlink()
    with live_service(tmp_path / "data") as live, live.http() as client:
        found = stored(client)
        assert len(found) == len(set(found))
        assert done <= set(found), "acknowledged, and lost"
        assert not refused & set(found), "refused, and stored"
        assert unknown, "the syncs failed while groups were being written"

        for name in sorted(unknown | refused):
            assert publish(client, name).code == 200
        assert sorted(stored(client)) == sorted({each.name for each in answers}), "stored twice, or lost"
