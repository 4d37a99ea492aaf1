"""Iterating over messages, and closing, with both faces."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ams.client import Client, Retry, wire
from ams.client.errors import Closed, Unavailable
from tests.client.faces import open_client
from tests.client.stub import Reply, Stub
from tests.support.waiting import PATIENCE_SECONDS

BATCH = (
    b'{"receivedMessages": [{"ackId": "projects/P/subscriptions/S:0",'
    b' "message": {"messageId": "0", "data": "aGk=", "publishTime": "2024-03-05T10:20:30.000Z"}}]}'
)


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
    long_waits = Retry(first=1000, longest=1000, total=10_000)
    client = Client(stub.url, retry=long_waits, on_retry=lambda *_: waiting.set())
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(client.call, wire.get_status())
        assert waiting.wait(PATIENCE_SECONDS)
        client.close()
        with pytest.raises(Closed):
            asked.result(PATIENCE_SECONDS)


def test_closing_lets_a_call_under_way_end(stub: Stub) -> None:
    stub.slow, stub.body = threading.Event(), BATCH
    client = Client(stub.url)
    with ThreadPoolExecutor(1) as threads:
        pulled = threads.submit(lambda: list(client.project("P").subscription("S").messages()))
        assert stub.asked.wait(PATIENCE_SECONDS)
        client.close()
        stub.slow.set()
        assert pulled.result(PATIENCE_SECONDS) == []

    assert len(stub.requests) == 1


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
