"""Monitoring results out of messages, and what is refused of them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.results import Shape, parse_as, response_time
from tests.pipeline.jobs.availability.support import datum, record

RESULT = record(
    "2024-03-05T10:20:30Z",
    "webdav",
    "w1.site-a.example",
    "ch.cern.WebDAV",
    "WARNING",
    monitoring_host="mon1.example.org",
    actual_data="time=2.227776s;;;0.000000 size=69485B;;;0",
    summary="slow",
    tags={"endpoint_group": "SITE-A", "vofqan": None},
)
SHAPES: list[Shape] = ["current", "without_actual_data", "actual_data_last"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_is_read_in_the_shape_it_was_written_in(shape: Shape) -> None:
    [found] = parse_as(shape)(datum(RESULT, shape), {"partition_date": "2024-03-05"})

    assert found == {
        "date": "2024-03-05",
        "timestamp": datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC),
        "service": "webdav",
        "hostname": "w1.site-a.example",
        "metric": "ch.cern.WebDAV",
        "status": "WARNING",
        "monitoring_host": "mon1.example.org",
        "summary": "slow",
        "message": "",
        "response_time": None if shape == "without_actual_data" else 2.227776,
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a datum of the schema current"),
        (datum(RESULT)[:-3], "not a datum of the schema current"),
        (datum(RESULT) + b"\x00", "1 bytes after the datum of the schema current"),
        (datum({**RESULT, "status": "SLEEPY"}), "status 'SLEEPY' is none of OK, WARNING, UNKNOWN, MISSING, DOWNTIME"),
        (datum({**RESULT, "hostname": ""}), "hostname is empty"),
        (datum({**RESULT, "timestamp": "yesterday"}), "timestamp 'yesterday': a time is written as 2024-03-05T10:20"),
        (datum({**RESULT, "timestamp": "2024-02-30T00:00:00Z"}), "timestamp '2024-02-30T00:00:00Z': day is out of"),
        (datum({**RESULT, "timestamp": "0001-01-01T00:00:00Z"}), "timestamp 0001-01-01T00:00:00Z lies before 1970"),
        (datum({**RESULT, "timestamp": "2242-03-05T10:20:30Z"}), "timestamp 2242-03-05T10:20:30Z lies in the future"),
        (datum({**RESULT, "timestamp": "2042-03-05T10:20:30Z"}), "timestamp 2042-03-05 is not of the partition_date"),
    ],
)
def test_what_is_no_result_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Broken) as refused:
        list(parse_as("current", latest=2**32)(data, {"partition_date": "2024-03-05"}))

    assert str(refused.value).startswith(reason)


@pytest.mark.parametrize("attributes", [{}, {"partition_date": "2024-03-06"}, {"partition_date": "today"}])
def test_the_result_itself_says_its_day(attributes: dict[str, str]) -> None:
    [found] = parse_as("current")(datum(RESULT), attributes)

    assert found["date"] == "2024-03-05"


@given(
    st.binary(max_size=200) | st.builds(lambda cut, data: datum(RESULT)[:cut] + data, st.integers(0, 150), st.binary())
)
def test_any_bytes_are_either_read_or_refused(data: bytes) -> None:
    try:
        found = list(parse_as("current")(data, {}))
    except Broken:
        return

    assert len(found) == 1


@pytest.mark.parametrize(
    ("performance", "seconds"),
    [
        ("time=0.5s;;;0.000000", 0.5),
        ("size=6B;;;0 time=250ms;;;0", 0.25),
        ("'time'=3", 3.0),
        ("uptime=4s", None),
        ("time=fast", None),
        ("time=1.2.3s", None),
        ("", None),
    ],
)
def test_the_response_time_is_the_time_of_the_performance_data(performance: str, seconds: float | None) -> None:
    assert response_time(performance) == seconds
