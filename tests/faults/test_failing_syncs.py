"""Syncs that fail under a running service: every answer is compared with what a restart finds.

The failure is real as far as the service can see: a preloaded library answers its calls with EIO, and what was written
stays in the page cache, where the next start finds it.
"""

import base64
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.support.service import LiveService, live_service

pytestmark = [pytest.mark.cc, pytest.mark.faults]

SOURCE = Path(__file__).parent.parent / "support" / "failing_syncs.c"
UNKNOWN = "Backend Error: it is not known whether this was done; repeat it, a publish with the same Idempotency-Key"
CLIENTS, REQUESTS = 4, 40


class Answer(NamedTuple):
    """What became of a publish of one message."""

    name: str
    code: int
    text: str


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("failing_syncs") / "failing_syncs.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", target, SOURCE, "-ldl"], check=True, timeout=60)
    return target


def environment(library: Path, failing: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "FAILING_SYNCS": str(failing), "AMS_LOG_LEVEL": "error"}


def publish(client: httpx.Client, name: str, key: str = "") -> Answer:
    message = {"data": base64.b64encode(name.encode()).decode()}
    headers = {"Idempotency-Key": key} if key else {}
    found = client.post("/v1/projects/P/topics/t:publish", json={"messages": [message]}, headers=headers)
    return Answer(name, found.status_code, "" if found.is_success else found.json()["error"]["message"])


def client_of(live: LiveService) -> httpx.Client:
    return httpx.Client(base_url=live.base_url, headers={"x-api-key": live.token}, timeout=30)


def stored(client: httpx.Client) -> list[str]:
    """Return the names of all messages of the topic."""
    pull = "/v1/projects/P/subscriptions/s:pull"
    found = client.post(pull, json={"maxMessages": "10000", "returnImmediately": "true"}).json()["receivedMessages"]
    return [base64.b64decode(each["message"]["data"]).decode() for each in found]


def under_load(live: LiveService, failing: Path) -> Iterator[Answer]:
    """Publish from several clients at once; the syncs begin to fail on the way."""

    def use(number: int) -> list[Answer]:
        with client_of(live) as client:
            answers = []
            for request in range(REQUESTS):
                if request == REQUESTS // 2:
                    failing.touch()
                answers.append(publish(client, f"{number}/{request}", key=f"{number}/{request}"))
            return answers

    with ThreadPoolExecutor(CLIENTS) as clients:
        for answers in clients.map(use, range(CLIENTS)):
            yield from answers


def test_every_answer_is_true_after_a_kill_while_syncs_fail(tmp_path: Path, library: Path) -> None:
    failing = tmp_path / "failing"
    with live_service(tmp_path / "data", environment=environment(library, failing)) as live:
        with client_of(live) as client:
            client.post("/v1/projects/P", json={})
            client.put("/v1/projects/P/topics/t", json={})
            client.put("/v1/projects/P/subscriptions/s", json={"topic": "projects/P/topics/t"})
        answers = list(under_load(live, failing))
        live.kill()
    done = {each.name for each in answers if each.code == 200}
    unknown = {each.name for each in answers if each.text == UNKNOWN}
    refused = {each.name for each in answers} - done - unknown
    assert {(each.code, each.text) for each in answers if each.name in refused} == {(500, "Backend Error")}

    failing.unlink()
    with live_service(tmp_path / "data") as live, client_of(live) as client:
        found = stored(client)
        assert len(found) == len(set(found))
        assert done <= set(found), "acknowledged, and lost"
        assert not refused & set(found), "refused, and stored"
        assert unknown, "the syncs failed while groups were being written"

        for name in sorted(unknown | refused):
            assert publish(client, name, key=name).code == 200
        assert sorted(stored(client)) == sorted({each.name for each in answers}), "stored twice, or lost"
