from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from ams.serving import warn_of_plain_http
from ams.settings import Settings

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
