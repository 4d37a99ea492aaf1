"""A start waits for what is on other machines, and says so."""

import pytest
import structlog
from structlog.testing import capture_logs

from ams.app.wiring import engines
from ams.app.wiring.engines import patiently
from ams.core.backoff import Backoff
from ams.core.errors import RegistryUnavailable, Unusable


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BACKOFF", Backoff(0.0, 5.0))
    monkeypatch.setattr(engines, "logger", structlog.get_logger("ams"))


def failing(*reasons: str):
    left = list(reasons)

    async def attempt() -> str:
        if left:
            raise RegistryUnavailable from OSError(left.pop(0))
        return "opened"

    return attempt


async def test_what_comes_in_time_is_opened_and_each_reason_is_said_once() -> None:
    told: list[str] = []
    with capture_logs() as said:
        assert await patiently("PostgreSQL", failing("refused", "starting up", "refused"), told.append) == "opened"

    assert told == ["PostgreSQL: refused", "PostgreSQL: starting up", "PostgreSQL: refused", ""]
    assert [(each["event"], each.get("reason")) for each in said] == [
        ("start.waiting", "refused"), ("start.waiting", "starting up"), ("start.going_on", None),
    ]  # fmt: skip


async def test_what_is_there_is_opened_without_a_word() -> None:
    told: list[str] = []
    assert await patiently("Kafka", failing(), told.append) == "opened"
    assert told == []


async def test_what_cannot_be_used_ends_the_start() -> None:
    async def attempt() -> str:
        raise Unusable("another version")

    with pytest.raises(Unusable, match="another version"):
        await patiently("PostgreSQL", attempt, lambda _: None)
