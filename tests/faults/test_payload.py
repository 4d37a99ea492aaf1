"""A message is recognised, and no change of it goes unnoticed."""

from typing import Any

import pytest

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


def test_messages_have_many_sizes() -> None:
    assert len({len(message(f"p{number}/0")["data"]) // 40 for number in range(200)}) > 3
