"""Push of a parallel subscription, end to end: several deliveries at a time, keys in order, one poisoned message."""

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.push.test_runner import SUB, TOPIC, Client, eventually, verified
from tests.support.receiving import Receiving, received
from tests.support.served import served

LETTERS = "/projects/P/topics/letters"
POISON = "poison"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture
def client(tmp_path: Path, receiver: Receiving) -> Iterator[Client]:
    receiver.forget()
    with served(tmp_path / "ams-data", push_allow="127.0.0.0/8", push_ca_file=receiver.ca) as made:
        client = Client(made)
        client.ask("POST", "/projects/P", {})
        client.ask("PUT", TOPIC)
        client.ask("PUT", LETTERS)
        yield client
        client.close()


def subscribed(client: Client, receiver: Receiving, url: str, push: dict[str, object], **options: object) -> None:
    """Make a parallel subscription that is delivered to a URL of the receiver, and verify it."""
    wanted = {"pushEndpoint": url, "retryPolicy": {"type": "linear", "period": 50}, **push}
    made = client.ask("PUT", SUB, {"topic": TOPIC[1:], "type": "parallel", "pushConfig": wanted, **options})
    verified(client, receiver, made["pushConfig"]["verificationHash"])


def test_several_deliveries_are_under_way_keys_stay_in_order_and_what_is_poisoned_is_put_aside(
    client: Client, receiver: Receiving
) -> None:
    path = f"/slow/20/refuse/{POISON}"
    policy = {"deadLetterTopic": "letters", "maxDeliveryAttempts": 5}
    at_once = {"minimumBackoff": "0s", "maximumBackoff": "0s"}  # the service's clock stands still
    subscribed(
        client, receiver, receiver.url(path), {"maxOutstanding": 8},
        enableMessageOrdering=True, deadLetterPolicy=policy, retryPolicy=at_once,
    )  # fmt: skip
    messages = [_message(number) for number in range(200)]
    client.ask("POST", TOPIC + ":publish", {"messages": messages})

    eventually(lambda: client.ask("GET", SUB + ":offsets")["current"] == 200)

    assert 3 <= receiver.numbers().most_at_once <= 8
    came = [json.loads(each.body)["message"] for each in receiver.requests("/slow")]
    assert {each["messageId"] for each in came} == set(map(str, range(200)))
    by_key = defaultdict(list)
    for each in came:
        by_key[each.get("orderingKey", "")].append(int(each["messageId"]))
    for key, numbers in by_key.items():
        assert not key or numbers == sorted(numbers)
    assert [each["messageId"] for each in came].count("77") == 5
    (letter,) = _letters(client)
    assert letter["attributes"]["deadLetterMessageId"] == "77"
    assert letter["attributes"]["deadLetterAttempts"] == "5"
    assert letter["attributes"]["deadLetterStatus"] == "422"
    assert letter["attributes"]["deadLetterReason"] == "refused"


def _message(number: int) -> dict[str, str]:
    """Return a message of one of five keys, every sixth of none; one is poisoned."""
    data = POISON if number == 77 else f"m{number}"
    key = {} if number % 6 == 5 else {"orderingKey": f"k{number % 6}"}
    return {"data": b64encode(data.encode()).decode(), **key}


def _letters(client: Client) -> list[dict[str, dict[str, str]]]:
    made = client.ask("PUT", "/projects/P/subscriptions/desk", {"topic": LETTERS[1:]})
    client.ask("POST", f"/projects/P/subscriptions/{made['name'].rpartition('/')[2]}:modifyOffset", {"offset": 0})
    body = {"maxMessages": 10, "returnImmediately": True}
    return [
        each["message"] for each in client.ask("POST", "/projects/P/subscriptions/desk:pull", body)["receivedMessages"]
    ]
