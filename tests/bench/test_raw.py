"""Raw appends: what stores without answering. No test asserts a time: machines differ."""

from pathlib import Path

import pytest

from bench import preparing
from bench.processes import Service
from bench.raw import requests_per_second, stored_bytes


def test_writers_get_on_and_leave_nothing_behind(tmp_path: Path) -> None:
    assert requests_per_second(tmp_path, writers=3, messages=2, seconds=0.2) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.embedded("the bytes are those of the embedded engine")
def test_raw_appends_are_as_large_as_what_the_service_stores(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        [topic] = preparing.topics(service, preparing.project(service, "P"), "raw", 1)
        preparing.fill(service, [topic], 1000, per_request=100)
    stored = sum(len(each.read_bytes().rstrip(b"\0")) for each in (tmp_path / "data" / "log").rglob("*.log"))

    assert stored == pytest.approx(10 * stored_bytes(100), rel=0.01)
