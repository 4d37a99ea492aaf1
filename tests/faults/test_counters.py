"""SIGKILL between publishes: what a restarted service counts is what its log holds."""

import time
from pathlib import Path

import httpx
import pytest

from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.faults

FLAGS = ("--min-free-bytes", "0", "--reserve-bytes", "0")
KILLS = 2


class Api:
    """Topic T of project P of a service."""

    def __init__(self, live: LiveService) -> None:
        key = {"x-api-key": live.token}
        self._http = httpx.Client(base_url=f"{live.base_url}/v1", headers=key, trust_env=False, timeout=10)

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def make(self) -> None:
        self._http.post("/projects/P", json={}).raise_for_status()
        self._http.put("/projects/P/topics/T").raise_for_status()
        self._http.put("/projects/P/subscriptions/S", json={"topic": "projects/P/topics/T"}).raise_for_status()

    def publish(self, count: int) -> None:
        body = {"messages": [{"data": "aGk="}] * count}
        self._http.post("/projects/P/topics/T:publish", json=body).raise_for_status()

    def values(self, path: str) -> dict[str, int]:
        """Return the sum of the points of each metric."""
        metrics = self._http.get(f"/projects/P{path}:metrics").raise_for_status().json()["metrics"]
        return {each["metric"]: sum(point["value"] for point in each["timeseries"]) for each in metrics}

    def end(self) -> int:
        return int(self._http.get("/projects/P/subscriptions/S:offsets").raise_for_status().json()["max"])


def check(api: Api, published: int) -> None:
    """Check that topic, days and project count what is in the log."""
    topic = api.values("/topics/T")

    assert api.end() == published
    assert topic["topic.number_of_messages"] == published
    assert topic["topic.number_of_bytes"] == 4 * published
    assert topic["topic.number_of_daily_messages"] == published
    assert api.values("")["project.number_of_daily_messages"] == published


def test_counters_equal_the_log_after_kills(tmp_path: Path) -> None:
    published = 0
    for kill in range(KILLS):
        with live_service(tmp_path / "data", *FLAGS) as live:
            with Api(live) as api:
                if not kill:
                    api.make()
                check(api, published)
                for count in (1, 7, 3):
                    api.publish(count)
                    published += count
                    # So that some of it is killed before a round of counting, and some after one.
                    time.sleep(0.7 * kill)
            live.kill()

    for _ in ("after the last kill", "after an orderly stop"):
        with live_service(tmp_path / "data", *FLAGS) as live, Api(live) as api:
            check(api, published)
