import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.access.admission import Admission
from ams.core.clock import Milliseconds
from ams.core.names import TopicName
from ams.service import metrics
from ams.service.metrics import NEVER, Metrics, Usage, average, rate
from ams.service.retention import Losses
from ams.storage.database.sqlite import SqliteStore
from ams.storage.registry.counts import Rate
from ams.wire.service import Point
from tests.support.use_cases import SUB, TOPIC, open_use_cases

NOW = Milliseconds(1_700_000_000_000)
SHOWN = "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("made_of", "shown"),
    [
        (Rate(), Point(NEVER, 0.0)),
        (Rate(5, NOW), Point(SHOWN, 5.0)),
        (Rate(5, NOW, Milliseconds(NOW - 2_000)), Point(SHOWN, 2.5)),
        (Rate(5, NOW, NOW), Point(SHOWN, 5_000.0)),
        (Rate(5, NOW, Milliseconds(NOW + 60_000)), Point(SHOWN, 5_000.0)),
        (Rate(0, NOW, Milliseconds(NOW - 500)), Point(SHOWN, 0.0)),
        (Rate(1, NOW, Milliseconds(NOW - 3_000)), Point(SHOWN, 0.333333)),
        (Rate(1, NOW, Milliseconds(NOW - 3_000_000_000)), Point(SHOWN, 3.33333e-07)),
        (Rate(2_000, NOW, Milliseconds(NOW - 3_000)), Point(SHOWN, 666.667)),
    ],
    ids=[
        "never", "the first", "two seconds", "at once", "the clock was set back", "nothing", "a third",
        "next to nothing", "many",
    ],
)  # fmt: skip
def test_o5_a_rate_is_messages_by_the_seconds_between(made_of: Rate, shown: Point) -> None:
    assert rate(made_of) == shown


async def test_o11_a_route_asks_the_registry_a_few_times_however_much_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_use_cases(tmp_path) as use_cases:
        engines, caller = use_cases.engines, use_cases.caller
        for number in range(20):
            await engines.topics.create(caller, TopicName(f"t{number}"))
        await use_cases.publish(1)
        await engines.counting.round()
        losses = Losses(engines.registry, engines.log, engines.cursors)
        metrics = Metrics(engines.registry, engines.counting, losses, engines.clock)
        usage = Usage(engines.registry, engines.counting, Admission(engines.registry), engines.clock)
        asked = []
        attempt, store = SqliteStore._attempt, engines.registry._database._store

        def counted(self: SqliteStore, work: Any, begin: str) -> Any:
            if self is store:  # services of other tests may run in this process
                asked.append(begin)
            return attempt(self, work, begin)

        monkeypatch.setattr(SqliteStore, "_attempt", counted)
        for route, most in (
            (metrics.node(), 0),
            (metrics.project(caller), 2),
            (metrics.topic(caller, TOPIC), 3),
            (metrics.subscription(caller, SUB), 2),
            (usage.va_metrics("", "", ""), 2),
        ):
            asked.clear()
            await route
            assert len(asked) <= most
            assert set(asked) <= {"BEGIN"}, "a GET writes nothing (O1)"


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_an_average_is_never_below_the_exact_one_nor_a_hundredth_above(messages: int, days: int) -> None:
    cents = round(average(messages, days) * 100)

    assert 0 <= Fraction(cents, 100) - Fraction(messages, days) < Fraction(1, 100)


def test_shares_are_percentages() -> None:
    assert 0 < metrics.memory_percent() < 100
    assert 0 <= metrics.cpu_percent() <= 101 * (os.cpu_count() or 1)
    assert metrics.host_name()


def test_o2_nothing_fails_where_the_kernel_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("builtins.open", missing)
    assert 0 < metrics.memory_percent() < 100

    monkeypatch.setattr(os, "sysconf", missing)
    assert metrics.memory_percent() == 0.0
