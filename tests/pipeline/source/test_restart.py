"""A service that is killed and started again while a range is read."""

from pathlib import Path
from urllib.parse import urlsplit

from ams.client import Client, Message
from ams.client.wire.projects import create_project
from ams.pipeline.options import Access, Name
from ams.pipeline.service import Service
from ams.pipeline.source.fetching import Fetch, Part
from tests.support.service import live_service

MESSAGES = 12_000
"""Of 4 KiB: more than fits into what a connection holds."""


def test_reading_goes_on_when_the_service_is_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with live_service(data) as first, Client(first.base_url, first.token) as client:
        client.call(create_project("garden"))
        topic = client.project("garden").topic("plants")
        topic.create()
        for _ in range(MESSAGES // 1000):
            topic.publish([Message(bytes(4096))] * 1000)
        access = Access(endpoint=first.base_url, token=first.token, ca=None)
        with Service(access) as service:
            batches = Fetch(service, Part(Name("garden", "plants"), 0, MESSAGES)).batches()
            offsets = next(batches).column("offset").to_pylist()
            first.kill()
            with live_service(data, "--port", str(urlsplit(first.base_url).port)):
                for batch in batches:
                    offsets += batch.column("offset").to_pylist()

    assert offsets == list(range(MESSAGES))
