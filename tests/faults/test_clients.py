"""A message is recognised, and no change of it goes unnoticed."""

from collections import Counter
from typing import Any

import pytest

from tests.faults.http_client import Traffic
from tests.faults.payload import held, message


def received(name: str, number: int) -> dict[str, Any]:
    body = {**message(name), "messageId": str(number), "publishTime": "2026-01-01T00:00:00Z"}
    return {"ackId": f"projects/P/subscriptions/S:{number}", "message": body}


def test_a_message_as_it_was_published_has_its_name() -> None:
    assert [held(received(f"p1-{number}/0", number)) for number in range(50)] == [
        (number, f"p1-{number}/0") for number in range(50)
    ]


@pytest.mark.parametrize(("field", "value"), [("data", "aGk="), ("messageId", "8"), ("attributes", {"name": "p1-2/0"})])
def test_an_altered_message_has_another_name(field: str, value: object) -> None:
    altered = received("p1-1/0", 7)
    altered["message"][field] = value

    assert held(altered).name != "p1-1/0"


REFUSED = Counter({"acks: 400 wrong ack": 3, "other requests: 400 no ack pending": 2})


@pytest.mark.parametrize(
    ("traffic", "told"),
    [
        (Traffic(refusals=REFUSED), []),
        (Traffic(dropped=2), ["2 requests were never answered, and nobody had killed the service"]),
        (Traffic(without_retry_after=1), ["1 errors of the 500s did not say when to try again"]),
        (
            Traffic(refusals=Counter({"other requests: 500 Backend Error": 7})),
            ["7 times refused for no reason: other requests: 500 Backend Error"],
        ),
    ],
    ids=["nothing wrong", "not answered", "without Retry-After", "refused without a reason"],
)
def test_of_traffic_is_told_what_no_client_may_meet(traffic: Traffic, told: list[str]) -> None:
    assert list(traffic.violations()) == told
