"""Both clients against a server with scripted answers; loops over messages, and closing."""

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ams.client
from ams.client import Client, Message, Retry, wire
from ams.client.errors import Closed, InvalidInput, NotAms, Unavailable, Unreachable, Untrusted
from tests.client.faces import open_client
from tests.client.stub import CUT, Reply, Stub
from tests.support.waiting import PATIENCE_SECONDS

TOKEN = "f" * 64
SOON = Retry(first=0.001, longest=0.001)
PUBLISHED = b'{"messageIds": ["0"]}'


def test_a_call_carries_the_token_and_returns_the_answer_read(face: str, stub: Stub) -> None:
    stub.body = PUBLISHED

    with open_client(face, stub.url, TOKEN) as client:
        published = client.call(wire.publish("P", "T", [wire.message(b"hi")]))

    assert published.message_ids == ["0"]
    [(method, path, headers, body)] = stub.requests
    assert (method, path, body) == ("POST", "/v1/projects/P/topics/T:publish", b'{"messages":[{"data":"aGk="}]}')
    assert headers["x-api-key"] == TOKEN
    assert headers["content-type"] == "application/json"  # push contract 12
    assert "idempotency-key" not in headers


def test_queries_are_encoded(face: str, stub: Stub) -> None:
    stub.body = b'{"topics": [], "nextPageToken": "", "totalSize": 0}'
    with open_client(face, stub.url) as client:
        client.call(wire.list_topics("P", page_token="a+b/c="))
    assert stub.requests[0][1] == "/v1/projects/P/topics?pageToken=a%2Bb%2Fc%3D"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_endpoint_may_be_written_with_or_without_the_version(stub: Stub, suffix: str) -> None:
    with Client(stub.url + suffix) as client:
        client.call(wire.get_status())
    assert stub.requests[0][1] == "/v1/status"


def test_a_busy_service_is_asked_again_when_it_wants_to_be(face: str, stub: Stub) -> None:
    stub.script = [Reply(503, b"", {"retry-after": "1"})]
    told: list[float] = []

    with open_client(face, stub.url, retry=SOON, on_retry=lambda _error, _sent, pause: told.append(pause)) as client:
        client.call(wire.get_status())

    assert (len(stub.requests), [round(pause) for pause in told]) == (2, [1])


def test_a_kept_connection_that_was_cut_is_replaced(face: str, stub: Stub) -> None:
    with open_client(face, stub.url, retry=SOON) as client:
        client.call(wire.get_status())
        stub.script = [CUT]
        client.call(wire.get_status())

    assert (len(stub.requests), stub.connections) == (3, 2)


def test_a_slow_answer_is_waited_for_only_so_long(face: str, stub: Stub) -> None:
    stub.slow = threading.Event()

    with open_client(face, stub.url, timeout=2, retry=Retry(attempts=2, first=0)) as client:
        with pytest.raises(Unreachable, match="in time") as raised:
            client.call(wire.get_status())
        stub.slow.set()

    assert (len(stub.requests), raised.value.sent) == (2, True)


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (201, b"{}"), (204, b""), (301, b"")])
def test_what_does_not_answer_as_ams_is_told_apart(face: str, stub: Stub, status: int, body: bytes) -> None:
    stub.status, stub.body = status, body
    with open_client(face, stub.url) as client, pytest.raises(NotAms):
        client.call(wire.list_projects())


def test_nobody_there_is_unreachable(face: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with (open_client(face, endpoint, retry=None) as client,
              pytest.raises(Unreachable, match=f"cannot reach {endpoint}") as raised):  # fmt: skip
            client.call(wire.get_status())

    assert not raised.value.sent


def test_an_answer_in_plain_text_on_a_tls_endpoint_is_not_asked_again(face: str, stub: Stub) -> None:
    with open_client(face, stub.url.replace("http:", "https:")) as client, pytest.raises(Untrusted):
        client.call(wire.get_status())


@pytest.mark.parametrize("endpoint", ["localhost:8080", "ftp://ams.example", "https://", "https://a:b@ams.example"])
def test_an_endpoint_that_cannot_be_one_is_refused(face: str, endpoint: str) -> None:
    with pytest.raises(InvalidInput, match="looks like"), open_client(face, endpoint):
        pass


def test_a_bad_token_is_refused_without_being_quoted(face: str) -> None:
    with pytest.raises(InvalidInput) as raised, open_client(face, "http://127.0.0.1:1", "secret\n"):
        pass
    assert "secret" not in str(raised.value)


def test_the_package_offers_what_its_page_says() -> None:
    offered = ["AsyncClient", "Client", "Message", "ReceivedMessage", "Retry", "RetryLater", "Worked"]
    assert ams.client.__all__ == offered
    assert [name for name in ams.client.__all__ if getattr(ams.client, name).__name__ != name] == []
    with pytest.raises(AttributeError, match="nothing"):
        ams.client.nothing  # noqa: B018  # asking is the test


def test_threads_may_share_a_client(stub: Stub) -> None:
    stub.body = PUBLISHED

    with Client(stub.url) as client, ThreadPoolExecutor(8) as threads:
        topic = client.project("P").topic("T")
        published = list(threads.map(topic.publish, [[Message(b"%d" % number)] for number in range(64)]))

    assert published == [["0"]] * 64
    assert len({headers["idempotency-key"] for _, _, headers, _ in stub.requests}) == 64
    assert stub.connections <= 8


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


SCRIPT = Path(__file__).parents[2] / "scripts" / "client.py"


def test_the_client_for_threads_is_as_it_is_written() -> None:
    assert subprocess.run([sys.executable, str(SCRIPT), "--check"]).returncode == 0, "please run: make client"
