"""Figures for Prometheus, from a running service."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.served import Served, served


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "with labels"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("watched") / "ams-data"
    with served(folder, metrics_labels=request.param) as service:
        work(service)
        yield service


def work(service: Served) -> None:
    """Publish 3 messages, pull 2 and acknowledge them; ask for something that is not there."""
    base, key = service.run.base_url + "/v1/projects/P", {"x-api-key": service.token}
    with httpx.Client(headers=key, trust_env=False) as http:
        http.post(base, json={})
        http.put(f"{base}/topics/T")
        http.put(f"{base}/subscriptions/S", json={"topic": "projects/P/topics/T"})
        http.post(f"{base}/topics/T:publish", json={"messages": [{"data": "aGk="}] * 3})
        http.post(f"{base}/subscriptions/S:pull", json={"maxMessages": 2})
        http.post(f"{base}/subscriptions/S:acknowledge", json={"ackIds": ["projects/P/subscriptions/S:1"]})
        http.get(f"{base}/topics/none")
        http.get(f"{base}//topics/T")


def figures(service: Served) -> dict[str, float]:
    text = httpx.get(service.run.operations_url + "/metrics", trust_env=False).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ams_")]
    return {name: float(value) for name, value in lines}


def test_what_the_service_did_is_counted(service: Served) -> None:
    count_now(service)

    told = figures(service)

    assert told["ams_published_messages_total"] == 3
    assert told["ams_published_bytes_total"] == 12
    assert told["ams_delivered_messages_total"] == 2
    assert told["ams_acknowledgements_total"] == 1
    assert told["ams_lost_messages_total"] == 0
    assert told['ams_requests_total{status="2xx"}'] == 6
    assert told['ams_requests_total{status="3xx"}'] == 1
    assert told['ams_requests_total{status="4xx"}'] == 1
    assert told['ams_requests_total{status="5xx"}'] == 0


def test_topics_are_named_only_when_that_is_set(service: Served) -> None:
    count_now(service)
    allowed = service.run.service.settings.metrics_labels

    labelled = {name: value for name, value in figures(service).items() if "topic=" in name}

    assert labelled == ({'ams_topic_published_messages_total{project="P",topic="T"}': 3} if allowed else {})


def count_now(service: Served) -> None:
    """Have the service count now."""
    asyncio.run_coroutine_threadsafe(service.run.service.counting.round(), service.loop).result(10)
