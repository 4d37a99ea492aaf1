import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from structlog.testing import capture_logs

from ams.serving import warn_of_plain_http
from ams.settings import Settings
from tests.support.service import running_service

HARMLESS: list[dict[str, Any]] = [
    *({"host": host} for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost")),
    {"host": "::", "cert": "c.pem", "key": "k.pem"},
    {"host": "::", "tls_self_signed": True},
]


@pytest.fixture(autouse=True)
def own_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module a logger that no service of another test has set up."""
    monkeypatch.setattr("ams.serving.logger", structlog.get_logger("ams"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "ams.example"])
def test_an_address_that_others_reach_is_warned_of_when_it_has_no_tls(host: str) -> None:
    with capture_logs() as said:
        warn_of_plain_http(Settings(host=host))

    assert [(each["event"], each["log_level"], each["host"]) for each in said] == [("no_tls", "warning", host)]


@pytest.mark.parametrize("settings", HARMLESS)
def test_what_stays_on_this_machine_or_has_tls_is_not(settings: dict[str, Any]) -> None:
    with capture_logs() as said:
        warn_of_plain_http(Settings(**settings))

    assert said == []


async def test_a_service_that_drains_serves_on_while_it_says_that_it_is_not_ready(tmp_path: Path) -> None:
    ready, stop = asyncio.Event(), asyncio.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with running_service(tmp_path / "data", drain_seconds=1.0) as (run, _):
            urls.extend((run.base_url, run.operations_url))
            ready.set()
            await stop.wait()

    serving = asyncio.create_task(serve())
    await ready.wait()
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(urls[1] + "/readyz")).status_code == 200
        stop.set()
        await asyncio.sleep(0)
        refused = await client.get(urls[1] + "/readyz")
        assert (refused.status_code, refused.text) == (503, "stopping\n")
        assert (await client.get(urls[0] + "/v1/status")).status_code == 200
        await serving
        with pytest.raises(httpx.ConnectError):
            await client.get(urls[0] + "/v1/status")
