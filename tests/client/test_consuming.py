"""Iterating over messages, and closing, with both faces."""

import threading
from typing import Any

import pytest

from ams.client import Client, Retry, wire
from ams.client.errors import ClientError, Closed, Unavailable
from tests.client.faces import open_client
from tests.client.stub import Reply, Stub

BATCH = (
    b'{"receivedMessages": [{"ackId": "projects/P/subscriptions/S:0",'
    b' "message": {"messageId": "0", "data": "aGk=", "publishTime": "2024-03-05T10:20:30.000Z"}}]}'
)
NOTHING = b'{"receivedMessages": []}'


def test_messages_are_pulled_and_acknowledged_by_a_loop(face: str, stub: Stub) -> None:
    stub.script = [Reply(body=BATCH), Reply(body=b"{}"), Reply(body=NOTHING)]

    with open_client(face, stub.url) as client:
        data = [message.data for message in client.project("P").subscription("S").messages(follow=False)]

    assert data == [b"hi"]
    assert [path.rpartition(":")[2] for _, path, _, _ in stub.requests] == ["pull", "acknowledge", "pull"]


def test_a_loop_that_is_left_early_acknowledges_nothing(face: str, stub: Stub) -> None:
    stub.body = BATCH

    with open_client(face, stub.url) as client:
        for _ in client.project("P").subscription("S").messages():
            break

    assert [path.rpartition(":")[2] for _, path, _, _ in stub.requests] == ["pull"]


def test_a_loop_ends_when_the_client_is_closed(face: str, stub: Stub) -> None:
    stub.body = BATCH
    taken = 0

    with open_client(face, stub.url) as client:
        for _ in client.project("P").subscription("S").messages():
            taken += 1
            client.close()

    assert (taken, len(stub.requests)) == (1, 1)


def test_a_closed_client_sends_nothing(face: str, stub: Stub) -> None:
    with open_client(face, stub.url) as client:
        client.close()
        with pytest.raises(Closed):
            client.call(wire.get_status())

    assert stub.requests == []


def test_closing_ends_a_wait_at_once(stub: Stub) -> None:
    stub.status = 503
    waiting = threading.Event()
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            client.call(wire.get_status())
        except ClientError as error:
            ended.append(error)

    long_waits = Retry(first=1000, longest=1000, total=10_000)
    client = Client(stub.url, retry=long_waits, on_retry=lambda *_: waiting.set())
    thread = threading.Thread(target=ask)
    thread.start()
    assert waiting.wait(10)
    client.close()
    thread.join(10)

    assert [type(error) for error in ended] == [Closed]


def test_closing_lets_a_call_under_way_end(stub: Stub) -> None:
    stub.slow, stub.body = threading.Event(), BATCH
    pulled: list[Any] = []
    client = Client(stub.url)
    thread = threading.Thread(target=lambda: pulled.extend(client.project("P").subscription("S").messages()))
    thread.start()
    assert stub.asked.wait(10)

    client.close()
    stub.slow.set()
    thread.join(10)

    assert (thread.is_alive(), pulled, len(stub.requests)) == (False, [], 1)


def test_another_policy_goes_over_the_same_connections(face: str, stub: Stub) -> None:
    with open_client(face, stub.url) as client:
        client.call(wire.get_status())
        impatient = client.with_retry(None)
        stub.script = [Reply(500, b"")]
        with pytest.raises(Unavailable):
            impatient.call(wire.get_status())
        impatient.close()
        with pytest.raises(Closed):
            client.call(wire.get_status())

    assert (len(stub.requests), stub.connections) == (2, 1)
