import re
from datetime import UTC, date, datetime

import pytest

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.usage.job import Options
from ams.pipeline.jobs.usage.report import Month, Usage, as_csv, as_page, as_text, following

AT = datetime(2024, 2, 29, 10, 20, 30, 123000, tzinfo=UTC)


def usage(topic: str, day: int | None, messages: int = 86400, publisher: str = "") -> Usage:
    return Usage(
        project="meadow", topic=topic, publisher=publisher, date=day and date(2024, 2, day), messages=messages,
        bytes=1024 * messages, p95_bytes=1024.5, largest_bytes=2048, busiest_minute=70, first=AT, last=AT,
    )  # fmt: skip


def test_a_month_as_text() -> None:
    month = Month("2024-02", [usage("plants", 29)], [usage("plants", None)], by_publisher=False)

    assert as_text(month).splitlines() == [
        "PROJECT  TOPIC   MESSAGES       BYTES  P95 BYTES  LARGEST  PER SECOND  BUSIEST MINUTE",
        "meadow   plants    86,400  88,473,600   1,024.50    2,048        0.03              70",
    ]


def test_a_month_as_csv() -> None:
    month = Month("2024-02", [usage("plants", 29, publisher='a,"b')], [], by_publisher=True)

    assert as_csv(month).splitlines()[1] == (
        '2024-02-29,meadow,plants,"a,""b",86400,88473600,1024.5,2048,1.0,70,'
        "2024-02-29T10:20:30.123Z,2024-02-29T10:20:30.123Z"
    )


def test_a_page_names_the_largest_and_puts_the_rest_together() -> None:
    topics = [f"topic-{number}" for number in range(9)]
    days = [usage(topic, 1, 100 - number) for number, topic in enumerate(topics)]
    month = Month("2024-02", days, [usage(topic, None, 100 - number) for number, topic in enumerate(topics)], False)

    page = as_page(month)

    assert set(re.findall(r"meadow/topic-\d", page)) == {f"meadow/topic-{number}" for number in range(7)}
    assert "others" in page
    assert page.count("<svg") == 2


def test_a_month_without_messages_has_a_page_too() -> None:
    month = Month("2024-02", [], [], by_publisher=False)

    assert "0 messages" in as_page(month)
    assert len(month.all_days) == 29


def test_a_page_escapes_what_publishers_call_themselves() -> None:
    evil = usage("plants", 1, publisher="<script>alert(1)</script>")

    assert "<script>" not in as_page(Month("2024-02", [evil], [evil], by_publisher=True))


def test_the_month_after() -> None:
    assert following(date(2023, 12, 1)) == date(2024, 1, 1)


def test_a_month_that_is_none_is_refused() -> None:
    with pytest.raises(WrongOption, match=re.escape("option month: 'May' is no month such as 2024-03")):
        Options(month="May")
    with pytest.raises(WrongOption, match="is no month"):
        Options(month="9999-12")
    with pytest.raises(WrongOption, match="option topics: names no topic"):
        Options(topics=())
