import json
from collections.abc import Iterator

import pytest

from demo import pushing
from demo.ledger import Ledger, Message
from demo.pushing import Receiver

WET = Message({"bed": "roses"}, b"wet")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with pushing.receiving() as running:
        yield running


@pytest.fixture
def published() -> Ledger:
    ledger = Ledger("readings")
    ledger.sent(["0", "1"], [Message({}, b"dry"), WET])
    return ledger


def delivery(**data: str) -> bytes:
    """A body with messages by id; their data is base64."""
    messages = [{"messageId": name.removeprefix("id_"), "data": each} for name, each in data.items()]
    return json.dumps(
        {"messages": [{"message": each, "subscription": "projects/P/subscriptions/S"} for each in messages]}
    ).encode()


def test_what_was_delivered_as_it_went_in_is_counted_once_however_often_it_came(
    receiver: Receiver, published: Ledger
) -> None:
    wet = {"message": {"messageId": "1", "data": "d2V0", "attributes": {"bed": "roses"}}}
    receiver.note(delivery(id_0="ZHJ5"))
    receiver.note(delivery(id_0="ZHJ5"))
    receiver.note(json.dumps({"messages": [wet]}).encode())

    assert pushing.outcome(published, receiver) == (2, 2, 3)


def test_what_came_altered_is_not_counted(receiver: Receiver, published: Ledger) -> None:
    receiver.note(delivery(id_0="ZHJ5", id_1="d2V0"))

    outcome = pushing.outcome(published, receiver)

    assert (outcome.delivered, outcome.is_whole) == (1, False)
