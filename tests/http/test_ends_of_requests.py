"""How requests end: a client that sends nothing more gets its answers, and no trailer changes what the answer said."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import urlsplit

import pytest

from tests.support.served import SERVICE_TOKEN, Served
from tests.support.waiting import PATIENCE_SECONDS, wait_until

KEY = b"Host: x\r\nx-api-key: %b\r\n" % SERVICE_TOKEN.encode()
VERSION = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
MESSAGE = b'{"messages":[{"data":"aGk="}]}'


def post(path: bytes, body: bytes) -> bytes:
    head = b"POST /v1/projects/half/%b HTTP/1.1\r\n" % path + KEY + b"Content-Length: %d\r\n\r\n" % len(body)
    return head + body


PUBLISH, PULL = post(b"topics/t:publish", MESSAGE), post(b"subscriptions/s:pull", b'{"maxMessages":"1"}')
CHUNKED = PUBLISH.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n1e\r\n%b\r\n0\r\n\r\n" % MESSAGE


@pytest.fixture(scope="module", autouse=True)
def _topic(service: Served) -> None:
    service.ask("POST", "/projects/half", {})
    for name in ("t", "u"):
        service.ask("PUT", f"/projects/half/topics/{name}")
    for name, topic in (("s", "t"), ("u", "u")):
        service.ask("PUT", f"/projects/half/subscriptions/{name}", {"topic": f"projects/half/topics/{topic}"})


def told(address: tuple[str, int], *said: bytes) -> bytes:
    """Send, end one's own side, and return all that comes."""
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as client:
        for each in said:
            client.sendall(each)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(65536):
            answer += part
    return answer


@pytest.mark.parametrize("way", ["first", "known"])
@pytest.mark.parametrize(
    ("said", "answers"), [(PUBLISH, 1), (CHUNKED, 1), (VERSION, 1), (PUBLISH * 3, 3), (VERSION + PUBLISH + VERSION, 3)]
)
def test_what_was_asked_is_answered(service: Served, way: str, said: bytes, answers: int) -> None:
    assert told(service.address, said).count(b"HTTP/1.1 200 OK") == answers


def test_what_is_stored_is_answered_and_a_pull_that_finds_it(service: Served) -> None:
    found = [told(service.address, PUBLISH) for _ in range(20)]
    ids = [int(json.loads(each.partition(b"\r\n\r\n")[2])["messageIds"][0]) for each in found]

    assert ids == list(range(ids[0], ids[0] + 20))
    assert b'"receivedMessages":[{' in told(service.address, PULL)


@pytest.mark.parametrize("said", [VERSION[:-5], PUBLISH[:-5], b""])
def test_what_was_not_asked_to_its_end_is_not_answered(service: Served, said: bytes) -> None:
    assert told(service.address, said) == b""


def test_the_operations_port_answers_too(service: Served) -> None:
    address = urlsplit(service.run.operations_url)

    said = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert told((str(address.hostname), int(address.port or 0)), said).endswith(b"ok\n")


def test_a_pull_that_waits_ends(service: Served) -> None:
    """Its client may be gone, and what it would get would be lost to others until the lease ends."""
    for _ in range(2):  # over ASGI first, then as it is known
        assert b"200" not in told(service.address, post(b"subscriptions/u:pull", b"{}"))
    wait_until(lambda: service.run.service.deliverer.waiting == 0)


HEAD = b"%b HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
SHOW, POST = b"GET /v1/version", b"POST /v1/projects/half/topics/t:publish"
ENDING = [b"Connection: close", b"connection:CLOSE", b"Proxy-Connection: close", b"Connection: a, close"]
OTHERS = [b"Upgrade: h2c", b"Connection: upgrade\r\nUpgrade: h2c", b"Connection: keep-alive", b"X-Checksum: 1"]
REFUSED = [b"Content-Length: 5", b"Transfer-Encoding: chunked"]


class Client:
    """A connection whose answers are read one by one."""

    def __init__(self, connection: socket.socket, answers: BinaryIO) -> None:
        self._connection, self._answers = connection, answers

    def send(self, data: bytes) -> None:
        """Send, unless the connection was closed just then."""
        with contextlib.suppress(OSError):
            self._connection.sendall(data)

    def answer(self) -> tuple[int, str] | None:
        """Return the status and the `connection` field of the next answer, None when the connection was closed."""
        try:
            first = self._answers.readline()
            if not first:
                return None
            fields = http.client.parse_headers(self._answers)
        except ConnectionResetError:
            return None
        self._answers.read(int(fields["content-length"]))
        return int(first.split()[1]), fields.get("connection", "")


@pytest.fixture
def client(service: Served) -> Iterator[Client]:
    with service.connect(30) as connection, connection.makefile("rb") as answers:
        yield Client(connection, answers)


def chunked(body: bytes) -> bytes:
    return (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n"


@pytest.mark.parametrize("request_line", [SHOW, POST])
@pytest.mark.parametrize("field", ENDING + OTHERS + REFUSED)
@pytest.mark.parametrize("next_comes", ["with the trailer", "after the answer"])
def test_the_next_request_is_answered_or_the_connection_is_closed(
    client: Client, service: Served, request_line: bytes, field: bytes, next_comes: str
) -> None:
    head, body = HEAD % (request_line, service.token.encode()), MESSAGE if request_line == POST else b""
    follows = VERSION if next_comes == "with the trailer" else b""
    client.send(head + chunked(body) + field + b"\r\n\r\n" + follows)

    first = client.answer()

    if not follows:
        client.send(VERSION)
    if field in OTHERS:
        assert (first, client.answer()) == ((200, ""), (200, ""))
        return
    assert first in ((200, "close"), (200, ""), (400, "close"))
    assert client.answer() is None


def test_an_answer_before_the_end_of_a_body_in_chunks_closes_the_connection(client: Client, service: Served) -> None:
    """Whatever that end is, a trailer too, is read by nobody."""
    client.send(HEAD % (SHOW, service.token.encode()))
    assert client.answer() == (200, "close")
    client.send(b"0\r\nConnection: close\r\n\r\n")

    assert client.answer() is None


def test_the_request_before_the_one_with_the_trailer_is_answered(client: Client, service: Served) -> None:
    client.send(VERSION + HEAD % (SHOW, service.token.encode()) + b"0\r\nConnection: close\r\n\r\n" + VERSION)

    assert client.answer() == (200, "")
    assert client.answer() == (200, "close")
    assert client.answer() is None
