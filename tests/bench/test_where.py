"""Where the time of a request goes: a trace of a running server, and the page that shows it."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.goals import reached
from bench.profiles import PUBLISH, STORES, Profile, of_service, together
from bench.run import QUICK, Bench
from bench.steps import PARSE, SEND
from bench.traced import WRITE, Called
from bench.where import BEGIN, END, PAGE, Found, Medians, figures, with_figures

PARSING = ("LimitedProtocol.data_received ams/http/protocol.py",)
PROFILE = Profile(
    PUBLISH,
    1000.0,
    5000.0,
    [(PARSING, 20.0), ((*PARSING, WRITE), 10.0)],
    {STORES: 8.0, "cursors": 0.0, "registry": 1.0},
    3.0,
    {f"{STORES} write_through": Called(100, 0.01, 0.2)},
)


@pytest.mark.embedded("the threads are those of the embedded engine")
def test_a_trace_of_the_service_shows_the_event_loop_the_thread_that_stores_and_the_disk(tmp_path: Path) -> None:
    found = of_service(Bench(QUICK, tmp_path), PUBLISH, seconds=0.5)

    assert found.requests > 0
    assert found.loop > 0
    assert found.threads[STORES] > 0
    assert [name for name in found.disk if name.startswith(f"{STORES} write")]


def test_the_parts_of_a_request_are_its_whole() -> None:
    assert PROFILE.steps() == {PARSE: 20.0, SEND: 10.0}
    assert [took for _, took in PROFILE.aside()] == [6.0, 2.0, 1.0, 3.0]
    assert PROFILE.whole == 42.0
    assert PROFILE.functions() == [(PARSING[0], 20.0), (WRITE, 10.0)]
    assert "a publish of 1 message: 42.0 µs of processor time" in PROFILE.picture()


def test_profiles_count_together_by_their_requests() -> None:
    other = replace(PROFILE, requests=15000.0, stacks=[(PARSING, 40.0)], threads={}, started=0.0, disk={})

    both = together([PROFILE, other])

    assert both.requests == 20000.0
    assert both.steps() == {PARSE: 35.0, SEND: 2.5}
    assert both.threads[STORES] == 2.0
    assert both.disk[f"{STORES} write_through"].calls == 100
    assert together([PROFILE, PROFILE]).whole == PROFILE.whole


def test_the_tables_hold_the_steps_and_what_the_disk_costs() -> None:
    shown = figures(Found(*[PROFILE] * 7, Medians(1.5, 0.5, 0.75)))

    assert f"| {PARSE} | 20.0 | 48 % | 20.0 |" in shown
    assert "| a publish of 1 message | 50.0 | 2.00 | 100 | 2.0 |" in shown
    assert "| the rest | 0.250 |" in shown
    assert "| the caller, the network, and threads that wake up | 924 |" in shown


def test_figures_take_the_place_of_those_before() -> None:
    page = with_figures(with_figures(f"before\n{BEGIN}\n{END}\nafter\n", "old"), "new")

    assert page == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


def test_the_page_has_its_marks() -> None:
    assert with_figures(PAGE.read_text(), "figures")
    with pytest.raises(ValueError, match="lacks"):
        with_figures("a page", "figures")


def test_the_last_full_run_of_a_case_counts_and_cases_without_a_goal_are_left_out(tmp_path: Path) -> None:
    def run(quick: bool, *results: dict[str, object]) -> bytes:
        return msgspec.json.encode({"quick": quick, "results": results}) + b"\n"

    def result(case: str, ratio: float, goal: str | None = ">= 0.9") -> dict[str, object]:
        met = None if goal is None else ratio >= 0.9
        return {"case": case, "params": {"n": 1}, "ratio": ratio, "against": "bare", "goal": goal, "met": met}

    history = tmp_path / "history"
    assert reached(history) == []
    history.write_bytes(
        run(False, result("a", 0.5), result("b", 1.0), result("c", 1.0, None))
        + run(False, result("a", 0.95))
        + run(True, result("b", 0.1))
    )

    assert reached(history) == [("a n=1", "0.95", "bare", ">= 0.9", "met"), ("b n=1", "1.00", "bare", ">= 0.9", "met")]
