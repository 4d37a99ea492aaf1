"""Metrics: rates, the requests of a route for them, and a day's history with restarts, gaps and changes of node."""

import os
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.access.admission import Admission
from ams.cluster.lease_table import Duty
from ams.core.clock import resource_date
from ams.core.errors import Unavailable
from ams.core.names import topic_id_text
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.service import metrics
from ams.service.history import HISTORY_MINUTES, MINUTE_MS, MetricsHistory, Values, _series
from ams.service.metrics import NEVER, Metrics, _va_metrics, average, rate
from ams.service.retention import Losses
from ams.storage.database.sqlite import SqliteStore
from ams.storage.files import Disk
from ams.storage.free_space import FreeSpace
from ams.storage.registry.counts import Rate
from ams.storage.registry.history import FileHistory, HistoryRow, SharedHistory
from ams.wire.service import History, Point, ProjectUsage
from tests.support.administration import age_leases, open_registry_at
from tests.support.clock import ManualClock
from tests.support.use_cases import SUB, TOPIC, UseCases, open_use_cases
from tests.support.waiting import wait_until_async

NOW = 1_700_000_000_000
SHOWN_TIME = "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(("made_of", "shown"), [
    (Rate(), Point(NEVER, 0.0)), (Rate(5, NOW), Point(SHOWN_TIME, 5.0)),
    (Rate(5, NOW, NOW - 2_000), Point(SHOWN_TIME, 2.5)), (Rate(5, NOW, NOW), Point(SHOWN_TIME, 5_000.0)),
    (Rate(5, NOW, NOW + 60_000), Point(SHOWN_TIME, 5_000.0)), (Rate(0, NOW, NOW - 500), Point(SHOWN_TIME, 0.0)),
    (Rate(1, NOW, NOW - 3_000), Point(SHOWN_TIME, 0.333333)),
    (Rate(1, NOW, NOW - 3_000_000_000), Point(SHOWN_TIME, 3.33333e-07)),
    (Rate(2_000, NOW, NOW - 3_000), Point(SHOWN_TIME, 666.667)),
], ids=[
    "never", "the first", "two seconds", "at once", "the clock was set back", "nothing", "a third",
    "next to nothing", "many",
])  # fmt: skip
def test_o5_a_rate_is_messages_by_the_seconds_between(made_of: Rate, shown: Point) -> None:
    assert rate(made_of) == shown


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_an_average_is_never_below_the_exact_one_nor_a_hundredth_above(messages: int, days: int) -> None:
    cents = round(average(messages, days) * 100)
    assert 0 <= Fraction(cents, 100) - Fraction(messages, days) < Fraction(1, 100)


def test_the_average_of_all_is_the_sum_of_the_rounded_ones() -> None:
    used = [ProjectUsage(name, 0, average, 0, 0, 0) for name, average in (("P", 0.1), ("Q", 0.2))]
    assert _va_metrics(used).projects_metrics.average_daily_messages == 0.3


async def test_o11_a_route_asks_the_registry_only_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_use_cases(tmp_path) as use_cases:
        engines, caller = use_cases.engines, use_cases.caller
        for number in range(20):
            await engines.topics.create(caller, f"t{number}")
        await use_cases.publish(1)
        await engines.counting.round()
        losses = Losses(engines.registry, engines.log, engines.cursors)
        admission = Admission(engines.registry)
        metrics = Metrics(engines.registry, engines.counting, losses, engines.clock, admission)
        asked = []
        attempt, store = SqliteStore._attempt, engines.registry._database._store

        def count_attempt(self: SqliteStore, work: Any, begin: str) -> Any:
            if self is store:  # services of other tests may run in this process
                asked.append(begin)
            return attempt(self, work, begin)

        monkeypatch.setattr(SqliteStore, "_attempt", count_attempt)
        for route, most in (
            (metrics.node(), 0), (metrics.project(caller), 2), (metrics.topic(caller, TOPIC), 3),
            (metrics.subscription(caller, SUB), 2), (metrics.va_metrics("", "", ""), 2),
        ):  # fmt: skip
            asked.clear()
            await route
            assert len(asked) <= most
            assert set(asked) <= {"BEGIN"}, "a GET writes nothing (O1)"


