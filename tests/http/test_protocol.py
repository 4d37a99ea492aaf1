"""Clients that speak badly, too much, too slowly or not at all, on real connections; the others do not feel it."""

import contextlib
import http.client
import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.served import SERVICE_TOKEN, Served, served

HEAD = (
    b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nhost: ams.example\r\nx-api-key: %b\r\n" % SERVICE_TOKEN.encode()
)
SOON = 3.0
"""Seconds within which somebody who behaves is answered, also on a busy machine."""
PATIENCE = 0.5
"""Seconds the service waits for a request that has begun."""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with small limits, and topic T in project P."""
    limits = {"request_seconds": PATIENCE, "pull_wait": 2 * PATIENCE, "max_connections": 50}
    limits |= {"max_header_bytes": 4096, "max_body_bytes": 100_000}
    with served(tmp_path_factory.mktemp("strict") / "ams-data", **limits) as service:
        for method, path in (("POST", "/v1/projects/P"), ("PUT", "/v1/projects/P/topics/T")):
            assert ask(service, method, path, b"{}") == 200
        yield service


def ask(service: Served, method: str = "GET", path: str = "/v1/version", body: bytes | None = None) -> int:
    """Ask as somebody who behaves; return the status."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(service)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"x-api-key": SERVICE_TOKEN})
        return connection.getresponse().status


def connect(service: Served) -> socket.socket:
    return service.connect(SOON)


def everything(client: socket.socket) -> bytes:
    """Read until the service closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def say(service: Served, *parts: bytes) -> bytes:
    """Send bytes, then nothing more; return all that comes back until the service closes the connection."""
    with connect(service) as client:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                client.sendall(part)
        return everything(client)


def error_in(answer: bytes, status: int) -> str:
    """Return the text of the one error in an answer, which must be whole and in the envelope."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d" % status), answer
    assert b"content-type: application/json; charset=utf-8" in lines
    assert b"content-length: %d" % len(body) in lines
    error = json.loads(body)["error"]
    assert error["code"] == status
    return str(error["message"])


