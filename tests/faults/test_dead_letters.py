"""Dead letters through kill -9 of the service: once each, in order, and none is lost."""

import json
import ssl
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.faults

WORKER = "the-token-of-the-push-worker"
SUB = "projects/P/subscriptions/S"
MESSAGES = 120
KILLS = 2
PATIENCE = 60
"""Seconds for everything."""


class DeadLettering(threading.Thread):
    """A worker that puts one message after the other aside, each with other words, until the service is gone."""

    def __init__(self, live: LiveService, done: list[int], life: int) -> None:
        super().__init__(daemon=True)
        self._live = live
        self._done = done
        self._life = life

    def run(self) -> None:
        with client(self._live) as asks:
            while len(self._done) < MESSAGES:
                offset = len(self._done)
                letter = {"ackId": f"{SUB}:{offset}", "reason": f"life {self._life}", "attempts": 5, "status": 500}
                try:
                    answer = asks.post(f"/v1/{SUB}:deadLetter", json=letter, headers={"x-api-key": WORKER})
                except httpx.TransportError:
                    return
                assert answer.status_code == 200, answer.text
                self._done.append(offset)


def client(live: LiveService) -> httpx.Client:
    trusted = ssl.create_default_context(cafile=str(live.ca))
    return httpx.Client(
        base_url=live.base_url, trust_env=False, verify=trusted, timeout=10, headers={"x-api-key": live.token}
    )


def furnish(live: LiveService) -> None:
    with client(live) as asks:
        asks.post("/v1/projects/P", json={}).raise_for_status()
        for topic in ("T", "D"):
            asks.put(f"/v1/projects/P/topics/{topic}").raise_for_status()
        push = {"pushEndpoint": "https://receiver.example/in", "deadLetterTopic": "D"}
        asks.put(f"/v1/{SUB}", json={"topic": "projects/P/topics/T", "pushConfig": push}).raise_for_status()
        messages = [{"attributes": {"n": str(number)}} for number in range(MESSAGES)]
        asks.post("/v1/projects/P/topics/T:publish", json={"messages": messages}).raise_for_status()


def test_every_message_is_put_aside_once_and_in_order_through_kills(tmp_path: Path) -> None:
    flags = ("--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0", "--push-enabled")
    done: list[int] = []
    until = time.monotonic() + PATIENCE
    life = 0
    while len(done) < MESSAGES:
        assert time.monotonic() < until
        with live_service(tmp_path / "ams-data", *flags, "--push-worker-token", WORKER) as live:
            if life == 0:
                furnish(live)
            worker = DeadLettering(live, done, life)
            worker.start()
            if life < KILLS:
                enough = len(done) + MESSAGES // 4
                while len(done) < enough and worker.is_alive():
                    time.sleep(0.0005)
                live.kill()
            worker.join(timeout=PATIENCE)
            assert not worker.is_alive()
            if len(done) == MESSAGES:
                with client(live) as asks:
                    read = asks.get("/v1/projects/P/topics/D:read", params={"max": str(2 * MESSAGES)})
                    offsets = asks.get(f"/v1/{SUB}:offsets").json()
        life += 1

    letters = [line for line in read.text.splitlines() if line]
    found = [json.loads(line)["attributes"] for line in letters]
    assert [int(each["deadLetterMessageId"]) for each in found] == list(range(MESSAGES))
    assert all(each["n"] == each["deadLetterMessageId"] for each in found)
    assert len({each["deadLetterReason"] for each in found}) > 1
    assert offsets["current"] == MESSAGES