def test_o2_nothing_fails_where_the_kernel_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_missing(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("builtins.open", raise_missing)
    assert 0 < metrics.memory_percent() < 100

    monkeypatch.setattr(os, "sysconf", raise_missing)
    assert metrics.memory_percent() == 0.0


HOUR = ["t"], ["s"], "hour"
DAY = ["t"], ["s"], "day"
Asked = tuple[list[str], list[str], str]


class Watch:
    def __init__(self, cases: UseCases, path: Path) -> None:
        self.cases, self.path = cases, path
        self.history = self.new()

    def new(self) -> MetricsHistory:
        engines = self.cases.engines
        store = FileHistory(str(self.path))
        retention_clock = RetentionClock(engines.clock)
        return MetricsHistory(engines.registry, engines.log, engines.cursors, engines.clock, retention_clock, store)

    async def minute(self, publish: int = 0, *, measured: bool = True) -> None:
        if publish:
            await self.cases.publish(publish)
        await self.cases.engines.counting.round()
        self.cases.engines.clock.advance(MINUTE_MS)
        if measured:
            await self.history.round()

    async def read_history(self, asked: Asked = HOUR) -> History:
        return await self.history.read(self.cases.caller, *asked)

    async def read_growth(self, asked: Asked = HOUR) -> list[int | None]:
        return (await self.read_history(asked)).topics["t"].published


def minute_text(moment: int) -> str:
    """Return the beginning of a moment's minute."""
    return resource_date(moment // MINUTE_MS * MINUTE_MS)


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    async with open_use_cases(tmp_path) as cases:
        made = Watch(cases, tmp_path / "history.db")
        await made.history.round()
        yield made


async def test_each_interval_says_what_was_published_in_it(watch: Watch) -> None:
    for count in (3, 0, 2):
        await watch.minute(count)

    found = await watch.read_history()

    assert found.topics["t"].published[-4:] == [None, 3, 0, 2]
    assert found.project is not None
    assert found.project.published[-3:] == [3, 0, 2]
    assert (found.interval, len(found.topics["t"].published)) == (60, 60)
    now = watch.cases.engines.clock.wall()
    assert (found.start, found.end) == (minute_text(now - 60 * MINUTE_MS), minute_text(now))


async def test_lag_and_age_are_those_at_the_end_of_the_interval(watch: Watch) -> None:
    await watch.minute(3)
    await watch.minute()
    deliverer = watch.cases.deliverer()
    await deliverer.pull(await deliverer.to_acknowledge(watch.cases.caller, SUB), 3, wait=False)
    await watch.cases.acknowledge([1])
    await watch.minute()

    subscription = (await watch.read_history()).subscriptions["s"]

    assert subscription.lag[-3:] == [3, 3, 1]
    published, end = 3 * MINUTE_MS, watch.cases.engines.clock.wall() % MINUTE_MS  # milliseconds ago
    assert subscription.oldest_unacked_seconds[-1] == (published - end) // 1000


async def test_what_is_unchanged_for_hours_is_known_all_the_same(watch: Watch) -> None:
    for _ in range(5):  # an interval of the day begins with the last value of the one before
        await watch.minute()
    await watch.minute(5)
    for _ in range(130):
        await watch.minute()

    assert (await watch.read_history()).subscriptions["s"].lag == [5] * 60
    day = await watch.read_history(DAY)
    assert sum(each or 0 for each in day.topics["t"].published) == 5
    assert day.subscriptions["s"].lag[-20:] == [5] * 20
    await watch.history.close()
    topic = await watch.cases.publisher.topic(watch.cases.caller, "t")
    rows = await watch.history.store.read([topic_id_text(topic.id)], 0)
    assert [len(row.data) for row in rows[1:]] == [33] * (len(rows) - 1), "a quiet topic costs a row an hour"
    assert len(rows) > 2


async def test_a_restart_loses_nothing_that_was_written_and_counts_nothing_twice(watch: Watch) -> None:
    await watch.minute(3)
    await watch.history.close()
    await watch.minute(4, measured=False)
    watch.history = watch.new()
    await watch.history.round()
    await watch.minute(2)

    assert (await watch.read_growth())[-3:] == [3, 4, 2]


async def test_minutes_in_which_nothing_was_measured_are_unknown_and_their_messages_in_no_other(watch: Watch) -> None:
    await watch.minute(3)
    await watch.minute(100, measured=False)
    await watch.minute(0)
    await watch.minute(2)

    assert (await watch.read_growth())[-4:] == [3, None, None, 2]


async def test_a_kill_takes_the_minutes_since_the_last_write_and_no_more(watch: Watch) -> None:
    for count in range(1, 9):
        await watch.minute(count)
    watch.history = watch.new()  # nothing was closed

    written = [each for each in await watch.read_growth() if each is not None]
    assert written == list(range(1, len(written) + 1))
    assert len(written) >= 8 - FileHistory.write_minutes


async def test_a_topic_that_is_made_again_has_no_past(watch: Watch) -> None:
    await watch.minute(3)
    topics, caller = watch.cases.engines.topics, watch.cases.caller
    await topics.delete(caller, "t")
    await topics.create(caller, "t")
    await watch.minute(1)

    assert (await watch.read_history((["t"], [], "hour"))).topics["t"].published[-2:] == [0, 1]


async def test_the_first_minute_of_a_service_is_known(watch: Watch) -> None:
    await watch.minute(measured=False)
    watch.history = watch.new()
    now = watch.cases.engines.clock.wall()
    await watch.history.start(Supervisor())

    async def is_measured() -> bool:
        return (await watch.read_history()).end == minute_text(now)

    await wait_until_async(is_measured)
    await watch.history.close()
    await watch.minute(7)

    assert (await watch.read_growth())[-1] == 7


async def test_rows_are_removed_after_a_day(watch: Watch) -> None:
    for _ in range(HISTORY_MINUTES // 60 + 3):
        watch.cases.engines.clock.advance(59 * MINUTE_MS)
        await watch.minute()
    first = watch.cases.engines.clock.wall() // MINUTE_MS - HISTORY_MINUTES

    rows = await watch.history.store.read(["service"], 0)

    assert rows
    assert all(row.began >= first for row in rows)


async def test_a_clock_that_leaps_ahead_removes_no_rows(watch: Watch) -> None:
    await watch.minute()
    before = await watch.history.store.read(["service"], 0)
    watch.cases.engines.clock.step(8 * HISTORY_MINUTES * MINUTE_MS)
    await watch.minute()
    watch.cases.engines.clock.step(-8 * HISTORY_MINUTES * MINUTE_MS)

    assert before
    assert {row.began for row in before} <= {row.began for row in await watch.history.store.read(["service"], 0)}


MINUTES = st.integers(0, 100)


@given(st.dictionaries(MINUTES, st.tuples(st.integers(0, 9), *[st.just(0)] * 3)), st.sets(MINUTES))
def test_a_series_is_what_was_noted_last_at_each_look(records: dict[int, Values], looks: set[int]) -> None:
    for look, found in zip(sorted(looks), _series(records, sorted(looks)), strict=True):
        before = [minute for minute in records if minute <= look]
        assert found == (records[max(before)] if before else (0, 0, 0, 0))


async def test_a_file_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"no database" * 1000)

    store = FileHistory(str(path))
    await store.write([HistoryRow("a", 1, b"x")], 0)

    assert await store.read(["a"], 0) == [HistoryRow("a", 1, b"x")]


class FillingDisk(FreeSpace):
    is_full = False

    def growth_refusal(self) -> str | None:
        return "full" if self.is_full else None


async def test_while_the_disk_has_little_space_old_rows_go_and_no_new_ones_are_written(tmp_path: Path) -> None:
    disk = FillingDisk(Disk(), "/", 0)
    store = FileHistory(str(tmp_path / "history.db"), disk)
    await store.write([HistoryRow("a", 1, b"old")], 0)

    disk.is_full = True
    with pytest.raises(Unavailable, match="^The history cannot be written: full$"):
        await store.write([HistoryRow("a", 9, b"new")], 5)
    assert await store.read(["a"], 0) == []

    disk.is_full = False
    await store.write([HistoryRow("a", 9, b"new")], 5)
    assert await store.read(["a"], 0) == [HistoryRow("a", 9, b"new")]


@pytest.mark.postgres
async def test_of_several_nodes_one_measures_and_another_takes_over(postgres_url: str) -> None:
    async with open_registry_at(postgres_url, ManualClock()) as registry:
        one, other, history = Duty(registry), Duty(registry), SharedHistory(registry.shared.database)

        assert [await one.is_own(), await other.is_own(), await one.is_own()] == [True, False, True]
        await history.write([HistoryRow("a", 60, b"x"), HistoryRow("a", 0, b"old")], 0)
        await history.write([HistoryRow("a", 60, b"xy")], 30)
        assert await history.read(["a", "b"], 0) == [HistoryRow("a", 60, b"xy")]

        await age_leases(registry, 200_000)
        assert [await other.is_own(), await one.is_own()] == [True, False]