@pytest.mark.parametrize(
    "said",
    [
        b"GET\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /v1/version HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,
        b"GET /v1/version HTTP/1.1\r\nhost ams.example\r\n\r\n",
        b"GET /v1/version HTTP/1.1\r\nx: \0\r\n\r\n",
        HEAD + b"content-length: x\r\n\r\n",
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        HEAD + b"content-length: 99999999999999999999999\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_the_envelope(strict: Served, said: bytes) -> None:
    assert error_in(say(strict, said), 400)


@pytest.mark.parametrize("hosts", [b"", b"host: a\r\nhost: a\r\n"])
def test_a_request_names_its_host_once(strict: Served, hosts: bytes) -> None:
    """RFC 9112, 3.2."""
    said = b"GET /v1/version HTTP/1.1\r\n" + hosts + b"connection: close\r\n\r\n"

    assert error_in(say(strict, said), 400) == "Host must be given once"


def test_a_request_of_http_1_0_needs_no_host(strict: Served) -> None:
    assert say(strict, b"GET /v1/version HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"identity"])
def test_a_body_in_a_coding_that_is_not_undone_here_is_refused(strict: Served, coding: bytes) -> None:
    answer = say(strict, HEAD + b"transfer-encoding: " + coding + b"\r\n\r\n0\r\n\r\n")

    assert error_in(answer, 400) == "Transfer-Encoding can only be chunked"


def test_chunked_may_be_written_in_any_case(strict: Served) -> None:
    said = HEAD + b"transfer-encoding: Chunked\r\nconnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n"

    assert b"Transfer-Encoding" not in say(strict, said)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([b"", b"GET ", b"GET /v1/", b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\n", HEAD])
    .flatmap(lambda head: st.binary(max_size=60).map(lambda rest: head + rest + b"\r\n\r\n"))
)  # fmt: skip
def test_no_bytes_make_the_service_fail(strict: Served, said: bytes) -> None:
    with connect(strict) as client:
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        answer = everything(client)

    assert not answer or answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")), answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/version?" + b"x" * 8000,
        b"GET /v1/version HTTP/1.1\r\nx: " + b"x" * 8000,
        b"GET /v1/version HTTP/1.1\r\n" + b"x: y\r\n" * 2000,
    ],
    ids=["line", "header", "headers"],
)
def test_a_head_over_the_limit_is_refused_before_it_ends(strict: Served, head: bytes) -> None:
    assert error_in(say(strict, head), 400) == "Request header is too large"


OFFERED = (
    b"POST /v1/projects/NAME HTTP/1.1\r\nHost: x\r\nx-api-key: KEY\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    b"Content-Length: 22\r\n\r\n" + b'{"description":"kept"}'
)


def offered(name: str) -> bytes:
    return OFFERED.replace(b"NAME", name.encode()).replace(b"KEY", SERVICE_TOKEN.encode())


@pytest.mark.parametrize("spelling", [b"Upgrade: h2c", b"UPGRADE: h2c", b"uPgRaDe:h2c"])
def test_an_offer_to_upgrade_is_passed_by_however_it_is_spelt(strict: Served, spelling: bytes) -> None:
    with connect(strict) as client:
        client.sendall(offered(f"spelt-{spelling[:8].hex()}").replace(b"Upgrade: h2c", spelling))
        assert b'"description":"kept"' in client.recv(4000)


def test_a_blank_before_the_colon_of_a_header_is_refused(strict: Served) -> None:
    """RFC 9112, 5.1: a proxy may take such a header for another one."""
    said = offered("blank").replace(b"Upgrade: h2c", b"upgrade :h2c")

    assert error_in(say(strict, said), 400) == "Invalid HTTP request"


def test_an_offer_to_upgrade_may_come_in_two_packets(strict: Served) -> None:
    whole = offered("c00000")
    for cut in range(whole.index(b"Connection") - 2, whole.index(b"kept"), 3):
        said = whole.replace(b"c00000", b"c%05d" % cut)
        with connect(strict) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(said[:cut])
            time.sleep(0.003)
            client.sendall(said[cut:])
            assert b'"description":"kept"' in client.recv(4000), cut


def test_what_follows_a_request_that_offers_to_upgrade_is_never_taken_for_a_request(strict: Served) -> None:
    inner = b"POST /v1/projects/SMUGGLED HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nContent-Length: 2\r\n\r\n{}"
    inner %= SERVICE_TOKEN.encode()
    first = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
    second = offered("second").partition(b"\r\n\r\n")[0].replace(b"22", b"%d" % len(inner)) + b"\r\n\r\n" + inner

    for said in (first + second, second):
        with connect(strict) as client:
            client.sendall(said)
            with contextlib.suppress(ConnectionError):
                client.recv(4000)

    assert ask(strict, "GET", "/v1/projects/SMUGGLED") == 404


@pytest.mark.parametrize("before_the_end", [1, 2, 3])
def test_lines_of_a_body_that_look_like_offers_move_no_byte_of_it(strict: Served, before_the_end: int) -> None:
    """Behind a proxy that keeps connections, a request found in a body would be the next client's."""
    inner = b"POST /v1/projects/FROMBODY HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nContent-Length: 2\r\n\r\n{}"
    body = b"\nUpgrade: a" * 80 + b"\r\n\r\n" + inner % SERVICE_TOKEN.encode()
    head = b"POST /v1/projects/P HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(strict) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(head[:-before_the_end])
        time.sleep(0.02)
        client.sendall(head[-before_the_end:] + body)
        client.shutdown(socket.SHUT_WR)
        assert everything(client).count(b"HTTP/1.1 ") == 1

    assert ask(strict, "GET", "/v1/projects/FROMBODY") == 404


def test_an_error_waits_for_the_answers_to_the_requests_before_it(strict: Served) -> None:
    pull = b"POST /v1/projects/P/subscriptions/BEFORE:pull HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\n"
    pull = pull % SERVICE_TOKEN.encode() + b"Content-Length: 2\r\n\r\n{}"
    assert ask(strict, "PUT", "/v1/projects/P/subscriptions/BEFORE", b'{"topic": "projects/P/topics/T"}') == 200

    answers = say(strict, pull + b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n" + b"nonsense\r\n\r\n")

    first, second, third = answers.split(b"HTTP/1.1 ")[1:]
    assert b"receivedMessages" in first
    assert b"compiler" in second
    assert b"Invalid HTTP request" in third


def test_a_request_that_offers_to_upgrade_may_stand_between_others(strict: Served) -> None:
    version = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"

    answers = say(strict, version + offered("between") + version.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    assert [each[:3] for each in answers.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 3
    assert b'"description":"kept"' in answers


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"GET /v1/version?" + b"a&" * 100 + b" HTTP/1.1\r\n\r\n", "Query has too many fields: at most 100"),
        (b"GET /v1/version HTTP/1.1\r\n" + b"x: y\r\n" * 101 + b"\r\n", "Request header is too large"),
    ],
)
def test_what_is_slow_to_parse_is_refused(strict: Served, head: bytes, reason: str) -> None:
    assert error_in(say(strict, head), 400) == reason


def test_as_many_headers_and_fields_of_a_query_are_taken_as_the_limits_say(strict: Served) -> None:
    said = (
        b"GET /v1/version?" + b"a&" * 99 + b" HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 98 + b"connection: close\r\n\r\n"
    )

    assert say(strict, said).startswith(b"HTTP/1.1 200")


def test_a_long_query_is_refused(tmp_path: Path) -> None:
    with served(tmp_path / "ams-data") as service:
        said = b"GET /v1/version?key=" + b"x" * 8190 + b" HTTP/1.1\r\n\r\n"

        assert error_in(say(service, said), 400) == "Query is too long: at most 8192 bytes"


def test_a_body_announced_too_large_is_refused_with_its_first_piece(strict: Served) -> None:
    answer = say(strict, HEAD + b"content-length: 100001\r\nconnection: close\r\n\r\n{")

    assert error_in(answer, 413) == "Message size is too large"


def test_a_body_that_never_ends_is_cut_off(strict: Served) -> None:
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with connect(strict) as client:
        client.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        assert eventually(lambda: is_refused(client, chunk))

    assert ask(strict) == 200


def is_refused(client: socket.socket, piece: bytes) -> bool:
    """Whether the service takes no more on this connection."""
    try:
        client.sendall(piece)
    except OSError:
        return True
    return False


def test_a_pull_may_wait_longer_than_a_request_may_take_to_arrive(strict: Served) -> None:
    subscription = "/v1/projects/P/subscriptions/S"
    assert ask(strict, "PUT", subscription, b'{"topic": "projects/P/topics/T"}') == 200

    started = time.monotonic()
    assert ask(strict, "POST", subscription + ":pull", b"{}") == 200
    assert time.monotonic() - started > PATIENCE


@pytest.mark.parametrize(
    ("begun", "drop"),
    [
        (b"GET /v1/ver", b"s"),
        (b"GET /v1/version HTTP/1.1\r\nx: ", b"y"),
        (HEAD + b"content-length: 50\r\n\r\n", b""),
        (HEAD + b"content-length: 50\r\n\r\n{", b" "),
    ],
    ids=["line", "header", "no body", "body"],
)
def test_a_client_that_drips_is_given_up(strict: Served, begun: bytes, drop: bytes) -> None:
    answer = b""
    with connect(strict) as client:
        client.sendall(begun)
        client.settimeout(PATIENCE / 6)
        for _ in range(60):  # ten times as long as it waits for a request
            try:
                answer = client.recv(65536)
                break
            except TimeoutError:
                client.sendall(drop)

    assert error_in(answer, 400) == "Request took too long to arrive"


def test_a_connection_that_says_nothing_is_closed(strict: Served) -> None:
    assert say(strict) == b""


def test_connections_over_the_limit_are_told_to_come_again(strict: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(strict))
        refused = say(strict)

    assert error_in(refused, 503) == "Too many connections"
    assert b"\r\nretry-after: 2\r\n" in refused
    assert eventually(lambda: ask(strict) == 200)


def eventually(holds: Callable[[], bool], within: float = SOON) -> bool:
    """Whether something becomes true soon; what was open has to be seen closed first."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if holds():
                return True
        time.sleep(0.01)  # the service runs in a thread of this process, and wants its turn
    return False


def test_others_are_answered_while_a_thousand_connections_are_open_and_idle(tmp_path: Path) -> None:
    with (
        served(tmp_path / "ams-data") as service,
        contextlib.ExitStack() as stack,
        selectors.DefaultSelector() as closed,
    ):
        idle = [stack.enter_context(connect(service)) for _ in range(1000)]
        for client in idle:
            closed.register(client, selectors.EVENT_READ)

        assert [ask(service) for _ in range(10)] == [200] * 10
        assert closed.select(timeout=0) == []  # all thousand were still open then

        idle[500].sendall(b"GET /v1/version HTTP/1.1\r\nhost: ams.example\r\nconnection: close\r\n\r\n")
        assert everything(idle[500]).startswith(b"HTTP/1.1 200")


def test_a_thousand_waiting_pulls_are_all_woken_and_the_others_do_not_wait(tmp_path: Path) -> None:
    pull = (
        b"POST /v1/projects/P/subscriptions/S:pull HTTP/1.1\r\nhost: x\r\nx-api-key: %b\r\ncontent-length: 2\r\n\r\n{}"
    )
    with served(tmp_path / "ams-data", pull_wait=60) as service, contextlib.ExitStack() as stack:
        topic = "/v1/projects/P/topics/T"
        assert ask(service, "POST", "/v1/projects/P", b"{}") == ask(service, "PUT", topic) == 200
        subscription = json.dumps({"topic": "projects/P/topics/T"}).encode()
        assert ask(service, "PUT", "/v1/projects/P/subscriptions/S", subscription) == 200
        waiting = [stack.enter_context(connect(service)) for _ in range(1000)]
        for client in waiting:
            client.sendall(pull % SERVICE_TOKEN.encode())
        # How long a thousand take to come in, on a machine that others use too, is no promise.
        assert eventually(lambda: service.run.service.deliverer.waiting == 1000, within=60)

        assert [ask(service) for _ in range(10)] == [200] * 10
        assert service.run.service.deliverer.waiting == 1000

        assert ask(service, "POST", topic + ":publish", b'{"messages": [{"data": "aGk="}]}') == 200
        assert all(b'"messageId":"0"' in client.recv(65536) for client in waiting)
