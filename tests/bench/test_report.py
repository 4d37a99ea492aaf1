"""What a bench says."""

from bench.report import Result, at_least, at_most, table
from bench.soak import Minute, verdict


def test_a_goal_is_met_at_its_limit() -> None:
    assert at_least(0.6).is_met(0.6)
    assert at_most(1.2).is_met(1.2)
    assert not at_least(0.6).is_met(0.59)


def test_a_case_without_a_goal_is_neither_met_nor_missed() -> None:
    assert Result("tls", {}, {"calls_s": 1.0}, 0.5).as_json()["met"] is None


def test_the_table_names_missed_goals() -> None:
    result = Result("ack", {"connections": 64}, {"requests_s": 12345.678}, 0.5, "bare", at_least(0.6))

    assert table([result]).splitlines()[1] == "ack connections=64  0.50   >= 0.6  MISSED  requests_s 12346"


def test_a_soak_is_flat_when_its_last_quarter_is_like_its_second() -> None:
    assert verdict([Minute(1000, 1000, 5.0, 100.0, 50.0, 0)] * 8) == []


def test_a_soak_that_grows_is_told() -> None:
    minutes = [Minute(1000, 1000, 5.0 * each, 100.0 * each, 50.0, 0) for each in range(1, 9)]

    assert verdict(minutes) == ["memory grew from 350 to 750 MB", "p99 grew from 17.5 to 37.5 ms"]


def test_a_soak_that_was_too_short_is_not_called_flat() -> None:
    assert verdict([Minute(1000, 1000, 5.0, 100.0, 50.0, 0)] * 3) == [
        "3 minutes are too few to tell; there must be four"
    ]
